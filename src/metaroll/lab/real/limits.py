"""What a device may be told, and where it may go."""

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
    """Bounds of actions and observations, and functions that stop.

    Args:
        env_spec: Box spaces of one axis, that of actions bounded, and labels.
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
        """An action as numbers ``(A,)``, in memory of its own.

        Raises:
            ShapeError: It has another shape.
            ValueError: It is not finite.
        """
        given = np.array(action, dtype=np.float64)
        if given.shape != self._space.shape:
            raise ShapeError(f"action must have shape {self._space.shape}, got {given.shape}")
        if not np.isfinite(given).all():
            raise ValueError(f"action must be finite, got {given.tolist()}")
        return given

    def clipped(self, action: np.ndarray) -> np.ndarray:
        """A checked action within its bounds."""
        return np.clip(action, self._low, self._high)

    def applied(self, action: np.ndarray) -> np.ndarray:
        """What the device gets of a checked action.

        Raises:
            ValueError: It lies outside, and such actions are refused.
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
        """Which limit an observation lies outside of, in words; empty for none."""
        for position, (label, low, high) in self._limits.items():
            if not low <= observation[position] <= high:
                return f"{label} is {observation[position]:.6g}, outside of [{low:g}, {high:g}]"
        return ""

    def stop_reason(self, observation: np.ndarray) -> str:
        """What a function of ``stop_when`` says; empty for nothing."""
        for number, condition in enumerate(self._stop_when):
            found = condition(observation.copy())
            if found:
                return found if isinstance(found, str) else f"stop_when[{number}] said so"
        return ""

    def _checked_limits(self, limits: Mapping[str | int, tuple[float, float]]) -> dict[int, tuple[str, float, float]]:
        labels = self._spec.observation_labels or tuple(map(str, range(self._spec.obs_dim)))
        found = {}
        for key, (low, high) in limits.items():
            label = labels[key] if isinstance(key, int) and 0 <= key < len(labels) else str(key)
            if label not in labels:
                raise unknown_name("entry of observation_limits", label, labels)
            if not low < high:
                raise ValueError(f"observation_limits of {label!r} must be (low, high), low < high, got {(low, high)}")
            found[labels.index(label)] = (label, float(low), float(high))
        return found


def _box(kind: str, space: Any) -> Box:
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise TypeError(f"the {kind} space of a RealEnv must be a Box of one axis, got {space}")
    return space
