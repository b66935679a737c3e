"""What another policy would have done along given rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.processing.on_policy import OnPolicyData, domain_rows, pad_rollouts

__all__ = ["label_actions"]


def label_actions(policy: Any, data: OnPolicyData, rollouts: Sequence[StepSequence]) -> np.ndarray:
    """The action of ``policy``, without noise, at each step of all rollouts: ``(T, act_dim)``, ``(T,)`` for choices.

    A policy with memory remembers what it would have seen, had it been there from the beginning.

    Args:
        policy: A ``types.Policy``; one with ``domain_params`` is told those of each rollout.
        data: Arrays of ``rollouts``, as from ``collect_on_policy``.
        rollouts: The rollouts.
    """
    count, longest = len(rollouts), int(data.lengths.max())
    generators = [np.random.default_rng(i) for i in range(count)]
    names = tuple(getattr(policy, "domain_params", ()))
    if names:
        told = [dict(zip(names, row, strict=True)) for row in domain_rows(rollouts, names).tolist()]
        state = policy.initial_state([None] * count, generators, told)
    else:
        state = policy.initial_state([None] * count, generators)
    seen = pad_rollouts(data.observations, data.bounds, range(count))
    noise = np.zeros((count, policy.noise_dim), dtype=np.float32)
    actions = []
    for step in range(longest):
        action, state, _ = policy.act(seen[:, step], state, noise, True)
        actions.append(action)
    stacked = np.stack(actions, axis=1)
    return np.concatenate([stacked[i, :length] for i, length in enumerate(data.lengths.tolist())])
