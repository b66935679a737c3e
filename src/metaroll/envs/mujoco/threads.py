"""A few threads that step MuJoCo's simulations: its functions give Python's lock away while they compute."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from typing import NamedTuple

__all__ = ["PhysicsThreads", "num_processors", "physics_threads"]

_IN_PROCESS = 2
_FEWEST = 3
"""Slots below which threads would wait for one another as long as a step of most robots takes."""
_chosen: ContextVar[int | None] = ContextVar("physics_threads", default=None)

Loop = Callable[[Iterator[int]], None]
"""Takes slots until there are none (an IndexError) and works on each."""


class _Job(NamedTuple):
    """What the threads of a call share: its loop, the slots that are left, and an entry of each thread that has begun,
    and ended, to work on them; ``wake`` gets one after that, too.
    """

    loop: Loop
    waiting: Iterator[int]
    begun: list[None]
    ended: list[None]
    wake: SimpleQueue[None]

    def work(self) -> None:
        """Work on slots in another thread than that of the call."""
        self.begun.append(None)
        try:
            self.loop(self.waiting)
        finally:
            self.ended.append(None)
            self.wake.put(None)

    def finish(self) -> None:
        """Take the slots that are left, and wait for the threads that work on one; those that come later find none."""
        for _ in self.waiting:  # slots are left only if this thread was interrupted
            pass
        while len(self.ended) < len(self.begun):
            self.wake.get()


@contextmanager
def physics_threads(count: int | None) -> Iterator[None]:
    """Context in which batched MuJoCo is made with ``count`` threads; ``None`` keeps the outer setting.

    The default is 2, or 1 where there is but one processor. Worker processes use 1 each, as they share the processors.
    """
    token = _chosen.set(_chosen.get() if count is None else checked_threads(count))
    try:
        yield
    finally:
        _chosen.reset(token)


def checked_threads(count: int | None) -> int:
    """Check and return a number of threads; ``None`` means the current setting."""
    if count is None:
        count = _chosen.get()
        return min(_IN_PROCESS, num_processors()) if count is None else count
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"threads must be a whole number of at least 1, got {count!r}")
    return count


class PhysicsThreads:
    """Runs loops over slots in this thread and ``count - 1`` more, which wait in between.

    Each thread takes the next slot when it has done one, so that expensive ones (many contacts) do not hold others up.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = checked_threads(count)
        self._jobs: SimpleQueue[_Job | None] | None = None
        self._process = 0

    def run(self, loop: Loop, slots: Sequence[int]) -> None:
        """Work on ``slots``; ``loop`` keeps its own failures to itself."""
        # Shared by all threads: advancing it is one instruction of the interpreter, so that no slot is taken twice.
        waiting = iter(slots)
        helpers = min(self.count, len(slots)) - 1 if len(slots) >= _FEWEST else 0
        if helpers < 1:
            loop(waiting)
            return
        jobs, job = self._helpers(), _Job(loop, waiting, [], [], SimpleQueue())
        try:
            try:
                for _ in range(helpers):
                    jobs.put(job)
                loop(waiting)
            finally:  # no thread may step a slot when this call has ended, however it ends
                job.finish()
        except BaseException:  # Ctrl-C may have come amid the waiting
            job.finish()
            raise

    def _helpers(self) -> SimpleQueue[_Job | None]:
        """The queue that the other threads read; they do not survive a fork."""
        if self._jobs is None or self._process != os.getpid():
            jobs: SimpleQueue[_Job | None] = SimpleQueue()
            weakref.finalize(self, _end, jobs, self.count - 1)
            for _ in range(self.count - 1):
                threading.Thread(target=_serve, args=(jobs,), name="metaroll-physics", daemon=True).start()
            self._jobs, self._process = jobs, os.getpid()
        return self._jobs


def _serve(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job.work()
        del job  # nothing must be kept alive while waiting


def _end(jobs: SimpleQueue[_Job | None], count: int) -> None:
    for _ in range(count):
        jobs.put(None)


def num_processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
