"""The common base of evaluators: held-out tasks, drawn once; cells with their own seeds; an engine; a state."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar, final

import numpy as np

from metaroll.checks import check_flag, check_seed, check_whole, plain_number
from metaroll.config import Checked, ConfigField, Option, config_of, understands
from metaroll.configs.evaluation import EvaluationConfig, MetaEvaluationConfig
from metaroll.data.rollouts import Rollouts
from metaroll.errors import SnapshotError, TaskOverlapError
from metaroll.learners.base import RLAlgorithm
from metaroll.learners.foreign import as_algorithm
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.state import Part, Stateful, parts
from metaroll.tasks.leak_guard import find_overlaps
from metaroll.tasks.task_key import task_key
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.tasks.updates import NewEnvUpdate, SetTaskUpdate
from metaroll.training.evaluation.engine_policy import context_of, run_with_policies
from metaroll.training.evaluation.evaluation_metrics import episode_returns, log_performance
from metaroll.training.evaluation.evaluation_result import Cell, EvaluationResult, PolicyEvaluation
from metaroll.training.store.files import is_tree
from metaroll.types import Context, EnvUpdate, RolloutPlan

__all__ = ["Evaluator", "PolicyEvaluator", "checked_limit", "checked_number", "count_episodes"]

_EPISODES_PER_REPETITION = 1 << 16  # seeds of one repetition never overlap with those of the next

C = TypeVar("C", EvaluationConfig, MetaEvaluationConfig)


def checked_limit(name: str, value: Any) -> float | None:
    """``value``, if it is a number of steps, infinity or ``None``."""
    if value is None:
        return None
    limit = plain_number(name, value, finite=False)
    if limit < 1 or (limit != math.inf and limit % 1):
        raise ValueError(f"{name} must be an integer of at least 1 (or infinity), got {value}")
    return value


def checked_number(name: str, value: Any) -> int | None:
    """``value``, if it is a positive integer or ``None``."""
    return None if value is None else check_whole(name, value)


class Evaluator(Stateful, ABC, Generic[C]):
    """Runs policies in the same episodes at every evaluation, so that differences come from the algorithm.

    A cell is a repetition in a task. Its episodes have the seeds ``(seed, task, repetition * 65536 + episode)``.

    Attributes:
        config: Its settings.
        test_task_names: Names of the tasks, in the order of the sampler.

    Args:
        config: Settings; ``None`` means the defaults.
        options: Settings by name, in place of those of ``config``.
        test_task_sampler: Sampler of held-out tasks. They are drawn once, at the first evaluation.
        max_steps: Steps per episode at most; ``None`` means the algorithm's.
        num_test_tasks: Number of tasks; ``None`` means all of the sampler's.
        prefix: First part of the names of metrics.
        seed: Seed of all episodes.
        allow_overlap: Do not refuse test tasks that are training tasks.
    """

    config_class: ClassVar[type[EvaluationConfig | MetaEvaluationConfig]]
    """Class of its settings."""
    names_given: ClassVar[Mapping[str, str]] = {}
    """Keywords that a subclass calls otherwise: name here -> its name, for errors."""
    _needs_tasks: ClassVar[bool]
    """Whether there must be held-out tasks; otherwise the nominal environment is enough."""

    state_parts = parts(
        "seed",
        num_evaluations="_num_evaluations",
        tasks=Part(
            write=lambda evaluator: evaluator._saved_tasks(),
            restore=lambda evaluator, tasks: evaluator._restore_tasks(tasks),
        ),
    )

    def __init__(
        self,
        config: C | None,
        options: Mapping[str, Any],
        *,
        test_task_sampler: TaskSampler | None,
        max_steps: float | None,
        num_test_tasks: int | None,
        prefix: str,
        seed: int,
        allow_overlap: bool,
    ) -> None:
        self.config: C = config_of(self.config_class, config, options, type(self))  # type: ignore[arg-type, assignment]  # its own class
        self.test_task_sampler, self.max_steps, self.num_test_tasks = test_task_sampler, max_steps, num_test_tasks
        self.test_task_names: Sequence[str] | None = None
        self.prefix, self.seed, self.allow_overlap = prefix, seed, allow_overlap
        self._updates: list[EnvUpdate] | None = None
        self._num_evaluations = 0
        self._algorithms_limit: float | None = None
        self._engine: RolloutEngine | None = None

    max_steps = Checked[float | None](checked_limit)
    num_test_tasks = Checked[int | None](checked_number)
    prefix = Checked[str](lambda name, value: Option(name, str).checked(value))
    seed = Checked[int](check_seed)
    allow_overlap = Checked[bool](check_flag)

    def settle(self, config: C) -> None:
        """Take ``config`` in place of the present one."""
        self.config = config

    @property
    def repetitions(self) -> int:
        """Cells per task."""
        return 1

    @abstractmethod
    def evaluate(
        self,
        algo: Any,
        *,
        engine: RolloutEngine | None = None,
        keep_rollouts: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> EvaluationResult | PolicyEvaluation:
        """Run all episodes with ``algo``, which is left unchanged.

        Args:
            algo: The algorithm.
            engine: Engine to use (its policy may be exchanged); ``None`` means one of the evaluator's own.
            keep_rollouts: Keep all steps in the result.
            progress: Called as ``progress(done, total)``, in episodes, while they run.
        """

    def protocol(self, algo: Any) -> dict[str, Any]:
        """How ``algo`` is evaluated: arguments as they are used, by name (plain data, for files)."""
        limit = self._limit(as_algorithm(algo))
        return {
            "repetitions": self.repetitions,
            "deterministic": self.config.deterministic,
            "max_steps": None if limit is None or math.isinf(limit) else int(limit),
            "seed": self.seed,
        }

    @abstractmethod
    def _make_engine(self, policy: Any) -> RolloutEngine:
        """An engine of the evaluator's own."""

    # -- held-out tasks ------------------------------------------------------------------------------------------------

    def bind(
        self,
        test_task_sampler: TaskSampler | None = None,
        max_steps: float | None = None,
        num_test_tasks: int | None = None,
    ) -> None:
        """Set the values that were not passed to the constructor."""
        self.test_task_sampler = test_task_sampler if self.test_task_sampler is None else self.test_task_sampler
        self.max_steps = max_steps if self.max_steps is None else self.max_steps
        sampler = self.test_task_sampler
        # An algorithm's number is meant for its own sampler, or for one that does not know how many it has.
        if self.num_test_tasks is None and (sampler is test_task_sampler or sampler is None or sampler.n_tasks is None):
            self.num_test_tasks = num_test_tasks

    def for_sampler(self, test_task_sampler: TaskSampler) -> Self:
        """The same protocol on all tasks of another sampler."""
        other = copy.copy(self)
        other.test_task_sampler, other.test_task_names = test_task_sampler, None
        other.num_test_tasks = self.num_test_tasks if test_task_sampler.n_tasks is None else None
        other._updates, other._engine, other._num_evaluations = None, None, 0
        return other

    def prepare(self, algo: Any) -> list[EnvUpdate]:
        """The test tasks, drawn now if that has not happened yet; empty for the nominal environment.

        Raises:
            TaskOverlapError: A test task is among ``algo.train_tasks``.
            ValueError: There is no task, or not one name for each.
        """
        updates = self.draw()
        names = self.test_task_names
        if names is not None and len(names) != len(updates):
            raise ValueError(f"test_task_names must name all {len(updates)} test tasks, got {len(names)} names")
        if not self.allow_overlap:
            _refuse_overlap(as_algorithm(algo).train_tasks, updates)
        return updates

    def draw(self) -> list[EnvUpdate]:
        """The test tasks, drawn now if that has not happened yet; empty for the nominal environment."""
        sampler = self.test_task_sampler
        if sampler is None:
            if not self._needs_tasks:
                return []
            raise ValueError(f"test_task_sampler is missing: pass {type(self).__name__}(test_task_sampler=...)")
        if self._updates is None:
            count = sampler.n_tasks if self.num_test_tasks is None else self.num_test_tasks
            if count is None:
                name = self._called("num_test_tasks")
                raise ValueError(f"{name} must be given: test_task_sampler has no number of tasks")
            updates = list(sampler.sample(count))
            if not updates:
                raise ValueError(f"test_task_sampler must give at least one task, got {count}")
            self._updates = updates
        return self._updates

    # -- state ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the engine that the evaluator made for itself."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _saved_tasks(self) -> list[Any] | None:
        """The test tasks, where they have been drawn and are plain data."""
        tasks = None if self._updates is None else [update.task for update in self._updates]
        return tasks if tasks is not None and is_tree(tasks) else None

    def _restore_tasks(self, tasks: list[Any] | None) -> None:
        """Continue with these tasks; ``SnapshotError`` if the sampler gives others, and they cannot be replaced."""
        if tasks is not None and self.test_task_sampler is not None:
            self._updates = _with_tasks(self.test_task_sampler.sample(len(tasks)), tasks)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None}

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _limit(self, algo: RLAlgorithm | None) -> float | None:
        """The maximum number of steps of an episode; ``None`` if none was given."""
        if algo is not None and algo.evaluation_limit is not None:
            self._algorithms_limit = algo.evaluation_limit  # for references, which come without an algorithm
        return self._algorithms_limit if self.max_steps is None else self.max_steps

    def _step_limit(self, algo: RLAlgorithm | None = None) -> int | None:
        limit = self._limit(algo)
        if limit is None:
            name, owner = self._called("max_steps"), type(self).__name__
            raise ValueError(f"{name} is missing (episodes might never end): pass it to the {owner}")
        return None if math.isinf(limit) else int(limit)

    def _called(self, keyword: str) -> str:
        return self.names_given.get(keyword, keyword)

    def _cell(self, cell: int, episode: int) -> Cell:
        task, repetition = divmod(cell, self.repetitions)
        seed = (self.seed, task, repetition * _EPISODES_PER_REPETITION + episode)
        return Cell(task, repetition, episode, seed)

    def _run_round(
        self,
        engine: RolloutEngine | None,
        policies: Sequence[Any],
        history: list[Rollouts],
        episodes: range,
        limit: int | None,
        *,
        contexts: Sequence[Context | None] | None = None,
        deterministic: bool | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Run ``episodes`` of all cells, a policy each, and append them to ``history``."""
        if engine is None:
            if self._engine is None:
                self._engine = self._make_engine(policies[0])
            engine = self._engine
        updates = self.draw() or [None]
        contexts_given = [None] * len(policies) if contexts is None else contexts
        contexts_used = [
            context_of(policy) if context is None else context
            for policy, context in zip(policies, contexts_given, strict=True)
        ]
        plans = [
            [
                RolloutPlan(
                    seed=spot.seed,
                    env_update=updates[spot.task],
                    context=context,
                    max_steps=limit,
                    eval=True,
                    deterministic=self.config.deterministic if deterministic is None else deterministic,
                )
                for spot in (self._cell(cell, episode) for episode in episodes)
            ]
            for cell, context in enumerate(contexts_used)
        ]
        new = run_with_policies(engine, policies, plans, progress)
        history[:] = [before + rollouts for before, rollouts in zip(history, new, strict=True)]

    def _returns(self, history: Sequence[Rollouts]) -> np.ndarray:
        """Returns ``(num_tasks, repetitions, episodes)`` of all cells."""
        rows = [episode_returns(rollouts, self.config.return_reward_key) for rollouts in history]
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


@final
class PolicyEvaluator(Evaluator[EvaluationConfig]):
    """Measures the return of an algorithm's ``policy``, in the environment or in held-out variations of it.

    Every episode has a seed, which is the same at every evaluation, so that differences come from the policy.

    Args:
        config: Settings; ``None`` means the defaults.
        env: Environment to use where no engine is given: as for ``RolloutEngine``.
        test_task_sampler: Sampler of held-out variations, drawn once; ``None`` means the nominal environment.
        max_steps, num_test_tasks, prefix, seed, allow_overlap: See ``Evaluator``.
        options: Settings by name, in place of those of ``config``.
    """

    config_class: ClassVar[type[EvaluationConfig | MetaEvaluationConfig]] = EvaluationConfig
    _needs_tasks: ClassVar[bool] = False

    @understands()
    def __init__(
        self,
        config: EvaluationConfig | None = None,
        *,
        env: Any = None,
        test_task_sampler: TaskSampler | None = None,
        max_steps: float | None = None,
        num_test_tasks: int | None = None,
        prefix: str = "Evaluation",
        seed: int = 0,
        allow_overlap: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            config,
            options,
            test_task_sampler=test_task_sampler,
            max_steps=max_steps,
            num_test_tasks=num_test_tasks,
            prefix=prefix,
            seed=seed,
            allow_overlap=allow_overlap,
        )
        self.env = env

    num_episodes = ConfigField[int](changes=True)
    deterministic = ConfigField[bool](changes=True)
    return_reward_key = ConfigField[str | None](changes=True)

    def protocol(self, algo: Any) -> dict[str, Any]:
        """How ``algo`` is evaluated: arguments as they are used, by name (plain data, for files)."""
        return {"num_episodes": self.config.num_episodes, **super().protocol(algo)}

    def evaluate(
        self,
        algo: Any,
        *,
        engine: RolloutEngine | None = None,
        keep_rollouts: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> PolicyEvaluation:
        """Run all episodes with ``algo.policy``, which is left unchanged.

        Args:
            algo: Has ``policy``, and ``max_path_length`` unless ``max_steps`` was given.
            engine: Engine to use; ``None`` means one of the evaluator's own, in ``env``.
            keep_rollouts: Keep all steps in the result.
            progress: Called as ``progress(done, total)``, in episodes, while they run.
        """
        algo = as_algorithm(algo)
        tasks = [update.task for update in self.prepare(algo)] or [None]
        limit = self._step_limit(algo)
        history = [Rollouts()] * len(tasks)
        episodes = range(self.config.num_episodes)
        count = count_episodes(progress, len(tasks) * len(episodes))
        self._run_round(engine, [algo.policy] * len(tasks), history, episodes, limit, progress=count)
        self._num_evaluations += 1
        return PolicyEvaluation(
            returns=self._returns(history)[:, 0],
            tasks=tasks,
            task_names=[f"task {i}" for i in range(len(tasks))],
            reward_key=self.config.return_reward_key,
            env_steps=sum(int(rollouts.bounds[-1]) for rollouts in history),
            metrics=self._metrics(history, algo.discount),
            prefix=self.prefix,
            rollouts=history if keep_rollouts else None,
        )

    def _make_engine(self, policy: Any) -> RolloutEngine:
        if self.env is None:
            raise ValueError("env is missing: pass it to the PolicyEvaluator, or an engine to evaluate")
        return RolloutEngine(self.env, policy)


def count_episodes(progress: Callable[[int, int], None] | None, total: int) -> Callable[[int, int], None] | None:
    """A callback for the engine (numbers of new rollouts and steps), by which ``progress`` counts all episodes."""
    if progress is None:
        return None
    report, done = progress, 0
    report(0, total)

    def add(rollouts: int, steps: int) -> None:
        nonlocal done
        done += rollouts
        report(done, total)

    return add


def _refuse_overlap(train_tasks: Sequence[Any] | None, updates: Sequence[EnvUpdate]) -> None:
    """``TaskOverlapError`` if one of ``updates`` is for a training task (values are compared exactly)."""
    for position, same in find_overlaps(train_tasks or (), [update.task for update in updates]):
        update = updates[position]
        # The name of a constructor proves nothing: two lambdas share one without being the same.
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
