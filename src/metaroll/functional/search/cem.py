"""The cross-entropy method: a normal distribution, fitted to the best candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from metaroll.config import options_of
from metaroll.functional.search.base import Search, SearchState, best_first, checked_mean
from metaroll.functional.search.configs import CEMConfig
from metaroll.functional.search.sampling import normal_rows

__all__ = ["CEM", "CEMState"]


@dataclass(frozen=True, kw_only=True)
class CEMState(SearchState):
    """State of the cross-entropy method.

    Attributes:
        std: Standard deviation of each parameter ``(P,)``, before the extra noise.
        directions: Deviations of the best candidates from their mean ``(n, P)``, whose second moment is the full
            covariance; n is at most ``n_best``, and 0 before the first generation and for a diagonal covariance.
    """

    growing: ClassVar[tuple[str, ...]] = ("directions",)

    std: np.ndarray
    directions: np.ndarray


@final
@dataclass(frozen=True, kw_only=True)
class CEM(CEMConfig, Search[CEMState]):
    """Cross-entropy method with decaying extra noise (Szita and Lorincz 2006).

    Candidates are normal with the mean and the covariance of the ``num_best`` best ones of the previous generation,
    plus a variance of ``extra_std^2 max(0, 1 - e / extra_decay_time)`` in generation e. The first candidate of the
    first generation is the mean itself.

    A full covariance has rank ``num_best``; it is sampled without being formed.
    """

    def start(self, mean: Any) -> CEMState:
        """See ``Search.start``."""
        center = checked_mean(mean)
        std, none = np.full(len(center), float(self.init_sigma)), np.zeros((0, len(center)))
        return CEMState(mean=center, best=center.copy(), std=std, directions=none)

    def num_candidates(self, state: CEMState) -> int:
        """``population``."""
        return self.population

    def extra_variance(self, generation: int) -> float:
        """Extra variance of a generation, in addition to that of the best candidates."""
        if not self.extra_decay_time:
            return 0.0
        return self.extra_std**2 * max(0.0, 1.0 - generation / self.extra_decay_time)

    def ask(self, state: CEMState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        shape, extra = (self.population, len(state.mean)), self.extra_variance(state.generation)
        if len(state.directions):
            # x = mu + sum_i w_i d_i / sqrt(n), w ~ N(0, I), (K, P): its covariance is mean_i d_i d_i^T, without
            # any decomposition
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

    def learned(self, state: CEMState, candidates: np.ndarray, fitness: np.ndarray) -> CEMState:
        order = best_first(fitness)[: self.num_best]
        chosen = candidates[order[~np.isnan(fitness[order])]]  # without NaN, (n, P), n <= n_best
        # mu and sigma of the best candidates, (P,)
        mean = chosen.mean(axis=0)
        directions = chosen - mean if self.covariance == "full" else state.directions
        return replace(state, mean=mean, std=chosen.std(axis=0), directions=directions)

    def described(self) -> str:
        """See ``Search.described``; with the names from before version 0.3."""
        values = {option.name: getattr(self, option.name) for option in options_of(CEMConfig)}
        values |= {"init_std": values.pop("init_sigma"), "num_best": self.num_best}
        return ", ".join(f"{name}={value!r}" for name, value in sorted(values.items()) if name != "best_frac")
