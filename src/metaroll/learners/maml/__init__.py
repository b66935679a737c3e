"""Gradient-based meta-learning: the learner, its samples, its outer updates, and their spread over threads."""
