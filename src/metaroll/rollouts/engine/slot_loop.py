"""THE step loop: slots, a policy and plans in; finished rollouts out. Nothing else in metaroll steps slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.data.data_format import iterate_leaves, map_leaves
from metaroll.data.space_batches import check_elements, flatten_batch
from metaroll.data.step_sequence import StepSequence
from metaroll.rollouts.engine.assembly import assemble_rollout, named_leaves, rollout_info, with_rows
from metaroll.rollouts.engine.limits import Limits
from metaroll.rollouts.engine.policy_rows import PolicyRows
from metaroll.rollouts.engine.recorder import Recorder
from metaroll.rollouts.failures import FAILURES, DroppedRollout, failure_in_slots, finite_rows, invalid_value
from metaroll.types import Policy, RolloutPlan, Slots, SlotStep

__all__ = ["SlotLoop"]


_NEVER = np.iinfo(np.int64).max


class SlotLoop:
    """Steps all slots together, one batched policy call per step, and refills a slot when its rollout ends.

    A slot without a plan is frozen. The bits of a rollout depend on its plan and the parameters alone: not on the
    slot, on the number of slots, or on what ran in the slot before.

    Args:
        slots: The environments.
        policy: What acts.
        plans: Plans in the order in which slots are filled; seeds must be set. May be an endless iterator.
        parameters: Flat policy parameters ``(P,)``, or stacked ``(E, P)``; ``None`` means the policy's own.
        on_invalid: ``"raise"`` or ``"drop"`` a rollout with NaN or Inf in observation, reward or action.
        record: Keep what happens, and return it; without, only ``last_step`` and ``observations`` tell.
        record_infos: Keep the infos of environment and policy.
        record_hidden: Record what a recurrent policy remembers before each step, as ``hidden_states (T, H)``.
        refill: Give a slot the next plan as soon as its rollout ends; without, it is frozen until ``start``.
        beat: Called with ``"reset"`` or ``"step"`` before each of them (the heartbeat of a worker).
    """

    def __init__(
        self,
        slots: Slots,
        policy: Policy,
        plans: Iterable[RolloutPlan],
        *,
        parameters: np.ndarray | None = None,
        on_invalid: str = "raise",
        record: bool = True,
        record_infos: bool = True,
        record_hidden: bool = False,
        refill: bool = True,
        beat: Callable[[str], None] | None = None,
    ) -> None:
        if on_invalid not in ("raise", "drop"):
            raise ValueError(f"on_invalid must be 'raise' or 'drop', got {on_invalid!r}")
        self.slots = slots
        self.num_slots = slots.num_slots
        self.dropped: list[DroppedRollout] = []
        self.finished: list[StepSequence] = []
        """What the last ``advance`` returned, or had to return before it raised."""
        self.positions: list[int] = []
        """Place in the order of plans of each of them."""
        self.step_count = 0
        self.last_step: SlotStep | None = None
        """What the last lock-step returned, with the plans' limits in ``truncated``."""
        self._spec = slots.env_spec
        self._plans: Iterator[RolloutPlan] = iter(plans)
        self._rows = PolicyRows(policy, slots.num_slots, parameters)
        self._sees_structure = policy.info.structured
        self._action_tree: Any = None
        self._recorder = Recorder(slots.num_slots)
        self._recorder.start[:] = _NEVER
        self._on_invalid = on_invalid
        self._record_infos, self._records, self._record_hidden = record_infos, record, record_hidden
        self._beat = beat
        if beat is not None:
            slots.attach(beat=beat)  # a list of slow environments tells of each
        self._slot_plans: list[RolloutPlan | None] = [None] * slots.num_slots
        self._slot_positions = [-1] * slots.num_slots
        self._num_taken = 0
        self._active = np.zeros(slots.num_slots, dtype=bool)
        self._num_active = 0
        self._limits = Limits(slots.num_slots)
        self._obs: Any = None
        self._exhausted = not refill
        self._fill()

    @property
    def active(self) -> np.ndarray:
        """Which slots run a rollout, bool ``(E,)`` (a copy)."""
        return self._active.copy()

    @property
    def done(self) -> bool:
        """True when every plan has been run."""
        return not self._num_active

    @property
    def observations(self) -> Any:
        """Current observations ``(E, ...)``, dicts or tuples of such for structured spaces (a copy)."""
        if self._obs is None:
            raise ValueError("no slot has been given a plan, so there are no observations")
        return map_leaves(lambda leaf, path: leaf.copy(), self._obs)

    def advance(
        self,
        k_steps: int | None = None,
        parameters: np.ndarray | None = None,
        *,
        actions: Any = None,
        segments: bool = False,
    ) -> list[StepSequence]:
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
        self.finished = finished = []
        self.positions = []
        taken = 0
        while (k_steps is None or taken < k_steps) and self._num_active:
            if k_steps is None and self._limits.has_endless(self._active):
                raise ValueError(
                    "a plan with stop_on_done=False and no limit never ends; set its max_steps, or give k_steps"
                )
            self._step(finished, actions)
            taken += 1
        if segments and self._records:
            begun = self._active & (self._recorder.step > self._recorder.start)
            finished.extend(self._cut(slot, complete=False) for slot in np.flatnonzero(begun).tolist())
        return finished

    def start(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> None:
        """Start ``plans[i]`` in ``slots[i]`` now; what ran there is given up (``refill=False`` only)."""
        if not self._exhausted:
            raise ValueError("slots of this loop are filled from its plans; make it with refill=False to start them")
        for slot in slots:
            self._release(slot)
        if slots:
            self._start(list(slots), list(plans))

    # -- one lock-step ---------------------------------------------------------------------------------------------

    def _step(self, finished: list[StepSequence], given: Any) -> None:
        if self._beat is not None:
            self._beat("step")
        observations, active = self._obs, self._active.copy()
        hidden = self._rows.remembered("hidden") if self._record_hidden else None
        actions, policy_infos = self._act(observations, active, given)
        if not self._check("action", actions, active):
            active &= self._active
            if not self._num_active:
                self._fill()
                return
        try:
            result = self.slots.step(actions, active)  # look: ok the only call of Slots.step
        except FAILURES as error:
            raise self._failure(error, active) from error
        truncated, over = self._limits.after(result, active)
        self.last_step = SlotStep(result.observations, result.rewards, result.terminated, truncated, result.infos)
        if self._records:
            self._record(observations, actions, self.last_step, policy_infos, active, hidden)
        self.step_count += self._num_active
        self._obs = result.observations
        self._check("observation", result.observations, active)
        self._check("reward", result.rewards, active)
        if over.any():
            ended = np.flatnonzero(over & self._active).tolist()
            self._recorder.expect(ended)
            for slot in ended:
                if self._records:
                    finished.append(self._cut(slot, complete=True))
                self._release(slot)
        if not self._exhausted and self._num_active < self.num_slots:
            self._fill()

    def _act(self, observations: Any, active: np.ndarray, given: Any) -> tuple[Any, Mapping[str, np.ndarray]]:
        if given is not None:
            return given, {}
        try:
            seen = observations
            if not self._sees_structure:
                seen = flatten_batch(self._spec.observation_space, observations)
                if self._num_active < self.num_slots:
                    # Frozen slots may show NaN (a rollout that was dropped), which some policies refuse.
                    seen = np.where(active[:, None], seen, np.zeros((), seen.dtype))
            actions, infos = self._rows.act(seen, active, self._recorder.step)
            actions = check_elements("the policy's actions", self._spec.action_space, actions, self.num_slots)
            return actions, {name: np.asarray(value) for name, value in infos.items()}
        except FAILURES as error:
            raise self._failure(error, active, "the policy") from error

    def _record(
        self,
        observations: Any,
        actions: Any,
        step: SlotStep,
        policy_infos: Mapping[str, np.ndarray],
        active: np.ndarray,
        hidden: np.ndarray | None,
    ) -> None:
        arrays = named_leaves("observations", observations) | named_leaves("actions", actions)
        arrays |= {"rewards": step.rewards, "terminated": step.terminated, "truncated": step.truncated}
        if actions.__class__ is not np.ndarray:
            self._action_tree = actions
        if hidden is not None:
            arrays["hidden_states"] = hidden
        if self._record_infos:
            for name, value in policy_infos.items():
                arrays["policy_infos/" + name] = value
            if isinstance(step.infos, Mapping):
                for name, value in step.infos.items():
                    arrays["env_infos/" + name] = value
            else:
                self._recorder.write_dicts(step.infos, active)
        self._recorder.write(arrays)

    # -- slots -----------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Give free slots their next plans; a rollout whose first observation is invalid makes room for the next."""
        if self._num_active and self.slots.info.resets_together:
            return  # until all rollouts have ended
        while not self._exhausted and self._num_active < self.num_slots:
            slots: list[int] = []
            plans: list[RolloutPlan] = []
            for slot in np.flatnonzero(~self._active).tolist():
                plan = next(self._plans, None)
                if plan is None:
                    self._exhausted = True
                    break
                slots.append(slot)
                plans.append(plan)
            if plans:
                self._start(slots, plans)

    def _start(self, slots: list[int], plans: list[RolloutPlan]) -> None:
        if self._beat is not None:
            self._beat("reset")
        for slot, plan in zip(slots, plans, strict=True):
            self._slot_plans[slot] = plan
            self._slot_positions[slot] = self._num_taken
            self._num_taken += 1
            self._active[slot] = True
            self._num_active += 1
            self._limits.start(slot, plan, self._spec.max_episode_length)
        starting = np.zeros(self.num_slots, dtype=bool)
        starting[slots] = True
        try:
            rows = self.slots.reset(slots, plans)
        except FAILURES as error:
            raise self._failure(error, starting, resetting=True) from error
        try:
            self._rows.start(slots, plans, self._recorder.step, self.slots)
        except FAILURES as error:
            raise self._failure(error, starting, "the policy", resetting=True) from error
        self._obs = with_rows(self._obs, slots, rows, self.num_slots)
        for slot in slots:
            self._recorder.begin(slot)
        self._check("observation", self._obs, starting)

    def _release(self, slot: int) -> None:
        self._slot_plans[slot] = None
        self._num_active -= bool(self._active[slot])
        self._active[slot] = False
        self._recorder.start[slot] = _NEVER

    def _cut(self, slot: int, complete: bool) -> StepSequence:
        plan = self._slot_plans[slot]
        if plan is None:
            raise RuntimeError(f"slot {slot} runs no plan")
        self.positions.append(self._slot_positions[slot])
        arrays, env_infos = self._recorder.cut(slot)
        info = rollout_info(self.slots, slot, plan)
        return assemble_rollout(arrays, env_infos, self._obs, slot, self._action_tree, complete, info)

    # -- failures --------------------------------------------------------------------------------------------------

    def _check(self, what: str, values: Any, active: np.ndarray) -> bool:
        """False where a rollout was dropped; raises where rollouts must not be."""
        if values.__class__ is not np.ndarray:
            return all([self._check(what, leaf, active) for _, leaf in iterate_leaves(values)])
        if values.dtype.kind not in "fc" or math.isfinite(abs(np.vdot(values, values))):
            return True
        # NaN or Inf somewhere, or finite numbers whose squares overflow.
        bad = active & ~finite_rows(values) & self._active
        for slot in np.flatnonzero(bad).tolist():
            plan = self._slot_plans[slot]
            if plan is None:
                continue
            step = int(self._limits.lengths[slot]) - (0 if what == "action" else 1)
            if self._on_invalid == "raise":
                raise invalid_value(what, values[slot], plan, step)
            self.dropped.append(DroppedRollout(plan, step, what))
            self._release(slot)
            self._rows.clear(slot)
        return not bad.any()

    def _failure(
        self, error: BaseException, active: np.ndarray, where: str = "the environment", *, resetting: bool = False
    ) -> Exception:
        return failure_in_slots(error, self._slot_plans, active, self._limits.lengths, where, resetting)
