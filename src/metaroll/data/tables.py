"""The door to pandas, and writing with pyarrow: columns become data frames and parquet files.

``doors/parquet_files.py`` reads them.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, final

import numpy as np

from metaroll.data.columns import Column
from metaroll.data.doors.budget import Budget
from metaroll.data.doors.parquet_files import ParquetTable, import_arrow
from metaroll.errors import RecordingError, install_text

__all__ = [
    "ParquetReader",
    "is_frame",
    "make_frame",
    "make_table",
    "write_table",
]

_KEY, _SUM = b"metaroll", b"metaroll_crc32"
"""Of the metadata of the schema: the header, and its checksum."""


def _import_pandas() -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(f"data frames need pandas: {install_text('tables')}") from error
    return pd


def is_frame(value: Any) -> bool:
    """Whether it is a data frame of pandas, which then has been imported."""
    pd = sys.modules.get("pandas")
    return pd is not None and isinstance(value, pd.DataFrame)


def make_frame(columns: Iterable[Column]) -> Any:
    """A data frame; where a column of integers or bools lacks a value, it becomes one of pandas' nullable types."""
    pd = _import_pandas()
    return pd.DataFrame({column.name: _series(pd, column) for column in columns})


def _series(pd: Any, column: Column) -> Any:
    values, present = column.values, column.present
    values = values.astype(values.dtype.newbyteorder("="))
    if present.all():
        return values
    if values.dtype.kind in "biu":
        name = "boolean" if values.dtype.kind == "b" else values.dtype.name.replace("i", "I").replace("uI", "UI")
        series = pd.Series(values, dtype=name)
        series[~present] = pd.NA
        return series
    if values.dtype.kind in "fc":
        return np.where(present, values, np.asarray(np.nan, dtype=values.dtype))
    if values.dtype.kind in "mM":
        return np.where(present, values, np.asarray("NaT", dtype=values.dtype))
    values = values.astype(object)
    values[~present] = None
    return values


def make_table(columns: Sequence[Column], header: str) -> Any:
    """An arrow table; ``header`` goes into the metadata of its schema. ``RecordingError`` names unfit columns."""
    pa = import_arrow()
    cells = [_arrow(pa, column) for column in columns]
    schema = pa.schema([(column.name, cell.type) for column, cell in zip(columns, cells, strict=True)])
    text = header.encode()
    return pa.Table.from_arrays(cells, schema=schema.with_metadata({_KEY: text, _SUM: _sum_of(text)}))


def _sum_of(text: bytes) -> bytes:
    return str(zlib.crc32(text)).encode()


def write_table(table: Any, file: BinaryIO) -> None:
    """Write an arrow table as parquet."""
    pa = import_arrow()
    # Written in memory first, so that errors of the file system keep their type.
    buffer = pa.BufferOutputStream()
    pa.parquet.write_table(table, buffer, write_page_checksum=True)
    file.write(buffer.getvalue())


def _arrow_type(pa: Any, dtype: np.dtype) -> Any:
    if dtype.kind in "UO":
        return pa.string()
    if dtype.kind == "S":
        return pa.binary()
    # Half precision is rarely supported by others; single precision holds it exactly.
    return pa.from_numpy_dtype(np.float32 if dtype.itemsize == 2 and dtype.kind == "f" else dtype.newbyteorder("="))


def _arrow(pa: Any, column: Column) -> Any:
    kind = _arrow_type(pa, column.values.dtype)
    if column.values.dtype.kind in "USO":
        values = [v if there else None for v, there in zip(column.values.tolist(), column.present, strict=True)]
        try:
            return pa.array(values, kind)
        except UnicodeError as error:
            raise RecordingError(
                f"a .parquet file cannot carry the text in field {column.name!r} ({error}); use .npz"
            ) from error
    return pa.array(np.ascontiguousarray(column.values.astype(kind.to_pandas_dtype())), kind, mask=~column.present)


@final
class ParquetReader:
    """Read a parquet file of ``write_table``: first its declarations, then its values.

    Args:
        file: The open file.

    Raises:
        DamagedFileError: It is damaged, or has no header.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._table = ParquetTable(file)
        self.num_rows, self.num_columns = self._table.num_rows, len(self._table.schema)
        notes = self._table.notes
        if _KEY not in notes:
            raise RecordingError("it is not a rollout recorded by metaroll: its schema has no header")
        known = notes.get(_SUM)  # not in what earlier versions wrote
        if known is not None and known != _sum_of(notes[_KEY]):
            raise RecordingError("it is damaged (the checksum of its header differs)")
        self.header: bytes = notes[_KEY]
        """The header in the metadata of the schema."""

    def read(self, columns: Sequence[Column], budget: Budget) -> list[np.ndarray]:
        """The values ``(rows,)`` of all columns, which must be ``columns``; absent ones are zero.

        Raises:
            DamagedFileError: Columns are others, values are missing, or texts take too much memory.
        """
        pa = import_arrow()
        for field, column in zip(self._table.schema, columns, strict=True):
            kind = _arrow_type(pa, column.values.dtype)
            if field.name != column.name or field.type != kind:
                raise RecordingError(
                    f"it has a column {field.name!r} of {field.type} where its header names {column.name!r} of {kind}"
                )
        # All columns, not some by name: two may have the same.
        table = self._table.read(budget.beside())
        return [_column_values(pa, table.column(i), column, budget) for i, column in enumerate(columns)]


def _column_values(pa: Any, cells: Any, column: Column, budget: Budget) -> np.ndarray:
    if not np.array_equal(cells.is_valid().to_numpy(), column.present):
        raise RecordingError(f"values are missing in column {column.name!r}, or are present where there should be none")
    dtype = column.values.dtype
    blank = {"U": "", "O": "", "S": b"", "b": False}.get(dtype.kind, 0)
    if dtype.kind in "USO":
        values: list[Any] = []
        for chunk in cells.chunks:
            sizes = pa.compute.take(pa.compute.binary_length(chunk.dictionary), chunk.indices)
            budget.spend(pa.compute.sum(sizes).as_py() or 0, f"the texts of column {column.name!r}")
            budget.spend_entries(len(chunk.dictionary), f"the texts of column {column.name!r}")
            known = chunk.dictionary.to_pylist()
            values += [blank if i is None else known[i] for i in chunk.indices.to_pylist()]
        return np.array(values, dtype=dtype)
    return cells.fill_null(pa.scalar(blank, cells.type)).to_numpy().astype(dtype)
