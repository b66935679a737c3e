"""Navigation of a point in the plane to a goal that it is not told (PEARL, Rakelly et al. 2019, arXiv:1903.08254).

The physics is one function of arrays; the single environment is the batched one of width 1, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from metaroll.errors import ShapeError
from metaroll.seeding import as_generator, plan_env_seed
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan, SlotStep

__all__ = ["PointRobotEnv", "PointRobotSlots", "SparsePointRobotEnv", "go_to", "point_robot_step", "sparse_reward"]

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
    move = STEP_SIZE * np.minimum(np.maximum(action.astype(np.float64), -1.0), 1.0)
    following = position + move
    offset = following - goal
    x, y = offset[:, 0], offset[:, 1]
    return following, -np.sqrt(x * x + y * y)


def sparse_reward(reward: np.ndarray) -> np.ndarray:
    """``1 - distance`` within 0.2 of the goal, 0 elsewhere; ``reward (N,)`` is minus the distance."""
    return np.where(reward >= -GOAL_RADIUS, 1.0 + reward, 0.0)


def go_to(target: np.ndarray, obs: np.ndarray) -> np.ndarray:
    """Actions ``(N, 2)`` that move ``obs (N, 2)`` straight to ``target (N, 2)`` along each axis, and stop there.

    Told the goal this is the oracle; with the origin as target it is the best that can be done without adapting.
    """
    offset = np.asarray(target, dtype=np.float64) - np.asarray(obs, dtype=np.float64)
    return np.minimum(np.maximum(offset / STEP_SIZE, -1.0), 1.0)


class PointRobotEnv(gymnasium.Env):
    """A point that starts anywhere in [-1, 1]^2 and is rewarded with minus its distance to the goal.

    It never ends; the family's horizon is 20 steps. ``reset(options={"init_state": (x, y)})`` chooses the start.

    Args:
        goal: Shape ``(2,)``.
        render_mode: Only ``None``.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)
    infos: ClassVar[tuple[str, ...]] = ("success",)
    _default_goal: ClassVar[tuple[float, float]] = (0.0, 0.0)

    def __init__(self, goal: Sequence[float] | np.ndarray | None = None, render_mode: str | None = None) -> None:
        if render_mode is not None:
            raise ValueError(f"render_mode must be None, the point robot draws nothing, got {render_mode!r}")
        self.render_mode = None
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self.env_spec = EnvSpec(
            self.observation_space,
            self.action_space,
            HORIZON,
            observation_labels=("x", "y"),
            action_labels=("dx", "dy"),
        )
        self._goal = _checked_point("goal", self._default_goal if goal is None else goal)
        self._position: np.ndarray | None = None

    @classmethod
    def sample_tasks(
        cls, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"goal": (2,)}`` with goals uniform in [-1, 1]^2."""
        return [{"goal": goal} for goal in as_generator(generator).uniform(-1.0, 1.0, size=(num_tasks, 2))]

    def set_task(self, task: Mapping[str, Any]) -> None:
        """Move the goal to ``task["goal"]``."""
        self._goal = goal_of(task)

    def get_task(self) -> dict[str, np.ndarray]:
        """The task in force."""
        return {"goal": self._goal.copy()}

    @staticmethod
    def initial_position(seed: int) -> np.ndarray:
        """Where an episode seeded with ``seed`` starts, shape ``(2,)``."""
        return _draw_start(np.random.Generator(np.random.PCG64(seed)))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; ``options["init_state"]`` is its first position."""
        super().reset(seed=seed)
        init_state = (options or {}).get("init_state")
        position = self._start() if init_state is None else _checked_point("init_state", init_state)
        self._position = position
        return position.astype(np.float32), {}

    def current_observation(self) -> np.ndarray:
        """Where the point is, ``(2,)``."""
        if self._position is None:
            raise gymnasium.error.ResetNeeded("reset() must be called before current_observation()")
        return self._position.astype(np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move by a tenth of ``action (2,)``, clipped to [-1, 1]."""
        if self._position is None:
            raise gymnasium.error.ResetNeeded("reset() must be called before step()")
        action = np.asarray(action)
        if action.shape != (2,):
            raise ShapeError(f"action must have shape (2,), got {action.shape}")
        following, reward = point_robot_step(self._position[None], action[None], self._goal[None])
        self._position = position = following[0]
        infos = {name: values[0].item() for name, values in self.infos_of(reward).items()}
        return position.astype(np.float32), float(reward[0]), False, False, infos

    @classmethod
    def infos_of(cls, reward: np.ndarray) -> dict[str, np.ndarray]:
        """What a step tells besides the reward ``(N,)``: ``success``, within 0.2 of the goal."""
        return {"success": reward >= -GOAL_RADIUS}

    def batched_slots(self, num_slots: int) -> PointRobotSlots:
        """Many of this environment, stepped as arrays."""
        return PointRobotSlots(num_slots, env=self)

    def accepts_update(self, update: EnvUpdate | None) -> bool:
        """Whether ``PointRobotSlots`` can apply ``update``: nothing, or a goal, without wrappers."""
        if update is None or type(update) is EnvUpdate:
            return True
        return (
            isinstance(update, SetTaskUpdate) and update.env_type is type(self) and update.wrapper_constructor is None
        )

    def _start(self) -> np.ndarray:
        return _draw_start(self.np_random)


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

    @staticmethod
    def initial_position(seed: int) -> np.ndarray:
        """The origin, shape ``(2,)``."""
        return np.zeros(2)

    @classmethod
    def infos_of(cls, reward: np.ndarray) -> dict[str, np.ndarray]:
        """``sparse_reward`` and ``success`` for rewards ``(N,)``."""
        return {"sparse_reward": sparse_reward(reward), "success": reward >= -GOAL_RADIUS}

    def _start(self) -> np.ndarray:
        return np.zeros(2)


class PointRobotSlots:
    """Point robots stepped together: goal and start of each slot come from its plan.

    Args:
        num_slots: How many.
        env: The environment of a plan without ``env_update``; its class says dense or sparse.
    """

    def __init__(self, num_slots: int, env: PointRobotEnv | None = None) -> None:
        if num_slots < 1:
            raise ValueError(f"num_slots must be at least 1, got {num_slots}")
        self.num_slots = num_slots
        self._env = PointRobotEnv() if env is None else env
        self._own_goal = self._env.get_task()["goal"]
        self.env_spec = self._env.env_spec
        self.name = type(self._env).__name__
        self._position = np.zeros((num_slots, 2))
        self._goal = np.tile(self._own_goal, (num_slots, 1))

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> np.ndarray:
        """Start ``plans[i]`` in slot ``slots[i]``; first observations ``(len(slots), 2)``."""
        for slot, plan in zip(slots, plans, strict=True):
            if plan.seed is None:
                raise ValueError(
                    "plan.seed must be set before a slot is reset: the engine resolves it to a seed triple"
                )
            if not self._env.accepts_update(plan.env_update):
                kind = type(self._env).__name__
                raise TypeError(
                    f"batched {kind} takes SetTaskUpdate({kind}, task) without a wrapper, got {plan.env_update!r}; "
                    "step a list of environments: make_slots(..., plans=plans)"
                )
            update = plan.env_update
            self._goal[slot] = goal_of(update.task) if isinstance(update, SetTaskUpdate) else self._own_goal
            if plan.init_state is not None:
                self._position[slot] = _checked_point("init_state", plan.init_state)
            else:
                self._position[slot] = self._env.initial_position(plan_env_seed(plan.seed))
        return self._position[list(slots)].astype(np.float32)

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        """Move the points of active slots by a tenth of their rows of ``actions (E, 2)``."""
        actions = np.asarray(actions)
        if actions.shape != (self.num_slots, 2):
            raise ShapeError(f"actions must have shape ({self.num_slots}, 2), got {actions.shape}")
        position, reward = point_robot_step(self._position, actions, self._goal)
        infos = self._env.infos_of(reward)
        active = np.asarray(active, dtype=bool)
        if not active.all():
            position = np.where(active[:, None], position, self._position)
            reward = np.where(active, reward, 0.0)
            infos = {name: np.where(active, values, np.zeros_like(values)) for name, values in infos.items()}
        self._position = position
        flags = np.zeros((2, self.num_slots), dtype=bool)
        return SlotStep(position.astype(np.float32), reward, flags[0], flags[1], infos)

    def close(self) -> None:
        """Nothing to release."""


def goal_of(task: Any) -> np.ndarray:
    """The goal ``(2,)`` that a task names."""
    if not isinstance(task, Mapping) or "goal" not in task:
        raise ValueError(f"task must be a mapping with 'goal', for instance {{'goal': (0.5, -0.2)}}, got {task!r}")
    return _checked_point("task['goal']", task["goal"])


def _checked_point(name: str, value: Any) -> np.ndarray:
    point = np.array(value, dtype=np.float64)
    if point.shape != (2,):
        raise ShapeError(f"{name} must have shape (2,), got {point.shape}")
    if not np.isfinite(point).all():
        raise ValueError(f"{name} must be finite, got {point}")
    return point


def _draw_start(generator: np.random.Generator) -> np.ndarray:
    return generator.uniform(-1.0, 1.0, size=2)
