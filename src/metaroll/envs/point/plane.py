"""Shared parts of environments of a point in the plane: rows of points, their tasks, and how they are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box

from metaroll.envs.base.simulator import Columns
from metaroll.envs.point.plane_drawing import Wall, draw_plane
from metaroll.errors import ShapeError
from metaroll.types import EnvSpec

__all__ = ["DrawnPlane", "PointRows", "checked_point", "clipped", "goal_of", "norm_of", "plane_spec", "square_start"]


def plane_spec(horizon: int, labels: tuple[str, ...] = ("x", "y")) -> EnvSpec:
    """Observations ``(len(labels),)`` without bounds, and moves in [-1, 1]^2."""
    return EnvSpec(
        Box(-np.inf, np.inf, (len(labels),), np.float32),
        Box(-1.0, 1.0, (2,), np.float32),
        horizon,
        observation_labels=labels,
        action_labels=("dx", "dy"),
    )


def clipped(action: Any, xp: Any = np) -> Any:
    """``action (N, 2)`` in float64, each entry clipped to [-1, 1]."""
    return xp.minimum(xp.maximum(xp.asarray(action, dtype=xp.float64), -1.0), 1.0)


def norm_of(offset: Any, xp: Any = np) -> Any:
    """Lengths ``(N,)`` of ``offset (N, 2)``."""
    x, y = offset[:, 0], offset[:, 1]
    return xp.sqrt(x * x + y * y)


def goal_of(task: Any) -> np.ndarray:
    """The goal ``(2,)`` that a task names."""
    if not isinstance(task, Mapping) or "goal" not in task:
        raise ValueError(f"task must be a mapping with 'goal', for instance {{'goal': (0.5, -0.2)}}, got {task!r}")
    return checked_point("task['goal']", task["goal"])


def checked_point(name: str, value: Any) -> np.ndarray:
    """``value`` as a finite point ``(2,)``, in its own memory."""
    point = np.array(value, dtype=np.float64)
    if point.shape != (2,):
        raise ShapeError(f"{name} must have shape (2,), got {point.shape}")
    if not np.isfinite(point).all():
        raise ValueError(f"{name} must be finite, got {point}")
    return point


class PointRows:
    """Mixin of simulators of points: the state is one array ``(N, S)`` that begins with positions, and is observed."""

    state_dim = 2
    runs_on_torch = True

    def check_task(self, task: Any) -> dict[str, np.ndarray]:
        """The goal ``(2,)``."""
        return {"goal": goal_of(task)}

    def state_from_init(self, inits: np.ndarray, constants: Any, xp: Any) -> Any:
        return (xp.asarray(inits),)

    def initial_state(self, uniforms: Columns, constants: Any, xp: Any) -> Any:
        """The origin, at rest."""
        return (xp.zeros((len(constants["goal"]), self.state_dim)),)

    def observe(self, state: Any, constants: Any, xp: Any) -> Any:
        """States, ``(N, S)`` float32."""
        return xp.asarray(state[0], dtype=xp.float32)


def square_start(uniforms: Columns, reach: float, xp: Any) -> Any:
    """Places uniform in [-reach, reach]^2, ``(N, 2)``, from two columns of numbers."""
    return (2.0 * xp.stack(uniforms, axis=1) - 1.0) * reach


class DrawnPlane:
    """Mixin of ``BatchedEnv`` whose state begins with a place in the plane, and whose task holds a ``goal``.

    With ``render_mode="rgb_array"`` it is drawn from above, with the way that the point has come in this episode.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's own)
    drawn_reach: ClassVar[float]
    """The square [-drawn_reach, drawn_reach]^2 is drawn."""
    goal_radius: float = 0.0
    """Radius in which the goal counts as reached; 0 draws no such area."""
    simulator: Any
    render_mode: str | None
    _rows: Any
    _trail: list[np.ndarray]

    def walls(self) -> list[Wall]:
        """Walls that are current, to be drawn."""
        return []

    def on_step(self, begins: bool = False) -> None:
        """Remember where the point is, if it is drawn."""
        if begins:
            self._trail = []
        if begins or self.render_mode is not None:
            self._trail.append(self._rows.state[0][0, :2].copy())

    def shown_goal(self) -> np.ndarray:
        """The goal that is drawn, ``(2,)``: that of the task."""
        return self.simulator.task["goal"]

    def picture(self) -> np.ndarray:
        """The plane from above, uint8 ``(360, 360, 3)``."""
        return draw_plane(self._trail, self.shown_goal(), self.drawn_reach, self.goal_radius, self.walls())
