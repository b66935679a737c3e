"""Gradients through gradient steps: adaptation to tasks as a differentiable function of the initial parameters.

All are pure functions of tensors that wait for no device. Parameters are flat: ``(P,)`` of one task, whose arrays have
no leading axis, or a stack ``(M, P)`` of M tasks with arrays ``(M, ...)``. B counts rollouts and T their steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from metaroll.functional.adam import adam_moments
from metaroll.functional.distributions import ActionDistribution
from metaroll.functional.gradients.surrogates import magic_box_objective, ratio_objective

__all__ = [
    "AdamState",
    "Adaptation",
    "Distribution",
    "InnerObjective",
    "Samples",
    "adam_step",
    "adapt",
    "averaged",
    "clipped_by_norm",
    "conjugate_gradient",
    "inner_objective",
    "log_prob_of",
    "mean_cosine",
    "mean_kl",
]

InnerObjective = Literal["ratio", "log-likelihood", "magic-box"]
"""What an inner step maximizes: see ``inner_objective``."""

Distribution = Callable[[Tensor, Tensor], ActionDistribution]
"""``distribution(parameters, observations)`` of a policy."""

_TINY = 1e-12


@dataclass(frozen=True)
class Samples:
    """Rollouts of one policy per task, padded to one length.

    Attributes:
        observations: ``(..., B, T, obs_dim)``.
        actions: ``(..., B, T, act_dim)``, integers ``(..., B, T)`` where they are choices.
        weights: ``(..., B, T)``: 0 on padding; 1 over the number of steps of the task makes weighted sums means.
        advantages: ``(..., B, T)``.
        rewards: What ``magic_box_objective`` takes: discounted rewards less a baseline, ``(..., B, T)``.
        old: What the actions were drawn from; no gradient flows through it.
        old_log_prob: Log-probabilities of the actions under ``old``, ``(..., B, T)``.
        score: How well the policy did beside those of the other tasks, ``(...)``.
    """

    observations: Tensor
    actions: Tensor
    weights: Tensor
    advantages: Tensor
    rewards: Tensor
    old: ActionDistribution
    old_log_prob: Tensor
    score: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> Samples:
        """The same with ``change`` applied to every array: to take some of the tasks, say."""
        fields = {name: value for name, value in vars(self).items() if name != "old"}
        return Samples(old=self.old.map(change), **{name: change(value) for name, value in fields.items()})


def log_prob_of(distribution: ActionDistribution, samples: Samples) -> Tensor:
    """Log-probabilities of the actions, ``(..., B, T)``; 0 on padding, where they mean nothing."""
    return torch.where(samples.weights != 0.0, distribution.log_prob(samples.actions), 0.0)


def mean_kl(distribution: ActionDistribution, samples: Samples) -> Tensor:
    """``KL(old || distribution)`` averaged over the steps of each task, ``(...)``."""
    divergence = torch.where(samples.weights != 0.0, samples.old.kl(distribution), 0.0)
    return averaged(divergence, samples.weights)


def inner_objective(kind: InnerObjective, log_prob: Tensor, samples: Samples) -> Tensor:
    """What an inner step maximizes in each task, ``(...)``.

    ``"ratio"``: ``E[r A]`` (see ``ratio_objective``); ``"log-likelihood"``: ``E[log_prob A]``, as in Finn et al. 2017
    (arXiv:1703.03400, equation 4); ``"magic-box"``: see ``magic_box_objective``.
    """
    if kind == "ratio":
        each = ratio_objective(log_prob, samples.old_log_prob, samples.advantages)
    elif kind == "log-likelihood":
        each = log_prob * samples.advantages
    else:
        each = magic_box_objective(log_prob, samples.rewards)
    return averaged(each, samples.weights)


def averaged(each: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums over the steps of each task, ``(...)``, of arguments ``(..., B, T)``."""
    return (each * weights).sum(dim=(-2, -1))


class Adaptation(NamedTuple):
    """K inner steps.

    Attributes:
        parameters: Before the first step, after it, ..., after the last: K + 1 of them, each ``(..., P)``.
        distributions: Of the first K at the observations of their samples.
        log_probs: Of the actions under these, each ``(..., B, T)``.
        gradients: What the K steps went along, each ``(..., P)``.
    """

    parameters: list[Tensor]
    distributions: list[ActionDistribution]
    log_probs: list[Tensor]
    gradients: list[Tensor]


