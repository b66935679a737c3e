"""What a rollout leaves behind: trajectories, views on them, replay buffers."""
