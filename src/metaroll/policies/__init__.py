"""What acts: torch modules with a fast NumPy acting path, and adapters for foreign policies."""
