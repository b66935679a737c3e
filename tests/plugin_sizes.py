"""Sizes of runs of the plug-ins in ``examples`` that take a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["VARIBAD"]

VARIBAD: Mapping[str, Any] = {
    "hidden_sizes": (8,),
    "latent_size": 2,
    "encoder_size": 6,
    "decoder_sizes": (5,),
    "episodes_per_trial": 2,
    "trials_per_epoch": 6,
    "elbo_steps": 3,
    "elbo_trials": 4,
    "elbo_terms": 3,
    "kept_trials": 9,
    "num_passes": 2,
    "batch_size": 32,
    "num_test_tasks": 2,
    "num_adaptation_episodes": 1,
}
