"""Processes that this one starts: they end with it, and with each of them all that it has started."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, final

from metaroll.processes import guard
from metaroll.processes.child_main import GRACE_SECONDS, mark_by_limit

__all__ = [
    "PIPE",
    "ChildProcess",
    "child_pids",
    "end_all",
    "guard_pid",
    "guard_program",
    "last_words",
    "watch_guard",
]

PIPE = subprocess.PIPE
"""Output goes to this process (``stdout`` and ``stderr`` of ``ChildProcess``)."""

_REAP_S = 10.0
"""Seconds to wait for the end of a killed process: one that hangs in the system (e.g. a dead disk) may never end."""


@final
class ChildProcess:
    """A process of Python that calls a function of a module.

    However this process ends, the child ends: at once (killed, also where it is stopped or keeps Python's lock), or in
    order (it gets SIGTERM, and some seconds). So does everything that it has started, also in other process groups and
    sessions.

    Args:
        function: ``"module:name"``; called without arguments. What it returns is the exit status.
        arguments: Its ``sys.argv[1:]``.
        at_once: How it ends with this process.
        environment: Variables to set (``None``: to remove).
        folder: Working directory; ``None``: that of this process.
        pass_fds: Descriptors that it inherits.
        stdout: See ``subprocess.Popen``.
        stderr: See ``subprocess.Popen``.

    Attributes:
        pid: Its number.
    """

    def __init__(
        self,
        function: str,
        arguments: Sequence[str] = (),
        *,
        at_once: bool = True,
        environment: Mapping[str, str | None] | None = None,
        folder: str | None = None,
        pass_fds: Sequence[int] = (),
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        number = next(_family.numbers)
        self._name = f"{_family.token}-{'k' if at_once else 'o'}-{number};"
        self._limit = _family.first_limit + number % (guard.GUARDED_LIMITS - 1)
        self._owner, self._ended = os.getpid(), False
        self._life: int | None = None
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        for key, value in (environment or {}).items():
            variables.pop(key, None)
            if value is not None:
                variables[key] = value
        lineage = variables.get(guard.MARK_VARIABLE, "")
        # It may shut down cleanly, while other children of this program end at once.
        variables[guard.MARK_VARIABLE] = (
            lineage.replace(_family.program, "") if _family.program else lineage
        ) + self._name
        self.stdout: IO[bytes] | None = None
        """The output, if it is piped."""
        self.stderr: IO[bytes] | None = None
        theirs, process = None, None
        try:
            _family.join(self)
            if not at_once:
                theirs, self._life = os.pipe()
            life = _family.life if theirs is None else theirs
            begin = (life, os.getpid(), "at-once" if at_once else "in-order", self._limit, function)
            try:
                process = subprocess.Popen(
                    # -P: modules are found as here (by PYTHONPATH), and not in the current folder first.
                    [sys.executable, "-P", "-m", "metaroll.processes.child_main", *map(str, begin), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env=variables,
                    cwd=folder,
                    pass_fds=(life, *pass_fds),
                    start_new_session=True,  # the parent handles the terminal's signals
                )
            finally:
                if theirs is not None:
                    os.close(theirs)
            self._process, self.pid = process, process.pid
            self.stdout, self.stderr = process.stdout, process.stderr
        except BaseException:
            if process is not None:  # Ctrl-C came after it had been started
                process.kill()
                process.wait()
            self._release()
            raise

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for signals; ``None`` while it runs."""
        return self._process.poll()

    def wait(self, timeout: float) -> int | None:
        """Exit status; ``None`` if it still runs after ``timeout`` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout)
        return None

    def communicate(self, timeout: float) -> tuple[bytes, bytes] | None:
        """All its output and errors, until its end; ``None`` if it still runs after ``timeout`` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.communicate(timeout=timeout)
        return None

    def terminate(self) -> None:
        """Let it end in order."""
        self._process.terminate()

    def end(self) -> None:
        """Kill it, and all that it has started."""
        end_all([self])

    def _release(self) -> None:
        """Close its resources in this process; if Ctrl-C interrupts this, another call does the rest."""
        _family.leave(self)
        life, self._life = self._life, None
        if life is not None:
            os.close(life)
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self._ended = True


def end_all(children: Sequence[ChildProcess]) -> None:
    """Kill children of this process, and all that they have started; a fork of it leaves them alone."""
    children = [child for child in children if child._owner == os.getpid() and not child._ended]
    if not children:
        return
    limits = {child._limit for child in children}
    living = [child.pid for child in children if child.returncode is None]
    guard.end_trees([child._name for child in children], limits, living, [child.pid for child in children])
    for child in children:
        child.wait(_REAP_S)
        child._release()


def guard_pid() -> int | None:
    """Process that ends all children of this one when it is gone; ``None`` while there are none."""
    process = _family.guard
    return None if process is None else process.pid


def child_pids() -> set[int]:
    """Children of this process that have not ended, without the guard; where the system does not list them, our own."""
    pids: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):  # Linux
        with contextlib.suppress(OSError):  # the thread has ended
            pids.update(map(int, path.read_text("ascii").split()))
    return (pids or _family.pids()) - {guard_pid()}


