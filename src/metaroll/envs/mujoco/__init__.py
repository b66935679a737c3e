"""Environments simulated by MuJoCo: the one door to the mujoco package."""
