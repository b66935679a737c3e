"""Calibration of posteriors: ranks, coverage, a local test, and effective sample sizes (NumPy)."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

__all__ = [
    "central_coverage",
    "effective_sample_size",
    "latent_normal",
    "local_two_sample_test",
    "local_weights",
    "mixture_factor",
    "normal_scores",
    "rank_p_value",
    "sbc_ranks",
    "score_p_values",
    "tail_p_value",
    "tarp_fractions",
    "uniformity_distance",
    "uniformity_p_value",
]

_AS_IF = 10.0
"""Number of latents with the ideal spread that are added to the actual ones."""
_RIDGE = 1e-3
_FEWEST_TAIL = 10


def sbc_ranks(truths: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Number of the L draws below each true parameter, ``(n, d)``; uniform on 0..L if posteriors are calibrated.

    Talts et al. 2018, algorithm 1.

    Args:
        truths: Parameters of n simulations, ``(n, d)``.
        draws: Posterior draws for each, ``(n, L, d)``.
    """
    return (draws < truths[:, None]).sum(axis=1)


def uniformity_p_value(fractions: np.ndarray) -> float:
    """P value of the Kolmogorov-Smirnov test that ``fractions (n,)`` are uniform on [0, 1]."""
    from scipy.stats import kstest  # here: it loads slowly, and most who import this module do not need it

    return float(kstest(fractions, "uniform").pvalue)


def uniformity_distance(fractions: np.ndarray) -> float:
    """Largest difference of the distribution of ``fractions (n,)`` from the uniform one (Kolmogorov's distance)."""
    from scipy.stats import kstest

    return float(kstest(fractions, "uniform").statistic)


def normal_scores(ranks: np.ndarray, num_draws: int) -> np.ndarray:
    """Normal scores of true parameters under their posteriors; of standard deviation 1 if calibrated.

    ``Phi^-1`` of posterior quantiles (Cook, Gelman and Rubin 2006, section 2.2), divided by the deviation of the L + 1
    possible values. Their mean is the shift of the posteriors, in posterior deviations; a deviation above 1 means that
    they are too narrow, below 1 too wide.

    Args:
        ranks: Ranks from ``sbc_ranks``, ``(n, d)``.
        num_draws: L, the number of draws behind each rank.
    """
    possible = ndtri((np.arange(num_draws + 1) + 0.5) / (num_draws + 1))
    scores: np.ndarray = possible[ranks] / possible.std()
    return scores


def score_p_values(scores: np.ndarray) -> tuple[float, float]:
    """Two-sided P values that ``normal_scores (n,)`` have mean 0, and standard deviation 1.

    The sum is normal, the sum of squares chi-square with n degrees of freedom (Cook, Gelman and Rubin 2006, eq. 3).
    """
    from scipy.stats import chi2

    of_mean = 2.0 * ndtr(-abs(scores.sum()) / np.sqrt(len(scores)))
    total = np.square(scores).sum()
    of_spread = 2.0 * min(chi2.cdf(total, len(scores)), chi2.sf(total, len(scores)))
    return float(of_mean), min(float(of_spread), 1.0)


def central_coverage(ranks: np.ndarray, num_draws: int, level: float) -> np.ndarray:
    """Share of true parameters inside the central intervals of ``level``, ``(d,)``.

    Args:
        ranks: Ranks from ``sbc_ranks``, ``(n, d)``.
        num_draws: L, the number of draws behind each rank.
        level: 0.9 for intervals that should hold 90 %.
    """
    # A rank stands for a part 1 / (L + 1) of all quantiles; its overlap with the interval counts, for any L.
    low, high = 0.5 * (1.0 - level) * (num_draws + 1), 0.5 * (1.0 + level) * (num_draws + 1)
    inside = np.clip(np.minimum(ranks + 1, high) - np.maximum(ranks, low), 0.0, 1.0)
    shares: np.ndarray = inside.mean(axis=0)
    return shares


def tarp_fractions(truths: np.ndarray, draws: np.ndarray, references: np.ndarray) -> np.ndarray:
    """Share of draws nearer to a random point than the truth is, ``(n,)``; uniform if posteriors are calibrated.

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
    """P value that truths and draws have the same distribution at one observation: a local classifier two-sample test.

    The statistic is that of l-C2ST (Linhart, Gramfort and Rodrigues 2023, eq. 7): the mean squared distance of the
    classifier from indecision over draws at the observation. The classifier is a least-squares one of Legendre
    polynomials (Neyman's smooth test) times the context, so that its null distribution (any draw of a simulation may
    stand for its truth) is exact and costs a product of matrices.

    Args:
        truths: Parameters of n simulations ``(n, d)``, each in units of its own posterior (mean 0, deviation 1).
        draws: Draws of the posterior of each, in the same units, ``(n, K, d)``.
        contexts: Features of the simulations, ``(n, k)``, of about unit scale.
        draws_there: Draws at the observation in units of its posterior, ``(m, d)``.
        context_there: The observation, ``(k,)``.
        generator: Chooses the draws that serve as truths.
        num_permutations: Number of permutations.
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
    return tail_p_value(statistics[0], statistics[1:])


