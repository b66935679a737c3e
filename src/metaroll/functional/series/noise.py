"""Sensor noise of recorded series: estimates of its deviation, and denoised series.

All estimates assume white measurement noise, without process noise. Each is an upper bound, since motion not explained
by its model counts as noise: use the smallest of several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from metaroll.errors import ShapeError
from metaroll.functional.regression import polynomial_terms

__all__ = [
    "deviation",
    "difference_noise",
    "difference_residuals",
    "fitted_prediction_residuals",
    "informative_spans",
    "interpolation_residuals",
    "noise_differs",
    "smoothed_rows",
]

_TO_DEVIATION = 1.4826022185056018
"""Deviation of a normal distribution over its median absolute value: ``1 / Phi^-1(3/4)``."""
_EDGE, _WITHIN = 2.0, 0.92053693
"""Deviations at which residuals are clipped, and E[min(z^2, 4)] of a normal distribution."""
_ORDERS = range(1, 8)
_SHARING = 10
"""Iterations that divide the variance of a residual among the channels that contribute to it."""
_WEIGHINGS = 5
_SAME_NOISE = 1.1
"""Residuals of a smooth curve count as pure noise up to this factor of the variance."""
_STEP = 1e-4
_LITTLE = 0.01
"""Share of a change's mean square up to which noise is negligible."""
_LOG_ERROR, _SURE, _APART = 0.75, 4.0, 1.25
"""Standard error of a log deviation times the root of its rows; number of errors, and factor, of a clear difference."""
_MOST_PER_ROW = 0.4
"""Maximum number of terms of a regression per row: with more, too little is left to estimate noise from."""


def deviation(residuals: np.ndarray) -> np.ndarray:
    """Standard deviations ``(C,)`` of residuals ``(N, C)`` around 0; robust against outliers.

    A twentieth of outliers makes them a tenth too large. Their median gives an initial scale; then residuals are
    clipped at two deviations (one step of Huber's second proposal, 1964), with two thirds of the standard error of the
    median. NaN marks unknown residuals; if all are, the deviation is infinite.
    """
    known = np.isfinite(residuals)
    if not known.all() or not len(residuals):
        columns = [column[of, None] for column, of in zip(residuals.T, known.T, strict=True)]
        return np.array([float(deviation(one)[0]) if len(one) else np.inf for one in columns])
    edge = _EDGE * _TO_DEVIATION * np.median(np.abs(residuals), axis=0)
    clipped = np.minimum(np.abs(residuals), edge)
    return np.sqrt(np.square(clipped).mean(axis=0) / _WITHIN)


def difference_noise(series: Sequence[np.ndarray]) -> np.ndarray:
    """Noise of channels ``(C,)`` from differences: the deviation of ``difference_residuals``."""
    return deviation(np.concatenate(difference_residuals(series)))


