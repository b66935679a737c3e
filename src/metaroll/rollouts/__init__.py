"""Plans in, trajectories out: the one engine that steps environments."""
