"""The values of a task: a canonical form, by which tasks are compared, split and looked up, its numbers, a text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

__all__ = ["refuse_nan", "task_key", "task_numbers", "task_text"]

_MOST_SHOWN = 4
"""Of more entries of a task, or numbers of an entry, the first are in its text."""


def task_key(task: Any) -> Hashable:
    """The canonical form of ``task``: equal exactly where tasks hold the same values.

    It is a text, the same in every process and on every machine: ``{"goal": np.array([0.0, 1.0])}`` and
    ``{"goal": (False, 1)}`` both give ``"{'goal':[0,1]}"``. Objects are written as their class and attributes.

    Only where something in the task has no values that could be written down (a function, a class) is it a tuple of
    the text and these things, which are compared by their own ``==``, or by identity if they are not hashable.
    """
    unwritable: list[Hashable] = []
    try:
        text = _text(task, unwritable)
    except RecursionError:  # it holds itself
        return _by_itself(task)
    return text if not unwritable else (text, *unwritable)


def _text(task: Any, unwritable: list[Hashable]) -> str:
    """The text of ``task``; objects that cannot be written go to ``unwritable``."""
    task = _plain(task)
    if task is None or isinstance(task, str | bytes):
        return repr(task)
    if isinstance(task, int | float):
        number = float(task)
        return repr(int(task)) if number.is_integer() else repr(number)
    if isinstance(task, Mapping):
        entries = sorted(((str(name), value) for name, value in task.items()), key=lambda entry: entry[0])
        return "{" + ",".join(f"{name!r}:{_text(value, unwritable)}" for name, value in entries) + "}"
    if isinstance(task, list | tuple):
        return "[" + ",".join(_text(entry, unwritable) for entry in task) + "]"
    values = _values_of(task)
    if values is None:
        unwritable.append(_by_itself(task))
        return "?"
    return f"{type(task).__qualname__}{_text(values, unwritable)}"


def _plain(task: Any) -> Any:
    """Arrays and tensors as lists and numbers."""
    if isinstance(task, torch.Tensor):
        return task.detach().cpu().tolist()
    return task.tolist() if isinstance(task, np.ndarray | np.generic) else task


def _by_itself(task: Any) -> Hashable:
    try:
        hash(task)
    except TypeError:
        return ("object", id(task))
    return task


def task_numbers(task: Any) -> dict[str, float]:
    """Name -> value of all numbers in ``task``: ``{"goal": [0, 1]}`` gives ``{"goal[0]": 0.0, "goal[1]": 1.0}``."""
    numbers: dict[str, float] = {}
    _collect(task, "", numbers)
    return numbers


def _collect(task: Any, name: str, numbers: dict[str, float]) -> None:
    task = _plain(task)
    if isinstance(task, bool | int | float):
        numbers[name or "task"] = float(task)
    elif isinstance(task, Mapping):
        for key, value in task.items():
            _collect(value, f"{name}.{key}" if name else str(key), numbers)
    elif isinstance(task, list | tuple):
        for position, value in enumerate(task):
            _collect(value, f"{name}[{position}]", numbers)
    elif task is not None and not isinstance(task, str | bytes):
        values = _values_of(task)
        if values is not None:
            _collect(values, name, numbers)


def task_text(task: Any) -> str:
    """``task`` for a reader, in a few words: ``velocity=1.42``, ``goal=(0.31, 0.95)``, ``g=9.81, m=1.2``.

    Numbers have three significant digits; of many values the first are named, and ``… (+N)`` counts the others. A task
    whose class has its own ``__str__`` is shown by that; ``None`` by an empty text.
    """
    task = _plain(task)
    if task is None:
        return ""
    values = None if isinstance(task, str) or _has_own_text(task) else _entries_of(task)
    if not values:
        return _value_text(task)
    return _listed([f"{name}={_value_text(value)}" for name, value in list(values.items())[:_MOST_SHOWN]], len(values))


def _listed(shown: Sequence[str], count: int) -> str:
    return ", ".join(shown) + (f", … (+{count - len(shown)})" if count > len(shown) else "")


def _value_text(value: Any) -> str:
    value = _plain(value)
    if isinstance(value, str) or (value is not None and _has_own_text(value)):
        return str(value)
    if isinstance(value, int | float):
        return str(value) if isinstance(value, int) else f"{value + 0.0:.3g}"
    if isinstance(value, list | tuple):
        return f"({_listed([_value_text(entry) for entry in value[:_MOST_SHOWN]], len(value))})"
    values = None if value is None else _entries_of(value)
    if values:
        return f"({task_text(value)})"
    return "none" if value is None else getattr(value, "__qualname__", None) or repr(value)


def _has_own_text(task: Any) -> bool:
    """Whether the class of ``task`` has its own text for it."""
    return (
        not isinstance(task, int | float | bytes | list | Mapping | type) and type(task).__str__ is not object.__str__
    )


def _entries_of(task: Any) -> Mapping[str, Any] | None:
    return task if isinstance(task, Mapping) else None if isinstance(task, list | tuple) else _values_of(task)


def _values_of(task: Any) -> dict[str, Any] | None:
    """The attributes of an object, which are its values."""
    if dataclasses.is_dataclass(task) and not isinstance(task, type):
        return {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    if isinstance(task, type) or callable(task) or not hasattr(task, "__dict__"):
        return None
    values = dict(vars(task))
    # Objects with their own equality (e.g. a subclass of datetime) keep their values elsewhere than in attributes.
    return values if values or type(task).__eq__ is object.__eq__ else None


def refuse_nan(name: str, task: Any) -> None:
    """Raise unless ``task`` is without NaN, which equals nothing; ``name`` is what the message calls it.

    Raises:
        ValueError: A number in it is NaN.
    """
    wrong = next((number for number, value in task_numbers(task).items() if math.isnan(value)), None)
    if wrong is not None:
        where = "" if wrong == "task" else f" ({wrong} is NaN)"
        raise ValueError(f"{name} must be without NaN, which equals nothing, got {task!r}{where}")
