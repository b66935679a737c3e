"""The three file formats of recordings, each as a pair of functions: a writer and a reader.

- ``.npz``: every array as it is, readable with ``numpy.load``, never pickled. The entry "header" is the header as JSON
  text (bytes); arrays of objects are JSON text, too.
- ``.csv``: the first line is ``# `` and the header, with a checksum of the whole file, then names of columns, then one
  row per step. Numbers come back exactly (of NaN there is only one). What does not exist is an empty cell.
- ``.parquet``: the header is in the metadata of the schema, every row is a step.

Sizes that a file declares are checked before memory is taken for them.
"""

from __future__ import annotations

import csv
import io
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO, final

import numpy as np

from metaroll.data.columns import Column, RowLayout, array_columns, flag_columns, row_layout, table_rows
from metaroll.data.doors.array_files import read_npz as read_arrays
from metaroll.data.doors.budget import Budget
from metaroll.data.doors.csv_files import parse_csv
from metaroll.data.doors.json_files import parse_json
from metaroll.data.final_entries import FinalEntries
from metaroll.data.plain_data import decode, encode, to_json
from metaroll.data.recording_format import FINAL, header_text, iterate_specs, read_header
from metaroll.data.step_storage import FLAGS
from metaroll.data.tables import ParquetReader, make_table, write_table
from metaroll.errors import RecordingError

__all__ = ["prepare_csv", "prepare_npz", "prepare_parquet", "read_csv", "read_npz", "read_parquet"]

Contents = tuple[dict[str, Any], dict[str, np.ndarray]]
Writer = Callable[[BinaryIO], None]

# ---- npz -------------------------------------------------------------------------------------------------------------

_HEADER = "header"


def prepare_npz(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Writer:
    """A function that writes the recording into an open file; data that cannot be written raise an error now.

    Raises:
        RecordingError: The header, or an entry of an array of objects, cannot be written.
    """
    entries = {_HEADER: _from_text(header_text(header))}
    for name, array in arrays.items():
        is_plain = array.dtype.kind != "O"
        entries[name] = array if is_plain else _from_text(to_json(encode(array, f"field {name!r}")))

    def write(file: BinaryIO) -> None:
        # Written by hand, since numpy.savez would pickle objects, and stores the time of day.
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in entries.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)

    return write


