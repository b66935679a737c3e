"""Loops that numba compiles where it is installed (the extra ``fast``); without it, callers take their way in NumPy.

Both ways give the same bits, so nothing but speed depends on numba. Importing numba and compiling take some seconds.
They wait until a loop has been asked for so many numbers in this process that NumPy has taken about as long: short
programs never pay. Nothing is cached on disk (numba would unpickle it).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["compile_all", "compiled"]

_HOT = 100_000_000
"""Numbers after which a loop is compiled: NumPy takes 5 to 15 ns for each."""
_PER_CALL = 500
"""Numbers that a call counts besides its own, for what every call costs."""

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
    obs: np.ndarray, steps: np.ndarray, low: float, high: float, unit: float, flat: np.ndarray, stride: int
) -> None:
    """``functional.regression.state_features``: row ``i`` begins at ``flat[i * stride]``."""
    width = obs.shape[1]
    for i in range(len(obs)):
        x, row = obs[i], flat[i * stride : i * stride + 2 * width + 4]
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


_SOURCES: dict[str, tuple[Callable[..., None], str]] = {
    "reverse_scan": (_reverse_scan, "void(float64[::1], float64, int64[::1])"),
    "td_errors": (
        _td_errors,
        "void(float64[::1], float64[::1], boolean[::1], float64[::1], int64[::1], float64, float64[::1])",
    ),
    "state_features": (
        _state_features,
        "void(float64[:, ::1], int64[::1], float64, float64, float64, float64[::1], int64)",
    ),
    "philox": (_philox, "void(uint64[:, :, ::1], uint64[:, :, ::1], uint64[:, :, :, ::1], uint32[:, :, ::1])"),
}
