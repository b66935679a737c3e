"""Whether posteriors keep what they promise: ranks, coverage, a local test, and effective sample sizes (NumPy)."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp, ndtr
from scipy.stats import kstest

__all__ = [
    "central_coverage",
    "effective_sample_size",
    "local_two_sample_test",
    "rank_p_value",
    "sbc_ranks",
    "tarp_fractions",
    "uniformity_p_value",
]

_RIDGE = 1e-3


def sbc_ranks(truths: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """How many of L draws lie below each true parameter, ``(n, d)``; uniform on 0..L where posteriors are calibrated.

    Talts et al. 2018, algorithm 1.

    Args:
        truths: Parameters of n simulations, ``(n, d)``.
        draws: Of the posterior of each, ``(n, L, d)``.
    """
    return (draws < truths[:, None]).sum(axis=1)


def uniformity_p_value(fractions: np.ndarray) -> float:
    """P value of the Kolmogorov-Smirnov test that ``fractions (n,)`` are uniform on [0, 1]."""
    return float(kstest(fractions, "uniform").pvalue)


def central_coverage(ranks: np.ndarray, num_draws: int, level: float) -> np.ndarray:
    """Share of true parameters inside the central intervals of ``level``, ``(d,)``.

    Args:
        ranks: ``(n, d)`` of ``sbc_ranks``.
        num_draws: L, of which they are ranks.
        level: 0.9 for intervals that should hold 90 %.
    """
    places = (ranks + 0.5) / (num_draws + 1)
    return (np.abs(places - 0.5) <= 0.5 * level).mean(axis=0)


def tarp_fractions(truths: np.ndarray, draws: np.ndarray, references: np.ndarray) -> np.ndarray:
    """Share of draws nearer to a random point than the truth is, ``(n,)``; uniform where posteriors are calibrated.

    Tests of accuracy with random points (Lemos et al. 2023, algorithm 2), with Euclidean distances.

    Args:
        truths: ``(n, d)``.
        draws: ``(n, L, d)``.
        references: A random point for each, ``(n, d)``, independent of the truth.
    """
    of_draws = np.linalg.norm(draws - references[:, None], axis=2)
    of_truths = np.linalg.norm(truths - references, axis=1)
    return (of_draws < of_truths[:, None]).mean(axis=1)


def local_two_sample_test(
    truths: np.ndarray,
    draws: np.ndarray,
    contexts: np.ndarray,
    draws_there: np.ndarray,
    context_there: np.ndarray,
    generator: np.random.Generator,
    num_permutations: int = 500,
) -> float:
    """P value that truths and draws are alike at one observation: a local classifier two-sample test.

    The statistic is that of l-C2ST (Linhart, Gramfort and Rodrigues 2023, eq. 7): the mean squared distance of the
    classifier from indecision over draws at the observation. The classifier is a least-squares one of Legendre
    polynomials (Neyman's smooth test) times the context, so that its null distribution (any draw of a simulation may
    stand for its truth) is exact and costs a product of matrices.

    Args:
        truths: Parameters of n simulations ``(n, d)``, each in units of its own posterior (mean 0, deviation 1).
        draws: Draws of the posterior of each, in the same units, ``(n, K, d)``.
        contexts: What was simulated, ``(n, k)`` numbers of about unit size.
        draws_there: Draws at the observation in units of its posterior, ``(m, d)``.
        context_there: The observation, ``(k,)``.
        generator: Says which draws stand for truths.
        num_permutations: How many.
    """
    count, num_items = len(truths), draws.shape[1] + 1
    points = np.concatenate([truths[:, None], draws], axis=1).reshape(count * num_items, -1)
    items = _polynomials(points, np.repeat(contexts, num_items, axis=0))
    there = _polynomials(draws_there, np.broadcast_to(context_there, (len(draws_there), len(context_there))))
    scale = np.sqrt((items**2).mean(axis=0)) + 1e-12
    items, there = items / scale, there / scale
    gram = items.T @ items / len(items) + _RIDGE * np.eye(items.shape[1])
    items = items.reshape(count, num_items, -1)
    items = items - items.mean(axis=1, keepdims=True)  # (truth - mean of all) is (truth - mean of draws) K / (K + 1)
    chosen = generator.integers(num_items, size=(num_permutations + 1, count))
    chosen[0] = 0
    differences = np.stack([items[np.arange(count), row].mean(axis=0) for row in chosen])
    weights = np.linalg.solve(gram, differences.T)
    statistics = ((there @ weights) ** 2).mean(axis=0)
    return rank_p_value(statistics[0], statistics[1:])


def _polynomials(points: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    """Legendre polynomials of degree 2 of ``Phi(points)``, alone and times the context, ``(n, (1 + k) d (d + 3) / 2)``.

    They are bounded: a truth that lies far outside counts as one, and does not outweigh all others.
    """
    place = 2.0 * ndtr(points) - 1.0
    rows, columns = np.triu_indices(points.shape[1])
    products = place[:, rows] * place[:, columns]
    second = np.where(rows == columns, 1.5 * products - 0.5, products)
    terms = np.concatenate([place, second], axis=1)
    with_one = np.concatenate([np.ones((len(contexts), 1)), contexts], axis=1)
    return (terms[:, :, None] * with_one[:, None]).reshape(len(points), -1)


def rank_p_value(value: float, reference: np.ndarray) -> float:
    """Share of ``reference`` that is at least ``value``, itself counted in: an exact p value where all are alike."""
    return float((1 + (reference >= value).sum()) / (1 + len(reference)))


def effective_sample_size(log_weights: np.ndarray) -> float:
    """``(sum w)^2 / sum w^2`` (Kish): how many equally weighted samples weighted ones are worth."""
    return float(np.exp(2.0 * np.asarray(logsumexp(log_weights)) - np.asarray(logsumexp(2.0 * log_weights))))
