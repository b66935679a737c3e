"""SAC: a stochastic policy that is paid for its entropy."""

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
    """``alpha = exp(log)``: what entropy counts.

    Args:
        value: Alpha at first.
    """

    def __init__(self, value: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(value)]))

    def forward(self) -> Tensor:
        """Alpha, ``(1,)``, without gradient."""
        return self.log.detach().exp()


class SoftNetworks(NamedTuple):
    """A policy (of another kind in other learners), its critics and their targets, and the temperature."""

    policy: Any
    critics: Critics
    target_critics: Critics
    temperature: Temperature


class SoftNets(NamedTuple):
    """The same as gradient steps use them, and the bounds of ``log_std`` where the policy is a Gaussian."""

    policy: PolicyNet
    critics: CriticNets
    target_critics: CriticNets
    temperature: Temperature
    log_std_bounds: tuple[float, float]

    def sample(self, observations: Tensor, noise: Tensor, *, fixed: bool = False) -> SquashedSample:
        """Actions ``a = tanh(u)``, ``u = mu(s) + sigma(s) n``, of a Gaussian policy for noise n ``(B, act_dim)``.

        Their log-densities are ``ln N(u; mu, sigma^2) - sum_i ln(1 - tanh(u_i)^2)`` (Haarnoja 2018b, appendix C).
        ``fixed``: nothing will be asked of their gradient.
        """
        mean, unbounded = self.policy(observations, fixed=fixed).chunk(2, dim=-1)  # unbounded: ln sigma
        log_std = unbounded.clamp(*self.log_std_bounds)
        return SquashedSample(*squashed_sample(mean, log_std, noise), log_std, unbounded)


class SquashedSample(NamedTuple):
    """Actions ``(B, act_dim)`` in [-1, 1], ``ln pi(a | s)`` ``(B,)``, and ``log_std`` within its bounds and before."""

    actions: Tensor
    log_prob: Tensor
    log_std: Tensor
    unbounded: Tensor


class PolicyLosses(NamedTuple):
    """What a gradient step of the policy was made of: ``POLICY_LOSSES``, and log-densities ``(B,)``."""

    seen: Tensor
    log_prob: Tensor


class SoftObjective(NamedTuple):
    """The gradient steps of critics and policy, of networks, a batch and noise ``(B, ...)`` of the shape of actions.

    Attributes:
        fit_critics: A step of the critics.
        improve_policy: A step of the policy, after that of the critics; its log-densities lead the temperature.
        arithmetic: ``RLAlgorithm.arithmetic``, for networks whose gradients version 0.1 computed by hand, too.
        description: Appended to what a snapshot must agree with; ``None`` appends nothing.
    """

    fit_critics: Callable[[SoftNets, TransitionBatch, Tensor], CriticLosses]
    improve_policy: Callable[[SoftNets, TransitionBatch, Tensor], PolicyLosses]
    arithmetic: int
    description: str | None = None


def critic_target(nets: SoftNets, batch: TransitionBatch, noise: Tensor) -> Tensor:
    """``y = r + gamma (min_k Q'_k(s', a') - alpha ln pi(a' | s'))``, ``(B,)``, with ``a'`` from the policy.

    Haarnoja 2018b, equations 3 and 5, with two critics.

    Args:
        nets: All networks.
        batch: Transitions.
        noise: Standard normal numbers for the next actions, ``(B, act_dim)``.
    """
    following = nets.sample(batch.next_observations, noise, fixed=True)
    least = nets.target_critics(batch.next_observations, following.actions).amin(dim=0)  # min_k Q'_k(s', a'), (B,)
    values = soft_values(least, following.log_prob, nets.temperature())  # V(s') = least - alpha ln pi, (B,)
    # discounts: gamma (gamma^n of n steps), and 0 where s' is terminal
    return bootstrapped(batch.rewards, batch.discounts, values)


def fit_critics(nets: SoftNets, batch: TransitionBatch, noise: Tensor) -> CriticLosses:
    """A step of the critics toward ``critic_target`` (Haarnoja 2018b, equation 5); ``noise`` is for that."""
    return descend_critics(nets.critics, batch, critic_target(nets, batch, noise))


