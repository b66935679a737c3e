"""What a policy chooses from, for batches of rows: distributions of actions with densities, entropies, divergences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, final

import torch
from torch import Tensor

from metaroll.functional.distributions import (
    gaussian_entropy,
    gaussian_kl_per_row,
    gaussian_log_prob,
    tanh_gaussian_log_prob,
)

__all__ = ["ActionDistribution", "Categorical", "DiagonalGaussian", "SquashedGaussian"]


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
    """``mean`` and ``log_std``, both ``(..., act_dim)``."""

    mean: Tensor
    log_std: Tensor

    def log_prob(self, actions: Tensor) -> Tensor:
        return gaussian_log_prob(actions, self.mean, self.log_std)

    def entropy(self) -> Tensor:
        return gaussian_entropy(self.log_std)

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
        """As ``ActionDistribution``; actions at a bound count as the next number inside."""
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
