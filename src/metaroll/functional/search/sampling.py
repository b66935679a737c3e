"""Sampling of searches: mirrored normal numbers, and candidates within bounds."""

from __future__ import annotations

import numpy as np

__all__ = ["normal_rows", "reflected"]


def normal_rows(generator: np.random.Generator, num_rows: int, num_params: int, mirrored: bool = False) -> np.ndarray:
    """Standard normal numbers ``(num_rows, num_params)``.

    Args:
        generator: Source of randomness.
        num_rows: Number of rows.
        num_params: Numbers per row.
        mirrored: Row ``2 i + 1`` is the negative of row ``2 i`` (Brockhoff et al. 2010), which needs half as many
            numbers, and keeps the mean of the fitness from adding variance to an estimated gradient.
    """
    if not mirrored:
        return generator.standard_normal((num_rows, num_params))
    half = generator.standard_normal(((num_rows + 1) // 2, num_params))
    return np.stack([half, -half], axis=1).reshape(-1, num_params)[:num_rows]


def reflected(rows: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """``rows (K, P)`` with entries outside the bounds ``(P,)`` reflected at them, repeatedly if necessary.

    An entry outside by d ends up inside by d, so that the distribution does not pile up at the bounds. Bounds may be
    infinite.
    """
    below, above = np.isfinite(lower), np.isfinite(upper)
    both = below & above
    inside = rows.copy()
    if both.any():
        low, width = lower[both], upper[both] - lower[both]
        inside[:, both] = low + width - np.abs(np.mod(rows[:, both] - low, 2.0 * width) - width)
    only = below & ~above
    inside[:, only] = lower[only] + np.abs(rows[:, only] - lower[only])
    only = above & ~below
    inside[:, only] = upper[only] - np.abs(rows[:, only] - upper[only])
    return np.clip(inside, lower, upper)  # for rounding errors
