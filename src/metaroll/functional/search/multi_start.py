"""Several starts of one search that share a budget, of which the best go on: successive halving."""

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
    """Where the starts stand; ``mean`` is that of the leading one, ``best`` the best candidate of all.

    Attributes:
        runs: The state of each start that is left (R of them).
        starts: Which start that is, from 0 ``(R,)``.
        scores: Fitness of each so far, later generations counting more ``(R,)``.
        latest: Median fitness of each in the last generation in which it was asked ``(R,)``.
        leader: Place of the leading one.
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
    """Any search, begun several times; after each round the better part goes on (Karnin et al. 2013, algorithm 1).

    As in hyperparameter search (Jamieson and Talwalkar 2016, arXiv:1502.07943), rounds take the same number of
    candidates each, and what was learned is kept. A generation is one of each start that is left, whose candidates are
    asked, and should be tried, together: then starts meet the same chance. A start is judged by
    ``sum over generations t of t median_t``, the median being that of the fitness of its candidates (a NaN is minus
    infinity): one lucky candidate does not save a start, nor does a bad beginning condemn it.

    A start that has ended by itself is asked no more, and keeps its last median. All of it ends where the last start
    does, or one of them reaches its target. Limits of ``search`` on generations and evaluations hold for each start.

    Attributes:
        search: What is begun several times.
        rules: How often, and when starts are given up.
        seed: Source of where the starts lie.
    """

    search: Search[Any]
    rules: Starts
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.search, Search) or not isinstance(self.rules, Starts):
            raise TypeError(f"search and rules must be a search and Starts(...), got {self.search!r}, {self.rules!r}")

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
        """That of ``search``."""
        return self.search.beginning(state.runs[0], draw, std)

    def recommended(self, state: MultiStartState) -> np.ndarray:
        """What ``search`` does of the leading start."""
        return self.search.recommended(state.runs[state.leader])

    def leading(self, state: MultiStartState) -> Any:
        """See ``Search.leading``."""
        return self.search.leading(state.runs[state.leader])

    def _going_on(self, state: MultiStartState) -> list[int]:
        """Places of the starts that are asked: those that have not ended, or all."""
        places = range(len(state.runs))
        return [place for place in places if not self.search.stop(state.runs[place])] or list(places)

    def num_candidates(self, state: MultiStartState) -> int:
        """Those of all starts that go on."""
        return sum(self.search.num_candidates(state.runs[place]) for place in self._going_on(state))

    def ask(self, state: MultiStartState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``; start after start."""
        return np.concatenate([self.search.ask(state.runs[place], generator) for place in self._going_on(state)])

    def spread(self, state: MultiStartState) -> float:
        """That of the leading start."""
        return self.search.spread(state.runs[state.leader])

    def repetitions(self, state: MultiStartState) -> float:
        """The most that any start needs."""
        return max(self.search.repetitions(state.runs[place]) for place in self._going_on(state))

    @property
    def measures_noise(self) -> bool:
        """Whether ``search`` does."""
        return self.search.measures_noise

    def numbers(self, state: MultiStartState) -> dict[str, float]:
        """Those of the leading start, which one it is, and how many are left."""
        which = {"starts": float(len(state.runs)), "leading_start": float(state.starts[state.leader])}
        return {**self.search.numbers(state.runs[state.leader]), **which}

    def stop(self, state: MultiStartState) -> tuple[str, ...]:
        """Why the leading start has ended, once all have, or it has reached its target."""
        reasons = self.search.stop(state.runs[state.leader])
        if "target" in reasons or all(map(self.search.stop, state.runs)):
            return reasons
        return ()

    # -- learning ------------------------------------------------------------------------------------------------------

    def learned(self, state: MultiStartState, candidates: np.ndarray, fitness: np.ndarray) -> MultiStartState:
        runs, latest, begin = list(state.runs), state.latest.copy(), 0
        for place in self._going_on(state):
            told = slice(begin, begin + self.search.num_candidates(runs[place]))
            latest[place] = np.median(np.where(np.isnan(fitness[told]), -np.inf, fitness[told]))
            if not np.isnan(fitness[told]).all():  # nothing to learn from, otherwise
                runs[place] = self.search.tell(runs[place], candidates[told], fitness[told])
            begin = told.stop
        scores = state.scores + state.generation * latest
        state = replace(state, runs=tuple(runs), latest=latest, scores=scores)
        leader = self._leader(state)
        return self._reduced(replace(state, leader=leader, mean=runs[leader].mean))

    def _leader(self, state: MultiStartState) -> int:
        ready = [place for place, run in enumerate(state.runs) if "target" in self.search.stop(run)]
        return ready[0] if ready else int(best_first(state.scores)[0])

    def _reduced(self, state: MultiStartState) -> MultiStartState:
        """``state`` without the worse starts, if a round has ended."""
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
