"""Log-densities and divergences of (squashed) diagonal Gaussians, as differentiable functions of torch tensors.

Policies choose from an ``ActionDistribution``: one distribution of actions for each row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, final

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "ActionDistribution",
    "Categorical",
    "DiagonalGaussian",
    "SquashedGaussian",
    "gaussian_entropy",
    "gaussian_kl",
    "gaussian_kl_per_row",
    "gaussian_kl_to_standard",
    "gaussian_log_prob",
    "product_of_gaussians",
    "squashed_sample",
    "squashed_sample_gradients",
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


def squashed_sample(
    mean: torch.Tensor, log_std: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """``a = tanh(u)``, ``u = mean + exp(log_std) n``, ``(..., act_dim)``, and its log-density ``(...)``.

    Reparameterized. It is ``tanh_gaussian_log_prob``: with ``u`` a function of ``n`` its square term is ``-n^2 / 2``, a
    constant.
    """
    # u = mean + sigma n, and ln N(u; mean, sigma^2) of each entry, (..., act_dim)
    pre_tanh = mean + log_std.exp() * noise
    log_normal = -0.5 * noise.square() - log_std - _HALF_LOG_2PI
    # ln(1 - tanh(u)^2), (..., act_dim), see tanh_log_det; both terms in one sum over the entries
    log_det = 2.0 * (_LOG_2 - pre_tanh - F.softplus(-2.0 * pre_tanh))
    return torch.tanh(pre_tanh), (log_normal - log_det).sum(-1)


def squashed_sample_gradients(
    log_std: torch.Tensor,
    noise: torch.Tensor,
    action: torch.Tensor,
    grad_action: torch.Tensor,
    grad_log_prob: torch.Tensor | float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients ``(..., act_dim)`` w.r.t. mean and log_std, from those w.r.t. the results of ``squashed_sample``.

    ``da/du = 1 - a^2``, ``d ln p/du = 2 a``, ``du/dlog_std = exp(log_std) n`` and, with ``u`` fixed,
    ``d ln p/dlog_std = -1``.

    Args:
        log_std: Argument of ``squashed_sample``, ``(..., act_dim)``.
        noise: Argument of ``squashed_sample``, ``(..., act_dim)``.
        action: The sampled action a, ``(..., act_dim)``.
        grad_action: ``dL/da``, ``(..., act_dim)``.
        grad_log_prob: ``dL/d ln p``, ``(..., 1)``, or one number.
    """
    # dL/dmean = dL/da (1 - a^2) + dL/dln p 2 a, and dL/dlog_std = dL/dmean sigma n - dL/dln p, (..., act_dim) each
    grad_mean = grad_action * (1.0 - action.square()) + (2.0 * grad_log_prob) * action
    return grad_mean, grad_mean * (log_std.exp() * noise) - grad_log_prob


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


class ActionDistribution(ABC):
    """One distribution of actions for each row ``(...)``; all members are differentiable in its tensors."""

    @abstractmethod
    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-densities ``(...)`` of ``actions (..., act_dim)``; integers ``(...)`` where actions are choices."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropies ``(...)``."""

    @abstractmethod
    def kl(self, other: Any) -> Tensor:
        """``KL(self || other)`` of each row, ``(...)``; ``other`` is of the same class."""

    @abstractmethod
    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same with ``change`` applied to each of its tensors: to detach them, to take some of the rows."""


@final
@dataclass(frozen=True)
class DiagonalGaussian(ActionDistribution):
    """``mean (..., act_dim)``, and ``log_std`` which broadcasts to it: all rows may share one."""

    mean: Tensor
    log_std: Tensor

    def log_prob(self, actions: Tensor) -> Tensor:
        return gaussian_log_prob(actions, self.mean, self.log_std)

    def entropy(self) -> Tensor:
        return gaussian_entropy(self.log_std.expand_as(self.mean))

    def kl(self, other: DiagonalGaussian) -> Tensor:
        return gaussian_kl_per_row(self.mean, self.log_std, other.mean, other.log_std)

    def map(self, change: Callable[[Tensor], Tensor]) -> DiagonalGaussian:
        return DiagonalGaussian(change(self.mean), change(self.log_std))


@final
@dataclass(frozen=True)
class SquashedGaussian(ActionDistribution):
    """``center + half_range * tanh(u)``; ``mean`` and ``log_std (..., act_dim)`` are those of the Gaussian u.

    ``center`` and ``half_range (act_dim,)`` are those of the interval that [-1, 1] is mapped to.
    """

    mean: Tensor
    log_std: Tensor
    center: Tensor
    half_range: Tensor

    def log_prob(self, actions: Tensor) -> Tensor:
        """See ``ActionDistribution``; actions at a bound count as the next number inside."""
        limit = 1.0 - torch.finfo(actions.dtype).eps
        pre_tanh = torch.atanh(((actions - self.center) / self.half_range).clamp(-limit, limit))
        return tanh_gaussian_log_prob(pre_tanh, self.mean, self.log_std) - self.half_range.log().sum()

    def entropy(self) -> Tensor:
        raise NotImplementedError("the entropy of a tanh-squashed Gaussian has no closed form")

    def kl(self, other: SquashedGaussian) -> Tensor:
        # A map of both that can be undone changes no divergence.
        return gaussian_kl_per_row(self.mean, self.log_std, other.mean, other.log_std)

    def map(self, change: Callable[[Tensor], Tensor]) -> SquashedGaussian:
        return SquashedGaussian(change(self.mean), change(self.log_std), self.center, self.half_range)


@final
@dataclass(frozen=True)
class Categorical(ActionDistribution):
    """One choice or several, each with a part of ``log_probs (..., num_actions)`` to itself.

    Attributes:
        log_probs: Normalized log-probabilities; those of several choices side by side.
        sizes: Number of possible actions of each choice.
        shape: Shape of one action; ``()`` where it is one integer.
    """

    log_probs: Tensor
    sizes: tuple[int, ...]
    shape: tuple[int, ...] = ()

    def log_prob(self, actions: Tensor) -> Tensor:
        parts = self._parts()
        chosen = actions.long().reshape(*actions.shape[: actions.ndim - len(self.shape)], len(parts))
        each = [part.gather(-1, chosen[..., i, None])[..., 0] for i, part in enumerate(parts)]
        return torch.stack(each).sum(dim=0)

    def entropy(self) -> Tensor:
        return torch.stack([-(part.exp() * part).sum(dim=-1) for part in self._parts()]).sum(dim=0)

    def kl(self, other: Categorical) -> Tensor:
        # log(0) of an action that cannot be chosen: it counts 0.
        difference = torch.where(self.log_probs > -torch.inf, self.log_probs - other.log_probs, 0.0)
        return (self.log_probs.exp() * difference).sum(dim=-1)

    def map(self, change: Callable[[Tensor], Tensor]) -> Categorical:
        return Categorical(change(self.log_probs), self.sizes, self.shape)

    def _parts(self) -> tuple[Tensor, ...]:
        return self.log_probs.split(self.sizes, dim=-1)
