"""Targets and losses of off-policy learners, as pure functions of tensors.

B counts the steps of a batch, K the critics. Elementwise functions have shapes ``(...)``. Rewards may be n-step sums;
``discounts`` are the weights of the successors' values: ``gamma^n``, and 0 after a termination. A time limit is not a
termination.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = [
    "bootstrapped",
    "chosen_values",
    "chosen_values_gradient",
    "critic_loss",
    "critics_loss",
    "critics_loss_gradient",
    "expected_values",
    "expected_values_gradient",
    "greedy_values",
    "huber_loss",
    "huber_loss_gradient",
    "q_target",
    "smoothed_actions",
    "soft_policy_loss",
    "soft_update",
    "soft_values",
    "temperature_gradient",
    "temperature_loss",
    "value_loss",
    "value_target",
]


def bootstrapped(rewards: Tensor, discounts: Tensor, next_values: Tensor, reward_scale: float = 1.0) -> Tensor:
    """Bootstrapped target of action values: ``y = c r + discounts V(s')``, ``(...)`` like the arguments.

    Watkins 1989; Lillicrap et al. 2016, arXiv:1509.02971, equation 5; with rewards scaled by ``c``.
    """
    return reward_scale * rewards + discounts * next_values


def q_target(
    rewards: Tensor, terminated: Tensor, next_values: Tensor, discount: float, reward_scale: float = 1.0
) -> Tensor:
    """``y = c r + (1 - d) gamma V'(s')``; shape ``(B, 1)``.

    Haarnoja et al. 2018, arXiv:1801.01290, equation 8, with rewards scaled by ``c``. ``terminated`` excludes time
    limits.

    Args:
        rewards: shape ``(B, 1)``.
        terminated: 1 where the episode terminated, else 0, shape ``(B, 1)``.
        next_values: Values of the successor states by the target network, shape ``(B, 1)``.
    """
    return bootstrapped(rewards, (1.0 - terminated) * discount, next_values, reward_scale)


def critic_loss(q1: Tensor, q2: Tensor, target: Tensor) -> Tensor:
    """``mean((Q1 - y)^2) + mean((Q2 - y)^2)``, scalar (Rakelly et al. 2019, arXiv:1903.08254, equation 2; no 1/2)."""
    return torch.nn.functional.mse_loss(q1, target) + torch.nn.functional.mse_loss(q2, target)


def critics_loss(values: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """``sum_k mean_b w_b (Q_k - y)^2 / 2``, scalar: the sum of the losses of K critics.

    Fujimoto et al. 2018, arXiv:1802.09477, algorithm 1 (with the factor 1/2, as in equation 5 of Haarnoja 2018b,
    arXiv:1812.05905).

    Args:
        values: Values of the critics, ``(K, B)``.
        target: Their target, detached, ``(B,)``.
        weights: Importance weights of prioritized replay, ``(B,)``; ``None`` for 1.
    """
    if weights is None:
        return torch.nn.functional.mse_loss(values, target.expand_as(values)) * (0.5 * len(values))
    return 0.5 * ((values - target).square() * weights).mean(dim=-1).sum()


def critics_loss_gradient(values: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Gradient of ``critics_loss`` w.r.t. ``values``, ``(K, B)`` or ``(B,)`` of one critic: ``w_b (Q_k - y) / B``."""
    gradient = (values - target) / values.shape[-1]
    return gradient if weights is None else gradient * weights


def chosen_values(values: Tensor, actions: Tensor) -> Tensor:
    """The values ``(...)`` of the chosen actions, integers ``(...)``, from those of all actions, ``(..., n)``."""
    return values.gather(-1, actions[..., None])[..., 0]


def chosen_values_gradient(grad: Tensor, actions: Tensor, num_actions: int) -> Tensor:
    """Gradient ``(..., n)`` of ``values`` from that of ``chosen_values`` ``(...)``: 0 for all other actions."""
    return grad.new_zeros((*grad.shape, num_actions)).scatter_(-1, actions[..., None], grad[..., None])


def expected_values(log_probs: Tensor, values: Tensor) -> Tensor:
    """``sum_a pi(a | s) v(s, a)``, exact, ``(B,)`` (Christodoulou 2019, arXiv:1910.07207, equations 10 to 12).

    Args:
        log_probs: ``ln pi`` of all actions, ``(B, n)``; each must be finite.
        values: ``(B, n)``. With ``soft_values`` the result is the soft state value, with ``log_probs`` the negative
            entropy.
    """
    return (log_probs.exp() * values).sum(dim=-1)


def expected_values_gradient(log_probs: Tensor, values: Tensor, expected: Tensor) -> Tensor:
    """Gradient ``(B, n)`` of ``expected_values`` w.r.t. the logits of pi: ``pi(a | s) (v(s, a) - E[v])``.

    Also valid for ``v(s, a) = q(s, a) - alpha ln pi(a | s)``: the derivative of the entropy term sums to 0.

    Args:
        log_probs: ``(B, n)``, see there.
        values: ``(B, n)``, see there.
        expected: Result of ``expected_values``, ``(B,)``.
    """
    return log_probs.exp() * (values - expected[:, None])


