"""Hill climbing: the best candidate becomes the next mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, final

import numpy as np

from metaroll.functional.parameter_noise import adapted_spread, noisy_sets
from metaroll.functional.search.base import Search, SearchState, checked_mean, default_population
from metaroll.functional.search.configs import HillClimbConfig

__all__ = ["HillClimb", "HillClimbState"]


@dataclass(frozen=True, kw_only=True)
class HillClimbState(SearchState):
    """State of hill climbing.

    Attributes:
        reach: Standard deviation of the noise, or radius of the sphere.
        recent: Fitness of the latest means, when they were candidates; at most ``stop_window`` of them.
    """

    growing = ("recent",)

    reach: float
    recent: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def completed(cls, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ``SearchState.completed``; before version 0.3 there was the fitness of the last mean."""
        if "recent" in tree:
            return tree
        last = float(tree["mean_fitness"])
        return {**tree, "recent": np.array([last] if last > -math.inf else [])}


@final
@dataclass(frozen=True, kw_only=True)
class HillClimb(HillClimbConfig, Search[HillClimbState]):
    """A (1 + lambda) or (1, lambda) evolution strategy, whose reach adapts to its successes.

    The reach shrinks after a success of a (1 + lambda) strategy, and grows after one of a (1, lambda) strategy.
    """

    plus: Annotated[
        bool,
        "The mean is the first candidate, and stays unless another one is better; otherwise the best candidate always "
        "becomes the mean, and counts as a success if it is better than the previous mean was.",
    ] = True

    def start(self, mean: Any) -> HillClimbState:
        """See ``Search.start``."""
        center = checked_mean(mean)
        return HillClimbState(mean=center, best=center.copy(), reach=self.init_sigma)

    def num_candidates(self, state: HillClimbState) -> int:
        """``population``, and the mean in a (1 + lambda) strategy."""
        count = default_population(len(state.mean)) if self.population is None else self.population
        return count + self.plus

    def ask(self, state: HillClimbState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``; the first candidate of a (1 + lambda) strategy is the mean."""
        count = self.num_candidates(state) - self.plus
        rows = noisy_sets(state.mean, state.reach, count, self.noise, generator).astype(np.float64)
        return np.concatenate([state.mean[None], rows]) if self.plus else rows

    def spread(self, state: HillClimbState) -> float:
        """``reach``."""
        return state.reach

    def learned(self, state: HillClimbState, candidates: np.ndarray, fitness: np.ndarray) -> HillClimbState:
        best = int(np.nanargmax(fitness))  # the mean itself, if no candidate is better
        before = state.recent[-1] if len(state.recent) else -math.inf
        nearer = best > 0 if self.plus else bool(fitness[best] <= before)
        reach = adapted_spread(
            state.reach, nearer, self.sigma_factor, (self.min_sigma, self.max_sigma), self.noise, self.init_sigma
        )
        recent = np.append(state.recent, fitness[0 if self.plus else best])[-self.stop_window :]
        return replace(state, mean=candidates[best].copy(), reach=reach, recent=recent)

    def stop(self, state: HillClimbState) -> tuple[str, ...]:
        """``stop_std``, when the returns of the last means barely differ."""
        if self.stop_std is None or len(state.recent) < self.stop_window:
            return ()
        return ("stop_std",) if float(np.std(state.recent)) < self.stop_std else ()

    def described(self) -> str:
        """See ``Search.described``; with the names from before version 0.3."""
        bounds = (self.min_sigma, self.max_sigma)
        return (
            f"bounds={bounds!r}, factor={self.sigma_factor!r}, noise={self.noise!r}, plus={self.plus!r}, "
            f"population={self.population!r}, reach={self.init_sigma!r}"
        )
