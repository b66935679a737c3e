"""Which tasks are for training and which are held out: decided by a hash of their values, task by task.

A task stays on its side whatever the seed, however many tasks are drawn, and whatever is added to the set later.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

__all__ = ["Side", "check_test_share", "split_list", "task_numbers", "task_side", "task_text"]

Side = Literal["train", "test"]


def check_test_share(test_share: Any) -> float:
    """``test_share`` as a number between 0 and 1."""
    is_number = isinstance(test_share, int | float | np.number) and not isinstance(test_share, bool)
    if not is_number or not 0.0 < test_share < 1.0:
        raise ValueError(f"test_share must be a share of the tasks, above 0 and below 1 (0.2, say), got {test_share!r}")
    return float(test_share)


def task_side(task: Any, test_share: float) -> Side:
    """``"test"`` for about ``test_share`` of all tasks, the same ones everywhere and for ever; else ``"train"``.

    Tasks are equal here exactly where they hold the same values, as in ``tasks.updates.task_key``.

    Args:
        task: Numbers, texts, arrays, and dicts, lists and objects of them.
        test_share: Share of the tasks that is held out.
    """
    return "test" if _place(task) < test_share * 2.0**64 else "train"


def split_list(tasks: Iterable[Any], test_share: float) -> dict[Side, list[Any]]:
    """All tasks of a list by side, those that ``task_side`` says.

    Where it would leave a side empty, the task whose hash lies nearest to the border goes there, so that there is
    something to train in and something held out wherever two tasks differ. In a list that grows until the hash fills
    that side, this task goes back.

    Args:
        tasks: The list.
        test_share: Share of all tasks that is held out.
    """
    places = [(_place(task), task) for task in tasks]
    border = test_share * 2.0**64
    lowest, highest = min(place for place, _ in places), max(place for place, _ in places)
    if lowest < highest:
        if lowest >= border:
            border = lowest + 1
        elif highest < border:
            border = highest
    sides: dict[Side, list[Any]] = {"train": [], "test": []}
    for place, task in places:
        sides["test" if place < border else "train"].append(task)
    return sides


def _place(task: Any) -> int:
    """Where the hash of a task lies, from 0 to 2^64."""
    return int.from_bytes(hashlib.sha256(task_text(task).encode()).digest()[:8], "big")


def task_text(task: Any) -> str:
    """A text of the values of ``task``, the same in every process and on every machine.

    Raises:
        TypeError: Something in it has no values that could be written down.
    """
    if isinstance(task, np.ndarray | np.generic):
        task = task.tolist()
    if task is None or isinstance(task, str | bytes):
        return repr(task)
    if isinstance(task, int | float):
        number = float(task)
        return repr(int(task)) if number.is_integer() else repr(number)
    if isinstance(task, Mapping):
        entries = sorted((str(name), task_text(value)) for name, value in task.items())
        return "{" + ",".join(f"{name!r}:{text}" for name, text in entries) + "}"
    if isinstance(task, list | tuple):
        return "[" + ",".join(map(task_text, task)) + "]"
    values = _values_of(task)
    if values is None:
        raise TypeError(
            f"a task must consist of numbers, texts, arrays, and dicts, lists and objects of them, so that its values "
            f"say on which side of the split it is, got {task!r} of type {type(task).__name__}"
        )
    return f"{type(task).__qualname__}{task_text(values)}"


def task_numbers(task: Any) -> dict[str, float]:
    """Name -> value of all numbers in ``task``: ``{"goal": [0, 1]}`` gives ``{"goal[0]": 0.0, "goal[1]": 1.0}``."""
    found: dict[str, float] = {}
    _collect(task, "", found)
    return found


def _collect(task: Any, name: str, found: dict[str, float]) -> None:
    if isinstance(task, np.ndarray | np.generic):
        task = task.tolist()
    if isinstance(task, bool | int | float):
        found[name or "task"] = float(task)
    elif isinstance(task, Mapping):
        for key, value in task.items():
            _collect(value, f"{name}.{key}" if name else str(key), found)
    elif isinstance(task, list | tuple):
        for position, value in enumerate(task):
            _collect(value, f"{name}[{position}]", found)
    elif task is not None and not isinstance(task, str | bytes):
        values = _values_of(task)
        if values is not None:
            _collect(values, name, found)


def _values_of(task: Any) -> dict[str, Any] | None:
    if dataclasses.is_dataclass(task) and not isinstance(task, type):
        return {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    if isinstance(task, type) or callable(task) or not hasattr(task, "__dict__"):
        return None
    return dict(vars(task))
