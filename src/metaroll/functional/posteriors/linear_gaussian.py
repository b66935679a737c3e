"""Posterior of the parameters of a linear simulator with Gaussian noise, estimated from simulations (NumPy)."""

from __future__ import annotations

import numpy as np

from metaroll.functional.posteriors.distances import shrunk_covariance

__all__ = ["linear_gaussian_posterior"]


def linear_gaussian_posterior(
    points: np.ndarray, features: np.ndarray, observed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean ``(d,)`` and covariance ``(d, d)`` of parameters whose prior is standard normal, given ``observed``.

    Features are modeled as ``c + J theta + noise``, fitted to simulations by least squares; then the covariance is
    ``(I + J' S^-1 J)^-1`` (Bishop 2006, eqs. 2.116 and 2.117). A synthetic likelihood (Wood 2010) with a linear mean:
    parameters may have any distribution. The bias of ``J' S^-1 J`` by noise in J is subtracted; the mean is
    computed relative to the center of the parameters, so that errors of J are not multiplied by its distance from 0.

    Args:
        points: Parameters of n simulations, on the scale where their prior is standard normal, ``(n, d)``.
        features: ``(n, F)``, none of them constant.
        observed: ``(F,)``.
    """
    count, dim = points.shape
    design = np.concatenate([np.ones((count, 1)), points], axis=1)
    weights = np.linalg.lstsq(design, features, rcond=None)[0]
    left = features - design @ weights
    scale = left.std(axis=0) + 1e-9 * features.std(axis=0)
    noise = shrunk_covariance(left / scale) * count / max(count - 1 - dim, 1) + 1e-9 * np.eye(len(scale))
    slopes = weights[1:] / scale
    weighed = np.linalg.solve(noise, slopes.T).T
    middle = points.mean(axis=0)
    centered = points - middle
    values, axes = np.linalg.eigh(slopes @ weighed.T - len(scale) * np.linalg.pinv(centered.T @ centered))
    precision = np.eye(dim) + (axes * np.maximum(values, 0.0)) @ axes.T
    unexplained = (observed - weights[0] - middle @ weights[1:]) / scale
    mean = middle + np.linalg.solve(precision, weighed @ unexplained - middle)
    return mean, np.linalg.inv(precision)
