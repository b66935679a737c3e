"""Whether rows of a log were really made when their stamps say, or stamps are noisy: what was recorded tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from metaroll.errors import ShapeError

__all__ = ["real_share"]

_SHARES = np.linspace(0.0, 1.0, 11)
_EVIDENCE = 20.0
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
    farther than f says, others are). Of both the one with the larger gain over h = 0 counts, if it is above 20. Noise
    of stamps says nothing of changes, whatever f is: no h above 0 gains then.

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
    first, second = np.triu_indices(given.shape[1])
    for products in (0, len(first)):
        unknown = 1 + given.shape[1] + products
        rows = min(len(given), int(_MOST_WORK / (2.0 * len(_SHARES) * unknown**2)))
        if unknown <= _MOST_UNKNOWN and rows >= _PER_UNKNOWN * unknown:
            part = given[:rows]
            terms = np.concatenate([part, part[:, first[:products]] * part[:, second[:products]]], axis=1)
            yield _likelihoods(terms, changes[:rows], apart[:rows])


def _likelihoods(terms: np.ndarray, changes: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """Of all shares, where changes are linear in ``terms`` and a constant."""
    design = np.concatenate([np.ones((len(terms), 1)), terms], axis=1)
    design = design / np.maximum(np.abs(design).max(axis=0), np.finfo(np.float64).tiny)
    changes = changes[:, np.ptp(changes, axis=0) > 0.0]
    changes = changes / np.maximum(np.abs(changes).max(axis=0), np.finfo(np.float64).tiny)
    floor = len(changes) * _ROUNDING**2 * np.eye(changes.shape[1])
    gains = []
    for share in _SHARES:
        scaled = design * (1.0 + share * apart[:, None])
        errors = changes - scaled @ np.linalg.lstsq(scaled, changes, rcond=None)[0]
        gains.append(-0.5 * len(changes) * float(np.linalg.slogdet(errors.T @ errors + floor)[1]))
    return np.array(gains)
