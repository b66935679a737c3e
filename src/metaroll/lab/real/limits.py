"""Limits on the actions sent to a device, and on its observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
from gymnasium.spaces import Box

from metaroll.errors import ShapeError, unknown_name
from metaroll.types import EnvSpec

__all__ = ["DeviceLimits"]


@final
class DeviceLimits:
    """Bounds of actions and observations, and functions that stop the device.

    Args:
        env_spec: One-dimensional Box spaces, with bounded actions, and labels.
        stop_action: See ``RealEnv``.
        on_limit: See ``RealEnv``.
        observation_limits: See ``RealEnv``.
        stop_when: See ``RealEnv``.

    Attributes:
        stop_action: Shape ``(A,)``.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        stop_action: Any,
        on_limit: str,
        observation_limits: Mapping[str | int, tuple[float, float]],
        stop_when: Sequence[Callable[[np.ndarray], Any]],
    ) -> None:
        self._spec, self._space = env_spec, _box("action", env_spec.action_space)
        _box("observation", env_spec.observation_space)
        if not self._space.is_bounded():
            raise ValueError(f"the action space of a RealEnv must be bounded, got {self._space}; a device has limits")
        if on_limit not in ("clip", "refuse"):
            raise ValueError(f"on_limit must be 'clip' or 'refuse', got {on_limit!r}")
        self._refuses, self._stop_when = on_limit == "refuse", tuple(stop_when)
        self._low, self._high = self._space.low.astype(np.float64), self._space.high.astype(np.float64)
        self.stop_action = self.checked(np.zeros(self._space.shape) if stop_action is None else stop_action)
        if not np.array_equal(self.clipped(self.stop_action), self.stop_action):
            raise ValueError(f"stop_action must lie within {self._space}, got {self.stop_action.tolist()}")
        self._limits = self._checked_limits(observation_limits)

    def checked(self, action: Any) -> np.ndarray:
        """A copy of an action as numbers ``(A,)``.

        Raises:
            ShapeError: It has another shape.
            ValueError: It is not finite.
        """
        array = np.array(action, dtype=np.float64)
        if array.shape != self._space.shape:
            raise ShapeError(f"action must have shape {self._space.shape}, got {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"action must be finite, got {array.tolist()}")
        return array

    def clipped(self, action: np.ndarray) -> np.ndarray:
        """A checked action within its bounds."""
        return np.clip(action, self._low, self._high)

    def applied(self, action: np.ndarray) -> np.ndarray:
        """The action that the device receives for a checked action.

        Raises:
            ValueError: It is out of bounds, and such actions are refused.
        """
        applied = self.clipped(action)
        wrong = np.flatnonzero(applied != action)
        if wrong.size and self._refuses:
            i = int(wrong[0])
            label = self._spec.action_labels[i] if self._spec.action_labels else f"entry {i}"
            bounds = f"[{self._low[i]:g}, {self._high[i]:g}]"
            raise ValueError(f"the action {label} is {action[i]:.6g}, outside of {bounds} (on_limit='refuse')")
        return applied

    def left(self, observation: np.ndarray) -> str:
        """Which limit an observation violates, in words; empty for none."""
        for position, (label, low, high) in self._limits.items():
            if not low <= observation[position] <= high:
                return f"{label} is {observation[position]:.6g}, outside of [{low:g}, {high:g}]"
        return ""

    def stop_reason(self, observation: np.ndarray) -> str:
        """Why a function of ``stop_when`` wants to stop; empty if none does."""
        for number, condition in enumerate(self._stop_when):
            reason = condition(observation.copy())
            if reason:
                return reason if isinstance(reason, str) else f"stop_when[{number}] returned true"
        return ""

    def _checked_limits(self, limits: Mapping[str | int, tuple[float, float]]) -> dict[int, tuple[str, float, float]]:
        labels = self._spec.observation_labels or tuple(map(str, range(self._spec.obs_dim)))
        checked = {}
        for key, (low, high) in limits.items():
            label = labels[key] if isinstance(key, int) and 0 <= key < len(labels) else str(key)
            if label not in labels:
                raise unknown_name("entry of observation_limits", label, labels)
            if not low < high:
                raise ValueError(f"observation_limits of {label!r} must be (low, high), low < high, got {(low, high)}")
            checked[labels.index(label)] = (label, float(low), float(high))
        return checked


def _box(kind: str, space: Any) -> Box:
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise TypeError(f"the {kind} space of a RealEnv must be a Box of one axis, got {space}")
    return space
