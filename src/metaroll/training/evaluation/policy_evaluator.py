"""Evaluation of a policy that does not adapt: the same episodes every time, without noise, in the environment or in
held-out variations of it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from metaroll.checks import check_whole
from metaroll.data.step_sequence import StepSequence
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.training.evaluation.engine_policy import use_policy
from metaroll.training.evaluation.evaluation_metrics import (
    Interval,
    episode_returns,
    intervals_of_means,
    log_performance,
)
from metaroll.training.evaluation.evaluator_state import EvaluatorState
from metaroll.training.evaluation.held_out_tasks import draw_held_out, refuse_overlap
from metaroll.types import EnvUpdate, RolloutPlan

__all__ = ["PolicyEvaluation", "PolicyEvaluator"]


@dataclass(frozen=True)
class PolicyEvaluation:
    """Returns of an evaluation.

    Attributes:
        returns: Undiscounted returns, shape ``(num_tasks, num_episodes)``; one row for the environment as it is.
        tasks: The tasks, in the order of ``returns``; ``None`` for the environment as it is.
        task_names: Their names.
        reward_key: The env_info that was summed; ``None`` means the reward.
        env_steps: Steps that the evaluation took.
        metrics: ``<prefix>/Average/<name>`` -> number, of all episodes (see ``log_performance``).
        prefix: First part of these names.
        rollouts: All episodes, task by task, where they were asked for.
    """

    returns: np.ndarray
    tasks: list[Any]
    task_names: list[str]
    reward_key: str | None = None
    env_steps: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict, repr=False)
    prefix: str = "Evaluation"
    rollouts: Sequence[Sequence[StepSequence]] | None = field(default=None, repr=False)

    @property
    def return_mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @cached_property
    def return_interval(self) -> Interval:
        """95 % bootstrap interval of ``return_mean``: over tasks, or over the episodes where there is one task."""
        several = len(self.returns) > 1
        samples = self.returns.mean(axis=1) if several else self.returns[0]
        low, high = intervals_of_means(samples[:, None])
        return Interval(float(low[0]), float(high[0]))

    @property
    def score(self) -> float:
        """The number that stands for the evaluation: ``return_mean``."""
        return self.return_mean

    @property
    def score_interval(self) -> Interval:
        """Interval of ``score``."""
        return self.return_interval

    def summary(self) -> dict[str, float]:
        """The numbers that a log keeps."""
        low, high = self.return_interval
        return {
            "return_mean": self.return_mean,
            "return_mean_ci_low": low,
            "return_mean_ci_high": high,
            "return_min": float(self.returns.min()),
            "return_max": float(self.returns.max()),
        }

    def per_task(self) -> list[tuple[str, dict[str, float]]]:
        """Name of each task, and its numbers; nothing for the environment as it is."""
        if len(self.returns) == 1 and self.tasks[0] is None:
            return []
        means = self.returns.mean(axis=1).tolist()
        return [(name, {"return_mean": mean}) for name, mean in zip(self.task_names, means, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "return_mean": self.return_mean,
            "return_interval": list(self.return_interval),
            "n_test_tasks": len(self.returns),
            "n_episodes": int(self.returns.shape[1]),
            "reward_key": self.reward_key,
            "env_steps": self.env_steps,
            "task_names": list(self.task_names),
            "returns": self.returns.tolist(),
        }


class PolicyEvaluator(EvaluatorState):
    """Measures the return of an algorithm's ``policy``.

    Every episode has a seed, which is the same at every evaluation, so that differences come from the policy.

    Args:
        env: Environment to use where no engine is given: as for ``RolloutEngine``.
        test_task_sampler: Sampler of held-out variations, drawn once; ``None`` means the environment as it is.
        max_path_length: Steps per episode at most; ``None`` means the algorithm's.
        num_episodes: Episodes per task.
        n_test_tasks: Number of tasks; ``None`` means all of the sampler's.
        prefix: First part of the names of metrics.
        seed: Seed of all episodes.
        deterministic: Act without noise.
        allow_overlap: Do not refuse test tasks that are training tasks.
        return_reward_key: Name of an env_info to sum instead of the reward.
    """

    def __init__(
        self,
        env: Any = None,
        *,
        test_task_sampler: TaskSampler | None = None,
        max_path_length: float | None = None,
        num_episodes: int = 20,
        n_test_tasks: int | None = None,
        prefix: str = "Evaluation",
        seed: int = 0,
        deterministic: bool = True,
        allow_overlap: bool = False,
        return_reward_key: str | None = None,
    ) -> None:
        check_whole("num_episodes", num_episodes, 1)
        if n_test_tasks is not None:
            check_whole("n_test_tasks", n_test_tasks, 1)
        self.env = env
        self.test_task_sampler = test_task_sampler
        self.max_path_length = max_path_length
        self.num_episodes = num_episodes
        self.n_test_tasks = n_test_tasks
        self.prefix = prefix
        self.seed = seed
        self.deterministic = deterministic
        self.allow_overlap = allow_overlap
        self.return_reward_key = return_reward_key
        self._updates: list[EnvUpdate] | None = None
        self._num_evaluations = 0
        self._engine: RolloutEngine | None = None

    def bind(
        self,
        test_task_sampler: TaskSampler | None = None,
        max_path_length: float | None = None,
        n_test_tasks: int | None = None,
    ) -> None:
        """Fill in what the constructor was not told."""
        self.test_task_sampler = test_task_sampler if self.test_task_sampler is None else self.test_task_sampler
        self.max_path_length = max_path_length if self.max_path_length is None else self.max_path_length
        if self.n_test_tasks is None and getattr(self.test_task_sampler, "n_tasks", None) is None:
            self.n_test_tasks = n_test_tasks

    def for_sampler(self, test_task_sampler: TaskSampler) -> PolicyEvaluator:
        """The same on all tasks of another sampler."""
        other = copy.copy(self)
        other.test_task_sampler = test_task_sampler
        other.n_test_tasks = self.n_test_tasks if test_task_sampler.n_tasks is None else None
        other._updates, other._engine, other._num_evaluations = None, None, 0
        return other

    def prepare(self, algo: Any) -> list[EnvUpdate]:
        """The held-out variations, drawn now if that has not happened yet; empty for the environment as it is.

        Raises:
            TaskOverlapError: A test task is among ``algo.train_tasks``.
        """
        if self.test_task_sampler is None:
            return []
        if self._updates is None:
            self._updates = draw_held_out(self.test_task_sampler, self.n_test_tasks)
        if not self.allow_overlap:
            refuse_overlap(getattr(algo, "train_tasks", None), self._updates)
        return self._updates

    def evaluate(
        self, algo: Any, *, engine: RolloutEngine | None = None, keep_rollouts: bool = False
    ) -> PolicyEvaluation:
        """Run all episodes with ``algo.policy``, which is left as it was.

        Args:
            algo: Has ``policy``, and ``max_path_length`` unless that was given.
            engine: Engine to use; ``None`` means one of the evaluator's own, in ``env``.
            keep_rollouts: Keep all steps in the result.
        """
        updates: list[EnvUpdate | None] = [*self.prepare(algo)] or [None]
        limit = self._step_limit(algo)
        engine = engine or self._own_engine(algo.policy)
        plans = [
            RolloutPlan(
                index=task * self.num_episodes + episode,
                seed=(self.seed, task, episode),
                env_update=update,
                max_steps=limit,
                eval=True,
                deterministic=self.deterministic,
            )
            for task, update in enumerate(updates)
            for episode in range(self.num_episodes)
        ]
        rollouts = engine.run(plans, use_policy(engine, algo.policy))
        self._num_evaluations += 1
        returns = episode_returns(rollouts, self.return_reward_key).reshape(len(updates), self.num_episodes)
        return PolicyEvaluation(
            returns=returns,
            tasks=[None if update is None else update.task for update in updates],
            task_names=[f"task {i}" for i in range(len(updates))],
            reward_key=self.return_reward_key,
            env_steps=sum(len(rollout) for rollout in rollouts),
            metrics=log_performance(
                self._num_evaluations - 1, rollouts, getattr(algo, "discount", 1.0), f"{self.prefix}/Average"
            ),
            prefix=self.prefix,
            rollouts=[rollouts[i : i + self.num_episodes] for i in range(0, len(rollouts), self.num_episodes)]
            if keep_rollouts
            else None,
        )

    def _step_limit(self, algo: Any) -> int | None:
        limit = getattr(algo, "max_path_length", None) if self.max_path_length is None else self.max_path_length
        if limit is None:
            raise ValueError("max_path_length is missing (episodes might never end): pass it to the PolicyEvaluator")
        return None if math.isinf(limit) else int(limit)

    def _own_engine(self, policy: Any) -> RolloutEngine:
        if self.env is None:
            raise ValueError("env is missing: pass it to the PolicyEvaluator, or an engine to evaluate")
        if self._engine is None:
            self._engine = RolloutEngine(self.env, policy)
        return self._engine
