"""RL2: fast adaptation by the memory of a recurrent policy, trained by PPO on whole trials."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box

from metaroll.config import config_of
from metaroll.data.rollouts import Rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ShapeError, option_text
from metaroll.learners.base import MetaRLAlgorithm
from metaroll.learners.on_policy.configs import RL2Config
from metaroll.learners.on_policy.ppo import PPO
from metaroll.learners.runner import Runner
from metaroll.learners.snapshots import fingerprint_of
from metaroll.learners.training import EpochLearner, Progress
from metaroll.policies.gru import RecurrentCritic
from metaroll.policies.trial_memory import TrialMemoryPolicy
from metaroll.processing.trial_rows import trial_rows
from metaroll.state import Stateful, parts
from metaroll.types import EnvSpec

__all__ = ["RL2"]

_MORE = 2
"""Entries of a trial's observation beside the last action: reward and ending."""


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
        self.num_told = _entries_told(learner.env_spec)
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
        ends = _episode_ends(trials)
        cut = None
        if not self.config.across_episodes:
            cut = ends.copy()
            cut[trials.bounds[1:] - 1] = False  # the end of a trial is the learner's to judge
        return {**self.learner.update(trials, progress, returns_end=cut), **_episode_metrics(trials, ends)}

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
        for policy in policies:
            if not isinstance(policy, TrialMemoryPolicy):
                raise TypeError(
                    f"exploration_policy must come from get_exploration_policy(), got {type(policy).__name__}"
                )
        seen = [trial_rows(batch, self.num_told) for batch in batches]
        for rows, _ in seen:
            if rows.shape[1] != self.env_spec.obs_dim:
                raise ShapeError(
                    f"exploration_trajectories must have observations of {self.env_spec.obs_dim} numbers, those of a "
                    f"TrialWrapper, got {rows.shape[1]}"
                )
        alike: dict[bytes, list[int]] = {}
        for i, policy in enumerate(policies):
            alike.setdefault(policy.acting_parameters().tobytes(), []).append(i)
        for members in alike.values():
            states = _memories(policies[members[0]].policy, [seen[i][0] for i in members])
            for place, i in enumerate(members):
                policies[i].remember({name: rows[place] for name, rows in states.items()}, seen[i][1])
        return list(policies)

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


def _entries_told(env_spec: EnvSpec) -> int:
    """Entries of an observation that a trial adds: those of an action, reward and ending."""
    space, count = env_spec.observation_space, env_spec.act_dim + _MORE
    if isinstance(space, Box) and len(space.shape) == 1 and env_spec.obs_dim > count:
        reward, ended = (space.low[-2], space.high[-2]), (space.low[-1], space.high[-1])
        if np.isinf(reward).all() and ended == (0.0, 1.0):
            return count
    raise ValueError(
        f"env_spec of the learner must be that of a trial, EnvSpec.from_env(TrialWrapper(env, episodes_per_trial)), "
        f"whose observations end with the last action, reward and ending, got {space}"
    )


def _episode_ends(trials: Rollouts) -> np.ndarray:
    """Bool ``(T,)``: steps after which an observation says that an episode has ended, and the last one of a trial."""
    trials.require_final_observations()
    bounds = trials.bounds
    rows = np.asarray(trials.column("observations"))
    is_first = np.zeros(len(rows), dtype=bool)
    is_first[bounds[:-1] + np.arange(len(trials))] = True
    ends = rows[~is_first, -1] > 0.5
    ends[bounds[1:] - 1] = True
    return ends


def _episode_metrics(trials: Rollouts, ends: np.ndarray) -> dict[str, float]:
    """Average returns of the first and the last episode of each trial, and how many there are in one."""
    last = np.flatnonzero(ends)
    returns = np.add.reduceat(np.asarray(trials.rewards, dtype=np.float64), np.append(0, last[:-1] + 1))
    of_trial = np.searchsorted(trials.bounds, last, side="right") - 1
    firsts = np.flatnonzero(np.diff(of_trial, prepend=-1))
    lasts = np.append(firsts[1:], len(last)) - 1
    return {
        "return_first": float(returns[firsts].mean()),
        "return_last": float(returns[lasts].mean()),
        "episodes_per_trial": len(last) / len(trials),
    }


def _memories(policy: Any, sequences: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of state ``(N, ...)`` after N sequences ``(L, D)``, in each of which ``policy`` began with no memory."""
    count, lengths = len(sequences), np.array([len(rows) for rows in sequences])
    padded = np.zeros((int(lengths.max()), count, sequences[0].shape[1]), dtype=sequences[0].dtype)
    for i, rows in enumerate(sequences):
        padded[: len(rows), i] = rows
    state = policy.initial_state([{}] * count, [np.random.default_rng(0)] * count)
    noise = np.zeros((count, policy.info.noise_dim), dtype=np.float32)
    for t, obs in enumerate(padded):
        _, following, _ = policy.act(obs, state, noise, True)
        goes_on = t < lengths
        state = {
            name: np.where(goes_on.reshape(-1, *[1] * (rows.ndim - 1)), rows, state[name])
            for name, rows in following.items()
        }
    return state
