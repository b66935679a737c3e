"""Sizes of runs of PEARL that take a second: short collections, few updates, small batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["IN_FOURS", "IN_SIXTEENS"]

IN_SIXTEENS: Mapping[str, Any] = {
    "num_initial_steps": 20,
    "num_steps_prior": 20,
    "num_extra_rl_steps_posterior": 20,
    "num_steps_per_epoch": 3,
    "num_tasks_sample": 2,
    "meta_batch_size": 2,
    "batch_size": 16,
    "embedding_batch_size": 16,
    "embedding_mini_batch_size": 16,
}
"""Batches of 16 rows. Files of ``tests/corpus`` were written with them, so these numbers stay, in this order."""

IN_FOURS: Mapping[str, Any] = {
    **IN_SIXTEENS,
    "latent_dim": 2,
    "encoder_hidden_sizes": (8,),
    "num_steps_per_epoch": 2,
    "batch_size": 4,
    "embedding_batch_size": 4,
    "embedding_mini_batch_size": 4,
    "replay_buffer_size": 500,
}
"""Batches of 4 rows."""
