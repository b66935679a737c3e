"""Least squares: ridge regressions, the features of ProMP's linear baselines, and how good a fit is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from metaroll.checks import check_number
from metaroll.errors import ShapeError
from metaroll.functional.arrays import to_numpy
from metaroll.functional.kernels import compiled

__all__ = [
    "RidgeFit",
    "cross_fitted_ridge",
    "explained_variance",
    "grams_of_blocks",
    "polynomial_terms",
    "ridge",
    "solve_ridge",
    "state_features",
    "time_features",
]

_TRIES = 5
"""Times that a coefficient is raised tenfold where a system cannot be solved."""
_PRODUCTS_AT_A_TIME = 2**20
"""Numbers in the products of blocks that are there at once."""
_SHARES = (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Coefficients that are tried, as shares of the sum of squares of the features."""
_TINIEST = 1e-12
_CLIP = 10.0
_TIME_UNIT = 100.0


def ridge(features: Any, targets: Any, coefficient: float = 1e-5) -> np.ndarray:
    """Weights ``w`` that make ``|features w - targets|^2 + coefficient |w|^2`` least.

    They solve ``(F^T F + coefficient I) w = F^T y`` (Hoerl and Kennard 1970, "Ridge regression", eq. 2.1).

    Args:
        features: Shape ``(T, F)``, or ``(M, T, F)`` for M problems at once.
        targets: Shape ``(T,)``, or ``(M, T)``.
        coefficient: At least 0.

    Returns:
        float64, shape ``(F,)`` or ``(M, F)``.

    Raises:
        ShapeError: Shapes do not fit together.
        ValueError: ``coefficient`` is negative, or numbers are NaN or infinite.
    """
    coefficient = check_number("coefficient", coefficient, 0.0)
    matrix, target = (
        to_numpy(name, x).astype(np.float64) for name, x in (("features", features), ("targets", targets))
    )
    if matrix.ndim not in (2, 3) or target.shape != matrix.shape[:-1]:
        raise ShapeError(
            f"features must have shape (T, F) or (M, T, F), and targets the same without F, got {matrix.shape} and "
            f"{target.shape}"
        )
    transposed = np.swapaxes(matrix, -1, -2)
    return solve_ridge(transposed @ matrix, (transposed @ target[..., None])[..., 0], coefficient)


def solve_ridge(gram: np.ndarray, moments: np.ndarray, coefficient: float) -> np.ndarray:
    """Weights of ridge regressions whose ``F^T F`` and ``F^T y`` are known, all at once by Cholesky's factors.

    Where a matrix is not positive definite, as computed, its coefficient is raised tenfold, up to five times; after
    that it is solved by least squares.

    Args:
        gram: ``F^T F``, shape ``(..., F, F)``.
        moments: ``F^T y``, shape ``(..., F)``.
        coefficient: At least 0.

    Returns:
        Shape ``(..., F)``.

    Raises:
        ValueError: Numbers are NaN or infinite.
    """
    if not (np.isfinite(gram).all() and np.isfinite(moments).all()):
        raise ValueError("features and targets of a ridge regression must be finite, got NaN, Inf or too large numbers")
    ridges = coefficient * np.eye(gram.shape[-1])
    solution = _by_cholesky(gram + ridges, moments)
    if solution is not None:
        return solution
    if gram.ndim > 2:  # separately, so that one does not change the others
        return np.stack([solve_ridge(g, m, coefficient) for g, m in zip(gram, moments, strict=True)])
    smallest = max(coefficient, np.finfo(float).eps * float(np.trace(gram)), np.finfo(float).tiny)
    for power in range(1, _TRIES + 1):
        solution = _by_cholesky(gram + smallest * 10.0**power * np.eye(len(gram)), moments)
        if solution is not None:
            return solution
    return np.linalg.lstsq(gram + ridges, moments, rcond=None)[0]


def polynomial_terms(values: np.ndarray, degree: int) -> np.ndarray:
    """1, the ``values (N, k)`` and, of degree 2, their products in pairs, ``(N, 1 + k [+ k (k + 1) / 2])``."""
    terms = [np.ones((len(values), 1)), values]
    if degree > 1:
        first, second = np.triu_indices(values.shape[1])
        terms.append(values[:, first] * values[:, second])
    return np.concatenate(terms, axis=1)


