"""Cuts recorded rollouts of any length, with gaps, into pieces of equal length without missing rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.errors import counted

__all__ = ["Pieces", "even_pieces", "made_up_steps"]

_EPS = 1e-9
"""Tolerance in seconds for times that are sums of steps."""
_MOST_PIECES = 8
"""Maximum number of pieces from fewer rollouts: each adds features, and with more features less is learned."""
_WORTH = 1.1
"""Factor by which more pieces than rollouts must increase the number of kept steps."""
_LEAST_KEPT = 0.5
"""Share of kept steps below which short gaps are bridged: logs that keep losing rows have no whole pieces."""


class Pieces(NamedTuple):
    """The parts of recorded rollouts that are used.

    Attributes:
        rollouts: Rollouts of equal length.
        text: The parts that were cut and left out, in words; empty if there are none.
        bridged: Number of gaps whose made-up rows count as recorded.
    """

    rollouts: list[StepSequence]
    text: str
    bridged: int


def made_up_steps(rollout: StepSequence) -> list[tuple[int, int]]:
    """First steps and ends of the gaps in a rollout read by ``load_log``, or in a part of one."""
    spans = ((rollout.rollout_info or {}).get("log") or {}).get("made_up") or []
    if not spans or "time" not in rollout.data_names:
        return []
    times = np.asarray(rollout.get_data_values("time"), dtype=np.float64)
    steps_of_gaps = []
    for begin, end in spans:
        steps = np.flatnonzero((times[1 : len(rollout) + 1] > begin + _EPS) & (times[: len(rollout)] < end - _EPS))
        steps_of_gaps += [(int(steps[0]), int(steps[-1]) + 1)] if steps.size else []
    return steps_of_gaps


def even_pieces(rollouts: Sequence[StepSequence], shortest: int, at_least: int = 1) -> Pieces:
    """Cut rollouts into pieces of equal length that keep most steps, in order.

    There are at most as many as rollouts, or 8 if that is more. Steps in gaps are left out, unless that would drop
    more than half of all steps: then gaps of one step are bridged, or of two, or four, and so on.

    Args:
        rollouts: One or more rollouts, of one episode each.
        shortest: Minimum number of steps of a piece that a rollout is cut into.
        at_least: Minimum number of pieces, if there are as many rollouts.
    """
    total = sum(map(len, rollouts))
    gaps = [made_up_steps(rollout) for rollout in rollouts]
    lengths = [end - first for spans in gaps for first, end in spans]
    longest = 0
    while True:
        runs = [_runs(len(whole), spans, longest) for whole, spans in zip(rollouts, gaps, strict=True)]
        free = [end - first for spans in runs for first, end in spans]
        length, count = _best_length(free, shortest, min(at_least, len(rollouts)), len(rollouts))
        if count * length >= _LEAST_KEPT * total or longest >= max(lengths, default=0):
            break
        longest = max(1, 2 * longest)
    places = [
        (number, begin)
        for number, spans in enumerate(runs)
        for first, end in spans
        for begin in range(first, end - length + 1, length)
    ][:count]
    kept = [
        rollouts[number] if len(rollouts[number]) == length else rollouts[number][begin : begin + length]
        for number, begin in places
    ]
    bridged = sum(gap <= longest for gap in lengths)
    texts = []
    if count != len(rollouts) or count * length < total:
        texts.append(f"{counted(len(rollouts), 'rollout')} cut into {counted(count, 'piece')} of {length} steps")
    if left := total - count * length:
        texts.append(f"{left:,} of {total:,} steps are left out")
    if cut := len(lengths) - bridged:
        texts.append(f"no piece reaches into {'the gap' if cut == 1 else f'the {cut} gaps'} in which rows are missing")
    if bridged:
        of = "one step" if longest == 1 else f"up to {longest} steps"
        texts.append(f"{counted(bridged, 'gap')} of {of} bridged: their made-up rows count as recorded")
    return Pieces(kept, "; ".join(texts), bridged)


def _runs(length: int, gaps: Sequence[tuple[int, int]], bridged: int) -> list[tuple[int, int]]:
    """Begins and ends of the stretches between gaps of more than ``bridged`` steps."""
    cut = [gap for gap in gaps if gap[1] - gap[0] > bridged]
    edges = [0, *itertools.chain.from_iterable(cut), length]
    return [(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True) if end > first]


def _best_length(runs: Sequence[int], shortest: int, at_least: int, num_rollouts: int) -> tuple[int, int]:
    """The length of pieces that keeps most steps (the longest of equal ones), and the number of pieces."""
    most = max(_MOST_PIECES, num_rollouts)
    parts = {run // count for run in runs for count in range(2, most + 1)}
    candidates = sorted({*runs, *(part for part in parts if part >= shortest)}, reverse=True)
    counts = {length: min(most, sum(run // length for run in runs)) for length in candidates}
    best, kept = (0, 0), 0.0
    for length in [one for one in candidates if counts[one] >= at_least] or candidates:
        count = counts[length]
        if count * length > kept * (_WORTH if count > num_rollouts else 1.0):
            best, kept = (length, count), count * length
    return best
