"""RL2: fast adaptation by the memory of a recurrent policy, trained by PPO on whole trials."""

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
    """RL^2 (Duan et al. 2016, arXiv:1611.02779): a policy whose memory learns in a task what the task is.

    It is trained by PPO on trials (``TrialWrapper``): several episodes of one task are one rollout, and an observation
    tells the last action, reward and ending, too. The memory goes over the ends of episodes, and so does the return:
    an episode is worth what it earns, and what it lets the later ones earn. Policy and critic are trained by
    backpropagation through whole trials.

    To adapt is to remember: the memory is run over the given episodes, as if they had been the first ones of a trial,
    and the adapted policy begins from there. What it remembers follows from these episodes alone, whichever
    policy is given with them. Adapt after every episode from all of them (``posterior_sampling`` of a
    ``MetaEvaluator``), and the policy acts as it does in a trial.

    Args:
        learner: A PPO on the spec of a ``TrialWrapper``, with a recurrent policy (``GRUGaussianPolicy``,
            ``CategoricalGRUPolicy``) and a recurrent critic (``GRUCritic``): one that sees single steps cannot tell
            what has been found out. Its ``max_path_length`` is the length of a trial. A trial ends with its last
            episode, after which nothing counts: ``bootstrap_truncated=False``.
        config: Settings; ``None`` means the defaults.
        evaluation_env: What makes the environment of evaluations, in which one episode is a rollout; ``None`` means
            that which it is trained in.
        train_tasks: Tasks that it is trained in, which must not be tested; ``None`` where they are drawn without end.
        options: Settings by name, in place of those of ``config``.

    Attributes:
        learner: What is updated. Policy, critic, spaces, limits and evaluations are its own.
        policy: What acts in trials, beginning with an empty memory.
        critic: The value function.
        env_spec: Spaces of the environment, a ``TrialWrapper``.
        discount: Discount factor of the learner.
        max_path_length: Maximum number of steps of a trial.
        evaluate_every: Evaluate after every so many epochs; 0 means never.
        test_env_sampler: Task sampler of the evaluations.

    Raises:
        TypeError: ``learner`` is no PPO, or its policy or critic remembers nothing.
        ValueError: Its environment is no trial, or it counts what would follow a trial.
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
        """Improve policy and critic with trials of the present policy; what it took and gave.

        Returns:
            What the learner tells (``return`` is that of a whole trial), and the average returns of the first and the
            last episode of a trial, ``return_first`` and ``return_last``.
        """
        if not rollouts:
            raise ValueError("rollouts must hold at least one trial, got none")
        trials = Rollouts.of(rollouts)
        cut = None
        if not self.config.across_episodes:
            cut = episode_ends(trials)
            cut[trials.bounds[1:] - 1] = False  # the end of a trial is the learner's to judge
        return {**self.learner.update(trials, progress, returns_end=cut), **trial_metrics(trials)}

    def to(self, device: str | torch.device | None = None) -> None:
        """Move the networks and the state of the optimizer to ``device`` (``None``: the CPU)."""
        self.learner.to(device)

    # -- adapting ------------------------------------------------------------------------------------------------------

    def get_exploration_policy(self) -> TrialMemoryPolicy:
        """A copy of the policy that remembers nothing yet."""
        return TrialMemoryPolicy(copy.deepcopy(self.learner.policy), self.num_told)

    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> TrialMemoryPolicy:
        """The policy with the memory of the trajectories, which it ran through one after the other.

        Args:
            exploration_policy: From ``get_exploration_policy()``, or from here. The caller gives it up.
            exploration_trajectories: ``TrajectoryBatch``, ``StepSequence`` or a sequence of them, all of one task:
                episodes (or whole trials) of a ``TrialWrapper``, oldest first.
        """
        return self.adapt_policies([exploration_policy], [exploration_trajectories])[0]

    def adapt_policies(self, policies: Sequence[Any], batches: Sequence[Any]) -> list[TrialMemoryPolicy]:
        """See ``MetaRLAlgorithm``: policies with the same weights are run together, step by step as they act."""
        return remember_trials(policies, batches)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        """Learner and own numbers as a short text; a snapshot fits an RL2 with the same one."""
        own = (self.config.trials_per_epoch, self.config.across_episodes)
        return fingerprint_of(self, f"{self.learner.fingerprint()} {own!r}")

    @property
    def arithmetic(self) -> int:
        """That of the learner."""
        return self.learner.arithmetic


def _check_memories(learner: PPO) -> None:
    if not learner.policy.info.recurrent:
        raise TypeError(
            f"policy of the learner must remember (GRUGaussianPolicy, CategoricalGRUPolicy), got "
            f"{type(learner.policy.policy).__name__}"
        )
    critic = learner.critic
    if not isinstance(critic, RecurrentCritic):
        raise TypeError(
            f"critic of the learner must remember, as GRUCritic(env_spec.obs_dim) does: what a trial is worth depends "
            f"on what has been found out in it; got {type(critic).__name__}"
        )
