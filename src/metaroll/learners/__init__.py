"""Batches of trajectories in, better policies out."""
