"""Whether uneven stamps of a log are real times of its rows or noise of the clock, judged by the recorded motion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from metaroll.errors import ShapeError
from metaroll.functional.regression import polynomial_terms

__all__ = ["real_share"]

_SHARES = np.linspace(0.0, 1.0, 11)
_EVIDENCE = 15.0
"""Minimum gain of log-likelihood, in nats, for a share above 0; it is this large since errors are not normal."""
_ROUNDING = 1e-7
"""Errors below this share of the largest change are rounding errors."""
_PER_UNKNOWN = 3
"""Minimum number of rows per unknown of a model."""
_MOST_WORK = 3e9
"""Maximum of rows times squared unknowns, over all fits of a model; of longer logs only the first rows are used."""
_MOST_UNKNOWN = 300
"""Maximum number of unknowns of a model."""


def real_share(series: Sequence[np.ndarray], actions: np.ndarray, offsets: np.ndarray) -> float:
    """The real share of the stamps' offsets from an even grid, from 0 (noise of stamps) to 1 (rows off the grid).

    If rows are really farther apart, more changes between them. With ``d_k = 1 + h (offsets[k+1] - offsets[k])`` it
    fits ``x_{k+1} - x_k = d_k f(x_k, u_k) + e_k`` by least squares for h = 0, 0.1, ..., 1, with f linear and with f
    quadratic, and takes the h that maximizes ``-N/2 log det(sum e e^T)`` (the determinant, since the errors of entries
    are correlated). The f with the larger gain over h = 0 counts, if that gain is above 15. Noise of stamps is
    independent of the changes, so that for any f no h above 0 gains, unless the series holds a speed that was computed
    with these stamps.

    Args:
        series: Recorded series, each judged by itself (observations and states, for example), ``(N, O)``; NaN where a
            value is missing.
        actions: Actions held from each row to the next, ``(N-1, A)``.
        offsets: Offsets of the stamps from the grid, in steps, ``(N,)``; NaN where rows are not neighbors on it.

    Returns:
        The share; 0 if there are too few rows.

    Raises:
        ShapeError: Shapes do not fit.
    """
    lengths = [len(values) for values in series]
    if any(length != len(offsets) for length in lengths) or len(actions) != len(offsets) - 1:
        raise ShapeError(
            f"series, offsets and actions must have N, N and N-1 rows, got {lengths}, {len(offsets)} and {len(actions)}"
        )
    best, share = _EVIDENCE, 0.0
    for values in series:
        for gains in _gains(values, actions, np.diff(offsets)):
            index = int(np.argmax(gains))
            if gains[index] - gains[0] > best:
                best, share = float(gains[index] - gains[0]), float(_SHARES[index])
    return share


def _gains(values: np.ndarray, actions: np.ndarray, apart: np.ndarray) -> Iterator[np.ndarray]:
    """Log-likelihoods of all shares, for each model that the rows suffice for."""
    inputs, changes = np.concatenate([values[:-1], actions], axis=1), np.diff(values, axis=0)
    known = np.isfinite(inputs).all(axis=1) & np.isfinite(changes).all(axis=1) & np.isfinite(apart)
    inputs, changes, apart = inputs[known], changes[known], apart[known]
    width = inputs.shape[1]
    for degree, unknown in ((1, 1 + width), (2, 1 + width + width * (width + 1) // 2)):
        rows = min(len(inputs), int(_MOST_WORK / (2.0 * len(_SHARES) * unknown**2)))
        if unknown <= _MOST_UNKNOWN and rows >= _PER_UNKNOWN * unknown:
            yield _likelihoods(polynomial_terms(inputs[:rows], degree), changes[:rows], apart[:rows])


def _likelihoods(terms: np.ndarray, changes: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """Log-likelihoods of all shares under a model whose changes are linear in ``terms``.

    N is the effective number of rows at h = 0: of many rows at rest and few that move, only the latter count.
    """
    tiny = np.finfo(np.float64).tiny
    design, stretched = terms / np.maximum(np.abs(terms).max(axis=0), tiny), 1.0 + apart[:, None]
    changes = changes / np.maximum(np.abs(changes).max(axis=0), tiny)
    # Two kinds of columns carry no information about times: those that follow exactly from the row before (a command
    # that is recorded again), and those that advance exactly like the stamps (time itself).
    follows = np.abs(_residuals(design, changes)).max(axis=0) <= _ROUNDING
    is_time = np.abs(_residuals(stretched, changes)).max(axis=0) <= _ROUNDING
    changes = changes[:, ~(follows | is_time)]
    if not changes.size:
        return np.zeros(len(_SHARES))
    floor = len(changes) * _ROUNDING**2 * np.eye(changes.shape[1])
    gains, count = [], 0.0
    for share in _SHARES:
        errors = _residuals(design * (1.0 + share * apart[:, None]), changes)
        spread = errors.T @ errors + floor
        if not gains:
            leverages = np.einsum("ni,ni->n", errors, np.linalg.solve(spread, errors.T).T)
            count = _effective_rows(leverages, errors.shape[1])
        gains.append(-0.5 * count * float(np.linalg.slogdet(spread)[1]))
    return np.array(gains)


def _residuals(design: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """Residuals of the least-squares fit of ``changes (N, O)`` by ``design (N, K)``."""
    return np.asarray(changes - design @ np.linalg.lstsq(design, changes, rcond=None)[0])


def _effective_rows(distances: np.ndarray, entries: int) -> float:
    """Effective number of rows, from their squared Mahalanobis distances ``(N,)``; N for normal errors."""
    squares = float(np.square(distances).sum())
    effective = (1.0 + 2.0 / entries) * float(distances.sum()) ** 2 / squares if squares else 0.0
    return min(effective, float(len(distances)))
