"""Formulas of inference: random features, calibration of posteriors, distances between samples (NumPy)."""
