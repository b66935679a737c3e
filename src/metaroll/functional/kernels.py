"""Loops compiled by numba if it is installed (the extra ``fast``); otherwise callers use NumPy.

Both paths are bit-identical, so numba only affects speed. Importing numba and compiling take some seconds; both are
deferred until NumPy has spent about as long on a loop in this process, so short programs never pay. Nothing is cached
on disk (numba would unpickle it).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["compile_all", "compiled", "register"]

_HOT = 100_000_000
"""Numbers after which a loop is compiled: NumPy takes 5 to 15 ns for each."""
_PER_CALL = 500
"""Numbers added to those of each call, for its overhead."""

_LOOPS: dict[str, Any] = {}  # compiled ones; None where numba is missing or does not work
_asked: dict[str, int] = {}
_lock = threading.Lock()


def compiled(name: str, size: int) -> Callable[..., Any] | None:
    """The compiled loop ``name`` for a call with ``size`` numbers, or None: then NumPy is to do it."""
    if name not in _LOOPS:
        _asked[name] = _asked.get(name, 0) + size + _PER_CALL
        if _asked[name] < _HOT:
            return None
        _compile(name)
    return _LOOPS[name]


def register(name: str, source: Callable[..., None], signature: str) -> None:
    """Add a loop of another module, with its numba signature: modules of systems define their own loops."""
    _SOURCES[name] = (source, signature)


def compile_all() -> bool:
    """Compile every loop now, as before a measurement; returns whether numba is there."""
    for name in _SOURCES:
        _compile(name)
    return all(_LOOPS[name] is not None for name in _SOURCES)


def _compile(name: str) -> None:
    with _lock:
        if name in _LOOPS:
            return
        try:
            import numba

            source, signature = _SOURCES[name]
            # Without fastmath, sums and products are rounded one by one as NumPy's are.
            _LOOPS[name] = numba.njit(signature, nogil=True, cache=False, fastmath=False)(source)
        except Exception:  # not installed, made for another NumPy, ...: nothing but speed depends on it
            _LOOPS[name] = None


def _reverse_scan(y: np.ndarray, discount: float, bounds: np.ndarray) -> None:
    """``y_t = y_t + discount * y_{t+1}`` from the last step but one of each segment to its first, in place.

    Four segments go side by side, since a processor waits for each sum and product of one.
    """
    count = len(bounds) - 1
    for n in range(0, count - count % 4, 4):
        i, j, k, m = bounds[n + 1] - 1, bounds[n + 2] - 1, bounds[n + 3] - 1, bounds[n + 4] - 1
        a, b, c, d = y[i], y[j], y[k], y[m]
        shared = min(i - bounds[n], j - bounds[n + 1], k - bounds[n + 2], m - bounds[n + 3])
        for s in range(1, shared + 1):
            a = y[i - s] + discount * a
            b = y[j - s] + discount * b
            c = y[k - s] + discount * c
            d = y[m - s] + discount * d
            y[i - s], y[j - s], y[k - s], y[m - s] = a, b, c, d
        for own in range(n, n + 4):
            for t in range(bounds[own + 1] - 2 - shared, bounds[own] - 1, -1):
                y[t] += discount * y[t + 1]
    for n in range(count - count % 4, count):
        for t in range(bounds[n + 1] - 2, bounds[n] - 1, -1):
            y[t] += discount * y[t + 1]


def _powers(x: np.ndarray, exponent: float, out: np.ndarray) -> None:
    """``x ** exponent`` as the C library gives it for one number at a time: NumPy's own may have other last bits."""
    for i in range(len(x)):
        out[i] = math.pow(x[i], exponent)


def _td_errors(
    r: np.ndarray,
    v: np.ndarray,
    terminated: np.ndarray,
    final: np.ndarray,
    bounds: np.ndarray,
    discount: float,
    delta: np.ndarray,
) -> None:
    """``r_t + discount * V(s_{t+1}) - V(s_t)``, with 0 for the successor of a terminated step.

    A loop that counts from 0 becomes one of vectors (seven times as fast): its indices are known not to be negative.
    """
    for n in range(len(bounds) - 1):
        begin, end = bounds[n], bounds[n + 1]
        r_n, v_n, ends, delta_n = r[begin:end], v[begin:end], terminated[begin:end], delta[begin:end]
        last = end - begin - 1
        for t in range(last):
            following = 0.0 if ends[t] else v_n[t + 1]
            delta_n[t] = r_n[t] + discount * following - v_n[t]
        following = 0.0 if ends[last] else final[n]
        delta_n[last] = r_n[last] + discount * following - v_n[last]


