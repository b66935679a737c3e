"""What policies without anything to learn have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import numpy as np

from metaroll.types import Context, PolicyState

__all__ = ["ParameterFreePolicy"]


class ParameterFreePolicy(ABC):
    """A ``types.Policy`` without parameters whose rows do not depend on one another."""

    noise_dim = 0
    noise_kind: Literal["normal", "uniform"] = "normal"
    width_independent = True

    def initial_state(
        self, contexts: Sequence[Context | None], generators: Sequence[np.random.Generator]
    ) -> PolicyState:
        """Nothing to remember."""
        return {}

    @abstractmethod
    def act(
        self,
        obs: np.ndarray,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[np.ndarray, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``."""

    def acting_parameters(self) -> np.ndarray:
        """None: ``(0,)``."""
        return np.zeros(0, dtype=np.float32)
