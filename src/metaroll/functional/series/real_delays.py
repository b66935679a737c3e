"""Whether rows of a log were really made when their stamps say, or stamps are noisy: observations tell."""

from __future__ import annotations

import numpy as np

from metaroll.errors import ShapeError

__all__ = ["real_share"]

_SHARES = np.linspace(0.0, 1.0, 11)
_EVIDENCE = 10.0
"""Gain of log-likelihood, in nats, from which a share above 0 is believed."""
_ROUNDING = 1e-7
"""Share of the largest change that is no more than rounding."""
_PER_UNKNOWN = 5
"""Rows for each unknown of the model, at least."""


def real_share(observations: np.ndarray, actions: np.ndarray, offsets: np.ndarray) -> float:
    """Which share of the stamps' offsets from an even grid is real, from 0 (noise of stamps) to 1 (rows off the grid).

    Between rows that are really farther apart more happens. With ``d_k = 1 + h (offsets[k+1] - offsets[k])`` it fits
    ``x_{k+1} - x_k = d_k (A x_k + B u_k + c) + e_k`` by least squares for h = 0, 0.1, ..., 1, and takes the h
    that makes ``-N/2`` times the sum over entries of ``log sum e^2`` largest, if that is above the one of h = 0 by 10.

    Args:
        observations: Of each row, NaN where missing, ``(N, O)``.
        actions: Held from each row to the next, ``(N-1, A)``.
        offsets: Of stamps from the grid, in steps, ``(N,)``; NaN where rows are not neighbors on it.

    Returns:
        0 where there are too few rows.

    Raises:
        ShapeError: Shapes do not fit.
    """
    if len(observations) != len(offsets) or len(actions) != len(offsets) - 1:
        raise ShapeError(
            f"observations, offsets and actions must have N, N and N-1 rows, got {len(observations)}, {len(offsets)} "
            f"and {len(actions)}"
        )
    changes, apart = np.diff(observations, axis=0), np.diff(offsets)
    moving = np.ptp(np.nan_to_num(changes), axis=0) > 0.0 if len(changes) else np.zeros(observations.shape[1], bool)
    design = np.concatenate([np.ones((len(actions), 1)), observations[:-1], actions], axis=1)
    known = np.isfinite(design).all(axis=1) & np.isfinite(changes).all(axis=1) & np.isfinite(apart)
    design, changes, apart = design[known], changes[known][:, moving], apart[known]
    if len(design) < _PER_UNKNOWN * design.shape[1] or not moving.any():
        return 0.0
    design = design / np.maximum(np.abs(design).max(axis=0), np.finfo(np.float64).tiny)
    floor = len(changes) * np.square(_ROUNDING * np.abs(changes).max(axis=0))
    gains = []
    for share in _SHARES:
        scaled = design * (1.0 + share * apart[:, None])
        solution = np.linalg.lstsq(scaled, changes, rcond=None)[0]
        errors = np.square(changes - scaled @ solution).sum(axis=0)
        gains.append(-0.5 * len(changes) * float(np.log(np.maximum(errors, floor)).sum()))
    best = int(np.argmax(gains))
    return float(_SHARES[best]) if gains[best] - gains[0] > _EVIDENCE else 0.0