def _state_features(
    obs: np.ndarray,
    rows: np.ndarray,
    steps: np.ndarray,
    low: float,
    high: float,
    unit: float,
    flat: np.ndarray,
    stride: int,
) -> None:
    """``functional.regression.state_features``: the features of ``rows[i]`` begin at ``flat[i * stride]``."""
    width = obs.shape[1]
    for i in range(len(rows)):
        x, row = obs[rows[i]], flat[i * stride : i * stride + 2 * width + 4]
        clipped, squares, time = row[:width], row[width : 2 * width], row[2 * width :]
        for j in range(width):
            inside = low if x[j] < low else x[j]  # in two steps, which become vectors; NaN stays NaN
            inside = high if inside > high else inside
            clipped[j] = inside
            squares[j] = inside * inside
        tau = steps[i] / unit
        time[0] = tau
        time[1] = tau * tau
        time[2] = tau * tau * tau
        time[3] = 1.0


def _philox(even: np.ndarray, odd: np.ndarray, keys: np.ndarray, out: np.ndarray) -> None:
    """``functional.philox._rounds``: words 0 to 3 of blocks ``(B, n)`` go to ``out (4, B, n)``."""
    m0, m1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for b in range(even.shape[1]):
        for i in range(even.shape[2]):
            c0, c1, c2, c3 = even[0, b, i], odd[0, b, i], even[1, b, i], odd[1, b, i]
            for r in range(10):
                p0, p1 = c0 * m0, c2 * m1
                c0, c1 = (p1 >> half) ^ c1 ^ keys[r, 0, 0, i], p1 & mask
                c2, c3 = (p0 >> half) ^ c3 ^ keys[r, 1, 0, i], p0 & mask
            out[0, b, i], out[1, b, i], out[2, b, i], out[3, b, i] = c0, c1, c2, c3


