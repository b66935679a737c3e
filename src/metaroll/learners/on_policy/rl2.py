"""RL2: fast adaptation by the hidden state of a recurrent policy, trained with PPO on complete trials."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from metaroll.config import config_of
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import option_text
from metaroll.learners.base import EpochLearner, MetaRLAlgorithm, Progress
from metaroll.learners.on_policy.configs import RL2Config
from metaroll.learners.on_policy.ppo import PPO
from metaroll.policies.gru import RecurrentCritic
from metaroll.policies.trial_memory import TrialMemoryPolicy
from metaroll.processing.trial_rows import entries_told, episode_ends, remember_trials, trial_metrics
from metaroll.state import Stateful, fingerprint_of, parts
from metaroll.types import Runner

__all__ = ["RL2"]


class RL2(Stateful, EpochLearner, MetaRLAlgorithm):
    """RL^2 (Duan et al. 2016, arXiv:1611.02779): a recurrent policy that identifies the task in its hidden state.

    It is trained with PPO on trials (``TrialWrapper``): several episodes of one task form one rollout, and observations
    include the last action, reward and end of episode. Hidden state and return continue across the ends of episodes:
    an episode is worth its own return, and the returns that it enables later. Policy and critic are trained by
    backpropagation through complete trials.

    Adaptation runs the recurrent network over the given episodes, as if they were the first of a trial; the adapted
    policy starts from the resulting hidden state, which depends on these episodes alone, not on the policy passed with
    them. With adaptation after every episode from all episodes so far (``posterior_sampling`` of a ``MetaEvaluator``),
    the policy acts as it does in a trial.

    Args:
        learner: A PPO on the spec of a ``TrialWrapper``, with a recurrent policy (``GRUGaussianPolicy``,
            ``CategoricalGRUPolicy``) and a recurrent critic (``GRUCritic``): the value depends on what the trial has
            revealed so far. Its ``max_path_length`` is the length of a trial. No value is bootstrapped after the last
            episode of a trial: ``bootstrap_truncated=False``.
        config: Settings; ``None`` means the defaults.
        evaluation_env: Constructor of the evaluation environment, where one episode is a rollout; ``None`` means the
            training environment.
        train_tasks: Training tasks, which must not be tested; ``None`` for an infinite set.
        options: Settings by name; they override those of ``config``.

    Attributes:
        learner: The PPO that is updated; policy, critic, spaces, limits and evaluations come from it.
        policy: The policy in trials; its hidden state starts at zero.
        critic: The value function.
        env_spec: Spaces of the environment, a ``TrialWrapper``.
        discount: Discount factor of the learner.
        max_path_length: Maximum number of steps of a trial.
        evaluate_every: Evaluate every n epochs; 0 means never.
        test_env_sampler: Task sampler of the evaluations.

    Raises:
        TypeError: ``learner`` is not a PPO, or its policy or critic is not recurrent.
        ValueError: Its environment has no trials, or it bootstraps after the end of a trial.
    """

    adapts_again = True
    state_parts = parts("learner")

    def __init__(
        self,
        learner: PPO,
        config: RL2Config | None = None,
        *,
        evaluation_env: Any = None,
        train_tasks: Sequence[Any] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(learner, PPO):
            raise TypeError(f"learner must be a PPO, got {type(learner).__name__}")
        _check_memories(learner)
        if learner.bootstrap_truncated:
            raise ValueError(
                "bootstrap_truncated of the learner must be False, got True: nothing follows the last episode of a "
                f"trial; {option_text('bootstrap_truncated', False)}"
            )
        self.num_told = entries_told(learner.env_spec)
        """Last entries of an observation: last action, reward, and whether an episode has ended."""
        self.learner = learner
        self.policy, self.critic, self.env_spec = learner.policy, learner.critic, learner.env_spec
        self.discount, self.max_path_length = learner.discount, learner.max_path_length
        self.evaluate_every, self.test_env_sampler = learner.evaluate_every, learner.test_env_sampler
        self.evaluation_env, self.train_tasks = evaluation_env, train_tasks
        self.config = config_of(RL2Config, config, options, type(self))

    @property
    def seed(self) -> int:
        """Seed of the learner."""
        return self.learner.seed

    # -- training ------------------------------------------------------------------------------------------------------

    def collect(self, runner: Runner) -> Rollouts:
        """The trials of one epoch."""
        return self.learner.collect(runner, self.config.trials_per_epoch)

    def update(self, rollouts: Sequence[StepSequence], progress: Progress | None = None) -> dict[str, float]:
        """Improve policy and critic with trials of the current policy.

        Returns:
            Metrics of the learner (``return`` is that of a complete trial), and the average returns of the first and
            the last episode of a trial, ``return_first`` and ``return_last``.
        """
        if not rollouts:
            raise ValueError("rollouts must hold at least one trial, got none")
        trials = Rollouts.of(rollouts)
        cut = None
        if not self.config.across_episodes:
            cut = episode_ends(trials)
            cut[trials.bounds[1:] - 1] = False  # the learner handles the end of a trial
        return {**self.learner.update(trials, progress, returns_end=cut), **trial_metrics(trials)}

    def to(self, device: str | torch.device | None = None) -> None:
        """Move the networks and the state of the optimizer to ``device`` (``None``: the CPU)."""
        self.learner.to(device)

    # -- adapting ------------------------------------------------------------------------------------------------------

    def get_exploration_policy(self) -> TrialMemoryPolicy:
        """A copy of the policy with a zero hidden state."""
        return TrialMemoryPolicy(copy.deepcopy(self.learner.policy), self.num_told)

    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> TrialMemoryPolicy:
        """The policy with the hidden state after all trajectories, in order.

        Args:
            exploration_policy: From ``get_exploration_policy()``, or from this method. It is consumed.
            exploration_trajectories: ``TrajectoryBatch``, ``StepSequence`` or a sequence of them, all of one task:
                episodes (or whole trials) of a ``TrialWrapper``, oldest first.
        """
        return self.adapt_policies([exploration_policy], [exploration_trajectories])[0]

    def adapt_policies(self, policies: Sequence[Any], batches: Sequence[Any]) -> list[TrialMemoryPolicy]:
        """See ``MetaRLAlgorithm``: policies with the same weights are run as one batch, step by step."""
        return remember_trials(policies, batches)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        """Learner and settings as a short text, which a snapshot must match."""
        own = (self.config.trials_per_epoch, self.config.across_episodes)
        return fingerprint_of(self, f"{self.learner.fingerprint()} {own!r}")

    @property
    def arithmetic(self) -> int:
        """``arithmetic`` of the learner."""
        return self.learner.arithmetic


def _check_memories(learner: PPO) -> None:
    if not learner.policy.info.recurrent:
        raise TypeError(
            f"policy of the learner must be recurrent (GRUGaussianPolicy, CategoricalGRUPolicy), got "
            f"{type(learner.policy.policy).__name__}"
        )
    critic = learner.critic
    if not isinstance(critic, RecurrentCritic):
        raise TypeError(
            f"critic of the learner must be recurrent, such as GRUCritic(env_spec.obs_dim): the value of a trial "
            f"depends on what it has revealed so far; got {type(critic).__name__}"
        )
