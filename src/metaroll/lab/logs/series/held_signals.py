"""Resampling of a signal that is held between rows to steps of other lengths: time-weighted means and majorities."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from metaroll.errors import ShapeError

__all__ = ["held_majority", "held_mean"]

_SLIVER = 1e-6
"""An interval shorter than this share of a step is due to rounding."""


class _Pieces(NamedTuple):
    """Intervals in which neither the row nor the step changes.

    Attributes:
        rows: Row of each interval, ``(P,)``.
        steps: Step of each interval, ``(P,)``.
        begins: The first interval of each step, ``(T,)``.
        weights: Length of each interval in s, ``(P,)``.
    """

    rows: np.ndarray
    steps: np.ndarray
    begins: np.ndarray
    weights: np.ndarray


def held_mean(values: Any, times: Any, edges: Any) -> np.ndarray:
    """Means over steps of the signal that is ``values[i]`` from ``times[i]`` to ``times[i + 1]``.

    ``u_k = 1 / (e_{k+1} - e_k) integral_{e_k}^{e_{k+1}} u(t) dt``. If one row holds during a whole step, its value is
    returned bit for bit. The last row holds forever; no step may begin before the first row.

    Args:
        values: Value of each row, shape ``(N,)``.
        times: Time from which each row holds, increasing, in s, shape ``(N,)``.
        edges: Begin of each step and end of the last one, increasing, in s, shape ``(T+1,)``.

    Returns:
        Means, shape ``(T,)``.

    Raises:
        ShapeError: Shapes do not fit.
        ValueError: A step begins before the first row.
    """
    values = np.asarray(values, dtype=np.float64)
    pieces = _pieces(len(values), times, edges)
    held = values[pieces.rows]
    sums = np.add.reduceat(pieces.weights * held, pieces.begins)
    # Clip: rounding could move the mean of values at an action bound beyond that bound.
    lows, highs = (np.minimum.reduceat(held, pieces.begins), np.maximum.reduceat(held, pieces.begins))
    return np.clip(sums / np.add.reduceat(pieces.weights, pieces.begins), lows, highs)


def held_majority(values: Any, times: Any, edges: Any) -> np.ndarray:
    """The value that held longest in each step; the earlier one of a tie.

    Arguments and errors are those of ``held_mean``.
    """
    values = np.asarray(values)
    pieces = _pieces(len(values), times, edges)
    kinds, codes = np.unique(values[pieces.rows], return_inverse=True)
    pairs, first, places = np.unique(
        pieces.steps * len(kinds) + codes.reshape(-1), return_index=True, return_inverse=True
    )
    shares = np.bincount(places.reshape(-1), weights=pieces.weights)
    steps = pairs // len(kinds)
    # Equal durations may differ by rounding.
    best = np.maximum.reduceat(shares, np.flatnonzero(np.diff(steps, prepend=-1)))
    is_best = shares >= best[steps] * (1.0 - _SLIVER)
    order = np.lexsort([first, ~is_best, steps])
    chosen = order[np.flatnonzero(np.diff(steps[order], prepend=-1))]
    return kinds[pairs[chosen] % len(kinds)]


def _pieces(num_values: int, times: Any, edges: Any) -> _Pieces:
    times, edges = np.asarray(times, dtype=np.float64), np.asarray(edges, dtype=np.float64)
    if times.shape != (num_values,) or edges.ndim != 1 or len(edges) < 2 or not num_values:
        raise ShapeError(
            f"values and times must have one shape (N,) with N >= 1, and edges (T+1,) with T >= 1, got {num_values} "
            f"values, {times.shape} and {edges.shape}"
        )
    begins, ends = edges[:-1], edges[1:]
    slivers = _SLIVER * (ends - begins)
    first = np.searchsorted(times, begins + slivers, side="right") - 1
    if first[0] < 0:
        raise ValueError(f"edges must not begin before the first row at {times[0]:g} s, got {edges[0]:g} s")
    last = np.maximum(np.searchsorted(times, ends - slivers, side="left") - 1, first)
    counts = last - first + 1
    starts = np.cumsum(counts) - counts
    steps = np.repeat(np.arange(len(begins)), counts)
    rows = np.arange(len(steps)) - starts[steps] + first[steps]
    until = np.append(times[1:], np.inf)[rows]
    lengths = np.minimum(until, ends[steps]) - np.maximum(times[rows], begins[steps])
    # A row that begins a rounding error before or after its step still has a positive weight.
    return _Pieces(rows, steps, starts, np.maximum(lengths, slivers[steps]))
