"""Pools of workers that tests share; see the fixtures ``shared_pools`` and ``lent_pools``."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, final

import pytest

from metaroll.processes.children import guard_pid
from metaroll.rollouts.configs import PoolTimeouts
from metaroll.rollouts.workers.pool import SamplerPool


class _SharedPool(SamplerPool):
    """Does not stop when a borrower stops it."""

    def stop(self) -> None:
        pass

    def end(self) -> None:
        super().stop()


@final
class SharedPools:
    """``pools[2]`` is a running pool of two worker processes, which lives until the session ends.

    For tests of what runs in workers. Starting them costs more than most tests, since each imports everything anew. A
    test of their lives (limits of time, Ctrl-C, what is left behind) starts its own.
    """

    def __init__(self) -> None:
        self._running: dict[tuple[int, PoolTimeouts], _SharedPool] = {}
        self._known: set[int] = set()

    def __getitem__(self, num_workers: int) -> SamplerPool:
        return self.with_timeouts(num_workers, None)

    def with_timeouts(self, num_workers: int, timeouts: PoolTimeouts | None) -> SamplerPool:
        key = num_workers, timeouts or PoolTimeouts()  # an engine whose timeouts are these refuses a pool without any
        if key not in self._running:
            pool = self._running[key] = _SharedPool(num_workers, transport="process", timeouts=key[1])
            pool.invoke_all(bool)  # so that all of them have started
        return self._running[key]

    @contextlib.contextmanager
    def strict(self, num_workers: int, **settings: Any) -> Iterator[SamplerPool]:
        """``pools[num_workers]``, meanwhile with other timeouts or ``max_retries``, for tests of lost workers."""
        pool = self[num_workers]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pool, "config", dataclasses.replace(pool.config, **settings))
            yield pool

    def processes(self) -> set[int]:
        guards = {guard_pid()} if self._running else set()
        return {worker.pid for pool in self._running.values() for worker in pool.describe_workers()} | guards - {None}

    def without(self, pids: set[int]) -> set[int]:
        """``pids`` but for those of ``processes``, which are asked for only where there is a new one among them."""
        if not pids <= self._known:
            self._known = self.processes()
        return pids - self._known

    def end(self) -> None:
        for pool in self._running.values():
            pool.end()
        self._running.clear()
        self._known.clear()


SHARED_POOLS = SharedPools()


class _Lending(type):
    """A call returns a shared pool where that differs only in how long it lives."""

    def __call__(cls, num_workers: int, **options: Any) -> SamplerPool:
        asked = SamplerPool(num_workers, **options)  # its workers start with its first work
        is_plain = asked.config.transport in ("auto", "process") and asked.config.address is None
        if is_plain and not asked.is_serial and not options.keys() - {"config", "transport"}:
            return SHARED_POOLS.with_timeouts(num_workers, asked.config.timeouts)
        return asked

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, SamplerPool)


class LentPool(metaclass=_Lending):
    """Stands in for ``SamplerPool`` where pools are lent."""
