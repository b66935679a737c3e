"""The flat scale of a bounded parameter: by hand, against scipy's integrals, and there and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from metaroll.functional.posteriors.flat_scale import flat_of_normal, log_flat_slope, normal_of_flat

FLAT = torch.tensor([True, False])
SCALE = math.sqrt(1.0 / 3.0 + 0.2**2)


def test_by_hand():
    points = torch.tensor([[0.0, 0.3], [float("inf"), -2.0], [-float("inf"), 9.0]], dtype=torch.float64)
    # Nine deviations of 0.2 beyond a bound at 1, over the scale.
    expected = [[0.0, 0.3], [2.8 / SCALE, -2.0], [-2.8 / SCALE, 9.0]]
    flat = flat_of_normal(points, FLAT)
    np.testing.assert_allclose(flat, expected, atol=1e-9)
    # In the middle phi(0) over the density of the uniform number, 1 / 2 but for 6e-7.
    slope = math.log(2.0 / math.sqrt(2.0 * math.pi) / SCALE)
    np.testing.assert_allclose(log_flat_slope(points[:1], flat[:1], FLAT), [slope], atol=1e-6)
    # A bound is where G(2 / e) = 2 / e and G(0) = phi(0): u = 1 - e phi(0) / 2.
    score = norm.isf(0.1 * norm.pdf(0.0))
    np.testing.assert_allclose(normal_of_flat(torch.tensor([[1.0 / SCALE, 0.0]]), FLAT)[0, 0], score, rtol=1e-6)


@pytest.mark.parametrize("score", [-6.5, -2.0, -0.3, 1.0, 4.0])
def test_against_an_integral(score):
    """The share below is the mean of a normal distribution, moved by a uniform number."""
    place = float(flat_of_normal(torch.tensor([score], dtype=torch.float64), FLAT[:1])) * SCALE
    share = quad(lambda shift: 0.5 * norm.cdf((-abs(place) - shift) / 0.2), -1.0, 1.0, epsabs=0.0, points=[-0.99])[0]
    assert share == pytest.approx(norm.cdf(-abs(score)), rel=1e-8)


def test_there_and_back_with_slopes_in_between():
    normals = torch.from_numpy(np.random.default_rng(0).standard_normal((200, 2)) * 2.0)
    flat = flat_of_normal(normals, FLAT)
    np.testing.assert_allclose(normal_of_flat(flat, FLAT), normals, atol=1e-9)
    step = 1e-5
    above, below = (flat_of_normal(normals + sign * step, FLAT)[:, 0] for sign in (1.0, -1.0))
    np.testing.assert_allclose(
        torch.exp(log_flat_slope(normals, flat, FLAT)), (above - below) / (2.0 * step), rtol=1e-6
    )
    beyond = normal_of_flat(torch.tensor([[9.0, 9.0], [-9.0, 9.0]]), FLAT)
    np.testing.assert_allclose(beyond, [[7.034, 9.0], [-7.034, 9.0]], atol=0.001)


def test_the_prior_has_mean_0_and_deviation_1():
    shares = (np.arange(100_000) + 0.5) / 100_000
    flat = flat_of_normal(torch.from_numpy(norm.ppf(shares))[:, None], FLAT[:1])
    assert float(flat.mean()) == pytest.approx(0.0, abs=1e-9) and float(flat.std()) == pytest.approx(1.0, abs=1e-4)
