"""What a search that begins again recommends: where the best of its runs has ended, tried again beside later ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from metaroll.functional.search.base import Search, SearchState

__all__ = ["Reviewed", "ReviewedState"]


@dataclass(frozen=True, kw_only=True)
class ReviewedState(SearchState):
    """Where such a search stands; ``mean`` is where it looks.

    Attributes:
        run: The state of the search that is reviewed.
        incumbent: Where the best run has ended ``(P,)``; meaningless before the first one has.
        ends: How many runs have ended.
        contenders: Where later ones did ``(C, P)``, not yet judged.
        gains: By how much these were better than the incumbent, sums over the generations in which they were tried
            ``(C,)``.
        counts: How many generations that were ``(C,)``.
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
        """Searches of before were not reviewed: what one left that had begun again was not kept."""
        if "incumbent" in tree:
            return tree
        nothing = {
            "ends": 0,
            "contenders": np.zeros((0, len(tree["mean"]))),
            "gains": np.zeros(0),
            "counts": np.zeros(0),
        }
        return {**tree, "run": tree, "incumbent": tree["mean"], **nothing}


@final
@dataclass(frozen=True, kw_only=True)
class Reviewed(Search[ReviewedState]):
    """A search that begins again, and recommends apart from where it looks.

    The mean of a run that has just begun is anywhere, and the best candidate of all was perhaps lucky. So where a run
    has ended, the mean that it leaves (averaged, if ``search`` averages) is tried in the next generations, beside that
    of the best run so far, in the same generations: then both meet the same chance. What is better on average is
    recommended. These are candidates like others: ``ask`` gives them behind those of ``search``, and they count.

    Attributes:
        search: What is reviewed.
        reviews: Generations in which two are compared.
    """

    search: Search[Any]
    reviews: int = 5

    def start(self, mean: Any) -> ReviewedState:
        """See ``Search.start``."""
        return self._around(self.search.start(mean))

    def _around(self, run: SearchState) -> ReviewedState:
        nothing = np.zeros(0)
        return ReviewedState(
            mean=run.mean,
            best=run.best,
            run=run,
            incumbent=run.mean,
            ends=0,
            contenders=np.zeros((0, len(run.mean))),
            gains=nothing,
            counts=nothing.copy(),
        )

    def seeded(self, state: ReviewedState, seed: int) -> ReviewedState:
        """See ``Search.seeded``."""
        return self._around(self.search.seeded(state.run, seed))

    def beginning(self, state: ReviewedState, draw: np.random.Generator, std: float | None = None) -> np.ndarray:
        """That of ``search``."""
        return self.search.beginning(state.run, draw, std)

    def leading(self, state: ReviewedState) -> Any:
        """See ``Search.leading``."""
        return self.search.leading(state.run)

    def recommended(self, state: ReviewedState) -> np.ndarray:
        """Where the best run has ended; before one has, what ``search`` recommends."""
        return state.incumbent if state.ends else self.search.recommended(state.run)

    def _num_own(self, state: ReviewedState) -> int:
        """Candidates of ``search``: none where it has ended, and its end is still reviewed."""
        return 0 if self.search.stop(state.run) and len(state.contenders) else self.search.num_candidates(state.run)

    def num_candidates(self, state: ReviewedState) -> int:
        """Those of ``search``, and, while ends of runs are compared, these and the incumbent."""
        compared = len(state.contenders)
        return self._num_own(state) + compared + (compared > 0)

    def ask(self, state: ReviewedState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        own = self.search.ask(state.run, generator) if self._num_own(state) else state.contenders[:0]
        return np.concatenate([own, state.incumbent[None], state.contenders]) if len(state.contenders) else own

    def spread(self, state: ReviewedState) -> float:
        """That of ``search``."""
        return self.search.spread(state.run)

    def repetitions(self, state: ReviewedState) -> float:
        """Those of ``search``."""
        return self.search.repetitions(state.run)

    @property
    def measures_noise(self) -> bool:
        """Whether ``search`` does."""
        return self.search.measures_noise

    def numbers(self, state: ReviewedState) -> dict[str, float]:
        """Those of ``search``."""
        return self.search.numbers(state.run)

    def stop(self, state: ReviewedState) -> tuple[str, ...]:
        """Those of ``search``, once no end of a run is left to be compared."""
        return () if len(state.contenders) else self.search.stop(state.run)

    def learned(self, state: ReviewedState, candidates: np.ndarray, fitness: np.ndarray) -> ReviewedState:
        own, run = self._num_own(state), state.run
        if own and not np.isnan(fitness[:own]).all():  # nothing to learn from, otherwise
            run = self.search.tell(run, candidates[:own], fitness[:own])
        state = replace(_compared(state, fitness[own:], self.reviews), run=run, mean=run.mean)
        ends, end = self.search.finished(run)
        if ends == state.ends:
            return state
        if not state.ends:
            return replace(state, ends=ends, incumbent=end)
        more = {"contenders": np.concatenate([state.contenders, end[None]])}
        more |= {name: np.append(getattr(state, name), 0.0) for name in ("gains", "counts")}
        return replace(state, ends=ends, **more)


def _compared(state: ReviewedState, fitness: np.ndarray, reviews: int) -> ReviewedState:
    """``state`` after the fitness of the incumbent and of the contenders ``(1 + C,)`` in one generation."""
    if not len(fitness):
        return state
    values = np.where(np.isnan(fitness), -np.inf, fitness)
    with np.errstate(invalid="ignore"):
        gained = np.where(values[1:] == values[0], 0.0, values[1:] - values[0])
        gains, counts = state.gains + gained, state.counts + 1.0
    gains = np.where(np.isnan(gains), 0.0, gains)  # each of both had no value once
    tried, incumbent, contenders = counts >= reviews, state.incumbent, state.contenders
    if (gains[tried] > 0.0).any():
        means = np.where(tried, gains / counts, -np.inf)
        incumbent = contenders[int(np.argmax(means))]
        gains, counts = np.zeros_like(gains), np.zeros_like(counts)  # those that stay meet another one from now on
    return replace(
        state, incumbent=incumbent, contenders=contenders[~tried], gains=gains[~tried], counts=counts[~tried]
    )
