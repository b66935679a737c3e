"""A policy around a policy, for single rollouts: it is timed."""

from __future__ import annotations

import time
from typing import Any

from metaroll.types import Policy

__all__ = ["TimedPolicy"]


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
