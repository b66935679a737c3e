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
    "explained_variance",
    "grams_of_blocks",
    "ridge",
    "ridge_of_least_error",
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
_TINIEST, _LEAST_LEFT = 1e-12, 1e-10
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
    found = _by_cholesky(gram + ridges, moments)
    if found is not None:
        return found
    if gram.ndim > 2:  # each by itself, so that one does not change the others
        return np.stack([solve_ridge(g, m, coefficient) for g, m in zip(gram, moments, strict=True)])
    smallest = max(coefficient, np.finfo(float).eps * float(np.trace(gram)), np.finfo(float).tiny)
    for power in range(1, _TRIES + 1):
        found = _by_cholesky(gram + smallest * 10.0**power * np.eye(len(gram)), moments)
        if found is not None:
            return found
    return np.linalg.lstsq(gram + ridges, moments, rcond=None)[0]


class RidgeFit(NamedTuple):
    """Ridge regressions of d numbers on k features, ``offset + features @ weights``.

    Attributes:
        weights: ``(k, d)``.
        offset: ``(d,)``.
        left_out: Of each of n rows, what a regression on all others says, ``(n, d)``.
    """

    weights: np.ndarray
    offset: np.ndarray
    left_out: np.ndarray


def ridge_of_least_error(features: np.ndarray, targets: np.ndarray) -> RidgeFit:
    """For each target the ridge regression with the least error of rows that are left out.

    Errors of leaving one out are those of the fit over ``1 - leverage`` (Hastie, Tibshirani and Friedman 2009, eq.
    7.64). Coefficients are tried from 1e-8 to 0.1 of the sum of squares of the features.

    Args:
        features: Of about unit size, ``(n, k)``.
        targets: ``(n, d)``.
    """
    means, level = features.mean(axis=0), targets.mean(axis=0)
    vectors, sizes, directions = np.linalg.svd(features - means, full_matrices=False)
    centered, squares = targets - level, np.square(sizes)
    turned = vectors.T @ centered
    left_out, weights = np.empty(targets.shape), np.empty((features.shape[1], targets.shape[1]))
    least = np.full(targets.shape[1], np.inf)
    for share in _SHARES:
        shrunk = squares + max(share * squares.sum(), _TINIEST)
        leverages = np.square(vectors) @ (squares / shrunk) + 1.0 / len(features)
        rest = centered - vectors @ ((squares / shrunk)[:, None] * turned)
        errors = rest / np.maximum(1.0 - leverages, _LEAST_LEFT)[:, None]
        better = np.square(errors).sum(axis=0) < least
        least = np.where(better, np.square(errors).sum(axis=0), least)
        left_out[:, better] = (targets - errors)[:, better]
        weights[:, better] = (directions.T @ ((sizes / shrunk)[:, None] * turned))[:, better]
    return RidgeFit(weights, level - means @ weights, left_out)


def _by_cholesky(systems: np.ndarray, moments: np.ndarray) -> np.ndarray | None:
    """Solutions of symmetric systems, which are overwritten; ``None`` where one is not positive definite."""
    # It loads slowly, and few runs need it.
    from scipy.linalg.lapack import dposv  # pyright: ignore[reportAttributeAccessIssue] (written in Fortran)

    found = np.empty(moments.shape)
    for index in np.ndindex(moments.shape[:-1]):
        # Transposed, it lies as Fortran wants it, and is not copied.
        _, found[index], failed = dposv(systems[index].T, moments[index], overwrite_a=True)
        if failed:
            return None
    return found if np.isfinite(found).all() else None


def grams_of_blocks(blocks: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """``F^T F`` of the rows ``F`` of M tables that are cut into blocks; a third of each is mirrored.

    Args:
        blocks: Those of all tables, ``(n, rows, F)``.
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
        # Contiguous from the first number to the last, as the loop wants it; the gaps between rows stay as they are.
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
