"""Relabel rollouts with the actions of another policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.processing.on_policy import OnPolicyData, domain_params_of, pad_rollouts
from metaroll.types import Policy

__all__ = ["label_actions"]


def label_actions(policy: Policy, data: OnPolicyData, rollouts: Sequence[StepSequence]) -> np.ndarray:
    """The action of ``policy``, without noise, at each step of all rollouts: ``(T, act_dim)``, ``(T,)`` for choices.

    A recurrent policy is unrolled along each rollout: its input is the observations and (if it uses them) the actions
    taken. Its belief about the task is its own.

    Args:
        policy: The labeling policy; if it ``takes_domain_params``, it receives those of each rollout.
        data: Arrays of ``rollouts``, as from ``collect_on_policy``.
        rollouts: The rollouts.

    Raises:
        DataError: A rollout lacks a domain parameter that the policy needs.
    """
    batch = Rollouts.of(rollouts)
    count, longest = len(batch), int(data.lengths.max())
    generators = [np.random.default_rng(i) for i in range(count)]
    params = list(map(domain_params_of, batch.infos)) if policy.info.takes_domain_params else None
    state = policy.initial_state([policy.plan_context()] * count, generators, params)
    seen = pad_rollouts(data.observations, data.bounds, range(count))
    taken = pad_rollouts(batch.column("actions"), data.bounds, range(count))
    noise = np.zeros((count, policy.noise_dim), dtype=np.float32)
    actions = []
    for step in range(longest):
        action, state, _ = policy.act(seen[:, step], state, noise, True)
        state = policy.with_actions_taken(state, taken[:, step])
        actions.append(action)
    stacked = np.stack(actions, axis=1)
    return np.concatenate([stacked[i, :length] for i, length in enumerate(data.lengths.tolist())])
