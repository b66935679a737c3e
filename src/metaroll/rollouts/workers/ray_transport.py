"""Workers on the nodes of a Ray cluster, or of a Ray on this machine alone.

Each worker is an actor that holds one worker process beside it on its node, the very process of ``ProcessTransport``:
so functions run with one thread, in the main thread of their own process, with heartbeats, and what they have
started ends with them. Commands, results and questions about health go through Ray.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from metaroll import __version__
from metaroll.rollouts.workers.messages import Event
from metaroll.rollouts.workers.ray_session import RaySession, join
from metaroll.rollouts.workers.transports import Health, ProcessTransport

__all__ = ["RayTransport"]

_ASK_S = 0.5
"""Time between two questions to an actor about its worker process."""

_DEAF_S = 10.0
"""An actor that has not answered for so long counts as stopped: it has nothing else to do."""

_ROOM_S = 15.0
"""Seconds that a worker waits for its own processor, before it shares one."""

_LARGE = 100_000
"""Commands of at least this many bytes go through the object store, where they are sent to each node once."""

_MOST_STORED = 16

_FIRST = Health("start", 0.0, False, 0)


class RayWorker:
    """The actor: passes commands to a worker process beside it, and returns its answers."""

    def __init__(self, version: str, paths: list[str], folder: str | None) -> None:
        if version != __version__:
            raise RuntimeError(f"this node has metaroll {__version__}, the program {version}: install the same on both")
        sys.path.extend(path for path in paths if path not in sys.path)
        there = folder is not None and os.path.isdir(folder)  # it need not be on another machine
        self._processes = ProcessTransport(1, folder if there else None)
        self._processes.start()

    def run(self, blob: bytes) -> tuple[str, Any]:
        """Kind and payload of an ``Event``."""
        self._processes.send(0, blob)
        while True:
            for event in self._processes.wait(1.0):
                return event.kind, event.payload

    def health(self) -> Health:
        """In another thread than ``run``."""
        try:
            return self._processes.health(0)
        except (RuntimeError, ValueError):  # being replaced at this moment
            return Health("off", 0.0, False, 0)


@dataclass
class _Remote:
    """The record of one actor."""

    actor: Any
    reserves: bool
    """Whether it claims a processor of the cluster."""
    question: Any
    """Reference to the answer that is waited for; the first one comes when the actor is up."""
    begun: float = field(default_factory=time.monotonic)
    """Time when it was started, or got its current command."""
    asked_at: float = field(default_factory=time.monotonic)
    report: Health | None = None
    task: Any = None
    """Reference to the result of the current command."""
    blob: bytes = b""
    """The command it runs, encoded."""


class RayTransport:
    """A pool's workers as Ray actors; see ``ray_session.join`` for ``address``.

    Where the cluster has them, each worker claims one processor; workers without one share those of others, so that
    the work of a lost node continues.
    """

    def __init__(self, num_workers: int, address: str | None = None) -> None:
        self.num_workers = num_workers
        self.starts = [0] * num_workers
        self._owner = os.getpid()
        self._remotes: list[_Remote | None] = [None] * num_workers
        self._stored: OrderedDict[int, tuple[bytes, Any]] = OrderedDict()
        self._session: RaySession = join(address, num_workers)
        self._ray = self._session.ray
        self._folder = self._session.folder
        self._closed = False

    def start(self) -> None:
        room = self._session.free_cpus  # once: what has just been claimed is not known there yet
        for worker in range(self.num_workers):
            self._start(worker, reserves=worker + 1 <= room)

    def send(self, worker: int, blob: bytes) -> None:
        self._check_alive()
        if self._remotes[worker] is None:  # lost while it was idle
            self._start_again(worker)
        self._submit(self._remote(worker), blob)

    def wait(self, timeout: float) -> list[Event]:
        self._check_alive()
        deadline = time.monotonic() + timeout
        while True:
            self._ask()
            self._session.check_head()
            open_ = {ref for remote in self._remotes if remote for ref in (remote.task, remote.question) if ref}
            left = deadline - time.monotonic()
            if not open_:
                time.sleep(max(0.0, left))
                return []
            ready, _ = self._ray.wait(list(open_), num_returns=1, timeout=max(0.0, left))
            if ready:
                ready, _ = self._ray.wait(list(open_), num_returns=len(open_), timeout=0)
            events = self._take(set(ready))
            if events or time.monotonic() >= deadline:
                return events

    def health(self, worker: int) -> Health:
        remote = self._remote(worker)
        now = time.monotonic()
        report = remote.report
        if report is None:
            return _FIRST._replace(silent_s=now - remote.begun)
        if remote.task is None:
            return Health("idle", 0.0, False, report.pid)
        silent = min(report.silent_s, now - remote.begun)
        if remote.question is not None and now - remote.asked_at > _DEAF_S:
            return Health(report.phase, now - remote.asked_at, True, report.pid)
        phase = "call" if report.phase in ("idle", "off") else report.phase  # the command is on its way
        return Health(phase, silent, report.stopped, report.pid)

    def restart(self, worker: int) -> None:
        self._check_alive()
        self._drop(worker)
        self._start_again(worker)

    def close(self) -> None:
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        self._session.briefly(self._drop_all)
        self._stored.clear()
        self._session.leave()

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if not self._session.alive:
            raise RuntimeError(
                "Ray was shut down while a SamplerPool used it; the next call reconnects (call ray.shutdown() only "
                "after stop())"
            )

    def _remote(self, worker: int) -> _Remote:
        remote = self._remotes[worker]
        if remote is None:
            raise RuntimeError(f"worker {worker} is not running")
        return remote

    def _start(self, worker: int, reserves: bool) -> None:
        actor_class = self._ray.remote(RayWorker).options(
            num_cpus=1 if reserves else 0,
            max_concurrency=2,  # one command, and one question
            max_restarts=0,  # the schedule knows what a new one has to be given
            scheduling_strategy="SPREAD",
        )
        folder = self._folder

        def start() -> _Remote:
            actor = actor_class.remote(__version__, _own_paths(), folder)
            return _Remote(actor, reserves, actor.health.remote())

        self._remotes[worker] = self._session.call(start)
        self.starts[worker] += 1

    def _start_again(self, worker: int) -> None:
        self._session.check_head(needed=True)
        self._start(worker, reserves=self._session.free_cpus >= 1)

    def _submit(self, remote: _Remote, blob: bytes) -> None:
        remote.blob, remote.begun = blob, time.monotonic()
        remote.task = remote.actor.run.remote(self._stored_once(blob) if len(blob) >= _LARGE else blob)

    def _stored_once(self, blob: bytes) -> Any:
        """A reference to a large command; commands for all workers share one object."""
        entry = self._stored.pop(id(blob), None)
        if entry is None:
            while len(self._stored) >= _MOST_STORED:
                self._stored.popitem(last=False)
            entry = blob, self._ray.put(blob)
        self._stored[id(blob)] = entry  # with the blob itself: no other object can get its id
        return entry[1]

    def _drop(self, worker: int) -> None:
        remote, self._remotes[worker] = self._remotes[worker], None
        if remote is not None and self._session.alive:
            with contextlib.suppress(Exception):  # it is gone already
                self._ray.kill(remote.actor)

    def _drop_all(self) -> None:
        for worker in range(self.num_workers):
            self._drop(worker)

    def _ask(self) -> None:
        """Put the questions that are due, and let workers in that found no room."""
        now = time.monotonic()
        for worker, remote in enumerate(self._remotes):
            if remote is None or remote.task is None:
                continue
            if remote.question is None and now - remote.asked_at > _ASK_S:
                remote.asked_at, remote.question = now, remote.actor.health.remote()
            elif remote.report is None and remote.reserves and now - remote.asked_at > _ROOM_S:
                self._drop(worker)
                self.starts[worker] -= 1  # nothing was lost
                self._start(worker, reserves=False)
                self._submit(self._remote(worker), remote.blob)

    def _take(self, ready: set[Any]) -> list[Event]:
        """Events of the references that are ready."""
        events = []
        for worker, remote in enumerate(self._remotes):
            if remote is None:
                continue
            if remote.question in ready:
                answer, remote.question = remote.question, None
                with contextlib.suppress(self._ray.exceptions.RayError):  # the task it runs raises the reason
                    remote.report = self._ray.get(answer)
            if remote.task in ready:
                task, remote.task, remote.blob = remote.task, None, b""
                try:
                    events.append(Event(worker, *self._ray.get(task)))
                except self._ray.exceptions.RayError as error:
                    events.append(Event(worker, "lost", _reason(error)))
                if events[-1].kind == "lost":
                    self._drop(worker)
        return events


def _own_paths() -> list[str]:
    """Folders in which this process finds modules that are not installed; other nodes may have them elsewhere."""
    installed = tuple({os.path.realpath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix)})
    paths = [path or os.getcwd() for path in sys.path]
    return [path for path in paths if not os.path.realpath(path).startswith(installed)]


def _reason(error: BaseException) -> str:
    """The last line of Ray's error, which is the cause, where it has several."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"its Ray actor was lost: {lines[-1] if lines else type(error).__name__}"
