"""Plausibility of measured signals: speeds against positions, spikes, values at a sensor's limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metaroll.errors import ShapeError

__all__ = ["DerivativeFit", "circle_error", "derivative_fit", "spikes", "stuck_values"]

_SPANS = (1, 2, 4, 8, 16)
"""Numbers of steps over which changes are compared: over more steps, the noise of positions matters less."""
_MOST_SPIKES = 0.02
_SIDES = 0.25
"""Minimum deviation of a spike's neighbors in the opposite direction, as a share of the spike (half if it stands
alone); the neighbors of a peak of the motion do not deviate so."""
_FEWEST, _SHARE, _BEFORE = 5, 0.01, 5.0


class DerivativeFit(NamedTuple):
    """Agreement of a position's changes with a speed.

    Attributes:
        factor: Change of the position per integral of the speed; 1 if the speed is its derivative.
        agreement: Share of the changes that this explains, from 0 to 1.
    """

    factor: float
    agreement: float


def derivative_fit(positions: Sequence[np.ndarray], speeds: Sequence[np.ndarray], dt: float) -> DerivativeFit:
    """Least squares of ``p[k+n] - p[k] = factor * integral of v`` through the origin, the integral by trapezoids.

    Among ``n`` = 1, 2, 4, 8, 16 steps it takes the one with the best agreement ``(sum xy)^2 / (sum xx sum yy)``.

    Args:
        positions: Positions of each rollout, ``(T+1,)``; angles without jumps.
        speeds: Speeds of each rollout, ``(T+1,)``.
        dt: Seconds per step.

    Returns:
        The best fit; agreement 0 if nothing moves.

    Raises:
        ShapeError: Positions and speeds differ in length.
    """
    if [len(one) for one in positions] != [len(one) for one in speeds]:
        raise ShapeError("positions and speeds must be equally long")
    best = DerivativeFit(0.0, 0.0)
    for span in _SPANS:
        xy = xx = yy = 0.0
        for position, speed in zip(positions, speeds, strict=True):
            if len(position) <= span:
                continue
            integral = np.append(0.0, np.cumsum(0.5 * dt * (speed[1:] + speed[:-1])))
            x, y = integral[span:] - integral[:-span], position[span:] - position[:-span]
            xy, xx, yy = xy + float(x @ y), xx + float(x @ x), yy + float(y @ y)
        if xx > 0.0 and yy > 0.0 and xy * xy / (xx * yy) > best.agreement:
            best = DerivativeFit(xy / xx, xy * xy / (xx * yy))
    return best


def circle_error(a: np.ndarray, b: np.ndarray) -> float:
    """Root mean square of ``a^2 + b^2 - 1``: 0 for the sine and the cosine of an angle.

    Args:
        a: Shape ``(N,)``.
        b: Shape ``(N,)``.
    """
    return float(np.sqrt(np.mean(np.square(a * a + b * b - 1.0))))


def spikes(values: np.ndarray, threshold: float = 15.0) -> np.ndarray:
    """Indices of spikes: single values that deviate from both neighbors by far more than others do.

    ``e[k] = x[k] - (x[k-1] + x[k+1]) / 2`` is compared with ``threshold`` times its robust standard deviation (1.4826
    median absolute deviations). If more than 2 % of all values deviate so, none counts. Jumps that do not return are
    no spikes, nor are peaks of the motion, as of a speed when a force changes its sign: at the neighbors of a peak
    ``e`` is small, at those of a spike it is half of the spike's, with the opposite sign.

    Args:
        values: Shape ``(N,)``.
        threshold: Standard deviations.
    """
    if len(values) < 5:
        return np.zeros(0, dtype=np.int64)
    changes = np.diff(values)
    off = 0.5 * (changes[:-1] - changes[1:])
    spread = 1.4826 * float(np.median(np.abs(off - np.median(off))))
    if spread == 0.0:  # more than half of the series is constant, or a line
        return np.zeros(0, dtype=np.int64)
    size = np.abs(off)
    around = np.maximum(np.append(0.0, size[:-1]), np.append(size[1:], 0.0))
    back = np.minimum(np.abs(changes[:-1]), np.abs(changes[1:])) > 0.5 * size
    beside = -np.sign(off) * np.stack([np.append(-off[0], off[:-1]), np.append(off[1:], -off[-1])])
    is_alone = (beside > _SIDES * size).all(axis=0) & (changes[:-1] * changes[1:] < 0.0) & back
    indices = np.flatnonzero((size > threshold * spread) & (size >= around) & is_alone)
    return indices + 1 if indices.size <= _MOST_SPIKES * len(values) else np.zeros(0, dtype=np.int64)


def stuck_values(values: np.ndarray) -> list[tuple[float, int]]:
    """The largest and smallest value with their counts, each if it is frequent enough for a sensor at its limit.

    A count is large enough from 5 entries and 1 % of all on, if it is 5 times that of any of the three values next to
    it. (Levels of a coarse sensor are more frequent at turning points, by a factor of 2.4 for a sine.)

    Args:
        values: Shape ``(N,)``.
    """
    least = max(_FEWEST, _SHARE * len(values))
    if len(values) < least or max(np.count_nonzero(values == end) for end in (values.max(), values.min())) < least:
        return []  # the usual case, without sorting
    levels, counts = np.unique(values, return_counts=True)
    stuck = []
    if len(levels) > 3:
        for level, count, near in ((levels[-1], counts[-1], counts[-4:-1]), (levels[0], counts[0], counts[1:4])):
            if count >= least and count >= _BEFORE * near.max():
                stuck.append((float(level), int(count)))
    return stuck
