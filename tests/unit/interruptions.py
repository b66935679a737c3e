"""Ctrl-C before any line of the library, and workers that are quick to replace; for tests of what is left then."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from metaroll.rollouts.workers.messages import Event, GlobalNamespace, run_command
from metaroll.rollouts.workers.transports import Health


def is_interrupted(
    call: Callable[[], object], at: int, modules: tuple[str, ...], error: type[BaseException] = KeyboardInterrupt
) -> bool:
    """Whether ``call()`` ended with ``error``, which is raised before line number ``at``, if it has so many.

    Args:
        call: Run once.
        at: Which of the lines that are run in ``modules``, counted from 1.
        modules: Parts of their paths, such as ``"/rollouts/engine/"``.
        error: What is raised; any other error fails the test, as does one that is lost.
    """
    lines = 0

    def count(_: Any) -> None:
        nonlocal lines
        lines += 1
        if lines == at:
            raise error

    try:
        _traced(call, modules, count)
    except error:
        return True
    assert lines < at, "the error was lost"
    return False


def last_times(call: Callable[[], object], modules: tuple[str, ...]) -> list[int]:
    """For each line of ``modules`` that ``call()`` runs: the number, from 1, of the last time among all lines run."""
    lines: list[tuple[str, int]] = []
    _traced(call, modules, lambda frame: lines.append((frame.f_code.co_filename, frame.f_lineno)))
    return sorted({line: number for number, line in enumerate(lines, start=1)}.values())


def _traced(call: Callable[[], object], modules: tuple[str, ...], on_line: Callable[[Any], None]) -> None:
    @functools.cache
    def is_traced(path: str) -> bool:
        return any(part in path.replace(os.sep, "/") for part in modules)

    def trace(frame: Any, event: str, _: Any) -> Any:
        if not is_traced(frame.f_code.co_filename):
            return None
        if event == "line":
            on_line(frame)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)


class NamespaceTransport:
    """Workers that are namespaces of this process, whose lines are not traced; in place of ``ProcessTransport``."""

    living = 0

    def __init__(self, num_workers: int, folder: str | None = None) -> None:
        self.num_workers, self.starts = num_workers, [0] * num_workers
        self._namespaces: dict[int, GlobalNamespace] = {}
        self._sent: list[tuple[int, bytes]] = []

    def start(self) -> None:
        for worker in range(self.num_workers):
            self.restart(worker)

    def send(self, worker: int, blob: bytes) -> None:
        if worker not in self._namespaces:
            self.restart(worker)
        self._sent.append((worker, blob))

    def wait(self, timeout: float) -> list[Event]:
        (worker, blob), *self._sent = self._sent
        before = sys.gettrace()
        sys.settrace(None)
        try:
            kind, parts = run_command(self._namespaces[worker], blob)
        finally:
            sys.settrace(before)
        return [Event(worker, kind, [bytes(part) for part in parts])]

    def health(self, worker: int) -> Health:
        return Health("call", 0.0, False, 0)

    def restart(self, worker: int) -> None:
        type(self).living += worker not in self._namespaces
        self._namespaces[worker] = GlobalNamespace(lambda phase: None)
        self.starts[worker] += 1

    def close(self) -> None:
        type(self).living -= len(self._namespaces)
        self._namespaces.clear()
        self._sent.clear()
