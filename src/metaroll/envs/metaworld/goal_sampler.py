"""Distributes the tasks of a Meta-World benchmark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metaroll.checks import check_whole
from metaroll.envs.metaworld.library import HORIZON, MW_TASKS_PER_ENV, metaworld_package, provenance_of
from metaroll.envs.metaworld.sawyer import MetaWorldEnvMaker, checked_setting
from metaroll.envs.metaworld.tasks import MetaWorldTask, as_task
from metaroll.envs.metaworld.wrappers import TaskWrapper
from metaroll.seeding import as_generator
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import EnvUpdate

__all__ = ["MetaWorldTaskSampler"]

_META_LEARNING = ("ML1", "ML10", "ML25", "ML45", "CustomML")


class MetaWorldTaskSampler(TaskSampler):
    """Samples tasks of a Meta-World benchmark, grouped by environment.

    Updates come in the order of the benchmark's classes, those of one class next to each other, so that environments
    are re-used: an update sets its task without building anything where the environment is of its class. Goals are
    hidden in ML benchmarks and visible in MT ones, as the tasks define. Episodes are truncated after ``horizon`` steps.

    Without replacement, every class goes through all of its 50 tasks before one comes again, over all calls together,
    and none comes twice among the first 50 of a call. ``with_replacement=True`` is supported, unlike in garage's
    document: all tasks are then drawn independently, and the order of the draws without replacement is not touched.

    Args:
        benchmark: A ``metaworld.Benchmark``, such as ``make_metaworld_benchmark("ML10", seed=1)``.
        kind: ``"train"`` or ``"test"``.
        wrapper: Called as ``wrapper(env, task)`` around every environment that an update makes or re-uses.
        add_env_onehot: Append the number of the environment to observations as a one-hot vector. For the training
            tasks of multi-task (MT) benchmarks only.
        reward_version: ``"v2"``, or ``"v1"``, the rewards of the first publication.
        horizon: Steps after which episodes are truncated.
        generator: Source of randomness; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        benchmark: Any,
        kind: str,
        wrapper: Callable[[Any, Any], Any] | None = None,
        add_env_onehot: bool = False,
        *,
        reward_version: str = "v2",
        horizon: int = HORIZON,
        generator: np.random.Generator | int | None = None,
    ) -> None:
        if kind not in ("train", "test"):
            raise ValueError(f"kind must be 'train' or 'test', got {kind!r}")
        if wrapper is not None and not callable(wrapper):
            raise TypeError(
                f"wrapper must be a function of (env, task), got {wrapper!r} of type {type(wrapper).__name__}"
            )
        self._reward_version, self._horizon = checked_setting(reward_version, horizon)
        self._tasks = _tasks_by_name(benchmark, kind)
        if add_env_onehot:
            _check_onehot(benchmark, kind)
        self._wrappers = {
            name: TaskWrapper(wrapper, (i, len(self._tasks)) if add_env_onehot else None)
            for i, name in enumerate(self._tasks)
        }
        self._makers = {
            name: MetaWorldEnvMaker(name, reward_version=self._reward_version, horizon=self._horizon)
            for name in self._tasks
        }
        self._generator = as_generator(generator)
        self._orders = {name: self._generator.permutation(MW_TASKS_PER_ENV) for name in self._tasks}
        self._cursor = 0

    @property
    def n_tasks(self) -> int:
        """Tasks of all classes together: 50 for each."""
        return MW_TASKS_PER_ENV * len(self._tasks)

    @property
    def env_names(self) -> list[str]:
        """Names of the environments, in the order of the updates."""
        return list(self._tasks)

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions, horizon and success rule; every rollout of these tasks carries them."""
        return provenance_of(self._reward_version, self._horizon)

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """The same number of updates for each class.

        Args:
            n_tasks: How many; a multiple of the number of classes.
            with_replacement: Draw all tasks independently.
        """
        count = check_whole("n_tasks", n_tasks, 0)
        each, remainder = divmod(count, len(self._tasks))
        if remainder:
            below, above = count - remainder, count - remainder + len(self._tasks)
            raise ValueError(
                f"n_tasks must be a multiple of the {len(self._tasks)} environment classes, got {count}; "
                f"ask for {below or above}" + (f" or {above}" if below else "")
            )
        if with_replacement:
            drawn = {name: self._generator.integers(MW_TASKS_PER_ENV, size=each) for name in self._tasks}
        else:
            drawn = self._next(each)
        return [self._update(name, self._tasks[name][i]) for name in self._tasks for i in drawn[name]]

    def in_turn(self) -> list[EnvUpdate]:
        """An update for each task: the first of every class, then the second of every class, and so on."""
        return [self._update(name, self._tasks[name][i]) for i in range(MW_TASKS_PER_ENV) for name in self._tasks]

    def _next(self, count: int) -> dict[str, list[int]]:
        """The next ``count`` indices of each class."""
        drawn: dict[str, list[int]] = {name: [] for name in self._tasks}
        missing = count
        while missing:
            if self._cursor == MW_TASKS_PER_ENV:
                self._orders = {name: self._fresh_order(drawn[name]) for name in self._tasks}
                self._cursor = 0
            stop = min(MW_TASKS_PER_ENV, self._cursor + missing)
            for name, order in self._orders.items():
                drawn[name] += order[self._cursor : stop].tolist()
            missing -= stop - self._cursor
            self._cursor = stop
        return drawn

    def _fresh_order(self, drawn: list[int]) -> np.ndarray:
        """A new order; tasks that this call has already drawn from the previous order come last."""
        order = self._generator.permutation(MW_TASKS_PER_ENV)
        begun = len(drawn) % MW_TASKS_PER_ENV
        recent = np.isin(order, drawn[len(drawn) - begun :])
        return np.concatenate((order[~recent], order[recent]))

    def _update(self, name: str, task: MetaWorldTask) -> EnvUpdate:
        maker = self._makers[name]
        return SetTaskUpdate(maker, task, self._wrappers[name], made_by=maker.key)


def _tasks_by_name(benchmark: Any, kind: str) -> dict[str, list[MetaWorldTask]]:
    """Tasks of each class, in the order of the classes."""
    if not hasattr(benchmark, "train_classes") or not hasattr(benchmark, "train_tasks"):
        raise TypeError(
            f"benchmark must be a metaworld.Benchmark, got {benchmark!r} of type {type(benchmark).__name__}; "
            "make one with make_metaworld_benchmark('ML10', seed=1)"
        )
    tasks = getattr(benchmark, f"{kind}_tasks", None)
    name = type(benchmark).__name__
    if not tasks:
        hint = "; multi-task benchmarks are tested on the tasks of training, kind='train'" if kind == "test" else ""
        raise ValueError(f"kind must be one that the benchmark has tasks of, but {name} has no {kind} tasks{hint}")
    result: dict[str, list[MetaWorldTask]] = {env_name: [] for env_name in getattr(benchmark, f"{kind}_classes")}
    for task in map(as_task, tasks):
        if task.env_name not in result:
            raise ValueError(f"the {kind} tasks of {name} must belong to its {kind} classes, got {task!r}")
        result[task.env_name].append(task)
    for env_name, own in result.items():
        if len(own) != MW_TASKS_PER_ENV:
            raise ValueError(
                f"{name} must have {MW_TASKS_PER_ENV} {kind} tasks for each class, got {len(own)} for {env_name}"
            )
    return result


def _check_onehot(benchmark: Any, kind: str) -> None:
    package = metaworld_package()
    if kind == "test":
        raise ValueError(
            "add_env_onehot must be False for kind='test': an agent must not see the number of the environment"
        )
    if isinstance(benchmark, tuple(getattr(package, name) for name in _META_LEARNING if hasattr(package, name))):
        raise ValueError(
            f"add_env_onehot must be False for the meta-learning benchmark {type(benchmark).__name__}, whose agents "
            "have to find out what the task is; use it with e.g. MT10"
        )