def difference_residuals(series: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Differences of order 1 to 7, scaled to the size of the noise; for each channel those with the smallest deviation.

    The difference of order k of white noise has its variance times the sum of the squares of the binomial
    coefficients, (2 k)! / k!^2 (Savitzky-Golay residuals of the polynomials through k points are these differences).

    Args:
        series: Recorded channels ``(T, C)``, one or many.

    Returns:
        Shape ``(T, C)``, like ``series``; NaN in the last rows, and everywhere if a series is too short.
    """
    best = [np.full(one.shape, np.nan) for one in series]
    for order in _ORDERS:
        residuals = [np.full(one.shape, np.nan) for one in series]
        for one, target in zip(series, residuals, strict=True):
            if len(one) > 2 * order:
                target[:-order] = np.diff(one, n=order, axis=0) / math.sqrt(math.comb(2 * order, order))
        best = _less(residuals, best)
    return best


def interpolation_residuals(series: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Residuals of each row given its neighbors and the commands between them, scaled to the size of the noise.

    A row is regressed, by least squares, on its two neighbors and the two commands, linearly and (with enough rows)
    with all their products, so that commands that change at every step do not count as noise. The residual of channel c
    consists of its own noise and that of the neighbors, which the regression passes on with its slopes g:
    ``v_c = s_c^2 + sum_j E[g_cj^2] s_j^2`` (errors in variables). Whatever least squares cannot explain remains in the
    estimate.

    Args:
        series: Recorded channels ``(T, C)``, one or many.
        inputs: Actions from each row on, ``(T, A)``.

    Returns:
        Shape ``(T, C)``, like ``series``; NaN in the first and last rows, and everywhere if there are too few rows.
    """
    best = [np.full(one.shape, np.nan) for one in series]
    rows = [(x, u) for x, u in zip(series, inputs, strict=True) if len(x) >= 3]
    if not rows:
        return best
    center, scale = _scale([x for x, _ in rows])
    _, input_scale = _scale([u for _, u in rows])
    inner = np.concatenate([(x[1:-1] - center) / scale for x, _ in rows])
    around = []
    for x, u in rows:
        near, pushed = (x - center) / scale, u / input_scale
        around.append(np.concatenate([near[:-2], near[2:], pushed[:-2], pushed[1:-1]], axis=1))
    given = np.concatenate(around)
    for degree in (1, 2):
        expand = partial(polynomial_terms, degree=degree)
        if expand(given[:1]).shape[1] <= _MOST_PER_ROW * len(given):
            left, begin = scale * _regressed(given, inner, expand), 0
            residuals = [np.full(one.shape, np.nan) for one in series]
            for target in residuals:
                if len(target) >= 3:
                    target[1:-1] = left[begin : begin + len(target) - 2]
                    begin += len(target) - 2
            best = _less(residuals, best)
    return best


def fitted_prediction_residuals(
    errors: np.ndarray, sensitivities: np.ndarray, gains: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Residuals of a simulator's predictions of the next row, scaled to the size of the noise, and a parameter update.

    With parameters theta near the true ones, and rows that are noisy before (e) and after the step (e'), errors are
    ``e' - G e + S (theta_0 - theta)``. The last term is removed by least squares (weighted by the residuals, so that
    single unexplained steps do not count). The rest of channel c counts entirely as its own noise, of the row before
    and after, ``(1 + G_cc^2) s_c^2``: an upper bound.

    Args:
        errors: Next row less prediction, ``(N, C)``.
        sensitivities: S, derivatives of predictions by d parameters, ``(N, C, d)``.
        gains: G, derivatives of predictions by the row before, ``(N, C, C)``.

    Returns:
        Residuals ``(N, C)``, whose deviations (``deviation``) are those of the noise, and ``theta - theta_0 (d,)``.
    """
    if errors.shape != sensitivities.shape[:2] or gains.shape != (*errors.shape, errors.shape[1]):
        raise ShapeError(
            f"sensitivities (N, C, d) and gains (N, C, C) must belong to errors (N, C), got {sensitivities.shape}, "
            f"{gains.shape} and {errors.shape}"
        )
    own = 1.0 / np.sqrt(1.0 + np.einsum("ncc->nc", gains) ** 2)
    left, change, tiny = errors, np.zeros(sensitivities.shape[2]), np.finfo(float).tiny
    for _ in range(_WEIGHINGS if sensitivities.shape[2] else 0):
        weights = own / np.maximum(deviation(left * own), tiny)
        weights = weights / np.sqrt(np.maximum(1.0, np.abs(left) * weights / 1.5))  # Huber's
        rows = (sensitivities * weights[:, :, None]).reshape(-1, sensitivities.shape[2])
        change = np.linalg.lstsq(rows, (errors * weights).reshape(-1), rcond=None)[0]
        left = errors - sensitivities @ change
    return left * own, change


def noise_differs(noise: np.ndarray, each: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Channels whose noise surely differs between rollouts, bool ``(C,)``.

    Args:
        noise: Deviations of all rollouts together, ``(C,)``.
        each: Deviations of each of R rollouts, ``(R, C)``, estimated in the same way.
        rows: Numbers of rows that ``each`` was estimated from, ``(R, C)``.
    """
    tiny = np.finfo(float).tiny
    apart = np.abs(np.log(np.maximum(each, tiny)) - np.log(np.maximum(noise, tiny)))
    surely = apart > math.log(_APART) + _SURE * _LOG_ERROR / np.sqrt(np.maximum(rows, 1))
    return np.asarray(surely.any(axis=0))


def informative_spans(series: Sequence[np.ndarray], noise: np.ndarray, most: int) -> tuple[int, ...]:
    """Spans (in rows) for changes: 1, 2, 4, ... until noise is 1 % of their mean square.

    Changes over k rows have noise variance ``2 s^2`` for any k, while the motion accumulates. Without noise, k = 1
    suffices.

    Args:
        series: Recorded channels ``(T, C)``, one or many.
        noise: Deviation s of each channel, ``(C,)``.
        most: Largest span; a span is also at most a quarter of the shortest series.
    """
    spans, moving = [1], noise > 0.0
    limit = min(most, min(len(one) for one in series) // 4)
    while moving.any() and 2 * spans[-1] <= limit:
        changes = np.concatenate([one[spans[-1] :] - one[: -spans[-1]] for one in series])
        if (2.0 * np.square(noise) <= _LITTLE * np.square(changes).mean(axis=0))[moving].all():
            break
        spans.append(2 * spans[-1])
    return tuple(spans)


def smoothed_rows(
    series: np.ndarray, rows: Sequence[int], noise: np.ndarray, reach: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    """Denoised values of some rows, and the deviations of their remaining noise.

    A parabola is fitted to the rows around by least squares (Savitzky and Golay 1964), with the same number on each
    side, or all on one side at an end of the series. That number is the largest whose residuals do not exceed the known
    noise over the whole series, nor exceed it clearly at the row itself. If the motion is too quick for this (commands
    that change at every step), rows are not changed.

    Args:
        series: One recorded series, ``(T, C)``.
        rows: Numbers of n rows.
        noise: Deviation of each channel, ``(C,)``.
        reach: Maximum number of rows on each side.

    Returns:
        Values and deviations, ``(n, C)`` each.
    """
    values, stds = series[list(rows)].astype(np.float64), np.tile(noise, (len(rows), 1)).astype(np.float64)
    fits = noise > 0.0
    for size in range(2, reach + 1):
        if len(series) < 2 * size + 1 or not fits.any():
            break
        fits = fits & (_left_over(series, size) <= _SAME_NOISE * noise**2)
        for place, row in enumerate(rows):
            first = min(max(0, row - size), len(series) - 2 * size - 1)
            part = series[first : first + 2 * size + 1]
            powers = np.vander(np.arange(first, first + len(part)) - float(row), 3, increasing=True)
            fit = np.linalg.pinv(powers)
            free = len(part) - 3
            left = ((part - powers @ (fit @ part)) ** 2).sum(axis=0)
            narrower = noise * np.linalg.norm(fit[0])
            better = fits & (left <= (free + 2.0 * math.sqrt(2.0 * free)) * noise**2) & (narrower < stds[place])
            values[place][better] = (fit[0] @ part)[better]
            stds[place][better] = narrower[better]
    return values, stds


def _left_over(series: np.ndarray, size: int) -> np.ndarray:
    """Residual variance ``(C,)`` of parabolas through ``2 size + 1`` rows, per degree of freedom."""
    windows = np.lib.stride_tricks.sliding_window_view(series, 2 * size + 1, axis=0)
    powers = np.vander(np.arange(-size, size + 1.0), 3, increasing=True)
    left = windows - windows @ (powers @ np.linalg.pinv(powers))
    return (left**2).sum(axis=2).mean(axis=0) / (2 * size - 2)


def _scale(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    rows = np.concatenate(parts)
    spread = rows.std(axis=0)
    return rows.mean(axis=0), np.where(spread > 0.0, spread, 1.0)


def _less(residuals: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> list[np.ndarray]:
    """For each channel, the residuals of whichever set has the smaller deviation."""
    better = deviation(np.concatenate(residuals)) < deviation(np.concatenate(others))
    return [np.where(better, one, other) for one, other in zip(residuals, others, strict=True)]


def _regressed(given: np.ndarray, wanted: np.ndarray, expand: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Residuals of ``wanted (N, C)`` after a regression on ``given``, scaled to the size of the noise.

    The neighbors before and after each row are the first 2 C columns of ``given``.
    """
    table, num_channels = expand(given), wanted.shape[1]
    # Terms are standardized: singular values below this threshold belong to directions that do not vary.
    weights, _, rank, _ = np.linalg.lstsq(table, wanted, rcond=1e-10)
    freedom = max(1.0 - int(rank) / len(given), 1.0 - _MOST_PER_ROW)
    left = wanted - table @ weights
    size = deviation(left)
    variance = size**2 / freedom
    passed_on = np.eye(num_channels)
    for column in range(2 * num_channels):
        moved = given.copy()
        moved[:, column] += _STEP
        slopes = (expand(moved) - table) @ weights / _STEP
        passed_on[:, column % num_channels] += np.median(slopes**2, axis=0)
    noise = variance / np.diag(passed_on)  # upper bounds, as if the other channels had no noise
    for _ in range(_SHARING):
        noise = noise * variance / np.maximum(passed_on @ noise, np.finfo(float).tiny)
    return left * (np.sqrt(noise) / np.maximum(size, np.finfo(float).tiny))
