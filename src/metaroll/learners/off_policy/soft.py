"""Soft actor-critic: off-policy learning of a stochastic policy with an entropy bonus."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from metaroll.config import described
from metaroll.data.replay.transitions import TransitionBatch
from metaroll.functional.distributions import squashed_sample, squashed_sample_gradients
from metaroll.functional.gradients.actor_critic import (
    bootstrapped,
    soft_policy_loss,
    soft_values,
    temperature_gradient,
)
from metaroll.functional.gradients.optimizers import Adam
from metaroll.functional.gradients.perceptrons import Memory
from metaroll.learners.off_policy.base import Made, OffPolicyLearner, require_box
from metaroll.learners.off_policy.configs import OffPolicyConfig, SACConfig, SoftUpdate
from metaroll.learners.off_policy.nets import (
    CriticNets,
    PolicyNet,
    critic_nets,
    policy_net,
    were_by_hand,
    without_autograd,
)
from metaroll.learners.off_policy.trainer import CRITIC_LOSSES, CriticLosses, ReplayTrainer, Trained, descend_critics
from metaroll.policies.acting import ActingPolicy, check_policy
from metaroll.policies.encoders import encoders_of
from metaroll.policies.exploration import BoxExploration, Exploration
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.networks import Critics, critics_of, target_of
from metaroll.seeding import derive_seed, torch_generator

__all__ = [
    "POLICY_LOSSES",
    "SAC",
    "TEMPERATURE_LOSSES",
    "PolicyLosses",
    "SoftNets",
    "SoftNetworks",
    "SoftObjective",
    "SoftTrainer",
    "SquashedSample",
    "Temperature",
    "critic_target",
    "descend_entropy",
    "fit_critics",
    "improve_policy",
    "soft_settings",
]

POLICY_LOSSES = ("policy_loss", "log_prob")
TEMPERATURE_LOSSES = ("temperature",)


class Temperature(nn.Module):
    """The temperature ``alpha = exp(log)``: the weight of the entropy bonus.

    Args:
        value: Initial alpha.
    """

    def __init__(self, value: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(value)]))

    def forward(self) -> Tensor:
        """Alpha ``(1,)``, detached."""
        return self.log.detach().exp()


class SoftNetworks(NamedTuple):
    """Policy (its class depends on the learner), critics, target critics, and temperature."""

    policy: Any
    critics: Critics
    target_critics: Critics
    temperature: Temperature


class SoftNets(NamedTuple):
    """``SoftNetworks`` as the gradient steps call them, with the bounds of ``log_std`` of a Gaussian policy."""

    policy: PolicyNet
    critics: CriticNets
    target_critics: CriticNets
    temperature: Temperature
    log_std_bounds: tuple[float, float]

    def sample(self, observations: Tensor, noise: Tensor, *, fixed: bool = False) -> SquashedSample:
        """Reparametrized actions ``a = tanh(u)``, ``u = mu(s) + sigma(s) n``, for noise n ``(B, act_dim)``.

        Their log-densities are ``ln N(u; mu, sigma^2) - sum_i ln(1 - tanh(u_i)^2)`` (Haarnoja 2018b, appendix C).
        ``fixed``: no gradient of them will be needed.
        """
        # mu and ln sigma, (B, act_dim) each; ln sigma before and after clipping
        mean, unbounded = self.policy(observations, fixed=fixed).chunk(2, dim=-1)
        log_std = unbounded.clamp(*self.log_std_bounds)
        return SquashedSample(*squashed_sample(mean, log_std, noise), log_std, unbounded)


class SquashedSample(NamedTuple):
    """Actions ``(B, act_dim)`` in [-1, 1], ``ln pi(a | s)`` ``(B,)``, and ``log_std`` after and before clipping."""

    actions: Tensor
    log_prob: Tensor
    log_std: Tensor
    unbounded: Tensor


class PolicyLosses(NamedTuple):
    """Values of ``POLICY_LOSSES`` from one gradient step of the policy, and log-densities ``(B,)``."""

    seen: Tensor
    log_prob: Tensor


class SoftObjective(NamedTuple):
    """The gradient steps of critics and policy: functions of networks, batch, and noise of the shape of the actions.

    Attributes:
        fit_critics: One step of the critics.
        improve_policy: One step of the policy, after that of the critics; its log-densities drive the temperature.
        arithmetic: ``RLAlgorithm.arithmetic`` of networks whose gradients were computed by hand in version 0.1.
        description: Added to the fingerprint that a snapshot must match; ``None`` adds nothing.
    """

    fit_critics: Callable[[SoftNets, TransitionBatch, Tensor], CriticLosses]
    improve_policy: Callable[[SoftNets, TransitionBatch, Tensor], PolicyLosses]
    arithmetic: int
    description: str | None = None


def critic_target(nets: SoftNets, batch: TransitionBatch, noise: Tensor) -> Tensor:
    """Soft target ``y = r + gamma (min_k Q'_k(s', a') - alpha ln pi(a' | s'))``, ``(B,)``, with ``a' ~ pi(. | s')``.

    Haarnoja 2018b, equations 3 and 5, with the minimum over two target critics.

    Args:
        nets: All networks.
        batch: Transitions.
        noise: Standard normal noise for the next actions, ``(B, act_dim)``.
    """
    # a' ~ pi(. | s'), (B, act_dim), and ln pi(a' | s'), (B,)
    following = nets.sample(batch.next_observations, noise, fixed=True)
    # Clipped double Q: min_k Q'_k(s', a'), (K, B) -> (B,)
    least = nets.target_critics(batch.next_observations, following.actions).amin(dim=0)
    # Soft value (equation 3): V(s') = min_k Q'_k(s', a') - alpha ln pi(a' | s'), (B,)
    values = soft_values(least, following.log_prob, nets.temperature())
    # y = r + d V(s'), (B,); d is gamma (gamma^n for n-step returns), and 0 where s' is terminal
    return bootstrapped(batch.rewards, batch.discounts, values)


def fit_critics(nets: SoftNets, batch: TransitionBatch, noise: Tensor) -> CriticLosses:
    """One step of the critics toward ``critic_target`` (Haarnoja 2018b, equation 5), which uses ``noise``."""
    return descend_critics(nets.critics, batch, critic_target(nets, batch, noise))


def improve_policy(nets: SoftNets, batch: TransitionBatch, noise: Tensor) -> PolicyLosses:
    """One step of the policy down ``mean(alpha ln pi(a | s) - min_k Q_k(s, a))`` (Haarnoja 2018b, equation 9).

    Args:
        nets: All networks.
        batch: Transitions; only the observations are used.
        noise: Standard normal noise for the actions, ``(B, act_dim)``.
    """
    # a = tanh(mu(s) + sigma(s) n), (B, act_dim), and Q_k(s, a), (K, B)
    sample = nets.sample(batch.observations, noise)
    values = nets.critics(batch.observations, sample.actions)
    # dL/d min_k Q_k = -1 / B for each row, and 0 for the larger critic; the chain rule gives dL/da, (B, act_dim).
    # The critics themselves take no step here.
    grad_values = torch.full_like(sample.log_prob, -1 / len(noise))
    grad_actions = nets.critics.pull_actions_of_least(grad_values, values)
    return descend_entropy(nets, sample, noise, values.amin(dim=0), grad_actions)


def descend_entropy(
    nets: SoftNets, sample: SquashedSample, noise: Tensor, values: Tensor, grad_actions: Tensor
) -> PolicyLosses:
    """One step of a Gaussian policy down ``mean(alpha ln pi(a | s) - Q(s, a))`` (Haarnoja 2018b, equations 7 and 9).

    Args:
        nets: All networks.
        sample: The sampled actions; the policy must not have been called since.
        noise: The noise that they were sampled with, ``(B, act_dim)``.
        values: Q, ``(B,)``.
        grad_actions: Gradient of the loss with respect to the actions, through Q alone, ``(B, act_dim)``.
    """
    temperature = nets.temperature()
    # Reparametrization (equation 9): dL/dln pi = alpha / B and dL/da, back through a = tanh(mu + sigma n):
    # dL/dmu = dL/da (1 - a^2) + (alpha / B) 2 a, and dL/dln sigma = dL/dmu sigma n - alpha / B, both (B, act_dim).
    grad_mean, grad_log_std = squashed_sample_gradients(
        sample.log_std, noise, sample.actions, grad_actions, temperature * (1 / len(noise))
    )
    # Where ln sigma was clipped, it is constant: no gradient.
    grad_log_std = grad_log_std * (sample.log_std == sample.unbounded)
    # Adam on the policy, from dL/d(mu, ln sigma), (B, 2 act_dim)
    nets.policy.descend(torch.cat((grad_mean, grad_log_std), dim=-1))
    loss = soft_policy_loss(sample.log_prob, values, temperature)  # from before the step, for the log
    return PolicyLosses(torch.stack([loss, sample.log_prob.mean()]), sample.log_prob)


@final
class SoftTrainer(ReplayTrainer):
    """Gradient steps of maximum-entropy learners: critics, policy, temperature. They never synchronize with the device.

    Args:
        policy: The policy to train.
        critics: Its critics.
        exploration: The behavior policy.
        settings: Hyperparameters of the steps.
        objective: The steps of critics and policy.
        seed: Seed of the noise of gradient steps.
        device: Device of the networks.
    """

    def __init__(
        self,
        policy: ActingPolicy,
        critics: Critics,
        exploration: Exploration,
        settings: SoftUpdate,
        objective: SoftObjective,
        seed: int,
        device: torch.device,
    ) -> None:
        self.settings, self.objective = settings, objective
        self.target_entropy = cast("float", settings.target_entropy)  # filled in by soft_settings
        fixed = settings.temperature
        temperature = Temperature(settings.init_temperature if fixed is None else fixed)
        self.networks = SoftNetworks(policy, critics, target_of(critics), temperature)
        rates = {"critics": settings.qf_lr, "policy": settings.policy_lr}
        if fixed is None:
            rates["temperature"] = settings.temperature_lr
        super().__init__(exploration, Trained(self.networks._asdict(), rates, device), seed, device)
        self.nets = _nets_of(self.networks, self.trained.optimizers)
        self._without_autograd = without_autograd(self.nets.policy, self.nets.critics)

    def step(self, batch: TransitionBatch) -> Tensor:
        """See ``ReplayTrainer``."""
        nets, settings, trained = self.nets, self.settings, self.trained
        with self._without_autograd():
            # Noise n of a' (target) and of a (policy), (B, act_dim) each
            for_target, for_policy = self.draw_noise(2, *batch.actions.shape)
            # Critics: J_Q = mean((Q_k(s, a) - y)^2) / 2 (Haarnoja 2018b, equation 5)
            critic = self.objective.fit_critics(nets, batch, for_target)
            # Policy: J_pi = mean(alpha ln pi(a | s) - min_k Q_k(s, a)) (equation 9)
            policy = self.objective.improve_policy(nets, batch, for_policy)
            # Temperature: J = -mean(ln alpha (ln pi + H)) (equation 18, with ln alpha in place of alpha, so that alpha
            # stays positive)
            if settings.temperature is None:
                # dJ/dln alpha = -mean(ln pi + H), ()
                slope = temperature_gradient(policy.log_prob, self.target_entropy)
                trained.optimizers["temperature"].step([slope[None].to(nets.temperature.log.dtype)])
                self.means.add(TEMPERATURE_LOSSES, nets.temperature())
            # Polyak averaging of the targets: Q' <- (1 - tau) Q' + tau Q
            trained.follow("target_critics", "critics", settings.tau)
            self.means.add(CRITIC_LOSSES, critic.seen)
            self.means.add(POLICY_LOSSES, policy.seen)
            return critic.errors  # TD errors y - Q_1(s, a), (B,): new priorities

    def described(self) -> Sequence[str]:
        """See ``ReplayTrainer``."""
        description = self.objective.description
        return [described(self.settings, SoftUpdate), *([] if description is None else [description])]

    @property
    def arithmetic(self) -> int:
        """See ``ReplayTrainer``."""
        return self.objective.arithmetic if were_by_hand(self.networks.policy, self.networks.critics) else 2


def _nets_of(networks: SoftNetworks, optimizers: Mapping[str, Adam]) -> SoftNets:
    policy, critics, target_critics, temperature = networks
    bounds = policy.log_std_bounds if isinstance(policy, TanhGaussianMLPPolicy) else (-math.inf, math.inf)
    memory = Memory()
    return SoftNets(
        # Separate memory: the critics are evaluated between the forward and the backward pass of the policy.
        policy_net(policy, optimizers["policy"]),
        critic_nets(critics, optimizers["critics"], memory),
        critic_nets(target_critics, None, memory),
        temperature,
        bounds,
    )


def soft_settings(config: SoftUpdate, target_entropy: float) -> SoftUpdate:
    """The settings of gradient steps, with ``target_entropy`` filled in where ``config`` leaves it open."""
    return config if config.target_entropy is not None else replace(config, target_entropy=target_entropy)


class SAC(OffPolicyLearner[SACConfig]):
    """Soft actor-critic with two critics (Haarnoja et al. 2018b, arXiv:1812.05905).

    The temperature is tuned toward a target entropy, unless it is fixed. For Discrete actions see ``DiscreteSAC``.

    Arguments are those of ``OffPolicyLearner``, for Box actions. ``policy`` is a ``TanhGaussianMLPPolicy``. ``qf`` is a
    ``QFunction``, for which a second critic is initialized, or ``Critics`` of two. Defaults have two hidden layers of
    256. The policy itself is the behavior policy.
    """

    config_class: ClassVar[type[OffPolicyConfig]] = SACConfig

    def make(self, policy: Any, qf: Any, exploration_policy: Any) -> Made:
        """See ``OffPolicyLearner``."""
        spec = require_box(self.env_spec, "SAC", "DiscreteSAC, dqn and ppo learn choices")
        config = self.config
        generator = torch_generator(derive_seed("soft networks", self.seed))
        critics_see, policy_sees = encoders_of(spec, qf, generator)
        if policy is None:
            policy = TanhGaussianMLPPolicy(spec, (256, 256), init="fan_in", encoder=policy_sees, generator=generator)
        check_policy(policy, TanhGaussianMLPPolicy, spec)
        if qf is None:
            qf = Critics(spec, 2, init="fan_in", encoder=critics_see, generator=generator)
        critics = critics_of(qf, spec, 2, generator)
        explorer = BoxExploration(policy if exploration_policy is None else exploration_policy, config.random_steps)
        settings = soft_settings(config, -float(spec.act_dim))
        objective = SoftObjective(fit_critics, improve_policy, arithmetic=1)
        trainer = SoftTrainer(policy, critics, explorer, settings, objective, self.seed, self.device)
        return Made(policy, critics, explorer.policy, trainer, config.weight_exponent)
