"""Replay memories: a ring of whole paths, and the one store of off-policy learners."""
