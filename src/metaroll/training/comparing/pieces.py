"""Recorded rollouts of any lengths, with gaps, as pieces of one length in which every row was recorded."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from metaroll.data.step_sequence import StepSequence

__all__ = ["Pieces", "even_pieces", "made_up_steps"]

_MOST_PIECES = 8
"""Pieces that are made of fewer rollouts: each has features of its own, and the more there are, the less is learned of
each."""
_WORTH = 1.1
"""How many times as many steps more pieces than rollouts must keep."""
_LEAST_KEPT = 0.5
"""Share of the steps below which short gaps are bridged: logs that lose rows all the time have no whole pieces."""


class Pieces(NamedTuple):
    """What of recorded rollouts is used.

    Attributes:
        rollouts: Of one length.
        text: What was left out, or is made up in them, in words; empty where nothing is.
    """

    rollouts: list[StepSequence]
    text: str


def made_up_steps(rollout: StepSequence) -> list[tuple[int, int]]:
    """First steps and ends of the pauses in which rows were missing, as ``load_log`` tells them."""
    log = (rollout.rollout_info or {}).get("log") or {}
    return [(int(first), int(end)) for first, end in log.get("made_up") or []]


def even_pieces(rollouts: Sequence[StepSequence], shortest: int) -> Pieces:
    """Pieces of one length, which keep most steps of the rollouts, one after the other in their order.

    There are at most as many as rollouts, or 8. Steps in gaps are in none of them, unless that left out more than half
    of all: then gaps of one step are bridged, or of two, or four, and so on.

    Args:
        rollouts: One or more.
        shortest: Fewest steps of what a rollout is cut into.
    """
    total = sum(map(len, rollouts))
    gaps = [made_up_steps(rollout) for rollout in rollouts]
    lengths = [end - first for told in gaps for first, end in told]
    bridged = 0
    while True:
        runs = [_runs(len(one), told, bridged) for one, told in zip(rollouts, gaps, strict=True)]
        length = _best_length([end - first for told in runs for first, end in told], shortest, len(rollouts))
        places = [
            (number, begin)
            for number, told in enumerate(runs)
            for first, end in told
            for begin in range(first, end - length + 1, length)
        ]
        if len(places) * length >= _LEAST_KEPT * total or bridged >= max(lengths, default=0):
            break
        bridged = max(1, 2 * bridged)
    kept = [
        rollouts[number] if len(rollouts[number]) == length else rollouts[number][begin : begin + length]
        for number, begin in places
    ]
    return Pieces(kept, _told(len(rollouts), len(places), length, total, lengths, bridged))


def _runs(length: int, gaps: Sequence[tuple[int, int]], bridged: int) -> list[tuple[int, int]]:
    """Begins and ends of what lies between gaps of more than ``bridged`` steps."""
    cut = [gap for gap in gaps if gap[1] - gap[0] > bridged]
    edges = [0, *itertools.chain.from_iterable(cut), length]
    return [(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True) if end > first]


def _best_length(runs: Sequence[int], shortest: int, num_rollouts: int) -> int:
    """The length of which runs have the most steps in whole pieces; of equals the longest."""
    most = max(_MOST_PIECES, num_rollouts)
    parts = {run // count for run in runs for count in range(2, most + 1)}
    wanted = {*runs, *(part for part in parts if part >= shortest)}
    found, kept = 1, 0.0
    for length in sorted(wanted, reverse=True):
        count = sum(run // length for run in runs)
        if count <= most and count * length > kept * (_WORTH if count > num_rollouts else 1.0):
            found, kept = length, count * length
    return found


def _told(given: int, count: int, length: int, total: int, gaps: Sequence[int], bridged: int) -> str:
    left, words = total - count * length, []
    if left:
        whose = "one rollout, of whose" if given == 1 else f"{given} rollouts, of whose"
        words.append(f"pieces of {whose} {total:,} steps {left:,} are left out")
    cut = sum(gap > bridged for gap in gaps)
    if cut:
        words.append(f"none reaches into {'the gap' if cut == 1 else f'the {cut} gaps'} in which rows are missing")
    if short := len(gaps) - cut:
        steps = "one step" if bridged == 1 else f"up to {bridged} steps"
        words.append(f"{short} {'gap' if short == 1 else 'gaps'} of {steps} bridged: what is made up there counts")
    return "; ".join(words)
