"""What policies without anything to learn have in common."""

from __future__ import annotations

from abc import ABC

import numpy as np

from metaroll.types import Policy, PolicyInfo

__all__ = ["ParameterFreePolicy"]


class ParameterFreePolicy(Policy, ABC):
    """A policy without parameters, noise and draws, whose rows do not depend on one another."""

    @property
    def info(self) -> PolicyInfo:
        """Without noise and draws."""
        return PolicyInfo(draws=False)

    def acting_parameters(self) -> np.ndarray:
        """None: ``(0,)``."""
        return np.zeros(0, dtype=np.float32)
