"""The documented samplers: plans, run, group."""
