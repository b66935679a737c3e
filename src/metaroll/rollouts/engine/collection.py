"""Rollouts that go on over calls: slots stay in their workers, and every call takes some steps in all of them.

Slots are cut into shards, by their number and the kind of environment alone; a shard lives in one worker, as a
``SlotLoop``. The process that asks keeps what it takes to build a shard again: plans, actions and policy state. So a
worker that was lost, or a run that was stopped, costs only the time to take the recorded actions again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metaroll.checks import check_whole
from metaroll.data.data_format import iterate_leaves, map_leaves
from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.errors import ReplayError
from metaroll.rollouts.engine.plan_sources import RunningRollout
from metaroll.rollouts.engine.slot_loop import SlotLoop
from metaroll.rollouts.engine.unit_work import UnitRunner, unit_runner
from metaroll.rollouts.failures import DroppedRollout
from metaroll.rollouts.workers.messages import GlobalNamespace, heartbeat
from metaroll.tasks.plan_table import PlanTable
from metaroll.types import RolloutPlan, SlotsKind

__all__ = ["Collection", "ShardResult", "ShardWork", "advance_shard", "forget_shards"]

_SHARD = {"list": 4, "physics": 16, "batched": 256}
"""Slots of a shard: what one worker steps at a time."""

_LONGEST_LOG = 100_000
"""Steps of a rollout whose actions are kept; a longer one cannot be built again."""


@dataclass
class ShardStart:
    """What it takes to build a shard."""

    plan_of: Callable[[int], RolloutPlan]
    begun: np.ndarray
    running: list[RunningRollout]
    policy_state: dict[str, np.ndarray]
    observations: Any
    settings: dict[str, Any]


@dataclass
class ShardWork:
    """One call of a shard: ``version`` is the number of calls before it, ``start`` comes with the first."""

    key: tuple[str, int]
    version: int
    num_slots: int
    steps: int
    actions: Any = None
    start: ShardStart | None = None


@dataclass
class ShardResult:
    """What came of a call; ``None`` columns: no steps. ``unknown``: the worker does not have the shard as it is."""

    unknown: bool = False
    columns: RolloutColumns | None = None
    positions: list[int] = field(default_factory=list)
    running: list[RunningRollout] = field(default_factory=list)
    begun: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    policy_state: dict[str, np.ndarray] = field(default_factory=dict)
    observations: Any = None
    dropped: list[DroppedRollout] = field(default_factory=list)


@dataclass
class Shard:
    """What the asking process knows of a shard."""

    number: int
    num_slots: int
    version: int = 0
    placed: bool = False
    begun: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    running: list[RunningRollout] = field(default_factory=list)
    actions: dict[int, list[Any]] = field(default_factory=dict)
    policy_state: dict[str, np.ndarray] = field(default_factory=dict)
    observations: Any = None


class Collection:
    """Rollouts that run in slots of an engine, some steps at a time (``RolloutEngine.open``).

    The bits depend on plans, parameters and calls alone: not on the number of workers, on lost ones, or on a snapshot
    in between.

    Args:
        advance: Runs calls of shards, where they live: ``advance(works, parameters) -> results``.
        plan_of: From a number to the plan of that number, with a seed. Slot ``e`` of E runs the plans ``e``, ``e + E``,
            ... one after the other.
        num_slots: E.
        kind: Kind of environment.
        key: Names the collection in the workers.
        settings: Arguments of ``SlotLoop``.
        close: Frees what it has in the workers.
    """

    def __init__(
        self,
        advance: Callable[[list[ShardWork], np.ndarray | None], list[ShardResult]],
        plan_of: Callable[[int], RolloutPlan],
        num_slots: int,
        kind: SlotsKind,
        key: str,
        settings: Mapping[str, Any],
        close: Callable[[], None],
    ) -> None:
        self.num_slots = check_whole("num_slots", num_slots)
        self.total_steps = 0
        """Steps taken in all calls."""
        self.dropped: list[DroppedRollout] = []
        self._advance, self._plan_of, self._key, self._settings = advance, plan_of, key, dict(settings)
        self._close, self._closed, self._replayable = close, False, kind != "vector"
        size = _SHARD.get(kind, self.num_slots)
        edges = [*range(0, self.num_slots, size), self.num_slots]
        self._shards = [Shard(i, b - a) for i, (a, b) in enumerate(itertools.pairwise(edges))]
        self._first = edges[:-1]

    def advance(self, steps: int, parameters: np.ndarray | None = None, *, actions: Any = None) -> Rollouts:
        """Take up to ``steps`` steps in every slot; all that was done: pieces of rollouts, in the order of their plans.

        A slot whose rollout has ended goes on with its next plan. Pieces have ``complete=False`` unless they end
        with their rollout (``done`` is then true at their last step).

        Args:
            steps: Number of lock-steps, at least 1.
            parameters: Flat policy parameters ``(P,)``; ``None`` means the policy's present ones.
            actions: Given actions ``(E, ...)`` for every one of these steps, instead of asking the policy.

        Raises:
            RuntimeError: The collection has been closed.
            RolloutError: An environment or the policy raised. What was returned by earlier calls stays; the next call
                goes on from there.
        """
        if self._closed:
            raise RuntimeError("this collection has been closed; open another one")
        steps = check_whole("steps", steps)
        works = [self._work(shard, steps, actions) for shard in self._shards]
        results = self._advance(works, parameters)
        lost = [i for i, result in enumerate(results) if result.unknown]
        if lost:  # the worker is new
            again = self._advance([self._started(self._shards[i], works[i]) for i in lost], parameters)
            for i, result in zip(lost, again, strict=True):
                results[i] = result
        pieces = [self._take(shard, result) for shard, result in zip(self._shards, results, strict=True)]
        parts = [columns for columns, _ in pieces if columns is not None]
        order = np.concatenate([np.zeros(0, dtype=np.int64), *(numbers for _, numbers in pieces)])
        rollouts = Rollouts(parts)
        self.total_steps += int(rollouts.bounds[-1])
        return rollouts.sorted_by(order) if len(parts) > 1 else rollouts

    def state_dict(self) -> dict[str, Any]:
        """All that it takes to go on (plain data and arrays): which rollouts run, their actions, the policy's memory.

        What cannot be done again, such as a vector environment of others, is left out: its rollouts end here.
        """
        shards = []
        for shard in self._shards:
            running = [_with_actions(shard, entry) for entry in shard.running] if self._replayable else []
            shards.append(
                {
                    "begun": shard.begun.copy(),
                    "slots": np.array([entry.slot for entry in running], dtype=np.int64),
                    "positions": np.array([entry.position for entry in running], dtype=np.int64),
                    "ages": np.array([entry.age for entry in running], dtype=np.int64),
                    "actions": [entry.actions for entry in running],
                    "policy_state": shard.policy_state if running else {},
                    "observations": shard.observations if running else None,
                }
            )
        return {"num_slots": self.num_slots, "total_steps": self.total_steps, "shards": shards}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``; the next call takes the recorded actions again.

        Raises:
            ValueError: It is of a collection with another number of slots.
        """
        if state["num_slots"] != self.num_slots or len(state["shards"]) != len(self._shards):
            raise ValueError(f"state must be of a collection with {self.num_slots} slots, got {state['num_slots']}")
        self.total_steps = int(state["total_steps"])
        for shard, saved in zip(self._shards, state["shards"], strict=True):
            shard.version, shard.placed = shard.version + 1, False
            shard.begun = np.array(saved["begun"], dtype=np.int64)
            columns = (np.asarray(saved[name]).tolist() for name in ("slots", "positions", "ages"))
            shard.running = [
                RunningRollout(slot, position, self._plan_of(position), age)
                for slot, position, age in zip(*columns, strict=True)
            ]
            shard.actions = {
                entry.position: [actions] for entry, actions in zip(shard.running, saved["actions"], strict=True)
            }
            shard.policy_state, shard.observations = dict(saved["policy_state"]), saved["observations"]

    def close(self) -> None:
        """Free the slots."""
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Collection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _work(self, shard: Shard, steps: int, actions: Any) -> ShardWork:
        first = self._first[shard.number]
        rows = slice(first, first + shard.num_slots)
        given = None if actions is None else map_leaves(lambda leaf, path: np.asarray(leaf)[rows], actions)
        work = ShardWork((self._key, shard.number), shard.version, shard.num_slots, steps, given)
        return work if shard.placed else self._started(shard, work)

    def _started(self, shard: Shard, work: ShardWork) -> ShardWork:
        """``work`` with all that it takes to build the shard."""
        begun = shard.begun if shard.begun.size else np.zeros(shard.num_slots, dtype=np.int64)
        plan_of = _PlansOfShard(self._plan_of, self._first[shard.number], shard.num_slots, self.num_slots)
        running = [_with_actions(shard, entry) for entry in shard.running]
        if any(entry.actions is None for entry in running):
            entry = next(entry for entry in running if entry.actions is None)
            raise ReplayError(
                f"a worker was lost, and rollout {entry.plan.index} has more than {_LONGEST_LOG} steps, whose actions "
                "are not kept; give plans a max_steps",
                entry.plan,
                entry.age,
            )
        start = ShardStart(plan_of, begun, running, shard.policy_state, shard.observations, self._settings)
        return ShardWork(work.key, work.version, work.num_slots, work.steps, work.actions, start)

    def _take(self, shard: Shard, result: ShardResult) -> tuple[RolloutColumns | None, np.ndarray]:
        """Book the result of a shard; its columns, and the numbers of their plans."""
        shard.version, shard.placed = shard.version + 1, True
        shard.begun, shard.running = result.begun, result.running
        shard.policy_state, shard.observations = result.policy_state, result.observations
        self.dropped.extend(result.dropped)
        columns = result.columns
        if columns is not None:
            columns.plans = PlanTable([self._plan_of(position) for position in result.positions])
            for number, position in enumerate(result.positions):
                bounds = slice(int(columns.bounds[number]), int(columns.bounds[number + 1]))
                taken = map_leaves(lambda leaf, path, rows=bounds: leaf[rows].copy(), columns.fields["actions"])
                shard.actions.setdefault(position, []).append(taken)
        kept = {entry.position: entry for entry in shard.running}
        for entry in shard.running:
            entry.plan = self._plan_of(entry.position)
        shard.actions = {
            position: actions
            for position, actions in shard.actions.items()
            if position in kept and kept[position].age <= _LONGEST_LOG
        }
        return columns, np.array(result.positions, dtype=np.int64)


