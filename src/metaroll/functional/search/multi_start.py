"""Several starts of one search that share a budget; the best continue: successive halving."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from metaroll.errors import ShapeError
from metaroll.functional.search.base import Search, SearchState, best_first
from metaroll.functional.search.configs import Starts

__all__ = ["MultiStart", "MultiStartState", "Starts"]


@dataclass(frozen=True, kw_only=True)
class MultiStartState(SearchState):
    """State of all starts; ``mean`` is that of the leading one, ``best`` the best candidate of all.

    Attributes:
        runs: State of each of the R remaining starts.
        starts: Number of each start, from 0 ``(R,)``.
        scores: Fitness of each so far, with larger weights for later generations ``(R,)``.
        latest: Median fitness of each in its last generation ``(R,)``.
        leader: Index of the leading one.
    """

    growing: ClassVar[tuple[str, ...]] = ("starts", "scores", "latest")

    runs: tuple[SearchState, ...]
    starts: np.ndarray
    scores: np.ndarray
    latest: np.ndarray
    leader: int = 0

    def __post_init__(self) -> None:
        lengths = [len(self.runs), len(self.starts), len(self.scores), len(self.latest)]
        if len(set(lengths)) > 1 or not 0 <= self.leader < lengths[0]:
            raise ShapeError(
                f"runs, starts, scores and latest must have one entry for each start, leader being one of them, got "
                f"{lengths} entries and leader {self.leader}"
            )


@final
@dataclass(frozen=True, kw_only=True)
class MultiStart(Search[MultiStartState]):
    """Any search with several starts; after each round the better ones continue (Karnin et al. 2013, algorithm 1).

    As in hyperparameter search (Jamieson and Talwalkar 2016, arXiv:1502.07943), all rounds have the same number of
    candidates, and starts keep their states. A generation is one generation of each remaining start; all its candidates
    should be evaluated together, under the same random conditions. The score of a start is
    ``sum over generations t of t median_t``, with the median fitness of its candidates (NaN counts as minus infinity):
    neither one lucky candidate nor a bad first generation decides.

    A start that has stopped on its own has no further candidates, and keeps its last median. The search ends when all
    starts have ended, or one reaches its target. Limits of ``search`` on generations and evaluations apply per start.

    Attributes:
        search: The search to start several times.
        rules: Number of starts, and the rounds.
        seed: Seed of the starting points.
    """

    search: Search[Any]
    rules: Starts
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.search, Search) or not isinstance(self.rules, Starts):
            raise TypeError(f"search and rules must be a Search and Starts(...), got {self.search!r}, {self.rules!r}")

    def start(self, mean: Any) -> MultiStartState:
        """See ``Search.start``."""
        return self._begun(mean, self.seed)

    def seeded(self, state: MultiStartState, seed: int) -> MultiStartState:
        """See ``Search.seeded``."""
        return self._begun(state.runs[0].mean, seed)

    def _begun(self, mean: Any, seed: int) -> MultiStartState:
        first, runs = self.search.start(mean), []
        for number in range(self.rules.starts):
            draw = np.random.default_rng((seed, number))
            place = self.search.beginning(first, draw, self.rules.start_std) if number else first.mean
            runs.append(self.search.seeded(self.search.start(place), int(draw.integers(2**62))))
        zeros = np.zeros(len(runs))
        return MultiStartState(
            mean=first.mean,
            best=first.best,
            runs=tuple(runs),
            starts=np.arange(len(runs)),
            scores=zeros,
            latest=zeros.copy(),
        )

    def beginning(self, state: MultiStartState, draw: np.random.Generator, std: float | None = None) -> np.ndarray:
        """See ``Search.beginning``."""
        return self.search.beginning(state.runs[0], draw, std)

    def recommended(self, state: MultiStartState) -> np.ndarray:
        """The recommendation of the leading start."""
        return self.search.recommended(state.runs[state.leader])

    def leading(self, state: MultiStartState) -> Any:
        """See ``Search.leading``."""
        return self.search.leading(state.runs[state.leader])

    def _active(self, state: MultiStartState) -> list[int]:
        """Indices of the starts with candidates: those that have not ended, or all if every one has."""
        places = range(len(state.runs))
        return [place for place in places if not self.search.stop(state.runs[place])] or list(places)

    def num_candidates(self, state: MultiStartState) -> int:
        """Number of candidates of all active starts."""
        return sum(self.search.num_candidates(state.runs[place]) for place in self._active(state))

    def ask(self, state: MultiStartState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``; candidates are ordered by start."""
        return np.concatenate([self.search.ask(state.runs[place], generator) for place in self._active(state)])

    def spread(self, state: MultiStartState) -> float:
        """Spread of the leading start."""
        return self.search.spread(state.runs[state.leader])

    def repetitions(self, state: MultiStartState) -> float:
        """Maximum over the active starts."""
        return max(self.search.repetitions(state.runs[place]) for place in self._active(state))

    @property
    def measures_noise(self) -> bool:
        """See ``Search.measures_noise``."""
        return self.search.measures_noise

    def numbers(self, state: MultiStartState) -> dict[str, float]:
        """Numbers of the leading start, its number, and the number of remaining starts."""
        starts = {"starts": float(len(state.runs)), "leading_start": float(state.starts[state.leader])}
        return {**self.search.numbers(state.runs[state.leader]), **starts}

    def stop(self, state: MultiStartState) -> tuple[str, ...]:
        """Reasons of the leading start, once all starts have ended or it has reached its target."""
        reasons = self.search.stop(state.runs[state.leader])
        if "target" in reasons or all(map(self.search.stop, state.runs)):
            return reasons
        return ()

    # -- learning ------------------------------------------------------------------------------------------------------

    def learned(self, state: MultiStartState, candidates: np.ndarray, fitness: np.ndarray) -> MultiStartState:
        runs, latest, begin = list(state.runs), state.latest.copy(), 0
        for place in self._active(state):
            own = slice(begin, begin + self.search.num_candidates(runs[place]))
            latest[place] = np.median(np.where(np.isnan(fitness[own]), -np.inf, fitness[own]))
            if not np.isnan(fitness[own]).all():  # otherwise there is nothing to learn from
                runs[place] = self.search.tell(runs[place], candidates[own], fitness[own])
            begin = own.stop
        scores = state.scores + state.generation * latest
        state = replace(state, runs=tuple(runs), latest=latest, scores=scores)
        leader = self._leader(state)
        return self._reduced(replace(state, leader=leader, mean=runs[leader].mean))

    def _leader(self, state: MultiStartState) -> int:
        ready = [place for place, run in enumerate(state.runs) if "target" in self.search.stop(run)]
        return ready[0] if ready else int(best_first(state.scores)[0])

    def _reduced(self, state: MultiStartState) -> MultiStartState:
        """``state`` without the worse starts, at the end of a round."""
        rounds = self.rules.rounds
        if state.generation not in np.cumsum([length for _, length in rounds]):
            return state
        order = best_first(state.scores)
        order = np.concatenate([[state.leader], order[order != state.leader]])
        kept = np.sort(order[: self.rules.left_of(len(order))])
        return replace(
            state,
            runs=tuple(state.runs[place] for place in kept),
            starts=state.starts[kept],
            scores=state.scores[kept],
            latest=state.latest[kept],
            leader=int(np.flatnonzero(kept == state.leader)[0]),
        )
