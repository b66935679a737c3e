"""DDPG and TD3: a deterministic policy that climbs the values of its actions."""

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
    """The same as gradient steps use them."""

    policy: PolicyNet
    critics: CriticNets
    target_policy: PolicyNet
    target_critics: CriticNets


def critic_target(
    nets: DeterministicNets, batch: TransitionBatch, noise: Tensor | None, settings: DeterministicUpdate
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
            noise = self.draw_noise(*batch.actions.shape) if settings.smoothing_std else None
            target = critic_target(nets, batch, noise, settings)
            critic = descend_critics(nets.critics, batch, target)
            self.means.add(CRITIC_LOSSES, critic.seen)
            if self._num_steps % settings.policy_delay == 0:  # "if t mod d" (Fujimoto 2018, algorithm 1)
                self.means.add(POLICY_LOSSES, improve_policy(nets, batch)[None])
                trained.follow("target_critics", "critics", settings.tau)  # Q' <- (1 - tau) Q' + tau Q
                trained.follow("target_policy", "policy", settings.tau)  # and pi' in the same way
            return critic.errors  # (B,), the priorities of replay

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
        # With memory of its own: the critics are asked before the gradient of the policy has come back through them.
        policy_net(policy, optimizers["policy"]),
        critic_nets(critics, optimizers["critics"], memory),
        policy_net(target_policy, None, memory),
        critic_nets(target_critics, None, memory),
    )


class DDPG(OffPolicyLearner[DDPGConfig]):
    """Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971).

    Arguments are those of ``OffPolicyLearner``: actions are a Box; ``policy`` is a ``DeterministicMLPPolicy``, ``qf`` a
    ``QFunction`` or ``Critics`` of one (of two layers of 256 where nothing is given); the policy with
    ``exploration_noise`` acts.
    """

    config_class: ClassVar[type[OffPolicyConfig]] = DDPGConfig

    def make(self, policy: Any, qf: Any, exploration_policy: Any) -> Made:
        """See ``OffPolicyLearner``."""
        rates = {option.name: getattr(self.config, option.name) for option in options_of(ActorCriticRates)}
        settings = DeterministicUpdate(**rates, policy_delay=1, smoothing_std=0.0)
        return _made(self, self.config, 1, settings, (policy, qf, exploration_policy))


class TD3(OffPolicyLearner[TD3Config]):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477).

    Arguments are those of ``OffPolicyLearner``: actions are a Box; ``policy`` is a ``DeterministicMLPPolicy``, ``qf`` a
    ``QFunction``, beside which a second one is drawn, or ``Critics`` of two (of two layers of 256 where nothing is
    given); the policy with ``exploration_noise`` acts.
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
    """What both learn with.

    Args:
        learner: One of them.
        config: Its settings.
        num_critics: How many critics it has.
        settings: How a gradient step is made.
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
    """``policy`` with noise of size ``sigma``, where actions lie in [-1, 1]."""
    if kind == "gaussian":
        return GaussianNoisePolicy(policy, sigma)
    return OrnsteinUhlenbeckPolicy(policy, sigma, dt=1.0, relative=True)
