"""Candidates of a search as parameters of a policy: which parameters are searched, and how candidates are evaluated."""

from __future__ import annotations

import math

import numpy as np

from metaroll.learners.evolution_configs import Trials
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.policies.parameters import tensors_of

__all__ = ["Trials", "normalized_for", "searched_places"]


def searched_places(policy: ActingPolicy) -> np.ndarray:
    """Indices of the parameters that require a gradient in the flat vector ``(P,)``; the others are not weights.

    Raises:
        ValueError: There are none.
    """
    layout, parameters = policy.parameter_layout(), tensors_of(policy)
    wanted = [
        np.full(math.prod(shape), parameters[name].requires_grad)
        for name, shape in zip(layout.names, layout.shapes, strict=True)
    ]
    places = np.flatnonzero(np.concatenate(wanted)) if wanted else np.zeros(0, dtype=int)
    if not len(places):
        inner = policy.policy if isinstance(policy, NormalizedPolicy) else policy
        raise ValueError(f"policy must have parameters that require a gradient, {type(inner).__name__} has none")
    return places


def normalized_for(policy: ActingPolicy, trials: Trials) -> NormalizedPolicy:
    """``policy`` in a ``NormalizedPolicy``; itself, if it is one already."""
    if isinstance(policy, NormalizedPolicy):
        return policy
    if not isinstance(policy, ActingPolicy):
        raise TypeError(
            f"policy must have parameters to search, such as GaussianMLPPolicy, got {type(policy).__name__}"
        )
    return NormalizedPolicy(policy, trials.normalize_observations, trials.scale_actions)
