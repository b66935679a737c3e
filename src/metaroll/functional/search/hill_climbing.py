"""Hill climbing: the next mean is the best candidate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, final

import numpy as np

from metaroll.functional.parameter_noise import adapted_spread, noisy_sets
from metaroll.functional.search.base import Search, SearchState, checked_mean, default_population
from metaroll.functional.search.configs import HillClimbConfig

__all__ = ["HillClimb", "HillClimbState"]


@dataclass(frozen=True, kw_only=True)
class HillClimbState(SearchState):
    """Where hill climbing stands.

    Attributes:
        reach: Standard deviation of the noise, or radius of the sphere.
        mean_fitness: Fitness that the mean had as a candidate.
    """

    reach: float
    mean_fitness: float = -math.inf


@final
@dataclass(frozen=True, kw_only=True)
class HillClimb(HillClimbConfig, Search[HillClimbState]):
    """A (1 + lambda) evolution strategy, or a (1, lambda) one, whose reach follows its successes.

    A (1, lambda) strategy, which leaves its mean in any case, has the more reach the more successes it has.
    """

    plus: Annotated[
        bool,
        "The mean is the first candidate, and stays where none is better; without it the best candidate is the next "
        "mean in any case, and a success where it is better than the mean was.",
    ] = True

    def start(self, mean: Any) -> HillClimbState:
        """See ``Search.start``."""
        center = checked_mean(mean)
        return HillClimbState(mean=center, best=center.copy(), reach=self.init_sigma)

    def num_candidates(self, state: HillClimbState) -> int:
        """``population``, and the mean."""
        count = default_population(len(state.mean)) if self.population is None else self.population
        return count + self.plus

    def ask(self, state: HillClimbState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``; the first candidate is the mean, of a (1 + lambda) strategy."""
        count = self.num_candidates(state) - self.plus
        rows = noisy_sets(state.mean, state.reach, count, self.noise, generator).astype(np.float64)
        return np.concatenate([state.mean[None], rows]) if self.plus else rows

    def spread(self, state: HillClimbState) -> float:
        """``reach``."""
        return state.reach

    def _learned(self, state: HillClimbState, candidates: np.ndarray, fitness: np.ndarray) -> HillClimbState:
        best = int(np.nanargmax(fitness))  # the mean itself, where nothing is better
        nearer = best > 0 if self.plus else bool(fitness[best] <= state.mean_fitness)
        reach = adapted_spread(
            state.reach, nearer, self.sigma_factor, (self.min_sigma, self.max_sigma), self.noise, self.init_sigma
        )
        return replace(state, mean=candidates[best].copy(), reach=reach, mean_fitness=float(fitness[best]))

    def described(self) -> str:
        """See ``Search.described``; by the names of searches of before version 0.3."""
        bounds = (self.min_sigma, self.max_sigma)
        return (
            f"bounds={bounds!r}, factor={self.sigma_factor!r}, noise={self.noise!r}, plus={self.plus!r}, "
            f"population={self.population!r}, reach={self.init_sigma!r}"
        )