def adapt(
    parameters: Tensor,
    samples: Sequence[Samples],
    distribution: Distribution,
    step_sizes: Tensor,
    *,
    kind: InnerObjective = "ratio",
    order: Literal[0, 1, 2] = 2,
) -> Adaptation:
    """Gradient steps ``parameters + step_sizes * gradient``, the k-th one on ``samples[k]``.

    Args:
        parameters: ``(P,)`` of one task or ``(M, P)``; they require a gradient.
        samples: Those of each step, collected with the parameters before it.
        distribution: Of the policy.
        step_sizes: ``(P,)``, or ``(M, P)`` for each task; 0 for parameters that are not adapted.
        kind: See ``inner_objective``.
        order: 2: derivatives by ``parameters`` go through the gradients. 1: these count as constants, so that the
            derivative of a step is the identity (first-order MAML). 0: nothing is differentiable, each step begins
            anew; for those who only adapt.

    Returns:
        What was passed on the way.
    """
    passed = Adaptation([parameters], [], [], [])
    for found in samples:
        now = passed.parameters[-1]
        acts = distribution(now, found.observations)
        log_prob = log_prob_of(acts, found)
        value = inner_objective(kind, log_prob, found).sum()
        (gradient,) = torch.autograd.grad(value, now, create_graph=order == 2, retain_graph=order > 0)
        following = now + step_sizes * gradient
        passed.parameters.append(following if order else following.detach().requires_grad_())
        passed.distributions.append(acts)
        passed.log_probs.append(log_prob)
        passed.gradients.append(gradient)
    return passed


def mean_cosine(gradients: Tensor) -> Tensor:
    """Mean cosine of the angles between M gradients ``(M, P)``, over all pairs; NaN for one."""
    count = len(gradients)
    directions = gradients / gradients.norm(dim=1, keepdim=True).clamp(min=_TINY)
    pairs = directions.sum(dim=0).square().sum() - directions.square().sum()
    return pairs / (count * (count - 1)) if count > 1 else pairs * torch.nan


def conjugate_gradient(product: Callable[[Tensor], Tensor], target: Tensor, num_iterations: int = 10) -> Tensor:
    """An approximate solution x ``(P,)`` of ``A x = target`` for a positive definite A.

    Hestenes and Stiefel 1952. The number of iterations is fixed, so that nobody waits for a residual; what is solved
    stays solved.

    Args:
        product: ``A v`` of a vector v.
        target: ``(P,)``.
        num_iterations: How many products are taken.
    """
    solution, residual, direction = torch.zeros_like(target), target.clone(), target.clone()
    squared = residual.dot(residual)
    for _ in range(num_iterations):
        image = product(direction)
        curvature = direction.dot(image)
        step = torch.where(curvature > _TINY * squared, squared / curvature, 0.0)
        solution = solution + step * direction
        residual = residual - step * image
        following = residual.dot(residual)
        direction = residual + torch.where(squared > 0.0, following / squared, 0.0) * direction
        squared = following
    return solution


class AdamState(NamedTuple):
    """Moments ``(P,)`` and number of steps ``()`` of Adam."""

    first: Tensor
    second: Tensor
    num_steps: Tensor


def adam_step(
    parameters: Tensor,
    gradient: Tensor,
    state: AdamState,
    learning_rate: float,
    *,
    eps: float = 1e-8,
    betas: tuple[float, float] = (0.9, 0.999),
) -> tuple[Tensor, AdamState]:
    """One step against ``gradient (P,)`` (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1)."""
    num_steps = state.num_steps + 1.0
    mean, deviation, first, second = adam_moments(gradient, state.first, state.second, num_steps, betas, eps)
    return parameters - learning_rate * (mean / deviation), AdamState(first, second, num_steps)


def clipped_by_norm(gradient: Tensor, max_norm: float | None) -> tuple[Tensor, Tensor]:
    """``gradient`` with a norm of at most ``max_norm``, and the norm that it had, ``()``."""
    norm = gradient.norm()
    if max_norm is None:
        return gradient, norm
    return gradient * (max_norm / (norm + 1e-6)).clamp(max=1.0), norm
