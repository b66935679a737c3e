"""Transports of messages to workers: in this process (serial), or over sockets to subprocesses."""

from __future__ import annotations

import contextlib
import mmap
import os
import selectors
import socket
import tempfile
import time
from collections import deque
from typing import NamedTuple, Protocol

from metaroll.processes.children import ChildProcess, end_all
from metaroll.processes.endings import ending
from metaroll.rollouts.workers.messages import (
    BeatReader,
    Event,
    FrameError,
    GlobalNamespace,
    Incoming,
    packed,
    run_command,
    send_some,
)
from metaroll.rollouts.workers.worker_main import BAD_CONNECTION

__all__ = ["Health", "ProcessTransport", "SerialTransport", "Transport"]

_EXIT_S = 1.0
"""Seconds to wait for the exit status of a worker whose socket has closed."""

_READ_S = 1.0
"""Seconds after which a worker has usually read a command."""

_ONE_THREAD: dict[str, str | None] = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""One thread per worker: there are as many busy threads as workers, and the same bits for any number of cores."""


class Health(NamedTuple):
    """The known status of a worker.

    ``phase`` is ``idle``, ``start``, ``call``, ``reset``, ``step`` or ``send``; ``silent_s`` the seconds since its
    last sign of life;
    ``stopped`` whether the operating system reports that it is stopped (SIGSTOP); ``pid`` 0 for the process itself.
    """

    phase: str
    silent_s: float
    stopped: bool
    pid: int


class Transport(Protocol):
    """Commands to numbered workers, and events back. A worker runs one command at a time."""

    num_workers: int
    starts: list[int]
    """Number of starts of each worker."""

    def start(self) -> None:
        """Start all workers, once."""
        ...

    def send(self, worker: int, blob: bytes) -> None: ...

    def wait(self, timeout: float) -> list[Event]: ...

    def health(self, worker: int) -> Health: ...

    def restart(self, worker: int) -> None: ...

    def close(self) -> None: ...


class SerialTransport:
    """One "worker" that is this process; a command runs when its result is waited for."""

    num_workers = 1

    def __init__(self) -> None:
        self.namespace = GlobalNamespace()
        self.starts = [1]
        self._queue: deque[bytes] = deque()
        self._begun: float | None = None

    def start(self) -> None:
        pass

    def send(self, worker: int, blob: bytes) -> None:
        self._queue.append(blob)

    def wait(self, timeout: float) -> list[Event]:
        if not self._queue:
            return []
        self._begun = time.monotonic()
        try:
            return [Event(0, *run_command(self.namespace, self._queue.popleft()))]
        finally:
            self._begun = None

    def health(self, worker: int) -> Health:
        begun = self._begun  # read once: another thread may ask
        return Health("idle", 0.0, False, 0) if begun is None else Health("call", time.monotonic() - begun, False, 0)

    def restart(self, worker: int) -> None:
        self.namespace = GlobalNamespace()
        self.starts[worker] += 1
        self._queue.clear()

    def close(self) -> None:
        self.restart(0)


class _Worker:
    """One worker process with its socket, its heartbeat page and half-received bytes.

    Args:
        folder: Its working directory.
        opened: Gets what ends the process, and closes what belongs to it; also where Ctrl-C comes amid the start.
    """

    def __init__(self, folder: str | None, opened: contextlib.ExitStack) -> None:
        self.socket, theirs = socket.socketpair()
        opened.callback(self.socket.close)
        opened.callback(self._end_process)
        with theirs:
            self.heartbeat_file = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - it is entered
            self.heartbeat_file.write(bytes(mmap.PAGESIZE))
            self.heartbeat_file.flush()
            self.heartbeat = BeatReader(self.heartbeat_file.fileno())
            opened.callback(self.heartbeat.close)
            fds = (theirs.fileno(), self.heartbeat_file.fileno())
            self.process = ChildProcess(
                "metaroll.rollouts.workers.worker_main:main",
                [str(fd) for fd in fds],
                environment=_ONE_THREAD,
                folder=folder,
                pass_fds=fds,
            )
        self.socket.setblocking(False)
        self.started = time.monotonic()
        self.last_sign = self.started
        self.out: deque[memoryview] = deque()
        self.incoming = Incoming(self.socket, self.process.pid)
        self.number = 0
        """Of the last command."""

    def _end_process(self) -> None:
        if "process" in vars(self):
            self.process.end()


class ProcessTransport:
    """Processes that run ``worker_main``.

    They import nothing of the caller's ``__main__``: cloudpickle sends its functions by value. Sockets are
    non-blocking in both directions here, so a worker that is stopped in the middle of a message cannot stop the parent.
    ``folder`` is their working directory, by default that of this process now; one that is replaced gets the same.
    """

    def __init__(self, num_workers: int, folder: str | None = None) -> None:
        self.num_workers = num_workers
        with contextlib.suppress(FileNotFoundError):  # the folder of this process is gone
            folder = os.getcwd() if folder is None else folder
        self._folder = folder
        self._owner = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker | None] = [None] * num_workers
        self._opened = [contextlib.ExitStack() for _ in range(num_workers)]
        """What belongs to each worker, from the beginning of its start on."""
        self._busy = [False] * num_workers
        self.starts = [0] * num_workers

    def start(self) -> None:
        for worker in range(self.num_workers):
            self._start(worker)

    def send(self, worker: int, blob: bytes) -> None:
        if self._workers[worker] is None:  # lost while it was idle
            self._start(worker)
        child = self._child(worker)
        child.number += 1
        child.out.extend(packed("command", child.number, [blob]))
        child.last_sign = time.monotonic()
        self._busy[worker] = True
        self._selector.modify(child.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, worker)

    def wait(self, timeout: float) -> list[Event]:
        events: list[Event] = []
        for key, mask in self._selector.select(timeout):
            worker = key.data
            try:
                if mask & selectors.EVENT_WRITE:
                    self._flush(worker)
                if mask & selectors.EVENT_READ:
                    events.extend(self._receive(worker))
            except FrameError as error:
                events.append(self._misunderstood(worker, str(error)))
            except (ConnectionError, EOFError):
                events.append(self._lost(worker))
        for worker, child in enumerate(self._workers):  # a worker may die while something else holds its socket open
            if child is not None and child.process.returncode is not None and worker not in {e.worker for e in events}:
                events.append(self._lost(worker))
        return events

    def health(self, worker: int) -> Health:
        child = self._child(worker)
        if child.process.returncode is not None:  # killed while it was idle: the next command starts another
            return Health("off", 0.0, False, 0)
        phase, heartbeat = child.heartbeat.read()
        silent = time.monotonic() - max(heartbeat, child.last_sign)
        if phase == "idle" and self._busy[worker]:
            # The command was not read yet; if it was sent and is not there any more, something else has read it.
            phase = "call" if child.out or silent < _READ_S else "send"
        elif phase != "start" and not self._busy[worker]:
            phase = "idle"  # its result is here already
        return Health(phase, silent, _is_stopped(child.process.pid), child.process.pid)

    def restart(self, worker: int) -> None:
        self._drop(worker)
        self._start(worker)

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a fork: workers and the selector belong to the process that made them
        self._drop(*range(self.num_workers))
        self._selector.close()

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _child(self, worker: int) -> _Worker:
        child = self._workers[worker]
        if child is None:
            raise RuntimeError(f"worker {worker} is not running")
        return child

    def _start(self, worker: int) -> None:
        there = self._folder is not None and os.path.isdir(self._folder)
        child = _Worker(self._folder if there else None, self._opened[worker])
        self.starts[worker] += 1
        self._busy[worker] = False
        self._selector.register(child.socket, selectors.EVENT_READ, worker)
        self._workers[worker] = child

    def _drop(self, *workers: int) -> None:
        children = [child for worker in workers if (child := self._workers[worker]) is not None]
        end_all([child.process for child in children])  # first: after Ctrl-C another call does what is left to do
        for child in children:
            with contextlib.suppress(KeyError, ValueError):  # it was unregistered by that call
                self._selector.unregister(child.socket)
        for worker in workers:
            self._workers[worker] = None
            self._busy[worker] = False
            self._opened[worker].close()

    def _lost(self, worker: int) -> Event:
        # The socket closes a moment before the exit status is available.
        code = self._child(worker).process.wait(_EXIT_S)
        self._drop(worker)
        # If the worker still runs, or has noticed it itself, something else has closed the socket.
        return Event(worker, "lost", "its connection ended" if code in (None, BAD_CONNECTION) else ending(code))

    def _misunderstood(self, worker: int, why: str) -> Event:
        self._drop(worker)
        return Event(worker, "lost", f"what it sent does not fit: {why}")

    def _flush(self, worker: int) -> None:
        child = self._child(worker)
        while child.out:
            try:
                send_some(child.socket, child.out)
            except BlockingIOError:
                return
            child.last_sign = time.monotonic()
        self._selector.modify(child.socket, selectors.EVENT_READ, worker)

    def _receive(self, worker: int) -> list[Event]:
        """The result of the command, if it has arrived in full."""
        child = self._child(worker)
        try:
            answer = child.incoming.receive()
        except BlockingIOError:
            return []
        finally:
            child.last_sign = time.monotonic()
        if answer.number != child.number or not self._busy[worker] or answer.kind == "command":
            raise FrameError(f"it answers command {answer.number}, while {child.number} was the last")
        self._busy[worker] = False
        return [Event(worker, answer.kind, answer.parts)]


def _is_stopped(pid: int) -> bool:
    try:
        # A plain descriptor: Ctrl-C may come between open and with, and a file object would warn of being left open.
        status = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return False  # no such file system, or the process is gone
    try:
        return os.read(status, 4096).rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False
    finally:
        os.close(status)
