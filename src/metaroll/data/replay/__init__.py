"""Replay memories: a ring of whole paths, and the one store of off-policy learners."""

from metaroll.data.replay.path_buffer import PathBuffer, memory_estimate
from metaroll.data.replay.replay_buffer import ReplayBatch, ReplayBuffer, SegmentBatch

__all__ = ["PathBuffer", "ReplayBatch", "ReplayBuffer", "SegmentBatch", "memory_estimate"]
