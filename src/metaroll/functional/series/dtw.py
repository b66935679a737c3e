"""Dynamic time warping: the minimum cost of aligning two series, for many pairs of series at once.

A warping path begins with the first steps of both series, ends with the last step of the first and (unless the end is
open) the last of the second, and makes the moves of a step pattern in between. Distances of steps are Euclidean. The
numbers are those of the packages ``dtw`` of R and Python (Giorgino 2009, J. Stat. Softw. 31(7)), without their code.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
import torch

from metaroll.errors import ShapeError
from metaroll.functional.arrays import Array, like, to_numpy
from metaroll.functional.kernels import compiled
from metaroll.functional.series.step_patterns import StepPattern, step_pattern_of

__all__ = ["check_open_end", "dtw_distances", "dtw_path"]

_STEPS = ((1, 1), (1, 0), (0, 1))
"""The moves of symmetric1, symmetric2 and similar patterns, which have their own loop."""
_CELLS_PER_THREAD = 2**19
"""Minimum number of pairs of steps per thread: about a millisecond."""
_MOST_CELLS = 2**22
"""Maximum number of pairs of steps in memory at once, for NumPy and torch, in a diagonal of several pairs of series."""


def dtw_distances(x: Any, y: Any, step_pattern: Any = "symmetric2", *, open_end: bool = False) -> Array:
    """DTW distances of pairs of series: the costs of their best warping paths, not normalized.

    Computed in float64: on the CPU by a loop that numba compiles (after enough calls, see ``functional/kernels.py``) or
    by NumPy, with the same bits; elsewhere by torch, diagonal by diagonal.

    Args:
        x: First series of each pair, shape ``(..., n, D)``: n steps of D numbers; array, or tensor on any device.
        y: Second series, shape ``(..., m, D)``; the leading axes broadcast against those of ``x``.
        step_pattern: See ``step_pattern_of``.
        open_end: The path may end in any step of the second series: in the one with the least cost by the norm of the
            step pattern.

    Returns:
        Shape ``(...)``, array or tensor like ``x``; NaN for pairs with an entry that is not finite.

    Raises:
        ShapeError: The shapes do not fit, or a series is empty.
        TypeError: ``x`` or ``y`` does not hold real numbers, or ``step_pattern`` is not a step pattern.
        ValueError: ``open_end`` with a pattern that has no norm; or no path of the pattern leads through n and m steps.
    """
    pattern = step_pattern_of(step_pattern)
    if open_end:
        check_open_end(pattern)
    if isinstance(x, torch.Tensor) and x.device.type != "cpu":
        other = torch.as_tensor(y, device=x.device)
        rows, columns, leading = _as_pairs(x.detach().double(), other.detach().double())
        result = _distances(torch, rows, columns, pattern, open_end)
        return result.reshape(leading).to(x.dtype if x.dtype.is_floating_point else torch.get_default_dtype())
    rows, columns, leading = _as_pairs(
        torch.from_numpy(to_numpy("x", x).astype(np.float64)), torch.from_numpy(to_numpy("y", y).astype(np.float64))
    )
    result = _distances(np, rows.numpy(), columns.numpy(), pattern, open_end)
    return like(result.reshape(leading), x)


def check_open_end(pattern: StepPattern) -> None:
    """Raises:
    ValueError: The costs of paths of this pattern that end in different steps are not comparable.
    """
    if pattern.norm == "none":
        raise ValueError(
            f"the step pattern {pattern.name!r} has no open end, since the costs of its paths cannot be normalized; "
            "use one that can: 'symmetric2', 'asymmetric', or a Rabiner-Juang pattern with weighting 'c' or 'd'"
        )


def _as_pairs(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]:
    """``(P, n, D)``, ``(P, m, D)`` and the leading axes, of which P is the product."""
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-1] or 0 in (*x.shape[-2:], *y.shape[-2:]):
        raise ShapeError(
            "x and y must be series of shapes (..., n, D) and (..., m, D) with at least one step of one number, got "
            f"{tuple(x.shape)} and {tuple(y.shape)}"
        )
    try:
        leading = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except RuntimeError as error:
        raise ShapeError(
            f"the leading axes of x and y must broadcast, got {tuple(x.shape)} and {tuple(y.shape)}"
        ) from error
    x, y = (a.expand(*leading, *a.shape[-2:]).reshape(-1, *a.shape[-2:]) for a in (x, y))
    return x, y, tuple(leading)


def _distances(xp: ModuleType, x: Any, y: Any, pattern: StepPattern, open_end: bool) -> Any:
    """Distances ``(P,)`` of ``x (P, n, D)`` and ``y (P, m, D)``; ``xp`` is numpy or torch. Waits for no device."""
    n, m, dims = x.shape[1], y.shape[1], x.shape[2]
    reached = _reachable(pattern, n, m)
    if not (reached.any() if open_end else reached[-1]):
        raise ValueError(
            f"no warping path of the step pattern {pattern.name!r} leads through series of {n} and {m} steps"
            + ("" if open_end else "; use series of similar length, or a pattern without bounds on its slope")
        )
    valid = xp.isfinite(x).reshape(len(x), n * dims).all(-1) & xp.isfinite(y).reshape(len(y), m * dims).all(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        last = _last_rows(xp, x, y, pattern)
        if open_end:
            steps = xp.arange(1, m + 1) if xp is np else xp.arange(1, m + 1, device=x.device)
            norms = {"N+M": n + steps, "N": n + 0 * steps, "M": steps}[pattern.norm]
            ends = (last / norms).argmin(-1)
            distances = xp.where(steps - 1 == ends[:, None], last, 0.0).sum(-1) if m > 1 else last[:, 0]
        else:
            distances = last[:, -1]
    return xp.where(valid, distances, np.nan)


@lru_cache(maxsize=64)
def _reachable(pattern: StepPattern, n: int, m: int) -> np.ndarray:
    """Steps of the second series in which a path through all n steps of the first may end, ``(m,)``."""
    if {(1, 0), (0, 1)} <= {(move.rows, move.columns) for move in pattern.moves}:
        return np.ones(m, dtype=bool)
    return np.isfinite(_sweep(np, np.zeros((1, n, 1)), np.zeros((1, m, 1)), pattern)[0])


def _last_rows(xp: ModuleType, x: Any, y: Any, pattern: StepPattern) -> Any:
    """Minimum costs ``(P, m)`` of paths through all steps of ``x`` that end in each step of ``y``; inf if none does."""
    if xp is np:
        weights = _step_weights(pattern)
        name = "warp_by_moves" if weights is None else "warp_by_steps"
        loop = compiled(name, 2 * x.shape[0] * x.shape[1] * y.shape[1])
        if loop is not None:
            return _by_moves(loop, x, y, pattern) if weights is None else _by_steps(loop, x, y, weights)
    block = max(1, _MOST_CELLS // min(x.shape[1], y.shape[1]))
    parts = [_sweep(xp, x[k : k + block], y[k : k + block], pattern) for k in range(0, max(len(x), 1), block)]
    return xp.concatenate(parts)


def _step_weights(pattern: StepPattern) -> list[float] | None:
    """Weights of ``_STEPS``, each for the distance of the pair where the step ends; ``None`` for any other pattern."""
    weights = {move[:2]: move.terms[0][2] for move in pattern.moves if [term[:2] for term in move.terms] == [(0, 0)]}
    if len(pattern.moves) != len(_STEPS) or weights.keys() != set(_STEPS):
        return None
    return [weights[step] for step in _STEPS]


def _by_steps(loop: Any, x: np.ndarray, y: np.ndarray, weights: list[float]) -> np.ndarray:
    last = np.empty((len(x), y.shape[1]))
    x, y, given = _in_fours(x), _in_fours(y[:, ::-1]), np.array(weights, dtype=np.float64)

    def run(part: slice) -> None:
        loop(x[part], y[part], given, np.full((7, x.shape[2] + 2), np.inf), last[part])

    _in_threads(run, last, x.shape[2])
    return last


def _in_fours(series: np.ndarray) -> np.ndarray:
    """``(P, D, n)`` of ``(P, n, D)``; more than one number become a multiple of four, by zeros (which cost nothing)."""
    count, length, dims = series.shape
    if dims == 1:
        return np.ascontiguousarray(series.swapaxes(1, 2))
    padded = np.empty((count, dims + -dims % 4, length))
    padded[:, :dims], padded[:, dims:] = series.swapaxes(1, 2), 0.0
    return padded


def _by_moves(loop: Any, x: np.ndarray, y: np.ndarray, pattern: StepPattern) -> np.ndarray:
    moves = sorted(pattern.moves, key=lambda move: move.rows == 0)
    num_forward = sum(move.rows > 0 for move in moves)
    terms = [term for move in moves for term in move.terms]
    firsts = np.cumsum([0, *(len(move.terms) for move in moves)])
    table = [(*move[:2], first) for move, first in zip(moves, firsts, strict=False)]
    num_rows = max(1 + max(move.rows for move in moves), len(moves) - num_forward)
    recursion = (
        np.array([*table, (0, 0, firsts[-1])], dtype=np.int64),
        np.array([term[:2] for term in terms], dtype=np.int64).reshape(-1, 2),
        np.array([term[2] for term in terms], dtype=np.float64),
        num_forward,
    )
    x, y, last = np.ascontiguousarray(x), np.ascontiguousarray(y.swapaxes(1, 2)), np.empty((len(x), y.shape[1]))

    def run(part: slice) -> None:
        loop(x[part], y[part], *recursion, np.empty((3, num_rows, y.shape[2])), last[part])

    _in_threads(run, last, x.shape[1])
    return last


def _in_threads(run: Callable[[slice], None], last: np.ndarray, length: int) -> None:
    """All pairs, in as many threads as torch may use (one in workers): pairs are independent, and no lock is held."""
    pairs = len(last)
    threads = max(1, min(torch.get_num_threads(), pairs, last.size * length // _CELLS_PER_THREAD))
    width = max(1, -(-pairs // threads))
    first, *others = [slice(k, k + width) for k in range(0, max(pairs, 1), width)]
    if not others:
        run(first)
        return
    with ThreadPoolExecutor(len(others)) as pool:
        results = pool.map(run, others)
        run(first)
        list(results)


def _sweep(xp: ModuleType, x: Any, y: Any, pattern: StepPattern) -> Any:
    """``_last_rows``, anti-diagonal by anti-diagonal: all ``(i, j)`` with the same ``i + j`` of all pairs at once."""
    n, m = x.shape[1], y.shape[1]
    reach = 1 + max(move.rows + move.columns for move in pattern.moves)
    backwards = xp.flip(y, (1,))  # so that the steps of y that meet steps i, i + 1, ... of x are in this order
    last = xp.full_like(y[:, :, 0], np.inf)
    kept: list[tuple[int, int, Any, Any]] = []  # for the last diagonals: first i, last i, distances, minimum costs
    for s in range(n + m - 1):
        low, high = max(0, s - m + 1), min(s, n - 1)
        a, b = x[:, low : high + 1], backwards[:, m - 1 - s + low : m - s + high]
        distances = _euclidean(xp, a, b)
        totals = xp.full_like(distances, np.inf) if s else distances
        kept = [*kept[-reach + 1 :], (low, high, distances, totals)]
        for move in pattern.moves:
            back = move.rows + move.columns
            if back >= len(kept):
                continue
            source_low, source_high, _, source = kept[-1 - back]
            first, stop = max(source_low + move.rows, low), min(source_high + move.rows, high) + 1
            if first >= stop:
                continue
            costs = source[:, first - move.rows - source_low : stop - move.rows - source_low]
            extra: Any = 0.0
            for rows, columns, weight in move.terms:
                term_low, _, term, _ = kept[-1 - rows - columns]
                extra = extra + weight * term[:, first - rows - term_low : stop - rows - term_low]
            here = totals[:, first - low : stop - low]
            here[...] = xp.minimum(here, costs + extra)
        if high == n - 1:
            last[:, s - n + 1] = totals[:, -1]
    return last


def _euclidean(xp: ModuleType, a: Any, b: Any) -> Any:
    """Distances ``(P, k)`` of rows of ``(P, k, D)``, added up in the order of the compiled loop."""
    if a.shape[2] == 1:
        return abs(a[:, :, 0] - b[:, :, 0])
    squares: Any = None
    for f in range(a.shape[2]):
        difference = a[:, :, f] - b[:, :, f]
        squares = difference * difference if squares is None else squares + difference * difference
    return xp.sqrt(squares)


def dtw_path(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best warping path of two series of numbers with the pattern symmetric2, for plots.

    Args:
        x: ``(n,)``.
        y: ``(m,)``.

    Returns:
        Steps of ``x`` and of ``y`` that meet, ``(k,)`` each, from the first to the last.
    """
    costs = np.abs(np.asarray(x, dtype=np.float64)[:, None] - np.asarray(y, dtype=np.float64))
    n, m = costs.shape
    totals = np.full((n + 1, m + 1), np.inf)
    totals[0, 0] = -costs[0, 0]  # the first pair counts once
    for i, row in enumerate(costs.tolist(), 1):
        above, left, line = totals[i - 1].tolist(), np.inf, totals[i]
        for j, cost in enumerate(row, 1):
            left = min(above[j - 1] + 2.0 * cost, above[j] + cost, left + cost)
            line[j] = left
    i, j, path = n, m, [(n - 1, m - 1)]
    while (i, j) != (1, 1):
        cost = costs[i - 1, j - 1]
        moves = ((totals[i - 1, j - 1] + 2.0 * cost, i - 1, j - 1), (totals[i - 1, j] + cost, i - 1, j))
        _, i, j = min(*moves, (totals[i, j - 1] + cost, i, j - 1))
        path.append((i - 1, j - 1))
    steps = np.array(path[::-1])
    return steps[:, 0], steps[:, 1]
