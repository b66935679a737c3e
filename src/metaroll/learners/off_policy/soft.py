"""SAC: a stochastic policy that is paid for its entropy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack, final

import torch
from torch import Tensor, nn

from metaroll.checks import check_number, check_unit_interval, plain_number
from metaroll.functional.distributions import squashed_sample, squashed_sample_gradients
from metaroll.functional.gradients.actor_critic import (
    bootstrapped,
    soft_policy_loss,
    soft_values,
    temperature_gradient,
)
from metaroll.functional.gradients.optimizers import Adam
from metaroll.functional.gradients.reused_perceptrons import Memory
from metaroll.learners.off_policy.base import CollectionOptions, OffPolicyRLAlgorithm
from metaroll.learners.off_policy.direct import DirectCritics, DirectNet, can_be_direct
from metaroll.learners.off_policy.exploring import BoxExploration
from metaroll.learners.off_policy.networks import Critics, critics_of, outputs_of, target_of
from metaroll.learners.off_policy.replay import TransitionBatch
from metaroll.learners.off_policy.setup import (
    buffer_for,
    check_policy,
    device_of,
    encoders_of,
    require_box,
    weighing,
)
from metaroll.learners.off_policy.trainer import CRITIC_LOSSES, CriticLosses, ReplayTrainer, Trained, critic_losses_of
from metaroll.learners.snapshots import described
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.seeding import derive_seed, fresh_seed, torch_generator

__all__ = [
    "SAC",
    "PolicyLosses",
    "SoftNetworks",
    "SoftSettings",
    "SoftTrainer",
    "Temperature",
    "critic_losses",
    "critic_target",
    "policy_losses",
]

POLICY_LOSSES = ("policy_loss", "log_prob")
TEMPERATURE_LOSSES = ("temperature",)


@dataclass(frozen=True, kw_only=True)
class SoftSettings:
    """How a gradient step is made.

    Attributes:
        target_entropy: The entropy that is aimed at, of actions in [-1, 1].
        temperature: What entropy counts beside rewards, if that is fixed; ``None``: it follows ``target_entropy``.
        init_temperature: What it counts at first.
        target_update_tau: How far target networks move in one step.
        policy_lr, qf_lr, temperature_lr: Step sizes of Adam.
    """

    target_entropy: float
    temperature: float | None = None
    init_temperature: float = 1.0
    target_update_tau: float = 0.005
    policy_lr: float = 3e-4
    qf_lr: float = 3e-4
    temperature_lr: float = 3e-4

    def __post_init__(self) -> None:
        plain_number("target_entropy", self.target_entropy)
        if self.temperature is not None:
            check_number("temperature", self.temperature, 0.0, above_low=True)
        for name in ("init_temperature", "policy_lr", "qf_lr", "temperature_lr"):
            check_number(name, vars(self)[name], 0.0, above_low=True)
        check_unit_interval("target_update_tau", self.target_update_tau)


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

    @property
    def log_std_bounds(self) -> tuple[float, float]:
        """Those of the policy."""
        return self.policy.log_std_bounds


class DirectNetworks(NamedTuple):
    """The same without autograd."""

    policy: DirectNet
    critics: DirectCritics
    target_critics: DirectCritics
    temperature: Temperature
    log_std_bounds: tuple[float, float]


class PolicyLosses(NamedTuple):
    """What a gradient step of the policy is made of: ``loss``, ``POLICY_LOSSES``, and log-densities ``(B,)``."""

    loss: Tensor
    seen: Tensor
    log_prob: Tensor


@torch.no_grad()
def critic_target(networks: SoftNetworks | DirectNetworks, batch: TransitionBatch, noise: Tensor) -> Tensor:
    """What the critics are fitted to, ``(B,)`` (Haarnoja 2018b, equations 3 and 5, with two critics).

    Args:
        networks: All of them.
        batch: Transitions.
        noise: Standard normal numbers for the next actions, ``(B, act_dim)``.
    """
    mean, log_std = _outputs(networks, batch.next_observations)
    actions, log_prob = squashed_sample(mean, log_std.clamp(*networks.log_std_bounds), noise)
    values = networks.target_critics(batch.next_observations, actions).amin(dim=0)
    values = soft_values(values, log_prob, networks.temperature())
    return bootstrapped(batch.rewards, batch.discounts, values)


def critic_losses(networks: SoftNetworks, batch: TransitionBatch, target: Tensor) -> CriticLosses:
    """The loss of the critics, which are to say ``target (B,)`` (Haarnoja 2018b, equation 5)."""
    return critic_losses_of(networks.critics(batch.observations, batch.actions), target, batch.weights)


def policy_losses(networks: SoftNetworks, batch: TransitionBatch, noise: Tensor) -> PolicyLosses:
    """The loss of the policy (Haarnoja 2018b, equation 9).

    Args:
        networks: All of them.
        batch: Transitions, of which the observations count.
        noise: Standard normal numbers for the actions, ``(B, act_dim)``.
    """
    mean, log_std = _outputs(networks, batch.observations)
    actions, log_prob = squashed_sample(mean, log_std.clamp(*networks.log_std_bounds), noise)
    values = networks.critics(batch.observations, actions, fixed=True)
    return _policy_losses_of(log_prob, values, networks.temperature())


def _descend_policy(networks: DirectNetworks, batch: TransitionBatch, noise: Tensor) -> PolicyLosses:
    """A step of the policy down ``policy_losses``, which are returned."""
    mean, log_std = _outputs(networks, batch.observations)
    bounded = log_std.clamp(*networks.log_std_bounds)
    actions, log_prob = squashed_sample(mean, bounded, noise)
    values, temperature, share = networks.critics(batch.observations, actions), networks.temperature(), 1 / len(noise)
    grad_values = torch.full_like(log_prob, -share)
    grad_actions = networks.critics.action_gradient_of_least(grad_values, values, actions.shape[1])
    grad_mean, grad_log_std = squashed_sample_gradients(bounded, noise, actions, grad_actions, temperature * share)
    networks.policy.descend(torch.cat((grad_mean, grad_log_std * (bounded == log_std)), dim=-1))
    return _policy_losses_of(log_prob, values, temperature)


def _policy_losses_of(log_prob: Tensor, values: Tensor, temperature: Tensor) -> PolicyLosses:
    loss, told = soft_policy_loss(log_prob, values.amin(dim=0), temperature), log_prob.detach()
    return PolicyLosses(loss, torch.stack([loss.detach(), told.mean()]), told)


def _outputs(networks: SoftNetworks | DirectNetworks, observations: Tensor) -> tuple[Tensor, ...]:
    """Mean and ``log_std``, ``(B, act_dim)``, of actions before they are squashed; not yet within bounds."""
    policy = networks.policy
    if isinstance(policy, DirectNet):
        return policy(observations).chunk(2, dim=-1)
    return outputs_of(policy.net, policy.features(observations)).chunk(2, dim=-1)


def _direct_networks(networks: SoftNetworks, optimizers: Mapping[str, Adam]) -> DirectNetworks | None:
    """The same networks without autograd, if they can do without."""
    policy, critics, target_critics, temperature = networks
    if policy.net.output_nonlinearity != "identity" or not can_be_direct(policy, critics):
        return None
    memory: Memory = {}
    return DirectNetworks(
        DirectNet(policy.net, optimizers["policy"]),  # keeps its own, for the gradient that comes through the critics
        DirectCritics(critics, optimizers["critics"], memory),
        DirectCritics(target_critics, None, memory),
        temperature,
        policy.log_std_bounds,
    )


@final
class SoftTrainer(ReplayTrainer):
    """Steps down ``critic_losses`` and ``policy_losses``, then the temperature; targets follow. The host never waits.

    Attributes:
        direct: The networks without autograd, which steps are taken with; ``None``: with autograd.

    Args:
        policy: What is trained.
        critics: Its values.
        exploration: What acts.
        settings: How.
        seed: Seed of the noise of gradient steps.
        device: Where they run.
    """

    def __init__(
        self,
        policy: TanhGaussianMLPPolicy,
        critics: Critics,
        exploration: BoxExploration,
        settings: SoftSettings,
        seed: int,
        device: torch.device,
    ) -> None:
        self.settings = settings
        fixed = settings.temperature
        temperature = Temperature(settings.init_temperature if fixed is None else fixed)
        self.networks = SoftNetworks(policy, critics, target_of(critics), temperature)
        rates = {"critics": settings.qf_lr, "policy": settings.policy_lr}
        if fixed is None:
            rates["temperature"] = settings.temperature_lr
        super().__init__(exploration, Trained(self.networks._asdict(), rates, device), seed, device)
        self.direct = _direct_networks(self.networks, self.trained.optimizers)

    def step(self, batch: TransitionBatch) -> Tensor:
        """See ``ReplayTrainer``."""
        with torch.inference_mode(self.direct is not None):
            return self._step(batch)

    def _step(self, batch: TransitionBatch) -> Tensor:
        direct, settings = self.direct, self.settings
        noise = self.draw_noise(2, *batch.actions.shape)
        target = critic_target(direct or self.networks, batch, noise[0])
        if direct is None:
            critic = critic_losses(self.networks, batch, target)
            self.trained.step("critics", critic.loss)
            policy = policy_losses(self.networks, batch, noise[1])
            self.trained.step("policy", policy.loss)
        else:
            critic = direct.critics.fit(batch, target)
            policy = _descend_policy(direct, batch, noise[1])
        if settings.temperature is None:
            slope = temperature_gradient(policy.log_prob, settings.target_entropy)
            self.trained.optimizers["temperature"].step([slope[None]])
            self.means.add(TEMPERATURE_LOSSES, self.networks.temperature())
        self.trained.follow("target_critics", "critics", settings.target_update_tau)
        self.means.add(CRITIC_LOSSES, critic.seen)
        self.means.add(POLICY_LOSSES, policy.seen)
        return critic.errors

    def described(self) -> Sequence[str]:
        """See ``ReplayTrainer``."""
        return [described(self.settings)]


@final
class SAC(OffPolicyRLAlgorithm):
    """Soft actor-critic with two critics (Haarnoja et al. 2018b, arXiv:1812.05905).

    What entropy counts beside rewards follows a target, unless it is fixed. Discrete actions are for ``DiscreteSAC``.

    Args:
        env_spec: Environment or spec; actions are a Box.
        policy: What is learned; ``None`` means a ``TanhGaussianMLPPolicy``.
        qf: A ``QFunction``, beside which a second one is drawn, or ``Critics`` of two; ``None`` means two of two layers
            of 256.
        replay_buffer: See ``OffPolicyRLAlgorithm``; ``None`` means a ``ReplayBuffer`` of ``replay_size`` steps.
        exploration_policy: What acts in training; ``None`` means the policy itself.
        replay_size: Steps that the replay buffer keeps.
        target_entropy: The entropy that is aimed at, of actions in [-1, 1]; null means minus the entries of an action
            (0.7 ln n of n choices).
        temperature: What entropy counts beside rewards, fixed; null means that it follows ``target_entropy``.
        init_temperature: What it counts at first.
        target_update_tau: How far target networks move in one step.
        policy_lr: Step size of Adam for the policy.
        qf_lr: Step size of Adam for the Q functions.
        temperature_lr: Step size of Adam for the temperature.
        uniform_steps: Environment steps at first with actions at random.
        priority_exponent: Draw steps in proportion to this power of their last errors; null draws uniformly.
        importance_exponent: How far weights make up for that, from 0 (not at all) to 1.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        device: Where the networks live; ``None`` means the CPU.
        collection: See ``OffPolicyRLAlgorithm``.

    Raises:
        TypeError: Actions are no Box, or a network is of another kind.
    """

    def __init__(
        self,
        env_spec: Any,
        policy: Any = None,
        qf: Any = None,
        replay_buffer: Any = None,
        *,
        exploration_policy: Any = None,
        replay_size: int = 1_000_000,
        target_entropy: float | None = None,
        temperature: float | None = None,
        init_temperature: float = 1.0,
        target_update_tau: float = 0.005,
        policy_lr: float = 3e-4,
        qf_lr: float = 3e-4,
        temperature_lr: float = 3e-4,
        uniform_steps: int = 0,
        priority_exponent: float | None = None,
        importance_exponent: float = 0.4,
        seed: int | None = None,
        device: str | torch.device | None = None,
        **collection: Unpack[CollectionOptions],
    ) -> None:
        spec = require_box(env_spec, "SAC", "DiscreteSAC, dqn and ppo learn choices")
        seed = fresh_seed() if seed is None else int(seed)
        settings = SoftSettings(
            target_entropy=-float(spec.act_dim) if target_entropy is None else target_entropy,
            temperature=temperature,
            init_temperature=init_temperature,
            target_update_tau=target_update_tau,
            policy_lr=policy_lr,
            qf_lr=qf_lr,
            temperature_lr=temperature_lr,
        )
        self.weight_exponent = weighing(priority_exponent, importance_exponent)
        buffer = buffer_for(spec, replay_buffer, replay_size, collection, priority_exponent)
        generator = torch_generator(derive_seed("soft networks", seed))
        critics_see, policy_sees = encoders_of(spec, qf, generator)
        if policy is None:
            policy = TanhGaussianMLPPolicy(spec, (256, 256), init="fan_in", encoder=policy_sees, generator=generator)
        check_policy(policy, TanhGaussianMLPPolicy, spec)
        if qf is None:
            qf = Critics(spec, 2, init="fan_in", encoder=critics_see, generator=generator)
        critics = critics_of(qf, spec, 2, generator)
        explorer = BoxExploration(policy if exploration_policy is None else exploration_policy, uniform_steps)
        self.trainer = SoftTrainer(policy, critics, explorer, settings, seed, device_of(device))
        super().__init__(
            spec,
            policy,
            critics,
            buffer,
            use_target=True,
            exploration_policy=explorer.policy,
            seed=seed,
            device=device,
            **collection,
        )

    def train_once(self, itr: int, paths: Sequence[Mapping[str, Any]]) -> float:
        """See ``OffPolicyRLAlgorithm.improve``."""
        return self.improve()
