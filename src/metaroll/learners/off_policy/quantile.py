"""TQC: SAC with critics that say distributions, whose largest atoms are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Unpack, final

import torch
from torch import Tensor

from metaroll.checks import check_whole
from metaroll.functional.gradients.actor_critic import bootstrapped, soft_values
from metaroll.functional.gradients.quantiles import quantile_huber_loss, smallest_atoms
from metaroll.learners.off_policy.base import CollectionOptions, OffPolicyRLAlgorithm
from metaroll.learners.off_policy.exploring import BoxExploration
from metaroll.learners.off_policy.networks import Critics, critics_of
from metaroll.learners.off_policy.replay import TransitionBatch
from metaroll.learners.off_policy.setup import (
    buffer_for,
    check_policy,
    device_of,
    encoders_of,
    require_box,
    weighing,
)
from metaroll.learners.off_policy.soft import (
    PolicyLosses,
    SoftNets,
    SoftObjective,
    SoftSettings,
    SoftTrainer,
    descend_entropy,
)
from metaroll.learners.off_policy.trainer import CriticLosses
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.seeding import derive_seed, fresh_seed, torch_generator

__all__ = ["TQC", "fit_truncated_critics", "improve_policy_by_means"]


def fit_truncated_critics(nets: SoftNets, batch: TransitionBatch, noise: Tensor, num_dropped: int) -> CriticLosses:
    """A step of the critics down the quantile loss of Kuznetsov et al. 2020 (arXiv:2005.04269, equations 11 to 13).

    Args:
        nets: All networks; critics say atoms.
        batch: Transitions.
        noise: Standard normal numbers for the next actions, ``(B, act_dim)``.
        num_dropped: Atoms that are left out, of all critics together.
    """
    following = nets.sample(batch.next_observations, noise)
    atoms = smallest_atoms(nets.target_critics(batch.next_observations, following.actions), num_dropped)
    # y_i = r + gamma (z_(i) - alpha ln pi(a' | s')), (B, K M - dropped)
    values = soft_values(atoms, following.log_prob[:, None], nets.temperature())
    target = bootstrapped(batch.rewards[:, None], batch.discounts[:, None], values)
    predicted = nets.critics(batch.observations, batch.actions)
    means = mean_value(predicted)
    loss, grad_atoms = quantile_huber_loss(predicted, target, batch.weights)
    nets.critics.descend(grad_atoms)
    return CriticLosses(loss, torch.stack([loss, means.mean()]), target.mean(dim=-1) - means)


def mean_value(atoms: Tensor) -> Tensor:
    """The mean of all atoms of all critics, ``(B,)`` of ``(K, B, M)``."""
    return atoms.mean(dim=(0, 2))


def improve_policy_by_means(nets: SoftNets, batch: TransitionBatch, noise: Tensor) -> PolicyLosses:
    """A step of the policy down ``mean(alpha ln pi(a | s) - mean of all atoms)`` (Kuznetsov 2020, equation 14).

    Args:
        nets: All networks; critics say atoms.
        batch: Transitions, of which the observations count.
        noise: Standard normal numbers for the actions, ``(B, act_dim)``.
    """
    sample = nets.sample(batch.observations, noise)
    atoms = nets.critics(batch.observations, sample.actions)
    # dL/dz = -1 / (K M B), of every atom alike; from there to the actions.
    grad_actions = nets.critics.pull_actions(torch.full_like(atoms, -1.0 / atoms.numel()))
    return descend_entropy(nets, sample, noise, mean_value(atoms), grad_actions)


@final
class TQC(OffPolicyRLAlgorithm):
    """Truncated quantile critics (Kuznetsov et al. 2020, arXiv:2005.04269), with the policy and temperature of SAC.

    Each critic says atoms, whose distribution is that of the return. Targets are the atoms of all critics together
    without the largest, so that they say less too much. How many these are depends on the task: the paper leaves out 2
    of 25 in most, 5 in Hopper, none in HalfCheetah; its critics have three layers of 512.

    Args:
        env_spec: Environment or spec; actions are a Box.
        policy: What is learned; ``None`` means a ``TanhGaussianMLPPolicy``.
        qf: ``Critics`` of ``num_critics`` with ``num_atoms``; ``None`` means such of two layers of 256.
        replay_buffer: See ``OffPolicyRLAlgorithm``; ``None`` means a ``ReplayBuffer`` of ``replay_size`` steps.
        exploration_policy: What acts in training; ``None`` means the policy itself.
        replay_size: Steps that the replay buffer keeps.
        num_critics: Number of critics.
        num_atoms: Number of atoms of each.
        dropped_atoms: Atoms for each critic that are left out of targets, the largest of all.
        target_entropy: The entropy that is aimed at, of actions in [-1, 1]; null means minus the entries of an action.
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
        ShapeError: Critics say another number of atoms.
        TypeError: Actions are no Box, or a network is of another kind.
        ValueError: ``dropped_atoms`` leaves nothing, or another argument is out of range.
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
        num_critics: int = 5,
        num_atoms: int = 25,
        dropped_atoms: int = 2,
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
        spec = require_box(env_spec, "TQC", "sac (DiscreteSAC), dqn and ppo learn choices")
        seed = fresh_seed() if seed is None else int(seed)
        count, dropped = check_whole("num_critics", num_critics), check_whole("dropped_atoms", dropped_atoms, 0)
        if dropped >= check_whole("num_atoms", num_atoms):
            raise ValueError(f"dropped_atoms must be less than num_atoms={num_atoms}, got {dropped}")
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
        generator = torch_generator(derive_seed("quantile networks", seed))
        critics_see, policy_sees = encoders_of(spec, qf, generator)
        if policy is None:
            policy = TanhGaussianMLPPolicy(spec, (256, 256), init="fan_in", encoder=policy_sees, generator=generator)
        check_policy(policy, TanhGaussianMLPPolicy, spec)
        if qf is None:
            qf = Critics(spec, count, num_atoms=num_atoms, init="fan_in", encoder=critics_see, generator=generator)
        critics = critics_of(qf, spec, count, generator, num_atoms)
        explorer = BoxExploration(policy if exploration_policy is None else exploration_policy, uniform_steps)
        objective = SoftObjective(
            partial(fit_truncated_critics, num_dropped=count * dropped), improve_policy_by_means, 2, f"{dropped=}"
        )
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
