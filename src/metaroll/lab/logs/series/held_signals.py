"""Resampling of a signal that is held between rows to steps of other lengths: time-weighted means and majorities."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from metaroll.errors import ShapeError

__all__ = ["held_majority", "held_mean"]

_SLIVER = 1e-6
"""A piece of a step below this share of it is a rounding error."""


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

    ``u_k = 1 / (e_{k+1} - e_k) integral_{e_k}^{e_{k+1}} u(t) dt``. If one row holds during the whole step, its value is
    kept to the bit. The last row holds forever; no step may begin before the first one.

    Args:
        values: Shape ``(N,)``.
        times: When they begin, increasing, in s, shape ``(N,)``.
        edges: Where steps begin, and the last one ends, increasing, in s, shape ``(T+1,)``.

    Returns:
        Shape ``(T,)``.

    Raises:
        ShapeError: Shapes do not fit.
        ValueError: A step begins before the first row.
    """
    values = np.asarray(values, dtype=np.float64)
    pieces = _pieces(len(values), times, edges)
    own = values[pieces.rows]
    sums = np.add.reduceat(pieces.weights * own, pieces.begins)
    # Without the clip, rounding could put a mean of values at a bound outside of it.
    lows, highs = (np.minimum.reduceat(own, pieces.begins), np.maximum.reduceat(own, pieces.begins))
    return np.clip(sums / np.add.reduceat(pieces.weights, pieces.begins), lows, highs)


def held_majority(values: Any, times: Any, edges: Any) -> np.ndarray:
    """The value that held for the longest time in each step; of two such, the earlier one.

    Arguments and errors as for ``held_mean``.
    """
    values = np.asarray(values)
    pieces = _pieces(len(values), times, edges)
    kinds, codes = np.unique(values[pieces.rows], return_inverse=True)
    pairs, first, places = np.unique(
        pieces.steps * len(kinds) + codes.reshape(-1), return_index=True, return_inverse=True
    )
    shares = np.bincount(places.reshape(-1), weights=pieces.weights)
    steps = pairs // len(kinds)
    # Sums of equal length may differ by rounding.
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
    # A row may begin a sliver before or after its step: it gets the sliver.
    return _Pieces(rows, steps, starts, np.maximum(lengths, slivers[steps]))