class RidgeFit(NamedTuple):
    """Ridge regressions of d numbers on k features, ``offset + features @ weights``.

    Attributes:
        weights: ``(k, d)``; 0 for numbers that features do not predict.
        offset: ``(d,)``.
        left_out: Held-out predictions, by regressions without a row's fold, ``(n, d)``.
    """

    weights: np.ndarray
    offset: np.ndarray
    left_out: np.ndarray


def cross_fitted_ridge(features: np.ndarray, targets: np.ndarray, folds: np.ndarray) -> RidgeFit:
    """For each target the ridge regression with the smallest error on held-out folds (cross-fitting).

    If no coefficient, from 1e-8 to 0.1 of the sum of squares of the features, has a smaller error than the mean, the
    regression is that mean.

    Folds, not single rows: a leave-one-out prediction is ``(y_hat - h y) / (1 - h)`` with the leverage h of the row
    (Hastie, Tibshirani and Friedman 2009, eq. 7.64), which leaks the row's own target given ``y_hat``.

    Args:
        features: Features of about unit scale, ``(n, k)``.
        targets: ``(n, d)``.
        folds: Index of the fold of each row, ``(n,)``; two folds or more.
    """
    shape = (len(_SHARES), *targets.shape)
    left_out, means = np.zeros(shape), np.zeros(targets.shape)
    for fold in np.unique(folds):
        out = folds == fold
        weights, offsets = _ridges(features[~out], targets[~out])
        left_out[:, out] = offsets[:, None] + features[out] @ weights
        means[out] = targets[~out].mean(axis=0)
    errors = np.square(left_out - targets).sum(axis=1)
    best, columns = errors.argmin(axis=0), np.arange(targets.shape[1])
    explained = errors[best, columns] < np.square(means - targets).sum(axis=0)
    weights, offsets = _ridges(features, targets)
    level = targets.mean(axis=0)
    return RidgeFit(
        np.where(explained, weights[best, :, columns].T, 0.0),
        np.where(explained, offsets[best, columns], level),
        np.where(explained, left_out[best, :, columns].T, level),
    )


