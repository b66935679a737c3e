"""The flat scale of a bounded parameter: by hand, against scipy, and there and back."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.stats import norm

from metaroll.functional.posteriors.flat_scale import flat_of_normal, inside_bounds, log_flat_slope, normal_of_flat

FLAT = torch.tensor([True, False])


def test_by_hand():
    points = torch.tensor([[0.0, 0.3], [float("inf"), -2.0], [-float("inf"), 9.0]], dtype=torch.float64)
    expected = [[0.0, 0.3], [math.sqrt(3.0), -2.0], [-math.sqrt(3.0), 9.0]]
    np.testing.assert_allclose(flat_of_normal(points, FLAT), expected)
    # At 0: 2 sqrt(3) / sqrt(2 pi) = sqrt(6 / pi), of the one flat column.
    np.testing.assert_allclose(log_flat_slope(points[:1], FLAT), [0.5 * math.log(6.0 / math.pi)])
    assert inside_bounds(torch.tensor([[1.7, 100.0], [1.74, 0.0], [-1.8, 0.0]]), FLAT).tolist() == [True, False, False]


def test_against_scipy_and_there_and_back():
    normals = torch.from_numpy(np.random.default_rng(0).standard_normal((200, 2)) * 1.5)
    flat = flat_of_normal(normals, FLAT)
    np.testing.assert_allclose(flat[:, 0], np.sqrt(3.0) * (2.0 * norm.cdf(normals[:, 0]) - 1.0), atol=1e-12)
    expected = math.log(2.0 * math.sqrt(3.0)) + norm.logpdf(normals[:, 0])
    np.testing.assert_allclose(log_flat_slope(normals, FLAT), expected, atol=1e-12)
    np.testing.assert_allclose(normal_of_flat(flat, FLAT), normals, atol=1e-7)
    beyond = normal_of_flat(torch.tensor([[5.0, 5.0], [-5.0, 5.0]]), FLAT)
    np.testing.assert_allclose(beyond, [[7.13, 5.0], [-7.13, 5.0]], atol=0.01)
