"""Scaling between actions of a network, in [-1, 1], and those of an environment, within its bounds."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch

__all__ = ["NO_BOUND", "ActionScaling"]

_TINY = 1e-8
NO_BOUND = 1e30
"""Larger bounds count as none: spaces often have the largest float there."""


class ActionScaling:
    """Maps entries with two bounds from [-1, 1] to these, and clips all entries to their bounds.

    Args:
        bounds: Lower and upper bounds of the A entries; infinite if there is none.

    Attributes:
        bounds: The argument.
        center, half_range: Middle and half width of the entries, float32 ``(A,)``; 0 and 1 where a bound is missing.
    """

    def __init__(self, bounds: tuple[tuple[float, ...], tuple[float, ...]]) -> None:
        self.bounds = bounds
        low, high = np.array(bounds[0]), np.array(bounds[1])
        bounded = np.isfinite(low) & np.isfinite(high)
        first, last = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        self.center = ((last + first) / 2).astype(np.float32)
        self.half_range = ((last - first) / 2).astype(np.float32)
        low, high, divisor = low.astype(np.float32), high.astype(np.float32), np.maximum(self.half_range, _TINY)
        self._arrays = (self.half_range, self.center, low, high, divisor)
        self._on_device: dict[torch.device, tuple[torch.Tensor, ...]] = {}

    @classmethod
    def of(cls, space: Any) -> ActionScaling | None:
        """The scaling for an action space; ``None`` unless it is a Box with any bound."""
        if not isinstance(space, gymnasium.spaces.Box):
            return None
        low, high = (np.asarray(bound, dtype=np.float64).reshape(-1) for bound in (space.low, space.high))
        low, high = np.where(low > -NO_BOUND, low, -np.inf), np.where(high < NO_BOUND, high, np.inf)
        if not np.isfinite([low, high]).any():
            return None
        return cls((tuple(low.tolist()), tuple(high.tolist())))

    @classmethod
    def of_squashed(cls, space: Any) -> ActionScaling | None:
        """The scaling for an action space, of actions that are already in [-1, 1]; ``None`` if it is the identity."""
        scaling = cls.of(space)
        unit = scaling is None or (set(scaling.bounds[0]), set(scaling.bounds[1])) == ({-1.0}, {1.0})
        return None if unit else scaling

    def scaled(self, raw: Any, xp: Any = np) -> Any:
        """Environment actions ``(..., A)`` from those of the network, in new memory.

        Args:
            raw: Within [-1, 1] where an entry has two bounds.
            xp: Array namespace: ``numpy``, or that of tensors.
        """
        half_range, center, low, high, _ = self._parts(raw, xp)
        actions = raw * half_range
        actions += center
        # Clipped last, since rounding may exceed the bounds.
        return xp.minimum(xp.maximum(actions, low), high)

    def unscaled(self, actions: Any, xp: Any = np) -> Any:
        """Network actions ``(..., A)`` from those of the environment; float32 for NumPy."""
        rows = np.asarray(actions, dtype=np.float32) if xp is np else actions
        _, center, _, _, divisor = self._parts(rows, xp)
        return (rows - center) / divisor

    def _parts(self, like: Any, xp: Any) -> tuple[Any, ...]:
        """Half range, center, bounds, and the divisor of ``unscaled``, on the device of ``like``."""
        if xp is np:
            return self._arrays
        if like.device not in self._on_device:
            self._on_device = {like.device: tuple(torch.as_tensor(part).to(like.device) for part in self._arrays)}
        return self._on_device[like.device]
