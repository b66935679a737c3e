"""What a worker does for the engine: keeps environments and policy, runs units of plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from metaroll.data.rollouts import RolloutColumns
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.mujoco.threads import physics_threads
from metaroll.errors import RolloutError
from metaroll.rollouts.engine.slot_loop import SlotLoop
from metaroll.rollouts.failures import DroppedRollout
from metaroll.rollouts.workers.messages import GlobalNamespace
from metaroll.tasks.plan_table import PlanTable
from metaroll.types import Policy, Slots, SlotsKind

__all__ = [
    "Unit",
    "UnitResult",
    "UnitRunner",
    "forget",
    "run_unit_in_worker",
    "set_env",
    "set_parameters",
    "set_policy",
]

_MOST_KEPT_SLOTS = 4


@dataclass(frozen=True)
class Unit:
    """A fixed list of plans over a fixed number of slots."""

    number: int
    plans: PlanTable
    num_slots: int
    on_invalid: str = "raise"
    record_infos: bool = True
    record_extras: bool = False


@dataclass
class UnitResult:
    """What came of a unit.

    Attributes:
        number: That of the unit.
        columns: Its rollouts, in the order of its plans.
        kept: Places of their plans in the unit, ``(N,)``.
        dropped: Rollouts that were left out.
    """

    number: int
    columns: RolloutColumns | None
    kept: np.ndarray
    dropped: list[DroppedRollout] = field(default_factory=list)


class UnitRunner:
    """Environments, policy and parameters of one engine in one process.

    Args:
        threads: How many threads simulate physics; ``None`` means as ``physics_threads`` says.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self.env: EnvSource | None = None
        self.policy: Policy | None = None
        self.parameters: np.ndarray | None = None
        self._example: Any = None
        self._slots: dict[tuple[int, SlotsKind], Slots] = {}

    def set_env(self, env: EnvSource) -> None:
        self.close()
        self.env = env

    def run(self, unit: Unit, beat: Callable[[str], None] | None = None) -> UnitResult:
        """Run a unit; slots are kept for the next one of the same width."""
        if self.policy is None:
            raise RuntimeError("no policy has been set")
        kind = self._kind(unit, beat)
        key = (0 if kind == "vector" else unit.num_slots, kind)  # a vector environment has its own number
        slots = self._slots_for(key, beat)
        num_slots = slots.num_slots
        own = bool(unit.plans.set_of[0] >= 0)
        loop: SlotLoop | None = None
        try:
            with _one_torch_thread(self.policy):
                loop = SlotLoop(
                    slots,
                    self.policy,
                    unit.plans,
                    parameters=None if own else self.parameters,
                    on_invalid=unit.on_invalid,
                    record_infos=unit.record_infos,
                    record_extras=unit.record_extras,
                    beat=beat,
                )
                loop.advance()
        except BaseException as error:
            if loop is not None and isinstance(error, RolloutError):
                error.finished = list(loop.finished)
            # What the failed step left behind must not reach the next unit; what close() says must not hide the error.
            with suppress(Exception):
                self._slots.pop(key).close()
            raise
        if slots.num_slots != num_slots:  # it was narrowed
            self._slots.pop(key).close()
        if loop.columns is not None:
            loop.columns.plans = None  # they are known where the unit came from
        return UnitResult(unit.number, loop.columns, np.array(loop.positions, dtype=np.int64), loop.dropped)

    def close(self) -> None:
        for slots in self._slots.values():
            slots.close()
        self._slots.clear()
        if self._example is not None and self.env is not None:
            self.env.close(self._example)
            self._example = None

    def _kind(self, unit: Unit, beat: Callable[[str], None] | None) -> SlotsKind:
        """Whether the environment's own simulator can run all plans of the unit (the bits are the same either way)."""
        if self._example is None:
            if beat is not None:
                beat("reset")  # building environments may take long
            self._example = self._source.make()
        return self._source.kind(unit.plans, self._example)

    @property
    def _source(self) -> EnvSource:
        if self.env is None:
            raise RuntimeError("no environment has been set")
        return self.env

    def _slots_for(self, key: tuple[int, SlotsKind], beat: Callable[[str], None] | None) -> Slots:
        slots = self._slots.pop(key, None)
        if slots is None:
            if beat is not None:
                beat("reset")
            while len(self._slots) >= _MOST_KEPT_SLOTS:
                self._slots.pop(next(iter(self._slots))).close()
            num_slots, kind = key
            with physics_threads(self._threads):
                slots = self._source.slots(max(num_slots, 1), env=self._example, kind=kind)
        self._slots[key] = slots  # last used, last in the order
        return slots


def set_env(namespace: GlobalNamespace, key: str, env: EnvSource) -> None:
    """Worker side of ``RolloutEngine``: a new environment."""
    _runner(namespace, key).set_env(env)


def set_policy(namespace: GlobalNamespace, key: str, policy: Policy) -> None:
    """Worker side of ``RolloutEngine``: a new policy."""
    _runner(namespace, key).policy = policy


def set_parameters(namespace: GlobalNamespace, key: str, parameters: np.ndarray | None) -> None:
    """Worker side of ``RolloutEngine``: new parameters ``(P,)``."""
    _runner(namespace, key).parameters = parameters


def forget(namespace: GlobalNamespace, key: str) -> None:
    """Worker side of ``RolloutEngine``: free what it had here."""
    runner = vars(namespace).get("_unit_runners", {}).pop(key, None)
    if runner is not None:
        with suppress(Exception):  # nobody who could be told is there any more
            runner.close()


def run_unit_in_worker(
    namespace: GlobalNamespace, key: str, unit: Unit, beat: Callable[[str], None] | None = None
) -> UnitResult:
    """Worker side of ``RolloutEngine``: run a unit."""
    return _runner(namespace, key).run(unit, beat)


run_unit_in_worker.wants_beat = True  # type: ignore[attr-defined]


def _runner(namespace: GlobalNamespace, key: str) -> UnitRunner:
    runners = vars(namespace).setdefault("_unit_runners", {})
    return runners.setdefault(key, UnitRunner(threads=1))  # workers share the processors


@contextmanager
def _one_torch_thread(policy: Policy) -> Iterator[None]:
    """One torch thread for policies that act through torch, as in workers: with more the last bits may differ."""
    threads = torch.get_num_threads()
    if policy.info.width_independent or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
