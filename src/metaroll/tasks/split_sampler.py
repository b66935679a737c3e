"""Splits the tasks of any sampler into training tasks and held-out tasks: a hash of its values decides, task by task.

A task stays on its side for any seed, for any number of drawn tasks, and after additions to a list.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from metaroll.checks import check_fraction, check_instance, check_whole
from metaroll.seeding import as_generator
from metaroll.tasks.finite_samplers import sample_indices
from metaroll.tasks.task_key import task_key
from metaroll.tasks.task_sampler import Draw, TaskSampler
from metaroll.types import EnvUpdate

__all__ = [
    "Side",
    "SplitTaskSampler",
    "check_test_share",
    "check_test_tasks",
    "draw_distinct",
    "draw_more",
    "draw_split",
    "split_list",
    "task_side",
]

Side = Literal["train", "test"]

_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
_BLOCK = 64
"""Tasks are drawn in blocks of one size, so that those drawn first do not depend on how many are wanted."""
_LARGEST_BLOCK = 1 << 14
_IDLE_BLOCKS = 20
"""Blocks without a new task after which there seem to be no more."""


def check_test_share(test_share: Any) -> float:
    """``test_share``, the share of all tasks that is held out, as a number between 0 and 1.

    Raises:
        TypeError: It is not a number.
        ValueError: It lies outside (0, 1).
    """
    return check_fraction("test_share", test_share)


def task_side(task: Any, test_share: float) -> Side:
    """``"test"`` for about ``test_share`` of all tasks, the same ones everywhere and for ever; else ``"train"``.

    Args:
        task: Numbers, texts, arrays, and dicts, lists and objects of them; equal tasks (``task_key``) are on one side.
        test_share: Share of the tasks that is held out.

    Raises:
        TypeError: Something in the task has no values that could be written down.
    """
    return "test" if _place(task) < test_share * 2.0**64 else "train"


def _place(task: Any) -> int:
    """Hash of a task, from 0 to 2^64."""
    key = task_key(task)
    if not isinstance(key, str):
        raise TypeError(
            f"a task must consist of numbers, texts, arrays, and dicts, lists and objects of them, so that its values "
            f"decide on which side of the split it is, got {task!r} of type {type(task).__name__}"
        )
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


def split_list(
    updates: Iterable[EnvUpdate], test_share: float, test_tasks: Iterable[Any] | None = None
) -> dict[Side, list[EnvUpdate]]:
    """All updates of a list by the side that their task is on.

    Where ``task_side`` would leave a side empty, the task whose hash is nearest to the border goes there, so that there
    is something to train in and something held out wherever two tasks differ. When the list grows until the hash fills
    that side, this task goes back.

    Args:
        updates: The list.
        test_share: Share of all tasks that is held out.
        test_tasks: The tasks that are held out, instead of those of the hash.
    """
    sides: dict[Side, list[EnvUpdate]] = {"train": [], "test": []}
    if test_tasks is not None:
        held_out = set(map(task_key, test_tasks))
        for update in updates:
            sides["test" if task_key(update.task) in held_out else "train"].append(update)
        return sides
    places = [(_place(update.task), update) for update in updates]
    border = test_share * 2.0**64
    lowest, highest = min(place for place, _ in places), max(place for place, _ in places)
    if lowest < highest:
        if lowest >= border:
            border = lowest + 1
        elif highest < border:
            border = highest
    for place, update in places:
        sides["test" if place < border else "train"].append(update)
    return sides


def check_test_tasks(sampler: TaskSampler, test_tasks: Any) -> list[Any]:
    """``test_tasks`` as a list, if they are some of the tasks of a sampler that has a list of them.

    Raises:
        TypeError: They are not a list.
        ValueError: One of them is not in the list, or there is none.
    """
    if sampler.updates is None:
        raise ValueError(
            "test_tasks must be some of a list of tasks, but here tasks are drawn, and a hash of each decides on "
            "which side it is; set how many are held out with test_share"
        )
    if isinstance(test_tasks, str) or not isinstance(test_tasks, Iterable):
        raise TypeError(f"test_tasks must be a list of tasks, got {test_tasks!r}")
    listed, chosen = [update.task for update in sampler.updates], list(test_tasks)
    known = set(map(task_key, listed))
    unknown = next((task for task in chosen if task_key(task) not in known), None)
    if unknown is not None:
        some = ", ".join(map(repr, listed[:6])) + ", ..." * (len(listed) > 6)
        raise ValueError(f"test_tasks must be some of the tasks, {some}, got {unknown!r}")
    return chosen


class SplitTaskSampler(TaskSampler):
    """Draws those tasks of another sampler that are on one side of the split; the two sides never meet.

    Tasks of a list come in random order, none again before all others. Of a sampler without end, new tasks are drawn
    until enough are on this side.

    Args:
        sampler: Any sampler of tasks.
        side: ``"train"`` or ``"test"``.
        test_share: Share of all tasks that is held out.
        test_tasks: The tasks of a list that are held out, instead of those of the hash.
        generator: Source of randomness; ``None`` means fresh entropy.

    Raises:
        ValueError: No task of a list is on this side.
    """

    def __init__(
        self,
        sampler: TaskSampler,
        side: Side,
        test_share: float = 0.2,
        *,
        test_tasks: Sequence[Any] | None = None,
        generator: np.random.Generator | int | None = None,
    ) -> None:
        if side not in ("train", "test"):
            raise ValueError(f"side must be 'train' or 'test', got {side!r}")
        check_instance("sampler", sampler, TaskSampler, "a TaskSampler")
        self._sampler, self._side, self._share = sampler, side, check_test_share(test_share)
        self._generator = as_generator(generator)
        held_out = None if test_tasks is None else check_test_tasks(sampler, test_tasks)
        listed = sampler.updates
        self._list = None if listed is None else split_list(listed, self._share, held_out)[side]
        if self._list == []:
            raise ValueError(
                f"none of the {len(listed or ())} tasks is on the side {side!r} with test_share={self._share:g}; give "
                "more tasks"
            )

    @property
    def n_tasks(self) -> int | None:
        """Tasks on this side of a list; ``None`` where they are drawn without end."""
        return None if self._list is None else len(self._list)

    @property
    def updates(self) -> list[EnvUpdate] | None:
        return None if self._list is None else list(self._list)

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """A list of ``n_tasks`` updates.

        Args:
            n_tasks: How many.
            with_replacement: Whether a task may come up again before all others of a list did, or twice in a call.
        """
        count = check_whole("n_tasks", n_tasks, 0)
        if self._list is not None:
            return [self._list[i] for i in sample_indices(count, len(self._list), with_replacement, self._generator)]
        chosen: list[EnvUpdate] = []
        seen: set[Any] = set()
        what = f"tasks on the side {self._side!r}"
        with self._sampler.drawing() as draw:
            blocks = _blocks(draw, self._generator, what, lambda: len(chosen))
            while len(chosen) < count:
                for update in next(blocks):
                    again = not with_replacement and task_key(update.task) in seen
                    if len(chosen) < count and not again and task_side(update.task, self._share) == self._side:
                        seen.add(task_key(update.task))
                        chosen.append(update)
        return chosen


def draw_split(
    sampler: TaskSampler,
    num_train: int,
    num_test: int,
    test_share: float,
    generator: np.random.Generator,
    name: str,
    test_tasks: Sequence[Any] | None = None,
) -> tuple[list[EnvUpdate], list[EnvUpdate]]:
    """Updates of distinct training and held-out tasks; asking for more leaves those of before as they were.

    Args:
        sampler: Any sampler of tasks.
        num_train: Number of training tasks.
        num_test: Number of held-out tasks.
        test_share: Share of all tasks that is held out.
        generator: Source of randomness.
        name: Name of the sampler in errors.
        test_tasks: The tasks of a list that are held out, instead of those of the hash.

    Raises:
        ValueError: There are fewer different tasks.
    """
    wanted = {"train": num_train, "test": num_test}
    by_side: dict[str, dict[Any, EnvUpdate]] = {"train": {}, "test": {}}
    listed = sampler.updates
    if listed is not None:
        for side, updates in split_list(listed, test_share, test_tasks).items():
            by_side[side] = {task_key(update.task): update for update in updates}
        for side, count in wanted.items():
            if len(by_side[side]) < count:
                raise ValueError(
                    f"{name} has {len(by_side['train'])} training and {len(by_side['test'])} held-out tasks with "
                    f"test_share={test_share:g}, too few for num_{side}={count}; ask for fewer, or list more tasks"
                )
    else:
        with sampler.drawing() as draw:
            blocks = _blocks(draw, generator, f"tasks of {name}", lambda: sum(map(len, by_side.values())))
            while any(len(by_side[side]) < count for side, count in wanted.items()):
                for update in next(blocks):
                    by_side[task_side(update.task, test_share)].setdefault(task_key(update.task), update)
    train, test = (list(by_side[side].values())[:count] for side, count in wanted.items())
    return train, test


def draw_distinct(sampler: TaskSampler, num_tasks: int, generator: np.random.Generator, name: str) -> list[EnvUpdate]:
    """Updates of ``num_tasks`` different tasks, asked for all at once: environments may spread them evenly.

    Raises:
        ValueError: There are fewer different tasks.
    """
    distinct: dict[Any, EnvUpdate] = {}
    with sampler.drawing() as draw:
        for _ in range(_IDLE_BLOCKS):
            for update in draw(num_tasks - len(distinct), generator):
                distinct.setdefault(task_key(update.task), update)
            if len(distinct) == num_tasks:
                return list(distinct.values())
    raise ValueError(
        f"{name} must have {num_tasks} different tasks for this split, found {len(distinct)}; "
        "ask for fewer training or test tasks"
    )


def draw_more(
    sampler: TaskSampler, num_tasks: int, known: Sequence[EnvUpdate], generator: np.random.Generator, name: str
) -> list[EnvUpdate]:
    """Updates of ``num_tasks`` further tasks, none of which is ``known``; those drawn first stay when more are wanted.

    They come in blocks, each twice as large as the one before: environments that spread their tasks evenly have others
    in each.

    Raises:
        ValueError: There are fewer different tasks.
    """
    distinct: dict[Any, EnvUpdate] = {_rounded_key(update.task): update for update in known}
    # Tasks drawn at once are distinct, even if they differ by rounding only.
    distinct |= {("known", place): update for place, update in enumerate(known[len(distinct) :])}
    size, idle = _BLOCK, 0
    with sampler.drawing() as draw:
        while len(distinct) < len(known) + num_tasks and idle < _IDLE_BLOCKS:
            before = len(distinct)
            for update in draw(size, generator):
                distinct.setdefault(_rounded_key(update.task), update)
            size, idle = min(2 * size, _LARGEST_BLOCK), (idle + 1 if len(distinct) == before else 0)
    if len(distinct) < len(known) + num_tasks:
        raise ValueError(
            f"{name} must have {len(known) + num_tasks} different tasks for this split, found {len(distinct)}; "
            "ask for fewer training or test tasks"
        )
    return list(distinct.values())[len(known) : len(known) + num_tasks]


def _rounded_key(task: Any) -> Hashable:
    """``task_key`` that is equal for numbers which differ by rounding alone, as angles of a finer grid do."""
    key = task_key(task)
    return _NUMBER.sub(lambda match: f"{float(match[0]):.10g}", key) if isinstance(key, str) else key


def _blocks(
    draw: Draw, generator: np.random.Generator, what: str, count: Callable[[], int]
) -> Iterator[list[EnvUpdate]]:
    """Blocks of updates, until many in a row have not brought ``count()`` forward."""
    idle, before = 0, -1
    while idle < _IDLE_BLOCKS:
        idle, before = (idle + 1 if count() == before else 0), count()
        yield draw(_BLOCK, generator)
    raise ValueError(
        f"there seem to be no more than {before} different {what}; ask for fewer, or let more of their values vary"
    )
