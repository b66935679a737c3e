"""Foundations of environments."""
