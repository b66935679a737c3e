"""Running moments of all that PPO normalizes: observations, returns, and what only the critic is told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.functional.running_moments import Moments, add_rows, no_moments
from metaroll.policies.normalized import NormalisedPolicy
from metaroll.processing.on_policy import OnPolicyData, domain_rows, running_returns

__all__ = ["KNOWN_EPOCHS", "PPONormalizer"]

KNOWN_EPOCHS = 10
"""Moments that a given policy has count for so many epochs: so they stay in its own world, and follow in another."""

_MOST_REWARD = 10.0
_TINY = 1e-8


class PPONormalizer:
    """Keeps the moments, and the observation normalizer of the policy up to date.

    Args:
        policy: Its ``set_observation_moments`` is told what was learned, if it normalizes observations.
        domain_params: Names of domain parameters that the critic is told.
        known_rows: How many rows the moments count for that the policy has already, if it has any.
    """

    def __init__(self, policy: NormalisedPolicy, domain_params: Sequence[str], known_rows: int) -> None:
        self._policy = policy
        self._domain_params = tuple(domain_params)
        self._observations = policy.observation_moments(known_rows)
        self._returns = no_moments(1)
        self._domain = no_moments(len(self._domain_params))

    def learn_observations(self, data: OnPolicyData) -> None:
        """Add the observations of ``data``: the policy acts by them from now on."""
        if self._policy.normalize_observations:
            self._observations = add_rows(self._observations, data.observations)
            self._policy.set_observation_moments(self._observations.mean, self._observations.std)

    def scaled_rewards(self, data: OnPolicyData, discount: float) -> np.ndarray:
        """Rewards ``(T,)`` over the standard deviation of their discounted sums (these too), within 10 of 0."""
        sums = running_returns(data.rewards, data.bounds, discount)
        self._returns = add_rows(self._returns, sums[:, None])
        scale = math.sqrt(float(self._returns.variance[0]) + _TINY)
        return np.clip(data.rewards / scale, -_MOST_REWARD, _MOST_REWARD)

    def domains(self, rollouts: Sequence[StepSequence], *, learn: bool) -> np.ndarray | None:
        """Normalized domain parameters of each rollout ``(R, D)``; ``None`` if the critic is told none."""
        if not self._domain_params:
            return None
        rows = domain_rows(rollouts, self._domain_params)
        if learn:
            self._domain = add_rows(self._domain, rows)
        std = self._domain.std
        return ((rows - self._domain.mean) / np.where(std > _TINY, std, 1.0)).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        """All moments."""
        return {name: moments.to_dict() for name, moments in self._named().items()}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``state_dict`` (the policy has been restored with its parameters)."""
        found = {name: Moments.from_dict(tree[name], len(own.mean)) for name, own in self._named().items()}
        self._observations, self._returns, self._domain = found["observations"], found["returns"], found["domain"]

    def _named(self) -> dict[str, Moments]:
        return {"observations": self._observations, "returns": self._returns, "domain": self._domain}
