"""Bootstrap confidence intervals: statistics of data sets that are drawn from the data, with replacement.

Efron and Tibshirani 1993, *An introduction to the bootstrap*; Davison and Hinkley 1997, *Bootstrap methods and their
application*, chapter 5.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from metaroll.checks import check_fraction, check_whole, described, takes_arguments
from metaroll.errors import ShapeError, unknown_name
from metaroll.seeding import as_generator

__all__ = ["Interval", "bca_bounds", "bootstrap_ci", "interval_bounds", "resample_blocks", "resamples"]

Generator = np.random.Generator | int | Sequence[int] | None
Statistic = Callable[..., Any]

_METHODS = ("basic", "percentile")

_BLOCK_NUMBERS = 1 << 20
"""Numbers of all resamples that are held at once."""

_ROUNDING = 1e-13
"""Standard errors below this share of the statistic are rounding errors of 0."""


class Interval(NamedTuple):
    """Bounds of a confidence interval; NaN if the data do not determine it (a single task)."""

    low: float
    high: float


def bootstrap_ci(
    data: np.ndarray,
    stat_fcn: Statistic,
    num_reps: int,
    alpha: float,
    ci_sides: int,
    bias_correction: bool = False,
    studentized: bool = False,
    seed: Generator = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A statistic of the data, and its bootstrap confidence interval.

    The basic interval (also called empirical, or reverse percentile): with ``q`` the quantiles of ``stat* - stat`` over
    the resamples, it is ``[stat - q_{1-a}, stat - q_a]``. Studentized (bootstrap-t), with ``q`` those of
    ``(stat* - stat) / se*``, it is ``[stat - q_{1-a} se, stat - q_a se]``: wider, and closer to its level for few
    samples. ``a`` is ``alpha / 2`` for two sides, ``alpha`` for one.

    Args:
        data: n samples, shape ``(n,)``, or d columns of them, shape ``(n, d)``; rows are resampled as a whole.
        stat_fcn: The statistic, called as ``stat_fcn(x, axis=0)`` like NumPy's functions.
        num_reps: Number of resamples.
        alpha: The interval is to hold the true value with probability ``1 - alpha``; in (0, 1).
        ci_sides: 2, or 1: each bound then holds on its own with probability ``1 - alpha``; both are returned.
        bias_correction: Return ``2 stat - mean(stat*)`` as the statistic. The interval does not change. Less
            bias may cost variance, most of all with few samples.
        studentized: Whether to divide by standard errors. They are ``std / sqrt(n)`` for ``np.mean``. For any other
            statistic they are jackknife estimates, with n times the work, and meaningless where the statistic jumps
            (quantiles).
        seed: Seed of the resampling, or a generator; ``None`` means fresh entropy.

    Returns:
        The statistic, the lower and the upper bounds, shape ``(d,)`` each (``(1,)`` for data of shape ``(n,)``). A
        column without information about the spread has the bounds -inf and inf: a single sample (that is not NaN), and,
        studentized, samples that are all alike, or so few that too many resamples are. Resamples whose statistic is
        NaN, as those of nothing but NaN are for ``np.nanmean``, do not count.

    Raises:
        TypeError: ``data`` is not an array of real numbers, or ``stat_fcn`` has another signature.
        ShapeError: ``data`` or the statistic have another shape.
        ValueError: The statistic of a column with a NaN is NaN. One that leaves them out, as ``np.nanmean``, is not.

    Note:
        The statistic is that of the data, not the mean of the replications as documented (Pyrado computes the former).
    """
    columns = _columns(data)
    _check_statistic(stat_fcn, columns)
    num_reps = check_whole("num_reps", num_reps)
    tail = check_fraction("alpha", alpha)
    if isinstance(ci_sides, bool) or not np.isscalar(ci_sides) or ci_sides not in (1, 2):
        raise ValueError(f"ci_sides must be 1 or 2, got {described(ci_sides)}")
    tail = tail / 2.0 if ci_sides == 2 else tail
    try:
        generator = as_generator(seed)
    except (TypeError, ValueError) as error:
        raise type(error)(f"seed must be a whole number of at least 0, a generator or None, got {seed!r}") from error

    stat = _apply(stat_fcn, columns[None])[0]
    spoilt = np.flatnonzero(np.isnan(stat) & np.isnan(columns).any(axis=0))
    if spoilt.size:
        at = int(np.flatnonzero(np.isnan(columns[:, spoilt[0]]))[0])
        where = f"[{at}]" if data.ndim == 1 else f"[{at}, {spoilt[0]}]"
        raise ValueError(
            f"data{where} is NaN, and so is the statistic: leave such samples out, or take one that does, as np.nanmean"
        )
    blocks = []
    for block in resamples(columns, num_reps, generator):
        error = _standard_error(stat_fcn, block) if studentized and len(columns) > 1 else None
        blocks.append((_apply(stat_fcn, block), error))
    replications = np.concatenate([replication for replication, _ in blocks])

    if len(columns) == 1:
        low, high = np.where(np.isnan(stat), math.nan, [[-math.inf], [math.inf]])
    elif studentized:
        errors = np.concatenate([error for _, error in blocks])
        low, high = _studentized(stat, _standard_error(stat_fcn, columns[None])[0], replications, errors, tail)
        low, high = _without_degenerate(columns, stat, low, high)
    else:
        low, high = _in_known(lambda values, entry: interval_bounds(entry, values, tail), replications, stat)
    alone = ((~np.isnan(columns)).sum(axis=0) < 2) & ~np.isnan(stat)
    low, high = np.where(alone, -math.inf, low), np.where(alone, math.inf, high)
    if not bias_correction:
        return stat, low, high
    known = ~np.isnan(replications)  # without resamples of NaN alone
    return 2.0 * stat - replications.mean(axis=0, where=True if known.all() else known), low, high


