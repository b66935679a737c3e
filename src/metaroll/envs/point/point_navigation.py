"""MAML's navigation in the plane (Finn et al. 2017, arXiv:1703.03400, section 5.3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaroll.envs.base.batched_env import BatchedEnv, SettableTask
from metaroll.envs.base.simulator import Columns, NextState, TaskSimulator
from metaroll.envs.point.plane import DrawnPlane, PointRows, checked_point, clipped, plane_spec
from metaroll.seeding import as_generator

__all__ = ["PointNavigationEnv"]

_STEP_SIZE = 0.1
_STOP_RADIUS = 0.01
_HORIZON = 100


class _Navigation(PointRows, TaskSimulator):
    """All start in the origin."""

    def step(self, state: Any, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        """Move by a tenth of ``actions (N, 2)``, clipped to [-1, 1]."""
        following = state[0] + _STEP_SIZE * clipped(actions, xp)
        offset = following - constants["goal"]
        x, y = offset[:, 0], offset[:, 1]
        squared = x * x + y * y
        arrived = squared < _STOP_RADIUS * _STOP_RADIUS
        return NextState((following,), -squared, arrived, None, {"success": arrived})


class PointNavigationEnv(DrawnPlane, SettableTask, BatchedEnv):
    """A point that starts in the origin and is rewarded with minus its squared distance to a goal in the unit square.

    An episode ends less than 0.01 from the goal; the family's horizon is 100 steps. Staying in the origin is the best
    that can be done without adapting: -16.67 on average.

    Note:
        Actions lie in [-1, 1] and are scaled by 0.1, so that a move is clipped at 0.1 per axis as published. The
        square is [-0.5, 0.5]^2, as in the authors' code.

    Args:
        goal: Shape ``(2,)``.
        render_mode: ``None`` or ``"rgb_array"``.
    """

    drawn_reach = 0.75

    def __init__(self, goal: Sequence[float] | np.ndarray = (0.0, 0.0), render_mode: str | None = None) -> None:
        task = {"goal": checked_point("goal", goal)}
        super().__init__(_Navigation(type(self), plane_spec(_HORIZON), task), render_mode)

    @classmethod
    def sample_tasks(
        cls, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"goal": (2,)}`` with goals uniform in [-0.5, 0.5]^2."""
        return [{"goal": goal} for goal in as_generator(generator).uniform(-0.5, 0.5, size=(num_tasks, 2))]
