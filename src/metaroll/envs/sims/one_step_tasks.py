"""Rewards of the problems that last one step, which ends them (specs/sampling.md 17.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metaroll.envs.sims.model import Column, Columns, Constants
from metaroll.envs.sims.tasks import SimTask

__all__ = ["LowestHeightTask", "NoTask"]


@dataclass(frozen=True)
class LowestHeightTask(SimTask):
    """The reward is minus the absolute height that the step leads to, the first entry of the state."""

    def step_reward(
        self, state: Columns, action: Columns, following: Columns, remaining: Column, scales: Constants, xp: Any
    ) -> Column:
        """See ``SimTask.step_reward``."""
        return -abs(following[0])

    def has_succeeded(self, state: Columns, xp: Any) -> Column:
        """Always: nothing more is to be done."""
        return state[0] == state[0]


@dataclass(frozen=True)
class NoTask(SimTask):
    """Every reward is 0."""

    def step_reward(
        self, state: Columns, action: Columns, following: Columns, remaining: Column, scales: Constants, xp: Any
    ) -> Column:
        """See ``SimTask.step_reward``."""
        return 0.0 * state[0]

    def has_succeeded(self, state: Columns, xp: Any) -> Column:
        """Always: nothing more is to be done."""
        return state[0] == state[0]
