"""Evaluation of a policy that does not adapt, in the environment or in held-out variations of it."""

from __future__ import annotations

from typing import Any, ClassVar, final

from metaroll.checks import check_whole
from metaroll.data.rollouts import Rollouts
from metaroll.learners.foreign import as_algorithm
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.training.evaluation.evaluation_result import PolicyEvaluation
from metaroll.training.evaluation.evaluator import Evaluator

__all__ = ["PolicyEvaluator"]


@final
class PolicyEvaluator(Evaluator):
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

    _needs_tasks: ClassVar[bool] = False

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
        self.env = env
        self.num_episodes = check_whole("num_episodes", num_episodes)
        super().__init__(
            test_task_sampler=test_task_sampler,
            max_path_length=max_path_length,
            n_test_tasks=n_test_tasks,
            prefix=prefix,
            test_task_names=None,
            repetitions=1,
            seed=seed,
            deterministic=deterministic,
            allow_overlap=allow_overlap,
            return_reward_key=return_reward_key,
        )

    def evaluate(
        self, algo: Any, *, engine: RolloutEngine | None = None, keep_rollouts: bool = False
    ) -> PolicyEvaluation:
        """Run all episodes with ``algo.policy``, which is left as it was.

        Args:
            algo: Has ``policy``, and ``max_path_length`` unless that was given.
            engine: Engine to use; ``None`` means one of the evaluator's own, in ``env``.
            keep_rollouts: Keep all steps in the result.
        """
        algo = as_algorithm(algo)
        tasks = [update.task for update in self.prepare(algo)] or [None]
        limit = self._step_limit(algo)
        history = [Rollouts()] * len(tasks)
        episodes = range(self.num_episodes)
        self._run_round(self._engine_for(engine, algo.policy), [algo.policy] * len(tasks), history, episodes, limit)
        self._num_evaluations += 1
        return PolicyEvaluation(
            returns=self._returns(history)[:, 0],
            tasks=tasks,
            task_names=[f"task {i}" for i in range(len(tasks))],
            reward_key=self.return_reward_key,
            env_steps=sum(int(rollouts.bounds[-1]) for rollouts in history),
            metrics=self._metrics(history, algo.discount),
            prefix=self.prefix,
            rollouts=history if keep_rollouts else None,
        )

    def _make_engine(self, policy: Any) -> RolloutEngine:
        if self.env is None:
            raise ValueError("env is missing: pass it to the PolicyEvaluator, or an engine to evaluate")
        return RolloutEngine(self.env, policy)
