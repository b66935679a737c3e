"""EPOpt: learns from the worst rollouts of a randomized ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from metaroll.config import config_of
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError
from metaroll.functional.cvar import full_set_metrics, worst_indices
from metaroll.learners.on_policy.configs import EPOptConfig
from metaroll.learners.on_policy.ppo import PPO
from metaroll.learners.runner import Runner
from metaroll.learners.snapshots import fingerprint_of
from metaroll.learners.training import EpochLearner, Progress
from metaroll.state import check_entries

__all__ = ["EPOpt"]


class EPOpt(EpochLearner):
    """Maximizes the mean of the worst epsilon-fraction of returns, their conditional value at risk, with PPO.

    Rajeswaran et al. 2017, arXiv:1610.01283. Every epoch collects ``rollouts_per_epoch``
    rollouts, each under constants of its own: from the ``task_sampler`` of the learner (a ``DomainRandomizer``, say),
    or from an environment that draws them itself (``DomainRandWrapperLive``). The learner is updated with the worst
    of them, as ``CVaRSampler`` selects them. In the first epochs it is with all of them, since the worst rollouts of a
    policy that can do nothing yet teach little.

    The log tells ``return`` and ``episode_length`` of the rollouts that are learned from, and of all together what
    ``CVaRSampler`` tells: ``full avg rollout len``, ``full avg return``, ``full median return``, ``full std return``.

    The same by hand, with the samplers::

        env = DomainRandWrapperLive(PendulumEnv(), default_randomizer("pend"))
        ppo = PPO(env, policy=GaussianMLPPolicy(env.env_spec))
        inner = ParallelRolloutSampler(env, ppo.policy, num_workers=2, min_rollouts=10)
        with CVaRSampler(inner, epsilon=1.0, min_rollouts=10) as sampler:
            for epoch in range(150):
                sampler.epsilon = 1.0 if epoch < 100 else 0.1
                metrics = ppo.update(sampler.sample())
                sampler.reinit(policy=ppo.policy)

    Args:
        learner: What is updated; it belongs to EPOpt from then on. Its ``steps_per_epoch`` and ``tasks_per_epoch`` do
            not count here.
        config: Settings; ``None`` means the defaults.
        options: Settings by name, in place of those of ``config``.

    Attributes:
        learner: What is updated. Policy, critic, spaces, limits and evaluations are its own.
        policy: What acts.
        critic: The value function: of the rollouts that are learned from.
        env_spec: Spaces of the environment.
        discount: Discount factor of the learner.
        max_path_length: Maximum number of steps of a rollout.
        gradients: How the learner computes gradients.
        evaluate_every: Evaluate after every so many epochs; 0 means never.
        test_env_sampler: Task sampler of the evaluations; ``None`` means the nominal environment.
    """

    def __init__(self, learner: PPO, config: EPOptConfig | None = None, **options: Any) -> None:
        if not isinstance(learner, PPO):
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
        """Share of the rollouts that the next update learns from: 1 in the first epochs."""
        return 1.0 if self._num_epochs < self.config.warmup_epochs else self.config.epsilon

    def collect(self, runner: Runner) -> Rollouts:
        """All rollouts of one epoch."""
        return self.learner.collect(runner, self.config.rollouts_per_epoch)

    def update(self, rollouts: Sequence[StepSequence], progress: Progress | None = None) -> dict[str, float]:
        """Improve the policy with the worst fraction ``epsilon`` of ``rollouts`` of the present policy.

        Returns:
            What the learner tells of those, what there is to tell of all, and ``epsilon``.

        Raises:
            DataError: A reward is NaN or Inf; nothing was learned.
        """
        if not rollouts:
            raise ValueError("rollouts must hold at least one rollout, got none")
        found, epsilon = Rollouts.of(rollouts), self.epsilon
        returns = found.discounted_returns(self.config.return_discount)
        if not np.isfinite(returns).all():
            number = int(np.flatnonzero(~np.isfinite(returns))[0])
            raise DataError(f"rewards of rollout {number} hold NaN or Inf: they sum up to {returns[number]}")
        # With all of them in their own order, the first epochs are those of the learner alone.
        kept = found if epsilon == 1.0 else found.take(worst_indices(returns, epsilon))
        metrics = self.learner.update(kept, progress)
        self._num_epochs += 1
        full = full_set_metrics(found.discounted_returns(1.0), found.lengths)
        return {**metrics, **full, "epsilon": epsilon}

    def to(self, device: str | torch.device | None = None) -> None:
        """Move the networks and the state of the optimizer to ``device`` (``None``: the CPU)."""
        self.learner.to(device)

    def fingerprint(self) -> str:
        """Learner and own numbers as a short text; a snapshot fits an EPOpt with the same one."""
        c = self.config
        own = (c.epsilon, c.warmup_epochs, c.rollouts_per_epoch, c.return_discount)
        return fingerprint_of(self, f"{self.learner.fingerprint()} {own!r}")

    @property
    def arithmetic(self) -> int:
        """That of the learner."""
        return self.learner.arithmetic

    def state_dict(self) -> dict[str, Any]:
        """State of the learner, and the number of updates."""
        return {"learner": self.learner.state_dict(), "epochs": self._num_epochs}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``state_dict``, bitwise identical."""
        check_entries("EPOpt", tree, ("learner", "epochs"))
        num_epochs = int(tree["epochs"])
        self.learner.load_state_dict(tree["learner"])  # all of it, or nothing
        self._num_epochs = num_epochs
