"""A point in the plane that observes its goal, with a sparse reward: the task for goals in hindsight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Dict

from metaroll.checks import check_number
from metaroll.envs.base.batched_env import BatchedEnv, SettableTask
from metaroll.envs.base.simulator import Columns, NextState, TaskSimulator
from metaroll.envs.point.plane import DrawnPlane, checked_point, clipped, goal_of, norm_of, square_start
from metaroll.envs.point.point_robot import STEP_SIZE, go_to
from metaroll.seeding import as_generator
from metaroll.types import EnvSpec

__all__ = ["PointGoalEnv", "goal_reward"]

_REACH = 3.0
"""Goals lie in [-3, 3]^2: from the start, a walk at random hardly ever comes to one."""
_HORIZON = 50


def goal_reward(achieved_goal: Any, desired_goal: Any, radius: float) -> Any:
    """0 where the goal counts as reached, -1 elsewhere, as in Gymnasium's goal environments.

    Args:
        achieved_goal: Places, ``(..., 2)``.
        desired_goal: Goals, ``(..., 2)``.
        radius: How near is near enough.

    Returns:
        float64 ``(...)``.
    """
    offset = np.asarray(achieved_goal, dtype=np.float64) - np.asarray(desired_goal, dtype=np.float64)
    return np.where(norm_of(offset.reshape(-1, 2)) <= radius, 0.0, -1.0).reshape(offset.shape[:-1])[()]


class _PointGoal(TaskSimulator):
    """Points and their goals: ``(N, 2)`` each.

    Args:
        env_type: The class of the single environment.
        radius: How near is near enough.
        goal: Goal of plans without a task, ``(2,)``; ``None``: another one in every episode.
    """

    num_uniforms = 4
    state_dim = 4

    def __init__(self, env_type: type, radius: float, goal: Any) -> None:
        plane = Box(-np.inf, np.inf, (2,), np.float32)
        space = Dict({"observation": plane, "achieved_goal": plane, "desired_goal": plane})
        spec = EnvSpec(space, Box(-1.0, 1.0, (2,), np.float32), _HORIZON, action_labels=("dx", "dy"))
        super().__init__(env_type, spec, {} if goal is None else {"goal": checked_point("goal", goal)})
        self.radius = check_number("radius", radius, 0.0, above_low=True)

    def check_task(self, task: Any) -> dict[str, np.ndarray]:
        """The goal ``(2,)``; NaN, where the task is empty, for one that each episode draws."""
        drawn = isinstance(task, Mapping) and not task
        return {"goal": np.full(2, np.nan) if drawn else goal_of(task)}

    def initial_state(self, uniforms: Columns, constants: Any, xp: Any) -> Any:
        """Places in [-1, 1]^2, and the goal of the task, or one in [-3, 3]^2."""
        goal = constants["goal"]
        drawn = square_start(uniforms[2:], _REACH, xp)
        return square_start(uniforms[:2], 1.0, xp), xp.where(xp.isnan(goal), drawn, goal)

    def state_from_init(self, inits: np.ndarray, constants: Any, xp: Any) -> Any:
        """Place and goal as wished."""
        return inits[:, :2].copy(), inits[:, 2:].copy()

    def observe(self, state: Any, constants: Any, xp: Any) -> Any:
        """Place (seen, and achieved) and goal, float32 ``(N, 2)`` each."""
        place, goal = (np.asarray(part, dtype=np.float32) for part in state)
        return {"achieved_goal": place, "desired_goal": goal, "observation": place.copy()}

    def step(self, state: Any, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        """Move by a tenth of ``actions (N, 2)``, clipped to [-1, 1]."""
        place, goal = state[0] + STEP_SIZE * clipped(actions, xp), state[1]
        # From observations, so that a reward can be recomputed from them.
        reward = goal_reward(place.astype(np.float32), goal.astype(np.float32), self.radius)
        return NextState((place, goal), reward, None, None, {"success": reward == 0.0})


class PointGoalEnv(DrawnPlane, SettableTask, BatchedEnv):
    """The point of ``PointRobotEnv``, which observes its goal: 0 within 0.1 of it, -1 for every other step.

    Observations are a Dict: ``observation`` and ``achieved_goal`` are its place ``(2,)``, ``desired_goal`` is the goal.
    It starts anywhere in [-1, 1]^2 and never ends; the family's horizon is 50 steps, 5 along each axis. Every episode
    draws a goal in [-3, 3]^2, unless one is given. ``reset(options={"init_state": (x, y, goal x, goal y)})`` chooses
    both.

    Args:
        goal: Shape ``(2,)``; ``None``: another one in every episode.
        radius: How near to the goal is near enough.
        render_mode: ``None`` or ``"rgb_array"``.
    """

    infos: ClassVar[tuple[str, ...]] = ("success",)
    drawn_reach = _REACH + 0.5

    def __init__(
        self,
        goal: Sequence[float] | np.ndarray | None = None,
        radius: float = 0.1,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(_PointGoal(type(self), radius, goal), render_mode)
        self.goal_radius = self.simulator.radius

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Rewards ``(...)`` of places ``(..., 2)`` for goals ``(..., 2)``; ``info`` is not needed."""
        return goal_reward(achieved_goal, desired_goal, self.simulator.radius)

    def shown_goal(self) -> np.ndarray:
        """The goal of this episode ``(2,)``."""
        return self._rows.state[1][0]

    def get_task(self) -> dict[str, np.ndarray]:
        """The current task; empty where each episode draws its goal."""
        task = super().get_task()
        return {} if np.isnan(task["goal"]).all() else task

    @classmethod
    def sample_tasks(
        cls, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"goal": (2,)}`` with goals uniform in [-3, 3]^2."""
        return [{"goal": goal} for goal in as_generator(generator).uniform(-_REACH, _REACH, size=(num_tasks, 2))]

    @staticmethod
    def oracle_context(task: Any) -> dict[str, np.ndarray]:
        """The context of the oracle: the goal ``(2,)``."""
        return {"goal": goal_of(task)}

    @staticmethod
    def oracle_action(obs: np.ndarray, contexts: Mapping[str, np.ndarray]) -> np.ndarray:
        """Straight to the goal, for rows of flat observations, which begin with the place."""
        return go_to(contexts["goal"], obs[:, :2])
