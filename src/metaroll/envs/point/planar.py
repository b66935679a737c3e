"""What environments of a point in the plane share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.errors import ShapeError
from metaroll.types import EnvSpec

__all__ = ["checked_point", "clipped", "goal_of", "norm_of", "plane_spec"]


def plane_spec(horizon: int, labels: tuple[str, ...] = ("x", "y")) -> EnvSpec:
    """Observations ``(len(labels),)`` without bounds, and moves in [-1, 1]^2."""
    return EnvSpec(
        Box(-np.inf, np.inf, (len(labels),), np.float32),
        Box(-1.0, 1.0, (2,), np.float32),
        horizon,
        observation_labels=labels,
        action_labels=("dx", "dy"),
    )


def clipped(action: np.ndarray) -> np.ndarray:
    """``action (N, 2)`` in float64, each entry clipped to [-1, 1]."""
    return np.minimum(np.maximum(action.astype(np.float64), -1.0), 1.0)


def norm_of(offset: np.ndarray) -> np.ndarray:
    """Lengths ``(N,)`` of ``offset (N, 2)``."""
    x, y = offset[:, 0], offset[:, 1]
    return np.sqrt(x * x + y * y)


def goal_of(task: Any) -> np.ndarray:
    """The goal ``(2,)`` that a task names."""
    if not isinstance(task, Mapping) or "goal" not in task:
        raise ValueError(f"task must be a mapping with 'goal', for instance {{'goal': (0.5, -0.2)}}, got {task!r}")
    return checked_point("task['goal']", task["goal"])


def checked_point(name: str, value: Any) -> np.ndarray:
    """``value`` as a finite point ``(2,)``, in memory of its own."""
    point = np.array(value, dtype=np.float64)
    if point.shape != (2,):
        raise ShapeError(f"{name} must have shape (2,), got {point.shape}")
    if not np.isfinite(point).all():
        raise ValueError(f"{name} must be finite, got {point}")
    return point
