"""Tasks of one side of a hashed split: a list of distinct ones, or a sampler without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from metaroll.checks import check_whole
from metaroll.seeding import as_generator
from metaroll.tasks.finite_samplers import sample_indices
from metaroll.tasks.hashed_split import Side, check_test_share, task_side
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.tasks.task_sources import Draw, TaskSource
from metaroll.tasks.updates import task_key
from metaroll.types import EnvUpdate

__all__ = ["SplitTaskSampler", "draw_distinct", "draw_split"]

_BLOCK = 64
"""Tasks are drawn in blocks of one size, so that those drawn first do not depend on how many are wanted."""
_IDLE_BLOCKS = 20
"""Blocks without a new task after which there seem to be no more."""


class SplitTaskSampler(TaskSampler):
    """Draws training tasks, or held-out tasks, of a source; the two never meet.

    Args:
        source: Where tasks come from.
        side: ``"train"`` or ``"test"``.
        test_share: Share of all tasks that is held out.
        generator: Source of randomness; ``None`` means fresh entropy.
    """

    def __init__(
        self,
        source: TaskSource,
        side: Side,
        test_share: float = 0.2,
        *,
        generator: np.random.Generator | int | None = None,
    ) -> None:
        if side not in ("train", "test"):
            raise ValueError(f"side must be 'train' or 'test', got {side!r}")
        self._source, self._side, self._share = source, side, check_test_share(test_share)
        self._generator = as_generator(generator)
        listed = source.all_tasks
        self._list = None if listed is None else source.split_list(self._share)[side]
        if self._list == []:
            raise ValueError(
                f"none of the {len(listed or ())} tasks is on the side {side!r} with test_share={self._share:g}; give "
                "more tasks"
            )

    @property
    def n_tasks(self) -> int | None:
        """Tasks on this side of a list; ``None`` where they are drawn without end."""
        return None if self._list is None else len(self._list)

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """A list of ``n_tasks`` updates.

        Args:
            n_tasks: How many.
            with_replacement: Whether a task may come up again before all others of a list did, or twice in a call.
        """
        count = check_whole("n_tasks", n_tasks, 0)
        if self._list is not None:
            chosen = sample_indices(count, len(self._list), with_replacement, self._generator)
            return [self._source.update(self._list[i]) for i in chosen]
        tasks: list[Any] = []
        seen: set[Any] = set()
        what = f"tasks on the side {self._side!r}"
        with self._source.drawing() as draw:
            blocks = _blocks(draw, self._generator, what, lambda: len(tasks))
            while len(tasks) < count:
                for task in next(blocks):
                    again = not with_replacement and task_key(task) in seen
                    if len(tasks) < count and not again and task_side(task, self._share) == self._side:
                        seen.add(task_key(task))
                        tasks.append(task)
        return [self._source.update(task) for task in tasks]


def draw_split(
    source: TaskSource, num_train: int, num_test: int, test_share: float, generator: np.random.Generator, name: str
) -> tuple[list[Any], list[Any]]:
    """Distinct training and held-out tasks; asking for more leaves those that were there before as they were.

    Args:
        source: Where they come from.
        num_train: Number of training tasks.
        num_test: Number of held-out tasks.
        test_share: Share of all tasks that is held out.
        generator: Source of randomness.
        name: What errors call the source.
    """
    wanted = {"train": num_train, "test": num_test}
    found: dict[str, dict[Any, Any]] = {"train": {}, "test": {}}
    listed = source.all_tasks
    if listed is not None:
        for side, tasks in source.split_list(test_share).items():
            found[side] = {task_key(task): task for task in tasks}
        for side, count in wanted.items():
            if len(found[side]) < count:
                raise ValueError(
                    f"{name} has {len(found['train'])} training and {len(found['test'])} held-out tasks with "
                    f"test_share={test_share:g}, too few for num_{side}={count}; ask for fewer, or list more tasks"
                )
    else:
        with source.drawing() as draw:
            blocks = _blocks(draw, generator, f"tasks of {name}", lambda: sum(map(len, found.values())))
            while any(len(found[side]) < count for side, count in wanted.items()):
                for task in next(blocks):
                    found[task_side(task, test_share)].setdefault(task_key(task), task)
    train, test = (list(found[side].values())[:count] for side, count in wanted.items())
    return train, test


def draw_distinct(source: TaskSource, num_tasks: int, generator: np.random.Generator, name: str) -> list[Any]:
    """``num_tasks`` tasks that differ from one another, asked for all at once: environments may spread them evenly."""
    tasks: dict[Any, Any] = {}
    with source.drawing() as draw:
        for _ in range(_IDLE_BLOCKS):
            for task in draw(num_tasks - len(tasks), generator):
                tasks.setdefault(task_key(task), task)
            if len(tasks) == num_tasks:
                return list(tasks.values())
    raise ValueError(
        f"{name} must have {num_tasks} different tasks for this split, found {len(tasks)}; "
        "ask for fewer training or test tasks"
    )


def _blocks(draw: Draw, generator: np.random.Generator, what: str, count: Callable[[], int]) -> Iterator[list[Any]]:
    """Blocks of tasks, until many in a row have not brought ``count()`` forward."""
    idle, before = 0, -1
    while idle < _IDLE_BLOCKS:
        idle, before = (idle + 1 if count() == before else 0), count()
        yield list(draw(_BLOCK, generator))
    raise ValueError(
        f"there seem to be no more than {before} different {what}; ask for fewer, or let more of their values vary"
    )
