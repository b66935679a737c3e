"""THE step loop: slots, a policy and plans in; finished rollouts out. Nothing else in metaroll steps slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.data.data_format import iterate_leaves, map_leaves
from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.data.space_batches import check_elements, flatten_batch, take_rows
from metaroll.rollouts.engine.extras import add_applied_actions, notes_of
from metaroll.rollouts.engine.plan_sources import PlansInOrder, RunningRollout, SlotPlans, check_replayed
from metaroll.rollouts.engine.policy_rows import PolicyRows
from metaroll.rollouts.engine.recorder import BlockMemory, Recorder, with_rows
from metaroll.rollouts.failures import (
    FAILURES,
    DroppedRollout,
    failure_in_slots,
    finite_rows,
    first_invalid,
    invalid_value,
)
from metaroll.rollouts.requests import KEPT, Kept
from metaroll.tasks.plan_table import NO_LIMIT, PlanTable
from metaroll.types import Policy, RolloutPlan, Slots, SlotStep

__all__ = ["SlotLoop"]

_BLOCK, _LONG_BLOCK = 16, 64
"""Lock-steps of a block, after which it checks for ended rollouts; the second, if every lock-step checks itself."""

_FEW_SLOTS = 128
"""Slots of which a lock-step costs hardly less if some of them have ended."""

_FULL = 0.75
"""Share of slots at work below which those that have ended get new plans."""

_NEEDED = 0.95
"""Share of slots at work below which the others are left behind, where there are no more plans."""


class SlotLoop:
    """Steps all slots together, one batched policy call per step, and gives slots new plans when rollouts end.

    A slot without a plan is frozen. The bits of a rollout depend on its plan and the parameters alone: not on the
    slot, on the number of slots, or on what ran in the slot before.

    Lock-steps are taken in blocks. Slots that may be stepped past an ending (``SlotsInfo.steps_past_end``) are
    checked when a block is over: what they did after their ending is left out, and NaN is detected. Others freeze at
    once.

    Args:
        slots: The environments.
        policy: The acting policy.
        plans: Plans in the order in which slots are filled; seeds must be set. May be an endless iterator, or a
            function from a number to the plan of that number: then slot ``e`` runs the plans ``e``, ``e + E``, ... of E
            slots, independently of the others.
        parameters: Flat policy parameters ``(P,)``, or stacked ``(E, P)``; ``None`` means the policy's own.
        kept: Which data of rollouts are kept.
        refill: Give a slot the next plan after its rollout has ended; without, it is frozen until ``start``.
        begin: Give slots their first plans now; without, ``restore`` does.
        heartbeat: Called with ``"reset"`` or ``"step"`` now and then (the heartbeat of a worker).
        memory: Memory that loops use one after the other.
    """

    def __init__(
        self,
        slots: Slots,
        policy: Policy,
        plans: Iterable[RolloutPlan] | Callable[[int], RolloutPlan],
        *,
        parameters: np.ndarray | None = None,
        kept: Kept = KEPT,
        refill: bool = True,
        begin: bool = True,
        heartbeat: Callable[[str], None] | None = None,
        memory: BlockMemory | None = None,
    ) -> None:
        self.slots = slots
        self.num_slots = slots.num_slots
        self.dropped: list[DroppedRollout] = []
        self.dropped_positions: list[tuple[int, DroppedRollout]] = []
        """The same with the place of each plan."""
        self.finished: Rollouts = Rollouts()
        """The result of the last ``advance``, also if it raised."""
        self.columns: RolloutColumns | None = None
        """Their columns; ``None`` if there are none."""
        self.positions: list[int] = []
        """Place in the order of plans of each of them."""
        self.step_count = 0
        self.last_step: SlotStep | None = None
        """The result of the last lock-step, with the plans' limits in ``truncated``."""
        self._spec = slots.env_spec
        self._source: PlansInOrder | SlotPlans = (
            SlotPlans(plans, slots.num_slots) if callable(plans) else PlansInOrder(plans)
        )
        self._each_slot_continues = isinstance(self._source, SlotPlans)
        self._full = 1.0 if self._each_slot_continues else _FULL
        fields = kept.fields
        infos = kept.steps and kept.infos and (fields is None or "policy_infos" in fields)
        self._rows = PolicyRows(policy, slots.num_slots, parameters, with_infos=infos)
        self._sees_structure = policy.info.structured
        self._past_end = slots.info.steps_past_end and policy.info.width_independent and kept.steps
        self._recorder = Recorder(memory, kept)
        self._on_invalid, self._fields = kept.on_invalid, fields
        self._records, self._record_extras = kept.steps, kept.extras
        self._heartbeat = heartbeat
        self._blind = self._past_end and kept.extras and not policy.info.looks
        self._blind = self._blind and fields is not None and "states" in fields and "observations" not in fields
        slots.attach(beat=heartbeat, record_states=kept.extras, shows=not self._blind)
        self._tick = 0
        self._plans: dict[int, RolloutPlan] = {}
        """Plans of the rollouts by position, where the source does not know them."""
        self._notes: dict[int, dict[str, Any]] = {}
        self._positions = np.full(slots.num_slots, -1, dtype=np.int64)
        self._ages = np.zeros(slots.num_slots, dtype=np.int64)
        self._packed = np.zeros(slots.num_slots, dtype=np.int64)
        """Steps of each rollout that have been returned as segments."""
        self._limits = np.full(slots.num_slots, NO_LIMIT)
        self._stops = np.ones(slots.num_slots, dtype=bool)
        self._active = np.zeros(slots.num_slots, dtype=bool)
        self._begun = np.zeros(slots.num_slots, dtype=bool)
        """Which slots have ever run a rollout; those that may be stepped past endings all are: it costs less."""
        self._until_limit = 0
        """Lock-steps before the first rollout can reach its limit."""
        self._ended: list[np.ndarray] = []
        """Positions, first steps and lengths, ``(3, k)``, of rollouts that have ended and were not returned yet."""
        self._obs: Any = None
        self._refills = refill
        table = self._source.table
        self._draws_ahead = table is not None and len(table) > self.num_slots and refill
        if table is not None and self._draws_ahead:
            self._rows.draw_ahead(table)
        if begin:
            self.fill()

    # -- what it is doing ------------------------------------------------------------------------------------------

    @property
    def active(self) -> np.ndarray:
        """Which slots run a rollout, bool ``(E,)`` (a copy)."""
        return self._active.copy()

    @property
    def done(self) -> bool:
        """True when every plan has been run."""
        return not self._active.any()

    @property
    def ages(self) -> np.ndarray:
        """Steps of the rollout in each slot so far, ``(E,)`` (a copy)."""
        return self._ages.copy()

    @property
    def observations(self) -> Any:
        """Current observations ``(E, ...)``, dicts or tuples of such for structured spaces (a copy)."""
        if self._obs is None:
            raise ValueError("no slot has been given a plan, so there are no observations")
        return map_leaves(lambda leaf, path: leaf.copy(), self._obs)

    def policy_state(self) -> dict[str, np.ndarray]:
        """The policy's memory of each slot, name -> ``(E, ...)`` (copies)."""
        return self._rows.state()

    # -- running -----------------------------------------------------------------------------------------------------

    def advance(
        self,
        k_steps: int | None = None,
        parameters: np.ndarray | None = None,
        *,
        actions: Any = None,
        segments: bool = False,
    ) -> Rollouts:
        """Take ``k_steps`` lock-steps (``None``: until all plans are done); the rollouts that ended meanwhile.

        Args:
            k_steps: Number of lock-steps; fewer are taken when the plans run out.
            parameters: Policy parameters from now on, ``(P,)`` or ``(E, P)``.
            actions: Given actions ``(E, act_dim)`` (see ``Policy.act``) for every one of these steps, instead of asking
                the policy.
            segments: Also return what rollouts that still run have recorded since it was last returned, as
                StepSequences with ``complete=False`` (off-policy learning does not wait for a rollout's end).

        Raises:
            RolloutError: An environment or the policy raised; names plan and step.
            InvalidValueError: NaN or Inf, with ``on_invalid="raise"``.
            ValueError: ``k_steps=None``, and a rollout has no end: no limit, and ``stop_on_done=False``.
        """
        if k_steps is not None and k_steps < 0:
            raise ValueError(f"k_steps must be at least 0 or None, got {k_steps}")
        if parameters is not None:
            self._rows.set_parameters(parameters)
        if actions is not None:
            actions = check_elements("actions", self._spec.action_space, actions, self.num_slots)
        self.finished, self.columns, self.positions = Rollouts(), None, []
        left = k_steps
        try:
            while (left is None or left > 0) and self._active.any():
                if left is None and bool((self._active & ~self._stops & (self._limits == NO_LIMIT)).any()):
                    raise ValueError(
                        "a plan with stop_on_done=False and no limit never ends; set its max_steps, or give k_steps"
                    )
                block = self._longest_block()
                taken = self._block(block if left is None else min(left, block), actions)
                left = None if left is None else left - taken
        except Exception:  # not Ctrl-C, which comes amid any statement: rows may be half written
            if self._records:
                self._pack(segments)
            raise
        if self._records:
            self._pack(segments)
        return self.finished

    def start(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> None:
        """Start ``plans[i]`` in ``slots[i]`` now; rollouts that run there are abandoned (``refill=False`` only)."""
        if self._refills:
            raise ValueError("slots of this loop are filled from its plans; make it with refill=False to start them")
        rows = np.array(slots, dtype=np.int64)
        for position in self._positions[rows].tolist():
            self._forget(position)
        self._release(rows)
        if rows.size:
            self._start(rows, PlanTable.of(plans), self._source.positions(len(rows)))

    @property
    def source(self) -> PlansInOrder | SlotPlans:
        """Where slots get their plans, and how many have been begun."""
        return self._source

    def use(self, policy: Policy, parameters: np.ndarray | None) -> None:
        """Act with ``policy``, of the same build as before, and ``parameters (P,)`` from now on."""
        self._rows.policy = policy
        if parameters is not None:
            self._rows.set_parameters(parameters)

    def running(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rollouts that run now: slots, places in the order of plans, and steps, each ``(k,)``."""
        slots = np.flatnonzero(self._active)
        return slots, self._positions[slots], self._ages[slots]

    def position_of(self, plan: RolloutPlan) -> int | None:
        """Place in the order of plans of the rollout that runs ``plan``, if one does."""
        running = self._positions[self._active].tolist()
        return next((position for position in running if self._plan(position) is plan), None)

    def restore(
        self,
        running: Sequence[RunningRollout],
        policy_state: Mapping[str, np.ndarray],
        observations: Any,
        states: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Continue with rollouts that ran elsewhere: reset their plans, set their states or take their actions again.

        Args:
            running: Running rollouts by slot, with their actions; the other slots are free.
            policy_state: The policy's memory of all slots, name -> ``(E, ...)``.
            observations: The last observations of all slots.
            states: Result of ``Slots.running_state`` for them; without it, actions are taken again.

        Raises:
            ReplayError: An environment shows something else than before.
        """
        if running:
            slots = np.array([entry.slot for entry in running], dtype=np.int64)
            ages = np.array([entry.age for entry in running], dtype=np.int64)
            positions = np.array([entry.position for entry in running], dtype=np.int64)
            self._tick = max(self._tick, int(ages.max()))
            self._start(slots, PlanTable([entry.plan for entry in running]), positions)
            self._rows.start(slots, PlanTable([entry.plan for entry in running]), self._tick - ages, self.slots)
            for step in range(int(ages.max()) if states is None else 0):
                self._replay(running, step)
            if states is not None:
                self.slots.resume(slots, states)
                self._obs = with_rows(self._obs, slots, take_rows(observations, slots), self.num_slots)
            self._ages[slots] = self._packed[slots] = ages
            if policy_state:
                self._rows.set_state(policy_state)
            check_replayed(running, self._obs, observations)
        self.fill()

    def _replay(self, running: Sequence[RunningRollout], step: int) -> None:
        """Step ``step`` of all rollouts that had taken it, with the actions that they took."""
        if self._heartbeat is not None:
            self._heartbeat("step")
        active = np.zeros(self.num_slots, dtype=bool)
        rows: dict[tuple[Any, ...], np.ndarray] = {}
        for entry in running:
            if step < entry.age:
                active[entry.slot] = True
                for path, leaf in iterate_leaves(entry.actions):
                    if path not in rows:
                        rows[path] = np.zeros((self.num_slots, *leaf.shape[1:]), dtype=leaf.dtype)
                    rows[path][entry.slot] = leaf[step]
        some = next(entry.actions for entry in running if step < entry.age)
        actions = map_leaves(lambda _, path: rows[path], some)
        try:
            result = self.slots.step(actions, active)  # steps that were taken before are taken again
        except FAILURES as error:
            raise self._failure(error, active, np.full(self.num_slots, step)) from error
        self._obs = result.observations
        states = result.states
        if states is not None and not isinstance(states, np.ndarray):
            self._recorder.write_states(states, active.nonzero()[0].tolist(), self._positions, only_last=True)

    # -- a block of lock-steps ---------------------------------------------------------------------------------------

    def _block(self, most: int, given_actions: Any) -> int:
        """At most ``most`` lock-steps; ends early where slots are to be filled. The number taken."""
        running = self._active
        left = (self._limits - self._ages)[running]
        longest, self._until_limit = int(left.max()), int(left.min())
        most, self._rows.until = min(most, longest), self._tick + longest
        counts = np.zeros(self.num_slots, dtype=np.int64)
        ended = np.zeros(self.num_slots, dtype=bool)
        if self._records:
            states = self.slots.states() if self._record_extras else None
            states = states if isinstance(states, np.ndarray) else None
            seen = None if self._blind else self._obs
            self._recorder.open(most, self._positions, self._ages, seen, states)
        step = 0
        try:
            while step < most:
                over = self._step(running, given_actions, counts)
                step += 1
                if over is None:  # all running rollouts were dropped
                    break
                if np.count_nonzero(over):  # three times as fast as any(), in every lock-step
                    ended |= over
                    if not self._past_end:
                        running = self._active & ~ended
                    if self._enough(ended):
                        break
        except Exception:  # NaN that was not checked yet may be its cause, and is reported first
            self._end_block(counts, ended)
            raise
        self._end_block(counts, ended)
        if self._refills:
            self.fill()
        return step

    def _longest_block(self) -> int:
        """Maximum number of lock-steps of the next block; for the last few rows, steps past endings cost little."""
        short = self._past_end and (self._source.more or self.num_slots > _FEW_SLOTS)
        return _BLOCK if short else _LONG_BLOCK

    def _enough(self, ended: np.ndarray) -> bool:
        """Whether enough rollouts have ended that the block should end, too."""
        alive = int(np.count_nonzero(self._active & ~ended))
        waits = self._past_end and not self._each_slot_continues
        return not alive or (not waits and self._source.more and alive <= self._full * self.num_slots)

    def _step(self, running: np.ndarray, given_actions: Any, counts: np.ndarray) -> np.ndarray | None:
        """One lock-step of the slots in ``running``; which rollouts are over with it, bool ``(E,)``."""
        if self._heartbeat is not None:
            self._heartbeat("step")
        observations = self._obs
        hidden = self._rows.remembered("hidden") if self._record_extras else None
        actions, policy_infos = self._act(observations, running, given_actions, counts)
        if not self._past_end and not self._check("action", actions, running, counts):
            running = running & self._active
            if not running.any():
                return None
        try:
            result = self.slots.step(actions, self._begun if self._past_end else running)  # new steps
        except FAILURES as error:
            raise self._failure(error, running, counts) from error
        counts += running
        self._tick += 1
        if result.observations is not None:
            self._obs = result.observations
        over = (result.terminated | result.truncated) & self._stops
        self._until_limit -= 1
        if self._until_limit <= 0:  # else no rollout can have reached its limit
            at_limit = running & (self._ages + counts >= self._limits)
            truncated = result.truncated | (at_limit & ~result.terminated)
            over = over | at_limit
            result = result._replace(truncated=truncated)
        self.last_step = result
        if self._records:
            self._recorder.write_step(result, actions, policy_infos, hidden, running, self._positions)
        if not self._past_end:
            valid = self._check("observation", result.observations, running, counts)
            if not self._check("reward", result.rewards, running, counts) or not valid:
                running = running & self._active
                if not running.any():
                    return None
        return over & running

    def _act(
        self, observations: Any, running: np.ndarray, given_actions: Any, counts: np.ndarray
    ) -> tuple[Any, Mapping[str, np.ndarray]]:
        if given_actions is not None:
            return given_actions, {}
        try:
            seen = observations
            if not self._sees_structure:
                seen = flatten_batch(self._spec.observation_space, observations)
                if not self._past_end and np.count_nonzero(running) < len(running):
                    # Frozen slots may show NaN (a rollout that was dropped), which some policies refuse.
                    seen = np.where(running[:, None], seen, np.zeros((), seen.dtype))
            actions, infos = self._rows.act(seen, running, self._tick)
            actions = check_elements("the policy's actions", self._spec.action_space, actions, self.num_slots)
            return actions, infos
        except FAILURES as error:
            raise self._failure(error, running, counts, "the policy") from error

    def _end_block(self, counts: np.ndarray, ended: np.ndarray) -> None:
        """Record the results of the block: lengths, endings, NaN; its slots are free or continue."""
        invalid: list[tuple[int, int, str, np.ndarray]] = []
        if self._past_end and counts.any():
            counts, ended = self._check_block(counts)
            invalid = first_invalid(self._recorder.values(), counts, self._active)
            counts[[entry[0] for entry in invalid]] = 0
        counts = np.where(self._active, counts, 0)
        self._ages += counts
        self.step_count += int(counts.sum())
        if self._records:
            self._recorder.close(counts)
        ended[[entry[0] for entry in invalid]] = False
        slots = np.flatnonzero(ended & self._active)
        if self._records and slots.size:
            self._ended.append(np.stack([self._positions[slots], self._packed[slots], self._ages[slots]]))
        self._release(slots)
        for slot, step, what, value in invalid:
            self._drop(slot, what, value, int(self._ages[slot]) + step)

    def _check_block(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of slots that were stepped on past endings: steps that count, and which rollouts are over."""
        terminated, truncated = self._recorder.flags()
        over = (terminated | truncated) & self._stops
        left = self._limits - self._ages
        ended = left <= counts
        counts = np.minimum(counts, left)
        if over.any():
            stopped = over.any(axis=0)
            ended |= stopped
            counts = np.where(stopped, np.minimum(over.argmax(axis=0) + 1, counts), counts)
        return counts, ended

    # -- slots -----------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Give free slots their next plans; a rollout whose first observation is invalid makes room for the next."""
        while self._refills:
            num_active = int(np.count_nonzero(self._active))
            if num_active == self.num_slots:
                return
            more = self._source.more
            enough = (self._full if more else _NEEDED) * self.num_slots
            if num_active and (self.slots.info.resets_together or num_active > enough):
                return  # until more rollouts have ended
            if not more:
                self._narrow(num_active)
                return
            free = np.flatnonzero(~self._active)
            plans, positions = self._source.take(free)
            if len(plans):
                self._start(free[: len(plans)], plans, positions)

    def _narrow(self, num_active: int) -> None:
        """Drop slots that have nothing left to do."""
        if not num_active or num_active == self.num_slots or not self.slots.info.can_keep:
            return
        rows = np.flatnonzero(self._active)
        self.slots.keep(rows)
        self._rows.keep(rows)
        self.num_slots = len(rows)
        for name in ("_positions", "_ages", "_packed", "_limits", "_stops", "_active", "_begun"):
            self.__dict__[name] = self.__dict__[name][rows]
        self._obs = map_leaves(lambda leaf, path: leaf[rows], self._obs)

    def _start(self, slots: np.ndarray, plans: PlanTable, positions: np.ndarray) -> None:
        if self._heartbeat is not None:
            self._heartbeat("reset")
        if not self._refills or self._source.table is None:
            self._plans.update(zip(positions.tolist(), plans, strict=True))
        self._positions[slots] = positions
        default = self._spec.max_episode_length
        self._limits[slots] = np.where(
            plans.max_steps == NO_LIMIT, NO_LIMIT if default is None else default, plans.max_steps
        )
        self._ages[slots] = self._packed[slots] = 0
        self._stops[slots] = plans.stop_on_done
        self._active[slots] = self._begun[slots] = True
        starting = np.zeros(self.num_slots, dtype=bool)
        starting[slots] = True
        try:
            rows = self.slots.reset(slots.tolist(), plans)
        except FAILURES as error:
            raise self._failure(error, starting, None) from error
        try:
            self._rows.start(slots, plans, self._tick, self.slots, positions if self._draws_ahead else None)
        except FAILURES as error:
            raise self._failure(error, starting, None, "the policy") from error
        self._obs = with_rows(self._obs, slots, rows, self.num_slots)
        if self._records:
            self._note(slots, plans, positions)
        self._check("observation", self._obs, starting, None)

    def _note(self, slots: np.ndarray, plans: PlanTable, positions: np.ndarray) -> None:
        """Record the constants of the rollouts that have been started."""
        states = self.slots.states() if self._record_extras else None
        if states is not None and not isinstance(states, np.ndarray):
            self._recorder.write_states(states, slots.tolist(), self._positions)
        if self._fields is None:
            notes = notes_of(self.slots, slots, plans, self._record_extras)
            self._notes.update(zip(positions.tolist(), notes, strict=True))

    def _release(self, slots: np.ndarray) -> None:
        self._active[slots] = False
        self._positions[slots] = -1

    def _plan(self, position: int) -> RolloutPlan:
        known = self._plans.get(position)
        if known is not None or self._source.table is None:
            return self._plans[position]
        return self._source.table[position]

    def _forget(self, position: int) -> None:
        """Drop a rollout that is no longer wanted."""
        self._recorder.forget(position)
        self._notes.pop(position, None)
        self._plans.pop(position, None)

    # -- results -----------------------------------------------------------------------------------------------------

    def _pack(self, segments: bool) -> None:
        """Put ended rollouts (and, with ``segments``, all steps since the last time) into ``finished``."""
        going_on = self._active & (self._ages > self._packed) & segments
        running = np.stack([self._positions[going_on], self._packed[going_on], self._ages[going_on]])
        done = np.concatenate([np.zeros((3, 0), dtype=np.int64), *self._ended], axis=1)
        pieces = np.concatenate([done, running], axis=1)
        order = np.argsort(pieces[0], kind="stable")
        self._ended = []
        if segments:
            self._packed[self._active] = self._ages[self._active]
        if not order.size:
            return
        positions, first, ages = pieces[:, order]
        complete = order < done.shape[1]
        listed = positions.tolist()
        notes = [self._notes[position] for position in listed] if self._notes else [{}] * len(listed)
        table = self._source.table
        plans = table.take(positions) if table is not None and not self._plans else [self._plan(n) for n in listed]
        for position in done[0].tolist() if self._notes or self._plans else ():
            self._notes.pop(position, None)
            self._plans.pop(position, None)
        wanted = [] if segments else self._positions[self._active].tolist()
        columns = self._recorder.pack(positions, first, ages - first, complete, notes, wanted)
        columns.plans = plans
        if self._record_extras and (self._fields is None or "actions_applied" in self._fields):
            add_applied_actions(columns, self._spec, copy=self._fields is None)
        self.columns, self.positions = columns, listed
        self.finished = Rollouts([columns])

    # -- failures --------------------------------------------------------------------------------------------------

    def _check(self, what: str, values: Any, running: np.ndarray, counts: np.ndarray | None) -> bool:
        """False where a rollout was dropped; raises where rollouts must not be."""
        if values.__class__ is not np.ndarray:
            return all([self._check(what, leaf, running, counts) for _, leaf in iterate_leaves(values)])
        if values.dtype.kind not in "fc" or math.isfinite(abs(np.vdot(values, values))):
            return True
        # NaN or Inf somewhere, or finite numbers whose squares overflow.
        bad = running & ~finite_rows(values) & self._active
        for slot in np.flatnonzero(bad).tolist():
            done = 0 if counts is None else int(counts[slot])
            step = int(self._ages[slot]) + done - (0 if what == "action" else 1)
            self._drop(slot, what, values[slot], step)
            if counts is not None:
                counts[slot] = 0
        return not bad.any()

    def _drop(self, slot: int, what: str, value: np.ndarray, step: int) -> None:
        if not self._active[slot]:
            return
        position = int(self._positions[slot])
        plan = self._plan(position)
        if self._on_invalid == "raise":
            raise invalid_value(what, value, plan, step)
        self.dropped.append(DroppedRollout(plan, step, what))
        self.dropped_positions.append((position, self.dropped[-1]))
        self._forget(position)
        self._release(np.array([slot]))
        self._rows.clear(slot)

    def _failure(
        self, error: BaseException, running: np.ndarray, counts: np.ndarray | None, where: str = "the environment"
    ) -> Exception:
        lengths = self._ages if counts is None else self._ages + counts
        plans = [None if position < 0 else self._plan(position) for position in self._positions.tolist()]
        return failure_in_slots(error, plans, running, lengths, where, counts is None)
