"""Lists of Gymnasium environments and vector environments as slots."""
