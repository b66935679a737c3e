"""Statistics for few runs: interquartile means, probability of improvement, shares of successes, sign flips.

Agarwal et al. 2021, *Deep reinforcement learning at the edge of the statistical precipice*, arXiv:2108.13264.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.special import stdtrit

from metaroll.checks import check_fraction, check_whole, described
from metaroll.errors import ShapeError
from metaroll.functional.arrays import to_numpy
from metaroll.functional.bootstrap import Generator, Interval, interval_bounds, resample_blocks
from metaroll.seeding import as_generator

__all__ = [
    "fewest_differences",
    "interquartile_mean",
    "interval_of_improvement",
    "interval_of_iqm",
    "probability_of_improvement",
    "sign_flip_interval",
    "sign_flip_p_value",
    "wilson_interval",
    "wilson_interval_of_tasks",
]

_MOST_EXACT = 12
"""Maximum number of differences for enumeration of all subsets: 4,095."""
_NUM_SUBSETS = 9_999
"""Number of random subsets otherwise: a valid interval as well (Hartigan 1969, section 3)."""
_BLOCK = 1 << 22
_NUM_REPS = 10_000


def interquartile_mean(scores: Any) -> float:
    """Mean of the middle half of all ``scores``, of any shape.

    Of n scores, ``n // 4`` are trimmed at either end, as by ``scipy.stats.trim_mean(scores, 0.25, axis=None)``.

    Raises:
        ShapeError: ``scores`` is empty.
        TypeError: ``scores`` are not numbers.
        ValueError: A score is not finite.
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
    """Stratified bootstrap interval of the ``interquartile_mean``: runs are resampled within each task.

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
        TypeError: ``scores`` are not numbers.
        ValueError: A score is not finite, or ``confidence`` not in (0, 1).
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
    """Probability that a run of X scores above one of Y in the same task, ``P(X > Y) + P(X = Y) / 2``, mean over tasks.

    Args:
        x: Scores of X, one row per run, one column per task, shape ``(N_x, M)``; ``(N_x,)`` is a single task.
        y: Scores of Y in the same tasks, shape ``(N_y, M)`` or ``(N_y,)``.

    Raises:
        ShapeError: ``x`` and ``y`` have different tasks.
        TypeError: ``x`` or ``y`` are not numbers.
        ValueError: A score is not finite.
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
    """Stratified bootstrap interval of ``probability_of_improvement``: runs of X and Y are resampled within tasks.

    Arguments as of ``interval_of_iqm``; NaN if X or Y has a single run.

    Raises:
        ShapeError: ``x`` and ``y`` have different tasks.
        TypeError: ``x`` or ``y`` are not numbers.
        ValueError: A score is not finite, or ``confidence`` not in (0, 1).
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
    (Wilson 1927). It stays within [0, 1] and has positive width even if all or none succeed.

    Args:
        successes: Numbers of successes k, from 0 to ``trials``; a number, or an array of any shape.
        trials: Numbers of trials n; same shape as ``successes``, or broadcastable. 0 trials give the bounds 0 and 1.
        confidence: Level of the interval.

    Returns:
        Lower and upper bounds: two numbers, or two arrays.

    Raises:
        TypeError: ``successes`` or ``trials`` are not numbers.
        ValueError: They are not integers, there are more successes than trials, or ``confidence`` is not in (0, 1).
    """
    k, n = np.broadcast_arrays(_finite("successes", successes), _finite("trials", trials))
    wrong = (k < 0) | (k > n) | (k != np.round(k)) | (n != np.round(n))
    if wrong.any():
        raise ValueError(
            "successes and trials must be whole numbers with 0 <= successes <= trials, "
            f"got {k[wrong][0]:g} successes in {n[wrong][0]:g} trials"
        )
    return _wilson(k, n, confidence)


