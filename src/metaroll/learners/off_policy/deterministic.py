"""DDPG and TD3: deterministic policies trained by gradient ascent on the values of their actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor

from metaroll.config import described, options_of
from metaroll.data.replay.transitions import TransitionBatch
from metaroll.functional.gradients.actor_critic import bootstrapped, smoothed_actions
from metaroll.functional.gradients.optimizers import Adam
from metaroll.functional.gradients.perceptrons import Memory
from metaroll.learners.off_policy.base import Made, OffPolicyLearner, require_box
from metaroll.learners.off_policy.configs import (
    ActorCriticRates,
    DDPGConfig,
    DeterministicUpdate,
    OffPolicyConfig,
    TD3Config,
)
from metaroll.learners.off_policy.nets import (
    CriticNets,
    PolicyNet,
    critic_nets,
    policy_net,
    were_by_hand,
    without_autograd,
)
from metaroll.learners.off_policy.trainer import CRITIC_LOSSES, ReplayTrainer, Trained, descend_critics
from metaroll.policies.acting import ActingPolicy, check_policy
from metaroll.policies.encoders import encoders_of
from metaroll.policies.exploration import BoxExploration, GaussianNoisePolicy, OrnsteinUhlenbeckPolicy
from metaroll.policies.greedy import DeterministicMLPPolicy
from metaroll.policies.networks import Critics, critics_of, target_of
from metaroll.seeding import derive_seed, torch_generator
from metaroll.state import parts
from metaroll.types import EnvSpec

__all__ = [
    "DDPG",
    "TD3",
    "DeterministicNets",
    "DeterministicNetworks",
    "DeterministicTrainer",
    "critic_target",
    "improve_policy",
]

_CHOOSING = "sac (DiscreteSAC), dqn and ppo learn choices"

POLICY_LOSSES = ("policy_loss",)


class DeterministicNetworks(NamedTuple):
    """A policy ``(B, obs_dim) -> (B, act_dim)`` in [-1, 1], its critics, and the targets of both."""

    policy: DeterministicMLPPolicy
    critics: Critics
    target_policy: DeterministicMLPPolicy
    target_critics: Critics


class DeterministicNets(NamedTuple):
    """``DeterministicNetworks`` as the gradient steps call them."""

    policy: PolicyNet
    critics: CriticNets
    target_policy: PolicyNet
    target_critics: CriticNets


def critic_target(
    nets: DeterministicNets, batch: TransitionBatch, noise: Tensor | None, settings: DeterministicUpdate
) -> Tensor:
    """Target ``y = r + gamma min_k Q'_k(s', pi'(s') + noise)``, ``(B,)``.

    DDPG has one critic and no noise (Lillicrap 2016, equation 5). TD3 (Fujimoto 2018, algorithm 1) takes the minimum of
    two critics (equation 10) and smooths it over nearby actions (equation 14), so that narrow peaks of a critic matter
    less.

    Args:
        nets: Policy, critics, and their targets.
        batch: Transitions.
        noise: Standard normal noise ``(B, act_dim)``, to be scaled and clipped; ``None`` for none (DDPG).
        settings: Hyperparameters of the step.
    """
    # a' = pi'(s'), (B, act_dim)
    actions = nets.target_policy(batch.next_observations)
    if noise is not None:
        # Target policy smoothing (Fujimoto 2018, equation 14): a' + clip(sigma n, -c, c), in [-1, 1]
        actions = smoothed_actions(actions, noise, settings.smoothing_std, settings.smoothing_clip)
    # Clipped double Q (Fujimoto 2018, equation 10): min_k Q'_k(s', a'), (K, B) -> (B,)
    values = nets.target_critics(batch.next_observations, actions).amin(dim=0)
    # y = r + d min_k Q'_k, (B,); d is gamma (gamma^n for n-step returns), and 0 where s' is terminal
    return bootstrapped(batch.rewards, batch.discounts, values)


def improve_policy(nets: DeterministicNets, batch: TransitionBatch) -> Tensor:
    """One step of the policy down ``-mean Q_1(s, pi(s))``; returns the loss before it.

    The deterministic policy gradient (Silver et al. 2014; Lillicrap 2016, equation 6).
    """
    # a = pi(s), (B, act_dim)
    actions = nets.policy(batch.observations)
    # Q_1(s, a), (1, B). TD3 uses its first critic alone here (Fujimoto 2018, algorithm 1); the minimum is for targets.
    values = nets.critics(batch.observations, actions, first=True)
    # dL/dQ_1 = -1 / B; the chain rule gives dL/da = -(1 / B) dQ_1/da, (B, act_dim)
    grad_actions = nets.critics.pull_actions(torch.full_like(values, -1.0 / values.numel()))
    # Adam on the policy, from dL/da through tanh (in PolicyNet.pull)
    nets.policy.descend(grad_actions)
    return -values.mean()


@final
class DeterministicTrainer(ReplayTrainer):
    """Gradient steps of the critics, with delayed ones of policy and targets. They never synchronize with the device.

    Args:
        policy: The policy to train.
        critics: Its critics.
        exploration: The behavior policy.
        settings: Hyperparameters of the steps.
        seed: Seed of the noise of gradient steps.
        device: Device of the networks.
    """

    state_parts = parts(**ReplayTrainer.state_parts, steps="_num_steps")

    def __init__(
        self,
        policy: DeterministicMLPPolicy,
        critics: Critics,
        exploration: BoxExploration,
        settings: DeterministicUpdate,
        seed: int,
        device: torch.device,
    ) -> None:
        self.settings = settings
        self.networks = DeterministicNetworks(policy, critics, target_of(policy), target_of(critics))
        rates = {"critics": settings.qf_lr, "policy": settings.policy_lr}
        super().__init__(exploration, Trained(self.networks._asdict(), rates, device), seed, device)
        self.nets = _nets_of(self.networks, self.trained.optimizers)
        self._without_autograd = without_autograd(*self.nets)
        self._num_steps = 0

    def step(self, batch: TransitionBatch) -> Tensor:
        """See ``ReplayTrainer``."""
        nets, settings, trained = self.nets, self.settings, self.trained
        self._num_steps += 1
        with self._without_autograd():
            # y, (B,)
            noise = self.draw_noise(*batch.actions.shape) if settings.smoothing_std else None
            target = critic_target(nets, batch, noise, settings)
            # Critics: L = sum_k mean((Q_k(s, a) - y)^2) / 2 (Lillicrap 2016, equation 4)
            critic = descend_critics(nets.critics, batch, target)
            self.means.add(CRITIC_LOSSES, critic.seen)
            # Delayed policy updates: "if t mod d" (Fujimoto 2018, algorithm 1)
            if self._num_steps % settings.policy_delay == 0:
                # Policy: L = -mean Q_1(s, pi(s)) (Lillicrap 2016, equation 6)
                self.means.add(POLICY_LOSSES, improve_policy(nets, batch)[None])
                # Polyak averaging of the targets: theta' <- (1 - tau) theta' + tau theta
                trained.follow("target_critics", "critics", settings.tau)
                trained.follow("target_policy", "policy", settings.tau)
            return critic.errors  # TD errors y - Q_1(s, a), (B,): new priorities

    def described(self) -> Sequence[str]:
        """See ``ReplayTrainer``."""
        return [described(self.settings, DeterministicUpdate)]

    @property
    def arithmetic(self) -> int:
        """See ``ReplayTrainer``."""
        return 1 if were_by_hand(self.networks.policy, self.networks.critics, output="tanh") else 2


def _nets_of(networks: DeterministicNetworks, optimizers: Mapping[str, Adam]) -> DeterministicNets:
    policy, critics, target_policy, target_critics = networks
    memory = Memory()
    return DeterministicNets(
        # Separate memory: the critics are evaluated between the forward and the backward pass of the policy.
        policy_net(policy, optimizers["policy"]),
        critic_nets(critics, optimizers["critics"], memory),
        policy_net(target_policy, None, memory),
        critic_nets(target_critics, None, memory),
    )


class DDPG(OffPolicyLearner[DDPGConfig]):
    """Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971).

    Arguments are those of ``OffPolicyLearner``, for Box actions. ``policy`` is a ``DeterministicMLPPolicy``. ``qf`` is
    a ``QFunction``, or ``Critics`` of one. Defaults have two hidden layers of 256. The behavior policy is the policy
    with ``exploration_noise``.
    """

    config_class: ClassVar[type[OffPolicyConfig]] = DDPGConfig

    def make(self, policy: Any, qf: Any, exploration_policy: Any) -> Made:
        """See ``OffPolicyLearner``."""
        rates = {option.name: getattr(self.config, option.name) for option in options_of(ActorCriticRates)}
        settings = DeterministicUpdate(**rates, policy_delay=1, smoothing_std=0.0)
        return _made(self, self.config, 1, settings, (policy, qf, exploration_policy))


class TD3(OffPolicyLearner[TD3Config]):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477).

    Arguments are those of ``OffPolicyLearner``, for Box actions. ``policy`` is a ``DeterministicMLPPolicy``. ``qf`` is
    a ``QFunction``, for which a second critic is initialized, or ``Critics`` of two. Defaults have two hidden layers of
    256. The behavior policy is the policy with ``exploration_noise``.
    """

    config_class: ClassVar[type[OffPolicyConfig]] = TD3Config

    def make(self, policy: Any, qf: Any, exploration_policy: Any) -> Made:
        """See ``OffPolicyLearner``."""
        return _made(self, self.config, 2, self.config, (policy, qf, exploration_policy))


