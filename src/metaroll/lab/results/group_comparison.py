"""Compares groups of runs over their seeds: interquartile means, differences, probability of improvement."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaroll.errors import ShapeError
from metaroll.functional.bootstrap import Interval, interval_bounds, resample_blocks
from metaroll.functional.robust_statistics import (
    interquartile_mean,
    interval_of_improvement,
    interval_of_iqm,
    probability_of_improvement,
)
from metaroll.training.evaluation.evaluation_metrics import interval_of_mean

__all__ = ["GroupComparison", "GroupSummary", "compare_groups", "summarize_group"]

_NUM_REPS, _TAIL = 10_000, 0.025
# With few runs the basic bootstrap gives bounds beyond all of them, and shares beyond 0 and 1; Agarwal et al. (2021)
# recommend percentiles.
_METHOD = "percentile"


@dataclass(frozen=True)
class GroupSummary:
    """Scores of a group; all intervals are 95 % percentile bootstrap intervals over runs, NaN for a single run.

    Attributes:
        mean: Mean over runs and tasks.
        mean_interval: Its interval.
        iqm: Interquartile mean over runs and tasks.
        iqm_interval: Its interval, stratified by task.
    """

    mean: float
    mean_interval: Interval
    iqm: float
    iqm_interval: Interval


@dataclass(frozen=True)
class GroupComparison:
    """Comparison of X with Y; 95 % percentile bootstrap intervals over runs (or pairs of runs), NaN for a single run.

    Attributes:
        paired: Whether runs with the same seed were paired.
        difference: Mean score of X minus that of Y.
        difference_interval: Its interval.
        improvement: Probability that a run of X scores above one of Y (of the same pair) in the same task; ties count
            half. NaN for a single run of each.
        improvement_interval: Its interval.
    """

    paired: bool
    difference: float
    difference_interval: Interval
    improvement: float
    improvement_interval: Interval


def summarize_group(scores: Any) -> GroupSummary:
    """Summary of ``scores (runs, tasks)``, or of one score per run, ``(runs,)``."""
    runs = _runs(scores)
    mean = runs.mean(axis=1)
    robust = interval_of_iqm(runs, method=_METHOD, generator=0)
    return GroupSummary(float(mean.mean()), interval_of_mean(mean, method=_METHOD), interquartile_mean(runs), robust)


def compare_groups(x: Any, y: Any, *, paired: bool) -> GroupComparison:
    """Compare the scores of two groups, ``(runs, tasks)`` each with the same tasks, or ``(runs,)``.

    Args:
        x: Scores of X.
        y: Scores of Y.
        paired: Whether run i of X and run i of Y form a pair (the same seed, so the same tasks and starts).

    Raises:
        ShapeError: The shapes of the groups do not match.
        ValueError: A score is NaN or infinite, so that it would be neither a win nor a loss.
    """
    first, second = _runs(x), _runs(y)
    if first.shape[1] != second.shape[1] or (paired and len(first) != len(second)):
        raise ShapeError(
            f"x and y must have the same tasks{' and pairs of runs' if paired else ''}, got shapes {first.shape} and "
            f"{second.shape}"
        )
    difference = float(first.mean() - second.mean())
    if paired:
        wins = 0.5 * ((first > second).mean(axis=1) + (first >= second).mean(axis=1))
        bounds, likely = (interval_of_mean(v, method=_METHOD) for v in ((first - second).mean(axis=1), wins))
        known = float(wins.mean()) if len(first) > 1 else math.nan
        return GroupComparison(True, difference, bounds, known, likely)
    bounds = Interval(math.nan, math.nan)
    if min(len(first), len(second)) > 1:
        replications = np.concatenate(list(_differences(first.mean(axis=1), second.mean(axis=1))))
        bounds = Interval(*map(float, interval_bounds(difference, replications, _TAIL, _METHOD)))
    several = max(len(first), len(second)) > 1
    improvement = probability_of_improvement(first, second) if several else math.nan
    likely = interval_of_improvement(first, second, method=_METHOD, generator=0)
    return GroupComparison(False, difference, bounds, improvement, likely)


def _differences(x: np.ndarray, y: np.ndarray) -> Iterator[np.ndarray]:
    """Differences between the means of runs resampled in both groups."""
    for size, drawn in resample_blocks(_NUM_REPS, len(x) + len(y), 0):
        means = [group[drawn.integers(0, len(group), size=(size, len(group)))].mean(axis=1) for group in (x, y)]
        yield means[0] - means[1]


def _runs(scores: Any) -> np.ndarray:
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim not in (1, 2) or not array.size:
        raise ShapeError(f"scores must have shape (runs,) or (runs, tasks) with at least one score, got {array.shape}")
    if not np.isfinite(array).all():
        at = np.argwhere(~np.isfinite(array))[0].tolist()
        raise ValueError(f"scores must be finite, got {array[tuple(at)]} at {at}: leave out runs that have no score")
    return array.reshape(len(array), -1)
