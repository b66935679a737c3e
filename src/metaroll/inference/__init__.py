"""Simulations in, posteriors over simulator parameters out, with checks of their calibration."""
