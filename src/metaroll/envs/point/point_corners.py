"""A point that searches for one of four corners: plainly, with momentum, or through walls.

They come from the code of ProMP (Rothfuss et al. 2019, arXiv:1810.06784). Actions lie in [-1, 1] and are scaled by the
published bounds of a move, 0.2 or 0.1 per axis. All start near the origin, in [-0.2, 0.2]^2, and never end; the
families' horizon is 100 steps.
"""

from __future__ import annotations

import functools
from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from metaroll.checks import check_number
from metaroll.envs.base.batched_env import BatchedEnv, SettableTask
from metaroll.envs.base.simulator import Columns, NextState, TaskSimulator
from metaroll.envs.point import plane
from metaroll.envs.point.plane import checked_point, clipped, norm_of, plane_spec, square_start
from metaroll.envs.point.plane_drawing import Wall
from metaroll.seeding import as_generator
from metaroll.tasks.finite_samplers import sample_indices

__all__ = [
    "CORNERS",
    "DensePointCornersEnv",
    "DenseSquaredPointCornersEnv",
    "PointCornersEnv",
    "PointMomentumEnv",
    "PointWallsEnv",
    "RewardType",
]

RewardType = Literal["dense", "dense_squared", "sparse"]
"""Minus the distance to the goal, minus its square, or something only where the goal is near."""

CORNERS = np.array([[-2.0, -2.0], [2.0, -2.0], [-2.0, 2.0], [2.0, 2.0]])
_START = 0.2
_STEP_SIZE = 0.2
_PUSH = 0.1  # change of velocity by an action of 1
_HORIZON = 100
_INNER, _OUTER = 1.0, 2.0  # radii of the walls
_GAP = 1.0  # who meets a wall nearer than this to the middle of its gap gets through
_INSIDE = 1e-6  # how far inside a wall the others are put, so that it stops them again


class _RewardedPoints(plane.PointRows, ABC):
    """Mixin of points that start in [-0.2, 0.2]^2, with one of three rewards."""

    num_uniforms = 2
    reward_type: RewardType
    radius: float

    def rewarded(self, reward_type: Any, radius: Any) -> Self:
        """Itself, with a kind of reward, and where the sparse one begins; both are checked."""
        if reward_type not in get_args(RewardType):
            raise ValueError(f"reward_type must be 'dense', 'dense_squared' or 'sparse', got {reward_type!r}")
        self.reward_type = reward_type
        self.radius = check_number("sparse_reward_radius", radius, 0.0, above_low=True)
        return self

    def initial_state(self, uniforms: Columns, constants: Any, xp: Any) -> Any:
        """Uniform in [-0.2, 0.2]^2."""
        return (square_start(uniforms, _START, xp),)


