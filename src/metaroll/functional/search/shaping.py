"""What a search learns from in place of fitness: ranks, utilities, or fitness in units of its deviation."""

from __future__ import annotations

from typing import Literal

import numpy as np

__all__ = ["SHAPINGS", "Shaping", "centered_ranks", "shaped", "standardized", "utilities"]

Shaping = Literal["ranks", "utilities", "standardized"]

SHAPINGS = ("ranks", "utilities", "standardized")
"""Kinds of shaping that ``shaped`` knows."""


def centered_ranks(fitness: np.ndarray) -> np.ndarray:
    """Ranks of ``fitness (K,)`` from -1/2 (the worst) to 1/2 (the best); equal ones share the mean of their ranks.

    No order-preserving transformation of the fitness changes them (Salimans et al. 2017, arXiv:1703.03864, 2.1). NaN
    ranks last. With a single candidate 0.
    """
    if len(fitness) == 1:
        return np.zeros(1)
    return (_ranks(fitness) - 1.0) / (len(fitness) - 1.0) - 0.5


def utilities(fitness: np.ndarray) -> np.ndarray:
    """Utilities ``(K,)`` of natural evolution strategies, which sum to 0; more than half of the weight is the best's.

    ``u_k = max(0, ln(K/2 + 1) - ln k) / sum_j max(0, ln(K/2 + 1) - ln j) - 1/K`` for the k-th best (Wierstra et al.
    2014, arXiv:1106.4487, section 3.1). Equal ones share the mean of theirs, and NaN ranks last.
    """
    count = len(fitness)
    places = np.arange(1, count + 1)
    by_place = np.maximum(0.0, np.log(count / 2.0 + 1.0) - np.log(places))
    by_place = by_place / by_place.sum() - 1.0 / count
    _, group, sizes = np.unique(-_nan_last(fitness), return_inverse=True, return_counts=True)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return (np.add.reduceat(by_place, first) / sizes)[group]


def standardized(fitness: np.ndarray) -> np.ndarray:
    """``(fitness - mean) / std`` (of the population); NaN and -inf count as the lowest number, equal ones give 0."""
    values = _numbers(fitness)
    deviation = values.std()
    return (values - values.mean()) / deviation if deviation > 0.0 else np.zeros(len(values))


def shaped(fitness: np.ndarray, shaping: Shaping) -> np.ndarray:
    """``centered_ranks``, ``utilities`` or ``standardized`` of ``fitness (K,)``."""
    return {"ranks": centered_ranks, "utilities": utilities, "standardized": standardized}[shaping](fitness)


def _ranks(fitness: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata  # loads slowly, and names of searches pass this module

    return rankdata(_nan_last(fitness), method="average")


def _nan_last(fitness: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(fitness), -np.inf, fitness)


def _numbers(fitness: np.ndarray) -> np.ndarray:
    """Fitness with the lowest number in place of NaN and -inf."""
    finite = np.isfinite(fitness)
    if finite.all():
        return fitness
    return np.where(finite, fitness, fitness[finite].min() if finite.any() else 0.0)
