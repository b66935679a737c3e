"""Rows sorted by policy parameters: eight rows of one set make a block, so that one product serves all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaroll.errors import ShapeError
from metaroll.functional.linear import BLOCK

__all__ = ["ParameterBlocks"]


class ParameterBlocks:
    """Which slot acts with which parameters, where every plan brings its own.

    Plans that share one array of parameters share blocks. A block that is not full is filled up with copies of its
    first row, so that each row is computed in a block of eight, as it is with parameters that all slots share: a
    rollout has the same bits however its parameters arrived, and with any neighbors.

    Attributes:
        sets: Parameters of each block, float32 ``(B, P)``.
        source: Slot of each of the 8 B rows; ``None`` where row ``i`` is slot ``i``.
        place: Row of each slot ``(E,)``; some row for slots that are free.
    """

    def __init__(self, num_slots: int) -> None:
        self._arrays: list[np.ndarray | None] = [None] * num_slots
        self._stale = True
        self._num_active = 0
        self.sets = np.zeros((0, 0), dtype=np.float32)
        self.source: np.ndarray | None = None
        self.place = np.zeros(num_slots, dtype=np.int64)

    def start(self, slots: Sequence[int], sets: Sequence[np.ndarray]) -> None:
        """A rollout with ``sets[i] (P,)`` starts in ``slots[i]``."""
        for slot, values in zip(slots, sets, strict=True):
            self._arrays[slot] = values
        self._stale = True

    def keep(self, slots: np.ndarray) -> None:
        """Continue with these slots only."""
        self._arrays = [self._arrays[slot] for slot in slots.tolist()]
        self.place = np.zeros(len(slots), dtype=np.int64)
        self._stale = True

    def arrange(self, active: np.ndarray) -> None:
        """Bring the attributes up to date for the slots in ``active (E,)``."""
        # Slots that have come to their end are left out when they are half of all, so this costs little.
        if self._stale or 2 * int(active.sum()) <= self._num_active:
            self._sort(np.flatnonzero(active).tolist())
            self._stale = False

    def _sort(self, slots: Sequence[int]) -> None:
        groups: dict[int, list[int]] = {}
        for slot in slots:
            groups.setdefault(id(self._arrays[slot]), []).append(slot)
        rows: list[int] = []
        sets: list[np.ndarray] = []
        self.place[:] = 0
        for members in groups.values():
            for begin in range(0, len(members), BLOCK):
                part = members[begin : begin + BLOCK]
                self.place[part] = range(len(rows), len(rows) + len(part))
                rows.extend(part + part[:1] * (BLOCK - len(part)))
                sets.append(_checked(self._arrays[part[0]]))
        if len({len(values) for values in sets}) > 1:
            raise ShapeError(f"parameters must be of one length in all plans, got {sorted({len(v) for v in sets})}")
        self.sets = np.array(sets, dtype=np.float32)  # policies cache by identity, so this is fresh memory
        self.source = None if rows == list(range(len(self._arrays))) else np.array(rows)
        self._num_active = len(slots)


def _checked(parameters: np.ndarray | None) -> np.ndarray:
    values = np.asarray(parameters)
    if parameters is None or values.ndim != 1:
        raise ShapeError(f"parameters of a plan must be flat (P,), got {None if parameters is None else values.shape}")
    return values
