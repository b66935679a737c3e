"""A rollout as columns of a table: one row per step and one for what follows the last step of each sub-rollout."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaroll.data.plain_data import decode, encode, to_json
from metaroll.data.recording_format import FINAL, iterate_specs
from metaroll.data.step_storage import FLAGS
from metaroll.data.tables import Column, array_columns
from metaroll.errors import RecordingError

__all__ = ["columns_to_arrays", "expected_columns", "recording_columns"]


class _Layout(NamedTuple):
    """Which rows hold steps ``(N,)``, and which hold what follows the last step of each sub-rollout ``(R,)``."""

    steps: np.ndarray
    finals: np.ndarray

    @property
    def num_rows(self) -> int:
        return len(self.steps) + len(self.finals)


def _layout(header: Mapping[str, Any]) -> _Layout:
    length, bounds = header["length"], header["rollout_bounds"]
    if bounds is None:
        return _Layout(np.arange(length), np.arange(0))
    bounds = np.array(bounds)
    before = np.arange(len(bounds) - 1)  # rows for what follows earlier sub-rollouts
    return _Layout(np.arange(length) + np.repeat(before, np.diff(bounds)), bounds[1:] + before)


def _final_flags(spec: Mapping[str, Any], length: int, layout: _Layout) -> np.ndarray:
    """Which sub-rollouts ``(R,)`` have an entry after their last step."""
    flags = np.zeros(len(layout.finals), dtype=bool)
    if spec["finals"] is not None:
        flags |= np.array(spec["finals"], dtype=bool)
    if spec["entries"] > length:
        flags[-1] = True
    return flags


def _presence(spec: Mapping[str, Any], length: int, layout: _Layout) -> np.ndarray:
    present = np.ones(layout.num_rows, dtype=bool)
    present[layout.finals] = _final_flags(spec, length, layout)
    return present


# ---- to columns ------------------------------------------------------------------------------------------------------


def recording_columns(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], kind: str) -> list[Column]:
    """All columns of a recording, of bools, integers, floats, text (``str``) and ``bytes`` only.

    Complex numbers take two columns, times are integers, objects JSON text. ``RecordingError`` names a field that a
    file of this ``kind`` cannot carry.
    """
    layout, length = _layout(header), header["length"]
    columns = []
    for name in FLAGS:
        rows = np.zeros(layout.num_rows, dtype=bool)
        rows[layout.steps] = arrays[name]
        present = np.zeros(layout.num_rows, dtype=bool)
        present[layout.steps] = True
        columns.append(Column(name, rows, present))
    for spec in iterate_specs(header):
        name, array = spec["name"], arrays[spec["name"]]
        dtype = array.dtype
        if dtype.kind == "V" or (dtype.kind in "fc" and _simple_type(dtype, ())[0].itemsize > 8):  # long double
            raise RecordingError(f"a {kind} file cannot carry field {name!r} of dtype {dtype}; use .npz")
        rows = np.zeros((layout.num_rows, *array.shape[1:]), dtype=array.dtype)
        rows[layout.steps] = array[:length]
        if spec["finals"] is not None:
            known = np.array(spec["finals"], dtype=bool)
            rows[layout.finals[known]] = arrays[name + FINAL][known]
        if len(array) > length:
            rows[layout.finals[-1]] = array[length]
        present = _presence(spec, length, layout)
        columns += array_columns(name, _to_simple(rows, present, name), present)
    return columns


def _to_simple(rows: np.ndarray, present: np.ndarray, name: str) -> np.ndarray:
    if rows.dtype.kind == "c":
        return np.stack([np.real(rows), np.imag(rows)], axis=-1)
    if rows.dtype.kind in "mM":
        return rows.view(np.dtype(np.int64).newbyteorder(rows.dtype.byteorder))
    if rows.dtype.kind == "O":
        texts = np.full(rows.shape, "", dtype=object)
        for index in np.ndindex(rows.shape):
            if present[index[0]]:
                texts[index] = to_json(encode(rows[index], f"field {name!r}, row {index[0]}"))
        return texts
    return rows


# ---- from columns ----------------------------------------------------------------------------------------------------


def expected_columns(header: Mapping[str, Any], num_rows: int, num_columns: int) -> list[Column]:
    """The columns that a table with this header has: names and presence; of the values only the dtype, no rows.

    ``RecordingError`` if that does not fit the numbers of rows and columns found.
    """
    bounds = header["rollout_bounds"]
    rows = header["length"] + (0 if bounds is None else len(bounds) - 1)
    if rows != num_rows:
        raise RecordingError(f"it must have {rows} rows, it has {num_rows}: it was cut off, or rows were added")
    count = len(FLAGS) + sum(math.prod(_simple_type(*_entry_type(spec))[1]) for spec in iterate_specs(header))
    if count != num_columns:
        raise RecordingError(f"its header names {count} columns, it has {num_columns}")
    layout = _layout(header)
    present = np.zeros(layout.num_rows, dtype=bool)
    present[layout.steps] = True
    columns = [Column(name, np.zeros(0, dtype=bool), present) for name in FLAGS]
    for spec in iterate_specs(header):
        dtype, shape = _simple_type(*_entry_type(spec))
        columns += array_columns(spec["name"], np.zeros((0, *shape), dtype), _presence(spec, header["length"], layout))
    return columns


def _entry_type(spec: Mapping[str, Any]) -> tuple[np.dtype, tuple[int, ...]]:
    return np.dtype(spec["dtype"]), tuple(spec["item_shape"])


def _simple_type(dtype: np.dtype, shape: tuple[int, ...]) -> tuple[np.dtype, tuple[int, ...]]:
    """Type and shape of an entry after ``_to_simple``."""
    if dtype.kind == "c":
        return np.real(np.zeros(0, dtype)).dtype, (*shape, 2)
    return (np.dtype(np.int64), shape) if dtype.kind in "mM" else (dtype, shape)


def columns_to_arrays(header: Mapping[str, Any], columns: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a recording from the values ``(rows,)`` of its ``expected_columns``, in their order."""
    layout, length = _layout(header), header["length"]
    values = iter(columns)
    arrays = {name: next(values)[layout.steps].astype(bool) for name in FLAGS}
    for spec in iterate_specs(header):
        dtype, item_shape = _entry_type(spec)
        simple, shape = _simple_type(dtype, item_shape)
        rows = np.zeros((layout.num_rows, *shape), dtype=simple)
        for index in np.ndindex(shape):
            rows[(slice(None), *index)] = next(values)
        rows = _from_simple(rows, dtype, _presence(spec, length, layout))
        kept = layout.steps if spec["entries"] == length else np.append(layout.steps, layout.finals[-1])
        arrays[spec["name"]] = rows[kept]
        if spec["finals"] is not None:
            arrays[spec["name"] + FINAL] = rows[layout.finals]
    return arrays


def _from_simple(rows: np.ndarray, dtype: np.dtype, present: np.ndarray) -> np.ndarray:
    if dtype.kind == "c":
        result = np.zeros(rows.shape[:-1], dtype)
        result.real, result.imag = rows[..., 0], rows[..., 1]
        return result
    if dtype.kind in "mM":
        return rows.view(dtype.newbyteorder("=")).astype(dtype)
    if dtype.kind == "O":
        result = np.full(rows.shape, None, dtype=object)
        for index in np.ndindex(rows.shape):
            if present[index[0]]:
                result[index] = decode(json.loads(str(rows[index])))
        return result
    return rows
