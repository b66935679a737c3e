"""From a name, a class, an instance or a function to environments and slots."""
