"""MAML's navigation in the plane (Finn et al. 2017, arXiv:1703.03400, section 5.3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from metaroll.envs.base.batched_env import ArrayStep
from metaroll.envs.point.planar import checked_point, clipped, goal_of, plane_spec
from metaroll.envs.point.plane_env import PlaneEnv
from metaroll.seeding import as_generator

__all__ = ["PointNavigationEnv"]

_STEP_SIZE = 0.1
_STOP_RADIUS = 0.01
_HORIZON = 100


class PointNavigationEnv(PlaneEnv):
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

    state_dim: ClassVar[int] = 2
    drawn_reach: ClassVar[float] = 0.75

    def __init__(self, goal: Sequence[float] | np.ndarray = (0.0, 0.0), render_mode: str | None = None) -> None:
        super().__init__(plane_spec(_HORIZON), {"goal": checked_point("goal", goal)}, render_mode)

    @classmethod
    def sample_tasks(
        cls, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"goal": (2,)}`` with goals uniform in [-0.5, 0.5]^2."""
        return [{"goal": goal} for goal in as_generator(generator).uniform(-0.5, 0.5, size=(num_tasks, 2))]

    def checked_task(self, task: Any) -> dict[str, np.ndarray]:
        """The goal ``(2,)``."""
        return {"goal": goal_of(task)}

    def draw_state(self, generator: np.random.Generator) -> np.ndarray:
        """The origin."""
        return np.zeros(2)

    def observe(self, state: np.ndarray) -> np.ndarray:
        """Where the points are, ``(N, 2)``."""
        return state.astype(np.float32)

    def advance(
        self, state: np.ndarray, actions: np.ndarray, constants: Mapping[str, np.ndarray], noise: np.ndarray
    ) -> ArrayStep:
        """Move by a tenth of ``actions (N, 2)``, clipped to [-1, 1]."""
        following = state + _STEP_SIZE * clipped(actions)
        offset = following - constants["goal"]
        x, y = offset[:, 0], offset[:, 1]
        squared = x * x + y * y
        arrived = squared < _STOP_RADIUS * _STOP_RADIUS
        return ArrayStep(following, -squared, {"success": arrived}, arrived)
