"""The simulator of ``metaroll sim2real demo``: folders of its runs and posteriors name it by this module."""

from __future__ import annotations

from typing import Any

from metaroll.envs.sims.catalog import QQubeSwingUpEnv

__all__ = ["DT", "ENV", "swing_up"]

ENV = "metaroll.training.session.sim2real:swing_up"
"""The name of the simulator of the loop."""
DT, _STEPS = 0.02, 250
"""Seconds per step, and steps per episode."""


def swing_up(**options: Any) -> QQubeSwingUpEnv:
    """The Qube swing-up task, with 50 actions per second for 5 s."""
    return QQubeSwingUpEnv(**{"dt": DT, "max_steps": _STEPS, **options})
