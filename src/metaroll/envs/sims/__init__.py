"""Batched simulators of textbook and laboratory systems, with their parameters, tasks and drawings."""
