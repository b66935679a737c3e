"""The door to pandas and pyarrow: columns become data frames and parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from metaroll.errors import RecordingError

__all__ = [
    "Column",
    "array_columns",
    "column_name",
    "make_frame",
    "make_table",
    "open_table",
    "table_values",
    "write_table",
]

_KEY = b"metaroll"


class Column(NamedTuple):
    """A named column: ``values (rows,)``, of which ``present (rows,)`` exist."""

    name: str
    values: np.ndarray
    present: np.ndarray


def array_columns(name: str, rows: np.ndarray, present: np.ndarray) -> Iterator[Column]:
    """Columns ``name``, or ``name[0]``, ``name[0,1]`` and so on, of the entries ``rows (rows, ...)``."""
    for index in np.ndindex(rows.shape[1:]):
        yield Column(column_name(name, index), rows[(slice(None), *index)], present)


def column_name(name: str, index: tuple[int, ...]) -> str:
    """Name of the column of one number in the entries ``name``."""
    return f"{name}[{','.join(map(str, index))}]" if index else name


def _import_pandas() -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("data frames need pandas: pip install 'metaroll[tables]'") from error
    return pd


def _import_arrow() -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "parquet files need pyarrow: pip install 'metaroll[tables]'; .npz and .csv files need nothing"
        ) from error
    return pa


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
    """An arrow table; ``header`` goes into the metadata of its schema. ``RecordingError`` names what does not fit."""
    pa = _import_arrow()
    cells = [_arrow(pa, column) for column in columns]
    schema = pa.schema([(column.name, cell.type) for column, cell in zip(columns, cells, strict=True)])
    return pa.Table.from_arrays(cells, schema=schema.with_metadata({_KEY: header.encode()}))


def write_table(table: Any, file: BinaryIO) -> None:
    """Write an arrow table as parquet."""
    pa = _import_arrow()
    # Through memory: an error of the file system then keeps its own type.
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


def open_table(file: BinaryIO) -> tuple[Any, str]:
    """The arrow table of a parquet file, and the header in the metadata of its schema."""
    pa = _import_arrow()
    try:
        # Not read_table, which takes columns by name: two may have the same.
        with pa.parquet.ParquetFile(file, page_checksum_verification=True) as parquet:
            table = parquet.read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise RecordingError(f"it is no .parquet file, or is damaged ({error})") from error
    metadata = table.schema.metadata or {}
    if _KEY not in metadata:
        raise RecordingError("it is not a rollout recorded by metaroll: its schema has no header")
    return table, metadata[_KEY].decode()


def table_values(table: Any, position: int, column: Column) -> np.ndarray:
    """The values ``(rows,)`` of a column of an arrow table, which must be ``column``; what is absent is zero."""
    pa = _import_arrow()
    found, cells = table.schema.field(position), table.column(position)
    kind, dtype = _arrow_type(pa, column.values.dtype), column.values.dtype
    if found.name != column.name or found.type != kind:
        raise RecordingError(
            f"it has a column {found.name!r} of {found.type} where its header names {column.name!r} of {kind}"
        )
    if not np.array_equal(cells.is_valid().to_numpy(), column.present):
        raise RecordingError(f"values are missing in column {column.name!r}, or stand where there should be none")
    blank = {"U": "", "O": "", "S": b"", "b": False}.get(dtype.kind, 0)
    if dtype.kind in "USO":
        return np.array([blank if v is None else v for v in cells.to_pylist()], dtype=dtype)
    return cells.fill_null(pa.scalar(blank, kind)).to_numpy().astype(dtype)
