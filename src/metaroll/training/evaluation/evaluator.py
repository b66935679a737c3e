"""What evaluators have in common: held-out tasks, drawn once; cells with seeds of their own; an engine; a state."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from metaroll.checks import check_whole
from metaroll.data.rollouts import Rollouts
from metaroll.errors import SnapshotError, TaskOverlapError
from metaroll.learners.base import RLAlgorithm
from metaroll.learners.foreign import as_algorithm
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.tasks.leak_guard import find_overlaps
from metaroll.tasks.task_key import task_key
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.tasks.updates import NewEnvUpdate, SetTaskUpdate
from metaroll.training.evaluation.engine_policy import context_of, run_with_policies
from metaroll.training.evaluation.evaluation_metrics import episode_returns, log_performance
from metaroll.training.evaluation.evaluation_result import Cell, EvaluationResult, PolicyEvaluation
from metaroll.training.store.files import is_tree
from metaroll.types import Context, EnvUpdate, RolloutPlan

__all__ = ["Evaluator"]

_EPISODES_PER_REPETITION = 1 << 16  # seeds of one repetition never meet those of the next


class Evaluator(ABC):
    """Runs policies in the same episodes at every evaluation, so that differences come from the algorithm.

    A cell is a repetition in a task. Its episodes have the seeds ``(seed, task, repetition * 65536 + episode)``.

    Args:
        test_task_sampler: Sampler of held-out tasks. They are drawn once, at the first evaluation.
        max_path_length: Steps per episode at most; ``None`` means the algorithm's.
        n_test_tasks: Number of tasks; ``None`` means all of the sampler's.
        prefix: First part of the names of metrics.
        test_task_names: Names of the tasks, in the order of the sampler.
        repetitions: Cells per task.
        seed: Seed of all episodes.
        deterministic: Act without noise.
        allow_overlap: Do not refuse test tasks that are training tasks.
        return_reward_key: Name of an env_info to sum instead of the reward.
    """

    _needs_tasks: ClassVar[bool]
    """Whether there must be held-out tasks; otherwise the environment as it is will do."""

    def __init__(
        self,
        *,
        test_task_sampler: TaskSampler | None,
        max_path_length: float | None,
        n_test_tasks: int | None,
        prefix: str,
        test_task_names: Sequence[str] | None,
        repetitions: int,
        seed: int,
        deterministic: bool,
        allow_overlap: bool,
        return_reward_key: str | None,
    ) -> None:
        if n_test_tasks is not None:
            check_whole("n_test_tasks", n_test_tasks)
        self.test_task_sampler = test_task_sampler
        self.max_path_length = max_path_length
        self.n_test_tasks = n_test_tasks
        self.prefix = prefix
        self.test_task_names = None if test_task_names is None else list(test_task_names)
        self.repetitions = check_whole("repetitions", repetitions)
        self.seed = seed
        self.deterministic = deterministic
        self.allow_overlap = allow_overlap
        self.return_reward_key = return_reward_key
        self._updates: list[EnvUpdate] | None = None
        self._num_evaluations = 0
        self._algorithms_limit: float | None = None
        self._engine: RolloutEngine | None = None

    @abstractmethod
    def evaluate(
        self, algo: Any, *, engine: RolloutEngine | None = None, keep_rollouts: bool = False
    ) -> EvaluationResult | PolicyEvaluation:
        """Run all episodes with ``algo``, which is left as it was.

        Args:
            algo: The algorithm.
            engine: Engine to use (its policy may be exchanged); ``None`` means one of the evaluator's own.
            keep_rollouts: Keep all steps in the result.
        """

    @abstractmethod
    def _make_engine(self, policy: Any) -> RolloutEngine:
        """An engine of the evaluator's own."""

    # -- held-out tasks ------------------------------------------------------------------------------------------------

    def bind(
        self,
        test_task_sampler: TaskSampler | None = None,
        max_path_length: float | None = None,
        n_test_tasks: int | None = None,
    ) -> None:
        """Fill in what the constructor was not given."""
        self.test_task_sampler = test_task_sampler if self.test_task_sampler is None else self.test_task_sampler
        self.max_path_length = max_path_length if self.max_path_length is None else self.max_path_length
        sampler = self.test_task_sampler
        # An algorithm's number is meant for its own sampler, or for one that does not know how many it has.
        if self.n_test_tasks is None and (sampler is test_task_sampler or sampler is None or sampler.n_tasks is None):
            self.n_test_tasks = n_test_tasks

    def for_sampler(self, test_task_sampler: TaskSampler) -> Self:
        """The same protocol on all tasks of another sampler."""
        other = copy.copy(self)
        other.test_task_sampler, other.test_task_names = test_task_sampler, None
        other.n_test_tasks = self.n_test_tasks if test_task_sampler.n_tasks is None else None
        other._updates, other._engine, other._num_evaluations = None, None, 0
        return other

    def prepare(self, algo: Any) -> list[EnvUpdate]:
        """The test tasks, drawn now if that has not happened yet; empty for the environment as it is.

        Raises:
            TaskOverlapError: A test task is among ``algo.train_tasks``.
            ValueError: There is no task, or not one name for each.
        """
        updates = self.draw()
        names, count = self.test_task_names, len(updates)
        if names is not None and len(names) != count:
            raise ValueError(f"test_task_names must name all {count} test tasks, got {len(names)} names")
        if not self.allow_overlap:
            _refuse_overlap(as_algorithm(algo).train_tasks, updates)
        return updates

    def draw(self) -> list[EnvUpdate]:
        """The test tasks, drawn now if that has not happened yet; empty for the environment as it is."""
        if self.test_task_sampler is None and not self._needs_tasks:
            return []
        if self._updates is None:
            self._updates = _draw_held_out(self.test_task_sampler, self.n_test_tasks)
        return self._updates

    # -- state ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the engine that the evaluator made for itself."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def state_dict(self) -> dict[str, Any]:
        """Seed, counter and test tasks (where they are plain data)."""
        tasks = None if self._updates is None else [update.task for update in self._updates]
        return {
            "seed": self.seed,
            "num_evaluations": self._num_evaluations,
            "tasks": tasks if tasks is not None and is_tree(tasks) else None,
        }

    def load_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Go on as the evaluator that gave ``state_dict`` would have: with its seed and test tasks.

        Raises:
            SnapshotError: The sampler gives other tasks, and they cannot be replaced.
        """
        self.seed = tree["seed"]
        self._num_evaluations = tree["num_evaluations"]
        if tree["tasks"] is not None and self.test_task_sampler is not None:
            self._updates = _with_tasks(self.test_task_sampler.sample(len(tree["tasks"])), tree["tasks"])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None}

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _step_limit(self, algo: RLAlgorithm | None = None) -> int | None:
        if algo is not None and algo.max_path_length is not None:
            self._algorithms_limit = algo.max_path_length  # for references, which come without an algorithm
        limit = self._algorithms_limit if self.max_path_length is None else self.max_path_length
        if limit is None:
            name = type(self).__name__
            raise ValueError(f"max_path_length is missing (episodes might never end): pass it to the {name}")
        return None if math.isinf(limit) else int(limit)

    def _engine_for(self, engine: RolloutEngine | None, policy: Any) -> RolloutEngine:
        if engine is not None:
            return engine
        if self._engine is None:
            self._engine = self._make_engine(policy)
        return self._engine

    def _cell(self, cell: int, episode: int) -> Cell:
        task, repetition = divmod(cell, self.repetitions)
        seed = (self.seed, task, repetition * _EPISODES_PER_REPETITION + episode)
        return Cell(task, repetition, episode, seed)

    def _run_round(
        self,
        engine: RolloutEngine,
        policies: Sequence[Any],
        history: list[Rollouts],
        episodes: range,
        limit: int | None,
        *,
        contexts: Sequence[Context | None] | None = None,
        deterministic: bool | None = None,
    ) -> None:
        """Run ``episodes`` of all cells, a policy each, and append them to ``history``."""
        updates = self.draw() or [None]
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
                    deterministic=self.deterministic if deterministic is None else deterministic,
                )
                for spot in (self._cell(cell, episode) for episode in episodes)
            ]
            for cell, context in enumerate(told)
        ]
        new = run_with_policies(engine, policies, plans)
        history[:] = [before + rollouts for before, rollouts in zip(history, new, strict=True)]

    def _returns(self, history: Sequence[Rollouts]) -> np.ndarray:
        """Returns ``(num_tasks, repetitions, episodes)`` of all cells."""
        rows = [episode_returns(rollouts, self.return_reward_key) for rollouts in history]
        return np.stack(rows).reshape(len(history) // self.repetitions, self.repetitions, -1)

    def _metrics(self, rollouts: Sequence[Rollouts], discount: float) -> dict[str, float]:
        """Statistics of the episodes of all cells, as ``Average``, and of those whose tasks share a name."""
        groups: dict[str, list[Rollouts]] = {}
        names = self.test_task_names or ()
        for name, members in zip((n for n in names for _ in range(self.repetitions)), rollouts, strict=False):
            groups.setdefault(name, []).append(members)
        groups["Average"] = list(rollouts)
        metrics: dict[str, float] = {}
        for name, members in groups.items():
            whole = Rollouts.joined(members)
            metrics.update(log_performance(self._num_evaluations - 1, whole, discount, f"{self.prefix}/{name}"))
        return metrics


def _draw_held_out(sampler: TaskSampler | None, count: int | None) -> list[EnvUpdate]:
    """``count`` test tasks (``None``: all that there are)."""
    if sampler is None:
        raise ValueError("test_task_sampler is missing: pass MetaEvaluator(test_task_sampler=...)")
    count = sampler.n_tasks if count is None else count
    if count is None:
        raise ValueError("n_test_tasks must be given, since test_task_sampler does not say how many tasks it has")
    updates = list(sampler.sample(count))
    if not updates:
        raise ValueError(f"test_task_sampler must give at least one task, got {count}")
    return updates


def _refuse_overlap(train_tasks: Sequence[Any] | None, updates: Sequence[EnvUpdate]) -> None:
    """``TaskOverlapError`` if one of ``updates`` is for a training task (values are compared exactly)."""
    for position, same in find_overlaps(train_tasks or (), [update.task for update in updates]):
        update = updates[position]
        # The name of a constructor tells nothing: two lambdas share one without being the same.
        if update.task is not None and not (isinstance(update, NewEnvUpdate) and isinstance(update.task, str)):
            raise TaskOverlapError(
                f"test task {position} is training task {same}: {update.task!r}; split the tasks so that none is in "
                "both, or pass allow_overlap=True to the MetaEvaluator"
            )


def _with_tasks(updates: Sequence[EnvUpdate], tasks: Sequence[Any]) -> list[EnvUpdate]:
    """``updates`` if they are for ``tasks``, or copies that are."""
    result = []
    for position, (update, task) in enumerate(zip(updates, tasks, strict=True)):
        if task_key(update.task) != task_key(task):
            if not isinstance(update, SetTaskUpdate):
                raise SnapshotError(
                    f"test task {position} of test_task_sampler is {update.task!r}, in the snapshot it is {task!r}; "
                    "set up the run with the same sampler"
                )
            update = copy.copy(update)
            update.task = task
        result.append(update)
    return result
