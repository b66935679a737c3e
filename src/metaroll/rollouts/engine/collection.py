"""Rollouts that continue over calls: slots stay in their workers, and every call takes some steps in all of them.

Slots are cut into shards, by their number and the kind of environment alone; a shard lives in one worker (see
``live_shard``). The process that asks keeps what it takes to build a shard again (``shard_record``): plans, what the
policy remembers, and the states of environments, or the actions that were taken. So a worker that was lost, or a run
that was stopped, costs only some time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.checks import array_of, check_whole, described
from metaroll.data.data_format import cat_to_format, map_leaves
from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.data.space_batches import check_given
from metaroll.errors import InvalidValueError, ReplayError, RolloutError, ShapeError
from metaroll.rollouts.engine.live_shard import LiveShard, ShardResult, ShardWork
from metaroll.rollouts.engine.shard_record import LONGEST_LOG, SAVED, ShardRecord
from metaroll.rollouts.failures import DroppedRollout, describe_plan
from metaroll.rollouts.requests import Kept
from metaroll.types import EnvSpec, Policy, RolloutPlan, Slots, SlotsKind, SlotStep

__all__ = ["Collection", "collect_here"]

_SHARD = {"list": 4, "physics": 16, "batched": 256}
"""Slots of a shard, the part that one worker steps at a time."""

_STARTED_BY_HAND = "rollouts that were started by hand are not built again; a worker was lost: restart them"
_TOO_LONG = (
    f"it has more than {LONGEST_LOG} steps, whose actions are not kept; the next call starts the next plan. Give "
    "plans a max_steps"
)
_ROWS_OF_STEP = ("rewards", "terminated", "truncated")

_MOST_FAILURES = 100
"""Rollouts that may fail one after the other in one call before it is given up."""


class Collection:
    """Rollouts that run in slots, some steps at a time (``RolloutEngine.open``).

    The bits depend on plans, parameters and calls alone: not on the number of workers, on lost ones, or on a snapshot
    in between. Environments that can neither take their state nor be replayed (``SlotsInfo.resumes``) are the
    exception: a lost worker, an error or a snapshot ends their half-done rollouts, which ``cut`` lists, and new ones
    begin. The same holds for rollouts of more than 100,000 steps in environments that have to be replayed.

    Args:
        advance: Runs calls of shards, where they live: ``advance(works, parameters) -> results``.
        plan_of: From a number to the plan of that number, with a seed. Slot ``e`` of E runs the plans ``e``, ``e + E``,
            ... one after the other. ``None``: rollouts are started by ``start``.
        num_slots: E.
        shard_size: Slots of a shard.
        name: Names the collection in the workers.
        kept: Which data of rollouts are kept.
        close: Frees what it has in the workers.
        resumable: Keep what it takes to build shards again.
        made_for: Requirements on a state, in words by name (environment, policy, ...).
        spec: The spaces that given actions and states are checked against; ``None``: where they are given they
            are trusted.
    """

    def __init__(
        self,
        advance: Callable[[list[ShardWork], np.ndarray | None], list[ShardResult]],
        plan_of: Callable[[int], RolloutPlan] | None,
        num_slots: int,
        shard_size: int,
        name: str,
        kept: Kept,
        close: Callable[[], None],
        *,
        resumable: bool = True,
        made_for: Callable[[], dict[str, str]] = dict,
        spec: Callable[[], EnvSpec] | None = None,
    ) -> None:
        self.num_slots = check_whole("num_slots", num_slots)
        self.total_steps = 0
        """Steps taken in all calls."""
        self.dropped: list[DroppedRollout] = []
        """Rollouts that were left out: the engine's ``on_invalid`` and ``on_error`` decide. What earlier calls returned
        of them stays."""
        self.cut: list[DroppedRollout] = []
        """Rollouts that a snapshot, a lost worker or an error has ended: truncated at the last step returned."""
        self._advance, self._name, self._kept = advance, name, kept
        self._close, self._closed, self._resumable = close, False, resumable
        self._made_for, self._spec = made_for, spec
        self._by_hand = plan_of is None
        self._failed = ""
        """Message of the failure of the last call, if it failed."""
        edges = [*range(0, self.num_slots, shard_size), self.num_slots]
        self._shards = [
            ShardRecord(i, a, b - a, num_slots, plan_of, resumable)
            for i, (a, b) in enumerate(itertools.pairwise(edges))
        ]

    @staticmethod
    def shard_size(kind: SlotsKind, num_slots: int) -> int:
        """Slots of a shard of such environments."""
        return _SHARD.get(kind, num_slots)

    # -- what it is doing ------------------------------------------------------------------------------------------

    @property
    def observations(self) -> Any:
        """The last observations of all slots, ``(E, ...)`` (dicts or tuples of such for structured spaces).

        With ``RolloutEngine.open`` it is a copy.

        Raises:
            ValueError: No step has been taken, and no rollout was started.
        """
        parts = [shard.last.observations for shard in self._shards]
        if any(part is None for part in parts):
            raise ValueError("no rollout has begun, so there are no observations; call advance first")
        if len(parts) > 1:
            return cat_to_format(parts, "numpy")
        # The data from which a shard can be rebuilt must not change.
        return map_leaves(lambda leaf, path: leaf.copy(), parts[0]) if self._resumable else parts[0]

    @property
    def active(self) -> np.ndarray:
        """Which slots run a rollout, bool ``(E,)``."""
        active = np.zeros(self.num_slots, dtype=bool)
        for shard in self._shards:
            active[shard.first + shard.last.slots] = True
        return active

    @property
    def last_step(self) -> SlotStep:
        """The result of the last lock-step, with the plans' limits, where nothing is recorded.

        That is so where rollouts are started by hand (``RolloutEngine.open(None, ...)``, ``collect_here``). Rows of
        slots that ran nothing hold anything.

        Raises:
            ValueError: There was none, or it was recorded.
        """
        last_steps = [shard.last.last_step for shard in self._shards]
        steps = [step for step in last_steps if step is not None]
        if not steps or len(steps) < len(last_steps):
            raise ValueError("no step was taken without a record; see collect_here(record=False)")
        return steps[0] if len(steps) == 1 else _together(steps)

    # -- running -----------------------------------------------------------------------------------------------------

    def advance(self, steps: int, parameters: np.ndarray | None = None, *, actions: Any = None) -> Rollouts:
        """Take up to ``steps`` steps in every slot; all that was done: pieces of rollouts, in the order of their plans.

        A slot whose rollout has ended continues with its next plan. Pieces have ``complete=False`` unless they end
        with their rollout (``done`` is then true at their last step): their last observation is not a final one.

        Args:
            steps: Number of lock-steps, at least 1.
            parameters: Flat policy parameters ``(P,)``; ``None`` means the policy's present ones.
            actions: Given actions ``(E, ...)`` for every one of these steps, instead of asking the policy (what it
                remembers does not change meanwhile).

        Raises:
            RuntimeError: The collection has been closed, or its engine has got another environment or kind of policy.
            ShapeError: ``parameters`` or ``actions`` have another shape; nothing was done.
            ValueError: ``parameters`` or ``actions`` are ragged, hold no real numbers, or NaN or Inf; nothing was done.
            RolloutError: An environment or the policy raised. What was returned by earlier calls stays; the next call
                continues from there, so that a rollout that always fails there fails again.
            KeyboardInterrupt: Ctrl-C; the next call continues from there, too.
        """
        self._check_open()
        steps = check_whole("steps", steps)
        if parameters is not None:
            parameters = _real_numbers("parameters", parameters)
        if actions is not None:
            actions = self._checked_actions(actions)
        try:
            return self._call(steps, parameters, actions, [])
        except RolloutError as error:
            before, self._failed = self._failed, str(error)
            if before == self._failed and self._resumable:
                error.args = (f"{error}\n{self._hint(error)}",)
            raise

    def start(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> None:
        """Start ``plans[i]`` in ``slots[i]`` now; rollouts that run there are abandoned.

        Raises:
            RuntimeError: The collection has been closed, or starts its rollouts itself (``plan_of``).
        """
        self._check_open()
        if not self._by_hand:
            raise RuntimeError(
                "this collection starts the rollouts of plan_of itself: call advance(steps). To run plans of your own, "
                "call RolloutEngine.run(plans), or open another collection with another plan_of"
            )
        self._call(0, None, None, list(zip(slots, plans, strict=True)))

    def state_dict(self) -> dict[str, Any]:
        """All that it takes to continue (plain data and arrays): running rollouts, their states or actions, and memory.

        Half-done rollouts that cannot continue elsewhere end here, in this collection, too (``cut``), so that one that
        continues from the state does what this one does.

        Raises:
            RuntimeError: The collection has been closed.
        """
        self._check_open()
        for number in range(len(self._shards)):
            self._cut(number, "by a snapshot")
        shards = [shard.state_dict() for shard in self._shards]
        numbers = {"num_slots": self.num_slots, "total_steps": self.total_steps}
        return {**numbers, "made_for": self._made_for(), "shards": shards}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state_dict()``; the next call builds the half-done rollouts again.

        Raises:
            ValueError: It is no such state, or that of a collection with another number of slots, another kind of
                environment or policy, or other plans, or one of its entries is damaged; nothing has changed then.
            RuntimeError: The collection has been closed.
        """
        self._check_open()
        total_steps = _total_steps(state, self.num_slots, len(self._shards), self._made_for())
        spec = None if self._spec is None else self._spec()
        read = [shard.read_state(saved, spec) for shard, saved in zip(self._shards, state["shards"], strict=True)]
        shards = [shard.loaded(content) for shard, content in zip(self._shards, read, strict=True)]
        self._shards, self.total_steps = shards, total_steps

    def close(self) -> None:
        """Free the slots."""
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Collection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _checked_actions(self, actions: Any) -> Any:
        """Given actions, all of which an environment can take."""
        if self._spec is None:  # checked by the caller: rows of idle slots may hold anything
            map_leaves(lambda leaf, path: _check_rows(leaf, self.num_slots), actions)
            return actions
        return check_given("actions", self._spec().action_space, actions, self.num_slots)

    # -- calls -------------------------------------------------------------------------------------------------------

    def _hint(self, error: RolloutError) -> str:
        """The hint for a failure that repeats."""
        text = "The call before failed in the same way: a call continues from where the last one that succeeded ended."
        option = "on_invalid" if isinstance(error, InvalidValueError) else "on_error"
        if isinstance(error, ReplayError) or getattr(self._kept, option) == "drop":
            return text
        return (
            f"{text} To continue without this rollout, load state_dict() into a collection of an engine with "
            f"{option}='drop'."
        )

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this collection has been closed; open another one")

    def _call(
        self, steps: int, parameters: np.ndarray | None, actions: Any, starts: list[tuple[int, RolloutPlan]]
    ) -> Rollouts:
        """Run one call of each shard; returns the results.

        Ctrl-C, which may come between any two statements, and errors that are not of a rollout leave all records as
        they were before, or end the rollouts that cannot be built again.
        """
        before = self._shards, self.total_steps
        num_dropped, num_cut = len(self.dropped), len(self.cut)
        try:
            return self._called(steps, parameters, actions, starts)
        except RolloutError:
            raise
        except BaseException:
            if self._resumable:
                self._shards, self.total_steps = before
                del self.dropped[num_dropped:], self.cut[num_cut:]
            else:
                self._cut_all()
            raise

    def _called(
        self, steps: int, parameters: np.ndarray | None, actions: Any, starts: list[tuple[int, RolloutPlan]]
    ) -> Rollouts:
        results: dict[int, ShardResult] = {}
        called = [s.number for s in self._shards if steps or any(s.has(slot) for slot, _ in starts)]
        pending = called
        for _ in range(_MOST_FAILURES):
            # Without its start a call is of a shard that is where it was: its worker may be new, though, or a rollout
            # fails, without which the call is done again. Then the next round brings the start.
            works = [self._work(number, steps, actions, starts, number in results) for number in pending]
            try:
                advanced = self._advance(works, parameters)
            except RolloutError:
                if not self._resumable:
                    self._cut_all()
                raise
            for number, result in zip(pending, advanced, strict=True):
                results[number] = result
                for failed, entry in result.failed:
                    self.dropped.append(entry)
                    self._put(self._shards[number].leaving_out(failed))
            pending = [number for number in pending if results[number].unknown]
            if not pending:
                return self._taken([(self._shards[number], results[number]) for number in called])
        last = self.dropped[-1]
        raise RolloutError(
            f"{_MOST_FAILURES} rollouts failed one after the other, the last one ({describe_plan(last.plan)}) "
            f"since: {last.message}",
            last.plan,
            last.step,
        )

    def _put(self, *records: ShardRecord) -> None:
        """Replace the records of these shards."""
        shards = list(self._shards)
        for record in records:
            shards[record.number] = record
        self._shards = shards

    def _work(
        self, number: int, steps: int, actions: Any, starts: list[tuple[int, RolloutPlan]], again: bool
    ) -> ShardWork:
        shard = self._shards[number]
        work = shard.work(self._name, steps, actions)
        work.starts = [(slot - shard.first, plan) for slot, plan in starts if shard.has(slot)]
        if again or not shard.placed:
            raises = steps > 0 or not self._by_hand
            self._cut(number, "since its slots were lost, with a worker or by an error", or_raise=raises)
            work.start = self._shards[number].start(self._kept)
        return work

    def _taken(self, done: list[tuple[ShardRecord, ShardResult]]) -> Rollouts:
        """Record the progress of shards; returns their pieces of rollouts."""
        records: list[ShardRecord] = []
        parts: list[RolloutColumns] = []
        order: list[np.ndarray] = []
        for shard, result in done:
            record, columns, numbers = shard.after(result)
            records.append(record)
            if columns is not None:
                parts.append(columns)
                order.append(numbers)
        rollouts = Rollouts(parts)
        if len(parts) > 1:
            rollouts = rollouts.sorted_by(np.concatenate(order))
        self._failed = ""
        self._put(*records)
        self.total_steps += sum(int(columns.bounds[-1]) for columns in parts)
        for _, result in done:
            self.dropped.extend(result.dropped)
            result.dropped = []
        return rollouts

    def _cut_all(self) -> None:
        for number in range(len(self._shards)):
            self._cut(number, "by an error")

    def _cut(self, number: int, why: str, or_raise: bool = False) -> None:
        """End the running rollouts of a shard that could not be built again; raises if ``or_raise``."""
        shard = self._shards[number]
        places, last = shard.lost(), shard.last
        for place in places:
            plan, age = shard.plan(int(last.positions[place])), int(last.ages[place])
            self.cut.append(DroppedRollout(plan, age, "cut", f"{describe_plan(plan)} was ended {why}"))
        if not places:
            return
        self._put(shard.without(places))
        if or_raise and (self._by_hand or last.resumes == "replay"):
            entry, why = self.cut[-len(places)], _STARTED_BY_HAND if self._by_hand else _TOO_LONG
            raise ReplayError(f"{entry.message}: {why}", entry.plan, entry.step)


