"""The cross-entropy method: a normal distribution that is fitted to the best candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import numpy as np

from metaroll.checks import check_number, check_whole
from metaroll.errors import unknown_name
from metaroll.functional.search.base import Search, SearchState, best_first, checked_mean
from metaroll.functional.search.sampling import normal_rows

__all__ = ["CEM", "COVARIANCES", "CEMState", "num_elites"]

COVARIANCES = ("diagonal", "full")
"""Kinds of covariance that ``CEM`` knows."""


def num_elites(population: int, fraction: float) -> int:
    """``floor(population * fraction)``, without what rounding in floating point takes away.

    Raises:
        ValueError: It is below 1 or above the population.
    """
    count = math.floor(population * check_number("best_frac", fraction, 0.0, 1.0) + 1e-9)
    if count < 1:
        raise ValueError(
            f"best_frac must leave at least one of {population} candidates, got {fraction:g}: take "
            f"{1.0 / population:.3g} or more, or a larger population"
        )
    return count


@dataclass(frozen=True, kw_only=True)
class CEMState(SearchState):
    """Where the cross-entropy method stands.

    Attributes:
        std: Standard deviation of each parameter ``(P,)``, before the extra noise.
        directions: Deviations of the best candidates from their mean ``(n_best, P)``, of a full covariance, which is
            their mean square; ``(0, P)`` before the first generation and for a diagonal one.
    """

    growing: ClassVar[tuple[str, ...]] = ("directions",)

    std: np.ndarray
    directions: np.ndarray


@final
@dataclass(frozen=True, kw_only=True)
class CEM(Search[CEMState]):
    """Cross-entropy method with extra noise that fades (Szita and Lorincz 2006).

    Candidates are normal with the mean and the covariance of the ``num_best`` best ones of the generation before, plus
    ``extra_std^2 max(0, 1 - e / extra_decay_time)`` of variance in generation e. The first candidate of the first
    generation is the mean itself.

    Attributes:
        population: Number of candidates.
        num_best: How many of them the distribution is fitted to.
        init_std: Standard deviation at first.
        extra_std: Standard deviation of the extra noise in generation 0.
        extra_decay_time: Generations that it takes to fade; 0 means that there is none.
        covariance: ``"diagonal"``, or ``"full"``: that of rank ``num_best``, of which is drawn without it being formed.
        mirrored: Draw candidates in pairs on both sides of the mean.
        elitism: The best candidate so far is one of each generation.
    """

    population: int
    num_best: int
    init_std: float = 1.0
    extra_std: float = 0.0
    extra_decay_time: float = 100.0
    covariance: Literal["diagonal", "full"] = "diagonal"
    mirrored: bool = False
    elitism: bool = False

    def __post_init__(self) -> None:
        check_whole("population", self.population, 1)
        if not 1 <= check_whole("num_best", self.num_best, 0) <= self.population:
            raise ValueError(
                f"num_best must lie between 1 and the population of {self.population}, got {self.num_best}"
            )
        check_number("init_std", self.init_std, 0.0)
        check_number("extra_std", self.extra_std, 0.0)
        check_number("extra_decay_time", self.extra_decay_time, 0.0)
        if self.covariance not in COVARIANCES:
            raise unknown_name("covariance", str(self.covariance), COVARIANCES)

    def start(self, mean: Any) -> CEMState:
        """See ``Search.start``."""
        center = checked_mean(mean)
        std, none = np.full(len(center), float(self.init_std)), np.zeros((0, len(center)))
        return CEMState(mean=center, best=center.copy(), std=std, directions=none)

    def num_candidates(self, state: CEMState) -> int:
        """``population``."""
        return self.population

    def extra_variance(self, generation: int) -> float:
        """Variance that generation ``generation`` has beside that of the best candidates."""
        if not self.extra_decay_time:
            return 0.0
        return self.extra_std**2 * max(0.0, 1.0 - generation / self.extra_decay_time)

    def ask(self, state: CEMState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        shape, extra = (self.population, len(state.mean)), self.extra_variance(state.generation)
        if len(state.directions):
            # Normal weights of the deviations have their mean square as covariance, without any decomposition.
            weights = normal_rows(generator, self.population, len(state.directions), self.mirrored)
            rows = state.mean + weights @ state.directions / math.sqrt(len(state.directions))
            if extra:
                rows += math.sqrt(extra) * normal_rows(generator, *shape, self.mirrored)
        else:
            rows = state.mean + np.sqrt(np.square(state.std) + extra) * normal_rows(generator, *shape, self.mirrored)
        if not state.generation:
            rows[0] = state.mean
        elif self.elitism:
            rows[0] = state.best
        return rows

    def spread(self, state: CEMState) -> float:
        """See ``Search.spread``."""
        return math.sqrt(float(np.square(state.std).mean()) + self.extra_variance(state.generation))

    def _learned(self, state: CEMState, candidates: np.ndarray, fitness: np.ndarray) -> CEMState:
        order = best_first(fitness)[: self.num_best]
        chosen = candidates[order[~np.isnan(fitness[order])]]  # nothing is known of the others
        mean = chosen.mean(axis=0)
        directions = chosen - mean if self.covariance == "full" else state.directions
        return replace(state, mean=mean, std=chosen.std(axis=0), directions=directions)
