"""Records what all slots do, in preallocated blocks of time, and cuts finished rollouts out of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Recorder", "stack_infos"]

_CHUNK = 256


class Recorder:
    """Arrays ``(256, E, ...)`` per name; a rollout is a stretch of one column.

    No per-step lists or dicts are kept (except for environments that report dicts, whose entries are stacked at the
    end).
    """

    def __init__(self, num_slots: int) -> None:
        self.step = 0
        """Number of lock-steps recorded so far."""
        self.start = np.zeros(num_slots, dtype=np.int64)
        """Lock-step at which the stretch of each slot that has not been cut out yet begins."""
        self._num_slots = num_slots
        self._chunks: list[dict[str, np.ndarray]] = []
        self._first_chunk = 0
        self._dicts: list[list[Mapping[str, Any]]] = [[] for _ in range(num_slots)]

    def begin(self, slot: int) -> None:
        """A new rollout begins in ``slot`` with the next write."""
        self.start[slot] = self.step
        self._dicts[slot] = []

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Store one lock-step: name -> array ``(E, ...)`` (copied)."""
        number, row = divmod(self.step, _CHUNK)
        if row == 0:
            self._new_chunk(number)
        chunk = self._chunks[-1]
        num_slots = self._num_slots
        for name, value in arrays.items():
            store = chunk.get(name)
            if store is None:
                store = self._allocate(chunk, name, value)
            store[row] = value[:num_slots]
        self.step += 1

    def write_dicts(self, infos: Sequence[Mapping[str, Any]], active: np.ndarray) -> None:
        """Store the info dicts of one lock-step of the active slots; call before ``write``."""
        for slot in np.flatnonzero(active).tolist():
            self._dicts[slot].append(infos[slot])

    def cut(self, slot: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Arrays ``(T, ...)`` of the stretch of ``slot`` up to now, and its stacked info dicts; a new one begins."""
        begin, end = int(self.start[slot]), self.step
        names = self._chunks[(end - 1) // _CHUNK - self._first_chunk].keys() if end > begin else ()
        arrays = {name: self._stretch(name, slot, begin, end) for name in names}
        infos = stack_infos(self._dicts[slot])
        self.begin(slot)
        return arrays, infos

    def _stretch(self, name: str, slot: int, begin: int, end: int) -> np.ndarray:
        parts = []
        while begin < end:
            number, row = divmod(begin, _CHUNK)
            stop = min(_CHUNK, row + end - begin)
            parts.append(self._chunks[number - self._first_chunk][name][row:stop, slot])
            begin += stop - row
        return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)

    def _allocate(self, chunk: dict[str, np.ndarray], name: str, value: np.ndarray) -> np.ndarray:
        store = np.zeros((_CHUNK, self._num_slots, *value.shape[1:]), dtype=value.dtype)
        chunk[name] = store
        return store

    def _new_chunk(self, number: int) -> None:
        oldest = int(self.start.min()) // _CHUNK
        drop = min(oldest - self._first_chunk, len(self._chunks))
        if drop > 0:
            del self._chunks[:drop]
            self._first_chunk += drop
        if not self._chunks:
            self._first_chunk = number
        template = self._chunks[-1] if self._chunks else {}
        self._chunks.append({name: np.zeros_like(store) for name, store in template.items()})


def stack_infos(dicts: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Name -> array ``(T, ...)`` of T info dicts, over the union of their keys.

    Where a step lacks a numeric entry the array holds NaN; entries that are not numbers, or change shape, become object
    arrays with ``None`` where absent.
    """
    if not dicts:
        return {}
    keys = dicts[0].keys()
    if all(d.keys() == keys for d in dicts):
        return {str(key): _stack([d[key] for d in dicts]) for key in keys}
    union = dict.fromkeys(key for d in dicts for key in d)
    return {str(key): _stack([d.get(key) for d in dicts]) for key in union}


def _stack(values: list[Any]) -> np.ndarray:
    known = [v for v in values if v is not None]
    sample = np.asarray(known[0]) if known else np.asarray(None)
    if sample.dtype.kind in "biufc":
        if len(known) < len(values):
            blank = np.full(sample.shape, np.nan)
            values = [blank if v is None else v for v in values]
        try:
            stacked = np.asarray(values)
            if stacked.dtype.kind in "biufc":
                return stacked
        except ValueError:  # entries of unequal shape
            pass
    objects = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        objects[i] = value
    return objects
