"""One gradient step of PEARL."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from metaroll.errors import InvalidValueError
from metaroll.learners.pearl_config import OptimisationConfig
from metaroll.learners.pearl_data import TransitionBatch
from metaroll.learners.pearl_losses import (
    PolicyRegularizers,
    critic_loss,
    policy_loss,
    q_target,
    soft_update,
    value_loss,
    value_target,
)
from metaroll.learners.pearl_networks import PEARLNetworks, PEARLOptimizers

__all__ = ["METRICS", "check_finite", "mean_metrics", "update_networks"]

METRICS = ("qf_loss", "vf_loss", "policy_loss", "kl", "z_abs_mean", "z_var", "q_mean", "log_prob")
"""What ``update_networks`` reports, in this order."""


@contextmanager
def _frozen(parameters: list[torch.nn.Parameter]) -> Iterator[None]:
    """Inside, gradients flow through these parameters but not into them (a third of a backward pass less)."""
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def update_networks(
    networks: PEARLNetworks,
    optimizers: PEARLOptimizers,
    batch: TransitionBatch,
    context: Tensor,
    config: OptimisationConfig,
    generator: torch.Generator,
    use_information_bottleneck: bool = True,
) -> Tensor:
    """Train all networks on transitions and contexts of X tasks (Rakelly 2019, algorithm 1); the ``METRICS``.

    The encoder learns from the KL term and the Q loss only: the policy and V see the latent without gradient. Q steps
    first, then the encoder, then V and its target, then the policy against the new Qs.

    Args:
        networks: Changed in place.
        optimizers: Changed in place.
        batch: Transitions of X tasks, B of each: ``(X, B, ...)``.
        context: Context entries of the same tasks, shape ``(X, N, context_dim)``.
        config: Learning rates and weights.
        generator: Source of the latent's and the actions' noise, on the device of the networks.
        use_information_bottleneck: Whether the latent is a distribution (with a KL term).
    """
    (action, mean, log_std, log_prob, pre_tanh), z = networks.policy(batch.observations, context, generator=generator)
    obs, act, rewards, next_obs, terminated = (part.flatten(0, 1) for part in batch)
    z_fixed = z.detach()

    kl = networks.policy.compute_kl_div() if use_information_bottleneck else None
    with torch.no_grad():
        target = q_target(
            rewards, terminated, networks.target_vf(next_obs, z_fixed), config.discount, config.reward_scale
        )
    q_mean, q_loss = _critic_step(networks, optimizers, torch.cat([obs, act], dim=-1), z, target, kl, config.kl_lambda)

    with _frozen(networks.q_parameters()):
        obs_action = torch.cat([obs, action], dim=-1)
        min_q = torch.minimum(networks.qf1(obs_action, z_fixed), networks.qf2(obs_action, z_fixed))

    v_loss = value_loss(networks.vf(obs, z_fixed), value_target(min_q, log_prob))
    _step(optimizers.vf, v_loss)
    soft_update(networks.target_vf.parameters(), networks.vf.parameters(), config.soft_target_tau)

    weights = PolicyRegularizers(
        config.policy_mean_reg_coeff, config.policy_std_reg_coeff, config.policy_pre_activation_coeff
    )
    pi_loss = policy_loss(log_prob, min_q, mean, log_std, pre_tanh, weights)
    _step(optimizers.policy, pi_loss)

    with torch.no_grad():
        return torch.stack(
            [
                q_loss,
                v_loss.detach(),
                pi_loss.detach(),
                kl.detach() if kl is not None else q_loss.new_zeros(()),
                networks.policy.z_means.abs().mean(),
                networks.policy.z_vars.mean(),
                q_mean,
                log_prob.detach().mean(),
            ]
        )


def _critic_step(
    networks: PEARLNetworks,
    optimizers: PEARLOptimizers,
    obs_action: Tensor,
    z: Tensor,
    target: Tensor,
    kl: Tensor | None,
    kl_lambda: float,
) -> tuple[Tensor, Tensor]:
    """Step both Q functions, then the encoder; mean prediction and loss before the step.

    The gradients of the KL term and of the Q loss are added up in one backward pass through the encoder; the KL term
    has none for the Q functions.
    """
    q1, q2 = networks.qf1(obs_action, z), networks.qf2(obs_action, z)
    q_loss = critic_loss(q1, q2, target)
    steppers = (optimizers.qf1, optimizers.qf2, optimizers.encoder)
    for optimizer in steppers:
        optimizer.zero_grad(set_to_none=True)
    (q_loss if kl is None or not kl_lambda else q_loss + kl_lambda * kl).backward()
    for optimizer in steppers:
        optimizer.step()
    return q1.detach().mean(), q_loss.detach()


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def mean_metrics(total: Tensor, count: int) -> dict[str, float]:
    """Averages over ``count`` steps by name (one copy from the device)."""
    return dict(zip(METRICS, (total / count).tolist(), strict=True))


def check_finite(
    networks: PEARLNetworks, metrics: Mapping[str, float], num_gradient_steps: int, reward_scale: float
) -> None:
    """``InvalidValueError`` if losses or weights hold NaN or Inf.

    The losses of the last step do not see what that step made of the weights, which would go into the next snapshot.
    """
    if not all(math.isfinite(value) for value in metrics.values()):
        what = f"the losses are not finite any more after {num_gradient_steps} gradient steps ({dict(metrics)})"
    elif not networks.all_finite():
        what = f"weights are not finite any more after {num_gradient_steps} gradient steps"
    else:
        return
    raise InvalidValueError(
        f"{what}; lower reward_scale (now {reward_scale}) or the learning rates, and resume from the last snapshot"
    )
