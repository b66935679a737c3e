"""Recorded rollouts of any lengths, with gaps, as pieces of one length in which every row was recorded."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metaroll.data.step_sequence import StepSequence

__all__ = ["Pieces", "even_pieces", "made_up_steps"]

_EPS = 1e-9
"""Seconds by which times may be off: they are sums of steps."""
_MOST_PIECES = 8
"""Pieces that fewer rollouts become: each has features of its own, and the more there are, the less is learned."""
_WORTH = 1.1
"""How many times as many steps more pieces than rollouts must keep."""
_LEAST_KEPT = 0.5
"""Share of the steps below which short gaps are bridged: logs that lose rows all the time have no whole pieces."""


class Pieces(NamedTuple):
    """What of recorded rollouts is used.

    Attributes:
        rollouts: Of one length.
        text: What was cut and left out, in words; empty where nothing was.
        bridged: Gaps whose rows, which were made up, count as recorded.
    """

    rollouts: list[StepSequence]
    text: str
    bridged: int


def made_up_steps(rollout: StepSequence) -> list[tuple[int, int]]:
    """First steps and ends of the gaps of a rollout that ``load_log`` has read, or of a part of one."""
    told = ((rollout.rollout_info or {}).get("log") or {}).get("made_up") or []
    if not told or "time" not in rollout.data_names:
        return []
    times = np.asarray(rollout.get_data_values("time"), dtype=np.float64)
    found = []
    for begin, end in told:
        steps = np.flatnonzero((times[1 : len(rollout) + 1] > begin + _EPS) & (times[: len(rollout)] < end - _EPS))
        found += [(int(steps[0]), int(steps[-1]) + 1)] if steps.size else []
    return found


def even_pieces(rollouts: Sequence[StepSequence], shortest: int, at_least: int = 1) -> Pieces:
    """Pieces of one length, which keep most steps of the rollouts, one after the other in their order.

    There are at most as many as rollouts, or 8 if that is more. Steps in gaps are in none of them, unless that left out
    more than half of all: then gaps of one step are bridged, or of two, or four, and so on.

    Args:
        rollouts: One or more, of one episode each.
        shortest: Fewest steps of what a rollout is cut into.
        at_least: How many pieces there are to be, where there are as many rollouts.
    """
    total = sum(map(len, rollouts))
    gaps = [made_up_steps(rollout) for rollout in rollouts]
    lengths = [end - first for told in gaps for first, end in told]
    longest = 0
    while True:
        runs = [_runs(len(one), told, longest) for one, told in zip(rollouts, gaps, strict=True)]
        free = [end - first for told in runs for first, end in told]
        length, count = _best_length(free, shortest, min(at_least, len(rollouts)), len(rollouts))
        if count * length >= _LEAST_KEPT * total or longest >= max(lengths, default=0):
            break
        longest = max(1, 2 * longest)
    places = [
        (number, begin)
        for number, told in enumerate(runs)
        for first, end in told
        for begin in range(first, end - length + 1, length)
    ][:count]
    kept = [
        rollouts[number] if len(rollouts[number]) == length else rollouts[number][begin : begin + length]
        for number, begin in places
    ]
    bridged = sum(gap <= longest for gap in lengths)
    words = []
    if count != len(rollouts) or count * length < total:
        words.append(f"{_counted(len(rollouts), 'rollout')} cut into {_counted(count, 'piece')} of {length} steps")
    if left := total - count * length:
        words.append(f"{left:,} of {total:,} steps are left out")
    if cut := len(lengths) - bridged:
        words.append(f"no piece reaches into {'the gap' if cut == 1 else f'the {cut} gaps'} in which rows are missing")
    if bridged:
        of = "one step" if longest == 1 else f"up to {longest} steps"
        words.append(f"{_counted(bridged, 'gap')} of {of} bridged: rows that are made up there count as recorded")
    return Pieces(kept, "; ".join(words), bridged)


def _runs(length: int, gaps: Sequence[tuple[int, int]], bridged: int) -> list[tuple[int, int]]:
    """Begins and ends of what lies between gaps of more than ``bridged`` steps."""
    cut = [gap for gap in gaps if gap[1] - gap[0] > bridged]
    edges = [0, *itertools.chain.from_iterable(cut), length]
    return [(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True) if end > first]


def _best_length(runs: Sequence[int], shortest: int, at_least: int, num_rollouts: int) -> tuple[int, int]:
    """Of the lengths of pieces that with which most steps are kept, of equals the longest; how many pieces it makes."""
    most = max(_MOST_PIECES, num_rollouts)
    parts = {run // count for run in runs for count in range(2, most + 1)}
    wanted = sorted({*runs, *(part for part in parts if part >= shortest)}, reverse=True)
    counts = {length: min(most, sum(run // length for run in runs)) for length in wanted}
    found, kept = (0, 0), 0.0
    for length in [one for one in wanted if counts[one] >= at_least] or wanted:
        count = counts[length]
        if count * length > kept * (_WORTH if count > num_rollouts else 1.0):
            found, kept = (length, count), count * length
    return found


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
