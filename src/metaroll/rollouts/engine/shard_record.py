"""The caller's record of a shard of a live collection: all it takes to build the shard again."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import gymnasium
import numpy as np

from metaroll.data.data_format import cat_to_format
from metaroll.data.rollouts import RolloutColumns
from metaroll.data.space_batches import check_given, take_rows
from metaroll.rollouts.engine.live_shard import PlansOfShard, ShardResult, ShardStart, ShardWork
from metaroll.rollouts.engine.plan_sources import RunningRollout
from metaroll.rollouts.requests import Kept
from metaroll.types import EnvSpec, RolloutPlan, SlotsResume

__all__ = ["LONGEST_LOG", "SAVED", "ShardRecord", "ShardState"]

LONGEST_LOG = 100_000
"""Steps of a rollout whose actions are kept; a longer one cannot be built again from them."""

SAVED = frozenset(
    {"begun", "slots", "positions", "ages", "actions", "states", "policy_state", "observations", "resumes", "skipped"}
)
"""Names in the state of a shard."""

_LOG_PARTS = 64
"""Parts of a log (one for each call) that are put together."""


class ShardRecord:
    """A shard as it was after its last call.

    A record never changes: its methods return another one. So the caller can replace the records of all shards at
    once, and nothing is half booked, wherever Ctrl-C comes.

    Args:
        number: Which of the collection's shards.
        first: Its first slot.
        num_slots: Number of its slots.
        total: Slots of the collection.
        plan_of: Where plans come from; ``None``: rollouts are started by hand.
        resumable: Whether it is to be built again at all.

    Attributes:
        last: Result of its last call.
        placed: Whether a worker is known to have its current version.
    """

    def __init__(
        self,
        number: int,
        first: int,
        num_slots: int,
        total: int,
        plan_of: Callable[[int], RolloutPlan] | None,
        resumable: bool,
    ) -> None:
        self.number, self.first, self.num_slots = number, first, num_slots
        self.last, self.placed = ShardResult(), False
        self._total, self._plan_of, self._resumable = total, plan_of, resumable
        self._version = 0
        self._plans: dict[int, RolloutPlan] = {}
        self._actions: dict[int, list[Any]] = {}
        self._skipped: frozenset[int] = frozenset()

    # -- calls -------------------------------------------------------------------------------------------------------

    def has(self, slot: int) -> bool:
        """Whether a slot of the collection is one of the shard."""
        return self.first <= slot < self.first + self.num_slots

    def work(self, name: str, steps: int, actions: Any) -> ShardWork:
        """A call, given the actions of all slots of the collection (or ``None``)."""
        rows = slice(self.first, self.first + self.num_slots)
        own_actions = None if actions is None else take_rows(actions, rows)
        return ShardWork((name, self.number), self._version, self.num_slots, steps, own_actions)

    def start(self, kept: Kept) -> ShardStart:
        """All it takes to build the shard."""
        last, plans = self.last, None
        if self._plan_of is not None:
            plans = PlansOfShard(self._plan_of, self.first, self.num_slots, self._total)
        logs = self._logs() or [None] * len(last.slots)
        columns = (last.slots.tolist(), last.positions.tolist(), last.ages.tolist(), logs)
        return ShardStart(
            plans,
            self._begun(),
            [
                RunningRollout(slot, position, self.plan(position), age, log)
                for slot, position, age, log in zip(*columns, strict=True)
            ],
            last.policy_state,
            last.observations,
            last.states,
            self._skipped,
            kept,
            self._resumable,
        )

    def after(self, result: ShardResult) -> tuple[ShardRecord, RolloutColumns | None, np.ndarray]:
        """The record after a call with this result, the columns of the result, and the numbers of their plans."""
        columns, numbers = result.columns, result.numbers
        if columns is not None and columns.plans is None:
            columns.plans = [self.plan(number) for number in numbers.tolist()]
        later = self._copy()
        later._version, later.placed, later.last = self._version + 1, True, result
        if self._skipped:  # earlier ones do not occur again
            turns = [(number, *divmod(number, self._total)) for number in self._skipped]
            later._skipped = frozenset(n for n, turn, slot in turns if turn >= result.begun[slot - self.first])
        if self._plan_of is not None:
            later._plans = {number: self.plan(number) for number in result.positions.tolist()}
        if result.resumes == "replay":
            later._actions = self._logged(result)
        result.columns, result.numbers = None, numbers[:0]
        return later, columns, numbers

    def plan(self, number: int) -> RolloutPlan:
        """The plan of a number; of rollouts that are started by hand nothing is known."""
        known = self._plans.get(number)
        if known is not None:
            return known
        return RolloutPlan() if self._plan_of is None else self._plan_of(number)

    def _begun(self) -> np.ndarray:
        width = 1 if self._plan_of is None else self.num_slots
        return self.last.begun.copy() if self.last.begun.size else np.zeros(width, dtype=np.int64)

    # -- logs of actions ---------------------------------------------------------------------------------------------

    def _logged(self, result: ShardResult) -> dict[int, list[Any]]:
        """The actions of the rollouts that continue, but for those that are too long."""
        logs, columns = dict(self._actions), result.columns
        if columns is not None:
            for i, number in enumerate(result.numbers.tolist()):
                rows = slice(int(columns.bounds[i]), int(columns.bounds[i + 1]))
                log = [*logs.get(number, ()), take_rows(columns.fields["actions"], rows)]
                logs[number] = [cat_to_format(log, "numpy")] if len(log) >= _LOG_PARTS else log
        ages = dict(zip(result.positions.tolist(), result.ages.tolist(), strict=True))
        return {number: log for number, log in logs.items() if ages.get(number, LONGEST_LOG) < LONGEST_LOG}

    def _logs(self) -> list[Any] | None:
        """The actions of the running rollouts, one array ``(age, ...)`` (or structure) for each."""
        if self.last.resumes != "replay":
            return None
        for log in self._actions.values():
            log[:] = [cat_to_format(log, "numpy")]  # the same actions, for all records that share the log
        logs = (self._actions.get(number) for number in self.last.positions.tolist())
        return [None if log is None else log[0] for log in logs]

    # -- what cannot continue -----------------------------------------------------------------------------------------

    def lost(self) -> list[int]:
        """Which of the running rollouts could not be built again (places in ``last.slots``)."""
        last = self.last
        if last.resumes == "state" and self._resumable:
            return []
        if last.resumes == "nothing" or not self._resumable:
            return list(range(len(last.slots)))
        begun = zip(last.positions.tolist(), last.ages.tolist(), strict=True)
        return [place for place, (number, age) in enumerate(begun) if age and number not in self._actions]

    def leaving_out(self, number: int) -> ShardRecord:
        """The rollout of a number has failed: its slot continues with its next plan."""
        later = self.without(np.flatnonzero(self.last.positions == number).tolist())
        later._skipped = self._skipped | {number}
        return later

    def without(self, places: Sequence[int]) -> ShardRecord:
        """Some running rollouts have ended; the shard is to be built again."""
        later, last = self._copy(), self.last
        kept = np.setdiff1d(np.arange(len(last.slots)), places)
        states = None if last.states is None else {name: values[kept] for name, values in last.states.items()}
        rows = {"slots": last.slots[kept], "positions": last.positions[kept], "ages": last.ages[kept]}
        later.last, later.placed = replace(last, **rows, states=states), False
        return later

    def _copy(self) -> ShardRecord:
        later = object.__new__(ShardRecord)  # a fifth of what copy.copy takes
        vars(later).update(vars(self))
        return later

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All of it, as plain data and arrays."""
        last = self.last
        return {
            "begun": self._begun(),
            "slots": last.slots.copy(),
            "positions": last.positions.copy(),
            "ages": last.ages.copy(),
            "actions": self._logs(),
            "states": last.states,
            "policy_state": last.policy_state,
            "observations": last.observations if last.slots.size else None,
            "resumes": last.resumes,
            "skipped": sorted(self._skipped),
        }

    def read_state(self, saved: Mapping[str, Any], spec: EnvSpec | None) -> ShardState:
        """Read a saved ``state_dict``, whose names the collection has checked; nothing has changed yet.

        Raises:
            ValueError: An entry is not what it must be.
        """
        arrays = {name: _whole_numbers(name, saved[name]) for name in ("begun", "slots", "positions", "ages")}
        slots, positions, ages, count = arrays["slots"], arrays["positions"], arrays["ages"], len(arrays["slots"])
        _expect(len(arrays["begun"]) == len(self._begun()), "begun", f"{len(self._begun())} numbers", saved["begun"])
        unique = np.unique(slots)
        _expect(len(unique) == count and (unique < self.num_slots).all(), "slots", "different slots", slots)
        _expect(len(positions) == len(ages) == count, "ages", f"{count} numbers, as positions and slots have", ages)
        if self._plan_of is not None:
            own = positions % self._total == self.first + slots
            _expect(own.all(), "positions", "numbers of plans of these slots", positions)
        resumes = saved["resumes"]
        _expect(isinstance(resumes, str) and resumes in get_args(SlotsResume), "resumes", "a kind of resuming", resumes)
        states, observations = saved["states"], saved["observations"]
        _expect(count == 0 or resumes != "state" or states is not None, "states", "a dict of arrays", states)
        _expect(count == 0 or observations is not None, "observations", "those of all slots", observations)
        if observations is not None and spec is not None:
            observations = _of_space("observations", spec.observation_space, observations, self.num_slots)
        kept = {
            "states": None if states is None else _named_rows("states", states, count),
            "policy_state": _named_rows("policy_state", saved["policy_state"], self.num_slots),
            "observations": observations,
            "resumes": resumes,
        }
        logs = saved["actions"] or [] if isinstance(saved["actions"], list | tuple | None) else None
        fits = logs is not None and len(logs) in (count, 0)
        _expect(fits, "actions", f"None, or a list of {count} logs", saved["actions"])
        actions: dict[int, Any] = {}
        for number, age, log in zip(positions.tolist(), ages.tolist(), logs or [None] * count, strict=True):
            if log is not None:
                actions[number] = log if spec is None else _of_space("actions", spec.action_space, log, age)
        return ShardState(
            ShardResult(**arrays, **kept), actions, frozenset(_whole_numbers("skipped", saved["skipped"]).tolist())
        )

    def loaded(self, state: ShardState) -> ShardRecord:
        """The record that continues from the result of ``read_state``."""
        later = self._copy()
        later._version, later.placed, later._skipped = self._version + 1, False, state.skipped
        later.last, later._plans = state.last, {}
        later._actions = {number: [log] for number, log in state.actions.items()}
        return later