def watch_guard() -> None:
    """Start another guard if it was killed; to be called now and then while children run."""
    _family.watch_guard()


@contextlib.contextmanager
def last_words(text: str) -> Iterator[None]:
    """Context in which ``text`` goes to standard error if the process ends without an exception, as in C code."""
    # Not marked as a child to end with this process, since it waits for that end.
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _SAY, text], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0
    ) as speaker:
        try:
            yield
        finally:
            speaker.kill()


_SAY = "import os, sys; os.setsid(); os.read(0, 1) or os.write(2, (sys.argv[1] + chr(10)).encode())"


class _Family:
    """The children of this process, their names, and the guard, which there is as long as there are any."""

    def __init__(self) -> None:
        self.token = os.urandom(8).hex()
        family = int.from_bytes(os.urandom(8), "big") % guard.FAMILIES
        self.first_limit = guard.FIRST_LIMIT + family * guard.GUARDED_LIMITS
        self.numbers = itertools.count()
        self.guard: subprocess.Popen[bytes] | None = None
        self.life = -1
        """One end of the pipe whose other end the guard alone holds."""
        self.program = ""
        """How all is marked that this process starts in other ways, if it is a program of ours."""
        self._living: set[ChildProcess] = set()
        self._lock = threading.RLock()

    def join(self, child: ChildProcess) -> None:
        """Before a child is started."""
        with self._lock:
            self._living.add(child)
            if self._guard_is_gone():  # it was killed
                self._forget_guard()
            if self.guard is None:
                self._start_guard()

    def _guard_is_gone(self) -> bool:
        if self.guard is None:
            return False
        # A killed process closes its pipes a moment before its exit status is available.
        looking = select.poll()
        looking.register(self.life, 0)
        return bool(looking.poll(0)) or self.guard.poll() is not None

    def keep(self) -> None:
        """Mark the children of this process, and guard them until they end."""
        with self._lock:
            if self.program:
                return
            self.program = f"{self.token}-k-program;"
            os.environ[guard.MARK_VARIABLE] = os.environ.get(guard.MARK_VARIABLE, "") + self.program
            if self.guard is None:
                self._start_guard()
            mark_by_limit(self.first_limit + guard.GUARDED_LIMITS - 1)  # the last one, which no child gets

    def pids(self) -> set[int]:
        """The processes that have not ended."""
        with self._lock:
            return {child.pid for child in self._living if child.returncode is None}

    def leave(self, child: ChildProcess) -> None:
        """After it has ended."""
        with self._lock:
            self._living.discard(child)
            if not self._living and not self.program and self.guard is not None:
                self.guard.kill()
                self.guard.wait()
                self._forget_guard()

    def watch_guard(self) -> None:
        """Start another guard if it was killed."""
        with self._lock:
            if self._guard_is_gone():
                self._forget_guard()
                self._start_guard()

    def _start_guard(self) -> None:
        environment = {**os.environ, guard.GUARD_VARIABLE: "1"}
        environment.pop(guard.MARK_VARIABLE, None)
        self.life, theirs = os.pipe()
        try:
            arguments = (theirs, os.getpid(), self.token, self.first_limit, GRACE_SECONDS + 1.0)
            self.guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd="/",
                pass_fds=[theirs],
                start_new_session=True,
            )
        except BaseException:
            os.close(self.life)
            raise
        finally:
            os.close(theirs)

    def _forget_guard(self) -> None:
        if self.guard is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.guard.wait(_REAP_S)
        self.guard = None
        os.close(self.life)

    def close_in_fork(self) -> None:
        """The guard and the pipes belong to the process that this one is a fork of."""
        with contextlib.suppress(OSError):
            if self.guard is not None:
                self.guard.returncode = 0  # not waited for here
                os.close(self.life)


def guard_program() -> None:
    """From now on, all children of this process end with it, however it ends, including those of environments.

    For programs of ours alone, since it sets a variable of the environment and the limit of a resource. The guard lives
    as long as this process.
    """
    _family.keep()


def _reset_in_fork() -> None:
    global _family
    _family.close_in_fork()
    _family = _Family()


_family = _Family()
os.register_at_fork(after_in_child=_reset_in_fork)
