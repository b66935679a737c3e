"""Navigation of a point in the plane to a goal that it is not told (PEARL, Rakelly et al. 2019, arXiv:1903.08254)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from metaroll.envs.base.batched_env import ArrayStep
from metaroll.envs.point.planar import checked_point, clipped, goal_of, norm_of, plane_spec
from metaroll.envs.point.plane_env import PlaneEnv
from metaroll.seeding import as_generator

__all__ = ["PointRobotEnv", "SparsePointRobotEnv", "go_to", "point_robot_step", "sparse_reward"]

STEP_SIZE = 0.1  # an action of 1 moves the point this far along its axis
GOAL_RADIUS = 0.2
HORIZON = 20


def point_robot_step(position: np.ndarray, action: np.ndarray, goal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Next positions ``(N, 2)`` and rewards ``(N,)``: minus the distance of the next position to the goal.

    Args:
        position: Shape ``(N, 2)``, float64.
        action: Shape ``(N, 2)``, clipped to [-1, 1] per axis and scaled by 0.1.
        goal: Shape ``(N, 2)``, float64.
    """
    following = position + STEP_SIZE * clipped(action)
    return following, -norm_of(following - goal)


def sparse_reward(reward: np.ndarray) -> np.ndarray:
    """``1 - distance`` within 0.2 of the goal, 0 elsewhere; ``reward (N,)`` is minus the distance."""
    return np.where(reward >= -GOAL_RADIUS, 1.0 + reward, 0.0)


def go_to(target: np.ndarray, obs: np.ndarray) -> np.ndarray:
    """Actions ``(N, 2)`` that move ``obs (N, 2)`` straight to ``target (N, 2)`` along each axis, and stop there.

    Told the goal this is the oracle; with the origin as target it is the best that can be done without adapting.
    """
    offset = np.asarray(target, dtype=np.float64) - np.asarray(obs, dtype=np.float64)
    return np.minimum(np.maximum(offset / STEP_SIZE, -1.0), 1.0)


class PointRobotEnv(PlaneEnv):
    """A point that starts anywhere in [-1, 1]^2 and is rewarded with minus its distance to the goal.

    It never ends; the family's horizon is 20 steps. ``reset(options={"init_state": (x, y)})`` chooses the start.

    Args:
        goal: Shape ``(2,)``.
        render_mode: ``None`` or ``"rgb_array"``.
    """

    state_dim: ClassVar[int] = 2
    drawn_reach: ClassVar[float] = 1.5
    goal_radius: ClassVar[float] = GOAL_RADIUS
    infos: ClassVar[tuple[str, ...]] = ("success",)
    _default_goal: ClassVar[tuple[float, float]] = (0.0, 0.0)

    def __init__(self, goal: Sequence[float] | np.ndarray | None = None, render_mode: str | None = None) -> None:
        goal = checked_point("goal", self._default_goal if goal is None else goal)
        super().__init__(plane_spec(HORIZON), {"goal": goal}, render_mode)

    @classmethod
    def sample_tasks(
        cls, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"goal": (2,)}`` with goals uniform in [-1, 1]^2."""
        return [{"goal": goal} for goal in as_generator(generator).uniform(-1.0, 1.0, size=(num_tasks, 2))]

    def checked_task(self, task: Any) -> dict[str, np.ndarray]:
        """The goal ``(2,)``."""
        return {"goal": goal_of(task)}

    def draw_state(self, generator: np.random.Generator) -> np.ndarray:
        """Uniform in [-1, 1]^2."""
        return generator.uniform(-1.0, 1.0, size=2)

    def observe(self, state: np.ndarray) -> np.ndarray:
        """Where the points are, ``(N, 2)``."""
        return state.astype(np.float32)

    def advance(
        self, state: np.ndarray, actions: np.ndarray, constants: Mapping[str, np.ndarray], noise: np.ndarray
    ) -> ArrayStep:
        """Move by a tenth of ``actions (N, 2)``, clipped to [-1, 1]."""
        following, reward = point_robot_step(state, actions, constants["goal"])
        return ArrayStep(following, reward, self.infos_of(reward))

    @classmethod
    def infos_of(cls, reward: np.ndarray) -> dict[str, np.ndarray]:
        """What a step tells besides the reward ``(N,)``: ``success``, within 0.2 of the goal."""
        return {"success": reward >= -GOAL_RADIUS}

    @staticmethod
    def oracle_context(task: Any) -> dict[str, np.ndarray]:
        """What the oracle is told: the goal ``(2,)``."""
        return {"goal": goal_of(task)}

    @staticmethod
    def oracle_action(obs: np.ndarray, contexts: Mapping[str, np.ndarray]) -> np.ndarray:
        """Straight to the goal, for rows of observations."""
        return go_to(contexts["goal"], obs)


class SparsePointRobotEnv(PointRobotEnv):
    """A point that starts in the origin, with goals on the unit half circle.

    The reward is dense, for learning; ``info["sparse_reward"]`` is 1 - distance within 0.2 of the goal and 0 elsewhere,
    for the context and for evaluation.
    """

    infos: ClassVar[tuple[str, ...]] = ("sparse_reward", "success")
    _default_goal: ClassVar[tuple[float, float]] = (1.0, 0.0)

    @classmethod
    def sample_tasks(
        cls, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"goal": (2,)}``: ``num_tasks`` points at equal distances on the half circle, shuffled."""
        angles = as_generator(generator).permutation(np.linspace(0.0, np.pi, num_tasks))
        return [{"goal": goal} for goal in np.stack([np.cos(angles), np.sin(angles)], axis=1)]

    def draw_state(self, generator: np.random.Generator) -> np.ndarray:
        """The origin."""
        return np.zeros(2)

    @classmethod
    def infos_of(cls, reward: np.ndarray) -> dict[str, np.ndarray]:
        """``sparse_reward`` and ``success`` for rewards ``(N,)``."""
        return {"sparse_reward": sparse_reward(reward), "success": reward >= -GOAL_RADIUS}
