"""The pool of workers: it runs functions in processes (or in this one), replaces workers that die, and never hangs."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from metaroll.checks import check_seed, check_whole, takes_arguments
from metaroll.config import config_of, understands
from metaroll.rollouts.collecting import enough
from metaroll.rollouts.configs import WorkersConfig, check_num_workers
from metaroll.rollouts.workers.messages import GlobalNamespace, call_numbered, encode_command, seed_worker
from metaroll.rollouts.workers.ray_session import require_ray
from metaroll.rollouts.workers.ray_transport import RayTransport
from metaroll.rollouts.workers.schedule import (
    Job,
    RemoteError,
    Schedule,
    WorkerStatus,
    describe_worker,
)
from metaroll.rollouts.workers.transports import ProcessTransport, SerialTransport, Transport

__all__ = ["PREPARING", "GlobalNamespace", "Job", "RemoteError", "SamplerPool", "check_shared"]

PREPARING = "preparing a worker"
"""What functions of this library do that run before the work."""


class SamplerPool:
    """A fixed number of workers, each with a ``GlobalNamespace`` that outlives the calls.

    A worker that dies or does not answer is replaced by a fresh one, whose namespace is empty: what was put there by
    ``invoke_all`` is lost with it. What has to be there is given to ``keep``, which runs in every fresh worker, too.

    Args:
        num_threads: Number of workers (at least 1).
        config: Where they are, and when one is given up; ``num_threads`` is another name of its ``num_workers``. A
            cluster that is new ends with the last pool. A function runs ``max_retries + 1`` times, if each time its
            worker dies or exceeds ``call_s``; then ``WorkerLost`` is raised.
        options: Settings by name, in place of those of ``config``, e.g. ``transport="ray"``.

    Workers start when they are first needed. The pool is a context manager; ``stop`` (also called when the pool is
    collected or the interpreter ends) leaves no process behind.

    Attributes:
        config: The settings.
        is_serial: Whether functions run in this process.
    """

    @understands(num_workers="num_threads")
    def __init__(
        self,
        num_threads: int,
        *,
        config: WorkersConfig | None = None,
        **options: Any,
    ) -> None:
        check_num_workers(num_threads, config)
        if options or not isinstance(config, WorkersConfig) or config.num_workers != num_threads:
            config = config_of(WorkersConfig, config, dict(num_workers=num_threads, **options), type(self))
        if config.transport == "ray":
            require_ray()
        self.config, self.num_workers = config, config.num_workers
        self.is_serial = config.transport == "serial" or (config.transport == "auto" and self.num_workers == 1)
        self._transport: Transport | None = None
        self._finalizer: weakref.finalize | None = None
        self._closing: list[tuple[Transport, weakref.finalize]] = []
        """Transports that are no longer used, until all their workers have ended."""
        self._init_jobs: dict[str, tuple[bytes, str]] = {}
        """Commands that every new worker runs first: key -> command and name."""
        self._fresh: set[int] = set()
        """Workers that have not run them."""
        self._pending: list[deque[Job]] = [deque() for _ in range(self.num_workers)]
        """Commands that each worker runs before its next job."""
        self._seed: int | None = None
        self._schedule: Schedule | None = None
        """The call that is running."""
        self._in_use: dict[str, object] = {}
        """A token of the call that is running: ``setdefault`` and a comparison cannot be cut in two by Ctrl-C."""
        self._owner = os.getpid()
        self.is_stopped = False

    # -- documented calls --------------------------------------------------------------------

    def invoke_all(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """``func(G, *args, **kwargs)`` once in every worker; results in worker order."""
        return self._in_all(func, encode_command(func, args, kwargs, f"function {_name(func)} or its arguments"))

    def invoke_all_map(self, func: Callable[..., Any], arglist: Iterable[Any]) -> list[Any]:
        """``func(G, arglist[i])`` in worker ``i``.

        Raises:
            ValueError: There are not exactly as many arguments as workers.
        """
        arglist = _as_list(arglist)
        if len(arglist) != self.num_workers:
            raise ValueError(f"arglist must have one entry per worker ({self.num_workers}), got {len(arglist)}")
        return self._run([self._job(i, func, arg, worker=i) for i, arg in enumerate(arglist)]).outcome()

    def run_map(self, func: Callable[..., Any], arglist: Iterable[Any], progressbar: Any = None) -> list[Any]:
        """``[func(G, arg) for arg in arglist]``, handed to whichever worker is free; results in argument order.

        Raises:
            Exception: What ``func`` raised for the first argument that failed, after all workers have come to rest.
            WorkerLost: Workers died repeatedly on the same argument.
        """
        jobs = [self._job(i, func, arg) for i, arg in enumerate(_as_list(arglist))]
        if progressbar is not None:
            progressbar.total = len(jobs)
        done = None if progressbar is None else lambda job, result: progressbar.update(1)
        return self._run(jobs, done).outcome()

    def run_collect(
        self,
        n: int,
        func: Callable[..., tuple[Any, int]],
        *args: Any,
        collect_progressbar: Any = None,
        min_runs: int | None = None,
        **kwargs: Any,
    ) -> tuple[list[Any], int]:
        """Run ``func(G, run_num, *args, **kwargs) -> (result, num_samples)`` until there are ``n`` samples.

        ``run_num`` is 1, 2, 3, ... Kept is the shortest sequence of first runs with at least ``n`` samples and at
        least ``min_runs`` runs. Runs that other workers have begun meanwhile are dropped, so that the result does not
        depend on the number of workers, provided that run ``i`` depends on ``i`` alone.

        Args:
            n: Minimum number of samples, at least 1. A ``func`` that never brings any makes this run for ever.
            func: Must be picklable.
            *args: Handed to ``func``.
            collect_progressbar: A tqdm bar; its total becomes ``n``.
            min_runs: Minimum number of runs.
            **kwargs: Handed to ``func``.

        Returns:
            Results of the kept runs in their order, and how many samples these have.

        Raises:
            Exception: What ``func`` raised in a run that is needed (one that is not needed may fail).
            WorkerLost: Workers died repeatedly on a run that is needed.
            TypeError: ``func`` does not take these arguments; nothing is run.
        """
        if callable(func) and not takes_arguments(func, None, 1, *args, **kwargs):
            signature = ", ".join(
                ["G", "run_num", *(type(a).__name__ for a in args), *(f"{name}=..." for name in kwargs)]
            )
            raise TypeError(f"run_collect calls func({signature}), which {_name(func)} does not take")
        command = encode_command(func, args, kwargs, f"function {_name(func)} or its arguments")
        runs = _NumberedRuns(command, _name(func), n, min_runs, collect_progressbar)
        return runs.kept(self._run([], runs.done, runs.more))

    def set_seed(self, seed: int | None) -> None:
        """Functions that draw from global generators draw from a stream seeded with ``seed + i`` in worker ``i``.

        For old scripts: which worker runs what depends on their number and speed. What should be reproducible takes
        its seed as an argument, as the samplers do. The stream is in place while functions run, also in the serial
        pool, whose caller keeps its own generators. A worker that is replaced restarts the stream. ``None`` ends it.
        """
        before, self._seed = self._seed, None if seed is None else check_seed("seed", seed)
        try:
            if self._transport is not None:
                self._run([self._seeding(i) for i in range(self.num_workers)]).outcome()
        except BaseException:
            self._seed = before
            raise

    def describe_workers(self) -> list[WorkerStatus]:
        """The present status of every worker; may be called from any thread, also while the pool is busy.

        ``metaroll.rollouts.workers.schedule.format_workers`` makes a table of it.
        """
        schedule = self._schedule
        if schedule is not None:
            return schedule.status()
        return [describe_worker(self._transport, worker, None) for worker in range(self.num_workers)]

    def stop(self) -> None:
        """End all workers. The pool cannot be used afterwards."""
        self.is_stopped = True
        self._shut()

    def invoke_own(self, func: Callable[..., Any], *args: Any, in_words: str, phase: str = "call") -> list[Any]:
        """As ``invoke_all``, for a function of this library, whose name means nothing at the command line.

        Args:
            func: The function.
            *args: Its arguments, after the namespace.
            in_words: What it does, for messages there.
            phase: See ``Job``.
        """
        return self._in_all(func, encode_command(func, args, {}, in_words), phase, in_words)

    # -- what every worker knows ---------------------------------------------------------------------------------------

    def keep(self, key: str, func: Callable[..., Any], *args: Any, what: str | None = None, hint: str = "") -> None:
        """Run ``func(G, *args)`` in every worker now, and first of all in every worker that replaces one.

        What was kept under the same key before is forgotten, in its place in the order.
        """
        what = what or f"function {_name(func)} or its arguments"
        blob = encode_command(func, args, {}, what, hint)
        before = self._init_jobs.get(key)
        try:
            self._init_jobs[key] = (blob, _name(func))
            if self._transport is None:
                self._connect()  # the first call runs everything that is kept
                return
            self._run([_preparing(i, blob, _name(func), i) for i in range(self.num_workers)]).outcome()
        except BaseException:
            # Not kept, or each later call would fail with it; some workers have run it, so all receive it again.
            if before is None:
                self._init_jobs.pop(key, None)
            else:
                self._init_jobs[key] = before
            self._fresh.update(range(self.num_workers))
            raise

    def forget(self, key: str) -> None:
        """New workers no longer get the function kept under ``key``."""
        self._init_jobs.pop(key, None)

    def run_later(self, func: Callable[..., Any], *args: Any) -> None:
        """``func(G, *args)`` in every worker before its next job; never waits, so finalizers may call it."""
        if self._transport is None:
            return
        blob = encode_command(func, args, {}, _name(func))
        for worker, pending in enumerate(self._pending):
            pending.append(_preparing(-1, blob, _name(func), worker))

    def run_jobs(self, jobs: Sequence[Job], done: Callable[[Job, Any], None] | None = None) -> list[Any]:
        """Run prepared commands (see ``run_map``); ``done(job, result)`` is called as each ends."""
        return self._run(jobs, done).outcome()

    def __enter__(self) -> SamplerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __reduce__(self) -> Any:
        raise RuntimeError("a SamplerPool holds live processes and cannot be pickled; build one where it is needed")

    # -- scheduling ------------------------------------------------------------------------------------------------

    def _in_all(self, func: Callable[..., Any], command: bytes, phase: str = "call", in_words: str = "") -> list[Any]:
        """Results of a command, which calls ``func``, in all workers; for the others see ``Job``."""
        jobs = [Job(i, command, _name(func), i, phase=phase, in_words=in_words) for i in range(self.num_workers)]
        return self._run(jobs).outcome()

    def _job(self, index: int, func: Callable[..., Any], arg: Any, worker: int | None = None) -> Job:
        blob = encode_command(func, (arg,), {}, f"function {_name(func)} or its argument {index}")
        return Job(index, blob, f"{_name(func)}, argument {index}", worker)

    def _seeding(self, worker: int) -> Job:
        seed = None if self._seed is None else self._seed + worker
        return _preparing(worker, encode_command(seed_worker, (seed,), {}, "a seed"), "set_seed", worker)

    def _connect(self) -> Transport:
        if self.is_stopped:
            raise RuntimeError("this SamplerPool has been stopped; create a new one")
        if self._transport is not None and not self.is_serial and os.getpid() != self._owner:
            raise RuntimeError(
                f"this SamplerPool belongs to process {self._owner}, of which this one is a fork; create one here"
            )
        if self._transport is None:
            self._shut()
            transport: Transport
            if self.config.transport == "ray":
                transport = RayTransport(self.num_workers, self.config.address)
            else:
                transport = SerialTransport() if self.is_serial else ProcessTransport(self.num_workers)
            self._owner = os.getpid()
            self._fresh = set(range(self.num_workers))
            self._finalizer = weakref.finalize(self, transport.close)
            self._transport = transport
            try:
                transport.start()
            except BaseException:
                self._shut()
                raise
        return self._transport

    def _shut(self) -> None:
        for pending in self._pending:
            pending.clear()
        if self._transport is not None and self._finalizer is not None:
            self._closing.append((self._transport, self._finalizer))
        self._transport = self._finalizer = None
        while self._closing:  # of those before, too, if Ctrl-C came meanwhile: it takes a moment
            transport, finalizer = self._closing[-1]
            transport.close()
            finalizer.detach()
            self._closing.pop()

    def _first_jobs(self, worker: int) -> deque[Job]:
        """Jobs that ``worker`` runs before its next one: first those of every new worker, if it is one."""
        jobs: deque[Job] = deque()
        if worker in self._fresh:
            self._fresh.discard(worker)
            if self._seed is not None:
                seeding = self._seeding(worker)
                seeding.index = -1
                jobs.append(seeding)
            commands = list(self._init_jobs.values())  # at once: a finalizer may forget some meanwhile
            jobs.extend(_preparing(-1, blob, what, worker) for blob, what in commands)
        pending = self._pending[worker]
        while pending:
            jobs.append(pending.popleft())
        return jobs

    def _run(
        self,
        jobs: Sequence[Job],
        done: Callable[[Job, Any], None] | None = None,
        more: Callable[[], Job | None] | None = None,
    ) -> Schedule:
        token, schedule = object(), None
        try:
            if self._in_use.setdefault("call", token) is not token:
                raise RuntimeError(
                    "this SamplerPool is in the middle of another call (from another thread, or from inside a "
                    "callback); wait for that one to end, or use a SamplerPool per thread"
                )
            transport, fresh = self._connect(), self._fresh
            self._schedule = schedule = Schedule(transport, self.config, self._first_jobs, fresh, jobs, done, more)
            schedule.run()
            self._leave(token)
        except BaseException:
            # Ctrl-C, or a callback raised: workers are in the middle of something, and what they send back would be
            # taken for the results of the next call. They go; that call starts fresh ones.
            try:
                if schedule is not None:
                    self._shut()
            finally:
                self._leave(token)
            raise
        return schedule

    def _leave(self, token: object) -> None:
        """End the call of ``token``, if it is the one that is running."""
        if self._in_use.get("call") is token:
            self._schedule = None
            del self._in_use["call"]


class _NumberedRuns:
    """Makes jobs for runs 1, 2, 3, ... of an encoded command, and finds the first that suffice.

    Args:
        command: The function with its arguments (``encode_command``); it returns ``(result, number of samples)``.
        name: Name of the function.
        n: Minimum number of samples.
        min_runs: Minimum number of runs; ``None`` means 1.
        bar: A tqdm bar for the samples, or ``None``.
    """

    def __init__(self, command: bytes, name: str, n: int, min_runs: int | None, bar: Any) -> None:
        self._command, self._name, self._bar = command, name, bar
        self._need = check_whole("n", n)
        self._least = 1 if min_runs is None else check_whole("min_runs", min_runs)
        self._started = self._collected = 0
        if bar is not None:
            bar.total = self._need

    def more(self) -> Job | None:
        """The next run, or ``None`` if those that were started suffice."""
        # Enough as soon as the finished runs suffice: earlier ones that still run can only add to them.
        if self._collected >= self._need and self._started >= self._least:
            return None
        self._started += 1
        what = f"{self._name}, run {self._started}"
        return Job(self._started, encode_command(call_numbered, (self._command, self._started), {}, what), what)

    def done(self, job: Job, result: tuple[Any, int]) -> None:
        """A run has ended."""
        shown = min(self._collected, self._need)
        self._collected += result[1]
        if self._bar is not None:
            self._bar.update(min(self._collected, self._need) - shown)

    def kept(self, schedule: Schedule) -> tuple[list[Any], int]:
        """Results of the shortest sequence of first runs that suffices, and their number of samples.

        Raises:
            Exception: What a run raised that is needed.
        """
        runs: list[tuple[Any, int]] = []
        while (done := schedule.results.get(len(runs) + 1)) is not None:
            runs.append(done)
        length = enough([count for _, count in runs], self._least, self._need)
        if length is None:
            raise schedule.first_failure()
        return [result for result, _ in runs[:length]], sum(count for _, count in runs[:length])


def check_shared(pool: Any, config: WorkersConfig) -> None:
    """``TypeError`` or ``ValueError`` unless ``pool`` can be used instead of workers of ``config``."""
    if pool is None:
        return
    if not isinstance(pool, SamplerPool):
        raise TypeError(f"pool must be a SamplerPool (how many workers: num_workers), got {pool!r}")
    if config.timeouts not in (None, pool.config.timeouts):
        raise ValueError("timeouts belong to the pool: give them to the SamplerPool, or leave pool out")
    for name in ("address", "max_retries"):
        if getattr(config, name) not in (getattr(WorkersConfig, name), getattr(pool.config, name)):
            raise ValueError(f"{name} belongs to the pool: give it to the SamplerPool, not to the engine as well")


def _as_list(arglist: Any) -> list[Any]:
    if not isinstance(arglist, Iterable):
        raise TypeError(f"arglist must be a list of arguments, got {arglist!r} of type {type(arglist).__name__}")
    return list(arglist)


def _preparing(index: int, blob: bytes, what: str, worker: int) -> Job:
    return Job(index, blob, what, worker, phase="start", in_words=PREPARING)


def _name(func: Callable[..., Any]) -> str:
    if not callable(func):
        raise TypeError(f"func must be callable as func(namespace, ...), got {func!r} of type {type(func).__name__}")
    return getattr(func, "__qualname__", repr(func))
