"""The point robot seen from above: pictures in place of coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box

from metaroll.envs.base.batched_env import BatchedEnv, SettableTask
from metaroll.envs.base.simulator import Columns, NextState, TaskSimulator
from metaroll.envs.point.plane import DrawnPlane, PointRows, checked_point, plane_spec, square_start
from metaroll.envs.point.plane_drawing import PIXELS, plane_pixels
from metaroll.envs.point.point_robot import GOAL_RADIUS, HORIZON, PointRobotEnv, point_robot_step
from metaroll.types import EnvSpec

__all__ = ["PointRobotPixelsEnv"]

_REACH = 1.5


class _SeenPoints(PointRows, TaskSimulator):
    """The points of ``PointRobotEnv``, seen from above."""

    num_uniforms = 2
    runs_on_torch = False

    def __init__(self, env_type: type, goal: Any) -> None:
        actions = plane_spec(HORIZON).action_space
        picture = Box(0, 255, (PIXELS, PIXELS, 3), np.uint8)
        spec = EnvSpec(picture, actions, HORIZON, action_labels=("dx", "dy"))
        super().__init__(env_type, spec, {"goal": checked_point("goal", goal)})

    def initial_state(self, uniforms: Columns, constants: Any, xp: Any) -> Any:
        """Anywhere in [-1, 1]^2."""
        return (square_start(uniforms, 1.0, xp),)

    def observe(self, state: Any, constants: Any, xp: Any) -> Any:
        """Pictures, uint8 ``(N, 64, 64, 3)``."""
        return plane_pixels(state[0], _REACH)

    def step(self, state: Any, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        """Move by a tenth of ``actions (N, 2)``, clipped to [-1, 1]."""
        following, reward = point_robot_step(state[0], actions, constants["goal"], xp)
        return NextState((following,), reward, None, None, {"success": reward >= -GOAL_RADIUS})


class PointRobotPixelsEnv(DrawnPlane, SettableTask, BatchedEnv):
    """The point of ``PointRobotEnv`` with pictures as observations: the square [-1.5, 1.5]^2, uint8 ``(64, 64, 3)``.

    As there, it is rewarded with minus its distance to a hidden goal (which is not drawn, either), and starts
    anywhere in [-1, 1]^2; the family's horizon is 20 steps. A point outside of the square is drawn at its border.

    Args:
        goal: Shape ``(2,)``; ``None`` means the origin.
        render_mode: ``None`` or ``"rgb_array"``.
    """

    infos: ClassVar[tuple[str, ...]] = ("success",)
    drawn_reach = _REACH
    goal_radius = GOAL_RADIUS

    def __init__(self, goal: Sequence[float] | np.ndarray | None = None, render_mode: str | None = None) -> None:
        super().__init__(_SeenPoints(type(self), (0.0, 0.0) if goal is None else goal), render_mode)

    @classmethod
    def sample_tasks(
        cls, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"goal": (2,)}``, those of ``PointRobotEnv``."""
        return PointRobotEnv.sample_tasks(num_tasks, generator)
