"""Plans in, rollouts out: the one loop that steps environments, and what surrounds it."""