def improve_policy(nets: SoftNets, batch: TransitionBatch, noise: Tensor) -> PolicyLosses:
    """A step of the policy down ``mean(alpha ln pi(a | s) - min_k Q_k(s, a))`` (Haarnoja 2018b, equation 9).

    Args:
        nets: All networks.
        batch: Transitions, of which the observations count.
        noise: Standard normal numbers for the actions, ``(B, act_dim)``.
    """
    sample = nets.sample(batch.observations, noise)
    values = nets.critics(batch.observations, sample.actions)
    # dL/d min_k Q_k = -1 / B for each row, and 0 for the larger critic; by the chain rule to the actions, (B, act_dim).
    # The critics themselves take no step here.
    grad_values = torch.full_like(sample.log_prob, -1 / len(noise))
    grad_actions = nets.critics.pull_actions_of_least(grad_values, values)
    return descend_entropy(nets, sample, noise, values.amin(dim=0), grad_actions)


def descend_entropy(
    nets: SoftNets, sample: SquashedSample, noise: Tensor, values: Tensor, grad_actions: Tensor
) -> PolicyLosses:
    """A step of a Gaussian policy down ``mean(alpha ln pi(a | s) - Q(s, a))`` (Haarnoja 2018b, equations 7 and 9).

    Args:
        nets: All networks.
        sample: The actions; nothing else was asked of the policy since.
        noise: What they were made of.
        values: Q, ``(B,)``.
        grad_actions: Gradient of the loss by the actions, through Q alone, ``(B, act_dim)``.
    """
    temperature = nets.temperature()
    # dL/dln pi = alpha / B. Together with dL/da it leads back through a = tanh(mu + sigma n):
    # dL/dmu = dL/da (1 - a^2) + (alpha / B) 2 a, and dL/dln sigma = dL/dmu sigma n - alpha / B, both (B, act_dim).
    grad_mean, grad_log_std = squashed_sample_gradients(
        sample.log_std, noise, sample.actions, grad_actions, temperature * (1 / len(noise))
    )
    # Where its bounds have changed ln sigma, it is a constant.
    grad_log_std = grad_log_std * (sample.log_std == sample.unbounded)
    nets.policy.descend(torch.cat((grad_mean, grad_log_std), dim=-1))
    loss = soft_policy_loss(sample.log_prob, values, temperature)  # of before the step, to be logged
    return PolicyLosses(torch.stack([loss, sample.log_prob.mean()]), sample.log_prob)


@final
class SoftTrainer(ReplayTrainer):
    """Gradient steps of learners that are paid for entropy: critics, policy, temperature. The host never waits.

    Args:
        policy: What is trained.
        critics: Its values.
        exploration: What acts.
        settings: How.
        objective: The steps of critics and policy.
        seed: Seed of the noise of gradient steps.
        device: Where they run.
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
        self.target_entropy = cast("float", settings.target_entropy)  # known: soft_settings
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
            for_target, for_policy = self.draw_noise(2, *batch.actions.shape)  # (B, act_dim) each
            critic = self.objective.fit_critics(nets, batch, for_target)
            policy = self.objective.improve_policy(nets, batch, for_policy)
            # ln alpha down -mean(ln alpha (ln pi + H)): Haarnoja 2018b, equation 18, with ln alpha in place of alpha,
            # which so stays positive.
            if settings.temperature is None:
                # its derivative by ln alpha: -mean(ln pi + H)
                slope = temperature_gradient(policy.log_prob, self.target_entropy)
                trained.optimizers["temperature"].step([slope[None].to(nets.temperature.log.dtype)])
                self.means.add(TEMPERATURE_LOSSES, nets.temperature())
            trained.follow("target_critics", "critics", settings.tau)  # Q' <- (1 - tau) Q' + tau Q
            self.means.add(CRITIC_LOSSES, critic.seen)
            self.means.add(POLICY_LOSSES, policy.seen)
            return critic.errors  # (B,), the priorities of replay

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
        # With memory of its own: the critics are asked before the gradient of the policy has come back through them.
        policy_net(policy, optimizers["policy"]),
        critic_nets(critics, optimizers["critics"], memory),
        critic_nets(target_critics, None, memory),
        temperature,
        bounds,
    )


def soft_settings(config: SoftUpdate, target_entropy: float) -> SoftUpdate:
    """The settings of gradient steps, with what entropy is aimed at where ``config`` leaves that open."""
    return config if config.target_entropy is not None else replace(config, target_entropy=target_entropy)


class SAC(OffPolicyLearner[SACConfig]):
    """Soft actor-critic with two critics (Haarnoja et al. 2018b, arXiv:1812.05905).

    What entropy counts beside rewards follows a target, unless it is fixed. Discrete actions are for ``DiscreteSAC``.

    Arguments are those of ``OffPolicyLearner``: actions are a Box; ``policy`` is a ``TanhGaussianMLPPolicy``, ``qf`` a
    ``QFunction``, beside which a second one is drawn, or ``Critics`` of two (of two layers of 256 where nothing is
    given); the policy itself acts.
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
