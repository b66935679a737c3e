"""How searches draw: mirrored normal numbers, and candidates within bounds."""

from __future__ import annotations

import numpy as np

__all__ = ["normal_rows", "reflected"]


def normal_rows(generator: np.random.Generator, num_rows: int, num_params: int, mirrored: bool = False) -> np.ndarray:
    """Standard normal numbers ``(num_rows, num_params)``.

    Args:
        generator: Source of randomness.
        num_rows: Number of rows.
        num_params: Numbers in each.
        mirrored: Row ``2 i + 1`` is the negative of row ``2 i`` (Brockhoff et al. 2010), which takes half as many
            numbers and no variance into an estimated gradient from the mean of the fitness.
    """
    if not mirrored:
        return generator.standard_normal((num_rows, num_params))
    half = generator.standard_normal(((num_rows + 1) // 2, num_params))
    return np.stack([half, -half], axis=1).reshape(-1, num_params)[:num_rows]


def reflected(rows: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """``rows (K, P)`` with what lies outside of the bounds ``(P,)`` mirrored at them, as often as is needed.

    A candidate that is out by d is in by d, so that the distribution does not pile up at the bounds. Bounds may be
    infinite.
    """
    below, above = np.isfinite(lower), np.isfinite(upper)
    both = below & above
    found = rows.copy()
    if both.any():
        low, width = lower[both], upper[both] - lower[both]
        found[:, both] = low + width - np.abs(np.mod(rows[:, both] - low, 2.0 * width) - width)
    only = below & ~above
    found[:, only] = lower[only] + np.abs(rows[:, only] - lower[only])
    only = above & ~below
    found[:, only] = upper[only] - np.abs(rows[:, only] - upper[only])
    return np.clip(found, lower, upper)  # what rounding has left outside
