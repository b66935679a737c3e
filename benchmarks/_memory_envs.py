"""Environments that do not show all that counts."""

from __future__ import annotations

from typing import Any

import gymnasium

import metaroll as m

__all__ = ["pendulum_without_velocity"]


def pendulum_without_velocity() -> Any:
    """``Pendulum-v1`` that shows ``(cos, sin)`` of its angle, but not how fast it turns."""
    return m.wrappers.ObsPartialWrapper(gymnasium.make("Pendulum-v1"), idcs=[2])
