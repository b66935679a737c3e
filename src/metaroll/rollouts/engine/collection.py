"""Rollouts that go on over calls: slots stay in their workers, and every call takes some steps in all of them.

Slots are cut into shards, by their number and the kind of environment alone; a shard lives in one worker (see
``live_shard``). The process that asks keeps what it takes to build a shard again: plans, what the policy remembers, and
the states of environments, or the actions that were taken. So a worker that was lost, or a run that was stopped, costs
only some time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metaroll.checks import check_whole
from metaroll.data.data_format import cat_to_format, map_leaves
from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.data.space_batches import take_rows
from metaroll.errors import ReplayError, RolloutError, ShapeError
from metaroll.rollouts.engine.live_shard import LiveShard, PlansOfShard, ShardResult, ShardStart, ShardWork
from metaroll.rollouts.engine.plan_sources import RunningRollout
from metaroll.rollouts.failures import DroppedRollout, describe_plan
from metaroll.types import Policy, RolloutPlan, Slots, SlotsKind, SlotStep

__all__ = ["Collection", "collect_here"]

_SHARD = {"list": 4, "physics": 16, "batched": 256}
"""Slots of a shard: what one worker steps at a time."""

_LONGEST_LOG = 100_000
"""Steps of a rollout whose actions are kept; a longer one cannot be built again from them."""

_LOG_PARTS = 64
"""Parts of a log (one for each call) that are put together."""

_MOST_FAILURES = 100
"""Rollouts that may fail one after the other in one call before it is given up."""


@dataclass
class _Shard:
    """What the asking process knows of a shard: ``last`` is what came of its last call."""

    number: int
    first: int
    num_slots: int
    version: int = 0
    placed: bool = False
    last: ShardResult = field(default_factory=ShardResult)
    plans: dict[int, RolloutPlan] = field(default_factory=dict)
    actions: dict[int, list[Any]] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)


class Collection:
    """Rollouts that run in slots, some steps at a time (``RolloutEngine.open``).

    The bits depend on plans, parameters and calls alone: not on the number of workers, on lost ones, or on a snapshot
    in between. Environments that can neither take their state nor be replayed (``SlotsInfo.resumes``) are the
    exception: a lost worker or a snapshot ends their half-done rollouts, which ``cut`` lists, and new ones begin. The
    same holds for rollouts of more than 100,000 steps in environments that have to be replayed.

    Args:
        advance: Runs calls of shards, where they live: ``advance(works, parameters) -> results``.
        plan_of: From a number to the plan of that number, with a seed. Slot ``e`` of E runs the plans ``e``, ``e + E``,
            ... one after the other. ``None``: rollouts are started by ``start``.
        num_slots: E.
        shard_size: Slots of a shard.
        name: Names the collection in the workers.
        settings: Arguments of ``SlotLoop``, ``on_error`` and ``pieces``.
        close: Frees what it has in the workers.
        resumable: Keep what it takes to build shards again.
    """

    def __init__(
        self,
        advance: Callable[[list[ShardWork], np.ndarray | None], list[ShardResult]],
        plan_of: Callable[[int], RolloutPlan] | None,
        num_slots: int,
        shard_size: int,
        name: str,
        settings: Mapping[str, Any],
        close: Callable[[], None],
        *,
        resumable: bool = True,
    ) -> None:
        self.num_slots = check_whole("num_slots", num_slots)
        self.total_steps = 0
        """Steps taken in all calls."""
        self.dropped: list[DroppedRollout] = []
        """Rollouts that were left out: the engine's ``on_invalid`` and ``on_error`` decide. What earlier calls returned
        of them stays."""
        self.cut: list[DroppedRollout] = []
        """Rollouts that a snapshot or a lost worker has ended (truncation, at their last step that was returned)."""
        self._advance, self._plan_of, self._name, self._settings = advance, plan_of, name, dict(settings)
        self._close, self._closed, self._resumable = close, False, resumable
        edges = [*range(0, self.num_slots, shard_size), self.num_slots]
        self._shards = [_Shard(i, a, b - a) for i, (a, b) in enumerate(itertools.pairwise(edges))]

    @staticmethod
    def shard_size(kind: SlotsKind, num_slots: int) -> int:
        """Slots of a shard of such environments."""
        return _SHARD.get(kind, num_slots)

    # -- what it is doing ------------------------------------------------------------------------------------------

    @property
    def observations(self) -> Any:
        """What all slots showed last, ``(E, ...)`` (dicts or tuples of such for structured spaces).

        Raises:
            ValueError: No step has been taken, and no rollout was started.
        """
        found = [shard.last.observations for shard in self._shards]
        if any(part is None for part in found):
            raise ValueError("no rollout has begun, so there are no observations; call advance (or start) first")
        return found[0] if len(found) == 1 else cat_to_format(found, "numpy")

    @property
    def active(self) -> np.ndarray:
        """Which slots run a rollout, bool ``(E,)``."""
        active = np.zeros(self.num_slots, dtype=bool)
        for shard in self._shards:
            active[shard.first + shard.last.slots] = True
        return active

    @property
    def last_step(self) -> SlotStep:
        """What the last lock-step returned, with the plans' limits, where nothing is recorded (``collect_here``).

        Raises:
            ValueError: There was none, or it was recorded.
        """
        last = self._shards[0].last.last_step
        if last is None:
            raise ValueError("no step was taken without a record; see collect_here(record=False)")
        return last

    # -- running -----------------------------------------------------------------------------------------------------

    def advance(self, steps: int, parameters: np.ndarray | None = None, *, actions: Any = None) -> Rollouts:
        """Take up to ``steps`` steps in every slot; all that was done: pieces of rollouts, in the order of their plans.

        A slot whose rollout has ended goes on with its next plan. Pieces have ``complete=False`` unless they end
        with their rollout (``done`` is then true at their last step): their last observation is not a final one.

        Args:
            steps: Number of lock-steps, at least 1.
            parameters: Flat policy parameters ``(P,)``; ``None`` means the policy's present ones.
            actions: Given actions ``(E, ...)`` for every one of these steps, instead of asking the policy (what it
                remembers stands still meanwhile).

        Raises:
            RuntimeError: The collection has been closed.
            ShapeError: ``parameters`` or ``actions`` have another shape; nothing was done.
            RolloutError: An environment or the policy raised. What was returned by earlier calls stays; the next call
                goes on from there.
        """
        self._check_open()
        steps = check_whole("steps", steps)
        if actions is not None:
            map_leaves(lambda leaf, path: _check_rows(leaf, self.num_slots), actions)
        return self._call([self._work(shard, steps, actions) for shard in self._shards], parameters)

    def start(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> None:
        """Start ``plans[i]`` in ``slots[i]`` now; what ran there is given up (``collect_here`` only)."""
        self._check_open()
        work = self._work(self._shards[0], 0, None)
        work.starts = list(zip(slots, plans, strict=True))
        self._call([work], None)

    def state_dict(self) -> dict[str, Any]:
        """All that it takes to go on (plain data and arrays): which rollouts run, their states or actions, and memory.

        Half-done rollouts that cannot go on elsewhere end here, in this collection, too (``cut``), so that one that
        goes on from the state does what this one does.
        """
        shards = []
        for shard in self._shards:
            last = shard.last
            self._cut(shard, self._lost(shard), "by a snapshot")
            shards.append(
                {
                    "begun": self._begun(shard),
                    "slots": last.slots.copy(),
                    "positions": last.positions.copy(),
                    "ages": last.ages.copy(),
                    "actions": self._logs(shard),
                    "states": last.states,
                    "policy_state": last.policy_state,
                    "observations": last.observations if last.slots.size else None,
                    "resumes": last.resumes,
                    "skipped": sorted(shard.skipped),
                }
            )
        return {"num_slots": self.num_slots, "total_steps": self.total_steps, "shards": shards}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``; the next call builds the half-done rollouts again.

        Raises:
            ValueError: It is of a collection with another number of slots.
        """
        if state["num_slots"] != self.num_slots or len(state["shards"]) != len(self._shards):
            raise ValueError(f"state must be of a collection with {self.num_slots} slots, got {state['num_slots']}")
        self.total_steps = int(state["total_steps"])
        for shard, saved in zip(self._shards, state["shards"], strict=True):
            shard.version, shard.placed, shard.skipped = shard.version + 1, False, set(saved["skipped"])
            arrays = {name: np.array(saved[name], dtype=np.int64) for name in ("begun", "slots", "positions", "ages")}
            kept = {name: saved[name] for name in ("states", "policy_state", "observations", "resumes")}
            shard.last = ShardResult(**arrays, **kept)
            shard.plans = {position: self._plan(position) for position in arrays["positions"].tolist()}
            logs = zip(arrays["positions"].tolist(), saved["actions"] or [], strict=False)
            shard.actions = {number: [log] for number, log in logs if log is not None}

    def close(self) -> None:
        """Free the slots."""
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Collection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- calls -------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this collection has been closed; open another one")

    def _call(self, works: list[ShardWork], parameters: np.ndarray | None) -> Rollouts:
        """Run one call of each shard; what it brought."""
        results: dict[int, ShardResult] = {}
        pending = list(range(len(works)))
        for _ in range(_MOST_FAILURES):
            try:
                found = self._advance([works[i] for i in pending], parameters)
            except BaseException:
                if not self._resumable:
                    for shard in self._shards:
                        self._cut(shard, self._lost(shard), "by an error")
                raise
            for i, result in zip(pending, found, strict=True):
                results[i] = result
                for number, entry in result.failed:
                    self._leave_out(self._shards[i], number, entry)
            pending = [i for i in pending if results[i].unknown]
            if not pending:
                break
            for i in pending:  # the worker is new, or a rollout has failed, without which the call is done again
                works[i] = self._started(self._shards[i], works[i])
        else:
            last = self.dropped[-1]
            raise RolloutError(
                f"{_MOST_FAILURES} rollouts failed one after the other, the last one ({describe_plan(last.plan)}) "
                f"since: {last.message}",
                last.plan,
                last.step,
            )
        pieces = [self._take(self._shards[i], result) for i, result in sorted(results.items())]
        parts = [columns for columns, _ in pieces if columns is not None]
        rollouts = Rollouts(parts)
        if len(parts) < 2:
            return rollouts
        return rollouts.sorted_by(np.concatenate([numbers for _, numbers in pieces]))

    def _work(self, shard: _Shard, steps: int, actions: Any) -> ShardWork:
        rows = slice(shard.first, shard.first + shard.num_slots)
        given = None if actions is None else take_rows(actions, rows)
        work = ShardWork((self._name, shard.number), shard.version, shard.num_slots, steps, given)
        return work if shard.placed else self._started(shard, work)

    def _started(self, shard: _Shard, work: ShardWork) -> ShardWork:
        """``work`` with all that it takes to build the shard."""
        lost = self._lost(shard)
        if lost:
            first = shard.plans.get(int(shard.last.positions[lost[0]]), RolloutPlan())
            known = shard.last.resumes == "replay" and self._resumable
            age = self._cut(shard, lost, "since its worker was lost")
            if known:
                raise ReplayError(
                    f"a worker was lost, and {describe_plan(first)} has more than {_LONGEST_LOG} steps, whose actions "
                    "are not kept, so it has ended; the next call goes on with the next plan. Give plans a max_steps",
                    first,
                    age,
                )
        last = shard.last
        plans = None
        if self._plan_of is not None:
            plans = PlansOfShard(self._plan_of, shard.first, shard.num_slots, self.num_slots)
        logs = self._logs(shard) or [None] * len(last.slots)
        running = [
            RunningRollout(slot, position, shard.plans[position], age, log)
            for slot, position, age, log in zip(
                last.slots.tolist(), last.positions.tolist(), last.ages.tolist(), logs, strict=True
            )
        ]
        begun, skipped = self._begun(shard), frozenset(shard.skipped)
        start = ShardStart(
            plans, begun, running, last.policy_state, last.observations, last.states, skipped, self._settings,
            self._resumable,
        )  # fmt: skip
        return ShardWork(work.key, work.version, work.num_slots, work.steps, work.actions, work.starts, start)

    def _take(self, shard: _Shard, result: ShardResult) -> tuple[RolloutColumns | None, np.ndarray]:
        """Book the result of a shard; its columns, and the numbers of their plans."""
        columns, numbers = result.columns, result.numbers
        if columns is not None and columns.plans is None:
            columns.plans = [shard.plans.get(number) or self._plan(number) for number in numbers.tolist()]
        shard.version, shard.placed, shard.last = shard.version + 1, True, result
        if columns is not None:
            self.total_steps += int(columns.bounds[-1])
        if shard.skipped:  # those that have been passed are not met again
            turns = [(number, *divmod(number, self.num_slots)) for number in shard.skipped]
            shard.skipped = {number for number, turn, slot in turns if turn >= result.begun[slot - shard.first]}
        self.dropped.extend(result.dropped)
        if self._plan_of is not None:
            known = shard.plans
            shard.plans = {number: known.get(number) or self._plan(number) for number in result.positions.tolist()}
        if result.resumes == "replay":
            self._log_actions(shard, result)
        result.columns, result.numbers, result.dropped = None, numbers[:0], []
        return columns, numbers

    def _plan(self, number: int) -> RolloutPlan:
        return RolloutPlan() if self._plan_of is None else self._plan_of(number)

    def _begun(self, shard: _Shard) -> np.ndarray:
        width = 1 if self._plan_of is None else shard.num_slots
        return shard.last.begun.copy() if shard.last.begun.size else np.zeros(width, dtype=np.int64)

    # -- logs of actions, and what cannot go on ------------------------------------------------------------------------

    def _log_actions(self, shard: _Shard, result: ShardResult) -> None:
        """Keep the actions of the rollouts that go on, but for those that are too long."""
        columns = result.columns
        if columns is not None:
            for i, number in enumerate(result.numbers.tolist()):
                rows = slice(int(columns.bounds[i]), int(columns.bounds[i + 1]))
                log = shard.actions.setdefault(number, [])
                log.append(take_rows(columns.fields["actions"], rows))
                if len(log) >= _LOG_PARTS:
                    log[:] = [cat_to_format(log, "numpy")]
        ages = dict(zip(result.positions.tolist(), result.ages.tolist(), strict=True))
        kept = {number: log for number, log in shard.actions.items() if ages.get(number, _LONGEST_LOG) < _LONGEST_LOG}
        shard.actions = kept

    def _logs(self, shard: _Shard) -> list[Any] | None:
        """The actions of the running rollouts, one array ``(age, ...)`` (or structure) for each."""
        if shard.last.resumes != "replay":
            return None
        for number, log in shard.actions.items():
            if len(log) > 1:
                shard.actions[number] = [cat_to_format(log, "numpy")]
        return [
            shard.actions[number][0] if number in shard.actions else None for number in shard.last.positions.tolist()
        ]

    def _lost(self, shard: _Shard) -> list[int]:
        """Which of the running rollouts could not be built again (places in ``ShardResult.slots``)."""
        last = shard.last
        if last.resumes == "state" and self._resumable:
            return []
        if last.resumes == "nothing" or not self._resumable:
            return list(range(len(last.slots)))
        begun = zip(last.positions.tolist(), last.ages.tolist(), strict=True)
        return [i for i, (number, age) in enumerate(begun) if age and number not in shard.actions]

    def _cut(self, shard: _Shard, places: Sequence[int], why: str) -> int:
        """End running rollouts here; the age of the last one."""
        age = 0
        for place in places:
            number, age = int(shard.last.positions[place]), int(shard.last.ages[place])
            plan = shard.plans.get(number, RolloutPlan())
            self.cut.append(DroppedRollout(plan, age, "cut", f"{describe_plan(plan)} was ended {why}"))
        if places:
            self._remove(shard, places)
        return age

    def _leave_out(self, shard: _Shard, number: int, entry: DroppedRollout) -> None:
        """A rollout has failed: the call is done again without it."""
        self.dropped.append(entry)
        shard.skipped.add(number)
        self._remove(shard, np.flatnonzero(shard.last.positions == number).tolist())

    def _remove(self, shard: _Shard, places: Sequence[int]) -> None:
        last, kept = shard.last, np.setdiff1d(np.arange(len(shard.last.slots)), places)
        last.slots, last.positions, last.ages = last.slots[kept], last.positions[kept], last.ages[kept]
        if last.states is not None:
            last.states = {name: values[kept] for name, values in last.states.items()}
        shard.placed = False


