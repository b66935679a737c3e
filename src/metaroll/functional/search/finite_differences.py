"""Searches that estimate a gradient of the mean from candidates on both sides of it: ARS, OpenAI-ES and PGPE."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from metaroll.functional.adam import adam_moments
from metaroll.functional.search.base import Search, SearchState, best_first, checked_mean
from metaroll.functional.search.configs import ARSConfig, OpenAIESConfig, PGPEConfig
from metaroll.functional.search.sampling import normal_rows
from metaroll.functional.search.shaping import shaped

__all__ = ["ARS", "PGPE", "ARSState", "GradientState", "OpenAIES"]


@dataclass(frozen=True, kw_only=True)
class ARSState(SearchState):
    """Where augmented random search stands: nothing beside the mean is remembered."""


@final
@dataclass(frozen=True, kw_only=True)
class ARS(ARSConfig, Search[ARSState]):
    """Augmented random search (Mania, Guy and Recht 2018, arXiv:1803.07055, algorithm 2).

    Candidates are ``mean + sigma d_k`` and ``mean - sigma d_k`` in turns; the directions with the ``num_best`` highest
    ``max(r_k+, r_k-)`` move the mean by ``learning_rate / (b std) sum (r_k+ - r_k-) d_k``, std being that of the 2 b
    returns used. V2 is V1 with normalized observations, which are the policy's affair.
    """

    def start(self, mean: Any) -> ARSState:
        """See ``Search.start``."""
        center = checked_mean(mean)
        return ARSState(mean=center, best=center.copy())

    def num_candidates(self, state: ARSState) -> int:
        """Two for each direction."""
        return 2 * self.num_directions

    def ask(self, state: ARSState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        return state.mean + self.sigma * normal_rows(generator, 2 * self.num_directions, len(state.mean), mirrored=True)

    def spread(self, state: ARSState) -> float:
        """See ``Search.spread``."""
        return self.sigma

    def _learned(self, state: ARSState, candidates: np.ndarray, fitness: np.ndarray) -> ARSState:
        plus, minus = fitness[0::2], fitness[1::2]
        usable = np.isfinite(plus) & np.isfinite(minus)
        highest = np.where(usable, np.maximum(plus, minus), np.nan)
        chosen = best_first(highest)[: self.num_best]
        chosen = chosen[usable[chosen]]
        deviation = float(np.concatenate([plus[chosen], minus[chosen]]).std()) if len(chosen) else 0.0
        if deviation == 0.0:  # all alike: there is no direction to go
            return state
        directions = (candidates[0::2][chosen] - candidates[1::2][chosen]) / (2.0 * self.sigma)
        gradient = (plus[chosen] - minus[chosen]) @ directions / (len(chosen) * deviation)
        return replace(state, mean=state.mean + self.learning_rate * gradient)


@dataclass(frozen=True, kw_only=True)
class GradientState(SearchState):
    """Where OpenAI-ES or PGPE stands.

    Attributes:
        std: Standard deviation of the candidates ``(P,)``.
        first, second: Moments of Adam ``(P,)``.
    """

    std: np.ndarray
    first: np.ndarray
    second: np.ndarray


@final
@dataclass(frozen=True, kw_only=True)
class OpenAIES(OpenAIESConfig, Search[GradientState]):
    """Evolution strategy of Salimans et al. 2017 (arXiv:1703.03864, algorithm 1), with Adam.

    The mean follows ``1 / (K sigma) sum F_k e_k`` of shaped fitness F and normal numbers e, less ``weight_decay`` times
    itself.
    """

    def start(self, mean: Any) -> GradientState:
        """See ``Search.start``."""
        return _begin(mean, self.sigma)

    def num_candidates(self, state: GradientState) -> int:
        """``population``."""
        return self.population

    def ask(self, state: GradientState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        return state.mean + self.sigma * normal_rows(generator, self.population, len(state.mean), self.mirrored)

    def spread(self, state: GradientState) -> float:
        """See ``Search.spread``."""
        return self.sigma

    def _learned(self, state: GradientState, candidates: np.ndarray, fitness: np.ndarray) -> GradientState:
        normal = (candidates - state.mean) / self.sigma
        gradient = shaped(fitness, self.shaping) @ normal / (len(fitness) * self.sigma)
        return _ascended(state, gradient - self.weight_decay * state.mean, self.learning_rate)


@final
@dataclass(frozen=True, kw_only=True)
class PGPE(PGPEConfig, Search[GradientState]):
    """Parameter-exploring policy gradients with symmetric sampling (Sehnke et al. 2010, algorithm 2), and Adam.

    With pairs ``mean + e`` and ``mean - e`` and shaped fitness r, the mean follows ``e (r+ - r-) / 2 / std`` and each
    standard deviation ``(e^2 - std^2) / std ((r+ + r-) / 2 - b)``, b being the mean of r.
    """

    def start(self, mean: Any) -> GradientState:
        """See ``Search.start``."""
        return _begin(mean, self.init_sigma)

    def num_candidates(self, state: GradientState) -> int:
        """Two for each direction."""
        return 2 * self.num_directions

    def ask(self, state: GradientState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        return state.mean + state.std * normal_rows(generator, 2 * self.num_directions, len(state.mean), mirrored=True)

    def spread(self, state: GradientState) -> float:
        """See ``Search.spread``."""
        return math.sqrt(float(np.square(state.std).mean()))

    def _learned(self, state: GradientState, candidates: np.ndarray, fitness: np.ndarray) -> GradientState:
        values = shaped(fitness, self.shaping)
        plus, minus = values[0::2], values[1::2]
        normal = (candidates[0::2] - candidates[1::2]) / (2.0 * state.std)  # e / std of each pair
        gradient = ((plus - minus) / 2.0) @ normal / len(plus)
        advantage = (plus + minus) / 2.0 - values.mean()
        # (e^2 - std^2) / std, as a share of std.
        change = self.sigma_learning_rate * (advantage @ (np.square(normal) - 1.0)) / len(plus)
        std = state.std * (1.0 + np.clip(change, -self.max_sigma_change, self.max_sigma_change))
        return replace(_ascended(state, gradient, self.learning_rate), std=std)


def _begin(mean: Any, std: float) -> GradientState:
    center = checked_mean(mean)
    zeros = np.zeros(len(center))
    return GradientState(
        mean=center, best=center.copy(), std=np.full(len(center), float(std)), first=zeros, second=zeros.copy()
    )


def _ascended(state: GradientState, gradient: np.ndarray, learning_rate: float) -> GradientState:
    mean, deviation, first, second = adam_moments(gradient, state.first, state.second, state.generation)
    return replace(state, mean=state.mean + learning_rate * mean / deviation, first=first, second=second)