def resamples(data: np.ndarray, num_reps: int, generator: Generator = None) -> Iterator[np.ndarray]:
    """Blocks of data sets that are drawn from the rows of ``data (n, ...)``, shape ``(block, n, ...)``.

    Together they are ``num_reps``, the same as those of ``scipy.stats.bootstrap`` with the same generator.
    """
    n = len(data)
    for size, drawn in resample_blocks(num_reps, data.size, generator):
        yield data[drawn.integers(0, n, size=(size, n))]


def resample_blocks(num_reps: int, numbers: int, generator: Generator) -> Iterator[tuple[int, np.random.Generator]]:
    """Sizes of blocks that together make ``num_reps`` resamples of ``numbers`` numbers, with the generator.

    The size of blocks does not affect resamples: a generator gives the same integers at once or in parts.
    """
    drawn = as_generator(generator)
    size = max(1, _BLOCK_NUMBERS // max(1, numbers))
    for start in range(0, num_reps, size):
        yield min(size, num_reps - start), drawn


def interval_bounds(
    estimate: Any, replications: np.ndarray, tail: float, method: str = "basic"
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds, shape ``(...)``, from replications ``(num_reps, ...)`` of an estimate ``(...)``.

    Args:
        estimate: The statistic of the data.
        replications: The statistic of each resample.
        tail: Probability outside of each bound.
        method: ``"percentile"``: quantiles of the replications; ``"basic"``: these, mirrored at the estimate.

    Raises:
        UnknownNameError: There is no such method.
    """
    if method not in _METHODS:
        raise unknown_name("method", str(method), _METHODS)
    low, high = np.quantile(replications, [tail, 1.0 - tail], axis=0)
    return (low, high) if method == "percentile" else (2.0 * estimate - high, 2.0 * estimate - low)


def bca_bounds(
    estimate: Any, replications: np.ndarray, left_out: np.ndarray, tail: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the BCa interval (bias-corrected and accelerated), which follow skewed data and stay in their range.

    They are the quantiles of the replications at ``Phi(z0 + (z0 + z) / (1 - a (z0 + z)))`` for ``z`` the normal
    quantiles of ``tail`` and ``1 - tail``, ``z0 = Phi^-1(share of replications below the estimate)`` (ties count half)
    and ``a = sum(d^3) / (6 sum(d^2)^(3/2))`` of ``d = mean(left_out) - left_out`` (Efron 1987, *Better bootstrap
    confidence intervals*; Efron and Tibshirani 1993, 14.10 and 14.15).

    Args:
        estimate: The statistic of the data, shape ``(D,)``.
        replications: The statistic of each resample, ``(num_reps, D)``.
        left_out: The statistic without each of the n samples, ``(n, D)``.
        tail: Probability outside of each bound.

    Returns:
        Lower and upper bounds, ``(D,)``; of columns without bias or acceleration (all replications to one side, equal
        samples) the percentile bounds.
    """
    estimate = np.asarray(estimate, dtype=np.float64)
    low, high = interval_bounds(estimate, replications, tail, "percentile")
    below = ((replications < estimate).mean(axis=0) + (replications <= estimate).mean(axis=0)) / 2.0
    delta = left_out.mean(axis=0) - left_out
    size = (delta**2).sum(axis=0) ** 1.5
    normal = NormalDist()
    for i in np.flatnonzero((below > 0.0) & (below < 1.0) & (size > 0.0)):
        bias, acceleration = normal.inv_cdf(float(below[i])), float((delta[:, i] ** 3).sum() / (6.0 * size[i]))
        shifted = (bias + normal.inv_cdf(share) for share in (tail, 1.0 - tail))
        shares = [normal.cdf(bias + z / (1.0 - acceleration * z)) for z in shifted]
        low[i], high[i] = np.quantile(replications[:, i], shares)
    return low, high


def _columns(data: Any) -> np.ndarray:
    if not isinstance(data, np.ndarray):
        raise TypeError(f"data must be a NumPy array, got {type(data).__name__}; np.asarray makes one")
    if data.dtype.kind not in "buif":
        raise TypeError(f"data must hold real numbers, got dtype {data.dtype}")
    if data.ndim not in (1, 2) or not data.size:
        raise ShapeError(f"data must have shape (n,) or (n, d) with at least one sample, got {data.shape}")
    if np.isinf(data).any():
        raise ValueError("data must not hold infinite values: no statistic of their spread exists")
    return data.astype(np.float64).reshape(len(data), -1)


def _check_statistic(stat_fcn: Any, columns: np.ndarray) -> None:
    if not callable(stat_fcn):
        raise TypeError(f"stat_fcn must be callable as f(x, axis=0), like np.mean, got {stat_fcn!r}")
    if not takes_arguments(stat_fcn, columns, axis=0):
        raise TypeError(
            "stat_fcn must be callable as f(x, axis=0), like np.mean or lambda x, axis: np.quantile(x, 0.9, axis); "
            f"got {stat_fcn!r}, which does not take these arguments"
        )


def _apply(stat_fcn: Statistic, block: np.ndarray) -> np.ndarray:
    """The statistic of data sets ``(block, n, d)``, shape ``(block, d)``."""
    size, _, dim = block.shape
    # As documented, the samples lie along axis 0, whatever else the array holds.
    samples = np.moveaxis(block, 0, 2)
    with warnings.catch_warnings():
        if np.isnan(block).any():  # np.nanmean warns of resamples that hold nothing else
            warnings.simplefilter("ignore", RuntimeWarning)
        result = np.asarray(stat_fcn(samples, axis=0), dtype=np.float64)
    if result.shape != (dim, size):
        expected, given = (dim, size), result.shape
        raise ShapeError(
            f"stat_fcn(x, axis=0) must give shape {expected} for x of shape {(block.shape[1], *expected)}, got {given}"
        )
    return result.T


def _standard_error(stat_fcn: Statistic, block: np.ndarray) -> np.ndarray:
    """Standard error of the statistic of data sets ``(block, n, d)``, shape ``(block, d)``."""
    n = block.shape[1]
    if stat_fcn is np.mean:
        return block.std(axis=1, ddof=1) / math.sqrt(n)  # what the jackknife gives for the mean
    left_out = np.stack([_apply(stat_fcn, np.delete(block, i, axis=1)) for i in range(n)])
    return math.sqrt(n - 1) * left_out.std(axis=0)


def _studentized(
    stat: np.ndarray, error: np.ndarray, replications: np.ndarray, errors: np.ndarray, tail: float
) -> tuple[np.ndarray, np.ndarray]:
    delta = replications - stat
    scale = np.abs(replications).max(axis=0, where=~np.isnan(replications), initial=0.0)
    errors = np.where((errors > _ROUNDING * scale) | np.isnan(errors), errors, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A resample of equal samples that misses the statistic lies infinitely many standard errors away from it.
        t = np.where((delta == 0.0) & (errors == 0.0), 0.0, delta / errors)
        low, high = _in_known(lambda values, _: np.quantile(values, [tail, 1.0 - tail], axis=0), t, stat)
        return stat - high * error, stat - low * error


def _in_known(
    bounds: Callable[[np.ndarray, Any], Any], replications: np.ndarray, stat: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``bounds(values, entry of stat)`` of the values of each column that are not NaN; NaN if there is none."""
    if not np.isnan(replications).any():
        return bounds(replications, stat)
    low, high = np.full_like(stat, math.nan), np.full_like(stat, math.nan)
    for i, column in enumerate(replications.T):
        values = column[~np.isnan(column)]
        if values.size and not math.isnan(stat[i]):
            low[i], high[i] = bounds(values, stat[i])
    return low, high


def _without_degenerate(
    columns: np.ndarray, stat: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds with -inf and inf for constant columns, and where quantiles of infinite values came out as NaN."""
    known = ~np.isnan(stat)
    constant = np.all(columns == columns[0], axis=0)
    low = np.where(known & (constant | np.isnan(low)), -math.inf, low)
    return low, np.where(known & (constant | np.isnan(high)), math.inf, high)