@dataclass(frozen=True)
class ShardState:
    """Contents of a saved state: how the shard was, actions of running rollouts by number, numbers to leave out."""

    last: ShardResult
    actions: dict[int, Any]
    skipped: frozenset[int]


def _expect(fits: Any, name: str, what: str, value: Any) -> None:
    if not fits:
        raise ValueError(f"{name} in a shard of state must be {what}, got {reprlib.repr(value)}")


def _whole_numbers(name: str, value: Any) -> np.ndarray:
    """A copy of whole numbers of at least 0, int64 ``(k,)``."""
    try:
        array = np.array(value)
    except (ValueError, TypeError, RuntimeError):
        array = np.array("ragged")
    fits = array.ndim == 1 and (array.size == 0 or (array.dtype.kind in "iu" and (array >= 0).all()))
    _expect(fits, name, "a list of whole numbers of at least 0", value)
    return array.astype(np.int64)


def _named_rows(name: str, value: Any, count: int) -> dict[str, np.ndarray]:
    """Arrays by name, each ``(count, ...)`` of numbers or objects."""
    _expect(isinstance(value, Mapping), name, "a dict of arrays", value)
    for key, part in value.items():
        fits = isinstance(part, np.ndarray) and part.shape[:1] == (count,) and part.dtype.kind in "biufcO"
        _expect(fits, f"{name}[{key!r}]", f"an array with {count} rows", part)
    return dict(value)


def _of_space(name: str, space: gymnasium.Space, batch: Any, size: int) -> Any:
    return check_given(f"{name} in a shard of state", space, batch, size, finite=False)
