"""The door to ``.safetensors`` files: every size and place in the header is checked before an array is made.

Read by hand, since the package reads through links, and a file as a whole before it becomes arrays.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeGuard

import numpy as np

from metaroll.data.doors.budget import Budget
from metaroll.data.doors.json_files import parse_json
from metaroll.data.doors.plain_files import damage, file_sum, open_plain, size_of
from metaroll.errors import DamagedFileError

__all__ = ["StoredArray", "check_sum", "load_tensors"]

_MOST_HEADER = 10**8
"""Bytes of a header, as of the package that writes them."""
_DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "F16": np.float16,
    "BF16": np.uint16,
    "U32": np.uint32,
    "I32": np.int32,
    "F32": np.float32,
    "U64": np.uint64,
    "I64": np.int64,
    "F64": np.float64,
}
"""Name of a dtype -> that of the array; the bits of the one that NumPy lacks."""
_TORCH = {name: np.dtype(kind).name for name, kind in _DTYPES.items()} | {"BOOL": "bool", "BF16": "bfloat16"}


class StoredArray(NamedTuple):
    """An array and its dtype as the file calls it: of ``BF16``, which NumPy lacks, the array holds the bits."""

    dtype: str
    values: np.ndarray

    @property
    def torch_dtype(self) -> str:
        """Its torch name."""
        return _TORCH[self.dtype]


def load_tensors(
    path: str | Path,
    error: type[DamagedFileError] = DamagedFileError,
    hint: str = "",
    *,
    expected: Mapping[str, int] | None = None,
) -> dict[str, StoredArray]:
    """All arrays of a ``.safetensors`` file by name.

    Args:
        path: The file.
        error: Class of the error for a damaged one.
        hint: Last part of error messages.
        expected: Its ``size`` and ``crc32``, where they are known.

    Raises:
        DamagedFileError: ``error``: it is damaged, or another one than expected.
        FileNotFoundError: There is none.
    """
    with damage(path, error, hint), open_plain(path) as file:
        if expected is not None:
            check_sum(file, expected)
            file.seek(0)
        return _read_tensors(file)


def check_sum(file: BinaryIO, expected: Mapping[str, Any]) -> None:
    """Read an open file to its end.

    Raises:
        DamagedFileError: Its size or its checksum is another one than ``expected``.
    """
    size = size_of(file)
    if size != expected["size"]:
        raise DamagedFileError(f"it is damaged ({size} bytes instead of {expected['size']})")
    if file_sum(file)["crc32"] != expected["crc32"]:
        raise DamagedFileError("it is damaged (checksum mismatch)")


def _read_tensors(file: BinaryIO) -> dict[str, StoredArray]:
    size = size_of(file)
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1
    if not 0 <= length <= min(size - 8, _MOST_HEADER):
        raise DamagedFileError("it is damaged: its header is longer than the file")
    budget = Budget.of_file(size, 2)
    header = parse_json(file.read(length), budget)
    entries = _checked_entries(header, size - 8 - length)
    budget.spend(size - length, "its arrays")
    arrays = {}
    for name, (dtype, shape) in entries.items():
        array = np.empty(shape, _DTYPES[dtype])
        flat = array.reshape(-1).view(np.uint8)
        if file.readinto(flat.data) != len(flat):  # pyright: ignore[reportAttributeAccessIssue]
            raise DamagedFileError(f"the array {name!r} is truncated")
        arrays[name] = StoredArray(dtype, array)
    return arrays


def _checked_entries(header: Any, size: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Dtype and shape of each array, in the order in which they fill ``size`` bytes without gaps."""
    if not isinstance(header, dict):
        raise DamagedFileError("it is damaged: its header holds no names")
    entries: list[tuple[int, int, str, str, tuple[int, ...]]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if not isinstance(entry, dict) or entry.get("dtype") not in _DTYPES:
            raise DamagedFileError(f"the array {name!r} has an unknown dtype")
        shape, places = entry.get("shape"), entry.get("data_offsets")
        if not _are_sizes(shape) or not _are_sizes(places) or len(places) != 2 or len(shape) > 32:
            raise DamagedFileError(f"the array {name!r} has an invalid shape or position")
        if places[1] - places[0] != math.prod(shape) * np.dtype(_DTYPES[entry["dtype"]]).itemsize:
            raise DamagedFileError(f"the array {name!r} is longer or shorter than its header declares")
        entries.append((places[0], places[1], name, entry["dtype"], tuple(shape)))
    entries.sort(key=lambda one: one[:2])
    end = 0
    for begin, after, name, _, _ in entries:
        if begin != end:
            raise DamagedFileError(f"the array {name!r} does not begin where the one before ends")
        end = after
    if end != size:
        raise DamagedFileError(f"its arrays take {end} bytes, but it has {size}")
    return {name: (dtype, shape) for _, _, name, dtype, shape in entries}


def _are_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 2**62 for size in value)
