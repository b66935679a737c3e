"""Simulations in, posteriors out."""
