"""Parameter-exploring policy gradients: gradients of mean and standard deviations from pairs of candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, final

import numpy as np

from metaroll.plugins import (
    Bounds,
    Config,
    GradientState,
    Positive,
    Search,
    Was,
    Weight,
    Whole,
    ascended,
    gradient_start,
    normal_rows,
    shaped,
)

__all__ = ["PGPE", "PGPEConfig"]


@dataclass(frozen=True, kw_only=True)
class PGPEConfig(Config):
    """Settings of parameter-exploring policy gradients."""

    num_directions: Annotated[Whole, Was("num_pairs"), "Number of directions, half of the candidates."] = 8
    init_sigma: Annotated[Positive, Was("init_std"), "Initial standard deviation of the candidates."] = 0.1
    learning_rate: Annotated[Positive, "Learning rate of the mean (Adam)."] = 0.02
    sigma_learning_rate: Annotated[Weight, Was("std_learning_rate"), "Learning rate of the standard deviations."] = 0.1
    max_sigma_change: Annotated[
        float,
        Bounds(0.0, 0.99),
        Was("max_std_change"),
        "Maximum relative change of a standard deviation per step.",
    ] = 0.2
    shaping: Annotated[Literal["ranks", "utilities", "standardized"], "Transformation of the fitness."] = "ranks"


@final
@dataclass(frozen=True, kw_only=True)
class PGPE(PGPEConfig, Search[GradientState]):
    """Parameter-exploring policy gradients with symmetric sampling (Sehnke et al. 2010, algorithm 2), and Adam.

    With pairs ``mean + e`` and ``mean - e`` and shaped fitness r, the gradient of the mean is ``e (r+ - r-) / 2 / std``
    and that of each standard deviation ``(e^2 - std^2) / std ((r+ + r-) / 2 - b)``, where b is the mean of r.
    """

    def start(self, mean: Any) -> GradientState:
        """See ``Search.start``."""
        return gradient_start(mean, self.init_sigma)

    def num_candidates(self, state: GradientState) -> int:
        """Two per direction."""
        return 2 * self.num_directions

    def ask(self, state: GradientState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        return state.mean + state.std * normal_rows(generator, 2 * self.num_directions, len(state.mean), mirrored=True)

    def spread(self, state: GradientState) -> float:
        """See ``Search.spread``."""
        return math.sqrt(float(np.square(state.std).mean()))

    def learned(self, state: GradientState, candidates: np.ndarray, fitness: np.ndarray) -> GradientState:
        # Shaped fitness r+ and r-, (N,), and e / std of each pair, (N, P)
        values = shaped(fitness, self.shaping)
        plus, minus = values[0::2], values[1::2]
        normal = (candidates[0::2] - candidates[1::2]) / (2.0 * state.std)
        # Gradient of the mean: mean over pairs of e / std (r+ - r-) / 2, (P,) (Sehnke et al. 2010, algorithm 2)
        gradient = ((plus - minus) / 2.0) @ normal / len(plus)
        # Gradient of std, relative to std: mean over pairs of ((e / std)^2 - 1) ((r+ + r-) / 2 - b), (P,)
        advantage = (plus + minus) / 2.0 - values.mean()
        change = self.sigma_learning_rate * (advantage @ (np.square(normal) - 1.0)) / len(plus)
        std = state.std * (1.0 + np.clip(change, -self.max_sigma_change, self.max_sigma_change))
        return replace(ascended(state, gradient, self.learning_rate), std=std)
