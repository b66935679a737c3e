"""DDPG and TD3: a deterministic policy that climbs the values of its actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Unpack, final, get_args

import torch
from torch import Tensor

from metaroll.checks import check_number, check_unit_interval, check_whole
from metaroll.errors import unknown_name
from metaroll.functional.gradients.actor_critic import bootstrapped, smoothed_actions
from metaroll.functional.gradients.optimizers import Adam
from metaroll.functional.gradients.perceptrons import Memory
from metaroll.learners.off_policy.base import CollectionOptions, OffPolicyRLAlgorithm
from metaroll.learners.off_policy.exploring import BoxExploration
from metaroll.learners.off_policy.nets import (
    CriticNets,
    PolicyNet,
    critic_nets,
    policy_net,
    were_by_hand,
    without_autograd,
)
from metaroll.learners.off_policy.networks import Critics, critics_of, target_of
from metaroll.learners.off_policy.replay import TransitionBatch
from metaroll.learners.off_policy.setup import buffer_for, check_policy, device_of, encoders_of, require_box
from metaroll.learners.off_policy.trainer import CRITIC_LOSSES, ReplayTrainer, Trained, descend_critics
from metaroll.learners.snapshots import described
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.deterministic import DeterministicMLPPolicy
from metaroll.policies.exploration import GaussianNoisePolicy, OrnsteinUhlenbeckPolicy
from metaroll.seeding import derive_seed, fresh_seed, torch_generator
from metaroll.types import EnvSpec

__all__ = [
    "DDPG",
    "TD3",
    "DeterministicNets",
    "DeterministicNetworks",
    "DeterministicSettings",
    "DeterministicTrainer",
    "critic_target",
    "improve_policy",
]

Noise = Literal["gaussian", "ornstein-uhlenbeck"]

_CHOOSING = "sac (DiscreteSAC), dqn and ppo learn choices"

POLICY_LOSSES = ("policy_loss",)


@dataclass(frozen=True, kw_only=True)
class DeterministicSettings:
    """How a gradient step is made.

    Attributes:
        target_update_tau: How far target networks move in one step.
        policy_lr, qf_lr: Step sizes of Adam.
        policy_delay: Gradient steps of the critics for each of the policy and the target networks.
        smoothing_std: Standard deviation of the noise in actions of the target policy; 0 for none.
        smoothing_clip: Bound of that noise.
    """

    target_update_tau: float = 0.005
    policy_lr: float = 1e-3
    qf_lr: float = 1e-3
    policy_delay: int = 1
    smoothing_std: float = 0.0
    smoothing_clip: float = 0.5

    def __post_init__(self) -> None:
        check_unit_interval("target_update_tau", self.target_update_tau)
        for name in ("policy_lr", "qf_lr", "smoothing_clip"):
            check_number(name, vars(self)[name], 0.0, above_low=True)
        check_whole("policy_delay", self.policy_delay)
        check_number("smoothing_std", self.smoothing_std, 0.0)


class DeterministicNetworks(NamedTuple):
    """A policy ``(B, obs_dim) -> (B, act_dim)`` in [-1, 1], its critics, and the targets of both."""

    policy: DeterministicMLPPolicy
    critics: Critics
    target_policy: DeterministicMLPPolicy
    target_critics: Critics


class DeterministicNets(NamedTuple):
    """The same as gradient steps use them."""

    policy: PolicyNet
    critics: CriticNets
    target_policy: PolicyNet
    target_critics: CriticNets


def critic_target(
    nets: DeterministicNets, batch: TransitionBatch, noise: Tensor | None, settings: DeterministicSettings
) -> Tensor:
    """``y = r + gamma min_k Q'_k(s', pi'(s') + noise)``, ``(B,)``.

    Of DDPG (one critic, no noise: Lillicrap 2016, equation 5) or TD3 (Fujimoto 2018, algorithm 1: the least of two
    critics, equation 10, of actions nearby, equation 14, so that peaks of one critic count less).

    Args:
        nets: Policy, critics, and their targets.
        batch: Transitions.
        noise: Standard normal numbers ``(B, act_dim)``, to be scaled and clipped; ``None`` for none (DDPG).
        settings: How.
    """
    actions = nets.target_policy(batch.next_observations)
    if noise is not None:
        actions = smoothed_actions(actions, noise, settings.smoothing_std, settings.smoothing_clip)
    values = nets.target_critics(batch.next_observations, actions).amin(dim=0)  # (B,)
    # discounts: gamma (gamma^n of n steps), and 0 where s' is terminal
    return bootstrapped(batch.rewards, batch.discounts, values)


def improve_policy(nets: DeterministicNets, batch: TransitionBatch) -> Tensor:
    """A step of the policy down ``-mean Q_1(s, pi(s))``; the loss before it.

    Silver et al. 2014; Lillicrap 2016, equation 6.
    """
    actions = nets.policy(batch.observations)
    # TD3, too, climbs its first critic alone (Fujimoto 2018, algorithm 1): the least of both keeps targets low.
    values = nets.critics(batch.observations, actions, first=True)
    # dL/dQ_1 = -1 / B; by the chain rule to the actions (B, act_dim), and through their tanh (in PolicyNet.pull) to the
    # weights of the policy.
    grad_actions = nets.critics.pull_actions(torch.full_like(values, -1.0 / values.numel()))
    nets.policy.descend(grad_actions)
    return -values.mean()


@final
class DeterministicTrainer(ReplayTrainer):
    """Gradient steps of critics and, now and then, of the policy and the targets. The host waits for nothing.

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
        policy: DeterministicMLPPolicy,
        critics: Critics,
        exploration: BoxExploration,
        settings: DeterministicSettings,
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
            noise = self.draw_noise(*batch.actions.shape) if settings.smoothing_std else None
            target = critic_target(nets, batch, noise, settings)
            critic = descend_critics(nets.critics, batch, target)
            self.means.add(CRITIC_LOSSES, critic.seen)
            if self._num_steps % settings.policy_delay == 0:  # "if t mod d" (Fujimoto 2018, algorithm 1)
                self.means.add(POLICY_LOSSES, improve_policy(nets, batch)[None])
                trained.follow("target_critics", "critics", settings.target_update_tau)  # Q' <- (1 - tau) Q' + tau Q
                trained.follow("target_policy", "policy", settings.target_update_tau)  # and pi' in the same way
            return critic.errors  # (B,), the priorities of replay

    def described(self) -> Sequence[str]:
        """See ``ReplayTrainer``."""
        return [described(self.settings)]

    @property
    def arithmetic(self) -> int:
        """See ``ReplayTrainer``."""
        return 1 if were_by_hand(self.networks.policy, self.networks.critics, output="tanh") else 2

    def state_dict(self) -> dict[str, Any]:
        """See ``ReplayTrainer``."""
        return {**super().state_dict(), "steps": self._num_steps}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """See ``ReplayTrainer``."""
        super().load_state_dict(tree)
        self._num_steps = int(tree["steps"])


