"""What every worker of a pool is doing, as data and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["WorkerStatus", "format_workers"]


class WorkerStatus(NamedTuple):
    """What one worker is doing.

    ``pid`` is 0 for the process itself, and for a worker that does not run. ``phase`` is ``off`` (not started yet, or
    ended), ``idle``, or what it does: ``start``, ``call`` (a function), ``reset`` or ``step`` (of environments),
    ``send`` (its results). ``what`` names the work, ``silent_s`` the seconds since its last sign of life, ``stopped``
    whether the operating system has stopped it, and ``restarts`` how often it was replaced.
    """

    worker: int
    pid: int
    phase: str
    what: str
    silent_s: float
    stopped: bool
    restarts: int


def format_workers(workers: Sequence[WorkerStatus]) -> str:
    """A table with one line per worker, for logs and error messages."""
    head = ("worker", "pid", "phase", "silent", "restarts", "work")
    rows: list[tuple[str, ...]] = [head]
    for status in workers:
        phase = f"{status.phase} (stopped)" if status.stopped else status.phase
        silent = "-" if status.phase == "off" else f"{status.silent_s:.1f} s"
        pid = str(status.pid) if status.pid else "-"
        rows.append((str(status.worker), pid, phase, silent, str(status.restarts), status.what or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
