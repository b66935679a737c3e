"""Numbered runs of a function until there are enough samples, whatever the number of workers."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaroll.rollouts.workers.messages import call_numbered, encode_command
from metaroll.rollouts.workers.schedule import Job, Schedule

__all__ = ["NumberedRuns"]


class NumberedRuns:
    """Makes jobs for runs 1, 2, 3, ... of an encoded command, and finds the first that suffice.

    Args:
        command: The function with its arguments (``encode_command``); it returns ``(result, number of samples)``.
        name: Name of the function.
        n: Least number of samples.
        min_runs: Least number of runs; ``None`` means 1.
        bar: A tqdm bar for the samples, or ``None``.
    """

    def __init__(self, command: bytes, name: str, n: int, min_runs: int | None, bar: Any) -> None:
        self._command, self._name, self._bar = command, name, bar
        self._need = _at_least_one("n", n)
        self._least = 1 if min_runs is None else _at_least_one("min_runs", min_runs)
        self._started = self._collected = 0
        if bar is not None:
            bar.total = self._need

    def more(self) -> Job | None:
        """The next run, or ``None`` if those that were started suffice."""
        # Enough as soon as any finished runs are: with those before them, still running, there is no less.
        if self._collected >= self._need and self._started >= self._least:
            return None
        self._started += 1
        what = f"{self._name}, run {self._started}"
        return Job(self._started, encode_command(call_numbered, (self._command, self._started), {}, what), what)

    def done(self, job: Job, result: tuple[Any, int]) -> None:
        """A run has ended."""
        shown = min(self._collected, self._need)
        self._collected += result[1]
        if self._bar is not None:
            self._bar.update(min(self._collected, self._need) - shown)

    def kept(self, schedule: Schedule) -> tuple[list[Any], int]:
        """Results of the shortest sequence of first runs that suffices, and their number of samples.

        Raises:
            Exception: What a run raised that is needed.
        """
        results: list[Any] = []
        total = 0
        while total < self._need or len(results) < self._least:
            if len(results) + 1 not in schedule.results:
                raise schedule.first_failure()
            result, count = schedule.results[len(results) + 1]
            results.append(result)
            total += count
        return results, total


def _at_least_one(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)
