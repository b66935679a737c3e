"""Discrete SAC: probabilities of choices that are paid for their entropy, and values of all of them at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Unpack, final

import torch
from torch import Tensor

from metaroll.checks import check_number
from metaroll.functional.gradients.actor_critic import (
    bootstrapped,
    chosen_values,
    chosen_values_gradient,
    critics_loss_gradient,
    expected_values,
    expected_values_gradient,
    soft_values,
)
from metaroll.learners.off_policy.base import CollectionOptions, OffPolicyRLAlgorithm
from metaroll.learners.off_policy.exploring import ChoiceExploration
from metaroll.learners.off_policy.networks import Critics, critics_of
from metaroll.learners.off_policy.replay import TransitionBatch
from metaroll.learners.off_policy.setup import (
    buffer_for,
    check_policy,
    device_of,
    encoders_of,
    require_choices,
    weighing,
)
from metaroll.learners.off_policy.soft import PolicyLosses, SoftNets, SoftObjective, SoftSettings, SoftTrainer
from metaroll.learners.off_policy.trainer import CriticLosses, critic_losses_of
from metaroll.policies.gaussian import CategoricalMLPPolicy
from metaroll.seeding import derive_seed, fresh_seed, torch_generator

__all__ = ["TARGET_ENTROPY_SHARE", "DiscreteSAC", "fit_choice_critics", "improve_choices"]

TARGET_ENTROPY_SHARE = 0.7
"""Of the largest entropy, ``ln n``, that is aimed at where nothing is said.

The paper's 0.98 leaves two actions with probabilities of 0.58 and 0.42; its author calls it a parameter to lower where
the temperature only grows, and 0.7 to 0.8 did on the cart-pole (github.com/p-christ/
Deep-Reinforcement-Learning-Algorithms-with-PyTorch, issue 54).
"""


def fit_choice_critics(nets: SoftNets, batch: TransitionBatch, noise: Tensor) -> CriticLosses:
    """A step of the critics (Christodoulou 2019, arXiv:1910.07207, equations 4 and 10, with the smaller of two).

    Args:
        nets: All networks; critics say the values of all actions.
        batch: Transitions; actions are indices ``(B,)``.
        noise: Not used: all actions count, by their probability.
    """
    log_probs = torch.log_softmax(nets.policy(batch.next_observations), dim=-1)
    values = nets.target_critics(batch.next_observations).amin(dim=0)
    # y = r + gamma sum_a' pi(a' | s') (min_k Q'_k(s', a') - alpha ln pi(a' | s'))
    values = expected_values(log_probs, soft_values(values, log_probs, nets.temperature()))
    target = bootstrapped(batch.rewards, batch.discounts, values)
    values = nets.critics(batch.observations)  # (K, B, n)
    chosen = batch.actions.expand(len(values), -1)
    predicted = chosen_values(values, chosen)
    grad = critics_loss_gradient(predicted, target, batch.weights)
    nets.critics.descend(chosen_values_gradient(grad, chosen, values.shape[-1]))
    return critic_losses_of(predicted, target, batch.weights)


def improve_choices(nets: SoftNets, batch: TransitionBatch, noise: Tensor) -> PolicyLosses:
    """A step of the policy down ``mean_b sum_a pi(a | s) (alpha ln pi(a | s) - min_k Q_k(s, a))``.

    Christodoulou 2019, equation 12; its log-densities are means over actions.

    Args:
        nets: All networks.
        batch: Transitions, of which the observations count.
        noise: Not used.
    """
    values = nets.critics(batch.observations).amin(dim=0)
    log_probs = torch.log_softmax(nets.policy(batch.observations), dim=-1)
    values = soft_values(values, log_probs, nets.temperature())
    expected = expected_values(log_probs, values)
    nets.policy.descend(expected_values_gradient(log_probs, values, expected) * (-1.0 / len(expected)))
    log_prob = expected_values(log_probs, log_probs)
    return PolicyLosses(torch.stack([-expected.mean(), log_prob.mean()]), log_prob)


@final
class DiscreteSAC(OffPolicyRLAlgorithm):
    """Soft actor-critic for Discrete actions (Christodoulou 2019, arXiv:1910.07207), with two critics.

    Means over actions stand for draws of them. What entropy counts beside rewards follows a target, unless it is fixed.

    Args:
        env_spec: Environment or spec; actions are Discrete.
        policy: What is learned; ``None`` means a ``CategoricalMLPPolicy``.
        qf: ``Critics`` of two; ``None`` means two of two layers of 256.
        replay_buffer: See ``OffPolicyRLAlgorithm``; ``None`` means a ``ReplayBuffer`` of ``replay_size`` steps.
        exploration_policy: What acts in training; ``None`` means the policy itself.
        replay_size: Steps that the replay buffer keeps.
        target_entropy: The entropy that is aimed at, in nats, at most ``ln n`` of n actions; null means 0.7 of that
            (the paper's 0.98 is too much where there are few).
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
        TypeError: Actions are not Discrete, or a network is of another kind.
        ValueError: An argument is out of range.
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
        spec = require_choices(env_spec, "DiscreteSAC", "SAC learns a Box, ppo several choices")
        seed, largest = fresh_seed() if seed is None else int(seed), math.log(spec.act_dim)
        if target_entropy is not None:
            check_number("target_entropy", target_entropy, 0.0, largest)
        settings = SoftSettings(
            target_entropy=TARGET_ENTROPY_SHARE * largest if target_entropy is None else target_entropy,
            temperature=temperature,
            init_temperature=init_temperature,
            target_update_tau=target_update_tau,
            policy_lr=policy_lr,
            qf_lr=qf_lr,
            temperature_lr=temperature_lr,
        )
        self.weight_exponent = weighing(priority_exponent, importance_exponent)
        buffer = buffer_for(spec, replay_buffer, replay_size, collection, priority_exponent)
        generator = torch_generator(derive_seed("soft networks of choices", seed))
        critics_see, policy_sees = encoders_of(spec, qf, generator)
        if policy is None:
            policy = CategoricalMLPPolicy(
                spec, (256, 256), "relu", init="fan_in", encoder=policy_sees, generator=generator
            )
        check_policy(policy, CategoricalMLPPolicy, spec)
        if qf is None:
            qf = Critics(spec, 2, init="fan_in", encoder=critics_see, generator=generator)
        critics = critics_of(qf, spec, 2, generator)
        explorer = ChoiceExploration(policy if exploration_policy is None else exploration_policy, uniform_steps)
        objective = SoftObjective(fit_choice_critics, improve_choices, 2, "")
        self.trainer = SoftTrainer(policy, critics, explorer, settings, objective, seed, device_of(device))
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
