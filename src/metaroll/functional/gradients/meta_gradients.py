"""Gradients through gradient steps: adaptation to tasks as a differentiable function of the initial parameters.

All are pure functions of tensors, without synchronization with the device. Parameters are flat: ``(P,)`` of one task,
whose arrays have no leading axis, or a stack ``(M, P)`` of M tasks with arrays ``(M, ...)``. B counts rollouts and T
their steps.
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
"""Objective of an inner step: see ``inner_objective``."""

Distribution = Callable[[Tensor, Tensor], ActionDistribution]
"""``distribution(parameters, observations)`` of a policy."""

_TINY = 1e-12


@dataclass(frozen=True)
class Samples:
    """Rollouts of one policy per task, padded to one length.

    Attributes:
        observations: ``(..., B, T, obs_dim)``.
        actions: ``(..., B, T, act_dim)``, integers ``(..., B, T)`` for choices.
        weights: ``(..., B, T)``: 0 on padding; with 1 over the number of steps of the task, weighted sums are means.
        advantages: ``(..., B, T)``.
        rewards: Discounted rewards less a baseline, for ``magic_box_objective``, ``(..., B, T)``.
        old: Distribution that the actions were drawn from; detached.
        old_log_prob: Log-probabilities of the actions under ``old``, ``(..., B, T)``.
        score: Return of the policy relative to those of the other tasks, ``(...)``.
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
        """The samples with ``change`` applied to every array, for example to select tasks."""
        fields = {name: value for name, value in vars(self).items() if name != "old"}
        return Samples(old=self.old.map(change), **{name: change(value) for name, value in fields.items()})


def log_prob_of(distribution: ActionDistribution, samples: Samples) -> Tensor:
    """Log-probabilities of the actions, ``(..., B, T)``; 0 on padding."""
    return torch.where(samples.weights != 0.0, distribution.log_prob(samples.actions), 0.0)


def mean_kl(distribution: ActionDistribution, samples: Samples) -> Tensor:
    """``KL(old || distribution)`` averaged over the steps of each task, ``(...)``."""
    divergence = torch.where(samples.weights != 0.0, samples.old.kl(distribution), 0.0)
    return averaged(divergence, samples.weights)


def inner_objective(kind: InnerObjective, log_prob: Tensor, samples: Samples) -> Tensor:
    """The objective of an inner step, to be maximized, of each task, ``(...)``.

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
        parameters: Before the first step, after it, ..., after the last: K + 1 vectors, each ``(..., P)``.
        distributions: Action distributions of the first K, at the observations of their samples.
        log_probs: Log-probabilities of the actions under these, each ``(..., B, T)``.
        gradients: Gradients of the K steps, each ``(..., P)``.
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

    The inner update of Finn et al. 2017 (arXiv:1703.03400), as gradient ascent.

    Args:
        parameters: ``(P,)`` of one task or ``(M, P)``; they require a gradient.
        samples: Samples of each step, collected with the parameters before it.
        distribution: Action distribution of the policy.
        step_sizes: ``(P,)``, or ``(M, P)`` for each task; 0 for parameters that are not adapted.
        kind: See ``inner_objective``.
        order: 2: derivatives w.r.t. ``parameters`` go through the gradients. 1: the gradients are treated as constants,
            so that the derivative of a step is the identity (first-order MAML). 0: nothing is differentiable, for
            adaptation only.

    Returns:
        Parameters, distributions, log-probabilities and gradients of all steps.
    """
    steps = Adaptation([parameters], [], [], [])
    for batch in samples:
        theta = steps.parameters[-1]
        # pi_theta(. | s) and ln pi_theta(a | s), (..., B, T)
        acts = distribution(theta, batch.observations)
        log_prob = log_prob_of(acts, batch)
        # J(theta) of each task; tasks are independent, so the gradient of their sum holds that of each, (..., P)
        value = inner_objective(kind, log_prob, batch).sum()
        (gradient,) = torch.autograd.grad(value, theta, create_graph=order == 2, retain_graph=order > 0)
        # theta' = theta + alpha grad J(theta), (..., P)
        following = theta + step_sizes * gradient
        steps.parameters.append(following if order else following.detach().requires_grad_())
        steps.distributions.append(acts)
        steps.log_probs.append(log_prob)
        steps.gradients.append(gradient)
    return steps


def mean_cosine(gradients: Tensor) -> Tensor:
    """Mean cosine similarity of M gradients ``(M, P)``, over all pairs; NaN for one."""
    count = len(gradients)
    # sum_{i != j} g_i . g_j = |sum_i g_i|^2 - sum_i |g_i|^2, of normalized gradients
    directions = gradients / gradients.norm(dim=1, keepdim=True).clamp(min=_TINY)
    pairs = directions.sum(dim=0).square().sum() - directions.square().sum()
    return pairs / (count * (count - 1)) if count > 1 else pairs * torch.nan


def conjugate_gradient(product: Callable[[Tensor], Tensor], target: Tensor, num_iterations: int = 10) -> Tensor:
    """An approximate solution x ``(P,)`` of ``A x = target`` for a positive definite A.

    Hestenes and Stiefel 1952. The number of iterations is fixed, to avoid synchronization for a residual; further
    iterations do not change a converged solution.

    Args:
        product: ``A v`` of a vector v.
        target: ``(P,)``.
        num_iterations: Number of products.
    """
    solution, residual, direction = torch.zeros_like(target), target.clone(), target.clone()
    squared = residual.dot(residual)
    for _ in range(num_iterations):
        # A p, (P,), and p^T A p, ()
        image = product(direction)
        curvature = direction.dot(image)
        # x <- x + a p, r <- r - a A p, with a = r^T r / p^T A p
        step = torch.where(curvature > _TINY * squared, squared / curvature, 0.0)
        solution = solution + step * direction
        residual = residual - step * image
        # p <- r + b p, with b = r'^T r' / r^T r
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
    """One step down ``gradient (P,)`` (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1)."""
    num_steps = state.num_steps + 1.0
    mean, deviation, first, second = adam_moments(gradient, state.first, state.second, num_steps, betas, eps)
    # theta <- theta - lr m_hat / (sqrt(v_hat) + eps), (P,)
    return parameters - learning_rate * (mean / deviation), AdamState(first, second, num_steps)


def clipped_by_norm(gradient: Tensor, max_norm: float | None) -> tuple[Tensor, Tensor]:
    """``gradient`` clipped to a norm of ``max_norm``, and its norm before clipping, ``()``."""
    norm = gradient.norm()
    if max_norm is None:
        return gradient, norm
    return gradient * (max_norm / (norm + 1e-6)).clamp(max=1.0), norm
