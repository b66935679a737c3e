"""Wrappers for any Gymnasium environment: random domains, normalized, delayed, noisy or partial signals.

They also step batches, where the environment inside brings a batched simulator; the rollouts are bitwise identical.
"""
