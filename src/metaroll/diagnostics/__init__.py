"""Checks of task environments: set, kept, told apart, leaked; each runs on the rollout engine."""
