"""Slots around slots: one writes down states that environments tell, one remembers the last step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaroll.envs.env_state import read_state, state_owner, time_step_of
from metaroll.tasks.domain_params import DomainParamUpdate, domain_params_of
from metaroll.types import RolloutPlan, Slots, SlotStep

__all__ = ["SlotTap", "Tapped", "WatchedSlots"]


class Tapped(NamedTuple):
    """What an environment told during one rollout: states ``(T+1, S)``, seconds per step, domain parameters."""

    states: np.ndarray | None
    dt: float | None
    domain_params: dict[str, Any] | None


class _Tape:
    """States of the rollout that runs in a slot."""

    def __init__(self, env: Any, plan: RolloutPlan) -> None:
        self.owner = state_owner(env)
        self.dt = time_step_of(env)
        self.domain_params = domain_params_of(env)
        if self.domain_params is None and isinstance(plan.env_update, DomainParamUpdate):
            self.domain_params = dict(plan.env_update.task)
        self.states: list[np.ndarray | None] = []
        self.write()

    def write(self) -> None:
        if self.owner is not None:
            self.states.append(read_state(self.owner))

    def taken(self) -> Tapped:
        known = [state for state in self.states if state is not None]
        alike = len(known) == len(self.states) and len({state.shape for state in known}) == 1
        return Tapped(np.stack(known) if alike else None, self.dt, self.domain_params)


class _Proxy:
    """Passes everything on."""

    def __init__(self, slots: Slots) -> None:
        self._slots: Any = slots
        self.num_slots = slots.num_slots
        self.env_spec = slots.env_spec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._slots, name)

    @property
    def beat(self) -> Callable[[str], None] | None:
        return self._slots.beat

    @beat.setter
    def beat(self, beat: Callable[[str], None] | None) -> None:
        self._slots.beat = beat

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        return self._slots.reset(slots, plans)

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        return self._slots.step(actions, active)

    def close(self) -> None:
        self._slots.close()


class SlotTap(_Proxy):
    """Writes down the ``state`` of environments that have one after every reset and step, for each plan in turn."""

    def __init__(self, slots: Slots) -> None:
        super().__init__(slots)
        self._tapes: list[_Tape] = []
        self._running: list[_Tape | None] = [None] * self.num_slots

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        rows = super().reset(slots, plans)
        envs = getattr(self._slots, "envs", [None] * self.num_slots)  # a batched simulator has none
        for slot, plan in zip(slots, plans, strict=True):
            self._running[slot] = tape = _Tape(envs[slot], plan)
            self._tapes.append(tape)
        return rows

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        result = super().step(actions, active)
        for slot in np.flatnonzero(active).tolist():
            tape = self._running[slot]
            if tape is not None:
                tape.write()
        return result

    def take(self, position: int) -> Tapped:
        """What was written down for the plan that came at ``position`` (see ``SlotLoop.positions``)."""
        return self._tapes[position].taken()


class WatchedSlots(_Proxy):
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
