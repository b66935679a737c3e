"""Division of plans into units of work. A rollout depends only on its plan, so units change speed, not results."""

from __future__ import annotations

import numpy as np

__all__ = ["cut", "list_slots", "slots_of_unit", "unit_size"]

_MOST_PLANS = {
    "list": 256,
    "batched": 1024,
    "lean": 4096,
    "slim": 4096,
    "physics": 256,
    "vector": 1024,
    "device": 1 << 16,
}
_MOST_SLOTS = {
    "list": 256,
    "batched": 1024,
    "lean": 4096,
    "slim": 4096,
    "physics": 64,
    "vector": 1024,
    "device": 1 << 14,
}  # a vector environment has its own number; lean units are batched and record little, slim ones only rewards

_FEW_SLOTS = 16
"""Slots of a list of environments that take long to make (and mostly much memory)."""
_FEW_PLANS = 64
_MAKING = 0.1
"""Seconds that making a wider list of environments may take."""

_MOST_STEPS = {"lean": 1 << 21, "slim": 1 << 22}
"""Maximum number of steps of a unit, unless it has few plans; this bounds its memory."""
_LEAN_PLANS = 256


def unit_size(num_plans: int, kind: str, num_workers: int = 1, longest: int = 1) -> int:
    """Plans per unit: enough units that each of several workers gets two, of bounded size.

    A unit is what is lost with a worker or a failure, and what balances the load; a larger one makes better use of
    batched calls. Few plans of a list are cut further: a user's environment may fail, and would take all that was done.
    ``longest`` are the steps of the longest rollout at most.
    """
    units = 1 if num_workers == 1 else 2 * num_workers
    if num_plans < _FEW_PLANS and kind == "list":
        units = max(4 if num_plans >= 16 else 2, num_workers)
    most = _MOST_PLANS[kind]
    if kind in _MOST_STEPS:
        most = min(most, max(_LEAN_PLANS, _MOST_STEPS[kind] // longest))
    return min(max(1, -(-num_plans // units)), most)


def slots_of_unit(num_plans: int, kind: str, slots_per_unit: int | None = None) -> int:
    """Slots that run a unit of ``num_plans``."""
    most = _MOST_SLOTS[kind] if slots_per_unit is None else slots_per_unit
    return max(1, min(num_plans, most))


def list_slots(seconds: float) -> int:
    """Slots at most of a list of environments, each of which takes ``seconds`` to make: many where they are cheap."""
    return max(_FEW_SLOTS, int(_MAKING / max(seconds, 1e-6)))


def cut(items: np.ndarray, size: int) -> list[np.ndarray]:
    """Consecutive pieces of ``size`` items (the last may be shorter)."""
    return [items[begin : begin + size] for begin in range(0, len(items), size)]
