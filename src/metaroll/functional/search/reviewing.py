"""Recommendation of a search with restarts: the final mean of its best run, compared again with those of later runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from metaroll.functional.search.base import Search, SearchState

__all__ = ["Reviewed", "ReviewedState"]


@dataclass(frozen=True, kw_only=True)
class ReviewedState(SearchState):
    """State of a reviewed search; ``mean`` is that of the current run.

    Attributes:
        run: State of the reviewed search.
        incumbent: Final mean of the best run ``(P,)``; meaningless before the first run has ended.
        ends: Number of completed runs.
        contenders: Final means of later runs ``(C, P)``, still under comparison.
        gains: Fitness of these less that of the incumbent, summed over the generations of the comparison ``(C,)``.
        counts: Number of these generations ``(C,)``.
    """

    growing: ClassVar[tuple[str, ...]] = ("contenders", "gains", "counts")

    run: SearchState
    incumbent: np.ndarray
    ends: int
    contenders: np.ndarray
    gains: np.ndarray
    counts: np.ndarray

    @classmethod
    def completed(cls, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """Older searches were not reviewed, and did not keep the final means of their runs."""
        if "incumbent" in tree:
            return tree
        empty = {
            "ends": 0,
            "contenders": np.zeros((0, len(tree["mean"]))),
            "gains": np.zeros(0),
            "counts": np.zeros(0),
        }
        return {**tree, "run": tree, "incumbent": tree["mean"], **empty}


@final
@dataclass(frozen=True, kw_only=True)
class Reviewed(Search[ReviewedState]):
    """A search with restarts that recommends the final mean of its best run.

    The mean of a run that has just started is arbitrary, and the best candidate of all may have been lucky. So when a
    run ends, its final mean (averaged, if ``search`` averages) is evaluated in the next generations along with that of
    the best run so far, under the same random conditions. The better one on average is recommended. Both are ordinary
    candidates: ``ask`` appends them to those of ``search``, and they count as evaluations.

    Attributes:
        search: The reviewed search.
        reviews: Number of generations of a comparison.
    """

    search: Search[Any]
    reviews: int = 5

    def start(self, mean: Any) -> ReviewedState:
        """See ``Search.start``."""
        return self._around(self.search.start(mean))

    def _around(self, run: SearchState) -> ReviewedState:
        empty = np.zeros(0)
        return ReviewedState(
            mean=run.mean,
            best=run.best,
            run=run,
            incumbent=run.mean,
            ends=0,
            contenders=np.zeros((0, len(run.mean))),
            gains=empty,
            counts=empty.copy(),
        )

    def seeded(self, state: ReviewedState, seed: int) -> ReviewedState:
        """See ``Search.seeded``."""
        return self._around(self.search.seeded(state.run, seed))

    def beginning(self, state: ReviewedState, draw: np.random.Generator, std: float | None = None) -> np.ndarray:
        """See ``Search.beginning``."""
        return self.search.beginning(state.run, draw, std)

    def leading(self, state: ReviewedState) -> Any:
        """See ``Search.leading``."""
        return self.search.leading(state.run)

    def recommended(self, state: ReviewedState) -> np.ndarray:
        """The final mean of the best run; before any run has ended, the recommendation of ``search``."""
        return state.incumbent if state.ends else self.search.recommended(state.run)

    def _num_own(self, state: ReviewedState) -> int:
        """Number of candidates of ``search``: 0 once it has ended and its last run is still under review."""
        return 0 if self.search.stop(state.run) and len(state.contenders) else self.search.num_candidates(state.run)

    def num_candidates(self, state: ReviewedState) -> int:
        """Number of candidates of ``search``, plus incumbent and contenders during a comparison."""
        compared = len(state.contenders)
        return self._num_own(state) + compared + (compared > 0)

    def ask(self, state: ReviewedState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        own = self.search.ask(state.run, generator) if self._num_own(state) else state.contenders[:0]
        return np.concatenate([own, state.incumbent[None], state.contenders]) if len(state.contenders) else own

    def spread(self, state: ReviewedState) -> float:
        """See ``Search.spread``."""
        return self.search.spread(state.run)

    def repetitions(self, state: ReviewedState) -> float:
        """See ``Search.repetitions``."""
        return self.search.repetitions(state.run)

    @property
    def measures_noise(self) -> bool:
        """See ``Search.measures_noise``."""
        return self.search.measures_noise

    def numbers(self, state: ReviewedState) -> dict[str, float]:
        """See ``Search.numbers``."""
        return self.search.numbers(state.run)

    def stop(self, state: ReviewedState) -> tuple[str, ...]:
        """The reasons of ``search``, once all comparisons are finished."""
        return () if len(state.contenders) else self.search.stop(state.run)

    def learned(self, state: ReviewedState, candidates: np.ndarray, fitness: np.ndarray) -> ReviewedState:
        own, run = self._num_own(state), state.run
        if own and not np.isnan(fitness[:own]).all():  # otherwise there is nothing to learn from
            run = self.search.tell(run, candidates[:own], fitness[:own])
        state = replace(_compared(state, fitness[own:], self.reviews), run=run, mean=run.mean)
        ends, end = self.search.finished(run)
        if ends == state.ends:
            return state
        if not state.ends:
            return replace(state, ends=ends, incumbent=end)
        changes = {"contenders": np.concatenate([state.contenders, end[None]])}
        changes |= {name: np.append(getattr(state, name), 0.0) for name in ("gains", "counts")}
        return replace(state, ends=ends, **changes)


def _compared(state: ReviewedState, fitness: np.ndarray, reviews: int) -> ReviewedState:
    """``state`` after the fitness of the incumbent and of the contenders ``(1 + C,)`` in one generation."""
    if not len(fitness):
        return state
    values = np.where(np.isnan(fitness), -np.inf, fitness)
    with np.errstate(invalid="ignore"):
        gained = np.where(values[1:] == values[0], 0.0, values[1:] - values[0])
        gains, counts = state.gains + gained, state.counts + 1.0
    gains = np.where(np.isnan(gains), 0.0, gains)  # inf - inf: both had no value in some generation
    decided, incumbent, contenders = counts >= reviews, state.incumbent, state.contenders
    if (gains[decided] > 0.0).any():
        means = np.where(decided, gains / counts, -np.inf)
        incumbent = contenders[int(np.argmax(means))]
        gains, counts = np.zeros_like(gains), np.zeros_like(counts)  # the others restart against the new incumbent
    return replace(
        state, incumbent=incumbent, contenders=contenders[~decided], gains=gains[~decided], counts=counts[~decided]
    )