def wilson_interval_of_tasks(rates: Any, trials: int, *, confidence: float = 0.95) -> Interval:
    """Wilson's interval of the mean of shares of successes in M tasks, whose trials need not be independent.

    ``n = min(N, M p (1 - p) / s^2) (z / t)^2`` stands for the number of trials N, with ``s^2`` the variance of the
    shares over tasks, and t the quantile with M - 1 degrees of freedom (Korn and Graubard 1998, *Confidence intervals
    for proportions with small expected number of positive counts estimated from survey data*; with Wilson's interval
    Dean and Pagano 2015). Perfectly correlated trials count once; if all tasks have only successes, or none, a task
    counts as a trial.

    Args:
        rates: Share of successes in each task, ``(M,)``.
        trials: Number of trials N in all tasks together.
        confidence: Level of the interval.

    Raises:
        ShapeError: ``rates`` is not a vector.
        TypeError, ValueError: ``rates`` are not shares.
    """
    shares = _finite("rates", rates)
    if shares.ndim != 1 or not shares.size:
        raise ShapeError(f"rates must have shape (M,) with at least one task, got {shares.shape}")
    if (shares < 0.0).any() or (shares > 1.0).any():
        raise ValueError(f"rates must be shares from 0 to 1, got {shares[(shares < 0.0) | (shares > 1.0)][0]:g}")
    number, rate = len(shares), float(shares.mean())
    effective = float(number)
    if 0.0 < rate < 1.0 and number > 1:
        spread = float(shares.var(ddof=1))
        tail = 0.5 + check_fraction("confidence", confidence) / 2.0
        narrower = (NormalDist().inv_cdf(tail) / float(stdtrit(number - 1, tail))) ** 2
        effective = narrower * (min(trials, number * rate * (1.0 - rate) / spread) if spread else trials)
    low, high = _wilson(np.array(rate * effective), np.array(effective), confidence)
    return Interval(float(low), float(high))


def _wilson(k: np.ndarray, n: np.ndarray, confidence: float) -> tuple[Any, Any]:
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
    """Resamples ``(size, N, M)`` of ``runs (N, M)``, drawn separately in each column."""
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
        raise TypeError(f"{name} must be numbers, in rows that are equally long, got {described(values)}") from error
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


# ----------------------------------------------------------------------------------------------------------- sign flips
# If differences are symmetric about mu, each sign pattern of d - mu is as likely as any other. So the means of all
# 2^M - 1 subsets of M differences, with -inf and inf, cut the line into pieces that hold mu with equal probability
# (Hartigan 1969, Using subsample values as typical values, theorem 1): exact for any symmetric distribution, heavy
# tails included, and for any number of differences. The interval that they give lies above 0 where the one-sided test
# by sign flips (Fisher 1935) rejects, so a printed interval and a verdict cannot disagree.


def fewest_differences(tail: float = 0.025) -> int:
    """Number of differences needed for a bound with probability ``tail`` beyond it: six for 2.5 %."""
    return math.ceil(-math.log2(check_fraction("tail", tail)))


def sign_flip_interval(differences: Any, tail: float = 0.025, seed: Any = 0) -> Interval:
    """Bounds of the center of paired differences ``(M,)``, each with probability ``tail`` beyond it at most.

    Args:
        differences: Of M independent pairs.
        tail: Probability beyond each bound.
        seed: Seed of the random subsets, used if there are too many to enumerate.

    Returns:
        NaN bounds if there are fewer than ``fewest_differences(tail)``.

    Raises:
        ShapeError: ``differences`` is not a vector.
    """
    values = _checked(differences)
    if len(values) < fewest_differences(tail):
        return Interval(math.nan, math.nan)
    means = np.sort(_subset_means(values, seed))
    rank = int(tail * (len(means) + 1) * (1.0 + 1e-12))
    return Interval(float(means[rank - 1]), float(means[-rank]))


def sign_flip_p_value(differences: Any, seed: Any = 0) -> float:
    """One-sided p value: how often differences ``(M,)`` with random signs have at least the observed mean.

    ``p = (1 + #{subsets with a mean of at most 0}) / (1 + #subsets)``: flipping the signs of a subset does not lower
    the sum of all where its own sum is at most 0. The empty one, which flips nothing, counts.

    Args:
        differences: Of M independent pairs.
        seed: See ``sign_flip_interval``.

    Raises:
        ShapeError: ``differences`` is not a vector.
    """
    means = _subset_means(_checked(differences), seed)
    return float((1 + np.count_nonzero(means <= 0.0)) / (1 + len(means)))


def _checked(differences: Any) -> np.ndarray:
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise ShapeError(f"differences must have shape (M,) with M >= 1, got {values.shape}")
    return values


def _subset_means(values: np.ndarray, seed: Any) -> np.ndarray:
    """Means of all nonempty subsets, or of a random sample of them."""
    count = len(values)
    if count <= _MOST_EXACT:
        members = (np.arange(1, 2**count)[:, None] >> np.arange(count)) & 1
        return members @ values / members.sum(axis=1)
    generator, means = as_generator(seed), []
    size = max(1, _BLOCK // count)
    for start in range(0, _NUM_SUBSETS, size):
        members = generator.integers(0, 2, size=(min(size, _NUM_SUBSETS - start), count), dtype=np.int8)
        sizes = members.sum(axis=1, dtype=np.int64)
        # An empty subset (at most 2^-13 of them) has no mean: use that of all, which is always a typical value.
        means.append(np.where(sizes > 0, members @ values / np.maximum(sizes, 1), values.mean()))
    return np.concatenate(means)