def _ridges(features: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights ``(c, k, d)`` and offsets ``(c, d)`` of ridge regressions with each of the c coefficients."""
    middle, level = features.mean(axis=0), targets.mean(axis=0)
    rows, centered = features - middle, targets - level
    is_tall = len(rows) >= rows.shape[1]
    sizes, vectors = np.linalg.eigh(rows.T @ rows if is_tall else rows @ rows.T)
    sizes = np.maximum(sizes, 0.0)
    turned = vectors.T @ (rows.T @ centered if is_tall else centered)
    solutions = [vectors @ (turned / (sizes + max(share * sizes.sum(), _TINIEST))[:, None]) for share in _SHARES]
    weights = np.stack(solutions if is_tall else [rows.T @ one for one in solutions])
    return weights, level - middle @ weights


def _by_cholesky(systems: np.ndarray, moments: np.ndarray) -> np.ndarray | None:
    """Solutions of symmetric systems, which are overwritten; ``None`` where one is not positive definite."""
    # It loads slowly, and few runs need it.
    from scipy.linalg.lapack import dposv  # pyright: ignore[reportAttributeAccessIssue] (written in Fortran)

    solutions = np.empty(moments.shape)
    for index in np.ndindex(moments.shape[:-1]):
        # Transposed, it lies as Fortran wants it, and is not copied.
        _, solutions[index], failed = dposv(systems[index].T, moments[index], overwrite_a=True)
        if failed:
            return None
    return solutions if np.isfinite(solutions).all() else None


def grams_of_blocks(blocks: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """``F^T F`` of the rows ``F`` of M tables that are cut into blocks; a third of each is mirrored.

    Args:
        blocks: Blocks of all tables, ``(n, rows, F)``.
        firsts: The first block of each table, from 0 on, ``(M,)``.

    Returns:
        Shape ``(M, F, F)``.
    """
    width = blocks.shape[-1]
    cuts = list(pairwise([*range(0, width, 8 * -(-width // 24)), width]))  # multiples of the widest vector
    grams = np.empty((len(firsts), width, width))
    at_a_time = max(16, _PRODUCTS_AT_A_TIME // width**2)
    for m, (first, stop) in enumerate(pairwise([*firsts.tolist(), len(blocks)])):
        for begin in range(first, stop, at_a_time):
            some = blocks[begin : min(begin + at_a_time, stop)]
            for a, b in cuts:
                products = np.matmul(some[..., a:].transpose(0, 2, 1), some[..., a:b])
                if begin == first:
                    np.add.reduce(products, axis=0, out=grams[m, a:, a:b])
                else:
                    grams[m, a:, a:b] += np.add.reduce(products, axis=0)
    for a, b in cuts:
        grams[:, a:b, b:] = grams[:, b:, a:b].transpose(0, 2, 1)
    return grams


def time_features(steps: Any, out: np.ndarray | None = None) -> np.ndarray:
    """``(tau, tau^2, tau^3, 1)`` with ``tau = step / 100``: ProMP's ``LinearTimeBaseline`` (arXiv:1810.06784, code).

    Args:
        steps: Numbers of steps within their rollouts, ``(T,)``.
        out: Where to write them, float64 ``(T, 4)``.

    Returns:
        Shape ``(T, 4)``.
    """
    tau = np.asarray(steps) / _TIME_UNIT
    features = np.empty((len(tau), 4)) if out is None else out
    features[:, 0] = tau
    np.multiply(tau, tau, out=features[:, 1])
    np.multiply(features[:, 1], tau, out=features[:, 2])
    features[:, 3] = 1.0
    return features


def state_features(
    observations: np.ndarray, steps: Any, out: np.ndarray | None = None, rows: np.ndarray | None = None
) -> np.ndarray:
    """Observations clipped to [-10, 10], their squares, and ``time_features`` (Duan et al. 2016, arXiv:1604.06778).

    Args:
        observations: Shape ``(T, O)``.
        steps: Numbers of steps within their rollouts, ``(T,)``.
        out: Where to write them, float64 ``(T, 2 O + 4)``.
        rows: Which T rows of ``observations`` to take where these are more, int64 ``(T,)``.

    Returns:
        Shape ``(T, 2 O + 4)``.
    """
    steps, width = np.asarray(steps), observations.shape[1]
    count = len(steps)
    features = np.empty((count, 2 * width + 4)) if out is None else out
    loop = compiled("state_features", features.size)
    if loop is not None and steps.dtype.kind in "iu" and features.strides[1] == features.itemsize:
        stride = features.strides[0] // features.itemsize
        # Contiguous from the first number to the last, as the loop wants it; the gaps between rows stay unchanged.
        flat = as_strided(features, (max(0, (count - 1) * stride + features.shape[1]),), (features.itemsize,))
        loop(
            np.require(observations, np.float64, ["C", "W"]),
            np.arange(count) if rows is None else rows,
            np.require(steps, np.int64, ["C", "W"]),
            *(-_CLIP, _CLIP, _TIME_UNIT, flat, stride),
        )
        return features
    given = observations if rows is None else observations[rows]
    clipped = np.clip(given, -_CLIP, _CLIP, dtype=np.float64)  # contiguous, which is faster to square
    features[:, :width] = clipped
    np.multiply(clipped, clipped, out=features[:, width : 2 * width])
    time_features(steps, features[:, 2 * width :])
    return features


def explained_variance(predicted: Any, targets: Any) -> float:
    """``1 - Var(targets - predicted) / Var(targets)``: 1 is a perfect fit, 0 as good as a constant.

    Args:
        predicted: Shape ``(T,)``.
        targets: Shape ``(T,)``.

    Returns:
        The share; where ``targets`` are all equal 1 if they are met but for a constant, else 0.

    Raises:
        ShapeError: Shapes differ, or there are no numbers.
    """
    guess, truth = (
        to_numpy(name, x).astype(np.float64, copy=False) for name, x in (("predicted", predicted), ("targets", targets))
    )
    if guess.shape != truth.shape or truth.ndim != 1 or not truth.size:
        raise ShapeError(f"predicted and targets must have one shape (T,), got {guess.shape} and {truth.shape}")
    spread, left = _variance(truth), _variance(truth - guess)
    if spread == 0.0:
        return float(left == 0.0)
    return 1.0 - left / spread


def _variance(x: np.ndarray) -> float:
    """``np.var(x)``, in half its time."""
    deviations = x - x.sum() / len(x)
    return float(np.square(deviations, out=deviations).sum() / len(x))
