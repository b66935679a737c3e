"""Gauss-Newton curvature of a sum of squares over parameters in the unit cube, and the posterior it implies."""

from __future__ import annotations

import numpy as np

__all__ = ["covariance_of_information", "difference_points", "draws_of_information", "jacobian_of_differences"]


def difference_points(point: np.ndarray, step: float) -> np.ndarray:
    """Points for finite differences at ``point (d,)`` of the unit cube, ``(2 d, d)``.

    A step to each side along each axis, upward steps first; points outside are moved to the border.
    """
    moves = step * np.eye(len(point))
    return np.clip(np.concatenate([point + moves, point - moves]), 0.0, 1.0)


def jacobian_of_differences(point: np.ndarray, value: np.ndarray, points: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Derivatives ``(F, d)`` from values at ``difference_points``.

    Central differences; a one-sided one where the value at the other side is not finite, and 0 where both are not.

    Args:
        point: Shape ``(d,)``.
        value: The function there, ``(F,)``.
        points: ``difference_points(point, step)``, ``(2 d, d)``.
        values: The function there, ``(2 d, F)``.
    """
    dim = len(point)
    known = np.asarray(np.isfinite(values).all(axis=1))
    at, ours = np.where(known[:, None], points, point), np.where(known[:, None], values, value)
    widths = np.diag(at[:dim]) - np.diag(at[dim:])
    slopes = (ours[:dim] - ours[dim:]) / np.where(widths > 0.0, widths, 1.0)[:, None]
    return np.where(widths[:, None] > 0.0, slopes, 0.0).T


def covariance_of_information(information: np.ndarray) -> np.ndarray:
    """Covariance ``(d, d)`` of parameters whose prior is uniform on the unit cube: ``(information + 12 I)^-1``.

    Without information it is the variance of that prior, 1/12.

    Args:
        information: ``J' J / variance``: Gauss and Newton's approximation of the curvature of
            ``|r|^2 / (2 variance)`` for residuals r with derivatives J (Nocedal and Wright 2006, section 10.3).
    """
    return np.linalg.inv(information + 12.0 * np.eye(len(information)))


def draws_of_information(
    point: np.ndarray, information: np.ndarray, num: int, generator: np.random.Generator
) -> np.ndarray:
    """Draws ``(num, d)`` of ``exp(-(x - point)' information (x - point) / 2)`` on the unit cube.

    Uniform without information. By sampling importance resampling (Rubin 1988), from twenty times as many draws of a
    normal distribution with twice the covariance.

    Args:
        point: The mode, ``(d,)``.
        information: Curvature there, ``(d, d)``.
        num: Number of draws.
        generator: Source of randomness.
    """
    root = np.linalg.cholesky(2.0 * covariance_of_information(information))
    noise = generator.standard_normal((20 * num, len(point)))
    moved = noise @ root.T
    rows = point + moved
    log_weights = 0.5 * np.square(noise).sum(axis=1) - 0.5 * np.einsum("ni,ij,nj->n", moved, information, moved)
    log_weights[((rows < 0.0) | (rows > 1.0)).any(axis=1)] = -np.inf
    weights = np.exp(log_weights - log_weights.max())
    return rows[generator.choice(len(rows), size=num, p=weights / weights.sum())]
