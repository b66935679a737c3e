"""Whether rows of a log were really made when their stamps say, or stamps are noisy: what was recorded tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from metaroll.errors import ShapeError
from metaroll.functional.regression import polynomial_terms

__all__ = ["real_share"]

_SHARES = np.linspace(0.0, 1.0, 11)
_EVIDENCE = 15.0
"""Gain of log-likelihood, in nats, from which a share above 0 is believed: errors are not normal."""
_ROUNDING = 1e-7
"""Share of the largest change that is no more than rounding."""
_PER_UNKNOWN = 3
"""Rows for each unknown of a model, at least."""
_MOST_WORK = 3e9
"""Rows times the square of unknowns, of all fits of a model: of long logs, the first rows that this allows are seen."""
_MOST_UNKNOWN = 300
"""Unknowns of a model, at most."""


def real_share(series: Sequence[np.ndarray], actions: np.ndarray, offsets: np.ndarray) -> float:
    """Which share of the stamps' offsets from an even grid is real, from 0 (noise of stamps) to 1 (rows off the grid).

    Between rows that are really farther apart more happens. With ``d_k = 1 + h (offsets[k+1] - offsets[k])`` it fits
    ``x_{k+1} - x_k = d_k f(x_k, u_k) + e_k`` by least squares for h = 0, 0.1, ..., 1, with a linear f and one of second
    degree, and takes the h that makes ``-N/2 log det(sum e e^T)`` largest (errors of entries go together: where one is
    farther than f says, others are). Of both the one with the larger gain over h = 0 counts, if it is above 15. Noise
    of stamps says nothing of changes, whatever f is: no h above 0 gains then. (It does of a speed that was
    computed with these stamps.)

    Args:
        series: What was recorded, each for itself: observations, say, and states; of each row, NaN where missing,
            ``(N, O)``.
        actions: Held from each row to the next, ``(N-1, A)``.
        offsets: Of stamps from the grid, in steps, ``(N,)``; NaN where rows are not neighbors on it.

    Returns:
        0 where there are too few rows.

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
            place = int(np.argmax(gains))
            if gains[place] - gains[0] > best:
                best, share = float(gains[place] - gains[0]), float(_SHARES[place])
    return share


def _gains(values: np.ndarray, actions: np.ndarray, apart: np.ndarray) -> Iterator[np.ndarray]:
    """For each model of which there are rows enough, the log-likelihood of all shares."""
    given, changes = np.concatenate([values[:-1], actions], axis=1), np.diff(values, axis=0)
    known = np.isfinite(given).all(axis=1) & np.isfinite(changes).all(axis=1) & np.isfinite(apart)
    given, changes, apart = given[known], changes[known], apart[known]
    width = given.shape[1]
    for degree, unknown in ((1, 1 + width), (2, 1 + width + width * (width + 1) // 2)):
        rows = min(len(given), int(_MOST_WORK / (2.0 * len(_SHARES) * unknown**2)))
        if unknown <= _MOST_UNKNOWN and rows >= _PER_UNKNOWN * unknown:
            yield _likelihoods(polynomial_terms(given[:rows], degree), changes[:rows], apart[:rows])


def _likelihoods(terms: np.ndarray, changes: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """Of all shares, where changes are linear in ``terms``.

    N is the number of rows that tell something at h = 0: of many rows at rest and few that move, these.
    """
    tiny = np.finfo(np.float64).tiny
    design, stretched = terms / np.maximum(np.abs(terms).max(axis=0), tiny), 1.0 + apart[:, None]
    changes = changes / np.maximum(np.abs(changes).max(axis=0), tiny)
    # What the row before tells to the last digit (a command that stands there again) moves in no time, and what goes on
    # as stamps do (time itself) is made of them.
    follows = np.abs(_left(design, changes)).max(axis=0) <= _ROUNDING
    is_time = np.abs(_left(stretched, changes)).max(axis=0) <= _ROUNDING
    changes = changes[:, ~(follows | is_time)]
    if not changes.size:
        return np.zeros(len(_SHARES))
    floor = len(changes) * _ROUNDING**2 * np.eye(changes.shape[1])
    gains, count = [], 0.0
    for share in _SHARES:
        errors = _left(design * (1.0 + share * apart[:, None]), changes)
        spread = errors.T @ errors + floor
        if not gains:
            count = _telling(np.einsum("ni,ni->n", errors, np.linalg.solve(spread, errors.T).T), errors.shape[1])
        gains.append(-0.5 * count * float(np.linalg.slogdet(spread)[1]))
    return np.array(gains)


def _left(design: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """What least squares leave."""
    return np.asarray(changes - design @ np.linalg.lstsq(design, changes, rcond=None)[0])


def _telling(weights: np.ndarray, entries: int) -> float:
    """How many of N rows count, whose squared distances ``weights (N,)`` are those of normal errors if all do."""
    squares = float(np.square(weights).sum())
    found = (1.0 + 2.0 / entries) * float(weights.sum()) ** 2 / squares if squares else 0.0
    return min(found, float(len(weights)))