def collect_here(slots: Slots, policy: Policy, *, record: bool = True, pieces: bool = True) -> Collection:
    """A collection in these slots, in this process: its rollouts are started one by one (``Collection.start``).

    An error ends all of them, and nothing is kept to build them again.

    Args:
        slots: Closed with the collection.
        policy: What acts, where no actions are given.
        record: Return what happens; without, only ``last_step`` and ``observations`` tell.
        pieces: Return what rollouts have done so far; without, whole rollouts when they have ended.
    """
    live: list[LiveShard] = []

    def advance(works: list[ShardWork], parameters: np.ndarray | None) -> list[ShardResult]:
        (work,) = works
        if work.start is None and (not live or live[0].version != work.version):
            return [ShardResult(unknown=True)]
        if work.start is not None:
            live[:] = [LiveShard(slots, policy, work.start)]
        return [live[0].run(work, policy, parameters)]

    size = slots.num_slots
    settings = {"record": record, "pieces": pieces}
    return Collection(advance, None, size, size, "here", settings, slots.close, resumable=False)


def _check_rows(leaf: Any, num_slots: int) -> None:
    if len(np.atleast_1d(leaf)) != num_slots:
        raise ShapeError(f"actions must have one row per slot ({num_slots}, ...), got shape {np.shape(leaf)}")