def collect_here(slots: Slots, policy: Policy, *, record: bool = True, pieces: bool = True) -> Collection:
    """A collection in these slots, in this process: its rollouts are started one by one (``Collection.start``).

    An error ends all of them, and nothing is kept to build them again.

    Args:
        slots: Closed with the collection.
        policy: The acting policy, where no actions are given.
        record: Return what happens; without, only ``last_step`` and ``observations`` show it.
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
    kept = Kept(steps=record, pieces=pieces)
    return Collection(advance, None, size, size, "here", kept, slots.close, resumable=False)


def _together(steps: Sequence[SlotStep]) -> SlotStep:
    """The steps of several shards as one."""
    rows = {name: np.concatenate([getattr(step, name) for step in steps]) for name in _ROWS_OF_STEP}
    infos: Any = [step.infos for step in steps]
    by_name = all(isinstance(part, Mapping) for part in infos)
    infos = cat_to_format(infos, "numpy") if by_name else [info for part in infos for info in part]
    return SlotStep(cat_to_format([step.observations for step in steps], "numpy"), infos=infos, **rows)


def _total_steps(state: Any, num_slots: int, num_shards: int, made_for: Mapping[str, Any]) -> int:
    """``total_steps`` of a state that is of such a collection."""
    lacking = {"num_slots", "total_steps", "shards"} - (state.keys() if isinstance(state, Mapping) else set())
    if lacking:
        raise ValueError(f"state must be what Collection.state_dict() returned, but lacks {sorted(lacking)}")
    shards, before = state["shards"], state.get("made_for", {})  # states of earlier versions do not have it
    for name, value, kind in (("shards", shards, list | tuple), ("made_for", before, Mapping)):
        if not isinstance(value, kind):
            raise ValueError(f"{name} of state must be as Collection.state_dict() returned it, got {value!r}")
    if (
        not isinstance(state["num_slots"], int | np.integer)
        or state["num_slots"] != num_slots
        or len(shards) != num_shards
    ):
        raise ValueError(f"state must be of a collection with {num_slots} slots, got {state['num_slots']}")
    if not all(isinstance(shard, Mapping) and shard.keys() >= SAVED for shard in shards):
        raise ValueError(f"each of the shards of state must hold {sorted(SAVED)}")
    for name, value in made_for.items():
        if before.get(name, value) != value:
            raise ValueError(f"state must be of a collection with {name} {value!r}, got {before[name]!r}")
    try:
        return check_whole("total_steps of state", state["total_steps"], 0)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _check_rows(leaf: Any, num_slots: int) -> None:
    expected = f"actions must have one row per slot ({num_slots}, ...)"
    try:
        rows = np.atleast_1d(leaf)
    except ValueError as error:
        raise ShapeError(f"{expected}, got {described(leaf)} of unequal lengths") from error
    if len(rows) != num_slots:
        raise ShapeError(f"{expected}, got shape {np.shape(leaf)}")


def _real_numbers(name: str, values: Any) -> np.ndarray:
    """``values`` as an array of finite numbers."""
    array = array_of(name, values, "an array of numbers (P,) or a row for each slot")
    if not np.isfinite(array).all():
        count = np.count_nonzero(~np.isfinite(array))
        raise ValueError(f"{name} (the policy's where none are given) must be finite, got {count} entries that are not")
    return array
