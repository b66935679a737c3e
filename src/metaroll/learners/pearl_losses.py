"""The losses of PEARL as pure functions of tensors (Rakelly et al. 2019, arXiv:1903.08254).

The actor-critic part is the first soft actor-critic, which has a state value network besides two Q functions (Haarnoja
et al. 2018, arXiv:1801.01290). The entropy weight is 1; the scale of the rewards takes the part of the temperature.
B counts transitions of all tasks. All means are over all entries. The KL term is
``functional.distributions.gaussian_kl_to_standard``, weighted by ``kl_lambda``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "PolicyRegularizers",
    "critic_loss",
    "policy_loss",
    "q_target",
    "soft_update",
    "value_loss",
    "value_target",
]


class PolicyRegularizers(NamedTuple):
    """Weights of the three regularizers of the policy's head."""

    mean: float = 1e-3
    std: float = 1e-3
    pre_activation: float = 0.0


def q_target(
    rewards: Tensor, terminated: Tensor, next_values: Tensor, discount: float, reward_scale: float = 1.0
) -> Tensor:
    """What both Q functions are fitted to: ``y = c r + (1 - d) gamma V'(s', z)``; shape ``(B, 1)``.

    Haarnoja 2018, equation 8, with rewards scaled by ``c``. A time limit is no termination: ``terminated`` is the end
    of the decision process only.

    Args:
        rewards: shape ``(B, 1)``.
        terminated: 1 where the process ended, else 0, shape ``(B, 1)``.
        next_values: Values of the successor states by the target network, shape ``(B, 1)``.
    """
    return reward_scale * rewards + (1.0 - terminated) * discount * next_values


def critic_loss(q1: Tensor, q2: Tensor, target: Tensor) -> Tensor:
    """``mean((Q1 - y)^2) + mean((Q2 - y)^2)``, scalar (Rakelly 2019, equation 2; no factor 1/2)."""
    return torch.nn.functional.mse_loss(q1, target) + torch.nn.functional.mse_loss(q2, target)


def value_target(min_q: Tensor, log_prob: Tensor) -> Tensor:
    """``min(Q1, Q2)(s, a', z) - ln pi(a' | s, z)`` with ``a'`` from the policy, without gradient; shape ``(B, 1)``.

    Haarnoja 2018, equation 3 (soft value of a state, one sample).
    """
    return (min_q - log_prob).detach()


def value_loss(values: Tensor, target: Tensor) -> Tensor:
    """``mean((V - target)^2)``, scalar (Haarnoja 2018, equation 5 without its factor 1/2)."""
    return torch.nn.functional.mse_loss(values, target)


def policy_loss(
    log_prob: Tensor,
    min_q: Tensor,
    mean: Tensor,
    log_std: Tensor,
    pre_tanh: Tensor,
    weights: PolicyRegularizers = PolicyRegularizers(),  # noqa: B008 - an immutable tuple
) -> Tensor:
    """``mean(ln pi - min Q) + w_m mean(mean^2) + w_s mean(log_std^2) + w_p mean_B(sum(pre_tanh^2))``, scalar.

    Haarnoja 2018, equation 12 (reparameterized: the gradient flows through the action into ``min_q``), with the
    regularizers of PEARL's authors.

    Args:
        log_prob: Log-density of the action, shape ``(B, 1)``.
        min_q: The smaller Q value of the action, shape ``(B, 1)``.
        mean: Mean before tanh, shape ``(B, act_dim)``; differentiable, else its regularizer would do nothing.
        log_std: Log standard deviation before tanh, shape ``(B, act_dim)``; differentiable as well.
        pre_tanh: The sampled action before tanh, shape ``(B, act_dim)``.
        weights: Weights of the regularizers; a weight of 0 skips its term.
    """
    loss = (log_prob - min_q).mean()
    if weights.mean:
        loss = loss + weights.mean * mean.square().mean()
    if weights.std:
        loss = loss + weights.std * log_std.square().mean()
    if weights.pre_activation:
        loss = loss + weights.pre_activation * pre_tanh.square().sum(dim=-1).mean()
    return loss


@torch.no_grad()
def soft_update(target: Iterable[Tensor], source: Iterable[Tensor], tau: float) -> None:
    """Move ``target`` toward ``source`` in place: ``t <- (1 - tau) t + tau s`` (Haarnoja 2018, algorithm 1)."""
    # One call for all tensors: a loop would cost more than the arithmetic.
    torch._foreach_lerp_(list(target), [tensor.detach() for tensor in source], tau)  # pyright: ignore[reportPrivateImportUsage]
