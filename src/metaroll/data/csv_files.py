"""Recordings as ``.csv``: the first line is ``# `` and the header, then names of columns, then one row per step.

Numbers come back exactly (of NaN there is only one). What does not exist is an empty cell.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np

from metaroll.data.columns import columns_to_arrays, expected_columns, recording_columns
from metaroll.data.plain_data import to_json
from metaroll.data.recording_format import read_header
from metaroll.data.tables import Column
from metaroll.errors import RecordingError

__all__ = ["prepare_csv", "read_csv"]

_MARK = "# "
_ERRORS = "surrogatepass"  # half characters, which some text holds, are kept


def prepare_csv(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Callable[[BinaryIO], None]:
    """A function that writes the recording into an open file; whatever cannot be written is an error now."""
    columns = recording_columns(header, arrays, ".csv")
    limit = csv.field_size_limit()  # no cell longer than this can be read back
    for column in columns:
        if column.values.dtype.kind in "USO" and max(map(len, _cells(column))) > limit:
            raise RecordingError(
                f"a .csv file cannot carry field {column.name!r}: an entry is longer than {limit} characters; use .npz"
            )

    def write(file: BinaryIO) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", errors=_ERRORS, newline="")
        text.write(f"{_MARK}{to_json(header)}\n")
        text.write(",".join(_quote(column.name) for column in columns) + "\n")
        text.writelines(",".join(row) + "\n" for row in zip(*map(_quoted_cells, columns), strict=True))
        text.flush()
        text.detach()  # the file stays open

    return write


def _cells(column: Column) -> Iterable[str]:
    values, present = column.values, column.present.tolist()
    # tolist() gives Python's numbers: float64 for every float, whose repr comes back exactly.
    write: Callable[[Any], str] = bytes.hex if values.dtype.kind == "S" else repr if values.dtype.kind == "f" else str
    return [write(value) if there else "" for value, there in zip(values.tolist(), present, strict=True)]


def _quoted_cells(column: Column) -> Iterable[str]:
    cells = _cells(column)
    return map(_quote, cells) if column.values.dtype.kind in "UO" else cells


def _quote(text: str) -> str:
    # By hand: csv.writer leaves a lone carriage return without quotes, which its reader takes for the end of a row.
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in '",\r\n') else text


def read_csv(file: BinaryIO) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a recording."""
    text = file.read().decode("utf-8", errors=_ERRORS)
    first, _, body = text.partition("\n")
    if not first.startswith(_MARK):
        raise RecordingError(f"its first line does not begin with {_MARK!r}: it is not a rollout recorded by metaroll")
    header = read_header(json.loads(first.removeprefix(_MARK)))
    if not body.endswith("\n"):
        raise RecordingError("its last line has no end: it was cut off")
    names, *rows = list(csv.reader(io.StringIO(body, newline="")))
    columns = expected_columns(header, len(rows), len(names))
    for name, column in zip(names, columns, strict=True):
        if name != column.name:
            raise RecordingError(f"it has a column {name!r} where its header names {column.name!r}")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise RecordingError(f"row {number} has {len(row)} cells, there are {len(names)} columns")
    cells = zip(*rows, strict=True)
    return header, columns_to_arrays(header, [_values(c, column) for c, column in zip(cells, columns, strict=True)])


def _values(cells: Iterable[str], column: Column) -> np.ndarray:
    """The values ``(rows,)`` of a column; what is absent is zero."""
    dtype = column.values.dtype
    read, blank = _READERS[dtype.kind]
    values = []
    for number, (cell, there) in enumerate(zip(cells, column.present.tolist(), strict=True), start=1):
        try:
            values.append(read(cell) if there else blank)
        except ValueError:
            raise RecordingError(f"row {number} of column {column.name!r} holds {cell!r}, not {dtype}") from None
    if dtype.kind == "O":
        return np.array(values, dtype=object)
    if dtype.kind in "US" and max(map(len, values)) * np.dtype((dtype.kind, 1)).itemsize > dtype.itemsize:
        raise RecordingError(f"column {column.name!r} holds a text that is longer than its dtype {dtype}")
    return np.array(values, dtype=dtype)


def _read_bool(cell: str) -> bool:
    if cell not in ("True", "False"):
        raise ValueError(cell)
    return cell == "True"


_READERS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "b": (_read_bool, False),
    "i": (int, 0),
    "u": (int, 0),
    "f": (float, 0.0),
    "U": (str, ""),
    "S": (bytes.fromhex, b""),
    "O": (str, ""),
}
