"""TQC: SAC with distributional critics, truncated by dropping their largest atoms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, final

import torch
from torch import Tensor

from metaroll import EnvSpec
from metaroll.configs import OffPolicyConfig, SACConfig
from metaroll.plugins import (
    API,
    BoxExploration,
    BuildOptions,
    Count,
    CriticLosses,
    Made,
    Networks,
    OffPolicyLearner,
    PolicyLosses,
    SoftNets,
    SoftObjective,
    SoftTrainer,
    TransitionBatch,
    Whole,
    actor_and_critics,
    bootstrapped,
    check_policy,
    critics_of,
    derive_seed,
    descend_entropy,
    encoders_of,
    off_policy_row,
    quantile_huber_loss,
    require_box,
    smallest_atoms,
    soft_settings,
    soft_values,
    torch_generator,
)
from metaroll.policies import Critics, TanhGaussianMLPPolicy

__all__ = ["ROW", "TQC", "TQCConfig", "fit_truncated_critics", "improve_policy_by_means"]


@dataclass(frozen=True, kw_only=True)
class TQCConfig(SACConfig):
    """Settings of ``TQC``."""

    num_critics: Annotated[Whole, "Number of critics."] = 5
    num_atoms: Annotated[Whole, "Number of atoms per critic."] = 25
    dropped_atoms: Annotated[Count, "Atoms per critic to drop from targets: the largest of the pooled atoms."] = 2

    def check(self) -> None:
        super().check()
        if self.dropped_atoms >= self.num_atoms:
            raise self.wrong("dropped_atoms", f"be less than {self.shown('num_atoms')}")


def fit_truncated_critics(nets: SoftNets, batch: TransitionBatch, noise: Tensor, num_dropped: int) -> CriticLosses:
    """One step of the critics down the quantile loss of Kuznetsov et al. 2020 (arXiv:2005.04269, equations 11 to 13).

    Args:
        nets: All networks; critics return atoms.
        batch: Transitions.
        noise: Standard normal noise for the next actions, ``(B, act_dim)``.
        num_dropped: Number of atoms to drop, of all critics together.
    """
    # a' ~ pi(. | s'), (B, act_dim); the smallest target atoms z_(i)(s', a'), (K, B, M) -> (B, K M - dropped)
    following = nets.sample(batch.next_observations, noise)
    atoms = smallest_atoms(nets.target_critics(batch.next_observations, following.actions), num_dropped)
    # y_i = r + gamma (z_(i) - alpha ln pi(a' | s')), (B, K M - dropped) (equation 11)
    values = soft_values(atoms, following.log_prob[:, None], nets.temperature())
    target = bootstrapped(batch.rewards[:, None], batch.discounts[:, None], values)
    # theta_km(s, a), (K, B, M), and their mean, (B,)
    predicted = nets.critics(batch.observations, batch.actions)
    means = mean_value(predicted)
    # Quantile Huber loss between theta and y (equations 12 and 13), its gradient (K, B, M), and Adam on the critics
    loss, grad_atoms = quantile_huber_loss(predicted, target, batch.weights)
    nets.critics.descend(grad_atoms)
    return CriticLosses(loss, torch.stack([loss, means.mean()]), target.mean(dim=-1) - means)


def mean_value(atoms: Tensor) -> Tensor:
    """The mean over all atoms of all critics, ``(K, B, M)`` -> ``(B,)``."""
    return atoms.mean(dim=(0, 2))


def improve_policy_by_means(nets: SoftNets, batch: TransitionBatch, noise: Tensor) -> PolicyLosses:
    """One step of the policy down ``mean(alpha ln pi(a | s) - mean of all atoms)`` (Kuznetsov 2020, equation 14).

    Args:
        nets: All networks; critics return atoms.
        batch: Transitions; only the observations are used.
        noise: Standard normal noise for the actions, ``(B, act_dim)``.
    """
    # a ~ pi(. | s), (B, act_dim), and the atoms z_km(s, a), (K, B, M)
    sample = nets.sample(batch.observations, noise)
    atoms = nets.critics(batch.observations, sample.actions)
    # dL/dz = -1 / (K M B) for every atom; the chain rule gives dL/da, (B, act_dim).
    grad_actions = nets.critics.pull_actions(torch.full_like(atoms, -1.0 / atoms.numel()))
    return descend_entropy(nets, sample, noise, mean_value(atoms), grad_actions)


@final
class TQC(OffPolicyLearner[TQCConfig]):
    """Truncated quantile critics (Kuznetsov et al. 2020, arXiv:2005.04269), with the policy and temperature of SAC.

    Each critic returns atoms, which represent the distribution of the return. Targets pool the atoms of all critics and
    drop the largest, which reduces overestimation. Their number depends on the task: the paper drops 2 of 25 in most, 5
    in Hopper, none in HalfCheetah; its critics have three layers of 512.

    Arguments are those of ``OffPolicyLearner``, for Box actions. ``policy`` is a ``TanhGaussianMLPPolicy``, ``qf``
    ``Critics`` of ``num_critics`` with ``num_atoms``. Defaults have two hidden layers of 256. The policy itself is the
    behavior policy.
    """

    config_class: ClassVar[type[OffPolicyConfig]] = TQCConfig

    def make(self, policy: Any, qf: Any, exploration_policy: Any) -> Made:
        """See ``OffPolicyLearner``.

        Raises:
            ShapeError: The critics have a different number of atoms.
        """
        spec = require_box(self.env_spec, "TQC", "sac (DiscreteSAC), dqn and ppo learn choices")
        config, count, num_atoms = self.config, self.config.num_critics, self.config.num_atoms
        generator = torch_generator(derive_seed("quantile networks", self.seed))
        critics_see, policy_sees = encoders_of(spec, qf, generator)
        if policy is None:
            policy = TanhGaussianMLPPolicy(spec, (256, 256), init="fan_in", encoder=policy_sees, generator=generator)
        check_policy(policy, TanhGaussianMLPPolicy, spec)
        if qf is None:
            qf = Critics(spec, count, num_atoms=num_atoms, init="fan_in", encoder=critics_see, generator=generator)
        critics = critics_of(qf, spec, count, generator, num_atoms)
        explorer = BoxExploration(policy if exploration_policy is None else exploration_policy, config.random_steps)
        dropped = config.dropped_atoms
        objective = SoftObjective(
            partial(fit_truncated_critics, num_dropped=count * dropped), improve_policy_by_means, 2, f"{dropped=}"
        )
        settings = soft_settings(config, -float(spec.act_dim))
        trainer = SoftTrainer(policy, critics, explorer, settings, objective, self.seed, self.device)
        return Made(policy, critics, explorer.policy, trainer, config.weight_exponent)


def networks(spec: EnvSpec, given: BuildOptions) -> Networks:
    """Policy and critics from the options."""
    values = given.values
    return actor_and_critics(TanhGaussianMLPPolicy, values["num_critics"], spec, given, values["num_atoms"])


ROW = off_policy_row("tqc", TQC, networks, api=API)