@dataclass(frozen=True)
class _PlansOfShard:
    """Plans of a shard by their number within it: numbers of the whole collection are told to the plans' maker."""

    plan_of: Callable[[int], RolloutPlan]
    first: int
    width: int
    total: int

    def number(self, own: int) -> int:
        """Number in the collection of plan ``own`` of the shard."""
        turn, slot = divmod(own, self.width)
        return turn * self.total + self.first + slot

    def own(self, number: int) -> int:
        """Number in the shard of plan ``number`` of the collection."""
        turn, slot = divmod(number, self.total)
        return turn * self.width + slot - self.first

    def __call__(self, own: int) -> RolloutPlan:
        return self.plan_of(self.number(own))


def _with_actions(shard: Shard, entry: RunningRollout) -> RunningRollout:
    """``entry`` with the actions that it has taken; ``None`` where they were too many to keep."""
    parts = shard.actions.get(entry.position)
    if parts is None:
        return RunningRollout(entry.slot, entry.position, entry.plan, entry.age, None)
    leaves = [dict(iterate_leaves(part)) for part in parts]
    actions = map_leaves(lambda _, path: np.concatenate([found[path] for found in leaves]), parts[0])
    return RunningRollout(entry.slot, entry.position, entry.plan, entry.age, actions)


# -- in the worker -----------------------------------------------------------------------------------------------------


