"""One gradient step of PEARL (Rakelly et al. 2019, arXiv:1903.08254).

The actor-critic part is the first version of soft actor-critic, with a state value network besides two Q functions
(Haarnoja et al. 2018, arXiv:1801.01290). The entropy weight is 1; the reward scale acts as inverse temperature. B
counts the transitions of all tasks. Means are over all entries. Targets and losses are those of
``functional.gradients.actor_critic``; the KL term is ``functional.distributions.gaussian_kl_to_standard``, weighted by
``kl_lambda``.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from metaroll.errors import DivergedError
from metaroll.functional.gradients.actor_critic import critic_loss, q_target, soft_update, value_loss, value_target
from metaroll.learners.pearl_config import PEARLConfig
from metaroll.learners.pearl_networks import PEARLNetworks, PEARLOptimizers
from metaroll.policies.adapters import ContextEncoder
from metaroll.processing.task_buffers import RowLayout, TransitionBatch

__all__ = [
    "METRICS",
    "PolicyRegularizers",
    "check_finite",
    "gradient_step",
    "mean_metrics",
    "policy_loss",
    "seconds_of_step",
    "update_networks",
]


class PolicyRegularizers(NamedTuple):
    """Weights of the three regularizers of the policy's outputs."""

    mean: float = 1e-3
    std: float = 1e-3
    pre_activation: float = 0.0


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
        mean: Mean before tanh, shape ``(B, act_dim)``; differentiable, or its regularizer has no effect.
        log_std: Log standard deviation before tanh, shape ``(B, act_dim)``; differentiable as well.
        pre_tanh: The sampled action before tanh, shape ``(B, act_dim)``.
        weights: Weights of the regularizers; a weight of 0 skips its term.
    """
    # J_pi = mean(ln pi(a | s, z) - min_k Q_k(s, a, z)), (B, 1) -> ()
    loss = (log_prob - min_q).mean()
    # Regularizers of mu, ln sigma and u, (B, act_dim) each
    if weights.mean:
        loss = loss + weights.mean * mean.square().mean()
    if weights.std:
        loss = loss + weights.std * log_std.square().mean()
    if weights.pre_activation:
        loss = loss + weights.pre_activation * pre_tanh.square().sum(dim=-1).mean()
    return loss


METRICS = ("qf_loss", "vf_loss", "policy_loss", "kl", "z_abs_mean", "z_var", "q_mean", "log_prob")
"""The metrics of ``update_networks``, in this order."""


@contextmanager
def _frozen(parameters: list[torch.nn.Parameter]) -> Iterator[None]:
    """Within the context, gradients flow through these layers, not into their parameters (a third of the work less)."""
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
    config: PEARLConfig,
    generator: torch.Generator,
) -> Tensor:
    """Train all networks on transitions and contexts of X tasks (Rakelly 2019, algorithm 1); returns the ``METRICS``.

    The encoder learns from the KL term and the Q loss only: policy and V get the latent detached. Both Qs and the
    encoder step first, then V and its target, then the policy against the new Qs.

    Args:
        networks: Changed in place.
        optimizers: Changed in place.
        batch: Transitions of X tasks, B of each: ``(X, B, ...)``.
        context: Context entries of the same tasks, shape ``(X, N, context_dim)``.
        config: Weights of the losses, and whether the latent is a distribution (with a KL term).
        generator: Source of the latent's and the actions' noise, on the device of the networks.
    """
    # z ~ q(z | c), one per task and repeated for its transitions, (X B, latent_dim), with gradient to the encoder;
    # a ~ pi(. | s, z), (X B, act_dim), and ln pi(a | s, z), (X B, 1)
    (action, mean, log_std, log_prob, pre_tanh), z = networks.policy(batch.observations, context, generator=generator)
    obs, act, rewards, next_obs, terminated = (part.flatten(0, 1) for part in batch)  # (X, B, ...) -> (X B, ...)
    z_fixed = z.detach()

    # KL(q(z | c) || N(0, I)), (): the information bottleneck (Rakelly 2019, equation 1)
    kl = networks.policy.compute_kl_div() if config.use_information_bottleneck else None
    # y = c r + gamma (1 - d) V'(s', z), (X B, 1) (Haarnoja 2018, equation 8)
    with torch.no_grad():
        target = q_target(
            rewards, terminated, networks.target_vf(next_obs, z_fixed), config.discount, config.reward_scale
        )
    # Q_1, Q_2 and the encoder: mean((Q_k(s, a, z) - y)^2), summed over k, + lambda KL (Rakelly 2019, equation 2)
    q_mean, q_loss = _critic_step(networks, optimizers, torch.cat([obs, act], dim=-1), z, target, kl, config.kl_lambda)

    # min_k Q_k(s, a, z) of the policy's own actions, with the updated Qs, (X B, 1)
    with _frozen(networks.q_parameters()):
        obs_action = torch.cat([obs, action], dim=-1)
        min_q = torch.minimum(networks.qf1(obs_action, z_fixed), networks.qf2(obs_action, z_fixed))

    # V: mean((V(s, z) - (min_k Q_k - ln pi))^2) (Haarnoja 2018, equations 3 and 5)
    v_loss = value_loss(networks.vf(obs, z_fixed), value_target(min_q, log_prob))
    _step(optimizers.vf, v_loss)
    # Target of V: V' <- (1 - tau) V' + tau V
    soft_update(networks.target_vf.parameters(), networks.vf.parameters(), config.tau)

    # Policy: mean(ln pi(a | s, z) - min_k Q_k(s, a, z)) + regularizers (Haarnoja 2018, equation 12; Rakelly 2019,
    # equation 3)
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


def gradient_step(
    networks: PEARLNetworks,
    optimizers: PEARLOptimizers,
    context: Tensor,
    draw: Callable[[], TransitionBatch],
    config: PEARLConfig,
    noise: torch.Generator,
) -> Tensor:
    """Train all networks once (once per context slice of a recurrent encoder); returns averages of ``METRICS``.

    Args:
        networks: The networks to train.
        optimizers: Their optimizers.
        context: Context of each task, ``(X, N, context_dim)``.
        draw: Samples transitions of the tasks, once per slice.
        config: Weights and sizes.
        noise: Generator for latents and actions.
    """
    encoder = ContextEncoder(networks.encoder)
    encoder.reset()
    total = torch.zeros(len(METRICS), device=context.device)
    for part in context.split(config.embedding_mini_batch_size, dim=1):
        total += update_networks(networks, optimizers, draw(), part, config, noise)
        encoder.detach_hidden()
    return total / config.num_context_slices


_MOST_NUMBERS = 1 << 27
"""Steps with larger batches are not timed (512 MiB)."""


def seconds_of_step(
    networks: PEARLNetworks, optimizers: PEARLOptimizers, layout: RowLayout, config: PEARLConfig, device: torch.device
) -> float | None:
    """Seconds per ``gradient_step`` on copies of networks and optimizers, with random data of the right shape.

    ``None`` where the data would be too large.
    """
    tasks = config.meta_batch_size
    sizes = (tasks, config.embedding_batch_size, layout.context_width), (tasks, config.batch_size, layout.width)
    if max(map(math.prod, sizes)) > _MOST_NUMBERS:
        return None
    networks, optimizers = copy.deepcopy((networks, optimizers))
    noise = torch.Generator(device).manual_seed(0)
    context, rows = (torch.randn(size, generator=noise, device=device) for size in sizes)
    seconds: list[float] = []
    for _ in range(_TIMED_STEPS):
        started = time.perf_counter()
        gradient_step(networks, optimizers, context, lambda: layout.split(rows), config, noise).sum().item()
        seconds.append(time.perf_counter() - started)
    return sum(seconds[1:]) / len(seconds[1:])


_TIMED_STEPS = 3
"""The first one is slower (threads and memory are set up), and not counted."""


def _critic_step(
    networks: PEARLNetworks,
    optimizers: PEARLOptimizers,
    obs_action: Tensor,
    z: Tensor,
    target: Tensor,
    kl: Tensor | None,
    kl_lambda: float,
) -> tuple[Tensor, Tensor]:
    """Step both Q functions, then the encoder; returns mean prediction and loss from before the step.

    One backward pass through the encoder sums the gradients of the KL term and of the Q loss; the KL term has no
    gradient for the Q functions.
    """
    # L_Q = mean((Q_1 - y)^2) + mean((Q_2 - y)^2), (B, 1) -> ()
    q1, q2 = networks.qf1(obs_action, z), networks.qf2(obs_action, z)
    q_loss = critic_loss(q1, q2, target)
    optimizers_to_step = (optimizers.qf1, optimizers.qf2, optimizers.encoder)
    for optimizer in optimizers_to_step:
        optimizer.zero_grad(set_to_none=True)
    # L = L_Q + lambda KL(q(z | c) || N(0, I))
    (q_loss if kl is None or not kl_lambda else q_loss + kl_lambda * kl).backward()
    for optimizer in optimizers_to_step:
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
    """Raise ``DivergedError`` if losses or weights hold NaN or Inf.

    Losses alone are not enough: they do not cover the weights after the last step, which the next snapshot saves.
    """
    if not all(math.isfinite(value) for value in metrics.values()):
        problem = f"the losses are no longer finite after {num_gradient_steps} gradient steps ({dict(metrics)})"
    elif not networks.all_finite():
        problem = f"the weights are no longer finite after {num_gradient_steps} gradient steps"
    else:
        return
    raise DivergedError.of(problem, {"reward_scale": reward_scale})
