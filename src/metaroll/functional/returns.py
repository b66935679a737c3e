"""Discounted sums of time series: one rollout, ragged concatenations of rollouts, and dense batches.

All results are computed in float64 and come back in the floating dtype of the data (float64 for integers).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from metaroll.checks import check_unit_interval
from metaroll.errors import ShapeError

__all__ = [
    "check_bounds",
    "discounted_reverse_cumsum",
    "discounted_reverse_cumsum_dense",
    "discounted_reverse_cumsum_ragged",
    "discounted_sum",
    "reverse_scan",
]

Array = np.ndarray | torch.Tensor


def check_bounds(bounds: Any, length: int) -> np.ndarray:
    """Rollout bounds as integers, shape ``(N+1,)``: they start at 0, end at ``length`` and strictly increase."""
    array = np.asarray(bounds.detach().cpu() if isinstance(bounds, torch.Tensor) else bounds)
    if array.ndim != 1 or array.size < 2 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"rollout bounds must be a list of at least two integers, got {bounds!r}")
    if array[0] != 0 or array[-1] != length or np.any(np.diff(array) <= 0):
        raise ValueError(
            f"rollout bounds must increase strictly from 0 to the number of steps {length}, got {bounds!r}"
        )
    return array.astype(np.int64, copy=False)


def reverse_scan(data: np.ndarray, discount: float, ends: np.ndarray | None = None) -> np.ndarray:
    """The recursion ``y_t = x_t + discount * y_{t+1}`` along axis 0, restarted after every end.

    Args:
        data: Shape ``(T, ...)``.
        discount: Factor of the recursion; not checked.
        ends: Bool, shape ``(T,)`` or that of ``data``; where true, ``y_t = x_t``.

    Returns:
        float64 array, shape ``(T, ...)``.
    """
    x = np.asarray(data, dtype=np.float64)
    if x.ndim == 1:
        return _reverse_scan_1d(x, discount, ends)
    y = np.empty_like(x)
    following: Any = np.zeros(x.shape[1:])
    for t in range(len(x) - 1, -1, -1):
        # A restart, not a factor 0: an infinite value in one rollout must not become NaN in the one before it.
        carried = discount * following if ends is None else np.where(ends[t], 0.0, discount * following)
        np.add(x[t], carried, out=y[t])
        following = y[t]
    return y


def _reverse_scan_1d(x: np.ndarray, discount: float, ends: np.ndarray | None) -> np.ndarray:
    # Python floats: about as fast as a compiled filter for the usual few hundred steps, and no import of scipy.signal.
    result: list[float] = []
    y = 0.0
    if ends is None:
        for value in x[::-1].tolist():
            y = value + discount * y
            result.append(y)
    else:
        for value, end in zip(x[::-1].tolist(), np.asarray(ends)[::-1].tolist(), strict=True):
            y = value if end else value + discount * y
            result.append(y)
    return np.array(result[::-1], dtype=np.float64)


def _to_numpy(name: str, data: Any) -> np.ndarray:
    array = data.detach().cpu().numpy() if isinstance(data, torch.Tensor) else np.asarray(data)
    if array.dtype.kind not in "buif":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    return array


def _like(result: np.ndarray, data: Any) -> Array:
    """``result`` in the floating dtype of ``data``, and as a tensor on its device if ``data`` is one."""
    if isinstance(data, torch.Tensor):
        dtype = data.dtype if data.dtype.is_floating_point else torch.get_default_dtype()
        return torch.from_numpy(np.ascontiguousarray(result)).to(dtype=dtype, device=data.device)
    dtype = np.asarray(data).dtype
    return result.astype(dtype if dtype.kind == "f" else np.float64, copy=False)


def discounted_reverse_cumsum(data: Any, gamma: float) -> np.ndarray:
    """Discounted sums of all that follows: ``y_t = x_t + gamma * y_{t+1}``, with ``y_T = 0``.

    Equals ``scipy.signal.lfilter([1], [1, -gamma], data[::-1], axis=0)[::-1]``.

    Args:
        data: Samples along axis 0, shape ``(T, ...)``; array, tensor or list.
        gamma: Discount factor in [0, 1].

    Returns:
        Array of the same shape.
    """
    gamma = check_unit_interval("gamma", gamma)
    array = _to_numpy("data", data)
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
    """
    gamma = check_unit_interval("gamma", gamma)
    array = _to_numpy("data", data)
    if array.ndim != 1:
        raise ShapeError(f"data must have shape (T,), got {array.shape}")
    ends = np.zeros(len(array), dtype=bool)
    ends[check_bounds(bounds, len(array))[1:] - 1] = True
    return _like(reverse_scan(array, gamma, ends), data)


def discounted_reverse_cumsum_dense(data: Any, gamma: float, ends: Any = None) -> Array:
    """Discounted sums of all that follows, for rollouts in rows.

    Args:
        data: Shape ``(N, T)``; padding must be 0.
        gamma: Discount factor in [0, 1].
        ends: Bool, shape ``(N, T)``: last steps of rollouts inside a row, after which the sum starts anew.

    Returns:
        Shape ``(N, T)``, array or tensor like ``data``.
    """
    gamma = check_unit_interval("gamma", gamma)
    array = _to_numpy("data", data)
    if array.ndim != 2:
        raise ShapeError(f"data must have shape (N, T), got {array.shape}")
    flags = None if ends is None else _to_numpy("ends", ends).astype(bool)
    if flags is not None and flags.shape != array.shape:
        raise ShapeError(f"ends must have the shape {array.shape} of data, got {flags.shape}")
    return _like(reverse_scan(array.T, gamma, None if flags is None else flags.T).T, data)


def discounted_sum(data: Any, gamma: float) -> Any:
    """The discounted sum ``sum_t gamma^t x_t`` along axis 0.

    Args:
        data: Shape ``(T, ...)``; array, tensor or list.
        gamma: Discount factor in [0, 1].

    Returns:
        Shape ``(...)``: a NumPy scalar (for one series) or array, or a tensor like ``data``.
    """
    gamma = check_unit_interval("gamma", gamma)
    array = _to_numpy("data", data)
    if array.ndim == 0:
        raise ShapeError(f"data must have a time axis, got the single number {array}")
    weights = gamma ** np.arange(len(array), dtype=np.float64)  # 0.0 ** 0 is 1: discount 0 keeps the first step
    total = np.asarray(np.tensordot(weights, np.asarray(array, dtype=np.float64), axes=1))
    result = _like(total, data)
    return result if isinstance(result, torch.Tensor) else result[()]