def advance_shard(namespace: GlobalNamespace, key: str, work: ShardWork) -> ShardResult:
    """Worker side of ``Collection``: one call of a shard."""
    runner = unit_runner(namespace, key)
    loops = vars(namespace).setdefault("_shards", {})
    version, loop, plans = loops.pop((key, *work.key), (-1, None, None))
    if work.start is None and (loop is None or version != work.version):
        _shut(loop)
        return ShardResult(unknown=True)
    if work.start is not None:
        _shut(loop)
        loop, plans = _build(runner, work, work.start, heartbeat(namespace))
    try:
        loop.use(runner.acting_policy(), None if work.actions is not None else runner.parameters)
        loop.advance(work.steps, actions=work.actions, segments=True)
    except BaseException:
        _shut(loop)
        raise
    loops[(key, *work.key)] = (work.version + 1, loop, plans)
    columns = loop.columns
    if columns is not None:
        columns.plans = None
    running = loop.running()
    for entry in running:
        entry.position, entry.plan = plans.number(entry.position), RolloutPlan()
    dropped, loop.dropped = loop.dropped, []
    positions = [plans.number(position) for position in loop.positions]
    begun = loop.begun
    return ShardResult(False, columns, positions, running, begun, loop.policy_state(), loop.observations, dropped)


def forget_shards(namespace: GlobalNamespace, key: str, collection: str) -> None:
    """Worker side of ``Collection``: free its slots here."""
    loops = vars(namespace).get("_shards", {})
    for name in [name for name in loops if name[:2] == (key, collection)]:
        _shut(loops.pop(name)[1])


def _build(
    runner: UnitRunner, work: ShardWork, start: ShardStart, beat: Callable[[str], None] | None
) -> tuple[SlotLoop, Any]:
    plans: Any = start.plan_of
    first = PlanTable([entry.plan for entry in start.running] or [plans(0)])
    slots = runner.live_slots(work.num_slots, first, beat)
    try:
        loop = SlotLoop(
            slots, runner.acting_policy(), plans, parameters=runner.parameters, begin=False, beat=beat, **start.settings
        )
        loop.begun = start.begun
        running = [
            RunningRollout(entry.slot, plans.own(entry.position), entry.plan, entry.age, entry.actions)
            for entry in start.running
        ]
        loop.restore(running, start.policy_state, start.observations)
    except BaseException:
        slots.close()
        raise
    return loop, plans


def _shut(loop: SlotLoop | None) -> None:
    if loop is not None:
        loop.slots.close()
