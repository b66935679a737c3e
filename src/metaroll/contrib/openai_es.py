"""OpenAI's evolution strategy: a gradient of the mean from shaped fitness, for Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, final

import numpy as np

from metaroll.plugins import (
    AtLeastTwo,
    Config,
    GradientState,
    Positive,
    Search,
    Was,
    Weight,
    ascended,
    gradient_start,
    normal_rows,
    shaped,
)

__all__ = ["OpenAIES", "OpenAIESConfig"]


@dataclass(frozen=True, kw_only=True)
class OpenAIESConfig(Config):
    """Settings of OpenAI's evolution strategy."""

    population: Annotated[AtLeastTwo, "Number of candidates K per epoch."] = 16
    sigma: Annotated[Positive, Was("noise"), "Standard deviation of the candidates."] = 0.05
    learning_rate: Annotated[Positive, "Learning rate (Adam)."] = 0.02
    weight_decay: Annotated[Weight, "Decay of the mean toward 0."] = 0.0
    mirrored: Annotated[bool, "Draw candidates in pairs on both sides of the mean."] = True
    shaping: Annotated[Literal["ranks", "utilities", "standardized"], "Transformation of the fitness."] = "ranks"


@final
@dataclass(frozen=True, kw_only=True)
class OpenAIES(OpenAIESConfig, Search[GradientState]):
    """Evolution strategy of Salimans et al. 2017 (arXiv:1703.03864, algorithm 1), with Adam.

    The gradient of the mean is ``1 / (K sigma) sum F_k e_k`` with shaped fitness F and standard normal e, less
    ``weight_decay`` times the mean.
    """

    def start(self, mean: Any) -> GradientState:
        """See ``Search.start``."""
        return gradient_start(mean, self.sigma)

    def num_candidates(self, state: GradientState) -> int:
        """``population``."""
        return self.population

    def ask(self, state: GradientState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        return state.mean + self.sigma * normal_rows(generator, self.population, len(state.mean), self.mirrored)

    def spread(self, state: GradientState) -> float:
        """See ``Search.spread``."""
        return self.sigma

    def learned(self, state: GradientState, candidates: np.ndarray, fitness: np.ndarray) -> GradientState:
        # e_k, (K, P), and 1 / (K sigma) sum_k F_k e_k, (P,) (Salimans et al. 2017, algorithm 1)
        normal = (candidates - state.mean) / self.sigma
        gradient = shaped(fitness, self.shaping) @ normal / (len(fitness) * self.sigma)
        return ascended(state, gradient - self.weight_decay * state.mean, self.learning_rate)
