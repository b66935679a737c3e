"""EPOpt: learns from the worst rollouts of a randomized ensemble."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from metaroll.checks import check_number, check_whole
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import SnapshotError
from metaroll.functional.cvar import check_epsilon, full_set_metrics, worst_indices
from metaroll.learners.base import RLAlgorithm
from metaroll.learners.on_policy_training import train_epochs
from metaroll.learners.ppo import PPO
from metaroll.policies.normalized import NormalizedPolicy
from metaroll.types import EnvSpec, Runner

__all__ = ["EPOpt"]


class EPOpt(RLAlgorithm):
    """Maximizes the mean of the worst share of returns, their conditional value at risk, with PPO.

    Rajeswaran et al. 2017, arXiv:1610.01283. Every epoch collects ``rollouts_per_epoch``
    rollouts, each under constants of its own: from the ``task_sampler`` of the learner (a ``DomainRandomizer``, say),
    or from an environment that draws them itself (``DomainRandWrapperLive``). The learner is updated with the worst
    of them, as ``CVaRSampler`` selects them. In the first epochs it is with all of them, since the worst rollouts of a
    policy that can do nothing yet teach little.

    The log tells ``return`` and ``episode_length`` of the rollouts that are learned from, and of all together what
    ``CVaRSampler`` tells: ``full avg rollout len``, ``full avg return``, ``full median return``, ``full std return``.

    The same by hand, with the samplers::

        env = DomainRandWrapperLive(PendulumEnv(), default_randomizer("pend"))
        ppo = PPO(env, GaussianMLPPolicy(env.env_spec))
        inner = ParallelRolloutSampler(env, ppo.policy, num_workers=2, min_rollouts=10)
        with CVaRSampler(inner, epsilon=1.0, min_rollouts=10) as sampler:
            for epoch in range(150):
                sampler.epsilon = 1.0 if epoch < 100 else 0.1
                metrics = ppo.update(sampler.sample())
                sampler.reinit(policy=ppo.policy)

    Args:
        learner: What is updated; it belongs to EPOpt from then on. Its ``steps_per_epoch`` and ``tasks_per_epoch`` do
            not count here.
        epsilon: Share of the rollouts that is learned from, in (0, 1].
        warm_up_epochs: Number of first epochs that learn from all rollouts.
        rollouts_per_epoch: Number of rollouts that are collected per epoch.
        return_discount: Discount of the returns by which rollouts are compared, in [0, 1].
    """

    def __init__(
        self,
        learner: PPO,
        *,
        epsilon: float = 0.1,
        warm_up_epochs: int = 100,
        rollouts_per_epoch: int = 100,
        return_discount: float = 1.0,
    ) -> None:
        if not isinstance(learner, PPO):
            raise TypeError(f"learner must be a PPO, got {type(learner).__name__}")
        check_whole("warm_up_epochs", warm_up_epochs, 0)
        check_whole("rollouts_per_epoch", rollouts_per_epoch, 1)
        check_number("return_discount", return_discount, 0.0, 1.0)
        self._learner = learner
        self._epsilon = check_epsilon(epsilon)
        self._warm_up_epochs = int(warm_up_epochs)
        self._rollouts_per_epoch = int(rollouts_per_epoch)
        self._return_discount = float(return_discount)
        self._num_epochs = 0

    @property
    def learner(self) -> PPO:
        """What is updated."""
        return self._learner

    @property
    def policy(self) -> NormalizedPolicy:
        """What acts."""
        return self._learner.policy

    @property
    def critic(self) -> nn.Module:
        """The value function: of the rollouts that are learned from."""
        return self._learner.critic

    @property
    def env_spec(self) -> EnvSpec:
        """Spaces of the environment."""
        return self._learner.env_spec

    @property
    def discount(self) -> float:
        """Discount factor of the learner."""
        return self._learner.discount

    @property
    def max_path_length(self) -> int:
        """Most steps of a rollout."""
        return self._learner.max_path_length

    @property
    def gradients(self) -> str:
        """How the learner computes gradients."""
        return self._learner.gradients

    @property
    def seed(self) -> int:
        """Seed of the learner."""
        return self._learner.seed

    @property
    def evaluate_every(self) -> int:
        """Evaluate after every so many epochs; 0 means never."""
        return self._learner.evaluate_every

    @property
    def test_env_sampler(self) -> Any:
        """Task sampler of the evaluations; ``None`` means the environment as it is."""
        return self._learner.test_env_sampler

    @property
    def epsilon(self) -> float:
        """Share of the rollouts that the next update learns from: 1 in the first epochs."""
        return 1.0 if self._num_epochs < self._warm_up_epochs else self._epsilon

    def train(self, runner: Runner) -> float | None:
        """Collect, select, update and evaluate, for each epoch of ``runner``.

        Returns:
            Average return of the last evaluation; of the last rollouts that were learned from where there was none.
        """
        return train_epochs(self, runner)

    def collect(self, runner: Runner) -> list[StepSequence]:
        """All rollouts of one epoch."""
        return self._learner.collect(runner, self._rollouts_per_epoch)

    def update(self, rollouts: Sequence[StepSequence]) -> dict[str, float]:
        """Improve the policy with the worst share ``epsilon`` of ``rollouts`` of the present policy.

        Returns:
            What the learner tells of those, what there is to tell of all, and ``epsilon``.
        """
        if not rollouts:
            raise ValueError("rollouts must hold at least one rollout, got none")
        epsilon = self.epsilon
        returns = np.array([float(rollout.discounted_return(self._return_discount)) for rollout in rollouts])
        # With all of them in their own order, the first epochs are those of the learner alone.
        kept = list(rollouts) if epsilon == 1.0 else [rollouts[i] for i in worst_indices(returns, epsilon)]
        metrics = self._learner.update(kept)
        self._num_epochs += 1
        undiscounted = [float(rollout.undiscounted_return()) for rollout in rollouts]
        full = full_set_metrics(undiscounted, [len(rollout) for rollout in rollouts])
        return {**metrics, **full, "epsilon": epsilon}

    def to(self, device: str | torch.device | None = None) -> None:
        """Move the networks and the state of the optimizer to ``device`` (``None``: the CPU)."""
        self._learner.to(device)

    def fingerprint(self) -> str:
        """Learner and own numbers as a short text; a snapshot fits an EPOpt with the same one."""
        own = (self._epsilon, self._warm_up_epochs, self._rollouts_per_epoch, self._return_discount)
        text = f"{self._learner.fingerprint()} {own!r}"
        return f"{type(self).__name__}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def state_dict(self) -> dict[str, Any]:
        """State of the learner, and the number of updates."""
        return {"learner": self._learner.state_dict(), "epochs": self._num_epochs}

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``state_dict``, bit for bit."""
        missing = {"learner", "epochs"} - set(tree)
        if missing:
            raise SnapshotError(f"the saved state of EPOpt lacks {sorted(missing)}; it was made by another algorithm")
        num_epochs = int(tree["epochs"])
        self._learner.load_state_dict(tree["learner"])  # all of it, or nothing
        self._num_epochs = num_epochs
