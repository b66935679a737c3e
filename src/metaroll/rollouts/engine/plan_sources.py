"""Which plan a slot gets next: in one order for all slots, or by number for each; and rollouts in the middle."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaroll.data.data_format import iterate_leaves
from metaroll.errors import ReplayError
from metaroll.rollouts.failures import describe_plan
from metaroll.tasks.plan_table import PlanTable
from metaroll.types import RolloutPlan

__all__ = ["PlansInOrder", "RunningRollout", "SlotPlans", "check_replayed"]


@dataclass
class RunningRollout:
    """A rollout in the middle.

    Attributes:
        slot: Where it runs.
        position: Place of its plan in the order of plans.
        plan: Its plan.
        age: Steps that it has taken.
        actions: The actions that it took, ``(age, ...)``, in the environment's structure.
    """

    slot: int
    position: int
    plan: RolloutPlan
    age: int
    actions: Any = None


class PlansInOrder:
    """Where plans come from: those that are taken next, as tables, and the place of each in their order.

    Attributes:
        begun: How many have been taken, ``(1,)``.
        table: All plans; ``None`` where they come one after the other.
    """

    def __init__(self, plans: Iterable[RolloutPlan]) -> None:
        self.table = PlanTable.of(plans) if isinstance(plans, Sequence) else None
        self._rest: Iterator[RolloutPlan] = iter(()) if self.table is not None else iter(plans)
        self.begun = np.zeros(1, dtype=np.int64)
        self._peeked: list[RolloutPlan] = []

    @property
    def more(self) -> bool:
        """Whether there are further plans."""
        if self.table is not None:
            return int(self.begun[0]) < len(self.table)
        if not self._peeked:
            self._peeked = list(itertools.islice(self._rest, 1))
        return bool(self._peeked)

    def take(self, slots: np.ndarray) -> tuple[PlanTable, np.ndarray]:
        """The next plans, at most one for each of ``slots``, and their places in the order."""
        begin, count = int(self.begun[0]), len(slots)
        if self.table is not None:
            whole = begin == 0 and count >= len(self.table)
            table = self.table if whole else self.table.take(slice(begin, begin + count))
        else:
            table = PlanTable([*self._peeked, *itertools.islice(self._rest, count - len(self._peeked))])
            self._peeked = []
        return table, self.positions(len(table))

    def positions(self, count: int) -> np.ndarray:
        """The places of ``count`` further plans."""
        self.begun += count
        return np.arange(self.begun[0] - count, self.begun[0])


class SlotPlans:
    """Plans by number, a separate sequence for each slot.

    Attributes:
        begun: Rollouts that each slot has begun, ``(E,)``.
        skipped: Numbers that are left out.
    """

    more = True
    table = None

    def __init__(self, plan_of: Callable[[int], RolloutPlan], num_slots: int) -> None:
        self._plan_of = plan_of
        self.begun = np.zeros(num_slots, dtype=np.int64)
        self.skipped: frozenset[int] = frozenset()

    def take(self, slots: np.ndarray) -> tuple[PlanTable, np.ndarray]:
        """The next plan of each of ``slots``, and their numbers."""
        numbers = self.begun[slots] * len(self.begun) + slots
        while self.skipped and (left_out := np.isin(numbers, list(self.skipped))).any():
            self.begun[slots[left_out]] += 1
            numbers = self.begun[slots] * len(self.begun) + slots
        self.begun[slots] += 1
        return PlanTable([self._plan_of(number) for number in numbers.tolist()]), numbers

    def positions(self, count: int) -> np.ndarray:
        raise ValueError("slots of this loop are filled from its plans")


def check_replayed(running: Sequence[RunningRollout], seen: Any, before: Any) -> None:
    """``ReplayError`` where a rollout that was run again shows another observation ``(E, ...)`` than before."""
    known = dict(iterate_leaves(before))
    for path, leaf in iterate_leaves(seen) if running else ():
        for entry in running:
            if not _same(leaf[entry.slot], known[path][entry.slot]):
                raise ReplayError(
                    f"{describe_plan(entry.plan)} shows another observation after its {entry.age} recorded actions "
                    "than before: its environment draws from its own generator, or keeps what reset leaves; "
                    "let all randomness come from reset(seed=...)",
                    entry.plan,
                    entry.age,
                )


def _same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and (a.dtype.hasobject or a.tobytes() == b.tobytes())
