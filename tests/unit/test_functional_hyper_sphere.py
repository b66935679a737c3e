"""specs/sampling.md 4."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch

from metaroll.errors import UnknownNameError
from metaroll.functional.hyper_sphere import sample_from_hyper_sphere_surface

KINDS = [("normal", 1), ("normal", 2), ("normal", 3), ("normal", 15), ("uniform", 1), ("uniform", 3), ("uniform", 12)]
KINDS += [("Marsaglia", 3), ("Marsaglia", 4)]


@pytest.mark.parametrize(("method", "num_dim"), KINDS)
def test_one_point_of_norm_one(method, num_dim):
    """specs/sampling.md 4"""
    point = sample_from_hyper_sphere_surface(num_dim, method)
    assert isinstance(point, torch.Tensor) and point.shape == (num_dim,) and point.dtype == torch.get_default_dtype()
    assert torch.linalg.vector_norm(point).item() == pytest.approx(1.0, abs=1e-6)
    first, again = (sample_from_hyper_sphere_surface(num_dim, method, generator=5) for _ in range(2))
    assert torch.equal(first, again)
    if num_dim > 1:
        assert not torch.equal(first, sample_from_hyper_sphere_surface(num_dim, method, generator=6))


@pytest.mark.parametrize(
    ("method", "num_dim"), [("normal", 3), ("normal", 4), ("uniform", 3), ("uniform", 4), *KINDS[-2:]]
)
def test_points_lie_uniformly(method, num_dim):
    points = sample_from_hyper_sphere_surface(num_dim, method, num_samples=4000, generator=1).double().numpy()
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1.0, atol=1e-6)
    # (x_i + 1) / 2 of a uniform point is Beta((d-1)/2, (d-1)/2), along any direction.
    for direction in (*np.eye(num_dim), np.ones(num_dim) / np.sqrt(num_dim)):
        beta = scipy.stats.beta((num_dim - 1) / 2, (num_dim - 1) / 2)
        assert scipy.stats.kstest((points @ direction + 1.0) / 2.0, beta.cdf).pvalue > 1e-3
    np.testing.assert_allclose(points.T @ points / 4000, np.eye(num_dim) / num_dim, atol=0.03)


def test_numbers_of_points():
    assert sample_from_hyper_sphere_surface(5, "normal", num_samples=0).shape == (0, 5)
    assert sample_from_hyper_sphere_surface(5, "uniform", num_samples=1).shape == (1, 5)
    signs = sample_from_hyper_sphere_surface(1, "uniform", num_samples=50, generator=0)
    assert set(signs[:, 0].tolist()) == {-1.0, 1.0}


def test_a_vector_of_norm_zero_is_drawn_again():
    class ZeroFirst(np.random.Generator):
        def standard_normal(self, size):
            values = super().standard_normal(size)
            values[0] = 0.0
            return values

    point = sample_from_hyper_sphere_surface(3, "normal", generator=ZeroFirst(np.random.PCG64(0)))
    assert torch.isfinite(point).all() and torch.linalg.vector_norm(point).item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("num_dim", "method", "error", "text"),
    [
        (3, "marsaglia", UnknownNameError, "did you mean 'Marsaglia'"),
        (2, "Marsaglia", ValueError, "num_dim 3 and 4 only, got 2"),
        (13, "uniform", ValueError, "above num_dim 12, got 13; take 'normal'"),
        (0, "normal", ValueError, "num_dim must be an integer of at least 1, got 0"),
        (2.0, "normal", TypeError, "num_dim"),
        (3, None, UnknownNameError, "unknown method 'None'"),
        (3, np.array(["normal", "uniform"]), UnknownNameError, "unknown method"),
        (np.array([3, 4]), "normal", TypeError, "num_dim must be an integer"),
    ],
)
def test_bad_arguments(num_dim, method, error, text):
    with pytest.raises(error, match=text):
        sample_from_hyper_sphere_surface(num_dim, method)
