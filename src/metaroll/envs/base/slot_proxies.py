"""Slots around slots: one writes down states that environments tell, one remembers the last step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaroll.envs.base.env_state import read_state, state_owner, time_step_of
from metaroll.envs.base.slot_states import StateLog
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import RolloutPlan, Slots, SlotStep

__all__ = ["SlotTap", "SlotsProxy", "Tapped", "WatchedSlots", "slot_domain_params"]


class Tapped(NamedTuple):
    """What an environment told during one rollout: states ``(T+1, S)``, seconds per step, domain parameters."""

    states: np.ndarray | None
    dt: float | None
    domain_params: dict[str, Any] | None


def slot_domain_params(slots: Slots, slot: int, plan: RolloutPlan) -> dict[str, Any] | None:
    """Domain parameters of the environment in ``slot``, which has been reset for ``plan``, as far as they are known."""
    params = slots.domain_param(slot)
    if params is None:
        params = plan.task if isinstance(plan.env_update, DomainParamUpdate) else plan.extras.get("domain_param")
    return None if params is None else dict(params)


class _Tape:
    """States of the rollout that runs in a slot of a list of environments."""

    def __init__(self, env: Any, dt: float | None, domain_params: dict[str, Any] | None) -> None:
        self.owner = state_owner(env)
        self.dt = time_step_of(env) if dt is None else dt
        self.domain_params = domain_params
        self.states: list[np.ndarray | None] = []
        self.whole: np.ndarray | None = None
        """States ``(T+1, S)`` of a batched simulator."""
        self.write()

    def write(self) -> None:
        if self.owner is not None:
            self.states.append(read_state(self.owner))

    def taken(self) -> Tapped:
        if self.whole is not None:
            return Tapped(self.whole, self.dt, self.domain_params)
        known = [state for state in self.states if state is not None]
        alike = len(known) == len(self.states) and len({state.shape for state in known}) == 1
        return Tapped(np.stack(known) if alike else None, self.dt, self.domain_params)


class SlotsProxy(Slots):
    """Passes everything on."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.num_slots = slots.num_slots
        self.env_spec = slots.env_spec
        self.info = slots.info

    def attach(self, *, beat: Callable[[str], None] | None = None, record_states: bool = False) -> None:
        self._slots.attach(beat=beat, record_states=record_states)

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        return self._slots.reset(slots, plans)

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        return self._slots.step(actions, active)

    def keep(self, slots: np.ndarray) -> None:
        self._slots.keep(slots)
        self.num_slots = self._slots.num_slots

    def states(self) -> np.ndarray | Sequence[np.ndarray | None] | None:
        return self._slots.states()

    def time_step(self, slot: int) -> float | None:
        return self._slots.time_step(slot)

    def domain_param(self, slot: int) -> dict[str, Any] | None:
        return self._slots.domain_param(slot)

    def name_of(self, slot: int) -> str:
        return self._slots.name_of(slot)

    def provenance(self, slot: int) -> dict[str, Any] | None:
        return self._slots.provenance(slot)

    def reset_info(self, slot: int) -> Mapping[str, Any]:
        return self._slots.reset_info(slot)

    def environments(self, *, make: bool = False) -> list[Any]:
        return self._slots.environments(make=make)

    def close(self) -> None:
        self._slots.close()


class SlotTap(SlotsProxy):
    """Writes down the ``state`` of environments that have one after every reset and step, for each plan in turn.

    A batched simulator tells those of all slots by an attribute ``states (E, S)``, and by ``dt`` the seconds per step,
    a number or ``(E,)``.
    """

    def __init__(self, slots: Slots) -> None:
        super().__init__(slots)
        self._tapes: list[_Tape] = []
        self._running: list[_Tape | None] = [None] * self.num_slots
        self._log = StateLog(slots) if isinstance(slots.states(), np.ndarray) else None

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        self._cut(slots)
        rows = super().reset(slots, plans)
        if self._log is not None:
            self._log.start(slots)
        envs = self._slots.environments() or [None] * self.num_slots  # a batched simulator has none
        for slot, plan in zip(slots, plans, strict=True):
            dt = self._slots.time_step(slot)
            self._running[slot] = tape = _Tape(envs[slot], dt, slot_domain_params(self._slots, slot, plan))
            self._tapes.append(tape)
        return rows

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        if self._log is not None:
            self._log.before_step(active)
            return super().step(actions, active)
        result = super().step(actions, active)
        for slot in np.flatnonzero(active).tolist():
            tape = self._running[slot]
            if tape is not None:
                tape.write()
        return result

    def take(self, position: int) -> Tapped:
        """What was written down for the plan that came at ``position`` (see ``SlotLoop.positions``)."""
        tape = self._tapes[position]
        if self._log is not None and tape.whole is None:
            self._cut([slot for slot, running in enumerate(self._running) if running is not None])
        return tape.taken()

    def _cut(self, slots: Sequence[int]) -> None:
        """Give the rollouts in ``slots`` of a batched simulator the states that they have passed."""
        if self._log is None:
            return
        last: Any = self._slots.states()
        for slot in slots:
            tape = self._running[slot]
            if tape is not None:
                tape.whole = self._log.cut(slot, last)
                self._running[slot] = None


class WatchedSlots(SlotsProxy):
    """Remembers the last step and how long it took."""

    def __init__(self, slots: Slots) -> None:
        super().__init__(slots)
        self.seconds = 0.0
        self.actions: Any = None
        self.result: SlotStep | None = None

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        begun = time.perf_counter()
        self.result = super().step(actions, active)
        self.seconds = time.perf_counter() - begun
        self.actions = actions
        return self.result
