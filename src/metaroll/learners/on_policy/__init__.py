"""Learners that forget their rollouts after every update: PPO, and those that train with it."""
