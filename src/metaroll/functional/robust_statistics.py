"""Statistics for few runs: interquartile means over tasks, probability of improvement, shares of successes.

Agarwal et al. 2021, *Deep reinforcement learning at the edge of the statistical precipice*, arXiv:2108.13264.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from metaroll.checks import check_fraction, check_whole
from metaroll.errors import ShapeError
from metaroll.functional.arrays import to_numpy
from metaroll.functional.bootstrap import Generator, Interval, interval_bounds, resample_blocks

__all__ = [
    "interquartile_mean",
    "interval_of_improvement",
    "interval_of_iqm",
    "probability_of_improvement",
    "wilson_interval",
]

_NUM_REPS = 10_000


def interquartile_mean(scores: Any) -> float:
    """Mean of the middle half of all ``scores``, of any shape: a quarter is left out at either end.

    Of n scores, ``n // 4`` are left out at either end, as by ``scipy.stats.trim_mean(scores, 0.25, axis=None)``.

    Raises:
        ShapeError: There is no score.
        TypeError: They are no numbers.
        ValueError: One is not finite.
    """
    flat = _finite("scores", scores).reshape(1, -1)
    if not flat.size:
        raise ShapeError(f"scores must hold at least one score, got shape {np.shape(scores)}")
    return float(_iqm(flat)[0])


def interval_of_iqm(
    scores: Any,
    *,
    confidence: float = 0.95,
    num_reps: int = _NUM_REPS,
    method: str = "percentile",
    generator: Generator = None,
) -> Interval:
    """Stratified bootstrap interval of the ``interquartile_mean``: runs are drawn anew in each task by itself.

    Args:
        scores: One row per run (seed), one column per task, shape ``(N, M)``; ``(N,)`` is a single task. Scores of
            different tasks should be normalized to one scale.
        confidence: Level of the interval.
        num_reps: Number of resamples.
        method: ``"percentile"``, as Agarwal et al. recommend, or ``"basic"``.
        generator: Source of randomness, or its seed; ``None`` means fresh entropy.

    Returns:
        Bounds; NaN for a single run.

    Raises:
        ShapeError: ``scores`` have another shape.
        TypeError: They are no numbers.
        ValueError: One is not finite, or ``confidence`` not in (0, 1).
    """
    runs = _runs("scores", scores)
    tail, num_reps = (1.0 - check_fraction("confidence", confidence)) / 2.0, check_whole("num_reps", num_reps)
    replications = [
        _iqm(_stratified(runs, size, drawn).reshape(size, -1))
        for size, drawn in resample_blocks(num_reps, runs.size, generator)
    ]
    bounds = interval_bounds(interquartile_mean(runs), np.concatenate(replications), tail, method)
    return Interval(math.nan, math.nan) if len(runs) == 1 else Interval(*map(float, bounds))


def probability_of_improvement(x: Any, y: Any) -> float:
    """How likely a run of X scores above one of Y in the same task, ``P(X > Y) + P(X = Y) / 2``, mean over tasks.

    Args:
        x: Scores of X, one row per run, one column per task, shape ``(N_x, M)``; ``(N_x,)`` is a single task.
        y: Scores of Y in the same tasks, shape ``(N_y, M)`` or ``(N_y,)``.

    Raises:
        ShapeError: ``x`` and ``y`` have different tasks.
        TypeError: They are no numbers.
        ValueError: One is not finite.
    """
    runs_x, runs_y = _pair(x, y)
    return float(_improvement(runs_x[None], runs_y[None])[0])


def interval_of_improvement(
    x: Any,
    y: Any,
    *,
    confidence: float = 0.95,
    num_reps: int = _NUM_REPS,
    method: str = "percentile",
    generator: Generator = None,
) -> Interval:
    """Stratified bootstrap interval of ``probability_of_improvement``: runs of X and of Y are drawn anew in each task.

    Arguments as of ``interval_of_iqm``; NaN where X or Y has a single run.

    Raises:
        ShapeError: ``x`` and ``y`` have different tasks.
        TypeError: They are no numbers.
        ValueError: One is not finite, or ``confidence`` not in (0, 1).
    """
    runs_x, runs_y = _pair(x, y)
    tail, num_reps = (1.0 - check_fraction("confidence", confidence)) / 2.0, check_whole("num_reps", num_reps)
    comparisons = len(runs_x) * runs_y.size
    replications = [
        _improvement(_stratified(runs_x, size, drawn), _stratified(runs_y, size, drawn))
        for size, drawn in resample_blocks(num_reps, comparisons, generator)
    ]
    estimate = probability_of_improvement(runs_x, runs_y)
    bounds = interval_bounds(estimate, np.concatenate(replications), tail, method)
    return Interval(math.nan, math.nan) if 1 in (len(runs_x), len(runs_y)) else Interval(*map(float, bounds))


def wilson_interval(successes: Any, trials: Any, *, confidence: float = 0.95) -> tuple[Any, Any]:
    """Bounds of Wilson's score interval for the probability of success.

    ``(k + z^2/2 -+ z sqrt(k (n - k) / n + z^2/4)) / (n + z^2)`` for k of n, with z the normal quantile of the level
    (Wilson 1927). It stays within [0, 1] and has a width even where all or none succeed.

    Args:
        successes: Numbers of successes k, from 0 to ``trials``; a number, or an array of any shape.
        trials: Numbers of trials n; shape of ``successes``, or one that goes with it. 0 trials give the bounds 0 and 1.
        confidence: Level of the interval.

    Returns:
        Lower and upper bounds: two numbers, or two arrays.

    Raises:
        TypeError: They are no numbers.
        ValueError: They are no whole numbers, there are more successes than trials, or ``confidence`` is not in (0, 1).
    """
    k, n = np.broadcast_arrays(_finite("successes", successes), _finite("trials", trials))
    wrong = (k < 0) | (k > n) | (k != np.round(k)) | (n != np.round(n))
    if wrong.any():
        raise ValueError(
            "successes and trials must be whole numbers with 0 <= successes <= trials, "
            f"got {k[wrong][0]:g} successes in {n[wrong][0]:g} trials"
        )
    z = NormalDist().inv_cdf(0.5 + check_fraction("confidence", confidence) / 2.0)
    half = z * np.sqrt(k * (n - k) / np.maximum(n, 1.0) + z * z / 4.0)
    middle = k + z * z / 2.0
    # Exactly 0 for no success and 1 for all, where rounding would leave something of 1e-17.
    low = np.where(k == 0.0, 0.0, (middle - half) / (n + z * z))
    return low[()], np.where(k == n, 1.0, (middle + half) / (n + z * z))[()]


def _iqm(rows: np.ndarray) -> np.ndarray:
    """Interquartile mean of each row of ``(block, n)``."""
    cut = rows.shape[1] // 4
    return np.sort(rows, axis=1)[:, cut : rows.shape[1] - cut].mean(axis=1)


def _improvement(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mean over runs and tasks of [X > Y] + [X = Y] / 2 for ``x (block, N_x, M)``, ``y (block, N_y, M)``."""
    first, second = x[:, :, None], y[:, None]
    return 0.5 * ((first > second).mean(axis=(1, 2, 3)) + (first >= second).mean(axis=(1, 2, 3)))


def _stratified(runs: np.ndarray, size: int, generator: np.random.Generator) -> np.ndarray:
    """Resamples ``(size, N, M)`` of ``runs (N, M)``, drawn in each column by itself."""
    chosen = generator.integers(0, len(runs), size=(size, *runs.shape))
    return runs[chosen, np.arange(runs.shape[1])]


def _pair(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    runs_x, runs_y = _runs("x", x), _runs("y", y)
    if runs_x.shape[1] != runs_y.shape[1]:
        raise ShapeError(f"x and y must have the same tasks as columns, got shapes {runs_x.shape} and {runs_y.shape}")
    return runs_x, runs_y


def _runs(name: str, scores: Any) -> np.ndarray:
    array = _finite(name, scores)
    if array.ndim not in (1, 2) or not array.size:
        raise ShapeError(f"{name} must have shape (runs,) or (runs, tasks) with at least one score, got {array.shape}")
    return array.reshape(len(array), -1)


def _finite(name: str, values: Any) -> np.ndarray:
    try:
        array = to_numpy(name, values).astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numbers, in rows that are equally long, got {values!r}") from error
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array
