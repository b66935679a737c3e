"""Mean and variance of data that come in parts, without keeping the parts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from metaroll.errors import ShapeError

__all__ = ["Moments", "add_rows", "no_moments"]


class Moments(NamedTuple):
    """Number of rows, mean ``(D,)`` and sum of squared deviations from it ``(D,)`` of all of them, float64."""

    num_rows: int
    mean: np.ndarray
    squares: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """Variance of the rows ``(D,)`` (of the population); 1 as long as there are none."""
        return self.squares / self.num_rows if self.num_rows else np.ones_like(self.mean)

    @property
    def std(self) -> np.ndarray:
        """Root of ``variance``, ``(D,)``."""
        return np.sqrt(self.variance)


def no_moments(width: int) -> Moments:
    """Moments of no rows of ``width`` entries."""
    return Moments(0, np.zeros(width), np.zeros(width))


def add_rows(moments: Moments, rows: np.ndarray) -> Moments:
    """Moments of all rows so far and of ``rows (N, D)``.

    Combines both parts by their means and squares (Chan, Golub and LeVeque 1983, equation 2.1), which loses no digits
    if the mean is large compared with the deviations.

    Raises:
        ShapeError: The rows have another width.
    """
    if rows.ndim != 2 or rows.shape[1:] != moments.mean.shape:
        raise ShapeError(f"rows must have shape (N, {len(moments.mean)}), got {rows.shape}")
    new = len(rows)
    if not new:
        return moments
    rows = rows.astype(np.float64, copy=False)
    mean = rows.mean(axis=0)
    squares = np.square(rows - mean).sum(axis=0)
    total = moments.num_rows + new
    delta = mean - moments.mean
    return Moments(
        total,
        moments.mean + delta * (new / total),
        moments.squares + squares + np.square(delta) * (moments.num_rows * new / total),
    )
