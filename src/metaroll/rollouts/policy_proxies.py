"""Policies around policies, for single rollouts: one is told domain parameters, one is timed."""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.policies.adapters import ForeignPolicy
from metaroll.seeding import isolated_rng
from metaroll.types import Context, Policy, PolicyState

__all__ = ["TimedPolicy", "told_domain_params"]


class TimedPolicy:
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)


def told_domain_params(policy: Policy, params: Mapping[str, Any] | None) -> Any:
    """``policy``, or one whose object gets ``reset(domain_param=params)`` if its ``reset`` takes that."""
    if params is None or not isinstance(policy, ForeignPolicy):
        return policy
    reset = getattr(policy.policy, "reset", None)
    if not callable(reset) or not _takes_domain_param(reset):
        return policy
    return _ToldPolicy(policy, params)


class _ToldPolicy:
    """A foreign policy that computes with the simulator's parameters (an energy-based controller, say)."""

    def __init__(self, policy: ForeignPolicy, params: Mapping[str, Any]) -> None:
        self._policy = policy
        self._params = params

    def initial_state(
        self, contexts: Sequence[Context | None], generators: Sequence[np.random.Generator]
    ) -> PolicyState:
        """As ``ForeignPolicy.initial_state``; ``reset`` is told the parameters."""
        agents = np.empty(len(contexts), dtype=object)
        for row, generator in enumerate(generators):
            agents[row] = copy.deepcopy(self._policy.policy)
            with isolated_rng(int(generator.integers(2**32))):
                agents[row].reset(domain_param=dict(self._params))
        return {"agent": agents}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)


def _takes_domain_param(reset: Any) -> bool:
    try:
        parameters = inspect.signature(reset).parameters.values()
    except (TypeError, ValueError):  # built-ins have no signature
        return False
    return any(p.name == "domain_param" or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
