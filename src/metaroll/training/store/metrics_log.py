"""``metrics.jsonl``: one line per number, in long format, appended once per epoch."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metaroll.data.folders.atomic_files import named_errors
from metaroll.data.folders.kinds import METRICS_FILE
from metaroll.data.folders.links import append_to, truncate_to
from metaroll.training.store.files import to_plain
from metaroll.training.store.loggers import LoggerGroup, MetricLogger, MetricRow

__all__ = ["FILE_NAME", "MetricsLog", "read_metrics", "scalar"]

FILE_NAME = METRICS_FILE
_NONFINITE = {None: math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def scalar(name: str, value: Any) -> int | float:
    """``value`` as a Python number; arrays and tensors with one entry count as one."""
    if isinstance(value, bool | int):
        return int(value)
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"metric {name!r} must be one number, got {value!r}; log its mean, say") from error
    return number


class MetricsLog:
    """Appends lines ``{"iteration", "env_steps", "phase", "task", "metric", "value"}`` to a run's ``metrics.jsonl``.

    Lines are kept in memory until ``flush``, which writes them with one call: an epoch is in the file or it is not.
    NaN is written as ``null``, infinities as ``"Infinity"`` and ``"-Infinity"``; ``read_metrics`` turns them back.

    Args:
        run_dir: Folder of the run; ``None`` keeps nothing.
        loggers: Who gets every number that has been written.
    """

    def __init__(self, run_dir: str | Path | None, loggers: Sequence[MetricLogger] = ()) -> None:
        self._path = None if run_dir is None else Path(run_dir) / FILE_NAME
        self._pending: list[str] = []
        self._rows: list[MetricRow] = []
        self.loggers = LoggerGroup(loggers)

    @property
    def offset(self) -> int:
        """Bytes in the file: a snapshot remembers them, and what comes later is cut off when it is resumed."""
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
        """Write what is pending; the new ``offset``."""
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
        """Forget what is pending and everything behind ``offset`` bytes."""
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
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: {run_dir} holds no metrics (yet)")
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break
        try:
            row = json.loads(line)
            if row["value"] is None or isinstance(row["value"], str):
                row["value"] = _NONFINITE[row["value"]]
            names = row["phase"], row["metric"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} of {path} is damaged: {line[:80]!r}") from error
        if phase in (None, names[0]) and metric in (None, names[1]):
            rows.append(row)
    return rows