class _Corners(_RewardedPoints, TaskSimulator):
    """Nothing but the points."""

    def step(self, state: Any, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        """Move by a fifth of ``actions (N, 2)``, clipped to [-1, 1]."""
        goal = constants["goal"]
        following = state[0] + _STEP_SIZE * clipped(actions, xp)
        distance = norm_of(following - goal, xp)
        if self.reward_type != "sparse":
            return NextState((following,), _dense(distance, self.reward_type))
        x, y = following[:, 0], following[:, 1]
        to_corners = (xp.sqrt((x - a) * (x - a) + (y - b) * (y - b)) for a, b in CORNERS.tolist())
        rewarded = (abs(x) + abs(y) >= self.radius) & (distance <= functools.reduce(xp.minimum, to_corners))
        return NextState((following,), xp.where(rewarded, norm_of(state[0] - goal, xp) - distance, 0.0))


class _Momentum(_RewardedPoints, TaskSimulator):
    """The state holds velocities, too."""

    num_uniforms = 4
    state_dim = 4

    def initial_state(self, uniforms: Columns, constants: Any, xp: Any) -> Any:
        """Position uniform in [-0.2, 0.2]^2, velocity in [-0.1, 0.1]^2."""
        parts = (square_start(uniforms[:2], _START, xp), square_start(uniforms[2:], _PUSH, xp))
        return (np.concatenate(parts, axis=1),)

    def step(self, state: Any, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        """Add a tenth of ``actions (N, 2)``, clipped to [-1, 1], to the velocity, and that to the position."""
        velocity = state[0][:, 2:] + _PUSH * clipped(actions, xp)
        position = state[0][:, :2] + velocity
        distance = norm_of(position - constants["goal"], xp)
        if self.reward_type == "sparse":
            reward = xp.maximum(self.radius - distance, 0.0)
        else:
            reward = _dense(distance, self.reward_type)
        return NextState((xp.concat([position, velocity], axis=1),), reward)


class _Walls(_RewardedPoints, TaskSimulator):
    """The task names the middles of two gaps, too."""

    def check_task(self, task: Any) -> dict[str, np.ndarray]:
        """The goal and the middles of the gaps, ``(2,)`` each."""
        names = ("goal", "gap_1", "gap_2")
        if not isinstance(task, Mapping) or any(name not in task for name in names):
            raise ValueError(
                "task must be a mapping with 'goal', 'gap_1' and 'gap_2', for instance {'goal': (2, 2), 'gap_1': "
                f"(1, 0), 'gap_2': (0, 2)}}, got {task!r}"
            )
        return {name: checked_point(f"task[{name!r}]", task[name]) for name in names}

    def step(self, state: Any, actions: Any, constants: Any, noise: Columns, xp: Any) -> NextState:
        """Move by a fifth of ``actions (N, 2)``, clipped to [-1, 1], as far as the walls allow."""
        goal = constants["goal"]
        aim = state[0] + _STEP_SIZE * clipped(actions, xp)
        before, after = norm_of(state[0], xp), norm_of(aim, xp)
        following = aim
        for radius, gap in ((_INNER, constants["gap_1"]), (_OUTER, constants["gap_2"])):
            stopped = (before < radius) & (after > radius) & (norm_of(aim - gap, xp) > _GAP)
            onto = aim * ((radius - _INSIDE) / xp.maximum(after, radius))[:, None]
            following = xp.where(stopped[:, None], onto, following)
        distance = norm_of(following - goal, xp)
        if self.reward_type != "sparse":
            return NextState((following,), _dense(distance, self.reward_type))
        nearer = norm_of(state[0] - goal, xp) - distance
        return NextState((following,), xp.where(distance < self.radius, nearer, 0.0))


class _CornerTasks:
    """Mixin: how much of the plane is drawn, and the tasks of those that search for a corner."""

    drawn_reach = 2.75

    @classmethod
    def sample_tasks(
        cls, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"goal": (2,)}``, corners in random order: each once before one comes up again."""
        order = sample_indices(num_tasks, len(CORNERS), False, generator)
        return [{"goal": CORNERS[i].copy()} for i in order]


class _CornersEnv(_CornerTasks, plane.DrawnPlane, SettableTask, BatchedEnv, ABC):
    """A point in the plane whose goal is one of the corners (2, 2), (2, -2), (-2, 2), (-2, -2).

    Args:
        goal: Shape ``(2,)``.
        reward_type: ``"dense"``, ``"dense_squared"`` or ``"sparse"``; ``None`` means the class's own.
        sparse_reward_radius: Where the sparse reward begins.
        render_mode: ``None`` or ``"rgb_array"``.
    """

    own_reward: ClassVar[RewardType]

    def __init__(
        self,
        goal: Sequence[float] | np.ndarray = (2.0, 2.0),
        reward_type: RewardType | None = None,
        sparse_reward_radius: float = 0.5,
        render_mode: str | None = None,
    ) -> None:
        points = _Corners(type(self), plane_spec(_HORIZON), {"goal": checked_point("goal", goal)})
        reward = self.own_reward if reward_type is None else reward_type
        super().__init__(points.rewarded(reward, sparse_reward_radius), render_mode)


class PointCornersEnv(_CornersEnv):
    """A point in the plane whose goal is one of the corners (2, 2), (2, -2), (-2, 2), (-2, -2).

    The sparse reward is how much nearer to the goal a step has come, where the goal is the nearest corner and the point
    has left the start (its 1-norm is at least ``sparse_reward_radius``), and 0 elsewhere.

    Args:
        goal: Shape ``(2,)``.
        reward_type: ``"dense"``, ``"dense_squared"`` or ``"sparse"``; ``None`` means sparse.
        sparse_reward_radius: Where the sparse reward begins.
        render_mode: ``None`` or ``"rgb_array"``.
    """

    own_reward = "sparse"


class DensePointCornersEnv(_CornersEnv):
    """A point that searches for a corner, rewarded with minus its distance to it."""

    own_reward = "dense"


class DenseSquaredPointCornersEnv(_CornersEnv):
    """A point that searches for a corner, rewarded with minus the square of its distance to it."""

    own_reward = "dense_squared"


class PointMomentumEnv(_CornerTasks, plane.DrawnPlane, SettableTask, BatchedEnv):
    """A point with momentum, whose goal is one of four corners: actions change its velocity.

    The sparse reward is ``max(sparse_reward_radius - distance, 0)``.

    Args:
        goal: Shape ``(2,)``.
        reward_type: ``"dense"``, ``"dense_squared"`` or ``"sparse"``.
        sparse_reward_radius: How near the goal the sparse reward begins.
        render_mode: ``None`` or ``"rgb_array"``.
    """

    def __init__(
        self,
        goal: Sequence[float] | np.ndarray = (2.0, 2.0),
        reward_type: RewardType = "sparse",
        sparse_reward_radius: float = 2.0,
        render_mode: str | None = None,
    ) -> None:
        spec = plane_spec(_HORIZON, ("x", "y", "x_velocity", "y_velocity"))
        task = {"goal": checked_point("goal", goal)}
        super().__init__(_Momentum(type(self), spec, task).rewarded(reward_type, sparse_reward_radius), render_mode)


class PointWallsEnv(_CornerTasks, plane.DrawnPlane, SettableTask, BatchedEnv):
    """A point behind two round walls, each with a gap, whose goal is one of four corners.

    Walls are circles of radius 1 and 2 around the origin. A step from inside a wall to its outside succeeds where it
    ends within 1 of the gap's middle; otherwise the point is put back onto the wall. From outside walls are open.
    The sparse reward is how much nearer to the goal a step has come, within ``sparse_reward_radius`` of the goal.

    Note:
        The published code rewards the place where the point would be without the wall, and returns no number where the
        sparse reward is 0; here the reward is that of the place where the point is.

    Args:
        goal: Shape ``(2,)``.
        gap_1: Middle of the gap in the inner wall, ``(2,)``.
        gap_2: Middle of the gap in the outer wall, ``(2,)``.
        reward_type: ``"dense"``, ``"dense_squared"`` or ``"sparse"``.
        sparse_reward_radius: How near the goal the sparse reward begins.
        render_mode: ``None`` or ``"rgb_array"``.
    """

    def __init__(
        self,
        goal: Sequence[float] | np.ndarray = (2.0, 2.0),
        gap_1: Sequence[float] | np.ndarray = (_INNER, 0.0),
        gap_2: Sequence[float] | np.ndarray = (_OUTER, 0.0),
        reward_type: RewardType = "dense",
        sparse_reward_radius: float = 2.0,
        render_mode: str | None = None,
    ) -> None:
        task = {"goal": goal, "gap_1": gap_1, "gap_2": gap_2}
        spec = plane_spec(_HORIZON)
        super().__init__(_Walls(type(self), spec, task).rewarded(reward_type, sparse_reward_radius), render_mode)

    @classmethod
    def sample_tasks(
        cls, num_tasks: int, generator: np.random.Generator | int | None = None
    ) -> list[dict[str, np.ndarray]]:
        """Tasks ``{"goal": (2,), "gap_1": (2,), "gap_2": (2,)}``: a random corner, and gaps anywhere on their walls."""
        generator = as_generator(generator)
        goals = CORNERS[generator.integers(len(CORNERS), size=num_tasks)]
        angles = generator.uniform(0.0, 2.0 * np.pi, size=(num_tasks, 2))
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=2)  # (num_tasks, 2 walls, 2)
        return [
            {"goal": goal, "gap_1": _INNER * inner, "gap_2": _OUTER * outer}
            for goal, (inner, outer) in zip(goals, directions, strict=True)
        ]

    def walls(self) -> list[Wall]:
        """The two walls."""
        task = self.get_task()
        return [(_INNER, task["gap_1"], _GAP), (_OUTER, task["gap_2"], _GAP)]


def _dense(distance: Any, reward_type: RewardType) -> Any:
    return -distance if reward_type == "dense" else -(distance * distance)
