"""Recorded rollouts beside the simulator that shall explain them."""
