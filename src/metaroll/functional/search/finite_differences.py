"""Augmented random search: finite-difference gradients of the mean from pairs of candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from metaroll.functional.search.base import Search, SearchState, best_first, checked_mean
from metaroll.functional.search.configs import ARSConfig
from metaroll.functional.search.sampling import normal_rows

__all__ = ["ARS", "ARSState"]


@dataclass(frozen=True, kw_only=True)
class ARSState(SearchState):
    """State of augmented random search: just the mean."""


@final
@dataclass(frozen=True, kw_only=True)
class ARS(ARSConfig, Search[ARSState]):
    """Augmented random search (Mania, Guy and Recht 2018, arXiv:1803.07055, algorithm 2).

    Candidates are ``mean + sigma d_k`` and ``mean - sigma d_k``, alternating; the ``num_best`` directions with the
    highest ``max(r_k+, r_k-)`` move the mean by ``learning_rate / (b std) sum (r_k+ - r_k-) d_k``, where std is that of
    the 2 b returns used. V2 is V1 with normalized observations, which the policy does.
    """

    def start(self, mean: Any) -> ARSState:
        """See ``Search.start``."""
        center = checked_mean(mean)
        return ARSState(mean=center, best=center.copy())

    def num_candidates(self, state: ARSState) -> int:
        """Two per direction."""
        return 2 * self.num_directions

    def ask(self, state: ARSState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        return state.mean + self.sigma * normal_rows(generator, 2 * self.num_directions, len(state.mean), mirrored=True)

    def spread(self, state: ARSState) -> float:
        """See ``Search.spread``."""
        return self.sigma

    def learned(self, state: ARSState, candidates: np.ndarray, fitness: np.ndarray) -> ARSState:
        # r_k+ and r_k-, (N,); the b directions with the largest max(r_k+, r_k-)
        plus, minus = fitness[0::2], fitness[1::2]
        usable = np.isfinite(plus) & np.isfinite(minus)
        highest = np.where(usable, np.maximum(plus, minus), np.nan)
        chosen = best_first(highest)[: self.num_best]
        chosen = chosen[usable[chosen]]
        # Standard deviation of the 2 b returns used
        deviation = float(np.concatenate([plus[chosen], minus[chosen]]).std()) if len(chosen) else 0.0
        if deviation == 0.0:  # all returns are equal: no gradient
            return state
        # mean += alpha / (b std) sum_k (r_k+ - r_k-) d_k, d (b, P) (Mania et al. 2018, algorithm 2)
        directions = (candidates[0::2][chosen] - candidates[1::2][chosen]) / (2.0 * self.sigma)
        gradient = (plus[chosen] - minus[chosen]) @ directions / (len(chosen) * deviation)
        return replace(state, mean=state.mean + self.learning_rate * gradient)
