"""Environments whose observations leave out part of the state."""

from __future__ import annotations

from typing import Any

import gymnasium

import metaroll as m

__all__ = ["pendulum_without_velocity"]


def pendulum_without_velocity() -> Any:
    """``Pendulum-v1`` whose observation is ``(cos, sin)`` of the angle, without the angular velocity."""
    return m.wrappers.ObsPartialWrapper(gymnasium.make("Pendulum-v1"), idcs=[2])