def greedy_values(target: Tensor, online: Tensor | None = None) -> Tensor:
    """Values of the best actions, ``(B,)``.

    ``max_a Q'(s, a)`` (Mnih et al. 2015), or ``Q'(s, argmax_a Q(s, a))`` with the argmax of the ``online`` network
    (double Q-learning, van Hasselt et al. 2016, arXiv:1509.06461, equation 4).

    Args:
        target: Values of the target network, ``(B, n)``.
        online: Values of the online network, ``(B, n)``.
    """
    return target.amax(dim=-1) if online is None else chosen_values(target, online.argmax(dim=-1))


def huber_loss(values: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """``mean_b w_b h(Q - y)`` with ``h(e) = e^2 / 2`` for ``|e| <= 1``, else ``|e| - 1/2``, scalar.

    The error clipping of Mnih et al. 2015 (Huber 1964).

    Args:
        values: ``(B,)``.
        target: Detached, ``(B,)``.
        weights: Importance weights, ``(B,)``; ``None`` for 1.
    """
    losses = torch.nn.functional.smooth_l1_loss(values, target, reduction="none")
    return (losses if weights is None else losses * weights).mean()


def huber_loss_gradient(values: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Gradient ``(B,)`` of ``huber_loss`` with respect to ``values``: ``w_b clip(Q - y, -1, 1) / B``."""
    share = 1.0 / len(values)
    return (values - target).clamp(-1.0, 1.0) * (share if weights is None else weights * share)


def value_target(min_q: Tensor, log_prob: Tensor) -> Tensor:
    """``min(Q1, Q2)(s, a', z) - ln pi(a' | s, z)`` with ``a'`` from the policy, detached; shape ``(B, 1)``.

    Haarnoja 2018, equation 3 (soft state value, one sample).
    """
    return soft_values(min_q, log_prob, 1.0).detach()


def value_loss(values: Tensor, target: Tensor) -> Tensor:
    """``mean((V - target)^2)``, scalar (Haarnoja 2018, equation 5 without its factor 1/2)."""
    return torch.nn.functional.mse_loss(values, target)


def smoothed_actions(actions: Tensor, noise: Tensor, std: float, clip: float) -> Tensor:
    """``clip(a + clip(std n, -c, c), -1, 1)``: target policy smoothing.

    Fujimoto 2018, equation 14.

    Args:
        actions: Actions in [-1, 1], ``(B, act_dim)``.
        noise: Standard normal noise of the same shape.
        std: Standard deviation.
        clip: The bound c of the noise.
    """
    return (actions + (std * noise).clamp(-clip, clip)).clamp(-1.0, 1.0)


def soft_values(min_q: Tensor, log_prob: Tensor, temperature: Tensor | float) -> Tensor:
    """``min_k Q_k(s, a) - alpha ln pi(a | s)`` with ``a`` from the policy, ``(...)``.

    Haarnoja et al. 2018b, arXiv:1812.05905, equation 3 (one sample).
    """
    return min_q - temperature * log_prob


def soft_policy_loss(log_prob: Tensor, min_q: Tensor, temperature: Tensor | float) -> Tensor:
    """``mean(alpha ln pi(a | s) - min_k Q_k(s, a))``, scalar; the gradient flows through ``a`` into ``min_q``.

    Haarnoja 2018b, equation 7.
    """
    return -soft_values(min_q, log_prob, temperature).mean()


def temperature_loss(log_temperature: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
    """``-mean(ln alpha (ln pi(a | s) + H))``, scalar: alpha decreases while the entropy exceeds ``H``.

    Haarnoja 2018b, equation 18, with ``ln alpha`` in place of ``alpha``, as in the authors' code: the sign of the
    gradient is the same, and alpha stays positive.

    Args:
        log_temperature: ``ln alpha``, ``(1,)`` or ``()``.
        log_prob: Log-densities of actions of the policy, detached, ``(B,)``.
        target_entropy: The target entropy ``H``.
    """
    return -(log_temperature * (log_prob + target_entropy)).mean()


def temperature_gradient(log_prob: Tensor, target_entropy: float) -> Tensor:
    """Derivative ``()`` of ``temperature_loss`` with respect to ``ln alpha``: ``-mean(ln pi(a | s) + H)``."""
    return -(log_prob.mean() + target_entropy)


@torch.no_grad()
def soft_update(target: Iterable[Tensor], source: Iterable[Tensor], tau: float) -> None:
    """Move ``target`` toward ``source`` in place: ``t <- (1 - tau) t + tau s`` (Lillicrap 2016, algorithm 1)."""
    # One call for all tensors: the overhead of a loop exceeds the arithmetic.
    torch._foreach_lerp_(list(target), [tensor.detach() for tensor in source], tau)  # pyright: ignore[reportPrivateImportUsage]
