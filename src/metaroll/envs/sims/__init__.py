"""Batched simulators of textbook and laboratory systems, and what belongs to them."""
