"""Navigation of a point in the plane to a hidden goal (PEARL, Rakelly et al. 2019, arXiv:1903.08254)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from metaroll.envs.base.batched_env import BatchedEnv, SettableTask
from metaroll.envs.base.simulator import Columns, NextState, TaskSimulator
from metaroll.envs.point import plane
from metaroll.envs.point.plane import DrawnPlane, checked_point, clipped, goal_of, norm_of, square_start
from metaroll.seeding import as_generator

__all__ = ["PointRobotEnv", "SparsePointRobotEnv", "go_to", "point_robot_step", "sparse_reward"]

STEP_SIZE = 0.1  # an action of 1 moves the point this far along its axis
GOAL_RADIUS = 0.2
HORIZON = 20


def point_robot_step(position: Any, action: Any, goal: Any, xp: Any = np) -> tuple[Any, Any]:
    """Next positions ``(N, 2)`` and rewards ``(N,)``: minus the distance of the next position to the goal.

    Args:
        position: Shape ``(N, 2)``, float64.
        action: Shape ``(N, 2)``, clipped to [-1, 1] per axis and scaled by 0.1.
        goal: Shape ``(N, 2)``, float64.
        xp: Array namespace.
    """
    following = position + STEP_SIZE * clipped(action, xp)
    return following, -norm_of(following - goal, xp)


def sparse_reward(reward: Any, xp: Any = np) -> Any:
    """``1 - distance`` within 0.2 of the goal, 0 elsewhere; ``reward (N,)`` is minus the distance."""
    return xp.where(reward >= -GOAL_RADIUS, 1.0 + reward, 0.0)


def go_to(target: np.ndarray, obs: np.ndarray) -> np.ndarray:
    """Actions ``(N, 2)`` that move ``obs (N, 2)`` straight to ``target (N, 2)`` along each axis, and stop there.

    With the goal as target this is the oracle; with the origin as target it is the best that can be done without
    adapting.
    """
    offset = np.asarray(target, dtype=np.float64) - np.asarray(obs, dtype=np.float64)
    return np.minimum(np.maximum(offset / STEP_SIZE, -1.0), 1.0)


class _PointRobot(plane.PointRows, TaskSimulator):
    """Points that start anywhere in [-1, 1]^2, or in the origin.

    Args:
        env_type: The class of the single environment.
        goal: Goal of plans without a task, ``(2,)``.
        sparse: Start in the origin, and report the sparse reward, too.
    """

    def __init__(self, env_type: type, goal: Any, sparse: bool) -> None:
        super().__init__(env_type, plane.plane_spec(HORIZON), {"goal": checked_point("goal", goal)})
        self.sparse = sparse
        self.num_uniforms = 0 if sparse else 2

    def initial_state(self, uniforms: Columns, constants: Any, xp: Any) -> Any:
        return super().initial_state(uniforms, constants, xp) if self.sparse else (square_start(uniforms, 1.0, xp),)

    def step(self, state: Any, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        """Move by a tenth of ``actions (N, 2)``, clipped to [-1, 1]."""
        following, reward = point_robot_step(state[0], actions, constants["goal"], xp)
        infos = {"success": reward >= -GOAL_RADIUS}
        if self.sparse:
            infos = {"sparse_reward": sparse_reward(reward, xp), **infos}
        return NextState((following,), reward, None, None, infos)


class _RobotTasks:
    """Mixin with the drawing, and the action of an oracle that has access to the goal."""

    drawn_reach = 1.5
    goal_radius = GOAL_RADIUS

    @staticmethod
    def oracle_context(task: Any) -> dict[str, np.ndarray]:
        """The context of the oracle: the goal ``(2,)``."""
        return {"goal": goal_of(task)}

    @staticmethod
    def oracle_action(obs: np.ndarray, contexts: Mapping[str, np.ndarray]) -> np.ndarray:
        """Straight to the goal, for rows of observations."""
        return go_to(contexts["goal"], obs)


class PointRobotEnv(_RobotTasks, DrawnPlane, SettableTask, BatchedEnv):
    """A point that starts anywhere in [-1, 1]^2 and is rewarded with minus its distance to the goal.

    It never ends; the family's horizon is 20 steps. ``reset(options={"init_state": (x, y)})`` chooses the start.

    Args:
        goal: Shape ``(2,)``; ``None`` means the origin.
        render_mode: ``None`` or ``"rgb_array"``.
    """

    infos: ClassVar[tuple[str, ...]] = ("success",)

    def __init__(self, goal: Sequence[float] | np.ndarray | None = None, render_mode: str | None = None) -> None:
        super().__init__(_PointRobot(type(self), (0.0, 0.0) if goal is None else goal, sparse=False), render_mode)

    @classmethod
    def sample_tasks(
        cls, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"goal": (2,)}`` with goals uniform in [-1, 1]^2."""
        return [{"goal": goal} for goal in as_generator(generator).uniform(-1.0, 1.0, size=(num_tasks, 2))]


class SparsePointRobotEnv(_RobotTasks, DrawnPlane, SettableTask, BatchedEnv):
    """A point that starts in the origin, with goals on the unit half circle.

    The reward is dense, for learning; ``info["sparse_reward"]`` is 1 - distance within 0.2 of the goal and 0 elsewhere,
    for the context and for evaluation.

    Args:
        goal: Shape ``(2,)``; ``None`` means (1, 0).
        render_mode: ``None`` or ``"rgb_array"``.
    """

    infos: ClassVar[tuple[str, ...]] = ("sparse_reward", "success")

    def __init__(self, goal: Sequence[float] | np.ndarray | None = None, render_mode: str | None = None) -> None:
        super().__init__(_PointRobot(type(self), (1.0, 0.0) if goal is None else goal, sparse=True), render_mode)

    @classmethod
    def sample_tasks(
        cls, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"goal": (2,)}``: ``num_tasks`` points at equal distances on the half circle, shuffled."""
        angles = as_generator(generator).permutation(np.linspace(0.0, np.pi, num_tasks))
        return [{"goal": goal} for goal in np.stack([np.cos(angles), np.sin(angles)], axis=1)]
