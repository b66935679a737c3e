"""Populations of weighted particles: perturbation kernels, their importance weights, regression, and smoothing."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

__all__ = [
    "Kernel",
    "effective_sample_size",
    "importance_weights",
    "kernel_scale",
    "perturbed",
    "regression_adjusted",
    "smoothed_draws",
    "systematic_choice",
    "weighted_covariance",
]

Kernel = Literal["normal", "componentwise", "uniform"]
_FLOOR = 1e-12
"""Minimum variance: if all particles were equal, the kernel would have no density."""


def effective_sample_size(weights: np.ndarray) -> float:
    """``1 / sum(w^2)`` of weights ``(n,)`` that add up to 1 (Kong, Liu and Wong 1994)."""
    return float(1.0 / np.square(weights).sum())


def weighted_covariance(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Covariance ``(d, d)`` of rows ``(n, d)`` with weights ``(n,)`` that add up to 1."""
    centered = rows - weights @ rows
    return (centered * weights[:, None]).T @ centered + _FLOOR * np.eye(rows.shape[1])


def kernel_scale(kind: Kernel, particles: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Scale of a kernel's noise, a lower triangular ``(d, d)``.

    Args:
        kind: ``"normal"``: twice the covariance of the particles (Filippi et al. 2013, section 3.1);
            ``"componentwise"``: the same without correlations (Beaumont et al. 2009, section 3); ``"uniform"``: half
            the range of the particles to each side, by component (Toni et al. 2009, section 2.2).
        particles: Shape ``(n, d)``.
        weights: Shape ``(n,)``, adding up to 1.
    """
    if kind == "uniform":
        return np.diag(np.maximum(0.5 * np.ptp(particles, axis=0), _FLOOR))
    covariance = 2.0 * weighted_covariance(particles, weights)
    return np.linalg.cholesky(covariance) if kind == "normal" else np.diag(np.sqrt(np.diag(covariance)))


def perturbed(kind: Kernel, rows: np.ndarray, scale: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """``rows (n, d)``, each moved by the kernel."""
    noise = generator.uniform(-1.0, 1.0, rows.shape) if kind == "uniform" else generator.standard_normal(rows.shape)
    return rows + noise @ scale.T


def importance_weights(
    kind: Kernel,
    rows: np.ndarray,
    log_prior: np.ndarray,
    particles: np.ndarray,
    weights: np.ndarray,
    scale: np.ndarray,
) -> np.ndarray:
    """Importance weights of particles drawn by a kernel: prior over proposal density, adding up to 1.

    ``w_i ~ pi(theta_i) / sum_j w_j K(theta_i | theta_j)`` (Toni et al. 2009, step S2; Beaumont et al. 2009, eq. 3).

    Args:
        kind: The kernel.
        rows: The new particles, ``(n, d)``.
        log_prior: Log density of the prior there, ``(n,)``.
        particles: The particles that they were drawn from, ``(k, d)``.
        weights: Weights of those, ``(k,)``.
        scale: Scale of the kernel's noise (``kernel_scale``).
    """
    moved = rows[:, None] - particles[None]
    noise = solve_triangular(scale, moved.reshape(-1, moved.shape[2]).T, lower=True).T.reshape(moved.shape)
    if kind == "uniform":  # constants of the densities are the same for all, and cancel
        log_kernel = np.where((np.abs(noise) <= 1.0 + 1e-9).all(axis=2), 0.0, -np.inf)
    else:
        log_kernel = -0.5 * np.square(noise).sum(axis=2)
    with np.errstate(divide="ignore"):
        log_weights = log_prior - logsumexp(np.log(weights) + log_kernel, axis=1)
    return np.exp(log_weights - logsumexp(log_weights))


def regression_adjusted(
    rows: np.ndarray, features: np.ndarray, observed: np.ndarray, distances: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Particles adjusted to the observed features by regression (Beaumont et al. 2002, section 2.2).

    ``theta_i - (s_i - s_obs) B``, with B of a linear regression whose weights are those of the particles times
    Epanechnikov's ``1 - (distance / largest)^2``. With fewer than five particles per coefficient they are not adjusted.

    Args:
        rows: Particles ``(n, d)``, on a scale without bounds.
        features: Their features ``(n, F)``.
        observed: ``(F,)``.
        distances: Distances of their features from the observed ones, ``(n,)``.
        weights: ``(n,)``, adding up to 1.

    Returns:
        The particles, and their weights by the regression.
    """
    varying = np.ptp(features, axis=0) > 0.0
    offset = (features - observed)[:, varying]
    largest = distances.max()
    if len(rows) < 5 * (offset.shape[1] + 1) or largest == 0.0:
        return rows, weights
    weights = weights * (1.0 - np.square(distances / (largest * (1.0 + 1e-9))))
    weights = weights / weights.sum()
    root = np.sqrt(weights)[:, None]
    offset = offset / offset.std(axis=0)
    design = np.column_stack([np.ones(len(rows)), offset])
    coefficients = np.linalg.lstsq(root * design, root * rows, rcond=1e-8)[0]
    return rows - offset @ coefficients[1:], weights


def systematic_choice(weights: np.ndarray, num: int, generator: np.random.Generator) -> np.ndarray:
    """``num`` row numbers drawn by ``weights (n,)``, in order and as evenly as possible (systematic resampling).

    Kitagawa 1996: a row comes ``floor`` or ``ceil`` of ``num * weight`` times.

    Args:
        weights: Nonnegative, adding up to 1.
        num: Number of draws.
        generator: Source of randomness.
    """
    places = (np.arange(num) + generator.random()) / num
    return np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)


def smoothed_draws(rows: np.ndarray, weights: np.ndarray, num: int, generator: np.random.Generator) -> np.ndarray:
    """``num`` equally likely draws ``(num, d)`` from a smooth density with mean and covariance of the weighted rows.

    Rows are drawn systematically, pulled towards the mean by ``sqrt(1 - h^2)``, and moved by normal noise of h^2 times
    their covariance (Liu and West 2001), with Silverman's bandwidth h for their effective number.
    """
    dim = rows.shape[1]
    bandwidth = (4.0 / (effective_sample_size(weights) * (dim + 2))) ** (1.0 / (dim + 4))
    bandwidth = min(bandwidth, 1.0)
    chosen = systematic_choice(weights, num, generator)
    mean = weights @ rows
    noise = generator.standard_normal((num, dim)) @ np.linalg.cholesky(weighted_covariance(rows, weights)).T
    draws = mean + np.sqrt(1.0 - bandwidth**2) * (rows[chosen] - mean) + bandwidth * noise
    return generator.permutation(draws)
