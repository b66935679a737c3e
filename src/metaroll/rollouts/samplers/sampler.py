"""The interface of samplers: lists of rollouts, with a least number of rollouts or steps (specs/sampling.md 9)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from metaroll.data.step_sequence import StepSequence

__all__ = ["SamplerBase"]


class SamplerBase(ABC):
    """Generates lists of rollouts, with bounds of which at least one must be given; if both are, both are kept.

    Args:
        min_rollouts: Least number of complete rollouts.
        min_steps: Least number of steps in all rollouts together.
    """

    def __init__(self, *, min_rollouts: int | None = None, min_steps: int | None = None) -> None:
        self.min_rollouts: int | None = None
        self.min_steps: int | None = None
        self.set_min_count(min_rollouts, min_steps)

    def set_min_count(self, min_rollouts: int | None = None, min_steps: int | None = None) -> None:
        """Replace both bounds; ``None`` means there is none.

        Raises:
            ValueError: Both are ``None``, or one is below 1.
        """
        if min_rollouts is None and min_steps is None:
            raise ValueError("give min_rollouts or min_steps (or both), got None for both")
        counts = _checked("min_rollouts", min_rollouts), _checked("min_steps", min_steps)
        self.min_rollouts, self.min_steps = counts

    @abstractmethod
    def reinit(self, env: Any = None, policy: Any = None) -> None:
        """Take over changes that were made to the environment or the policy, or replace one of them.

        Not needed when only the policy's parameters have changed.

        Args:
            env: New environment; ``None`` keeps the old one.
            policy: New policy; ``None`` keeps the old one.
        """

    @abstractmethod
    def sample(self) -> list[StepSequence]:
        """Rollouts, at least as many as asked for."""


def _checked(name: str, value: int | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer or None, got {value!r} of type {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)
