"""``metrics.jsonl``: one line per number, in long format, appended once per epoch."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metaroll.data.doors.budget import Budget
from metaroll.data.doors.json_files import json_lines
from metaroll.data.doors.plain_files import at_line, damage, read_bytes
from metaroll.data.folders.atomic_files import named_errors
from metaroll.data.folders.kinds import METRICS_FILE
from metaroll.data.folders.links import append_to, truncate_to
from metaroll.errors import DamagedFileError
from metaroll.training.store.files import to_plain
from metaroll.training.store.loggers import LoggerGroup, MetricLogger, MetricRow

__all__ = ["FILE_NAME", "MetricsLog", "check_row", "read_metrics", "scalar"]

FILE_NAME = METRICS_FILE
_ENTRIES: Mapping[str, tuple[type, ...]] = {
    "iteration": (int,),
    "env_steps": (int,),
    "phase": (str,),
    "task": (str, type(None)),
    "metric": (str,),
    "value": (int, float, str, type(None)),
}
_MOST_BYTES = 2**30
_FACTOR = 16
"""Metrics may take this many times the size of their file in any case."""
_NONFINITE = {None: math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def scalar(name: str, value: Any) -> int | float:
    """``value`` as a Python number; arrays and tensors with one entry count as one."""
    if isinstance(value, bool | int):
        return int(value)
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"metric {name!r} must be one number, got {value!r}; log e.g. its mean") from error
    return number


class MetricsLog:
    """Appends lines ``{"iteration", "env_steps", "phase", "task", "metric", "value"}`` to a run's ``metrics.jsonl``.

    Lines are kept in memory until ``flush``, which writes them with one call: an epoch is in the file or it is not.
    NaN is written as ``null``, infinities as ``"Infinity"`` and ``"-Infinity"``; ``read_metrics`` turns them back.

    Args:
        run_dir: Folder of the run; ``None`` keeps nothing.
        loggers: Receivers of every number that has been written.
    """

    def __init__(self, run_dir: str | Path | None, loggers: Sequence[MetricLogger] = ()) -> None:
        self._path = None if run_dir is None else Path(run_dir) / FILE_NAME
        self._pending: list[str] = []
        self._rows: list[MetricRow] = []
        self.loggers = LoggerGroup(loggers)

    @property
    def offset(self) -> int:
        """Bytes in the file: a snapshot records them, and later lines are cut off on resume."""
        if self._path is None or not self._path.exists():
            return 0
        return self._path.stat().st_size

    def append(
        self, iteration: int, env_steps: int, phase: str, metrics: Mapping[str, Any], task: str | None = None
    ) -> None:
        """Add one line per entry of ``metrics`` (name -> number)."""
        if self._path is None:
            return
        head = {"iteration": iteration, "env_steps": env_steps, "phase": phase, "task": task}
        for name, value in metrics.items():
            number = scalar(name, value)
            line = {**head, "metric": name, "value": to_plain(number)}
            self._pending.append(json.dumps(line, allow_nan=False) + "\n")
            if self.loggers.all:
                self._rows.append(MetricRow(iteration, env_steps, phase, task, name, number))

    def flush(self) -> int:
        """Write pending lines; returns the new ``offset``."""
        if self._path is None:
            return 0
        if self._pending:
            offset = self.offset
            try:
                with named_errors(self._path), append_to(self._path) as file:
                    file.write("".join(self._pending).encode())
                    file.flush()
                    os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):  # no half line, and nothing twice if it is tried again
                    truncate_to(self._path, offset)
                raise
            self._pending.clear()
            rows, self._rows = self._rows, []
            self.loggers.write(rows)
        return self.offset

    def truncate(self, offset: int) -> None:
        """Discard pending lines and everything after ``offset`` bytes."""
        self._pending.clear()
        self._rows.clear()
        if self._path is not None and self.offset > offset:
            truncate_to(self._path, offset)


def read_metrics(run_dir: str | Path, *, phase: str | None = None, metric: str | None = None) -> list[dict[str, Any]]:
    """Lines of a run's ``metrics.jsonl`` in order, perhaps of one phase or metric only.

    A last line without its end (the run was killed while it wrote) is left out.
    """
    path = Path(run_dir)
    path = path / FILE_NAME if path.is_dir() else path
    if not os.path.lexists(path):
        raise FileNotFoundError(f"{path} does not exist: {run_dir} holds no metrics (yet)")
    rows = []
    with damage(path, hint="restore it from a copy"):
        data = read_bytes(path, _MOST_BYTES)
        for number, row in json_lines(data, Budget.of_file(len(data), _FACTOR)):
            with at_line(number):
                check_row(row)
            if row["value"] is None or isinstance(row["value"], str):
                row["value"] = _NONFINITE[row["value"]]
            if phase in (None, row["phase"]) and metric in (None, row["metric"]):
                rows.append(row)
    return rows


def check_row(row: Mapping[str, Any]) -> None:
    """Error unless a line of ``metrics.jsonl`` has all entries, each of its type.

    Raises:
        DamagedFileError: It has not; names the entry.
    """
    for name, kinds in _ENTRIES.items():
        if name not in row or not isinstance(row[name], kinds) or isinstance(row[name], bool):
            raise DamagedFileError(f"it is damaged: {name} is {str(row.get(name, 'missing'))[:80]!r}")
    if isinstance(row["value"], str) and row["value"] not in _NONFINITE:
        raise DamagedFileError(f"it is damaged: value is {row['value'][:80]!r}")
