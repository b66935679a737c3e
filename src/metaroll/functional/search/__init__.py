"""Gradient-free search as pure functions: distributions over parameter vectors, with ask and tell."""
