"""Separable natural evolution strategies: the natural gradient of mean and standard deviations."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, final

import numpy as np

from metaroll.plugins import (
    AtLeastTwo,
    Config,
    Positive,
    Search,
    SearchState,
    Was,
    Weight,
    checked_mean,
    default_population,
    normal_rows,
    utilities,
)

__all__ = ["SNES", "SNESConfig", "SNESState"]


@dataclass(frozen=True, kw_only=True)
class SNESConfig(Config):
    """Settings of separable natural evolution strategies."""

    population: Annotated[
        AtLeastTwo | None, "Number of candidates per epoch; null means 4 + int(3 ln P) for P parameters."
    ] = None
    init_sigma: Annotated[Positive, Was("init_std"), "Initial standard deviation of the candidates."] = 0.5
    learning_rate: Annotated[Positive, Was("mean_rate"), "Learning rate of the mean."] = 1.0
    sigma_learning_rate: Annotated[
        Weight | None,
        Was("std_rate"),
        "Learning rate of the standard deviations; null means (3 + ln P) / (5 sqrt P).",
    ] = None
    mirrored: Annotated[bool, "Draw candidates in pairs on both sides of the mean."] = False


@dataclass(frozen=True, kw_only=True)
class SNESState(SearchState):
    """State of SNES.

    Attributes:
        std: Standard deviation of each parameter ``(P,)``.
    """

    std: np.ndarray


@final
@dataclass(frozen=True, kw_only=True)
class SNES(SNESConfig, Search[SNESState]):
    """Separable natural evolution strategy (Schaul et al. 2011; Wierstra et al. 2014, arXiv:1106.4487, algorithm 6).

    With utilities u and standard normal s, ``mean += learning_rate std sum u s`` and
    ``std *= exp(sigma_learning_rate / 2 sum u (s^2 - 1))``.
    """

    def start(self, mean: Any) -> SNESState:
        """See ``Search.start``."""
        center = checked_mean(mean)
        return SNESState(mean=center, best=center.copy(), std=np.full(len(center), float(self.init_sigma)))

    def num_candidates(self, state: SNESState) -> int:
        """``population``, or its default for the number of parameters."""
        return default_population(len(state.mean)) if self.population is None else self.population

    def ask(self, state: SNESState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        rows = normal_rows(generator, self.num_candidates(state), len(state.mean), self.mirrored)
        return state.mean + state.std * rows

    def spread(self, state: SNESState) -> float:
        """See ``Search.spread``."""
        return math.sqrt(float(np.square(state.std).mean()))

    def learned(self, state: SNESState, candidates: np.ndarray, fitness: np.ndarray) -> SNESState:
        n = len(state.mean)
        rate = (
            (3.0 + math.log(n)) / (5.0 * math.sqrt(n)) if self.sigma_learning_rate is None else self.sigma_learning_rate
        )
        # Utilities u_k, (K,), and s_k = (x_k - mu) / sigma, (K, P)
        weights, normal = utilities(fitness), (candidates - state.mean) / state.std
        # mu += eta_mu sigma sum_k u_k s_k, sigma *= exp(eta_sigma / 2 sum_k u_k (s_k^2 - 1)), (P,) (Wierstra et al.
        # 2014, algorithm 6)
        return replace(
            state,
            mean=state.mean + self.learning_rate * state.std * (weights @ normal),
            std=state.std * np.exp(rate / 2.0 * (weights @ (np.square(normal) - 1.0))),
        )
