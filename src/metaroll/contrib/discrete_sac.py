"""Discrete SAC: soft actor-critic with a categorical policy, and critics that return the values of all actions."""

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
"""Default target entropy, as a share of the maximum ``ln n``.

The paper's 0.98 leaves two actions with probabilities of 0.58 and 0.42; its author suggests to lower it where the
temperature only grows, and 0.7 to 0.8 worked on the cart-pole (github.com/p-christ/
Deep-Reinforcement-Learning-Algorithms-with-PyTorch, issue 54).
"""


def fit_choice_critics(nets: SoftNets, batch: TransitionBatch, noise: Tensor) -> CriticLosses:
    """One step of the critics (Christodoulou 2019, arXiv:1910.07207, equations 4 and 10, with the minimum of two).

    Args:
        nets: All networks; critics return the values of all actions.
        batch: Transitions; actions are indices ``(B,)``.
        noise: Not used: the expectation over actions is exact.
    """
    # ln pi(. | s') and min_k Q'_k(s', .), (B, n) each
    log_probs = torch.log_softmax(nets.policy(batch.next_observations), dim=-1)
    values = nets.target_critics(batch.next_observations).amin(dim=0)
    # V(s') = sum_a' pi(a' | s') (min_k Q'_k(s', a') - alpha ln pi(a' | s')), (B,) (equation 10)
    values = expected_values(log_probs, soft_values(values, log_probs, nets.temperature()))
    # y = r + d V(s'), (B,); d is gamma (gamma^n for n-step returns), and 0 where s' is terminal
    target = bootstrapped(batch.rewards, batch.discounts, values)
    # Q_k(s, .), (K, B, n), and Q_k(s, a), (K, B)
    values = nets.critics(batch.observations)
    chosen = batch.actions.expand(len(values), -1)
    predicted = chosen_values(values, chosen)
    # dL/dQ_k(s, a) = w_b (Q_k - y) / B, (K, B), and 0 for the other actions, (K, B, n)
    grad = critics_loss_gradient(predicted, target, batch.weights)
    nets.critics.descend(chosen_values_gradient(grad, chosen, values.shape[-1]))
    return critic_losses_of(predicted, target, batch.weights)


def improve_choices(nets: SoftNets, batch: TransitionBatch, noise: Tensor) -> PolicyLosses:
    """One step of the policy down ``mean_b sum_a pi(a | s) (alpha ln pi(a | s) - min_k Q_k(s, a))``.

    Christodoulou 2019, equation 12; the returned log-densities are expectations over actions.

    Args:
        nets: All networks.
        batch: Transitions; only the observations are used.
        noise: Not used.
    """
    # min_k Q_k(s, .) and ln pi(. | s), (B, n) each
    values = nets.critics(batch.observations).amin(dim=0)
    log_probs = torch.log_softmax(nets.policy(batch.observations), dim=-1)
    # v(s, a) = min_k Q_k(s, a) - alpha ln pi(a | s), (B, n), and E_pi[v], (B,)
    values = soft_values(values, log_probs, nets.temperature())
    expected = expected_values(log_probs, values)
    # L = -mean E_pi[v]; dL/dlogits = -pi (v - E_pi[v]) / B, (B, n)
    nets.policy.descend(expected_values_gradient(log_probs, values, expected) * (-1.0 / len(expected)))
    # E_pi[ln pi] = -H(pi(. | s)), (B,), for the temperature
    log_prob = expected_values(log_probs, log_probs)
    return PolicyLosses(torch.stack([-expected.mean(), log_prob.mean()]), log_prob)


@final
class DiscreteSAC(OffPolicyLearner[SACConfig]):
    """Soft actor-critic for Discrete actions (Christodoulou 2019, arXiv:1910.07207), with two critics.

    Expectations over actions are exact instead of sampled. The temperature is tuned toward a target entropy, unless it
    is fixed; by default 0.7 of the maximum entropy (the paper's 0.98 is too high for few actions).

    Arguments are those of ``OffPolicyLearner``, for Discrete actions. ``policy`` is a ``CategoricalMLPPolicy``, ``qf``
    ``Critics`` of two. Defaults have two hidden layers of 256. The policy itself is the behavior policy.
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
    """Policy and critics from the options."""
    return actor_and_critics(CategoricalMLPPolicy, 2, spec, given)


ROW = off_policy_row("discrete-sac", DiscreteSAC, networks, api=API)
