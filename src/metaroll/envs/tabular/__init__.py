"""Bandits and random MDPs."""
