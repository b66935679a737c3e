"""Slots around slots: one passes everything on, one remembers the last step."""

from __future__ import annotations

import time
from abc import ABC
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.types import RolloutPlan, Slots, SlotStep

__all__ = ["SlotsProxy", "WatchedSlots", "slot_domain_params"]


def slot_domain_params(slots: Slots, slot: int, plan: RolloutPlan) -> dict[str, Any] | None:
    """Domain parameters of the environment in ``slot``, which has been reset for ``plan``, as far as known."""
    params = slots.domain_param(slot)
    if params is None:
        params = plan.task if isinstance(plan.env_update, DomainParamUpdate) else plan.extras.get("domain_param")
    return None if params is None else dict(params)


class SlotsProxy(Slots, ABC):
    """Passes everything on."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.num_slots = slots.num_slots
        self.env_spec = slots.env_spec
        self.info = slots.info

    def attach(
        self, *, beat: Callable[[str], None] | None = None, record_states: bool = False, shows: bool = True
    ) -> None:
        self._slots.attach(beat=beat, record_states=record_states)  # a proxy may read observations

    def reset(self, slots: Sequence[int], plans: Sequence[RolloutPlan]) -> Any:
        return self._slots.reset(slots, plans)

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        return self._slots.step(actions, active)

    def keep(self, slots: np.ndarray) -> None:
        self._slots.keep(slots)
        self.num_slots = self._slots.num_slots

    def running_state(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        return self._slots.running_state(slots)

    def resume(self, slots: np.ndarray, state: Mapping[str, np.ndarray]) -> None:
        self._slots.resume(slots, state)

    def states(self) -> np.ndarray | Sequence[np.ndarray | None] | None:
        return self._slots.states()

    def time_step(self, slot: int) -> float | None:
        return self._slots.time_step(slot)

    def domain_param(self, slot: int) -> dict[str, Any] | None:
        return self._slots.domain_param(slot)

    def alike(self, slots: np.ndarray) -> Sequence[Hashable] | None:
        return self._slots.alike(slots)

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
