"""One call of a pool: gives jobs to idle workers, replaces those that die or fall silent, and collects results."""

from __future__ import annotations

import bisect
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from metaroll.checks import check_list
from metaroll.errors import MetarollError, RolloutError, WorkerLost, for_reader
from metaroll.processes.endings import hint_of_ending
from metaroll.rollouts.configs import PoolTimeouts, WorkersConfig
from metaroll.rollouts.failures import can_run_again, replay_line, shortened
from metaroll.rollouts.workers.messages import Event, RemoteFailure, decode
from metaroll.rollouts.workers.transports import Health, Transport
from metaroll.types import RolloutPlan

__all__ = [
    "Job",
    "RemoteError",
    "Schedule",
    "WorkerStatus",
    "describe_worker",
    "format_workers",
]

_LOG = logging.getLogger(__name__)
_TICK_S = 0.5
_LIMITS = {"start": "start_s", "call": "call_s", "reset": "reset_s"}


class WorkerStatus(NamedTuple):
    """The status of one worker.

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
    for status in check_list("workers", workers, "WorkerStatus", WorkerStatus):
        phase = f"{status.phase} (stopped)" if status.stopped else status.phase
        silent = "-" if status.phase == "off" else f"{status.silent_s:.1f} s"
        pid = str(status.pid) if status.pid else "-"
        rows.append((str(status.worker), pid, phase, silent, str(status.restarts), status.what or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


class RemoteError(MetarollError, RuntimeError):
    """A function raised in a worker an exception that could not be sent; its traceback is in the message."""


@dataclass
class Job:
    """One command for one worker, with its description for errors."""

    index: int
    blob: bytes
    what: str
    worker: int | None = None
    tries: int = 0
    phase: str = "call"
    """Which of ``PoolTimeouts`` holds while the command is read and run, until it reports its own phase."""
    plans: Sequence[RolloutPlan] = ()
    """The rollouts that it is made of, if it is."""
    in_words: str = ""
    """What it does, for messages at the command line, if ``what`` is the name of a function of this library."""


class Schedule:
    """Hands jobs to idle workers until all are done, or one has failed and those before it are done.

    Args:
        transport: The workers.
        workers: When a silent worker is given up, and how often the work of a lost one is tried again.
        init_jobs: Jobs that a worker runs before its next one.
        fresh: Workers that have not run what every new one does; those that are replaced are added.
        jobs: The jobs to run; those with a ``worker`` run there, the others wherever there is room, in the order of
            their indices.
        done: Called as ``done(job, result)`` when a job has ended.
        more: Asked for one more job whenever a worker has nothing to do; ``None`` means not now.

    After a failure only jobs with a smaller index still run (e.g. those of a lost worker). So the first failure is the
    one that a serial run would have met.
    """

    def __init__(
        self,
        transport: Transport,
        workers: WorkersConfig,
        init_jobs: Callable[[int], deque[Job]],
        fresh: set[int],
        jobs: Sequence[Job],
        done: Callable[[Job, Any], None] | None = None,
        more: Callable[[], Job | None] | None = None,
    ) -> None:
        self.transport = transport
        self.timeouts = workers.timeouts or PoolTimeouts()
        self.max_retries = workers.max_retries
        self.init_jobs = init_jobs
        self.fresh = fresh
        self.done = done
        self.more = more
        self.results: dict[int, Any] = {}
        self.failures: dict[int, BaseException] = {}
        self.running: dict[int, Job] = {}
        self.shared = deque(job for job in jobs if job.worker is None)
        self.pinned: dict[int, deque[Job]] = {worker: deque() for worker in range(self.transport.num_workers)}
        self.restoring: dict[int, deque[Job]] = {}
        self.failed_starts = [0] * self.transport.num_workers
        """Number of times that each worker was lost before it was ready for a job."""
        self.report: str | None = None
        """The status of the workers when one was given up last."""
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
            raise self.first_failure()
        return [self.results[index] for index in self.order]

    def first_failure(self) -> BaseException:
        """The failure with the smallest index; ``completed`` of an error of ours holds the results that there are."""
        error = self.failures[min(self.failures)]
        if isinstance(error, RolloutError | WorkerLost):
            error.completed = [self.results[index] for index in sorted(self.results)]
        if self.report is not None and not isinstance(error, WorkerLost):  # its message holds a table already
            error.add_note(f"the workers when one was given up last:\n{self.report}")
        return error

    def status(self) -> list[WorkerStatus]:
        """The status of every worker; may be called from any thread."""
        running = dict(self.running)
        workers = range(self.transport.num_workers)
        return [describe_worker(self.transport, worker, running.get(worker)) for worker in workers]

    # -- handing out -----------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        for worker in range(self.transport.num_workers):
            if worker in self.running:
                continue
            job = self._next_job(worker)
            if job is not None:
                self.running[worker] = job
                self.transport.send(worker, job.blob)

    def _next_job(self, worker: int) -> Job | None:
        if worker in self.restoring:  # continues even after a failure, so that the pool stays usable
            if self.restoring[worker]:
                return self.restoring[worker].popleft()
            del self.restoring[worker]
        queue = self.pinned[worker] or self.shared
        if not queue and self.more is not None and not self.failures:
            job = self.more()
            if job is not None:
                queue.append(job)
        if not queue or (self.failures and queue[0].index > min(self.failures)):
            return None
        init_jobs = self.init_jobs(worker)
        if init_jobs:
            self.restoring[worker] = init_jobs
            return init_jobs.popleft()
        return queue.popleft()

    # -- what comes back -------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        if event.kind == "lost":
            reason = str(event.payload)
            self._replace(event.worker, reason, hint_of_ending(reason, _less_memory()))
            return
        job = self.running.pop(event.worker, None)
        if job is None:
            return
        if event.kind == "ok" and self.more is None:
            self._hand_out()  # the worker continues while this process reads what it has sent
        try:
            value = decode(event.payload)
        except Exception as error:
            reason = f"what it sent does not fit: {shortened(repr(error))}"
            self._replace(event.worker, reason, hint_of_ending(reason, _less_memory()), job)
            return
        if event.kind == "error":
            self.failures[job.index] = _as_exception(value, job)
            if job.index < 0:
                self.fresh.add(event.worker)
                self.restoring.pop(event.worker, None)
        elif job.index >= 0:
            self.results[job.index] = value
            if self.done is not None:
                self.done(job, value)

    def _check_silence(self) -> None:
        for worker in list(self.running):
            health = _health(self.transport, worker, self.running[worker])
            limit = self.timeouts.limit(health.phase, health.stopped)
            if limit is not None and health.silent_s > limit:
                doing = "was stopped" if health.stopped else f"gave no sign of life in phase {health.phase!r}"
                self.report = format_workers(self.status())
                hint = _hint_of_silence(health.phase, health.stopped)
                self._replace(worker, f"it {doing} for {health.silent_s:.0f} s", hint)

    def _replace(self, worker: int, reason: str, hint: str, job: Job | None = None) -> None:
        """Start a new worker, and retry the job of the lost one: ``job``, or the one that it was running."""
        table = format_workers(self.status())
        running = self.running.pop(worker, None)
        if job is None:
            job = running
        elif running is not None:  # begun meanwhile
            self._put_back(running)
        self.restoring.pop(worker, None)
        self.fresh.add(worker)
        lost = f"worker {worker} was lost: {reason}; a new one"
        if job is None:
            _LOG.warning("%s starts with its next work. %s", lost, hint)
            return  # the next job starts it again, so that one that cannot start is not tried for ever
        self.transport.restart(worker)
        job.tries += 1
        if job.index < 0:
            self.failed_starts[worker] += 1
        tries = self.failed_starts[worker] if job.index < 0 else job.tries
        if tries > self.max_retries:
            self.failures[job.index] = _worker_lost(_work_of(job), tries, reason, hint, job.plans, table)
        else:
            self._put_back(job)
            _LOG.warning("%s %s. %s", lost, _what_follows(job), hint)

    def _put_back(self, job: Job) -> None:
        """Queue the job of a lost worker again; functions for every new worker run anyway."""
        if job.worker is not None and job.index >= 0:
            self.pinned[job.worker].appendleft(job)
        elif job.index >= 0:
            bisect.insort(self.shared, job, key=lambda waiting: waiting.index)


def describe_worker(transport: Transport | None, worker: int, job: Job | None) -> WorkerStatus:
    """The status of ``worker``."""
    what = "" if job is None else _work_of(job)
    if transport is None:
        return WorkerStatus(worker, 0, "off", what, 0.0, False, 0)
    restarts = max(0, transport.starts[worker] - 1)
    try:
        health = transport.health(worker) if job is None else _health(transport, worker, job)
    except (RuntimeError, ValueError):  # it does not run, or is being replaced at this moment
        return WorkerStatus(worker, 0, "off", what, 0.0, False, restarts)
    return WorkerStatus(worker, health.pid, health.phase, what, health.silent_s, health.stopped, restarts)


def _health(transport: Transport, worker: int, job: Job) -> Health:
    health = transport.health(worker)
    return health._replace(phase=job.phase) if health.phase == "call" else health


def _work_of(job: Job) -> str:
    """What a job does: at the command line without names of functions of this library."""
    return for_reader(job.what, job.in_words or job.what)


def _what_follows(job: Job) -> str:
    """What the worker does that replaces a lost one."""
    again = f"runs {job.what} again"
    in_words = again if not job.in_words else "is started" if job.phase == "start" else f"repeats {job.in_words}"
    return for_reader(again, in_words)


def _less_memory() -> str:
    """A way to need less memory."""
    return for_reader(
        "use fewer workers or environments at a time (slots_per_unit)", "use fewer workers (--num-workers)"
    )


def _as_exception(failure: RemoteFailure, job: Job) -> BaseException:
    error = failure.error
    if error is None:
        return RemoteError(f"{job.what} raised {failure.summary}\n{failure.traceback}")
    if isinstance(error, RolloutError):
        error.add_note(f"Traceback in the worker:\n{error.worker_traceback or failure.traceback}")
        return error
    error.add_note(f"raised in a worker while running {job.what}; its traceback there:\n{failure.traceback}")
    return error


def _worker_lost(
    what: str, tries: int, reason: str, hint: str, plans: Sequence[RolloutPlan], workers: str
) -> WorkerLost:
    """The error for work that was tried as often as is allowed.

    Args:
        what: The work.
        tries: How often it was tried.
        reason: Why the worker was lost the last time.
        hint: A hint against that.
        plans: The rollouts that it is made of, if it is.
        workers: Table of what all workers did at that time.
    """
    verb = "were" if what.startswith("rollouts ") else "was"
    if tries == 1:
        how_often = f"tried once, and the worker was lost: {reason}"
    else:
        how_often = f"tried {tries} times, each time a worker was lost; the last time {reason}"
    again = ""
    if plans and can_run_again(plans[0]):
        which = "it" if len(plans) == 1 else "the first of them"
        again = f"\nRun {which} again here (this process may be lost by it, too): {replay_line(plans[0])}"
    return WorkerLost(f"{what} {verb} {how_often}. {hint}{again}\nThe workers at that time:\n{workers}", plans)


def _hint_of_silence(phase: str, stopped: bool) -> str:
    """The hint for a worker that was given up since it gave no sign of life."""
    if stopped:
        return "Something stops its process (SIGSTOP, a debugger, a suspended machine); let it continue."
    limit = _LIMITS.get(phase, "step_s")
    option = {"step_s": "--step-timeout of metaroll train", "reset_s": "--reset-timeout of metaroll train"}.get(limit)
    more_time = for_reader(f"PoolTimeouts({limit}=...)", option or "")
    if not more_time:
        return "Find out what hangs."
    return f"If the work is heavy, allow more time, {more_time}; else find out what hangs."
