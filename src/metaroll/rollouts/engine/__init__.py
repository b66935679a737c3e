"""Plans in, rollouts out: the loop that steps environments, and everything around it."""
