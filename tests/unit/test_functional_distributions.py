"""Literal values of Gaussian densities, products and divergences."""

import math

import pytest
import torch

from metaroll.functional.distributions import (
    gaussian_kl,
    gaussian_kl_to_standard,
    gaussian_log_prob,
    product_of_gaussians,
    tanh_gaussian_log_prob,
    tanh_log_det,
)


def test_product_of_five_unit_gaussians_has_a_fifth_of_the_variance():
    """specs/meta.md 10: precision 5 * 1, so var 1/5; all means 1, so mean 1."""
    mean, var = product_of_gaussians(torch.ones(2, 5, 3), torch.ones(2, 5, 3))
    assert mean.shape == var.shape == (2, 3)
    torch.testing.assert_close(var, torch.full((2, 3), 0.2))
    torch.testing.assert_close(mean, torch.ones(2, 3))


def test_product_weighs_means_by_precision():
    # N(0, 1) * N(3, 1/2): precision 1 + 2 = 3, mean (0 * 1 + 3 * 2) / 3 = 2.
    mean, var = product_of_gaussians(torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0], [0.5]]))
    assert mean.item() == pytest.approx(2.0)
    assert var.item() == pytest.approx(1 / 3)


def test_product_floors_variances():
    """specs/meta.md 4.3: a zero variance counts as 1e-7."""
    mean, var = product_of_gaussians(torch.tensor([[2.0]]), torch.tensor([[0.0]]))
    assert mean.item() == pytest.approx(2.0)
    assert var.item() == pytest.approx(1e-7)


def test_kl_is_summed_over_all_entries():
    # Per entry 1/2 (var + mean^2 - 1 - ln var): (0, 1) -> 0; (2, 1) -> 2; (0, e) -> (e - 2) / 2.
    mean, var = torch.tensor([[0.0, 2.0, 0.0]]), torch.tensor([[1.0, 1.0, math.e]])
    assert gaussian_kl_to_standard(mean, var).item() == pytest.approx(2.0 + (math.e - 2.0) / 2.0)


def test_gaussian_log_prob_literal():
    # Two entries at one standard deviation with std 2: 2 * (-1/2 - ln 2 - ln(2 pi) / 2).
    value = gaussian_log_prob(torch.tensor([2.0, -2.0]), torch.zeros(2), torch.full((2,), math.log(2.0)))
    assert value.item() == pytest.approx(2 * (-0.5 - math.log(2.0) - 0.5 * math.log(2 * math.pi)))


def test_tanh_log_prob_stays_exact_where_tanh_rounds_to_one():
    # log(1 - tanh(u)^2) = log(4 e^{-2u}) = 2 ln 2 - 2 u for large u; naive float32 arithmetic gives log(0).
    u = torch.tensor([30.0], requires_grad=True)
    assert torch.tanh(u).item() == 1.0
    assert tanh_log_det(u).item() == pytest.approx(2 * math.log(2.0) - 60.0)
    log_prob = tanh_gaussian_log_prob(u, torch.tensor([30.0]), torch.zeros(1))
    assert log_prob.item() == pytest.approx(-0.5 * math.log(2 * math.pi) - 2 * math.log(2.0) + 60.0)
    log_prob.backward()
    assert u.grad is not None and u.grad.item() == pytest.approx(2.0)  # d/du of 2 u


def test_divergence_of_two_gaussians_by_hand():
    # KL(N(1, 4) || N(0, 2)) = 1/2 (4/2 + 1/2 - 1 - ln 2), twice.
    mean, var = torch.ones(2), torch.full((2,), 4.0)
    expected = 2 * 0.5 * (2.0 + 0.5 - 1.0 - math.log(2.0))
    assert gaussian_kl(mean, var, torch.zeros(2), torch.full((2,), 2.0)).item() == pytest.approx(expected)
    assert gaussian_kl(mean, var, mean, var).item() == 0.0
    standard = gaussian_kl_to_standard(mean, var).item()
    assert gaussian_kl(mean, var, torch.zeros(2), torch.ones(2)).item() == pytest.approx(standard)
