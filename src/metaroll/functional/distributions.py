"""Log-densities and divergences of (squashed) diagonal Gaussians, as differentiable functions of torch tensors."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

__all__ = [
    "gaussian_entropy",
    "gaussian_kl",
    "gaussian_kl_per_row",
    "gaussian_kl_to_standard",
    "gaussian_log_prob",
    "product_of_gaussians",
    "tanh_gaussian_log_prob",
    "tanh_log_det",
]

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_LOG_2 = math.log(2.0)


def gaussian_log_prob(value: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """``sum_a log N(value_a; mean_a, exp(log_std_a)^2)``, shape ``(...)``, of arguments ``(..., act_dim)``."""
    standardized = (value - mean) * torch.exp(-log_std)
    return (-0.5 * standardized.square() - log_std - _HALF_LOG_2PI).sum(-1)


def gaussian_entropy(log_std: torch.Tensor) -> torch.Tensor:
    """``sum_a (log_std_a + log(2 pi e) / 2)``, shape ``(...)``, of ``log_std (..., act_dim)``."""
    return (log_std + (_HALF_LOG_2PI + 0.5)).sum(-1)


def tanh_log_det(pre_tanh: torch.Tensor) -> torch.Tensor:
    """``sum_a log(1 - tanh(u_a)^2)``, shape ``(...)``, finite for every finite ``u (..., act_dim)``.

    Written as ``2 (log 2 - u - softplus(-2 u))``, which loses no digits where tanh rounds to 1 (no epsilon needed).
    """
    return (2.0 * (_LOG_2 - pre_tanh - F.softplus(-2.0 * pre_tanh))).sum(-1)


def tanh_gaussian_log_prob(pre_tanh: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """Log-density of ``a = tanh(u)``, ``u ~ N(mean, exp(log_std)^2)``, at ``u = pre_tanh``, shape ``(...)``.

    Change of variables: ``log p(a) = log N(u) - sum log(1 - tanh(u)^2)`` (Haarnoja et al. 2018, arXiv:1801.01290).
    """
    return gaussian_log_prob(pre_tanh, mean, log_std) - tanh_log_det(pre_tanh)


def product_of_gaussians(
    mean: torch.Tensor, var: torch.Tensor, min_var: float = 1e-7
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance ``(..., L)`` of the normalized product of N diagonal Gaussians ``(..., N, L)``.

    ``var = 1 / sum_n 1/var_n``, ``mean = var * sum_n mean_n/var_n`` with ``var_n`` at least ``min_var`` (Rakelly et al.
    2019, arXiv:1903.08254, section 4.1: a permutation-invariant posterior). No prior factor is multiplied in.
    """
    precision = var.clamp(min=min_var).reciprocal()
    product_var = precision.sum(-2).reciprocal()
    return product_var * (mean * precision).sum(-2), product_var


def gaussian_kl_to_standard(mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    """``KL(N(mean, var) || N(0, 1)) = 1/2 (var + mean^2 - 1 - ln var)`` summed over all entries; a scalar."""
    return 0.5 * (var + mean.square() - 1.0 - torch.log(var)).sum()


def gaussian_kl(
    mean: torch.Tensor, var: torch.Tensor, other_mean: torch.Tensor, other_var: torch.Tensor
) -> torch.Tensor:
    """``KL(N(mean, var) || N(other_mean, other_var))`` of independent entries, summed over all; a scalar."""
    return 0.5 * _twice_kl(mean, var, other_mean, other_var).sum()


def gaussian_kl_per_row(
    mean: torch.Tensor, log_std: torch.Tensor, other_mean: torch.Tensor, other_log_std: torch.Tensor
) -> torch.Tensor:
    """``KL(N(mean, exp(log_std)^2) || N(other_mean, exp(other_log_std)^2))``, ``(...)``, of arguments ``(..., A)``."""
    var, other_var = torch.exp(2.0 * log_std), torch.exp(2.0 * other_log_std)
    return 0.5 * _twice_kl(mean, var, other_mean, other_var).sum(-1)


def _twice_kl(mean: torch.Tensor, var: torch.Tensor, other_mean: torch.Tensor, other_var: torch.Tensor) -> torch.Tensor:
    ratio = var / other_var
    return ratio + (mean - other_mean).square() / other_var - 1.0 - torch.log(ratio)
