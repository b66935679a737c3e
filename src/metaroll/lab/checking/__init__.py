"""Checks of task environments: set, kept, distinguished, leaked; each runs on the rollout engine."""
