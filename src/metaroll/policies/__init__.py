"""Policies: torch modules with a fast NumPy acting path, and adapters for policies of other libraries."""
