"""Trainings and other commands as children: they end in order with this process, and a file takes their output."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import final

from metaroll.processes.child_main import GRACE_SECONDS
from metaroll.processes.children import ChildProcess, end_all, watch_guard
from metaroll.processes.endings import ending, hint_of_ending
from metaroll.processes.log_lines import LogLines, open_log

__all__ = ["Child", "run_children"]

_POLL_SECONDS = 0.2
_FEWER = "run fewer at a time"
_TERMINAL = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables that make programs write to files as to a terminal."""


@final
class Child:
    """A process that calls a function, for long work such as a training.

    However this process ends, the child gets SIGTERM, and is killed if it has not ended some seconds later. A file
    takes its output: the child never waits for it to be read.

    Args:
        function: ``"module:name"``; called without arguments. What it returns is the exit status.
        arguments: Its ``sys.argv[1:]``.
        log: File of its messages, to which it appends; ``None``: a temporary one.
        progress: Prefixes of lines about progress; none: all lines are.

    Raises:
        OSError: The file is a link, or anything but a plain file.
    """

    def __init__(
        self, function: str, arguments: Sequence[str], log: Path | None = None, progress: tuple[str, ...] = ()
    ) -> None:
        if log is None:
            with tempfile.TemporaryFile() as file:
                self._log = os.dup(file.fileno())
        else:
            self._log = open_log(log)
        self._lines = LogLines(self._log, progress)
        self._closed = False
        try:
            self._process = ChildProcess(
                function,
                arguments,
                at_once=False,
                environment=dict.fromkeys(_TERMINAL),
                stdout=self._log,
                stderr=self._log,
            )
        except BaseException:
            os.close(self._log)
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for signals; ``None`` while it runs."""
        watch_guard()
        return self._process.returncode

    def new_lines(self) -> list[str]:
        """Lines about progress that are new since the last call; of very many the last."""
        return [] if self._closed else self._lines.new()

    def last_words(self) -> str:
        """The output after the last line about progress, and the cause of death if the process was killed."""
        words, code = self._words if self._closed else self._lines.words(), self.returncode
        if code is None or code >= 0:
            return words
        how = ending(code)
        return "\n".join(text for text in (words, f"{how}. {hint_of_ending(how, _FEWER)}") if text)

    def terminate(self) -> None:
        """Let it end in order, so that it can continue later."""
        self._process.terminate()

    def close(self) -> None:
        """Wait some seconds until it has ended; then end it, with everything that it has started."""
        close_all([self])

    def _release(self) -> None:
        if not self._closed:
            self._words, self._closed = self._lines.words(), True
            os.close(self._log)


def close_all(children: Sequence[Child]) -> None:
    """``Child.close`` for several: they have the same seconds."""
    deadline = time.monotonic() + GRACE_SECONDS
    for child in children:
        child._process.wait(max(0.0, deadline - time.monotonic()))
    end_all([child._process for child in children])
    for child in children:
        child._release()


def run_children(
    begin: Mapping[str, Callable[[], Child]],
    at_once: int,
    *,
    begun: Callable[[str], None] = lambda name: None,
    reported: Callable[[str, list[str]], None] = lambda name, lines: None,
    ended: Callable[[str, Child], None] = lambda name, child: None,
) -> list[str]:
    """Run children, some at a time, and wait for all; the names of those that have failed.

    Any exception meanwhile, as of Ctrl-C, ends those that run.

    Args:
        begin: Name -> what starts it, in their order.
        at_once: How many run at a time.
        begun: Called with the name of each that was started.
        reported: Called with a name and new lines about its progress, often.
        ended: Called with a name and what has ended, and is closed.
    """
    waiting, running, failed = dict(begin), dict[str, Child](), list[str]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                name = next(iter(waiting))
                running[name] = waiting.pop(name)()
                begun(name)
            time.sleep(_POLL_SECONDS)
            over = [name for name, child in running.items() if child.returncode is not None]
            for name, child in running.items():
                reported(name, child.new_lines())
            for name in over:
                child = running.pop(name)
                close_all([child])
                failed += [name] if child.returncode else []
                ended(name, child)
    finally:
        for child in running.values():
            child.terminate()
        close_all(list(running.values()))
    return failed
