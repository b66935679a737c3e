"""CMA-ES with restarts and varying populations: IPOP and BIPOP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np

from metaroll.functional.search.base import Search, SearchState, checked_mean
from metaroll.functional.search.cma import CMA, STOP_REASONS, CMAState

__all__ = ["RestartState", "RestartedCMA"]

_ENDS = ("target", "maxiter", "maxfevals")


@dataclass(frozen=True, kw_only=True)
class RestartState(SearchState):
    """State of CMA-ES with restarts; ``mean`` is that of the current run, ``best`` the best of all runs.

    Attributes:
        run: The current run.
        origin: Initial mean of the first run ``(P,)``.
        left: Final mean of the last completed run ``(P,)``.
        restarts: Number of restarts.
        doublings: Number of doublings of the population.
        is_small: Whether the current run has a small population (BIPOP).
        small_evaluations, large_evaluations: Candidates of all runs of either kind.
        last_large: Candidates of the last run with a large population: a small one gets at most half as many.
        reason: Index in ``STOP_REASONS`` of why the previous run ended, -1 in the first.
        seed: Seed of the restarts.
    """

    run: CMAState
    origin: np.ndarray
    left: np.ndarray
    restarts: int = 0
    doublings: int = 0
    is_small: bool = False
    small_evaluations: int = 0
    large_evaluations: int = 0
    last_large: int = 0
    reason: int = -1
    seed: int = 0

    @classmethod
    def completed(cls, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """Older searches did not keep the final mean of a run."""
        return {"left": tree["mean"], **tree}


@final
@dataclass(frozen=True, kw_only=True)
class RestartedCMA(Search[RestartState]):
    """CMA-ES with restarts: when ``cma.stop`` ends a run, another one starts.

    ``"ipop"`` (Auger and Hansen 2005) doubles the population each time. ``"bipop"`` (Hansen 2009) also has runs with
    small populations and step sizes, as long as these have had fewer evaluations than the large ones:
    ``K_small = K (0.5 K_large / K) ** (U ** 2)`` with step size ``sigma 10 ** (-2 U)``, U uniform in [0, 1].

    A new run starts from a point drawn uniformly within the bounds, if all are finite, else normally around the first
    mean with standard deviation ``sigma``.

    The mean is that of the current run, which may have just started: ``Reviewed`` keeps the final mean of the best run.

    Attributes:
        cma: Settings of each run; ``target``, ``max_generations`` and ``max_evaluations`` apply to all runs together.
        rule: ``"ipop"`` or ``"bipop"``.
        max_restarts: Number of restarts (with large populations, for BIPOP).
        seed: Seed of the restarts.
    """

    cma: CMA
    rule: Literal["ipop", "bipop"] = "ipop"
    max_restarts: int = 9
    seed: int = 0

    def start(self, mean: Any) -> RestartState:
        """See ``Search.start``."""
        origin, run = checked_mean(mean), self.cma.start(mean)
        return RestartState(mean=run.mean, best=run.best, run=run, origin=origin, left=origin, seed=self.seed)

    def seeded(self, state: RestartState, seed: int) -> RestartState:
        """See ``Search.seeded``."""
        return replace(state, seed=seed)

    def beginning(self, state: RestartState, draw: np.random.Generator, std: float | None = None) -> np.ndarray:
        """See ``Search.beginning``."""
        return self.cma.beginning(state.run, draw, std)

    def leading(self, state: RestartState) -> CMAState:
        """The current run."""
        return state.run

    def num_candidates(self, state: RestartState) -> int:
        """Those of the current run."""
        return self.cma.num_candidates(state.run)

    def ask(self, state: RestartState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        return self.cma.ask(state.run, generator)

    def spread(self, state: RestartState) -> float:
        """See ``Search.spread``."""
        return self.cma.spread(state.run)

    def repetitions(self, state: RestartState) -> float:
        """Those of the current run."""
        return self.cma.repetitions(state.run)

    @property
    def measures_noise(self) -> bool:
        """See ``Search.measures_noise``."""
        return self.cma.measures_noise

    @property
    def begins_again(self) -> bool:
        """Always true."""
        return True

    def finished(self, state: RestartState) -> tuple[int, np.ndarray]:
        """See ``Search.finished``."""
        return (state.restarts + 1, state.run.mean) if self.stop(state) else (state.restarts, state.left)

    def numbers(self, state: RestartState) -> dict[str, float]:
        """Numbers of the current run, its population, and the number of restarts."""
        counts = {"restarts": float(state.restarts), "population": float(state.run.population)}
        return {**self.cma.numbers(state.run), **counts}

    def learned(self, state: RestartState, candidates: np.ndarray, fitness: np.ndarray) -> RestartState:
        run = self.cma.tell(state.run, candidates, fitness)
        small, large = state.small_evaluations, state.large_evaluations
        if state.is_small:
            small += len(fitness)
        else:
            large += len(fitness)
        state = replace(state, run=run, mean=run.mean, small_evaluations=small, large_evaluations=large)
        reason = self._end_of_run(state)
        if reason is None or self._ends(state) or self._is_last(state):
            return state
        return self._restarted(replace(state, reason=STOP_REASONS.index(reason)))

    def stop(self, state: RestartState) -> tuple[str, ...]:
        """Reasons that apply to all runs together; those of the last run once no restart is left."""
        ends = self._ends(state)
        return ends if ends or not self._is_last(state) else self.cma.stop(state.run)

    def _ends(self, state: RestartState) -> tuple[str, ...]:
        cma = self.cma
        holds = (
            cma.target is not None and state.best_fitness >= cma.target,
            cma.max_generations is not None and state.generation >= cma.max_generations,
            cma.max_evaluations is not None and state.evaluations >= cma.max_evaluations,
        )
        return tuple(name for name, held in zip(_ENDS, holds, strict=True) if held)

    def _is_last(self, state: RestartState) -> bool:
        return state.doublings >= self.max_restarts and not state.is_small

    def _end_of_run(self, state: RestartState) -> str | None:
        reasons = [name for name in self.cma.stop(state.run) if name not in _ENDS]
        if not reasons and state.is_small and state.run.evaluations >= state.last_large / 2:
            return "maxfevals"
        return reasons[0] if reasons else None

    def _restarted(self, state: RestartState) -> RestartState:
        draw = np.random.default_rng((state.seed, state.restarts))
        small = self.rule == "bipop" and state.small_evaluations < state.large_evaluations and state.restarts > 0
        last_large = state.last_large if state.is_small else state.run.evaluations
        first = self.cma.start(state.origin)
        doublings = state.doublings + (not small)
        sigma, population = self.cma.sigma, first.population * 2**doublings
        if small:  # K_small = K (0.5 K_large / K)^(U^2), sigma_small = sigma 10^(-2 U) (Hansen 2009, BIPOP)
            u = draw.uniform()
            sigma *= 10.0 ** (-2.0 * u)
            population = max(2, int(first.population * (0.5 * 2**doublings) ** (u**2)))
        run = self.cma.start(self.cma.beginning(first, draw), sigma=sigma, population=population)
        return replace(
            state,
            run=run,
            mean=run.mean,
            left=state.run.mean,
            restarts=state.restarts + 1,
            doublings=doublings,
            is_small=small,
            last_large=last_large,
        )
