"""Learners that fit action values to replayed steps of live collection: DDPG, TD3, SAC, and their common base."""
