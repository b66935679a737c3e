"""The tasks of a meta-test: drawn once, none of them a training task, the same after a resume."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from metaroll.errors import SnapshotError, TaskOverlapError
from metaroll.tasks.leak_guard import find_overlaps
from metaroll.tasks.task_key import task_key
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.tasks.updates import ExistingEnvUpdate, NewEnvUpdate, SetTaskUpdate
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["draw_held_out", "env_spec_of", "refuse_overlap", "with_tasks"]


def draw_held_out(sampler: TaskSampler | None, count: int | None) -> list[EnvUpdate]:
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


def env_spec_of(algo: Any, update: EnvUpdate) -> EnvSpec:
    """The algorithm's spec of the environment, else that of the environment that ``update`` makes."""
    if isinstance(getattr(algo, "env_spec", None), EnvSpec):
        return algo.env_spec
    env = update()
    try:
        return EnvSpec.from_env(env)
    finally:
        if hasattr(env, "close") and not isinstance(update, ExistingEnvUpdate):  # that one belongs to somebody
            env.close()


def refuse_overlap(train_tasks: Sequence[Any] | None, updates: Sequence[EnvUpdate]) -> None:
    """``TaskOverlapError`` if one of ``updates`` is for a training task (values are compared exactly)."""
    for position, same in find_overlaps(train_tasks or (), [update.task for update in updates]):
        update = updates[position]
        # The name of a constructor tells nothing: two lambdas share one without being the same.
        if update.task is not None and not (isinstance(update, NewEnvUpdate) and isinstance(update.task, str)):
            raise TaskOverlapError(
                f"test task {position} is training task {same}: {update.task!r}; split the tasks so that none is in "
                "both, or pass allow_overlap=True to the MetaEvaluator"
            )


def with_tasks(updates: Sequence[EnvUpdate], tasks: Sequence[Any]) -> list[EnvUpdate]:
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
