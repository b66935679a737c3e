"""Discounted sums of time series: one rollout, ragged concatenations of rollouts, and dense batches.

All results are computed in float64 and come back in the floating dtype of the data (float64 for integers). A sum with
discount 0 is its first entry, whatever follows: no infinite value becomes NaN by a product with 0.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch

from metaroll.checks import check_unit_interval, described
from metaroll.errors import ShapeError
from metaroll.functional.arrays import Array, like, to_numpy
from metaroll.functional.kernels import compiled

__all__ = [
    "check_bounds",
    "discounted_reverse_cumsum",
    "discounted_reverse_cumsum_ragged",
    "discounted_sum",
    "n_step_sums",
    "reverse_scan",
    "scan_in_place",
    "segment_bounds",
]

_FEWEST_LANES = 32
"""Rollouts from which stepping through all of them at once beats a loop over Python's floats."""
_CHUNK = 16_384
"""Numbers that are gathered at once when rollouts are stepped through side by side."""


def check_bounds(bounds: Any, length: int) -> np.ndarray:
    """Rollout bounds as integers, shape ``(N+1,)``: they start at 0, end at ``length`` and strictly increase.

    Raises:
        ValueError: They do not, or are not integers.
    """
    array = np.asarray(bounds.detach().cpu() if isinstance(bounds, torch.Tensor) else bounds)
    if array.ndim != 1 or array.size < 2 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"rollout bounds must be a list of at least two integers, got {described(bounds)}")
    if array[0] != 0 or array[-1] != length or np.any(np.diff(array) <= 0):
        raise ValueError(
            f"rollout bounds must increase strictly from 0 to the number of steps {length}, got {described(bounds)}"
        )
    return array.astype(np.int64, copy=False)


def reverse_scan(data: np.ndarray, discount: float, ends: np.ndarray | None = None) -> np.ndarray:
    """The recursion ``y_t = x_t + discount * y_{t+1}`` along axis 0, restarted after every end.

    Args:
        data: Shape ``(T, ...)``.
        discount: Factor of the recursion; not checked.
        ends: Bool, shape ``(T,)`` or that of ``data``; where true, ``y_t = x_t``.

    Returns:
        float64 array, shape ``(T, ...)``, in its own memory.
    """
    x = np.asarray(data, dtype=np.float64)
    if discount == 0.0 or not len(x):
        return x.copy()
    if x.ndim == 1:
        return _scan_copy(x, discount, segment_bounds(np.zeros(len(x), dtype=bool) if ends is None else ends))
    y = np.empty_like(x)
    y[-1] = x[-1]
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(len(x) - 2, -1, -1):
            # A restart, not a factor 0: an infinite value in one rollout must not become NaN in the one before it.
            # (And -0.0, since adding 0.0 would change -0.0.)
            carried = discount * y[t + 1]
            np.add(x[t], carried if ends is None else np.where(ends[t], -0.0, carried), out=y[t])
    return y


def segment_bounds(ends: np.ndarray) -> np.ndarray:
    """Bounds ``(N+1,)`` of the segments of a series that has ``ends (T,)``; its last step always ends one."""
    return np.concatenate(([0], np.flatnonzero(ends[:-1]) + 1, [len(ends)]))


def scan_in_place(y: np.ndarray, discount: float, bounds: np.ndarray) -> None:
    """``reverse_scan`` of each rollout in a concatenation, in place.

    In NumPy, all rollouts are stepped through side by side from their last steps, the longest ones first; with few
    rollouts, or where few are left, one by one. numba's loop and both ways of NumPy's give the same bits.

    Args:
        y: Steps of all rollouts and one entry more, which becomes 0: contiguous float64, shape ``(T+1,)``.
        discount: Factor of the recursion; not checked.
        bounds: First step of every rollout, then T, int64, shape ``(N+1,)``; not checked.
    """
    y[-1] = 0.0
    if discount == 0.0:
        return
    loop = compiled("reverse_scan", len(y))
    if loop is not None:
        loop(y, discount, np.require(bounds, np.int64, ["C", "W"]))
    elif len(bounds) > _FEWEST_LANES:
        _scan_lanes(y, discount, bounds)
    else:
        for first, stop in pairwise(bounds.tolist()):
            _scan_one(y, discount, first, stop)


def _scan_copy(data: np.ndarray, discount: float, bounds: np.ndarray) -> np.ndarray:
    y = np.empty(len(data) + 1)
    y[:-1] = data
    scan_in_place(y, discount, bounds)
    return y[:-1]


def _scan_one(y: np.ndarray, discount: float, first: int, stop: int, carry: float | None = None) -> None:
    """One rollout in place; ``carry`` is the value after its last step, if any."""
    # Python floats: about as fast as a compiled filter for the usual few hundred steps, and no import of scipy.signal.
    values = y[first:stop][::-1].tolist()
    value = values[0] if carry is None else values[0] + discount * carry
    result = [value]
    for x in values[1:]:
        value = x + discount * value
        result.append(value)
    y[first:stop] = result[::-1]


