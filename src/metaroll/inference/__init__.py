"""Simulations in, posteriors over simulator parameters out, with checks of what they claim."""
