"""Data of rollouts: trajectories, views on them, replay buffers."""
