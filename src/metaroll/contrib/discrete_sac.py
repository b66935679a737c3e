"""Discrete SAC: probabilities of choices that are paid for their entropy, and values of all of them at once."""

from __future__ import annotations

import math
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from metaroll import EnvSpec
from metaroll.configs import OffPolicyConfig, SACConfig
from metaroll.plugins import (
    API,
    BuildOptions,
    ChoiceExploration,
    CriticLosses,
    Made,
    Networks,
    OffPolicyLearner,
    PolicyLosses,
    SoftNets,
    SoftObjective,
    SoftTrainer,
    TransitionBatch,
    actor_and_critics,
    bootstrapped,
    check_number,
    check_policy,
    chosen_values,
    chosen_values_gradient,
    critic_losses_of,
    critics_loss_gradient,
    critics_of,
    derive_seed,
    encoders_of,
    expected_values,
    expected_values_gradient,
    off_policy_row,
    require_choices,
    soft_settings,
    soft_values,
    torch_generator,
)
from metaroll.policies import CategoricalMLPPolicy, Critics

__all__ = ["ROW", "TARGET_ENTROPY_SHARE", "DiscreteSAC", "fit_choice_critics", "improve_choices"]

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
class DiscreteSAC(OffPolicyLearner[SACConfig]):
    """Soft actor-critic for Discrete actions (Christodoulou 2019, arXiv:1910.07207), with two critics.

    Means over actions stand for draws of them. What entropy counts beside rewards follows a target, unless it is fixed;
    where nothing is said, 0.7 of the largest entropy (the paper's 0.98 is too much where there are few actions).

    Arguments are those of ``OffPolicyLearner``: actions are Discrete; ``policy`` is a ``CategoricalMLPPolicy``, ``qf``
    ``Critics`` of two (of two layers of 256 where nothing is given); the policy itself acts.
    """

    config_class: ClassVar[type[OffPolicyConfig]] = SACConfig

    def make(self, policy: Any, qf: Any, exploration_policy: Any) -> Made:
        """See ``OffPolicyLearner``."""
        spec = require_choices(self.env_spec, "DiscreteSAC", "SAC learns a Box, ppo several choices")
        config, largest = self.config, math.log(spec.act_dim)
        if config.target_entropy is not None:
            check_number("target_entropy", config.target_entropy, 0.0, largest)
        generator = torch_generator(derive_seed("soft networks of choices", self.seed))
        critics_see, policy_sees = encoders_of(spec, qf, generator)
        if policy is None:
            policy = CategoricalMLPPolicy(
                spec, (256, 256), "relu", init="fan_in", encoder=policy_sees, generator=generator
            )
        check_policy(policy, CategoricalMLPPolicy, spec)
        if qf is None:
            qf = Critics(spec, 2, init="fan_in", encoder=critics_see, generator=generator)
        critics = critics_of(qf, spec, 2, generator)
        explorer = ChoiceExploration(policy if exploration_policy is None else exploration_policy, config.random_steps)
        settings = soft_settings(config, TARGET_ENTROPY_SHARE * largest)
        objective = SoftObjective(fit_choice_critics, improve_choices, 2, "")
        trainer = SoftTrainer(policy, critics, explorer, settings, objective, self.seed, self.device)
        return Made(policy, critics, explorer.policy, trainer, config.weight_exponent)


def networks(spec: EnvSpec, given: BuildOptions) -> Networks:
    """Policy and critics of the options."""
    return actor_and_critics(CategoricalMLPPolicy, 2, spec, given)


ROW = off_policy_row("discrete-sac", DiscreteSAC, networks, api=API)
