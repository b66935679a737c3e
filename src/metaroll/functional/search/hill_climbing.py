"""Hill climbing: the next mean is the best candidate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np

from metaroll.checks import check_number, check_whole
from metaroll.errors import unknown_name
from metaroll.functional.parameter_noise import NOISES, adapted_spread, noisy_sets
from metaroll.functional.search.base import Search, SearchState, checked_mean, default_population

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
class HillClimb(Search[HillClimbState]):
    """A (1 + lambda) evolution strategy, or a (1, lambda) one, whose reach follows its successes.

    Attributes:
        population: Number of candidates beside the mean; ``None`` means 4 + int(3 ln P).
        noise: ``"normal"`` or ``"sphere"``, see ``functional.parameter_noise``.
        reach: Standard deviation, or radius, at first.
        bounds: Minimum and maximum of both; a radius beyond them begins anew.
        factor: After a success the reach is divided by its square, otherwise multiplied by it. A (1, lambda) strategy,
            which leaves its mean in any case, does it the other way round.
        plus: The mean is the first candidate, and stays where none is better; without it the best candidate is the
            next mean in any case, and a success where it is better than the mean was.
    """

    population: int | None = None
    noise: Literal["normal", "sphere"] = "normal"
    reach: float = 0.5
    bounds: tuple[float, float] = (0.01, 2.0)
    factor: float = 1.05
    plus: bool = True

    def __post_init__(self) -> None:
        if self.population is not None:
            check_whole("population", self.population)
        if self.noise not in NOISES:
            raise unknown_name("noise", str(self.noise), NOISES)
        check_number("reach", self.reach, *self.bounds)
        check_number("factor", self.factor, 1.0)

    def start(self, mean: Any) -> HillClimbState:
        """See ``Search.start``."""
        center = checked_mean(mean)
        return HillClimbState(mean=center, best=center.copy(), reach=float(self.reach))

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
        reach = adapted_spread(state.reach, nearer, self.factor, self.bounds, self.noise, self.reach)
        return replace(state, mean=candidates[best].copy(), reach=reach, mean_fitness=float(fitness[best]))