def _scan_lanes(y: np.ndarray, discount: float, bounds: np.ndarray) -> None:
    """All rollouts in place, in parallel; the last entry of ``y`` is 0, and serves as padding."""
    padding = len(y) - 1
    order = np.argsort(bounds[:-1] - bounds[1:], kind="stable")
    first, last = bounds[:-1][order], bounds[1:][order] - 1
    lengths = last - first + 1
    longest, done = int(lengths[0]), 0
    row = np.empty(0)
    with np.errstate(over="ignore", invalid="ignore"):
        while done < longest:
            lanes = int(np.searchsorted(-lengths, -done))  # those that are longer than ``done``
            if lanes < _FEWEST_LANES:
                break
            num_steps = min(max(1, _CHUNK // lanes), longest - done)
            steps = last[:lanes] - np.arange(done, done + num_steps)[:, None]
            np.copyto(steps, padding, where=steps < first[:lanes])
            block = y.take(steps)
            for k in range(num_steps):
                if done or k:
                    block[k] += discount * row[:lanes]
                row = block[k]
            y[steps] = block
            y[padding] = 0.0
            done += num_steps
    for i in range(int(np.searchsorted(-lengths, -done))):
        _scan_one(y, discount, int(first[i]), int(last[i]) + 1 - done, float(row[i]) if done else None)


def discounted_reverse_cumsum(data: Any, gamma: float) -> np.ndarray:
    """Discounted sums of all that follows: ``y_t = x_t + gamma * y_{t+1}``, with ``y_T = 0``.

    Equals ``scipy.signal.lfilter([1], [1, -gamma], data[::-1], axis=0)[::-1]``.

    Args:
        data: Samples along axis 0, shape ``(T, ...)``; array, tensor or list.
        gamma: Discount factor in [0, 1].

    Returns:
        Array of the same shape.

    Raises:
        ShapeError: ``data`` is a single number.
        TypeError: ``data`` does not hold real numbers, or ``gamma`` is not a number.
        ValueError: ``gamma`` lies outside.
    """
    gamma = check_unit_interval("gamma", gamma)
    array = to_numpy("data", data)
    if array.ndim == 0:
        raise ShapeError(f"data must have a time axis, got the single number {array}")
    return reverse_scan(array, gamma).astype(array.dtype if array.dtype.kind == "f" else np.float64, copy=False)


def discounted_reverse_cumsum_ragged(data: Any, bounds: Any, gamma: float) -> Array:
    """Discounted sums of all that follows within the same rollout of a concatenation.

    Args:
        data: Steps of all rollouts, one after the other, shape ``(T,)``.
        bounds: First step of every rollout, then T, shape ``(N+1,)``.
        gamma: Discount factor in [0, 1].

    Returns:
        Shape ``(T,)``, array or tensor like ``data``.

    Raises:
        ShapeError: ``data`` has another shape.
        TypeError: ``data`` does not hold real numbers, or ``gamma`` is not a number.
        ValueError: ``gamma`` lies outside, or ``bounds`` do not increase strictly from 0 to T.
    """
    gamma = check_unit_interval("gamma", gamma)
    array = to_numpy("data", data)
    if array.ndim != 1:
        raise ShapeError(f"data must have shape (T,), got {array.shape}")
    return like(_scan_copy(array, gamma, check_bounds(bounds, len(array))), data)


def discounted_sum(data: Any, gamma: float) -> Any:
    """The discounted sum ``sum_t gamma^t x_t`` along axis 0.

    Args:
        data: Shape ``(T, ...)``; array, tensor or list.
        gamma: Discount factor in [0, 1].

    Returns:
        Shape ``(...)``: a NumPy scalar (for one series) or array, or a tensor like ``data``.

    Raises:
        ShapeError: ``data`` is a single number.
        TypeError: ``data`` does not hold real numbers, or ``gamma`` is not a number.
        ValueError: ``gamma`` lies outside.
    """
    gamma = check_unit_interval("gamma", gamma)
    array = to_numpy("data", data)
    if array.ndim == 0:
        raise ShapeError(f"data must have a time axis, got the single number {array}")
    x = np.asarray(array if gamma else array[:1], dtype=np.float64)
    weights = gamma ** np.arange(len(x), dtype=np.float64)
    if gamma:
        np.maximum(weights, 5e-324, out=weights)  # an infinite entry stays infinite where its weight would round to 0
    result = like(np.asarray(np.tensordot(weights, x, axes=1)), data)
    return result if isinstance(result, torch.Tensor) else result[()]


def n_step_sums(
    rewards: np.ndarray, terminated: np.ndarray, continues: np.ndarray, discount: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """n-step sums of rewards for N steps, cut at the end of an episode (Sutton and Barto 2018, eq. 7.1).

    ``R = r_0 + g r_1 + ... + g^(k-1) r_(k-1)``, where k is K, or less if an episode ends before: the value after a
    termination is 0; a truncated episode bootstraps with its last observation.

    Args:
        rewards: Rewards of the step itself and the K - 1 after it, ``(N, K)``.
        terminated: Whether the episode terminates at each step, bool ``(N, K)``.
        continues: Whether each step is followed by the next one of its episode, bool ``(N, K)``.
        discount: g.

    Returns:
        The sums in float64 ``(N,)``; k of each ``(N,)``; ``g^k``, or 0 where the last step counted is a termination,
        in float64 ``(N,)``.
    """
    counted = np.ones(rewards.shape, dtype=bool)  # a step counts if the episode continues after all steps before it
    np.logical_and.accumulate(continues[:, :-1], axis=1, out=counted[:, 1:])
    powers = discount ** np.arange(rewards.shape[1] + 1)
    sums = np.where(counted, rewards, 0.0) @ powers[:-1]
    counts = counted.sum(axis=1)
    ends = (terminated & counted).any(axis=1)
    return sums, counts, np.where(ends, 0.0, powers[counts])
