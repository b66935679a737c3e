"""Meta-test: explore in held-out tasks, adapt, act. Which episodes there are is fixed before anything runs."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.checks import check_whole
from metaroll.data.step_sequence import StepSequence
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.garage.workers import DefaultWorker, PEARLWorker
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.training.evaluation.cell_policies import adapt_policies, fresh_policies
from metaroll.training.evaluation.engine_policy import context_of, run_with_policies
from metaroll.training.evaluation.evaluation_metrics import (
    episode_outcomes,
    episode_returns,
    log_performance,
    provenance_of,
)
from metaroll.training.evaluation.evaluation_result import Cell, EvaluationResult
from metaroll.training.evaluation.evaluator_state import EvaluatorState
from metaroll.training.evaluation.held_out_tasks import draw_held_out, refuse_overlap
from metaroll.types import Context, EnvUpdate, RolloutPlan

__all__ = ["MetaEvaluator"]

_EPISODES_PER_REPETITION = 1 << 16  # seeds of one repetition never meet those of the next


class MetaEvaluator(EvaluatorState):
    """Measures how well an algorithm adapts to tasks that it was not trained on.

    Every cell (task, repetition) has an exploration policy of its own, fresh from the algorithm, and every episode a
    seed; both are the same at every evaluation, so that differences between evaluations come from the algorithm.

    - By default (garage): all exploration episodes under the exploration policy, one adaptation, then
      ``n_test_rollouts`` adapted episodes.
    - ``posterior_sampling`` (PEARL, arXiv:1903.08254; oyster): after ``num_prior_episodes`` episodes the policy is
      adapted again after every episode, from all episodes of the cell so far; the last ``n_test_rollouts`` count as
      adapted.

    Args:
        test_task_sampler: Sampler of held-out tasks. They are drawn once, at the first evaluation.
        max_path_length: Steps per episode at most; ``None`` means the algorithm's.
        n_exploration_traj: Exploration episodes per task.
        n_test_tasks: Number of tasks; ``None`` means all of the sampler's.
        n_test_rollouts: Adapted episodes per task (episodes are counted, not steps).
        prefix: First part of the names of metrics.
        test_task_names: Names of the tasks, in the order of the sampler; tasks of one name are reported together.
        worker_class: Accepted for code written for garage: ``DefaultWorker`` or ``PEARLWorker``, whose behavior the
            engine has.
        worker_args: Of these ``deterministic`` replaces the argument below.
        repetitions: Independent repetitions of the whole procedure per task.
        posterior_sampling: Adapt again after every exploration episode (PEARL's protocol), not once after all of them.
        num_prior_episodes: Episodes under the prior before the first adaptation, with ``posterior_sampling``.
        seed: Seed of all episodes.
        deterministic: Act with the mean action (a latent z still is sampled).
        allow_overlap: Do not refuse test tasks that are training tasks.
        return_reward_key: Name of an env_info to sum instead of the reward.
    """

    def __init__(
        self,
        *,
        test_task_sampler: TaskSampler | None = None,
        max_path_length: float | None = None,
        n_exploration_traj: int = 10,
        n_test_tasks: int | None = None,
        n_test_rollouts: int = 1,
        prefix: str = "MetaTest",
        test_task_names: Sequence[str] | None = None,
        worker_class: Any = None,
        worker_args: Mapping[str, Any] | None = None,
        repetitions: int = 1,
        posterior_sampling: bool = False,
        num_prior_episodes: int = 1,
        seed: int = 0,
        deterministic: bool = True,
        allow_overlap: bool = False,
        return_reward_key: str | None = None,
    ) -> None:
        numbers = (n_exploration_traj, n_test_rollouts, n_test_tasks, repetitions)
        _check_protocol(*numbers, posterior_sampling, num_prior_episodes)
        self.test_task_sampler = test_task_sampler
        self.max_path_length = max_path_length
        self.n_exploration_traj = n_exploration_traj
        self.n_test_tasks = n_test_tasks
        self.n_test_rollouts = n_test_rollouts
        self.prefix = prefix
        self.test_task_names = None if test_task_names is None else list(test_task_names)
        self.repetitions = repetitions
        self.posterior_sampling = posterior_sampling
        self.num_prior_episodes = num_prior_episodes
        self.seed = seed
        self.deterministic = _deterministic_of(worker_class, worker_args, deterministic)
        self.allow_overlap = allow_overlap
        self.return_reward_key = return_reward_key
        self._updates: list[EnvUpdate] | None = None
        self._num_evaluations = 0
        self._learners_limit: float | None = None
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
        # An algorithm's number is meant for its own sampler, or for one that does not know how many it has.
        own = self.test_task_sampler is test_task_sampler
        if self.n_test_tasks is None and (own or getattr(self.test_task_sampler, "n_tasks", None) is None):
            self.n_test_tasks = n_test_tasks

    def for_sampler(self, test_task_sampler: TaskSampler) -> MetaEvaluator:
        """The same protocol on all tasks of another sampler."""
        other = copy.copy(self)
        other.test_task_sampler, other.test_task_names = test_task_sampler, None
        other.n_test_tasks = self.n_test_tasks if test_task_sampler.n_tasks is None else None
        other._updates, other._engine, other._num_evaluations = None, None, 0
        return other

    def prepare(self, algo: Any) -> list[EnvUpdate]:
        """The test tasks, drawn now if that has not happened yet; an error if one of them is a training task.

        Raises:
            TaskOverlapError: A test task is among ``algo.train_tasks``.
        """
        updates = self.draw()
        names, count = self.test_task_names, len(updates)
        if names is not None and len(names) != count:
            raise ValueError(f"test_task_names must name all {count} test tasks, got {len(names)} names")
        if not self.allow_overlap:
            refuse_overlap(getattr(algo, "train_tasks", None), updates)
        return updates

    def draw(self) -> list[EnvUpdate]:
        """The test tasks, drawn now if that has not happened yet."""
        if self._updates is None:
            self._updates = draw_held_out(self.test_task_sampler, self.n_test_tasks)
        return self._updates

    def evaluate(
        self,
        algo: Any,
        test_rollouts_per_task: int | None = None,
        *,
        engine: RolloutEngine | None = None,
        keep_rollouts: bool = False,
    ) -> EvaluationResult:
        """Run the protocol on ``algo``, which is left as it was.

        Args:
            algo: Offers ``get_exploration_policy()`` and ``adapt_policy(policy, trajectories)``.
            test_rollouts_per_task: Adapted episodes per task; ``None`` means ``n_test_rollouts``.
            engine: Engine to use (its policy may be exchanged); ``None`` means one of the evaluator's own.
            keep_rollouts: Keep all steps in the result.
        """
        num_adapted = self.n_test_rollouts if test_rollouts_per_task is None else test_rollouts_per_task
        check_whole("test_rollouts_per_task", num_adapted)
        updates = self.prepare(algo)
        limit = self._step_limit(algo)
        policies = fresh_policies(algo, len(updates) * self.repetitions, self.seed)
        engine = engine or self._own_engine(updates, policies[0])
        history: list[list[StepSequence]] = [[] for _ in policies]
        prior = self.num_prior_episodes if self.posterior_sampling else None
        for first, last, adapt in _rounds(self.n_exploration_traj, num_adapted, prior):
            if adapt:
                # An exploration policy is given up by whoever adapts it, so further adaptations start from fresh ones,
                # unless the algorithm says that it takes its adapted policies as well (copying networks takes time).
                fresh = prior is not None and first > prior and not getattr(algo, "adapts_again", False)
                policies = adapt_policies(algo, policies, history, updates[0], self.seed, fresh=fresh)
            self._run_round(engine, policies, history, range(first, last), limit)
        self._num_evaluations += 1
        result = self._result(algo, updates, history)
        return dataclasses.replace(result, rollouts=history) if keep_rollouts else result

    def run_cells(
        self,
        policies: Sequence[Any],
        episodes: range,
        contexts: Sequence[Context | None] | None = None,
        *,
        engine: RolloutEngine | None = None,
    ) -> np.ndarray:
        """Returns ``(num_tasks, repetitions, len(episodes))`` of other policies in cells of ``evaluate``, same seeds.

        Args:
            policies: One per cell (task by task, all repetitions of one after the other).
            episodes: Which episodes of each cell.
            contexts: What the policy of each cell is told; ``None`` means what it believes.
            engine: As in ``evaluate``.
        """
        updates = self.draw()
        engine = engine or self._own_engine(updates, policies[0])
        history: list[list[StepSequence]] = [[] for _ in policies]
        self._run_round(engine, policies, history, episodes, self._step_limit(), contexts)
        return self._returns(history, len(updates))

    def run_reference(
        self,
        policy: Any,
        contexts_of_task: Callable[[Any], Context | None] | None = None,
        *,
        test_rollouts_per_task: int | None = None,
        engine: RolloutEngine | None = None,
    ) -> np.ndarray:
        """Returns of another policy in the very cells of ``evaluate``, e.g. of an oracle or a floor.

        Args:
            policy: What acts in all cells.
            contexts_of_task: What the policy is told about a task.
            test_rollouts_per_task, engine: As in ``evaluate``.

        Returns:
            Shape ``(num_tasks, repetitions, num_exploration + num_adapted)``.
        """
        num_adapted = self.n_test_rollouts if test_rollouts_per_task is None else test_rollouts_per_task
        tasks = [update.task for update in self.draw() for _ in range(self.repetitions)]
        contexts = [None if contexts_of_task is None else contexts_of_task(task) for task in tasks]
        episodes = range(self.n_exploration_traj + num_adapted)
        return self.run_cells([policy] * len(tasks), episodes, contexts, engine=engine)

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _step_limit(self, algo: Any = None) -> int | None:
        own = getattr(algo, "max_path_length", None)
        self._learners_limit = self._learners_limit if own is None else own  # references come without an algorithm
        limit = self._learners_limit if self.max_path_length is None else self.max_path_length
        if limit is None:
            raise ValueError("max_path_length is missing (episodes might never end): pass it to the MetaEvaluator")
        return None if math.isinf(limit) else int(limit)

    def _own_engine(self, updates: Sequence[EnvUpdate], policy: Any) -> RolloutEngine:
        if self._engine is None:
            self._engine = RolloutEngine(updates[0], policy)
        return self._engine

    def _cell(self, cell: int, episode: int) -> Cell:
        task, repetition = divmod(cell, self.repetitions)
        seed = (self.seed, task, repetition * _EPISODES_PER_REPETITION + episode)
        return Cell(task, repetition, episode, seed)

    def _run_round(
        self,
        engine: RolloutEngine,
        policies: Sequence[Any],
        history: Sequence[list[StepSequence]],
        episodes: range,
        limit: int | None,
        contexts: Sequence[Context | None] | None = None,
    ) -> None:
        """Run ``episodes`` of all cells and append them to ``history``."""
        updates = self._updates or []
        given = [None] * len(policies) if contexts is None else contexts
        told = [
            context_of(policy) if context is None else context for policy, context in zip(policies, given, strict=True)
        ]
        plans = [
            [
                RolloutPlan(
                    seed=spot.seed,
                    env_update=updates[spot.task],
                    context=context,
                    max_steps=limit,
                    eval=True,
                    deterministic=self.deterministic,
                )
                for spot in (self._cell(cell, episode) for episode in episodes)
            ]
            for cell, context in enumerate(told)
        ]
        for rollouts, new in zip(history, run_with_policies(engine, policies, plans), strict=True):
            rollouts.extend(new)

    def _returns(self, history: Sequence[Sequence[StepSequence]], num_tasks: int) -> np.ndarray:
        rows = [episode_returns(rollouts, self.return_reward_key) for rollouts in history]
        return np.stack(rows).reshape(num_tasks, self.repetitions, -1)

    def _result(
        self, algo: Any, updates: Sequence[EnvUpdate], history: Sequence[Sequence[StepSequence]]
    ) -> EvaluationResult:
        names = self.test_task_names or [f"task {i}" for i in range(len(updates))]
        adapted = [rollouts[self.n_exploration_traj :] for rollouts in history]
        lengths, success_steps = episode_outcomes(history, len(updates))
        return EvaluationResult(
            returns=self._returns(history, len(updates)),
            num_exploration=self.n_exploration_traj,
            tasks=[update.task for update in updates],
            task_names=names,
            cells=[self._cell(cell, episode) for cell in range(len(history)) for episode in range(len(history[0]))],
            reward_key=self.return_reward_key,
            env_steps=sum(len(rollout) for rollouts in history for rollout in rollouts),
            metrics=_metrics_by_name(
                self.test_task_names and [name for name in names for _ in range(self.repetitions)],
                adapted,
                self._num_evaluations - 1,
                getattr(algo, "discount", 1.0),
                self.prefix,
            ),
            prefix=self.prefix,
            provenance=provenance_of(history),
            lengths=lengths,
            success_steps=success_steps,
        )


def _rounds(explore: int, num_adapted: int, prior: int | None) -> list[tuple[int, int, bool]]:
    """``(first episode, last episode + 1, whether the policies are adapted before)`` of each round.

    ``prior`` is the number of episodes before the first adaptation, where there is one after every episode.
    """
    total = explore + num_adapted
    if prior is None:
        return [(0, explore, False), (explore, total, True)]
    return [(0, prior, False), *((episode, episode + 1, True) for episode in range(prior, total))]


def _metrics_by_name(
    names: Sequence[str] | None, adapted: Sequence[Sequence[StepSequence]], itr: int, discount: float, prefix: str
) -> dict[str, float]:
    """Statistics of adapted episodes, per name (one per cell, if there are any) and of all as ``Average``."""
    groups: dict[str, list[StepSequence]] = {}
    for name, rollouts in zip(names or (), adapted, strict=False):
        groups.setdefault(name, []).extend(rollouts)
    groups["Average"] = [rollout for rollouts in adapted for rollout in rollouts]
    metrics: dict[str, float] = {}
    for name, rollouts in groups.items():
        metrics.update(log_performance(itr, rollouts, discount, f"{prefix}/{name}"))
    return metrics


def _check_protocol(explore: Any, adapted: Any, tasks: Any, repetitions: Any, posterior: bool, prior: Any) -> None:
    counts = {"n_exploration_traj": explore, "n_test_rollouts": adapted, "repetitions": repetitions}
    for name, value in {**counts, "num_prior_episodes": prior}.items():
        check_whole(name, value)
    if tasks is not None:
        check_whole("n_test_tasks", tasks)
    if posterior and prior > explore:
        raise ValueError(f"num_prior_episodes must be at most n_exploration_traj={explore}, got {prior}")


def _deterministic_of(worker_class: Any, worker_args: Mapping[str, Any] | None, deterministic: bool) -> bool:
    if worker_class not in (None, DefaultWorker, PEARLWorker):
        raise TypeError(
            f"worker_class must be DefaultWorker or PEARLWorker (evaluations run on the rollout engine), got "
            f"{worker_class!r}; change the environment or the policy instead"
        )
    arguments = dict(worker_args or {})
    arguments.pop("accum_context", None)  # contexts are kept by the evaluator
    deterministic = bool(arguments.pop("deterministic", deterministic))
    if arguments:
        raise TypeError(f"worker_args may hold deterministic and accum_context, got also {', '.join(arguments)}")
    return deterministic
