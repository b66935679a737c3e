"""A policy around a policy, for single rollouts: it is timed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from metaroll.types import Context, Policy, PolicyInfo, PolicyState

__all__ = ["TimedPolicy"]


class TimedPolicy(Policy):
    """Measures how long the policy takes to act."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.seconds = 0.0
        """How long the last call took."""

    def act(self, *args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        result = self._policy.act(*args, **kwargs)
        self.seconds = time.perf_counter() - begun
        return result

    @property
    def info(self) -> PolicyInfo:
        return self._policy.info

    def initial_state(self, *args: Any, **kwargs: Any) -> PolicyState:
        return self._policy.initial_state(*args, **kwargs)

    def acting_parameters(self) -> np.ndarray:
        return self._policy.acting_parameters()

    def with_actions_taken(self, state: PolicyState, actions: Any) -> PolicyState:
        return self._policy.with_actions_taken(state, actions)

    def plan_context(self) -> Context | None:
        return self._policy.plan_context()
