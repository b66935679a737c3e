"""Our densities against torch.distributions in float64."""

import torch
from torch.distributions import Independent, Normal, TransformedDistribution, kl_divergence
from torch.distributions.transforms import TanhTransform

from metaroll.functional.distributions import (
    gaussian_kl_to_standard,
    gaussian_log_prob,
    product_of_gaussians,
    tanh_gaussian_log_prob,
)
from metaroll.seeding import torch_generator


def _draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch_generator(seed))


def test_gaussian_log_prob_equals_torch():
    value, mean, log_std = _draw(40, 3, seed=1), _draw(40, 3, seed=2), _draw(40, 3, seed=3)
    expected = Independent(Normal(mean, log_std.exp()), 1).log_prob(value)
    torch.testing.assert_close(gaussian_log_prob(value, mean, log_std), expected)


def test_tanh_gaussian_log_prob_equals_torch():
    pre_tanh, mean, log_std = _draw(40, 3, seed=1), _draw(40, 3, seed=2), _draw(40, 3, seed=3)
    squashed = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform(cache_size=1)])
    expected = squashed.log_prob(torch.tanh(pre_tanh)).sum(-1)
    torch.testing.assert_close(tanh_gaussian_log_prob(pre_tanh, mean, log_std), expected)


def test_kl_equals_torch():
    mean, var = _draw(6, 4), _draw(6, 4, seed=1).exp()
    expected = kl_divergence(Normal(mean, var.sqrt()), Normal(torch.zeros_like(mean), torch.ones_like(var))).sum()
    torch.testing.assert_close(gaussian_kl_to_standard(mean, var), expected)


def test_product_is_proportional_to_the_product_of_densities():
    """specs/meta.md 4.3: the sum of log-densities minus that of the product is the same number everywhere."""
    mean, var = _draw(7, 1), _draw(7, 1, seed=1).exp()
    product_mean, product_var = product_of_gaussians(mean, var)
    grid = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    total = Normal(mean[:, 0], var[:, 0].sqrt()).log_prob(grid).sum(-1, keepdim=True)
    difference = total - Normal(product_mean, product_var.sqrt()).log_prob(grid)
    torch.testing.assert_close(difference, difference[:1].expand_as(difference))
