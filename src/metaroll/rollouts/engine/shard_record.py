"""The caller's record of a shard of a live collection: all it takes to build the shard again."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
        self._skipped: set[int] = set()

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
            frozenset(self._skipped),
            kept,
            self._resumable,
        )

    def take(self, result: ShardResult) -> tuple[RolloutColumns | None, np.ndarray]:
        """Book the result of a call; its columns, and the numbers of their plans."""
        columns, numbers = result.columns, result.numbers
        if columns is not None and columns.plans is None:
            columns.plans = [self.plan(number) for number in numbers.tolist()]
        self._version, self.placed, self.last = self._version + 1, True, result
        if self._skipped:  # earlier ones do not occur again
            turns = [(number, *divmod(number, self._total)) for number in self._skipped]
            self._skipped = {number for number, turn, slot in turns if turn >= result.begun[slot - self.first]}
        if self._plan_of is not None:
            self._plans = {number: self.plan(number) for number in result.positions.tolist()}
        if result.resumes == "replay":
            self._log_actions(columns, numbers)
        result.columns, result.numbers = None, numbers[:0]
        return columns, numbers

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

    def _log_actions(self, columns: RolloutColumns | None, numbers: np.ndarray) -> None:
        """Keep the actions of the rollouts that continue, but for those that are too long."""
        if columns is not None:
            for i, number in enumerate(numbers.tolist()):
                rows = slice(int(columns.bounds[i]), int(columns.bounds[i + 1]))
                log = self._actions.setdefault(number, [])
                log.append(take_rows(columns.fields["actions"], rows))
                if len(log) >= _LOG_PARTS:
                    log[:] = [cat_to_format(log, "numpy")]
        ages = dict(zip(self.last.positions.tolist(), self.last.ages.tolist(), strict=True))
        self._actions = {n: log for n, log in self._actions.items() if ages.get(n, LONGEST_LOG) < LONGEST_LOG}

    def _logs(self) -> list[Any] | None:
        """The actions of the running rollouts, one array ``(age, ...)`` (or structure) for each."""
        if self.last.resumes != "replay":
            return None
        for log in self._actions.values():
            log[:] = [cat_to_format(log, "numpy")]
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

    def leave_out(self, number: int) -> None:
        """The rollout of a number has failed: its slot continues with its next plan."""
        self._skipped.add(number)
        self.remove(np.flatnonzero(self.last.positions == number).tolist())

    def remove(self, places: Sequence[int]) -> None:
        """End running rollouts; the shard is to be built again."""
        last, kept = self.last, np.setdiff1d(np.arange(len(self.last.slots)), places)
        last.slots, last.positions, last.ages = last.slots[kept], last.positions[kept], last.ages[kept]
        if last.states is not None:
            last.states = {name: values[kept] for name, values in last.states.items()}
        self.placed = False

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
            ShardResult(**arrays, **kept), actions, set(_whole_numbers("skipped", saved["skipped"]).tolist())
        )

    def load_state(self, state: ShardState) -> None:
        """Continue from the result of ``read_state``."""
        self._version, self.placed, self._skipped = self._version + 1, False, state.skipped
        self.last, self._plans = state.last, {}
        self._actions = {number: [log] for number, log in state.actions.items()}


@dataclass(frozen=True)
class ShardState:
    """Contents of a saved state: how the shard was, actions of running rollouts by number, numbers to leave out."""

    last: ShardResult
    actions: dict[int, Any]
    skipped: set[int]


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
