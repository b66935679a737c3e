"""How plans are cut into units of work: by their number and the kind of environment, never by the number of workers."""

from __future__ import annotations

import numpy as np

__all__ = ["cut", "slots_of_unit", "unit_size"]

_MOST_PLANS = {"list": 64, "batched": 1024, "physics": 256, "vector": 1024, "device": 1 << 16}
_MOST_SLOTS = {
    "list": 16,
    "batched": 1024,
    "physics": 64,
    "vector": 1024,
    "device": 1 << 14,
}  # a vector environment has a number of its own


def unit_size(num_plans: int, kind: str) -> int:
    """Plans per unit: at least 4 units where there are 16 plans, 2 where there are 2, and units of bounded size.

    A unit is what is lost with a worker, and what balances the load; a larger one makes better use of batched calls.
    """
    if kind == "device":  # in this process alone
        return min(num_plans, _MOST_PLANS[kind])
    if num_plans < 16:
        return max(1, -(-num_plans // 2))
    return min(num_plans // 4, _MOST_PLANS[kind])


def slots_of_unit(num_plans: int, kind: str, slots_per_unit: int | None = None) -> int:
    """Slots that run a unit of ``num_plans``."""
    most = _MOST_SLOTS[kind] if slots_per_unit is None else slots_per_unit
    return max(1, min(num_plans, most))


def cut(items: np.ndarray, size: int) -> list[np.ndarray]:
    """Consecutive pieces of ``size`` items (the last may be shorter)."""
    return [items[begin : begin + size] for begin in range(0, len(items), size)]
