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
    """``average + (latest - average) / min(count, window)``, which is ``latest`` where ``count`` or ``window`` is 1.

    The mean of all ``count`` values as long as there are at most ``window``, then one in which a value counts less by
    the factor ``1 - 1 / window`` with each that follows.

    Args:
        average: That of the values before ``(P,)``.
        latest: The new value ``(P,)``.
        count: Number of values with it, from 1.
        window: From 1.
    """
    share = 1.0 / min(count, window)
    return (1.0 - share) * average + share * latest


@dataclass(frozen=True, kw_only=True)
class AveragedState(SearchState):
    """Where such a search stands; ``mean`` is the average.

    Attributes:
        run: The state of the search that is averaged.
        left: The average that the last run that has ended has left ``(P,)``.
    """

    run: SearchState
    left: np.ndarray

    @classmethod
    def completed(cls, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """Older states lack ``left``. Only searches with restarts read it, so the mean stands in."""
        return {"left": tree["mean"], **tree}


@final
@dataclass(frozen=True, kw_only=True)
class AveragedMean(Search[AveragedState]):
    """Any search, of which ``mean`` is averaged; what it asks is the same as without.

    Where fitness is noisy, or a step still large, the last mean is off by chance, and its average is less so. After a
    restart the average begins anew.

    Attributes:
        search: What is averaged.
        window: Generations that count (``averaged``).
    """

    search: Search[Any]
    window: int

    def __post_init__(self) -> None:
        if not isinstance(self.search, Search):
            raise TypeError(f"search must be a search, CMA() say, got {self.search!r}")
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
        """That of ``search``."""
        return self.search.beginning(state.run, draw, std)

    @property
    def begins_again(self) -> bool:
        """Whether ``search`` does."""
        return self.search.begins_again

    def finished(self, state: AveragedState) -> tuple[int, np.ndarray]:
        """See ``Search.finished``."""
        return self.search.finished(state.run)[0], state.left

    def leading(self, state: AveragedState) -> Any:
        """See ``Search.leading``."""
        return self.search.leading(state.run)

    def num_candidates(self, state: AveragedState) -> int:
        """Those of ``search``."""
        return self.search.num_candidates(state.run)

    def ask(self, state: AveragedState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``."""
        return self.search.ask(state.run, generator)

    def spread(self, state: AveragedState) -> float:
        """That of ``search``."""
        return self.search.spread(state.run)

    def repetitions(self, state: AveragedState) -> float:
        """Those of ``search``."""
        return self.search.repetitions(state.run)

    @property
    def measures_noise(self) -> bool:
        """Whether ``search`` does."""
        return self.search.measures_noise

    def numbers(self, state: AveragedState) -> dict[str, float]:
        """Those of ``search``."""
        return self.search.numbers(state.run)

    def stop(self, state: AveragedState) -> tuple[str, ...]:
        """Those of ``search``."""
        return self.search.stop(state.run)

    def learned(self, state: AveragedState, candidates: np.ndarray, fitness: np.ndarray) -> AveragedState:
        run = self.search.tell(state.run, candidates, fitness)
        # Of a search that begins again, the generations are those since then.
        count = max(1, self.search.leading(run).generation)
        ends, end = self.search.finished(run)
        left = state.left
        if ends > self.search.finished(state.run)[0]:
            left = averaged(state.mean, end, self.search.leading(state.run).generation + 1, self.window)
        return replace(state, run=run, mean=averaged(state.mean, run.mean, count, self.window), left=left)
