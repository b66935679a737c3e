"""The worst epsilon-fraction of returns, and its mean: conditional value at risk (CVaR), or expected shortfall."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metaroll.checks import check_number, check_whole
from metaroll.errors import ShapeError
from metaroll.functional.arrays import to_numpy

__all__ = [
    "check_epsilon",
    "conditional_value_at_risk",
    "cvar_count",
    "full_set_metrics",
    "least_count",
    "worst_indices",
]

# 10 * 0.3 is 3.0000000000000004 in floating point, which must not count as more than 3.
_TOLERANCE = 1e-9


def check_epsilon(epsilon: Any) -> float:
    """``epsilon``, the share that is kept, as a float, if it lies in (0, 1]; 1 keeps everything.

    Raises:
        TypeError: It is not a number.
        ValueError: It lies outside, or is NaN.
    """
    return check_number("epsilon", epsilon, 0.0, 1.0, above_low=True)


def cvar_count(n: int, epsilon: float) -> int:
    """Number of the ``n`` returns in the worst fraction ``epsilon``: ``ceil(n * epsilon)``, at least 1.

    Raises:
        ValueError: ``n`` is below 1, or ``epsilon`` not in (0, 1].
    """
    return max(1, math.ceil(check_whole("n", n) * check_epsilon(epsilon) - _TOLERANCE))


def least_count(min_count: int, epsilon: float) -> int:
    """Number of returns to sample, so that their worst fraction ``epsilon`` holds at least ``min_count``.

    ``ceil(min_count / epsilon)``. With fewer, ``min_count`` may be kept as well (of 11 the
    worst tenth are 2), but they would be a larger share than was asked for (2 of 11 are 18 %).

    Raises:
        ValueError: ``min_count`` is below 1, or ``epsilon`` not in (0, 1].
    """
    number = math.ceil(check_whole("min_count", min_count) / check_epsilon(epsilon) - _TOLERANCE)
    while cvar_count(number, epsilon) < min_count:
        number += 1
    return number


def worst_indices(returns: Any, epsilon: float) -> np.ndarray:
    """Positions of the worst epsilon-fraction of ``returns``, the worst one first; of equal ones those that come first.

    Args:
        returns: Shape ``(N,)``, at least one.
        epsilon: Share to keep, in (0, 1].

    Returns:
        Integers, shape ``(cvar_count(N, epsilon),)``.

    Raises:
        ShapeError: ``returns`` have another shape, or there are none.
        ValueError: A return is NaN.
    """
    return np.argsort(_checked(returns), kind="stable")[: cvar_count(len(returns), epsilon)]


def conditional_value_at_risk(returns: Any, epsilon: float) -> float:
    """Mean of the worst fraction ``epsilon`` of ``returns (N,)``; with ``epsilon`` 1 the mean of all.

    Raises:
        ShapeError: ``returns`` have another shape, or there are none.
        ValueError: A return is NaN.
    """
    return float(_checked(returns)[worst_indices(returns, epsilon)].mean())


def full_set_metrics(returns: Any, lengths: Any) -> dict[str, float]:
    """Metrics of all sampled rollouts, for logs of a learner that keeps the worst only.

    Args:
        returns: Undiscounted returns, shape ``(N,)``.
        lengths: Numbers of steps, shape ``(N,)``.

    Raises:
        ShapeError: ``returns`` have another shape, or there are none.
        ValueError: A return is NaN.
    """
    numbers = _checked(returns)
    return {
        "full avg rollout len": float(np.mean(lengths)),
        "full avg return": float(numbers.mean()),
        "full median return": float(np.median(numbers)),
        "full std return": float(numbers.std()),
    }


def _checked(returns: Any) -> np.ndarray:
    array = to_numpy("returns", returns).astype(np.float64, copy=False)
    if array.ndim != 1 or not array.size:
        raise ShapeError(f"returns must have shape (N,) with at least one return, got {array.shape}")
    if np.isnan(array).any():
        raise ValueError(f"returns must be numbers to be put in order, got NaN at {np.flatnonzero(np.isnan(array))}")
    return array
