"""Random Fourier features of a Matern kernel at points that fill space evenly (quasi Monte Carlo)."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import pdist
from scipy.special import ndtri

__all__ = ["matern_frequencies", "median_distance"]


def matern_frequencies(num: int, dim: int, length_scale: float, nu: float, seed: int) -> np.ndarray:
    """``(num, dim)`` frequencies whose distribution is the spectral density of a Matern kernel.

    That density is a multivariate t distribution with ``2 nu`` degrees of freedom and scale ``1 / length_scale``
    (Rasmussen and Williams 2006, eq. 4.15). The points are scrambled Halton ones (Avron et al. 2016), as in BayesSim
    (Ramos, Possas and Fox 2019, section IV-C).

    Args:
        num: Number of frequencies.
        dim: Dimension of the inputs of the kernel.
        length_scale: Length scale of the kernel.
        nu: Smoothness of the kernel: 2.5 for Matern 5/2.
        seed: Seed of the scrambling.
    """
    from scipy.stats import chi2, qmc  # here: it loads slowly, and few need it

    points = qmc.Halton(dim + 1, rng=np.random.default_rng(seed)).random(num)
    points = np.clip(points, 1e-12, 1.0 - 1e-12)
    return ndtri(points[:, :dim]) * np.sqrt(2.0 * nu / chi2.ppf(points[:, dim:], 2.0 * nu)) / length_scale


def median_distance(rows: np.ndarray, most: int = 500) -> float:
    """Median Euclidean distance between two of the first ``most`` rows ``(n, dim)``; 1 if they are all the same."""
    distances = pdist(rows[:most])
    middle = float(np.median(distances)) if distances.size else 0.0
    return middle if middle > 0.0 else 1.0
