"""THE workers: a pool that runs functions in processes (or in this one), replaces what dies, never hangs."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from metaroll.errors import MetarollError, RolloutError, WorkerLost
from metaroll.rollouts.messages import Event, RemoteFailure, decode, encode_command
from metaroll.rollouts.namespace import GlobalNamespace
from metaroll.rollouts.transports import Health, ProcessTransport, SerialTransport, Transport

__all__ = ["GlobalNamespace", "Job", "PoolTimeouts", "RemoteError", "SamplerPool"]

_TICK_S = 0.5


class RemoteError(MetarollError, RuntimeError):
    """A function raised in a worker an exception that could not be sent; its traceback is in the message."""


@dataclass(frozen=True)
class PoolTimeouts:
    """Seconds without a sign of life before a worker is given up and replaced; ``None`` waits for ever.

    ``step_s`` holds between two steps of an environment and while results are sent, ``reset_s`` for resets,
    ``start_s`` until a worker is up and has read the engine's commands (which import what they need), ``call_s`` for
    functions of the user (who knows how long they take).
    """

    step_s: float | None = 60.0
    reset_s: float | None = 300.0
    start_s: float | None = 300.0
    call_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("step_s", "reset_s", "start_s", "call_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive seconds or None (wait for ever), got {value!r}")

    def limit(self, health: Health) -> float | None:
        """Allowed silence of a worker."""
        limits = {"start": self.start_s, "call": self.call_s, "reset": self.reset_s}
        limit = limits.get(health.phase, self.step_s)
        if health.stopped and self.step_s is not None:  # a stopped process will not answer, whatever it was doing
            return self.step_s if limit is None else min(limit, self.step_s)
        return limit


@dataclass
class Job:
    """One command for one worker, with what to say about it when it fails."""

    index: int
    blob: bytes
    what: str
    worker: int | None = None
    tries: int = 0
    phase: str = "call"
    """Which of ``PoolTimeouts`` holds while the command is read and run, until it tells its own phase."""


class SamplerPool:
    """A fixed number of workers, each with a ``GlobalNamespace`` that outlives the calls.

    Args:
        num_threads: Number of workers (at least 1).
        transport: ``"process"``, ``"serial"`` (in this process; ``num_threads`` must be 1), or ``"auto"``: serial for
            one worker, else processes.
        timeouts: When a silent worker is given up.
        max_retries: How often the work of a lost worker is tried again on a fresh one before ``WorkerLost`` is raised.

    Workers start when they are first needed. The pool is a context manager; ``stop`` (also called when the pool is
    collected or the interpreter ends) leaves no process behind.
    """

    def __init__(
        self,
        num_threads: int,
        *,
        transport: str = "auto",
        timeouts: PoolTimeouts | None = None,
        max_retries: int = 3,
    ) -> None:
        if isinstance(num_threads, bool) or not isinstance(num_threads, int):
            raise TypeError(f"num_threads must be an integer >= 1, got {num_threads!r}")
        if num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, got {num_threads}")
        if transport not in ("auto", "serial", "process"):
            raise ValueError(f"transport must be 'auto', 'serial' or 'process', got {transport!r}")
        if transport == "serial" and num_threads != 1:
            raise ValueError(f"transport='serial' has exactly one worker, got num_threads={num_threads}")
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            raise ValueError(f"max_retries must be an integer >= 0, got {max_retries!r}")
        self.num_workers = num_threads
        self.timeouts = timeouts or PoolTimeouts()
        self.max_retries = max_retries
        self._serial = transport == "serial" or (transport == "auto" and num_threads == 1)
        self._transport: Transport | None = None
        self._finalizer: weakref.finalize | None = None
        self._kept: dict[str, tuple[bytes, str]] = {}
        self._fresh: set[int] = set()
        """Workers that have not been given what is kept."""
        self._due: list[deque[Job]] = [deque() for _ in range(num_threads)]
        """What each worker does before its next job."""
        self._in_use = threading.Lock()
        self._owner = os.getpid()
        self._stopped = False

    @property
    def is_serial(self) -> bool:
        """True if functions run in this process."""
        return self._serial

    # -- documented calls (specs/sampling.md 10) --------------------------------------------------------------------

    def invoke_all(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """``func(G, *args, **kwargs)`` once in every worker; results in worker order."""
        blob = encode_command(func, args, kwargs, f"function {_name(func)} or its arguments")
        return self._run([Job(i, blob, _name(func), worker=i) for i in range(self.num_workers)])

    def invoke_all_map(self, func: Callable[..., Any], arglist: Sequence[Any]) -> list[Any]:
        """``func(G, arglist[i])`` in worker ``i``.

        Raises:
            ValueError: There are not exactly as many arguments as workers.
        """
        if len(arglist) != self.num_workers:
            raise ValueError(f"arglist must have one entry per worker ({self.num_workers}), got {len(arglist)}")
        return self._run([self._job(i, func, arg, worker=i) for i, arg in enumerate(arglist)])

    def run_map(self, func: Callable[..., Any], arglist: Iterable[Any], progressbar: Any = None) -> list[Any]:
        """``[func(G, arg) for arg in arglist]``, handed to whichever worker is free; results in argument order.

        Raises:
            Exception: What ``func`` raised for the first argument that failed, after all workers have come to rest.
            WorkerLost: Workers died repeatedly on the same argument.
        """
        jobs = [self._job(i, func, arg) for i, arg in enumerate(arglist)]
        if progressbar is not None:
            progressbar.total = len(jobs)
        done = None if progressbar is None else lambda job, result: progressbar.update(1)
        return self._run(jobs, done)

    def stop(self) -> None:
        """End all workers. The pool cannot be used afterwards."""
        self._stopped = True
        self._shut()

    # -- for the engine --------------------------------------------------------------------------------------------

    def keep(self, key: str, func: Callable[..., Any], *args: Any, what: str | None = None) -> None:
        """Run ``func(G, *args)`` in every worker now, and first of all in every worker that replaces one.

        What was kept under the same key before is forgotten, in its place in the order.
        """
        what = what or f"function {_name(func)} or its arguments"
        blob = encode_command(func, args, {}, what)
        before = self._kept.get(key)
        self._kept[key] = (blob, _name(func))
        if self._transport is None:
            self._connect()  # the first call runs everything that is kept
            return
        try:
            self._run([Job(i, blob, _name(func), worker=i, phase="start") for i in range(self.num_workers)])
        except Exception:
            # Not kept, or each later call would fail with it; some workers have run it, so all are told again.
            if before is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = before
            self._fresh.update(range(self.num_workers))
            raise

    def forget(self, key: str) -> None:
        """New workers no longer get what was kept under ``key``."""
        self._kept.pop(key, None)

    def run_later(self, func: Callable[..., Any], *args: Any) -> None:
        """``func(G, *args)`` in every worker before its next job; never waits, so finalizers may call it."""
        if self._transport is None:
            return
        blob = encode_command(func, args, {}, _name(func))
        for worker, due in enumerate(self._due):
            due.append(Job(-1, blob, _name(func), worker, phase="start"))

    def run_jobs(self, jobs: Sequence[Job], done: Callable[[Job, Any], None] | None = None) -> list[Any]:
        """Run prepared commands (see ``run_map``); ``done(job, result)`` is called as each ends."""
        return self._run(jobs, done)

    def __enter__(self) -> SamplerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __reduce__(self) -> Any:
        raise RuntimeError("a SamplerPool holds live processes and cannot be pickled; build one where it is needed")

    # -- scheduling ------------------------------------------------------------------------------------------------

    def _job(self, index: int, func: Callable[..., Any], arg: Any, worker: int | None = None) -> Job:
        blob = encode_command(func, (arg,), {}, f"function {_name(func)} or its argument {index}")
        return Job(index, blob, f"{_name(func)}, argument {index}", worker)

    def _connect(self) -> Transport:
        if self._stopped:
            raise RuntimeError("this SamplerPool has been stopped; create a new one")
        if self._transport is not None and not self._serial and os.getpid() != self._owner:
            raise RuntimeError(
                f"this SamplerPool belongs to process {self._owner}, of which this one is a fork; create one here"
            )
        if self._transport is None:
            transport: Transport = SerialTransport() if self._serial else ProcessTransport(self.num_workers)
            self._transport, self._owner = transport, os.getpid()
            self._finalizer = weakref.finalize(self, transport.close)
            self._fresh = set(range(self.num_workers))
        return self._transport

    def _shut(self) -> None:
        if self._finalizer is not None:
            self._finalizer()  # closes the transport, once
        self._finalizer = self._transport = None
        for due in self._due:
            due.clear()

    def _duties(self, worker: int) -> deque[Job]:
        """What ``worker`` has to do before its next job: all that is kept, if it is fresh."""
        due, duties = self._due[worker], deque()
        if worker in self._fresh:
            self._fresh.discard(worker)
            kept = list(self._kept.values())  # at once: a finalizer may forget some meanwhile
            duties.extend(Job(-1, blob, what, worker, phase="start") for blob, what in kept)
        while due:
            duties.append(due.popleft())
        return duties

    def _run(self, jobs: Sequence[Job], done: Callable[[Job, Any], None] | None = None) -> list[Any]:
        if not self._in_use.acquire(blocking=False):
            raise RuntimeError(
                "this SamplerPool is in the middle of another call (from another thread, or from inside a callback); "
                "wait for that one to end, or use a SamplerPool per thread"
            )
        try:
            self._connect()
            schedule = _Schedule(self, jobs, done)
            try:
                schedule.run()
            except BaseException:
                # Ctrl-C, or a callback raised: workers are in the middle of something, and what they send back would
                # be taken for the results of the next call. They go; that call starts fresh ones.
                self._shut()
                raise
        finally:
            self._in_use.release()
        return schedule.outcome()


class _Schedule:
    """One call of the pool: hands jobs to idle workers until all are done or one has failed."""

    def __init__(self, pool: SamplerPool, jobs: Sequence[Job], done: Callable[[Job, Any], None] | None) -> None:
        if pool._transport is None:
            raise RuntimeError("the pool is not connected")
        self.pool = pool
        self.transport: Transport = pool._transport
        self.done = done
        self.results: dict[int, Any] = {}
        self.failures: dict[int, BaseException] = {}
        self.running: dict[int, Job] = {}
        self.shared = deque(job for job in jobs if job.worker is None)
        self.pinned: dict[int, deque[Job]] = {worker: deque() for worker in range(pool.num_workers)}
        self.restoring: dict[int, deque[Job]] = {}
        self.restarts = [0] * pool.num_workers
        self.failed_starts = [0] * pool.num_workers
        """How often each worker was lost before it was ready for a job."""
        for job in jobs:
            if job.worker is not None:
                self.pinned[job.worker].append(job)
        self.order = [job.index for job in jobs]

    def run(self) -> None:
        """Until all jobs are done, or one has failed and all workers have come to rest."""
        self._hand_out()
        while self.running:
            for event in self.transport.wait(_TICK_S):
                self._handle(event)
            self._check_silence()
            self._hand_out()

    def outcome(self) -> list[Any]:
        """Results in the order of the jobs, or the failure of the first job that failed."""
        if self.failures:
            error = self.failures[min(self.failures)]
            error.completed = self.results  # type: ignore[attr-defined]  # nothing already collected is lost
            raise error
        return [self.results[index] for index in self.order]

    def _hand_out(self) -> None:
        for worker in range(self.transport.num_workers):
            if worker in self.running:
                continue
            job = self._next_job(worker)
            if job is not None:
                self.running[worker] = job
                self.transport.send(worker, job.blob)

    def _next_job(self, worker: int) -> Job | None:
        if worker in self.restoring:  # goes on even after a failure, so that the pool stays usable
            if self.restoring[worker]:
                return self.restoring[worker].popleft()
            del self.restoring[worker]
        queue = self.pinned[worker] or self.shared
        if self.failures or not queue:
            return None
        duties = self.pool._duties(worker)
        if duties:
            self.restoring[worker] = duties
            return duties.popleft()
        return queue.popleft()

    def _handle(self, event: Event) -> None:
        if event.kind == "lost":
            self._replace(event.worker, str(event.payload))
            return
        job = self.running.pop(event.worker, None)
        if job is None:
            return
        try:
            value = decode(event.payload)
        except Exception as error:
            self.failures[job.index] = RemoteError(f"the result of {job.what} cannot be read: {error!r}")
            return
        if event.kind == "error":
            self.failures[job.index] = _as_exception(value, job)
            if job.index < 0:
                self.pool._fresh.add(event.worker)
                self.restoring.pop(event.worker, None)
        elif job.index >= 0:
            self.results[job.index] = value
            if self.done is not None:
                self.done(job, value)

    def _check_silence(self) -> None:
        for worker in list(self.running):
            health = self.transport.health(worker)
            if health.phase == "call":
                health = health._replace(phase=self.running[worker].phase)
            limit = self.pool.timeouts.limit(health)
            if limit is not None and health.silent_s > limit:
                doing = "was stopped" if health.stopped else f"gave no sign of life in phase {health.phase!r}"
                self._replace(worker, f"it {doing} for {health.silent_s:.0f} s")

    def _replace(self, worker: int, reason: str) -> None:
        job = self.running.pop(worker, None)
        self.restoring.pop(worker, None)
        self.pool._fresh.add(worker)
        if job is None:
            return  # the next job starts it again, so that one that cannot start is not tried for ever
        self.transport.restart(worker)
        self.restarts[worker] += 1
        job.tries += 1
        if job.index < 0:
            self.failed_starts[worker] += 1
        if max(job.tries, self.failed_starts[worker] if job.index < 0 else 0) > self.pool.max_retries:
            self.failures[job.index] = WorkerLost(
                f"worker {worker} was lost {self.restarts[worker]} times, last while running {job.what}: {reason}. If "
                "the work is heavy, allow more time (PoolTimeouts); if memory ran out, use fewer workers or slots"
            )
        elif job.index >= 0:
            (self.shared if job.worker is None else self.pinned[worker]).appendleft(job)


def _as_exception(failure: RemoteFailure, job: Job) -> BaseException:
    error = failure.error
    if error is None:
        return RemoteError(f"{job.what} raised {failure.summary}\n{failure.traceback}")
    if isinstance(error, RolloutError):
        error.add_note(f"Traceback in the worker:\n{error.worker_traceback or failure.traceback}")
        return error
    error.add_note(f"raised in a worker while running {job.what}; its traceback there:\n{failure.traceback}")
    return error


def _name(func: Callable[..., Any]) -> str:
    return getattr(func, "__qualname__", repr(func))
