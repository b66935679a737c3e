"""Fitness shaping: ranks, utilities, or standardized fitness."""

from __future__ import annotations

from typing import Literal

import numpy as np

__all__ = ["SHAPINGS", "Shaping", "centered_ranks", "shaped", "standardized", "utilities"]

Shaping = Literal["ranks", "utilities", "standardized"]

SHAPINGS = ("ranks", "utilities", "standardized")
"""Kinds of shaping of ``shaped``."""


def centered_ranks(fitness: np.ndarray) -> np.ndarray:
    """Ranks of ``fitness (K,)`` from -1/2 (the worst) to 1/2 (the best); ties share the mean of their ranks.

    They are invariant to order-preserving transformations of the fitness (Salimans et al. 2017, arXiv:1703.03864, 2.1).
    NaN ranks last. A single candidate gets 0.
    """
    if len(fitness) == 1:
        return np.zeros(1)
    return (_ranks(fitness) - 1.0) / (len(fitness) - 1.0) - 0.5


def utilities(fitness: np.ndarray) -> np.ndarray:
    """Utilities ``(K,)`` of natural evolution strategies, which sum to 0.

    ``u_k = max(0, ln(K/2 + 1) - ln k) / sum_j max(0, ln(K/2 + 1) - ln j) - 1/K`` for the k-th best (Wierstra et al.
    2014, arXiv:1106.4487, section 3.1). Ties share the mean of their utilities, and NaN ranks last.
    """
    count = len(fitness)
    places = np.arange(1, count + 1)
    by_place = np.maximum(0.0, np.log(count / 2.0 + 1.0) - np.log(places))
    by_place = by_place / by_place.sum() - 1.0 / count
    _, group, sizes = np.unique(-_nan_last(fitness), return_inverse=True, return_counts=True)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return (np.add.reduceat(by_place, first) / sizes)[group]


def standardized(fitness: np.ndarray) -> np.ndarray:
    """``(fitness - mean) / std`` over the population; NaN and -inf count as the lowest number; 0 if all are equal."""
    values = _numbers(fitness)
    deviation = values.std()
    return (values - values.mean()) / deviation if deviation > 0.0 else np.zeros(len(values))


def shaped(fitness: np.ndarray, shaping: Shaping) -> np.ndarray:
    """``centered_ranks``, ``utilities`` or ``standardized`` of ``fitness (K,)``."""
    return {"ranks": centered_ranks, "utilities": utilities, "standardized": standardized}[shaping](fitness)


def _ranks(fitness: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata  # here: it loads slowly, and this module is imported for names of searches

    return rankdata(_nan_last(fitness), method="average")


def _nan_last(fitness: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(fitness), -np.inf, fitness)


def _numbers(fitness: np.ndarray) -> np.ndarray:
    """Fitness with NaN and -inf replaced by the lowest number."""
    finite = np.isfinite(fitness)
    if finite.all():
        return fitness
    return np.where(finite, fitness, fitness[finite].min() if finite.any() else 0.0)
