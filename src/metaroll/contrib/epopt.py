"""EPOpt: learns from the worst rollouts of a randomized ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch

from metaroll import PPO, EnvUpdate, StepSequence
from metaroll.configs import PPOConfig
from metaroll.plugins import (
    API,
    Algorithm,
    Bounds,
    BuildOptions,
    Config,
    Count,
    DataError,
    Domains,
    EpochLearner,
    PolicyNetworks,
    Progress,
    Rollouts,
    Runner,
    Share,
    Stateful,
    Values,
    Was,
    Whole,
    Work,
    config_of,
    fingerprint_of,
    full_set_metrics,
    get_algorithm,
    option_text,
    parts,
    parts_of,
    worst_indices,
)
from metaroll.statistics import conditional_value_at_risk

__all__ = ["ROW", "EPOpt", "EPOptConfig"]


@dataclass(frozen=True, kw_only=True)
class EPOptConfig(Config):
    """Settings of ``EPOpt``, besides those of its PPO."""

    epsilon: Annotated[
        float, Bounds(0.0, 1.0, above_low=True), "Share of the rollouts to learn from: the worst ones, in (0, 1]."
    ] = 0.1
    warmup_epochs: Annotated[Count, Was("warm_up_epochs"), "Number of initial epochs that use all rollouts."] = 100
    rollouts_per_epoch: Annotated[Whole, "Number of rollouts per epoch."] = 100
    return_discount: Annotated[Share, "Discount of the returns that rank the rollouts, in [0, 1]."] = 1.0


class EPOpt(Stateful, EpochLearner):
    """Maximizes the mean of the worst epsilon-fraction of returns, their conditional value at risk, with PPO.

    Rajeswaran et al. 2017, arXiv:1610.01283. Every epoch collects ``rollouts_per_epoch`` rollouts, each with its own
    domain parameters: from the ``task_sampler`` of the learner (a ``DomainRandomizer``, for example), or from an
    environment that draws them itself (``DomainRandWrapperLive``). The learner is updated with the worst of them, as
    selected by ``CVaRSampler``. The first epochs use all of them, since the worst rollouts of an untrained policy teach
    little.

    The log has ``return`` and ``episode_length`` of the selected rollouts, and the metrics of ``CVaRSampler`` for all:
    ``full avg rollout len``, ``full avg return``, ``full median return``, ``full std return``.

    The equivalent with the samplers::

        env = DomainRandWrapperLive(PendulumEnv(), default_randomizer("pend"))
        ppo = PPO(env, policy=GaussianMLPPolicy(env.env_spec))
        inner = ParallelRolloutSampler(env, ppo.policy, num_workers=2, min_rollouts=10)
        with CVaRSampler(inner, epsilon=1.0, min_rollouts=10) as sampler:
            for epoch in range(150):
                sampler.epsilon = 1.0 if epoch < 100 else 0.1
                metrics = ppo.update(sampler.sample())
                sampler.reinit(policy=ppo.policy)

    Args:
        learner: The PPO to update, owned by EPOpt from then on. Its ``steps_per_epoch`` and ``tasks_per_epoch`` are not
            used.
        config: Settings; ``None`` means the defaults.
        options: Settings by name; they override those of ``config``.

    Attributes:
        learner: The PPO that is updated; policy, critic, spaces, limits and evaluations come from it.
        policy: The policy.
        critic: The value function, trained on the selected rollouts.
        env_spec: Spaces of the environment.
        discount: Discount factor of the learner.
        max_path_length: Maximum number of steps of a rollout.
        gradients: How the learner computes gradients.
        evaluate_every: Evaluate every n epochs; 0 means never.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
    """

    state_parts = parts("learner", epochs="_num_epochs")

    def __init__(self, learner: PPO, config: EPOptConfig | None = None, **options: Any) -> None:
        if not isinstance(learner, PPO):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may not check types
            raise TypeError(f"learner must be a PPO, got {type(learner).__name__}")
        self.learner = learner
        self.policy, self.critic, self.env_spec = learner.policy, learner.critic, learner.env_spec
        self.discount, self.max_path_length = learner.discount, learner.max_path_length
        self.evaluate_every, self.test_env_sampler = learner.evaluate_every, learner.test_env_sampler
        self.gradients = learner.gradients
        self.config = config_of(EPOptConfig, config, options, type(self))
        self._num_epochs = 0

    @property
    def seed(self) -> int:
        """Seed of the learner."""
        return self.learner.seed

    @property
    def epsilon(self) -> float:
        """Share of the rollouts for the next update: 1 in the first epochs."""
        return 1.0 if self._num_epochs < self.config.warmup_epochs else self.config.epsilon

    def collect(self, runner: Runner) -> Rollouts:
        """All rollouts of one epoch."""
        return self.learner.collect(runner, self.config.rollouts_per_epoch)

    def update(self, rollouts: Sequence[StepSequence], progress: Progress | None = None) -> dict[str, float]:
        """Improve the policy with the worst fraction ``epsilon`` of ``rollouts`` of the current policy.

        Returns:
            Metrics of the learner, metrics of all rollouts, and ``epsilon``.

        Raises:
            DataError: A reward is NaN or Inf; nothing was changed.
        """
        if not rollouts:
            raise ValueError("rollouts must hold at least one rollout, got none")
        batch, epsilon = Rollouts.of(rollouts), self.epsilon
        returns = batch.discounted_returns(self.config.return_discount)
        if not np.isfinite(returns).all():
            number = int(np.flatnonzero(~np.isfinite(returns))[0])
            raise DataError(f"rewards of rollout {number} hold NaN or Inf: they sum up to {returns[number]}")
        # The worst epsilon-percentile of returns (Rajeswaran et al. 2017, algorithm 1). With all rollouts in their
        # original order, the first epochs equal those of the learner alone.
        worst = batch if epsilon == 1.0 else batch.take(worst_indices(returns, epsilon))
        metrics = self.learner.update(worst, progress)
        self._num_epochs += 1
        full = full_set_metrics(batch.discounted_returns(1.0), batch.lengths)
        return {**metrics, **full, "epsilon": epsilon}

    def to(self, device: str | torch.device | None = None) -> None:
        """Move the networks and the state of the optimizer to ``device`` (``None``: the CPU)."""
        self.learner.to(device)

    def fingerprint(self) -> str:
        """Learner and settings as a short text, which a snapshot must match."""
        c = self.config
        own = (c.epsilon, c.warmup_epochs, c.rollouts_per_epoch, c.return_discount)
        return fingerprint_of(self, f"{self.learner.fingerprint()} {own!r}")

    @property
    def arithmetic(self) -> int:
        """``arithmetic`` of the learner."""
        return self.learner.arithmetic


def _as_ppo(values: Values) -> Values:
    """The options of the inner PPO, whose epochs have the steps of all rollouts, if their length is known."""
    max_steps = values["max_steps"]
    return {**values, "steps_per_epoch": None if max_steps is None else values["rollouts_per_epoch"] * max_steps}


def _build(given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> EPOpt:
    return EPOpt(get_algorithm("ppo").build(given, train, test), parts_of(EPOptConfig, given.values))


def _work(values: Values) -> Work:
    return replace(get_algorithm("ppo").work(_as_ppo(values)), at_most=True)


def _largest_batch(values: Values) -> int:
    return get_algorithm("ppo").largest_batch(_as_ppo(values))


def _amount(algo: EPOpt, values: Values) -> str:
    return f"{values['rollouts_per_epoch']} rollouts per epoch, gradients by {algo.gradients}"


def _notes(given: BuildOptions, epochs: int) -> list[str]:
    notes = get_algorithm("ppo").notes(replace(given, values=_as_ppo(given.values)), epochs)
    domains = parts_of(Domains, given.values)
    if domains.randomize == "none" and not domains.randomize_param and domains.num_test_tasks is None:
        notes.append(
            "nothing is randomized: all rollouts are of the nominal environment, and EPOpt learns from the unlucky "
            f"ones; name the parameters to randomize: {option_text('randomize_param', ['NAME=LOW:HIGH'])}"
        )
    return notes


def _cvar(returns: np.ndarray, values: Values) -> dict[str, Any]:
    epsilon = float(values["epsilon"])
    return {"return_cvar": conditional_value_at_risk(returns.ravel(), epsilon), "cvar_epsilon": epsilon}


ROW = Algorithm(
    name="epopt",
    api=API,
    configs=(EPOptConfig, PPOConfig, PolicyNetworks, Domains),
    learner=EPOpt,
    build=_build,
    work=_work,
    amount=_amount,
    filled=("steps_per_epoch", "tasks_per_epoch"),
    follows_epochs=("lr_decay_epochs",),
    largest_batch=_largest_batch,
    notes=_notes,
    summary_values=_cvar,
)
