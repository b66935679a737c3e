"""Deep Q-learning for Discrete actions, with double, dueling and prioritized variants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import Tensor

from metaroll.config import described
from metaroll.data.replay.transitions import TransitionBatch
from metaroll.functional.gradients.actor_critic import (
    bootstrapped,
    chosen_values,
    chosen_values_gradient,
    greedy_values,
    huber_loss,
    huber_loss_gradient,
)
from metaroll.functional.gradients.perceptrons import Memory
from metaroll.learners.off_policy.base import Made, OffPolicyLearner, require_choices
from metaroll.learners.off_policy.configs import DQNConfig, OffPolicyConfig, ValueUpdate
from metaroll.learners.off_policy.nets import PolicyNet, policy_net, were_by_hand, without_autograd
from metaroll.learners.off_policy.trainer import CRITIC_LOSSES, CriticLosses, ReplayTrainer, Trained
from metaroll.policies.acting import check_policy
from metaroll.policies.encoders import encoders_of
from metaroll.policies.exploration import EpsilonGreedy, EpsilonGreedyPolicy
from metaroll.policies.greedy import GreedyQPolicy
from metaroll.policies.networks import target_of
from metaroll.seeding import derive_seed, torch_generator
from metaroll.state import parts

__all__ = ["DQN", "ValueNets", "ValueNetworks", "ValueTrainer", "fit_values"]


class ValueNetworks(NamedTuple):
    """The Q-network, and its target network."""

    policy: GreedyQPolicy
    target: GreedyQPolicy


class ValueNets(NamedTuple):
    """``ValueNetworks`` as the gradient steps call them: both return the values of all actions, ``(B, n)``."""

    policy: PolicyNet
    target: PolicyNet


def fit_values(
    nets: ValueNets, batch: TransitionBatch, double: bool, max_grad_norm: float | None = None
) -> CriticLosses:
    """One step of DQN (Mnih et al. 2015, equation 2), or of double DQN (van Hasselt et al. 2016, arXiv:1509.06461).

    Args:
        nets: The Q-network and its target network.
        batch: Transitions; actions are indices ``(B,)``.
        double: Whether the online network chooses the best next action.
        max_grad_norm: Maximum norm of the gradient; ``None`` does not limit it.
    """
    # max_a' Q'(s', a'), or with double DQN Q'(s', argmax_a' Q(s', a')), (B, n) -> (B,)
    online = nets.policy(batch.next_observations, fixed=True) if double else None
    following = greedy_values(nets.target(batch.next_observations), online)
    # y = r + d max_a' Q'(s', a'), (B,); d is gamma (gamma^n for n-step returns), and 0 where s' is terminal
    target = bootstrapped(batch.rewards, batch.discounts, following)
    # Q(s, .), (B, n), and Q(s, a), (B,)
    values = nets.policy(batch.observations)
    predicted = chosen_values(values, batch.actions)
    # Huber loss of the TD error, weighted by prioritized replay: dL/dQ(s, a) = w_b clip(Q - y, -1, 1) / B, (B,)
    grad = huber_loss_gradient(predicted, target, batch.weights)
    # dL/dQ(s, .), (B, n), is 0 at the other actions; Adam with a clipped gradient norm
    nets.policy.descend(chosen_values_gradient(grad, batch.actions, values.shape[-1]), max_grad_norm)
    loss = huber_loss(predicted, target, batch.weights)  # from before the step, for the log
    return CriticLosses(loss, torch.stack([loss, predicted.mean()]), target - predicted)


@final
class ValueTrainer(ReplayTrainer):
    """Steps of ``fit_values``, with periodic copies into the target network. They never synchronize with the device.

    Args:
        policy: The policy to train.
        exploration: The behavior policy.
        settings: Hyperparameters of the steps.
        seed: Not used: these gradient steps need no noise.
        device: Device of the networks.
    """

    state_parts = parts(**ReplayTrainer.state_parts, steps="_num_steps")

    def __init__(
        self,
        policy: GreedyQPolicy,
        exploration: EpsilonGreedy,
        settings: ValueUpdate,
        seed: int,
        device: torch.device,
    ) -> None:
        self.settings = settings
        self.networks = ValueNetworks(policy, target_of(policy))
        super().__init__(
            exploration, Trained(self.networks._asdict(), {"policy": settings.learning_rate}, device), seed, device
        )
        memory = Memory()
        optimizer = self.trained.optimizers["policy"]
        self.nets = ValueNets(policy_net(policy, optimizer, memory), policy_net(self.networks.target, None, memory))
        self._without_autograd = without_autograd(self.nets.policy)
        self._num_steps = 0

    def step(self, batch: TransitionBatch) -> Tensor:
        """See ``ReplayTrainer``."""
        self.trained.optimizers["policy"].set_lr(self.settings.learning_rate_after(self._num_steps))
        self._num_steps += 1
        with self._without_autograd():
            losses = fit_values(self.nets, batch, self.settings.double, self.settings.max_grad_norm)
            if self._num_steps % self.settings.target_update_steps == 0:
                self.trained.follow("target", "policy", 1.0)  # theta' <- theta (Mnih et al. 2015, algorithm 1)
            self.means.add(CRITIC_LOSSES, losses.seen)
            return losses.errors

    def described(self) -> Sequence[str]:
        """See ``ReplayTrainer``."""
        return [described(self.settings, ValueUpdate)]

    @property
    def arithmetic(self) -> int:
        """See ``ReplayTrainer``."""
        return 1 if were_by_hand(self.networks.policy) else 2


class DQN(OffPolicyLearner[DQNConfig]):
    """Deep Q-learning (Mnih et al. 2015), with double, dueling, n-step and prioritized replay as options.

    Arguments are those of ``OffPolicyLearner``, for Discrete actions. ``policy`` is a ``GreedyQPolicy``, by default
    with two hidden layers of 256; it holds the Q-network, so that ``qf`` is the same or ``None``. The behavior policy
    is epsilon-greedy.
    """

    config_class: ClassVar[type[OffPolicyConfig]] = DQNConfig

    def make(self, policy: Any, qf: Any, exploration_policy: Any) -> Made:
        """See ``OffPolicyLearner``.

        Raises:
            ValueError: ``qf`` is not the policy.
        """
        spec = require_choices(self.env_spec, "DQN", "ddpg, td3 and sac learn a Box, ppo several choices")
        config = self.config
        if policy is None:
            generator = torch_generator(derive_seed("value networks", self.seed))
            encoder, _ = encoders_of(spec, None, generator)
            policy = GreedyQPolicy(spec, dueling=config.dueling, init="fan_in", encoder=encoder, generator=generator)
        check_policy(policy, GreedyQPolicy, spec)
        if qf is not None and qf is not policy:
            raise ValueError(f"qf must be the policy, which has the values, or None, got {type(qf).__name__}")
        first, last = config.max_epsilon, config.min_epsilon
        acting = EpsilonGreedyPolicy(policy, first) if exploration_policy is None else exploration_policy
        explorer = EpsilonGreedy(acting, first, last, config.epsilon_steps)
        trainer = ValueTrainer(policy, explorer, config, self.seed, self.device)
        return Made(policy, policy, explorer.policy, trainer, config.weight_exponent)
