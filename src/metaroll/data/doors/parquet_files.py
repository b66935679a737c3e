"""The door to Parquet, and to pyarrow: declared sizes of each page are checked before anything is decompressed.

A page of some kilobytes can become gigabytes: dictionaries and compression can save that much. Texts stay in their
dictionaries, so that a text that occurs a million times is in memory once; all else is added up by its width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, final

import numpy as np

from metaroll.data.doors.budget import Budget
from metaroll.data.doors.plain_files import size_of
from metaroll.errors import DamagedFileError, install_text

__all__ = ["ParquetTable", "import_arrow", "number_columns"]

_NONE = "it is not a .parquet file, or is damaged"
_CELL = 16
"""Bytes of a cell while it is read, at least."""
_OBJECT = 128
"""Bytes of a cell that becomes an object of Python, beside its own."""
_WINDOW = 1 << 16
"""Bytes that are read for the header of a page, first."""
_DATA_PAGES = {0: 5, 3: 8}
"""Types of pages with entries (those of the first version, and of the second), and the field that describes them."""
_MOST_HEADER = 1 << 24
_MOST_FOOTER = 1 << 24
_MOST_COLUMNS = 10_000
_MOST_DEPTH = 16


def import_arrow() -> Any:
    """The module pyarrow, with its reader of Parquet files.

    Raises:
        ImportError: It is not installed; names the command that installs it.
    """
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            f"parquet files need pyarrow: {install_text('tables')}; .npz and .csv files need nothing"
        ) from error
    return pa


@final
class ParquetTable:
    """A Parquet file: its declarations, then its columns.

    Args:
        file: The open file.

    Attributes:
        num_rows: Its rows.
        schema: Names and types of its columns, of pyarrow.
        notes: The metadata of its schema.

    Raises:
        DamagedFileError: It is damaged, or has more columns than any table.
    """

    def __init__(self, file: BinaryIO) -> None:
        pa = import_arrow()
        self._file = file
        with _damage_of_arrow(pa), pa.parquet.ParquetFile(file) as parquet:
            facts = parquet.metadata
            if facts.num_columns > _MOST_COLUMNS:
                raise DamagedFileError(f"it has {facts.num_columns} columns, expected at most {_MOST_COLUMNS}")
            self.schema, self.num_rows = parquet.schema_arrow, int(facts.num_rows)
            leaves = [parquet.schema.column(i) for i in range(facts.num_columns)]
        self._is_repeated = [leaf.max_repetition_level > 0 for leaf in leaves]
        """Whether a row may have many entries, as in lists, for each column of pages."""
        self._chunks = _chunks(file, len(leaves))
        if self.num_rows < 0:
            raise DamagedFileError(f"it declares {self.num_rows} rows")
        self.notes: Mapping[bytes, bytes] = self.schema.metadata or {}

    def read(self, budget: Budget, names: list[str] | None = None) -> Any:
        """The table of pyarrow, texts in dictionaries, its pages compared with their checksums.

        Args:
            budget: Memory that it may take while it is read.
            names: The columns that are wanted; ``None``: all.

        Raises:
            DamagedFileError: It is damaged, or takes too much memory.
        """
        pa = import_arrow()
        cells = sum(max(_CELL, _width(pa, field.type) or 0) for field in self.schema)
        budget.spend(max(_CELL, cells) * self.num_rows, f"{self.num_rows} rows")
        self._check_pages(budget)
        self._file.seek(0)
        texts = [field.name for field in self.schema if _is_text(pa, field.type)]
        with (
            _damage_of_arrow(pa),
            pa.parquet.ParquetFile(
                self._file, page_checksum_verification=True, read_dictionary=texts or None
            ) as parquet,
        ):
            for field in parquet.schema_arrow:
                if (names is None or field.name in names) and _width(pa, field.type) is None:
                    raise DamagedFileError(f"the column {field.name!r} is of type {field.type}, which cannot be read")
            table = parquet.read(columns=names, use_threads=False)
        if table.num_rows != self.num_rows:
            raise DamagedFileError(f"it declares {self.num_rows} rows, it has {table.num_rows}")
        return table

    def _check_pages(self, budget: Budget) -> None:
        """Refuse pages that expand to too much, or have more entries than the file declares rows."""
        size = size_of(self._file)
        entries = [0] * len(self._is_repeated)
        for chunk in self._chunks:
            for page in _pages(self._file, chunk, size):
                budget.spend(page.size, "its pages, expanded")
                entries[chunk.column] += page.entries
        for count, is_repeated in zip(entries, self._is_repeated, strict=True):
            if count != self.num_rows and not is_repeated:
                raise DamagedFileError(f"it declares {self.num_rows} rows, a column of it has {count}")


@contextlib.contextmanager
def _damage_of_arrow(pa: Any) -> Iterator[None]:
    """Inside, errors of pyarrow mean a damaged file."""
    try:
        yield
    except DamagedFileError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise DamagedFileError(f"{_NONE} ({' '.join(str(error).split())[:300]})") from error


def _width(pa: Any, kind: Any) -> int | None:
    """Bytes of an entry of this type, in a dictionary those of its number; ``None`` where an entry may have any."""
    if isinstance(kind, pa.BaseExtensionType):
        return _width(pa, kind.storage_type)
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_nested(kind):
        return None
    try:
        return (kind.bit_width + 7) // 8
    except ValueError:
        return None


def _is_text(pa: Any, kind: Any) -> bool:
    """Whether a column of this type can be read as a dictionary of texts, or of bytes.

    pyarrow expands those of types of extensions, as JSON.
    """
    is_other = pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)
    return not is_other and _width(pa, kind) is None


def _is_readable(pa: Any, kind: Any) -> bool:
    """Whether the size of a column of this type is known in advance: one of texts, or of entries of fixed width."""
    return _is_text(pa, kind) or _width(pa, kind) is not None


def number_columns(file: BinaryIO, budget: Budget) -> dict[str, np.ndarray]:
    """The columns ``(rows,)`` of any Parquet file; NaN, NaT or ``None`` where values are missing.

    Columns of lists, of groups of columns and of JSON are left out.

    Raises:
        DamagedFileError: It is damaged, takes too much memory, or has two columns of a name.
    """
    pa = import_arrow()
    parquet = ParquetTable(file)
    names = [field.name for field in parquet.schema if _is_readable(pa, field.type)]
    unreadable = [name for name in parquet.schema.names if name not in names]
    groups = tuple(f"{name}." for name in names)
    part = next((name for name in unreadable if name.startswith(groups)), None)
    if part is not None:  # pyarrow would read it with that column, outside the budget
        raise DamagedFileError(f"the column {part!r} has the name of a part of another column; rename it")
    twice = next((name for name in names if parquet.schema.names.count(name) > 1), None)
    if twice is not None:
        raise DamagedFileError(f"the column {twice!r} occurs twice; rename one")
    table = parquet.read(budget, names)
    return {name: _entries(pa, table.column(name), budget, name) for name in names}


def _entries(pa: Any, cells: Any, budget: Budget, name: str) -> np.ndarray:
    if not pa.types.is_dictionary(cells.type):
        if not pa.types.is_primitive(cells.type) or pa.types.is_time(cells.type):  # decimals, bytes, times of day
            budget.spend((_OBJECT + (_width(pa, cells.type) or 0)) * len(cells), f"column {name!r}")
        return cells.to_numpy()
    budget.spend(_CELL * len(cells), f"column {name!r}")
    values: list[Any] = []
    for chunk in cells.chunks:
        budget.spend_entries(len(chunk.dictionary), f"the texts of column {name!r}")
        # Equal texts share one object, so that a text that occurs a million times is in memory once.
        known = [*chunk.dictionary.to_pylist(), None]
        values += [known[-1 if i is None else i] for i in chunk.indices.to_pylist()]
    entries = np.empty(len(values), dtype=object)
    entries[:] = values
    return entries


# ---- pages -----------------------------------------------------------------------------------------------------------


class _Chunk(NamedTuple):
    """Where the pages of a column are, and which column of the file it is."""

    column: int
    begin: int
    end: int


class _Page(NamedTuple):
    """Bytes of a page, expanded and as they are, and of its header; entries of its column in it."""

    size: int
    compressed: int
    header: int
    entries: int


def _chunks(file: BinaryIO, num_columns: int) -> list[_Chunk]:
    """Of the ``num_columns`` columns of all groups of rows, from the end of a file.

    By hand: where statistics in it are damaged, pyarrow ends the process when a column is read.
    """
    size = size_of(file)
    file.seek(max(0, size - 8))
    length = int.from_bytes(file.read(8)[:4], "little")
    if not 0 < length <= min(size - 12, _MOST_FOOTER):
        raise DamagedFileError(f"{_NONE} (its description has {length} bytes)")
    file.seek(size - 8 - length)
    try:
        facts = _Thrift(file.read(length)).read()[0]
        groups = [[column[3] for column in group.get(1, [])] for group in facts.get(4, [])]
        if any(len(group) != num_columns for group in groups):
            raise ValueError("a group of rows has other columns")
        chunks = []
        for i, column in ((i, column) for group in groups for i, column in enumerate(group)):
            begin = min(place for place in (column.get(11), column[9]) if place)
            chunks.append(_Chunk(i, begin, begin + column[7]))
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(f"{_NONE} (it does not declare where its columns are)") from error
    return chunks


def _pages(file: BinaryIO, chunk: _Chunk, size: int) -> Iterator[_Page]:
    place = chunk.begin
    if not 0 <= place <= chunk.end <= size:
        raise DamagedFileError(f"{_NONE} (a column lies outside of it)")
    while place < chunk.end:
        page = _page_at(file, place, chunk.end)
        yield page
        place += page.header + page.compressed


def _page_at(file: BinaryIO, place: int, end: int) -> _Page:
    window = _WINDOW
    while True:
        file.seek(place)
        data = file.read(min(window, end - place))
        try:
            fields, length = _Thrift(data).read()
            break
        except IndexError:
            if len(data) == end - place or window >= _MOST_HEADER:
                raise DamagedFileError(f"{_NONE} (a page has no header)") from None
            window *= 16
    size, compressed = fields.get(2, -1), fields.get(3, -1)
    if not isinstance(size, int) or not isinstance(compressed, int) or size < 0 or compressed < 0:
        raise DamagedFileError(f"{_NONE} (a page has no size)")
    if place + length + compressed > end:
        raise DamagedFileError(f"{_NONE} (a page is longer than its column)")
    return _Page(size, compressed, length, _entries_in(fields))


def _entries_in(header: Mapping[int, Any]) -> int:
    """Entries in a page of this header; 0 in one of a dictionary, or of an index."""
    place = _DATA_PAGES.get(header.get(1, -1))
    if place is None:
        return 0
    facts = header.get(place)
    count = facts.get(1, -1) if isinstance(facts, dict) else -1
    if not isinstance(count, int) or count < 0:
        raise DamagedFileError(f"{_NONE} (a page does not declare how many entries it has)")
    return count


@final
class _Thrift:
    """Reads numbers, structs and lists of structs in the compact protocol of Thrift, by field, and skips all else.

    See https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self) -> tuple[dict[int, Any], int]:
        """The fields of a struct, and the bytes that the struct takes; ``IndexError`` where the data ends before it."""
        fields = self._struct(0)
        if self._at > len(self._data):
            raise IndexError
        return fields, self._at

    def _struct(self, depth: int) -> dict[int, Any]:
        if depth > _MOST_DEPTH:
            raise DamagedFileError(f"{_NONE} (a page has no header)")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._number()
            value = self._value(head & 15, depth)
            if value is not None:
                fields[number] = value
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:  # true, false
                return None
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._number()
            case 7:
                self._at += 8
            case 8:
                size = self._size()
                self._at += size
            case 9 | 10:
                head = self._byte()
                count = head >> 4 if head >> 4 != 15 else self._size()
                items = []
                for _ in range(count):
                    if head & 15 in (1, 2):  # here they are bytes
                        self._at += 1
                    else:
                        items.append(self._value(head & 15, depth + 1))
                    if self._at > len(self._data):
                        raise IndexError
                return items if head & 15 == 12 else None
            case 12:
                return self._struct(depth + 1)
            case _:
                raise DamagedFileError(f"{_NONE} (a page has no header)")
        return None

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _size(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise DamagedFileError(f"{_NONE} (a page has no header)")

    def _number(self) -> int:
        value = self._size()
        return (value >> 1) ^ -(value & 1)