def _warp_by_steps(x: np.ndarray, y: np.ndarray, weights: np.ndarray, buffers: np.ndarray, last: np.ndarray) -> None:
    """Last rows ``(P, m)`` of the least costs of warping paths of P pairs of series that move by single steps.

    One pair after another, anti-diagonal by anti-diagonal: its cells ``(i, j)`` have the same ``i + j``, and none of
    them waits for another, so each loop becomes one of vectors. What a diagonal needs of those before stays in the
    processor's first cache.

    Args:
        x: First series, number by number, ``(P, D, n)``; D is 1 or a multiple of 4 (with zeros).
        y: Second series, likewise, from its last step to the first, ``(P, D, m)``.
        weights: Weights of the distance of the cell in which a move (1, 1), (1, 0) or (0, 1) ends, ``(3,)``.
        buffers: Infinite numbers: memory for three diagonals of least costs, and for distances, ``(7, n + 2)``.
        last: Filled with the result.
    """
    pairs, dims, n = x.shape
    m = y.shape[2]
    w0, w1, w2 = weights[0], weights[1], weights[2]
    buffers[3] = 0.0
    for p in range(pairs):
        buffers[:3, :2] = np.inf  # what is left of another pair
        for s in range(n + m - 1):
            low, high = max(0, s - m + 1), min(s, n - 1)
            count, there = high + 1 - low, m - 1 - s + low  # in y, of ``low``
            c = buffers[6]
            if dims == 1:
                x0, y0 = x[p, 0][low:], y[p, 0][there:]
                for k in range(count):
                    c[k] = abs(x0[k] - y0[k])
            for f in range(0, dims - dims % 4, 4):
                x0, x1, x2, x3 = x[p, f][low:], x[p, f + 1][low:], x[p, f + 2][low:], x[p, f + 3][low:]
                y0, y1, y2, y3 = y[p, f][there:], y[p, f + 1][there:], y[p, f + 2][there:], y[p, f + 3][there:]
                given = buffers[4 + f // 4 % 2 if f else 3]  # never what is written: a loop of vectors needs that
                if f + 4 < dims:
                    target = buffers[5 - f // 4 % 2]
                    for k in range(count):
                        a, b, d, e = x0[k] - y0[k], x1[k] - y1[k], x2[k] - y2[k], x3[k] - y3[k]
                        target[k] = given[k] + a * a + b * b + d * d + e * e
                else:
                    for k in range(count):
                        a, b, d, e = x0[k] - y0[k], x1[k] - y1[k], x2[k] - y2[k], x3[k] - y3[k]
                        c[k] = np.sqrt(given[k] + a * a + b * b + d * d + e * e)
            # The entry of i is at i + 1, between infinite ones: no path comes from outside.
            now, before, twice = buffers[s % 3], buffers[(s + 2) % 3], buffers[(s + 1) % 3][low:]
            g, above, beside = now[low + 1 :], before[low:], before[low + 1 :]
            for k in range(count):
                v, up, left = twice[k] + w0 * c[k], above[k] + w1 * c[k], beside[k] + w2 * c[k]
                v = up if up < v else v
                g[k] = left if left < v else v
            now[low] = now[high + 2] = np.inf
            if s == 0:
                g[0] = c[0]
            if high == n - 1:
                last[p, s - n + 1] = g[count - 1]


def _warp_by_moves(
    x: np.ndarray,
    y: np.ndarray,
    moves: np.ndarray,
    terms: np.ndarray,
    weights: np.ndarray,
    num_forward: int,
    buffers: np.ndarray,
    last: np.ndarray,
) -> None:
    """Last rows ``(P, m)`` of the least costs of warping paths of P pairs of series.

    One pair after another, row by row. Moves forward in the first series only read rows before, so each is one loop
    over a row (which becomes one of vectors). Moves along a row have to wait for one another.

    Args:
        x: First series, ``(P, n, D)``.
        y: Second series, ``(P, D, m)``.
        moves: Rows back, columns back, and first of its terms, of each move and of one more (terms only), ``(K+1, 3)``;
            the ``num_forward`` ones that go back at least a row come first.
        terms: Rows back and columns back of each term.
        weights: Weight of each term.
        num_forward: How many moves go back at least a row.
        buffers: Memory for the last rows of least costs, of distances, and of the costs of moves, ``(3, rows, m)``.
        last: Filled with the result.
    """
    pairs, n, dims = x.shape
    m = y.shape[2]
    kept, num_moves = buffers.shape[1], len(moves) - 1
    total, cost, extra = buffers[0], buffers[1], buffers[2]
    for p in range(pairs):
        for i in range(n):
            now = i % kept
            c, g, xi, yp = cost[now], total[now], x[p, i], y[p]
            if dims == 1:
                x0, y0 = xi[0], yp[0]
                for j in range(m):
                    c[j] = abs(x0 - y0[j])
            else:
                for j in range(m):
                    c[j] = 0.0
                for f in range(0, dims - 1, 2):  # two at once: half as often through the memory of a row
                    x0, y0, x1, y1 = xi[f], yp[f], xi[f + 1], yp[f + 1]
                    for j in range(m):
                        a, b = x0 - y0[j], x1 - y1[j]
                        c[j] = c[j] + a * a + b * b
                if dims % 2:
                    x0, y0 = xi[dims - 1], yp[dims - 1]
                    for j in range(m):
                        a = x0 - y0[j]
                        c[j] += a * a
                for j in range(m):
                    c[j] = np.sqrt(c[j])
            for j in range(m):
                g[j] = np.inf
            if i == 0:
                g[0] = c[0]
            for k in range(num_moves):
                back, left, first = moves[k, 0], moves[k, 1], moves[k, 2]
                num = moves[k + 1, 2] - first
                if back > i or left >= m:
                    continue
                source, target = total[(i - back) % kept], g[left:]
                if k < num_forward and num == 1:  # most moves: no costs of moves in between
                    w, d = weights[first], cost[(i - terms[first, 0]) % kept][left - terms[first, 1] :]
                    for j in range(m - left):
                        v = source[j] + w * d[j]
                        target[j] = v if v < target[j] else target[j]
                    continue
                e = extra[max(k - num_forward, 0)]
                for j in range(m - left):
                    e[j] = 0.0
                for t in range(first, first + num):
                    w, d = weights[t], cost[(i - terms[t, 0]) % kept][left - terms[t, 1] :]
                    for j in range(m - left):
                        e[j] += w * d[j]
                if k < num_forward:
                    for j in range(m - left):
                        v = source[j] + e[j]
                        target[j] = v if v < target[j] else target[j]
            if num_forward == num_moves:
                continue
            for j in range(1, m):
                for k in range(num_forward, num_moves):
                    left = moves[k, 1]
                    if left <= j:
                        g[j] = min(g[j - left] + extra[k - num_forward, j - left], g[j])
        last[p] = total[(n - 1) % kept]


_SOURCES: dict[str, tuple[Callable[..., None], str]] = {
    "reverse_scan": (_reverse_scan, "void(float64[::1], float64, int64[::1])"),
    "powers": (_powers, "void(float64[::1], float64, float64[::1])"),
    "single_powers": (_powers, "void(float32[::1], float32, float32[::1])"),
    "td_errors": (
        _td_errors,
        "void(float64[::1], float64[::1], boolean[::1], float64[::1], int64[::1], float64, float64[::1])",
    ),
    "state_features": (
        _state_features,
        "void(float64[:, ::1], int64[::1], int64[::1], float64, float64, float64, float64[::1], int64)",
    ),
    "philox": (_philox, "void(uint64[:, :, ::1], uint64[:, :, ::1], uint64[:, :, :, ::1], uint32[:, :, ::1])"),
    "warp_by_steps": (
        _warp_by_steps,
        "void(float64[:, :, ::1], float64[:, :, ::1], float64[::1], float64[:, ::1], float64[:, ::1])",
    ),
    "warp_by_moves": (
        _warp_by_moves,
        "void(float64[:, :, ::1], float64[:, :, ::1], int64[:, ::1], int64[:, ::1], float64[::1], int64, "
        "float64[:, :, ::1], float64[:, ::1])",
    ),
}
