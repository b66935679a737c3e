"""DQN: values of all actions, learned from those of the best ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack, final

import torch
from torch import Tensor

from metaroll.checks import check_number, check_whole
from metaroll.functional.gradients.actor_critic import (
    bootstrapped,
    chosen_values,
    chosen_values_gradient,
    greedy_values,
    huber_loss,
    huber_loss_gradient,
)
from metaroll.functional.gradients.perceptrons import Memory
from metaroll.learners.off_policy.base import CollectionOptions, OffPolicyRLAlgorithm
from metaroll.learners.off_policy.exploring import EpsilonGreedy
from metaroll.learners.off_policy.nets import PolicyNet, policy_net, were_by_hand, without_autograd
from metaroll.learners.off_policy.networks import target_of
from metaroll.learners.off_policy.replay import TransitionBatch
from metaroll.learners.off_policy.setup import (
    buffer_for,
    check_policy,
    device_of,
    encoders_of,
    require_choices,
    weighing,
)
from metaroll.learners.off_policy.trainer import CRITIC_LOSSES, CriticLosses, ReplayTrainer, Trained
from metaroll.learners.snapshots import described
from metaroll.policies.exploration import EpsilonGreedyPolicy
from metaroll.policies.greedy import GreedyQPolicy
from metaroll.seeding import derive_seed, fresh_seed, torch_generator

__all__ = ["DQN", "ValueNets", "ValueNetworks", "ValueSettings", "ValueTrainer", "fit_values"]


@dataclass(frozen=True, kw_only=True)
class ValueSettings:
    """How a gradient step is made.

    Attributes:
        qf_lr: Step size of Adam.
        min_qf_lr: What it falls to.
        qf_lr_steps: Gradient steps in which it falls, linearly; ``None``: it stays.
        double: The network that is learned chooses the best next action, the target network tells its value.
        target_update_steps: Gradient steps between copies into the target network.
        max_grad_norm: Maximum norm of the gradient; ``None`` does not limit it.
    """

    qf_lr: float = 1e-4
    min_qf_lr: float = 0.0
    qf_lr_steps: int | None = None
    double: bool = True
    target_update_steps: int = 1000
    max_grad_norm: float | None = 10.0

    def __post_init__(self) -> None:
        check_number("qf_lr", self.qf_lr, 0.0, above_low=True)
        check_number("min_qf_lr", self.min_qf_lr, 0.0, self.qf_lr)
        if self.qf_lr_steps is not None:
            check_whole("qf_lr_steps", self.qf_lr_steps)
        check_whole("target_update_steps", self.target_update_steps)
        if self.max_grad_norm is not None:
            check_number("max_grad_norm", self.max_grad_norm, 0.0, above_low=True)

    def lr_after(self, num_steps: int) -> float:
        """Step size after ``num_steps`` gradient steps."""
        if self.qf_lr_steps is None:
            return self.qf_lr
        left = max(0.0, 1.0 - num_steps / self.qf_lr_steps)
        return self.min_qf_lr + left * (self.qf_lr - self.min_qf_lr)


class ValueNetworks(NamedTuple):
    """Action values, and their target."""

    policy: GreedyQPolicy
    target: GreedyQPolicy


class ValueNets(NamedTuple):
    """The same as gradient steps use them: both give values of all actions, ``(B, n)``."""

    policy: PolicyNet
    target: PolicyNet


def fit_values(
    nets: ValueNets, batch: TransitionBatch, double: bool, max_grad_norm: float | None = None
) -> CriticLosses:
    """A step of DQN (Mnih et al. 2015, equation 2), or of double DQN (van Hasselt et al. 2016, arXiv:1509.06461).

    Args:
        nets: Values, and their target.
        batch: Transitions; actions are indices ``(B,)``.
        double: Whether the network that is learned chooses the best next action.
        max_grad_norm: Maximum norm of the gradient; ``None`` does not limit it.
    """
    # y = r + gamma max_a' Q'(s', a'), or r + gamma Q'(s', argmax_a' Q(s', a'))
    online = nets.policy(batch.next_observations, fixed=True) if double else None
    following = greedy_values(nets.target(batch.next_observations), online)
    target = bootstrapped(batch.rewards, batch.discounts, following)
    values = nets.policy(batch.observations)  # (B, n)
    predicted = chosen_values(values, batch.actions)
    grad = huber_loss_gradient(predicted, target, batch.weights)
    nets.policy.descend(chosen_values_gradient(grad, batch.actions, values.shape[-1]), max_grad_norm)
    loss = huber_loss(predicted, target, batch.weights)
    return CriticLosses(loss, torch.stack([loss, predicted.mean()]), target - predicted)


@final
class ValueTrainer(ReplayTrainer):
    """Steps of ``fit_values``; now and then the target becomes what was learned. The host waits for nothing.

    Args:
        policy: What is trained.
        exploration: What acts.
        settings: How.
        seed: Not used: these gradient steps draw nothing.
        device: Where they run.
    """

    def __init__(
        self,
        policy: GreedyQPolicy,
        exploration: EpsilonGreedy,
        settings: ValueSettings,
        seed: int,
        device: torch.device,
    ) -> None:
        self.settings = settings
        self.networks = ValueNetworks(policy, target_of(policy))
        super().__init__(
            exploration, Trained(self.networks._asdict(), {"policy": settings.qf_lr}, device), seed, device
        )
        memory = Memory()
        optimizer = self.trained.optimizers["policy"]
        self.nets = ValueNets(policy_net(policy, optimizer, memory), policy_net(self.networks.target, None, memory))
        self._without_autograd = without_autograd(self.nets.policy)
        self._num_steps = 0

    def step(self, batch: TransitionBatch) -> Tensor:
        """See ``ReplayTrainer``."""
        self.trained.optimizers["policy"].set_lr(self.settings.lr_after(self._num_steps))
        self._num_steps += 1
        with self._without_autograd():
            losses = fit_values(self.nets, batch, self.settings.double, self.settings.max_grad_norm)
            if self._num_steps % self.settings.target_update_steps == 0:
                self.trained.follow("target", "policy", 1.0)
            self.means.add(CRITIC_LOSSES, losses.seen)
            return losses.errors

    def described(self) -> Sequence[str]:
        """See ``ReplayTrainer``."""
        return [described(self.settings)]

    @property
    def arithmetic(self) -> int:
        """See ``ReplayTrainer``."""
        return 1 if were_by_hand(self.networks.policy) else 2

    def state_dict(self) -> dict[str, Any]:
        """See ``ReplayTrainer``."""
        return {**super().state_dict(), "steps": self._num_steps}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """See ``ReplayTrainer``."""
        super().load_state_dict(tree)
        self._num_steps = int(tree["steps"])


@final
class DQN(OffPolicyRLAlgorithm):
    """Deep Q-learning (Mnih et al. 2015), with double, dueling, n-step and prioritized replay as options.

    Args:
        env_spec: Environment or spec; actions are Discrete.
        policy: What is learned: a ``GreedyQPolicy``; ``None`` means one with two layers of 256.
        qf: The same, or ``None``: the policy is what has the values.
        replay_buffer: See ``OffPolicyRLAlgorithm``; ``None`` means a ``ReplayBuffer`` of ``replay_size`` steps.
        exploration_policy: What acts in training; ``None`` means the policy, at random with probability epsilon.
        replay_size: Steps that the replay buffer keeps.
        double: The network that is learned chooses the best next action, the target network tells its value.
        dueling: Without a policy: make one whose network gives a value and advantages.
        target_update_steps: Gradient steps between copies into the target network.
        qf_lr: Step size of Adam.
        min_qf_lr: What it falls to in qf_lr_steps.
        qf_lr_steps: Gradient steps in which the step size falls linearly, so that what is learned last is no worse than
            what was learned before; null: it stays as it is.
        max_grad_norm: Maximum norm of the gradient; null does not limit it.
        max_epsilon: Probability of an action at random at first.
        min_epsilon: The same in the end.
        epsilon_steps: Environment steps in which it falls.
        priority_exponent: Draw steps in proportion to this power of their last errors; null draws uniformly.
        importance_exponent: How far weights make up for that, from 0 (not at all) to 1.
        seed: Source of all randomness of training; ``None`` means fresh entropy. Recorded in ``seed``.
        device: Where the networks live; ``None`` means the CPU.
        collection: See ``OffPolicyRLAlgorithm``.

    Raises:
        TypeError: Actions are not Discrete, or the policy is of another kind.
        ValueError: ``qf`` is something else than the policy.
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
        double: bool = True,
        dueling: bool = False,
        target_update_steps: int = 1000,
        qf_lr: float = 1e-4,
        min_qf_lr: float = 0.0,
        qf_lr_steps: int | None = None,
        max_grad_norm: float | None = 10.0,
        max_epsilon: float = 1.0,
        min_epsilon: float = 0.05,
        epsilon_steps: int = 10_000,
        priority_exponent: float | None = None,
        importance_exponent: float = 0.4,
        seed: int | None = None,
        device: str | torch.device | None = None,
        **collection: Unpack[CollectionOptions],
    ) -> None:
        spec = require_choices(env_spec, "DQN", "ddpg, td3 and sac learn a Box, ppo several choices")
        seed = fresh_seed() if seed is None else int(seed)
        settings = ValueSettings(
            qf_lr=qf_lr,
            min_qf_lr=min_qf_lr,
            qf_lr_steps=qf_lr_steps,
            double=double,
            target_update_steps=target_update_steps,
            max_grad_norm=max_grad_norm,
        )
        self.weight_exponent = weighing(priority_exponent, importance_exponent)
        buffer = buffer_for(spec, replay_buffer, replay_size, collection, priority_exponent)
        if policy is None:
            generator = torch_generator(derive_seed("value networks", seed))
            encoder, _ = encoders_of(spec, None, generator)
            policy = GreedyQPolicy(spec, dueling=dueling, init="fan_in", encoder=encoder, generator=generator)
        check_policy(policy, GreedyQPolicy, spec)
        if qf is not None and qf is not policy:
            raise ValueError(f"qf must be the policy, which has the values, or None, got {type(qf).__name__}")
        acting = EpsilonGreedyPolicy(policy, max_epsilon) if exploration_policy is None else exploration_policy
        explorer = EpsilonGreedy(acting, max_epsilon, min_epsilon, epsilon_steps)
        self.trainer = ValueTrainer(policy, explorer, settings, seed, device_of(device))
        super().__init__(
            spec,
            policy,
            policy,
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
