"""Distances of points from a cloud of simulated ones (NumPy)."""

from __future__ import annotations

import numpy as np
from scipy.spatial import KDTree

__all__ = ["mahalanobis_distances", "neighbor_distances", "shrunk_covariance"]


def shrunk_covariance(rows: np.ndarray) -> np.ndarray:
    """Covariance ``(d, d)`` of ``rows (n, d)``, shrunk towards a multiple of the identity (Ledoit and Wolf 2004).

    It is invertible even with fewer rows than dimensions.
    """
    count, dim = rows.shape
    centered = rows - rows.mean(axis=0)
    sample = centered.T @ centered / count
    mean = np.trace(sample) / dim
    spread = ((sample - mean * np.eye(dim)) ** 2).sum() / dim
    error = ((centered**2).T @ (centered**2) / count - sample**2).sum() / count / dim
    share = 0.0 if spread == 0.0 else min(error, spread) / spread
    return share * mean * np.eye(dim) + (1.0 - share) * sample


def mahalanobis_distances(points: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Distances ``(m,)`` of ``points (m, d)`` from the mean of ``rows (n, d)`` in units of their shrunk covariance."""
    shifted = points - rows.mean(axis=0)
    covariance = shrunk_covariance(rows) + 1e-12 * np.eye(rows.shape[1])
    return np.sqrt(np.einsum("ij,ij->i", shifted, np.linalg.solve(covariance, shifted.T).T))


def neighbor_distances(points: np.ndarray, cloud: np.ndarray, num_neighbors: int, own: bool = False) -> np.ndarray:
    """Mean Euclidean distance of each point to its nearest neighbors in a cloud, ``(m,)``.

    Args:
        points: ``(m, d)``.
        cloud: ``(n, d)``.
        num_neighbors: Number of neighbors.
        own: Whether the points are the cloud itself; then no point is its own neighbor.
    """
    distances = np.atleast_2d(KDTree(cloud).query(points, num_neighbors + own)[0].reshape(len(points), -1))
    return distances[:, 1:].mean(axis=1) if own else distances.mean(axis=1)