def local_weights(contexts: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Weights w ``(n,)``: ``w @ values`` is the prediction of a linear regression on ``contexts`` at ``there``.

    The sum of their squares is the variance of that prediction, in units of the variance of a value.

    Args:
        contexts: ``(n, k)``.
        there: ``(k,)``.
    """
    design = np.concatenate([np.ones((len(contexts), 1)), contexts], axis=1)
    weights: np.ndarray = np.append(1.0, there) @ np.linalg.pinv(design)
    return weights


def _polynomials(points: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    """Legendre polynomials of degree 2 of ``Phi(points)``, alone and times the context, ``(n, (1 + k) d (d + 3) / 2)``.

    They are bounded, so that one truth far outside does not outweigh all others.
    """
    place = 2.0 * ndtr(points) - 1.0
    rows, columns = np.triu_indices(points.shape[1])
    products = place[:, rows] * place[:, columns]
    second = np.where(rows == columns, 1.5 * products - 0.5, products)
    terms = np.concatenate([place, second], axis=1)
    with_one = np.concatenate([np.ones((len(contexts), 1)), contexts], axis=1)
    return (terms[:, :, None] * with_one[:, None]).reshape(len(points), -1)


def rank_p_value(value: float, reference: np.ndarray) -> float:
    """Share of ``reference`` and ``value`` that is at least ``value``: an exact p value if all are exchangeable."""
    return float((1 + (reference >= value).sum()) / (1 + len(reference)))


def tail_p_value(value: float, reference: np.ndarray) -> float:
    """``rank_p_value``, extrapolated beyond all references by a power-law tail through the largest of them.

    ``P(X > x) = k/n (x / x_k)^(-1/g)`` with the mean logarithm g of the k largest over the next one (Hill 1975;
    Weissman 1978). A tail that decays faster than a power law is overestimated, which is conservative.

    Args:
        value: Positive, as the references.
        reference: ``(n,)`` values under the null hypothesis; the tail is fitted to 10 % of them, at least
            ten, at most half.
    """
    p_value = rank_p_value(value, reference)
    count = len(reference)
    num = min(max(_FEWEST_TAIL, count // 10), count // 2)
    ordered = np.sort(reference)
    if num == 0 or value <= ordered[-1] or ordered[-num - 1] <= 0.0:
        return p_value
    exponent = float(np.log(ordered[-num:] / ordered[-num - 1]).mean())
    if exponent == 0.0:
        return p_value
    return min(p_value, num / count * float(value / ordered[-num - 1]) ** (-1.0 / exponent))


def effective_sample_size(log_weights: np.ndarray) -> float:
    """``(sum w)^2 / sum w^2`` (Kish): the number of equally weighted samples that weighted ones are worth."""
    weights = np.exp(log_weights - np.max(log_weights))
    return float(weights.sum() ** 2 / (weights**2).sum())


def latent_normal(latents: np.ndarray, unseen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The maximum likelihood normal base of a flow: a last affine layer, in closed form.

    Training with early stopping leaves a mean and correlations in latents z, the same in training and validation
    simulations. Both are estimated from all simulations. Deviations are not, since an overfitted flow makes those of
    its training simulations too narrow. The log likelihood of unseen latents, ``-n log s - sum z^2 / (2 s^2)``, is
    largest where ``s^2`` is the mean of their ``z^2``: above 1 after overfitting, below 1 after underfitting. Ten
    additional standard normal latents regularize the estimate (for deviations it is the mode with an inverse gamma
    prior of ``s^2`` with shape 4 and scale 5).

    Args:
        latents: Latents of the parameters of all simulations, ``(n, d)``; standard normal if the flow is right.
        unseen: Latents of simulations it has not seen, ``(m, d)``.

    Returns:
        Mean ``(d,)``, and lower triangular root of the covariance ``(d, d)``.
    """
    num, dim = latents.shape
    mean: np.ndarray = latents.sum(axis=0) / (num + _AS_IF)
    centered = latents - mean
    together = centered.T @ centered + _AS_IF * np.eye(dim)
    size = np.sqrt(np.diag(together))
    squares = np.square(unseen - mean).sum(axis=0) + _AS_IF
    deviations = np.sqrt(squares / (len(unseen) + _AS_IF))
    return mean, deviations[:, None] * np.linalg.cholesky(together / np.outer(size, size))


def mixture_factor(draws: np.ndarray) -> float:
    """Factor of the width of each member of an ensemble for which their mixture has the right width.

    Each of K networks, trained independently, is right with variance W. Their means differ by chance, with variance B
    between them. The mean of all has squared error ``W - B`` (the error of a member's mean has an independent part,
    with variance v; B is ``v (1 - 1 / K)``, and averaging removes as much of the error). If members are f times as
    wide, the mixture has variance ``f^2 W + B``, which is right for ``f^2 = 1 - 2 B / W``.

    Args:
        draws: L draws of each of K members for n observations, ``(K, n, L, d)``.

    Returns:
        f, at least a half.
    """
    own = draws.var(axis=2, ddof=1)  # W, (K, n, d)
    by_chance = own.mean(axis=0) / draws.shape[2] * (1.0 - 1.0 / len(draws))  # of means of L draws
    between = np.maximum(draws.mean(axis=2).var(axis=0) - by_chance, 0.0)
    share = float((between.mean(axis=0) / own.mean(axis=(0, 1))).mean())
    return float(np.sqrt(max(1.0 - 2.0 * share, 0.25)))
