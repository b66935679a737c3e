"""Gymnasium's classic control, stepped as arrays."""