def _from_text(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def read_npz(file: BinaryIO, budget: Budget) -> Contents:
    """Header and arrays of a recording.

    Raises:
        RecordingError: It is not a recording, is damaged, or takes too much memory.
    """
    arrays = read_arrays(file, budget, structured=True)
    if _HEADER not in arrays:
        raise RecordingError("it is not a rollout recorded by metaroll: it has no header")
    header = read_header(arrays.pop(_HEADER).tobytes(), budget)
    for spec in iterate_specs(header):
        for name in (spec["name"], spec["name"] + FINAL):
            if spec["dtype"] == "|O" and name in arrays:
                arrays[name] = decode(parse_json(arrays[name].tobytes(), budget.beside()), budget=budget)
    return header, arrays


# ---- csv -------------------------------------------------------------------------------------------------------------

_MARK = "# "
_ERRORS = "surrogatepass"  # lone surrogates, which some text holds, are kept
_SUM, _SUM_DIGITS = ',"crc32":"', 8
_SUMMED = re.compile(rb'(.*),"crc32":"([0-9a-f]{8})"\}', re.DOTALL)
"""A header with the checksum of it as it was before, and of all lines that follow; earlier versions wrote none."""


def prepare_csv(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Writer:
    """A function that writes the recording into an open file; data that cannot be written raise an error now.

    Raises:
        RecordingError: A CSV file cannot carry a field, or its cells could not be read back.
    """
    columns, described = _to_columns(header, arrays, ".csv"), header_text(header)
    limit = csv.field_size_limit()  # no cell longer than this can be read back
    for column in columns:
        if column.values.dtype.kind in "USO" and max(map(len, _cells(column))) > limit:
            raise RecordingError(
                f"a .csv file cannot carry field {column.name!r}: an entry is longer than {limit} characters; use .npz"
            )

    def write(file: BinaryIO) -> None:
        # The checksum is in the first line, and is known when the last one is written.
        begin = file.tell() + file.write(f"{_MARK}{described[:-1]}{_SUM}".encode("utf-8", _ERRORS))
        file.write(b'%s"}\n' % (b"0" * _SUM_DIGITS))
        summed = _Summed(file, zlib.crc32(described.encode("utf-8", _ERRORS)))
        text = io.TextIOWrapper(summed, encoding="utf-8", errors=_ERRORS, newline="")  # pyright: ignore[reportArgumentType]
        text.write(",".join(_quote(column.name) for column in columns) + "\n")
        text.writelines(",".join(row) + "\n" for row in zip(*map(_quoted_cells, columns), strict=True))
        text.flush()
        text.detach()  # the file stays open
        file.seek(begin)
        file.write(f"{summed.crc32:0{_SUM_DIGITS}x}".encode())
        file.seek(0, io.SEEK_END)

    return write


@final
class _Summed(io.BufferedIOBase):
    """Passes written data on to a file, and computes its checksum."""

    def __init__(self, file: BinaryIO, crc32: int) -> None:
        self._file = file
        self.crc32 = crc32

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.crc32 = zlib.crc32(data, self.crc32)
        return self._file.write(data)


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


def read_csv(file: BinaryIO, budget: Budget) -> Contents:
    """Header and arrays of a recording.

    Raises:
        RecordingError: It is not a recording, is damaged, or takes too much memory.
    """
    first, _, data = file.read().partition(b"\n")
    if not first.startswith(_MARK.encode()):
        raise RecordingError(
            f"its first line does not begin with {_MARK!r}: it is not a rollout recorded by metaroll "
            "(metaroll import-log makes those of other logs)"
        )
    described, known = first.removeprefix(_MARK.encode()), None
    if described.endswith(b"\r"):  # a copy by a program that changes line endings; the checksum is of the original
        described, data = described[:-1], data.replace(b"\r\n", b"\n")
    if match := _SUMMED.fullmatch(described):
        described, known = match[1] + b"}", int(match[2], 16)
    header = read_header(described, budget)
    if not data.endswith(b"\n"):
        raise RecordingError("its last line is incomplete: the file is truncated")
    if known is not None and known != zlib.crc32(data, zlib.crc32(described)):
        raise RecordingError("it is damaged (checksum mismatch)")
    names, *rows = parse_csv(data.decode("utf-8", errors=_ERRORS), budget.beside(), lines_before=1)
    columns = _expected_columns(header, len(rows), len(names), budget)
    for name, column in zip(names, columns, strict=True):
        if name != column.name:
            raise RecordingError(f"it has a column {name!r} where its header names {column.name!r}")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise RecordingError(f"row {number} has {len(row)} cells, there are {len(names)} columns")
    cells = zip(*rows, strict=True)
    values = [_values(c, column) for c, column in zip(cells, columns, strict=True)]
    return header, _from_columns(header, values, budget)


def _values(cells: Iterable[str], column: Column) -> np.ndarray:
    """The values ``(rows,)`` of a column; absent ones are zero."""
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

# ---- parquet ---------------------------------------------------------------------------------------------------------


def prepare_parquet(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Writer:
    """A function that writes the recording into an open file; data that cannot be written raise an error now.

    Raises:
        RecordingError: A Parquet file cannot carry a field.
    """
    table = make_table(_to_columns(header, arrays, ".parquet"), header_text(header))
    return lambda file: write_table(table, file)


def read_parquet(file: BinaryIO, budget: Budget) -> Contents:
    """Header and arrays of a recording.

    Raises:
        RecordingError: It is not a recording, is damaged, or takes too much memory.
    """
    reader = ParquetReader(file)
    header = read_header(reader.header, budget)
    columns = _expected_columns(header, reader.num_rows, reader.num_columns, budget)
    return header, _from_columns(header, reader.read(columns, budget), budget)


# ---- recordings as columns -------------------------------------------------------------------------------------------


def _layout(header: Mapping[str, Any]) -> RowLayout:
    bounds = header["rollout_bounds"]
    return row_layout(header["length"], None if bounds is None else np.array(bounds))


def _to_columns(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], kind: str) -> list[Column]:
    """All columns of a recording, of bools, integers, floats, text (``str``) and ``bytes`` only.

    Complex numbers take two columns, times are integers, objects JSON text.

    Raises:
        RecordingError: A file of this ``kind`` cannot carry a field.
    """
    layout = _layout(header)
    columns = list(flag_columns(arrays, layout))
    for spec in iterate_specs(header):
        name, dtype = spec["name"], arrays[spec["name"]].dtype
        if dtype.kind == "V" or (dtype.kind in "fc" and _simple_type(dtype, ())[0].itemsize > 8):  # long double
            raise RecordingError(f"a {kind} file cannot carry field {name!r} of dtype {dtype}; use .npz")
        finals = spec["finals"]
        known = None if finals is None else FinalEntries(arrays[name + FINAL], np.array(finals, dtype=bool))
        rows, present = table_rows(arrays[name], known, layout)
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


def _expected_columns(header: Mapping[str, Any], num_rows: int, num_columns: int, budget: Budget) -> list[Column]:
    """The columns that a table with this header has: names and presence; of the values only the dtype, no rows.

    Raises:
        RecordingError: That does not fit the numbers of rows and columns found, or takes too much memory.
    """
    bounds = header["rollout_bounds"]
    rows = header["length"] + (0 if bounds is None else len(bounds) - 1)
    if rows != num_rows:
        raise RecordingError(f"it must have {rows} rows, but has {num_rows}: it is truncated, or rows were added")
    specs = list(iterate_specs(header))
    count = len(FLAGS) + sum(math.prod(_simple_type(*_entry_type(spec))[1]) for spec in specs)
    if count != num_columns:
        raise RecordingError(f"its header names {count} columns, it has {num_columns}")
    sizes = (math.prod(shape) * dtype.itemsize for dtype, shape in map(_entry_type, specs))
    budget.spend(num_rows * (len(FLAGS) + sum(sizes)), f"{num_rows} rows of its dtypes and shapes")
    layout = _layout(header)
    columns = [Column(name, np.zeros(0, dtype=bool), layout.present()) for name in FLAGS]
    for spec in specs:
        dtype, shape = _simple_type(*_entry_type(spec))
        columns += array_columns(spec["name"], np.zeros((0, *shape), dtype), _presence(spec, layout))
    return columns


def _presence(spec: Mapping[str, Any], layout: RowLayout) -> np.ndarray:
    """Which rows ``(N + R,)`` of a field exist."""
    known = np.zeros(len(layout.finals), dtype=bool)
    if spec["finals"] is not None:
        known |= np.array(spec["finals"], dtype=bool)
    if spec["entries"] > len(layout.steps):
        known[-1] = True
    return layout.present(known)


def _entry_type(spec: Mapping[str, Any]) -> tuple[np.dtype, tuple[int, ...]]:
    shape = tuple(spec["item_shape"])
    if any(type(size) is not int or size < 0 for size in shape):
        raise RecordingError(f"the entries of {spec['name']!r} have the invalid shape {shape}")
    return np.dtype(spec["dtype"]), shape


def _simple_type(dtype: np.dtype, shape: tuple[int, ...]) -> tuple[np.dtype, tuple[int, ...]]:
    """Type and shape of an entry after ``_to_simple``."""
    if dtype.kind == "c":
        return np.real(np.zeros(0, dtype)).dtype, (*shape, 2)
    return (np.dtype(np.int64), shape) if dtype.kind in "mM" else (dtype, shape)


def _from_columns(header: Mapping[str, Any], columns: Sequence[np.ndarray], budget: Budget) -> dict[str, np.ndarray]:
    """The arrays of a recording from the values ``(rows,)`` of its ``_expected_columns``, in their order."""
    layout = _layout(header)
    values = iter(columns)
    arrays = {name: next(values)[layout.steps].astype(bool) for name in FLAGS}
    for spec in iterate_specs(header):
        dtype, item_shape = _entry_type(spec)
        simple, shape = _simple_type(dtype, item_shape)
        rows = np.zeros((layout.num_rows, *shape), dtype=simple)
        for index in np.ndindex(shape):
            rows[(slice(None), *index)] = next(values)
        rows = _from_simple(rows, dtype, _presence(spec, layout), budget)
        kept = layout.steps if spec["entries"] == header["length"] else np.append(layout.steps, layout.finals[-1])
        arrays[spec["name"]] = rows[kept]
        if spec["finals"] is not None:
            arrays[spec["name"] + FINAL] = rows[layout.finals]
    return arrays


def _from_simple(rows: np.ndarray, dtype: np.dtype, present: np.ndarray, budget: Budget) -> np.ndarray:
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
                result[index] = decode(parse_json(str(rows[index]), budget.beside()), budget=budget)
        return result
    return rows
