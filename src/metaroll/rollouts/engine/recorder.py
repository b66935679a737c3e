"""Records what all slots do, in preallocated blocks of time, and cuts finished rollouts out of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.errors import ShapeError

__all__ = ["Recorder", "as_slice", "stack_infos"]

_CHUNK = 256
_TOGETHER = 64
"""Stretches that are cut out at a time: one by one, every entry of a column would be fetched from memory on its own."""
_NOTHING: Mapping[str, Any] = {}


class Recorder:
    """Arrays ``(256, E, ...)`` per name; a rollout is a stretch of one column.

    No per-step lists or dicts are kept (except for environments that report dicts, whose entries are stacked at the
    end). A name that is missing at some steps of a stretch (policies may report more at some than at others) holds NaN
    there; integers then become floats.
    """

    def __init__(self, num_slots: int) -> None:
        self.step = 0
        """Number of lock-steps recorded so far."""
        self.start = np.zeros(num_slots, dtype=np.int64)
        """Lock-step at which the stretch of each slot that has not been cut out yet begins."""
        self._num_slots = num_slots
        self._chunks: list[dict[str, np.ndarray]] = []
        self._missing: list[dict[str, np.ndarray]] = []
        """Per chunk: name -> bool ``(256,)``, the steps that lack it; only names that some step lacks."""
        self._first_chunk = 0
        self._dicts: list[list[Mapping[str, Any]]] = [[] for _ in range(num_slots)]
        self._group_of: dict[int, list[int]] = {}
        self._ready: dict[int, dict[str, np.ndarray]] = {}
        self._skipped = False
        """Whether at some step no slot had anything to tell."""

    def begin(self, slot: int) -> None:
        """A new rollout begins in ``slot`` with the next write."""
        self.start[slot] = self.step
        self._dicts[slot] = []

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Store one lock-step: name -> array ``(E, ...)`` (copied)."""
        number, row = divmod(self.step, _CHUNK)
        if self._group_of:
            self._group_of, self._ready = {}, {}
        if row == 0:
            self._new_chunk(number)
        chunk = self._chunks[-1]
        if arrays.keys() != chunk.keys():
            self._note_missing(arrays, chunk, row)
        for name, value in arrays.items():
            store = chunk.get(name)
            if store is None or store.dtype is not value.dtype or store.shape[1:] != value.shape:
                store = self._allocate(chunk, name, value)
            store[row] = value
        self.step += 1

    def write_dicts(self, infos: Sequence[Mapping[str, Any]], active: np.ndarray) -> None:
        """Store the info dicts of one lock-step of the active slots; call before ``write``."""
        if not any(infos):
            self._skipped = True
            return
        for slot in np.flatnonzero(active).tolist():
            dicts = self._dicts[slot]
            if self._skipped:
                self._fill_up(slot, dicts)
            dicts.append(infos[slot])

    def _fill_up(self, slot: int, dicts: list[Mapping[str, Any]]) -> None:
        """Empty dicts for the steps up to now at which no slot had anything to tell."""
        lacking = self.step - int(self.start[slot]) - len(dicts)
        if lacking:
            dicts.extend([_NOTHING] * lacking)

    def expect(self, slots: Sequence[int]) -> None:
        """These slots are cut next, before anything else is written (many at once are cheaper than one by one)."""
        alike: dict[int, list[int]] = {}
        for slot in slots if len(slots) > 1 else ():
            alike.setdefault(int(self.start[slot]), []).append(slot)
        groups = [same[i : i + _TOGETHER] for same in alike.values() for i in range(0, len(same), _TOGETHER)]
        self._group_of = {slot: group for group in groups for slot in group}
        self._ready = {}

    def cut(self, slot: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Arrays ``(T, ...)`` of the stretch of ``slot`` up to now, and its stacked info dicts; a new one begins."""
        begin, end = int(self.start[slot]), self.step
        arrays = self._arrays(slot, begin, end) if end > begin else {}
        dicts = self._dicts[slot]
        if dicts:
            self._fill_up(slot, dicts)
        infos = stack_infos(dicts)
        self.begin(slot)
        return arrays, infos

    def _arrays(self, slot: int, begin: int, end: int) -> dict[str, np.ndarray]:
        """What was written from lock-step ``begin`` to ``end``, by name."""
        first, last = begin // _CHUNK - self._first_chunk, (end - 1) // _CHUNK - self._first_chunk
        # Every name of an earlier chunk is in the last one, which was made after its pattern.
        names = self._chunks[last].keys()
        chunks = self._chunks[first : last + 1]
        if any(self._missing[first : last + 1]) or any(len(chunk) != len(names) for chunk in chunks):
            stretches = {name: self._stretch(name, slot, begin, end) for name in names}
            return {name: stretch for name, stretch in stretches.items() if stretch is not None}
        row, stop = begin % _CHUNK, (end - 1) % _CHUNK + 1
        ranges = [slice(row, None), *[slice(None)] * (last - first - 1), slice(0, stop)]
        ranges = [slice(row, stop)] if first == last else ranges
        group = self._group_of.get(slot)
        if group is None:
            parts = {name: [c[name][part, slot] for c, part in zip(chunks, ranges, strict=True)] for name in names}
            return {
                name: found[0].copy() if len(found) == 1 else np.concatenate(found) for name, found in parts.items()
            }
        if slot not in self._ready:
            self._ready = _rows_of(group, chunks, ranges)
        return self._ready.pop(slot)

    def _stretch(self, name: str, slot: int, begin: int, end: int) -> np.ndarray | None:
        """The same for one name that some steps lack; ``None`` if all do."""
        parts: list[np.ndarray] = []
        lacks: list[np.ndarray] = []
        while begin < end:
            number, row = divmod(begin, _CHUNK)
            stop = min(_CHUNK, row + end - begin)
            place = number - self._first_chunk
            store = self._chunks[place].get(name)
            lack = self._missing[place].get(name)
            if store is None:
                last = self._chunks[-1][name]
                store, lack = np.zeros((_CHUNK, *last.shape[1:]), last.dtype), np.ones(_CHUNK, dtype=bool)
            parts.append(store[row:stop, slot])
            lacks.append(np.zeros(stop - row, dtype=bool) if lack is None else lack[row:stop])
            begin += stop - row
        lacking = np.concatenate(lacks)
        if lacking.all():
            return None
        stretch = parts[0].copy() if len(parts) == 1 else np.concatenate(parts)
        if lacking.any():
            if stretch.dtype.kind not in "fc":
                stretch = stretch.astype(np.float64 if stretch.dtype.kind in "biu" else object)
            stretch[lacking] = None if stretch.dtype.kind == "O" else np.nan
        return stretch

    def _note_missing(self, arrays: Mapping[str, np.ndarray], chunk: dict[str, np.ndarray], row: int) -> None:
        missing = self._missing[-1]
        for name in arrays.keys() - chunk.keys():
            if row:
                missing[name] = np.arange(_CHUNK) < row
        for name in chunk.keys() - arrays.keys():
            missing.setdefault(name, np.zeros(_CHUNK, dtype=bool))[row] = True

    def _allocate(self, chunk: dict[str, np.ndarray], name: str, value: np.ndarray) -> np.ndarray:
        """Room for ``value``; what is there already is kept, in a type that holds both."""
        if value.shape[:1] != (self._num_slots,):
            raise ShapeError(f"{name} must have one row per slot ({self._num_slots}), got shape {value.shape}")
        old = chunk.get(name)
        if old is None:
            store = np.zeros((_CHUNK, *value.shape), dtype=value.dtype)
        elif old.shape[1:] == value.shape:
            store = old.astype(np.result_type(old, value), copy=False)
        else:
            raise ShapeError(f"{name} must keep its shape {old.shape[1:]} at every step, got {value.shape}")
        chunk[name] = store
        return store

    def _new_chunk(self, number: int) -> None:
        oldest = int(self.start.min()) // _CHUNK
        drop = min(oldest - self._first_chunk, len(self._chunks))
        spare: dict[str, np.ndarray] = {}
        if drop > 0:
            spare = self._chunks[0]  # fresh memory would have to be touched page by page
            del self._chunks[:drop], self._missing[:drop]
            self._first_chunk += drop
        if not self._chunks:
            self._first_chunk = number
        template = self._chunks[-1] if self._chunks else {}
        # What is never written is never read: names that a step lacks are noted in ``_missing``.
        self._chunks.append({name: _room_like(store, spare.get(name)) for name, store in template.items()})
        self._missing.append({})


def as_slice(slots: list[int]) -> slice | list[int]:
    """Neighbors in order as a slice, which is many times as fast as a list; others as they are."""
    first, last = slots[0], slots[-1]
    return slice(first, last + 1) if slots == list(range(first, last + 1)) else slots


def _room_like(store: np.ndarray, spare: np.ndarray | None) -> np.ndarray:
    """An array of the same shape and type with any content, ``spare`` if it is one."""
    fits = spare is not None and spare.shape == store.shape and spare.dtype == store.dtype
    return spare if spare is not None and fits and spare is not store else np.empty_like(store)


def _rows_of(
    slots: list[int], chunks: Sequence[dict[str, np.ndarray]], ranges: Sequence[slice]
) -> dict[int, dict[str, np.ndarray]]:
    """Slot -> name -> the same stretch of time of each of these slots, ``(T, ...)`` in memory of its own."""
    found: dict[int, dict[str, np.ndarray]] = {slot: {} for slot in slots}
    columns = as_slice(slots)
    for name in chunks[-1]:
        parts = [np.moveaxis(chunk[name][part][:, columns], 0, 1) for chunk, part in zip(chunks, ranges, strict=True)]
        rows = np.concatenate(parts, axis=1)  # (slots, T, ...)
        for slot, row in zip(slots, rows, strict=True):
            found[slot][name] = row.copy()
    return found


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
    sample = _as_array(known[0]) if known else None
    if sample is not None and sample.dtype.kind in "biufc":
        if len(known) < len(values):
            blank = np.full(sample.shape, np.nan)
            values = [blank if v is None else v for v in values]
        stacked = _as_array(values)  # None for entries of unequal shape
        if stacked is not None and stacked.dtype.kind in "biufc":
            return stacked
    objects = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        objects[i] = value
    return objects


def _as_array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except (TypeError, ValueError):  # lists of unequal lengths, tensors on another device
        return None
