"""Real devices as environments: steps of equal length, limits, emergency stop, and a log while acting."""
