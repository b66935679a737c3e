"""The overlap check: does a held-out task occur in training, and how far are the others from it?"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from metaroll.checks import check_list
from metaroll.errors import TaskOverlapError, counted
from metaroll.tasks.task_key import refuse_nan, task_key, task_numbers
from metaroll.types import EnvUpdate

__all__ = ["SplitReport", "check_split", "find_overlaps"]

_NEAR = 1e-6
"""Tasks within this distance are the same but for rounding."""


@dataclass(frozen=True)
class SplitReport:
    """Overlaps of and distances between training tasks and held-out tasks.

    Distances are root mean squares over the numbers of a task, each in units of its standard deviation over all tasks;
    they are NaN for tasks that do not all hold the same numbers, or too few of them.

    Attributes:
        num_train: Number of training tasks.
        num_test: Number of held-out tasks.
        overlaps: Pairs ``(held-out, training)`` of positions of equal tasks.
        near: The same of tasks that differ only by rounding.
        nearest: Smallest distance of a held-out task from the training tasks.
        median: Median over the held-out tasks of the distance from the nearest training task.
        median_in_training: The same among the training tasks: what a fair split gives, too.
    """

    num_train: int
    num_test: int
    overlaps: tuple[tuple[int, int], ...]
    near: tuple[tuple[int, int], ...]
    nearest: float
    median: float
    median_in_training: float

    def __str__(self) -> str:
        text = f"{self.num_train} training and {self.num_test} held-out tasks"
        if self.overlaps:
            text += f", {counted(len(self.overlaps), 'held-out task')} among the training tasks"
        else:
            text += ", disjoint"
        if self.near:
            text += f", {counted(len(self.near), 'held-out task')} the same as a training task but for rounding"
        if np.isfinite(self.median):
            text += (
                f"; the nearest training task is {self.median:.2g} standard deviations away (median; smallest "
                f"{self.nearest:.2g}; among training tasks {self.median_in_training:.2g})"
            )
        return text

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return asdict(self)


def check_split(
    train_tasks: Sequence[Any], test_tasks: Sequence[Any], *, overlap: Literal["refuse", "warn", "accept"] = "refuse"
) -> SplitReport:
    """A report of overlaps and distances; held-out tasks that occur in training are refused, or warned of.

    Values are compared exactly. Held-out tasks that differ from a training task by rounding alone are warned of. NaN is
    refused, since it equals nothing.

    Args:
        train_tasks: Tasks, or updates that set them.
        test_tasks: The same.
        overlap: Treatment of equal tasks: ``"refuse"`` raises a ``TaskOverlapError``; ``"accept"`` only reports
            them (and those that differ by rounding), for families that are tested on their training tasks.

    Raises:
        TaskOverlapError: A held-out task is a training task, and ``overlap`` is ``"refuse"``.
        ValueError: A list is empty, or a task holds NaN.
    """
    if overlap not in ("refuse", "warn", "accept"):
        raise ValueError(f"overlap must be 'refuse', 'warn' or 'accept', got {overlap!r}")
    train, test = _tasks_of("train_tasks", train_tasks), _tasks_of("test_tasks", test_tasks)
    overlaps = find_overlaps(train, test)
    distances = _distances(train, test)
    report = SplitReport(len(train), len(test), overlaps, _near(distances, overlaps), *_summary(distances, train))
    if overlap == "accept":
        return report
    if overlaps:
        i, j = overlaps[0]
        message = (
            f"{counted(len(overlaps), 'held-out task')} of {len(test)} among the training tasks: held-out task {i} is "
            f"training task {j}: {test[i]!r}; take both lists from one TaskFamily.split()"
        )
        if overlap == "refuse":
            raise TaskOverlapError(message)
        warnings.warn(message, stacklevel=2)
    elif report.near:
        i, j = report.near[0]
        warnings.warn(
            f"{counted(len(report.near), 'held-out task')} of {len(test)} differ from a training task by rounding "
            f"alone: held-out task {i} is {test[i]!r}, training task {j} is {train[j]!r}",
            stacklevel=2,
        )
    return report


def find_overlaps(train_tasks: Sequence[Any], test_tasks: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Pairs ``(held-out, training)`` of positions of equal tasks, by ``task_key``; the first of equal training tasks.

    Args:
        train_tasks: Tasks.
        test_tasks: Held-out tasks.
    """
    known = {task_key(task): i for i, task in reversed(list(enumerate(train_tasks)))}
    keys = [task_key(task) for task in test_tasks]
    return tuple((i, known[key]) for i, key in enumerate(keys) if key in known)


def _tasks_of(name: str, entries: Sequence[Any]) -> list[Any]:
    entries = check_list(name, entries, "tasks")
    tasks = [entry.task if isinstance(entry, EnvUpdate) else entry for entry in entries]
    if not tasks:
        raise ValueError(f"{name} must hold at least one task, got none")
    for position, task in enumerate(tasks):
        refuse_nan(f"{name}[{position}]", task)
    return tasks


def _distances(train: Sequence[Any], test: Sequence[Any]) -> np.ndarray | None:
    """Distances ``(num_test + num_train, num_train)``, or ``None`` for tasks without the same numbers."""
    numbers = [task_numbers(task) for task in [*test, *train]]
    if not numbers[0] or any(entry.keys() != numbers[0].keys() for entry in numbers):
        return None
    table = np.array([[entry[name] for name in numbers[0]] for entry in numbers])
    if not np.isfinite(table).all():
        return None
    spread = table.std(axis=0)
    varying = spread > 0
    if not varying.any():
        return None
    table = table[:, varying] / spread[varying]
    from scipy.spatial.distance import cdist  # loads slowly, and few runs need it

    return cdist(table, table[len(test) :]) / np.sqrt(table.shape[1])


def _near(distances: np.ndarray | None, overlaps: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    if distances is None:
        return ()
    equal = {i for i, _ in overlaps}
    num_test = len(distances) - distances.shape[1]
    pairs = ((i, int(distances[i].argmin())) for i in range(num_test) if i not in equal)
    return tuple((i, j) for i, j in pairs if distances[i, j] <= _NEAR)


def _summary(distances: np.ndarray | None, train: Sequence[Any]) -> tuple[float, float, float]:
    if distances is None:
        return float("nan"), float("nan"), float("nan")
    from_test, among = distances[: -len(train)].min(axis=1), distances[-len(train) :].copy()
    np.fill_diagonal(among, np.inf)
    within = float(np.median(among.min(axis=1))) if len(train) > 1 else float("nan")
    return float(from_test.min()), float(np.median(from_test)), within