def _nets_of(networks: DeterministicNetworks, optimizers: Mapping[str, Adam]) -> DeterministicNets:
    policy, critics, target_policy, target_critics = networks
    memory = Memory()
    return DeterministicNets(
        # With memory of its own: the critics are asked before the gradient of the policy has come back through them.
        policy_net(policy, optimizers["policy"]),
        critic_nets(critics, optimizers["critics"], memory),
        policy_net(target_policy, None, memory),
        critic_nets(target_critics, None, memory),
    )


@final
class DDPG(OffPolicyRLAlgorithm):
    """Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971).

    Args:
        env_spec: Environment or spec; actions are a Box.
        policy: What is learned; ``None`` means a ``DeterministicMLPPolicy``.
        qf: A ``QFunction``, or ``Critics`` of one; ``None`` means one of two layers of 256.
        replay_buffer: See ``OffPolicyRLAlgorithm``; ``None`` means a ``ReplayBuffer`` of ``replay_size`` steps.
        exploration_policy: What acts in training; ``None`` means the policy with ``exploration_noise``.
        replay_size: Steps that the replay buffer keeps.
        target_update_tau: How far target networks move in one step.
        policy_lr: Step size of Adam for the policy.
        qf_lr: Step size of Adam for the Q functions.
        exploration_noise: Noise without memory, or a process with memory.
        exploration_sigma: Its size, where actions lie in [-1, 1].
        uniform_steps: Environment steps at first with actions at random.
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
        target_update_tau: float = 0.005,
        policy_lr: float = 1e-3,
        qf_lr: float = 1e-3,
        exploration_noise: Noise = "ornstein-uhlenbeck",
        exploration_sigma: float = 0.2,
        uniform_steps: int = 0,
        seed: int | None = None,
        device: str | torch.device | None = None,
        **collection: Unpack[CollectionOptions],
    ) -> None:
        settings = DeterministicSettings(target_update_tau=target_update_tau, policy_lr=policy_lr, qf_lr=qf_lr)
        spec, seed = require_box(env_spec, "DDPG", _CHOOSING), fresh_seed() if seed is None else int(seed)
        buffer = buffer_for(spec, replay_buffer, replay_size, collection)
        policy, critics = _networks(spec, policy, qf, 1, seed)
        acting = exploration_policy or _noisy(policy, exploration_noise, exploration_sigma)
        explorer = BoxExploration(acting, uniform_steps)
        self.trainer = DeterministicTrainer(policy, critics, explorer, settings, seed, device_of(device))
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


@final
class TD3(OffPolicyRLAlgorithm):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477).

    Args:
        env_spec: Environment or spec; actions are a Box.
        policy: What is learned; ``None`` means a ``DeterministicMLPPolicy``.
        qf: A ``QFunction``, beside which a second one is drawn, or ``Critics`` of two; ``None`` means two of two layers
            of 256.
        replay_buffer: See ``OffPolicyRLAlgorithm``; ``None`` means a ``ReplayBuffer`` of ``replay_size`` steps.
        exploration_policy: What acts in training; ``None`` means the policy with ``exploration_noise``.
        replay_size: Steps that the replay buffer keeps.
        target_update_tau: How far target networks move in one step.
        policy_lr: Step size of Adam for the policy.
        qf_lr: Step size of Adam for the Q functions.
        policy_delay: Gradient steps of the Q functions for each of the policy and the target networks.
        smoothing_std: Standard deviation of the noise in actions of the target policy, which lie in [-1, 1].
        smoothing_clip: Bound of that noise.
        exploration_noise: Noise without memory, or a process with memory.
        exploration_sigma: Its size, where actions lie in [-1, 1].
        uniform_steps: Environment steps at first with actions at random.
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
        target_update_tau: float = 0.005,
        policy_lr: float = 1e-3,
        qf_lr: float = 1e-3,
        policy_delay: int = 2,
        smoothing_std: float = 0.2,
        smoothing_clip: float = 0.5,
        exploration_noise: Noise = "gaussian",
        exploration_sigma: float = 0.1,
        uniform_steps: int = 0,
        seed: int | None = None,
        device: str | torch.device | None = None,
        **collection: Unpack[CollectionOptions],
    ) -> None:
        settings = DeterministicSettings(
            target_update_tau=target_update_tau,
            policy_lr=policy_lr,
            qf_lr=qf_lr,
            policy_delay=policy_delay,
            smoothing_std=smoothing_std,
            smoothing_clip=smoothing_clip,
        )
        spec, seed = require_box(env_spec, "TD3", _CHOOSING), fresh_seed() if seed is None else int(seed)
        buffer = buffer_for(spec, replay_buffer, replay_size, collection)
        policy, critics = _networks(spec, policy, qf, 2, seed)
        acting = exploration_policy or _noisy(policy, exploration_noise, exploration_sigma)
        explorer = BoxExploration(acting, uniform_steps)
        self.trainer = DeterministicTrainer(policy, critics, explorer, settings, seed, device_of(device))
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
    """``policy`` with noise of size ``sigma``, where actions lie in [-1, 1]."""
    if kind == "gaussian":
        return GaussianNoisePolicy(policy, sigma)
    if kind != "ornstein-uhlenbeck":
        raise unknown_name("exploration_noise", kind, get_args(Noise))
    return OrnsteinUhlenbeckPolicy(policy, sigma, dt=1.0, relative=True)
