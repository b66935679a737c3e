"""At least n of something: how many more runs it takes, and where the first ones are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from metaroll.errors import RolloutError, WorkerLost

__all__ = ["collect_at_least", "enough", "still_missing"]

_MOST_EMPTY = 32
"""After this many runs without a single result, more are not tried."""

Result = TypeVar("Result")


def collect_at_least(
    run: Callable[[int, int], Sequence[Result]],
    size: Callable[[Result], int],
    first_round: int,
    *,
    min_count: int | None = None,
    min_size: int | None = None,
    nothing: Callable[[int], Exception],
) -> list[Result]:
    """Results of runs 0, 1, 2, ... until there are ``min_count`` of them, with ``min_size`` in total.

    With ``min_size`` they are the shortest prefix that is enough, so that how many run at a time changes nothing.

    Args:
        run: ``run(number, count)`` runs ``number`` to ``number + count - 1``; results may be fewer.
        size: Size of a result, at least 1.
        first_round: How many runs to begin with.
        min_count: Minimum number of results.
        min_size: Minimum size of all results together.
        nothing: Makes the error for that many runs without a result.

    Raises:
        RolloutError, WorkerLost: As ``run`` raises them; ``completed`` holds the results of earlier rounds, too.
    """
    results: list[Result] = []
    sizes: list[int] = []
    started, more = 0, first_round
    while more:
        try:
            results.extend(run(started, more))
        except (RolloutError, WorkerLost) as error:
            error.completed = [*results, *error.completed]
            raise
        started += more
        if not results and started >= _MOST_EMPTY:
            raise nothing(started)
        sizes = [size(result) for result in results]
        more = still_missing(sizes, started, min_count, min_size)
    return results if min_size is None else results[: enough(sizes, min_count, min_size)]


def enough(sizes: Sequence[int], min_count: int | None, min_size: int | None) -> int | None:
    """Length of the shortest prefix of results with these sizes that meets both bounds; ``None`` if none does."""
    total = count = 0
    for size in (*sizes, None):
        if count >= (min_count or 0) and total >= (min_size or 0):
            return count
        if size is not None:
            count, total = count + 1, total + size
    return None


def still_missing(sizes: Sequence[int], started: int, min_count: int | None, min_size: int | None) -> int:
    """How many more runs to start: by the mean size so far, at most twice as many as were started.

    Args:
        sizes: Sizes of the results.
        started: How many runs these took.
        min_count: Minimum number of results.
        min_size: Minimum size of all results together.
    """
    lacking, total = max(0, (min_count or 0) - len(sizes)), sum(sizes)
    if min_size is None or total >= min_size:
        return lacking
    by_size = -(-(min_size - total) * len(sizes) // total) if total else min_size
    return max(1, lacking, min(2 * started, by_size))
