"""Predictability of numbers from features: ridge regressions, linear and with a Gaussian kernel (NumPy)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from metaroll.functional.posteriors.calibration import tail_p_value
from metaroll.functional.posteriors.random_features import median_distance

__all__ = ["Predicted", "Smoothers"]

_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
"""Ridges, as shares of the sum of a kernel's eigenvalues."""
_TINY = 1e-12


class Predicted(NamedTuple):
    """Result of the best of the regressions.

    Attributes:
        share: Share of the variance that is predicted, leaving one out (R^2), at least 0.
        there: Prediction for the other row.
        rest: Standard deviation of the leave-one-out errors.
    """

    share: float
    there: float
    rest: float


class _Kernel(NamedTuple):
    """Eigendecomposition of the centered kernel of n rows, and the kernel of another row with them."""

    vectors: np.ndarray
    values: np.ndarray
    there: np.ndarray


class Smoothers:
    """Regressions on rows of features. Each predicts ``y`` by ``mean + K (K + ridge)^-1 (y - mean)``.

    K is one of two centered kernels: the inner product of rows (a linear regression), or a Gaussian as wide as their
    median distance. Kernel ridge regression: Murphy 2012, section 14.4.3.

    Args:
        rows: Features of n simulations, ``(n, k)``, of about unit size.
        there: Features of another one, ``(k,)``.
    """

    def __init__(self, rows: np.ndarray, there: np.ndarray) -> None:
        both = np.concatenate([rows, there[None]])
        width = median_distance(rows)
        gaussian = np.exp(-0.5 * np.square(cdist(both, rows) / width))
        self._kernels = [_centered(both @ rows.T), _centered(gaussian)]

    def p_value(self, values: np.ndarray) -> float:
        """P value of the first column of ``values (n, 1 + P)``; the others are drawn independently of the features.

        The statistic is the largest of ``y' S y / y' y`` over all regressions S, each standardized by its values in all
        columns. All columns are treated alike, so the test is exact if they are exchangeable. With residuals for y it
        is a test of conditional moments (Bierens 1982; with kernels Muandet et al. 2020, section 4).
        """
        centered = values - values.mean(axis=0)
        total = np.square(centered).sum(axis=0) + _TINY
        shares = []
        for kernel in self._kernels:
            squares = np.square(kernel.vectors.T @ centered)
            shares += [_shrinkage(kernel, ridge) @ squares / total for ridge in _RIDGES]
        table = np.array(shares)
        scores = (table - table.mean(axis=1, keepdims=True)) / (table.std(axis=1, keepdims=True) + _TINY)
        # Positive, so that the tail of the largest can be estimated: scores under independence are around 0.
        largest = np.exp(np.minimum(scores.max(axis=0), 500.0))
        return tail_p_value(float(largest[0]), largest[1:])

    def predicted(self, values: np.ndarray) -> Predicted:
        """Prediction of ``values (n,)`` by the regression with the smallest held-out error.

        Leave-one-out errors are those of the fit over ``1 - leverage`` (Hastie, Tibshirani and Friedman 2009, eq.
        7.64).
        """
        count, mean = len(values), values.mean()
        centered = values - mean
        alone = np.square(centered).sum() * (count / (count - 1.0)) ** 2 + _TINY
        best = (np.inf, 0.0)
        for kernel in self._kernels:
            turned = kernel.vectors.T @ centered
            for ridge in _RIDGES:
                shrinkage = _shrinkage(kernel, ridge)
                leverages = np.square(kernel.vectors) @ shrinkage + 1.0 / count
                errors = (centered - kernel.vectors @ (shrinkage * turned)) / np.maximum(1.0 - leverages, 1e-3)
                total = float(np.square(errors).sum()) + _TINY  # constant values have no variance to predict
                if total < best[0]:
                    weights = kernel.vectors @ (turned / (kernel.values + ridge * kernel.values.sum() + _TINY))
                    best = total, float(mean + kernel.there @ weights)
        if best[0] >= alone:
            return Predicted(0.0, float(mean), float(np.sqrt(alone / count)))
        return Predicted(1.0 - best[0] / float(alone), best[1], float(np.sqrt(best[0] / count)))


def _shrinkage(kernel: _Kernel, ridge: float) -> np.ndarray:
    """Eigenvalues of the regression, ``(n,)``."""
    shrinkage: np.ndarray = kernel.values / (kernel.values + ridge * kernel.values.sum() + _TINY)
    return shrinkage


def _centered(kernel: np.ndarray) -> _Kernel:
    """The kernel ``(n + 1, n)`` of rows and one more row, centered by the mean of rows in feature space."""
    means = kernel[:-1].mean(axis=0)
    centered = kernel - means - kernel.mean(axis=1, keepdims=True) + means.mean()
    values, vectors = np.linalg.eigh(0.5 * (centered[:-1] + centered[:-1].T))
    return _Kernel(vectors, np.maximum(values, 0.0), centered[-1])
