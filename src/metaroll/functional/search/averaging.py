"""A search whose mean is averaged over its last generations (Polyak and Juditsky 1992)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from metaroll.checks import check_whole
from metaroll.functional.search.base import Search, SearchState

__all__ = ["AveragedMean", "AveragedState", "averaged"]


def averaged(average: np.ndarray, latest: np.ndarray, count: int, window: int) -> np.ndarray:
    """``average + (latest - average) / min(count, window)``, which is ``latest`` if ``count`` or ``window`` is 1.

    The plain mean of up to ``window`` values, then an exponential moving average with decay ``1 - 1 / window``.

    Args:
        average: Average of the previous values ``(P,)``.
        latest: The new value ``(P,)``.
        count: Number of values including the new one, from 1.
        window: From 1.
    """
    share = 1.0 / min(count, window)
    return (1.0 - share) * average + share * latest


@dataclass(frozen=True, kw_only=True)
class AveragedState(SearchState):
    """State of a search with an averaged mean; ``mean`` is the average.

    Attributes:
        run: State of the averaged search.
        left: Final average of the last completed run ``(P,)``.
    """

    run: SearchState
    left: np.ndarray

    @classmethod
    def completed(cls, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """Older states lack ``left``. Only searches with restarts read it, so the mean is used instead."""
        return {"left": tree["mean"], **tree}


@final
@dataclass(frozen=True, kw_only=True)
class AveragedMean(Search[AveragedState]):
    """Any search, with an averaged ``mean``; the candidates are unaffected.

    With noisy fitness or a large step size, the last mean is noisy, and its average less so. After a restart the
    average starts over.

    Attributes:
        search: The search to average.
        window: Number of generations (``averaged``).
    """

    search: Search[Any]
    window: int

    def __post_init__(self) -> None:
        if not isinstance(self.search, Search):
            raise TypeError(f"search must be a Search, such as CMA(), got {self.search!r}")
        check_whole("window", self.window)

    def start(self, mean: Any) -> AveragedState:
        """See ``Search.start``."""
        return self._around(self.search.start(mean))

    def _around(self, run: SearchState) -> AveragedState:
        return AveragedState(mean=run.mean, best=run.best, run=run, left=run.mean)

    def seeded(self, state: AveragedState, seed: int) -> AveragedState:
        """See ``Search.seeded``."""
        return self._around(self.search.seeded(state.run, seed))

    def beginning(self, state: AveragedState, draw: np.random.Generator, std: float | None = None) -> np.ndarray:
        """See ``Search.beginning``."""
        return self.search.beginning(state.run, draw, std)

    @property
    def begins_again(self) -> bool:
        """See ``Search.begins_again``."""
        return self.search.begins_again

    def finished(self, state: AveragedState) -> tuple[int, np.ndarray]:
        """See ``Search.finished``."""
        return self.search.finished(state.run)[0], state.left

    def leading(self, state: AveragedState) -> Any:
        """See ``Search.leading``."""
        return self.search.leading(state.run)

    def num_candidates(self, state: AveragedState) -> int:
        """See ``Search.num_candidates``."""
        return self.search.num_candidates(state.run)

    def ask(self, state: AveragedState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        return self.search.ask(state.run, generator)

    def spread(self, state: AveragedState) -> float:
        """See ``Search.spread``."""
        return self.search.spread(state.run)

    def repetitions(self, state: AveragedState) -> float:
        """See ``Search.repetitions``."""
        return self.search.repetitions(state.run)

    @property
    def measures_noise(self) -> bool:
        """See ``Search.measures_noise``."""
        return self.search.measures_noise

    def numbers(self, state: AveragedState) -> dict[str, float]:
        """See ``Search.numbers``."""
        return self.search.numbers(state.run)

    def stop(self, state: AveragedState) -> tuple[str, ...]:
        """See ``Search.stop``."""
        return self.search.stop(state.run)

    def learned(self, state: AveragedState, candidates: np.ndarray, fitness: np.ndarray) -> AveragedState:
        run = self.search.tell(state.run, candidates, fitness)
        # With restarts, generations are counted since the last one.
        count = max(1, self.search.leading(run).generation)
        ends, end = self.search.finished(run)
        left = state.left
        if ends > self.search.finished(state.run)[0]:
            left = averaged(state.mean, end, self.search.leading(state.run).generation + 1, self.window)
        return replace(state, run=run, mean=averaged(state.mean, run.mean, count, self.window), left=left)