def _made(
    learner: OffPolicyLearner[Any],
    config: DDPGConfig | TD3Config,
    num_critics: int,
    settings: DeterministicUpdate,
    given: tuple[Any, Any, Any],
) -> Made:
    """Networks and trainer of DDPG and TD3.

    Args:
        learner: One of them.
        config: Its settings.
        num_critics: Number of critics.
        settings: Hyperparameters of gradient steps.
        given: Arguments of ``OffPolicyLearner.make``.
    """
    spec = require_box(learner.env_spec, type(learner).__name__, _CHOOSING)
    policy, critics = _networks(spec, given[0], given[1], num_critics, learner.seed)
    acting = given[2] or _noisy(policy, config.exploration_noise, config.exploration_sigma)
    explorer = BoxExploration(acting, config.random_steps)
    trainer = DeterministicTrainer(policy, critics, explorer, settings, learner.seed, learner.device)
    return Made(policy, critics, explorer.policy, trainer)


def _networks(
    spec: EnvSpec, policy: Any, qf: Any, num_critics: int, seed: int
) -> tuple[DeterministicMLPPolicy, Critics]:
    generator = torch_generator(derive_seed("deterministic networks", seed))
    critics_see, policy_sees = encoders_of(spec, qf, generator)
    if policy is None:
        policy = DeterministicMLPPolicy(spec, init="fan_in", encoder=policy_sees, generator=generator)
    check_policy(policy, DeterministicMLPPolicy, spec)
    if qf is None:
        qf = Critics(spec, num_critics, init="fan_in", encoder=critics_see, generator=generator)
    return policy, critics_of(qf, spec, num_critics, generator)


def _noisy(policy: DeterministicMLPPolicy, kind: str, sigma: float) -> ActingPolicy:
    """``policy`` with action noise of standard deviation ``sigma``, relative to actions in [-1, 1]."""
    if kind == "gaussian":
        return GaussianNoisePolicy(policy, sigma)
    return OrnsteinUhlenbeckPolicy(policy, sigma, dt=1.0, relative=True)
