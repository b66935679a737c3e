"""The content of a log before it is interpreted: named columns of npz, CSV and Parquet files."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.checks import entry_text
from metaroll.data.columns import column_name
from metaroll.data.doors.array_files import load_npz
from metaroll.data.doors.budget import Budget
from metaroll.data.doors.csv_files import parse_csv
from metaroll.data.doors.parquet_files import number_columns
from metaroll.data.doors.plain_files import damage, decoded, open_plain, size_of
from metaroll.errors import LogError, unknown_name

__all__ = ["LOG_SUFFIXES", "LogTable", "array_table", "read_table"]

LOG_SUFFIXES = (".csv", ".npz", ".parquet")
_MISSING = {"", "nan", "null", "none", "na", "n/a", "-"}
_TRUTH = {"true": 1.0, "false": 0.0}
_STAMP = re.compile(r"\d{4}-\d\d-\d\d|\d\d?:\d\d")
"""The beginning of a time stamp: a date, or a time of day."""
_DELIMITERS = ",;\t"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_EXACT = Context(prec=60)
"""Digits for differences of time stamps, which have 20 or so."""
_FACTOR = 32
"""A log may take this many times its own size in any case."""
_MOST_COLUMNS = 100_000


@dataclass(frozen=True)
class LogTable:
    """Columns of a log.

    Attributes:
        source: Name in messages.
        columns: Name -> entries ``(rows,)``: numbers, text, truth values or time stamps, NaN or empty where missing.
        before_rows: Lines of the file before the first row; ``None``: it has no lines.
        singles: Names of arrays that hold a single value, and are no columns.
    """

    source: str
    columns: Mapping[str, Any]
    before_rows: int | None = None
    singles: Collection[str] = ()

    def place(self, row: int, column: str) -> str:
        """The name of an entry in messages; ``row`` counts from 0 here and from 1 there."""
        line = "" if self.before_rows is None else f" (line {row + 1 + self.before_rows})"
        return f"{self.source}: row {row + 1}{line}, column {column!r}"

    def column(self, name: str, what: str) -> Sequence[Any]:
        """The entries of a column; ``what`` is its role in messages.

        Raises:
            LogError: There is no such column (names similar ones), or it holds complex numbers.
        """
        if name in self.singles:
            raise LogError(
                f"{self.source}: {what}: {name!r} is a single value, not a column with an entry for each row"
            )
        if name not in self.columns:
            raise LogError(f"{self.source}: {what}: {unknown_name('column', name, self.columns)}")
        if self._is_complex(name):
            raise LogError(
                f"{self.source}: {what}: column {name!r} holds complex numbers; save real and imaginary parts as two "
                "columns"
            )
        return self.columns[name]

    def _is_complex(self, name: str) -> bool:
        values = self.columns[name]
        return isinstance(values, np.ndarray) and values.dtype.kind == "c"

    def is_time(self, name: str) -> bool:
        """Whether a column holds time stamps or durations, which need no unit."""
        values = self.columns[name]
        return isinstance(values, np.ndarray) and values.dtype.kind in "mM"

    def since_first(self, name: str, first: int, end: int) -> np.ndarray:
        """Entries of rows ``first`` to ``end - 1`` relative to the first of them, ``(rows,)``; NaN where missing.

        Integers are subtracted as integers and decimals digit by digit: a float would lose 200 ns of a time in s since
        1970, and more of one in ns. Time stamps and durations are returned in seconds.
        """
        values = self.columns[name][first:end]
        if isinstance(values, np.ndarray):
            if values.dtype.kind in "mM":
                return ((values - values[:1]) / np.timedelta64(1, "s")).astype(np.float64)
            if values.dtype.kind == "u":  # negative differences wrap around, and the view as int64 undoes that
                return (values.astype(np.uint64) - np.uint64(values[0])).view(np.int64).astype(np.float64)
            if values.dtype.kind == "i":
                return (values.astype(np.int64) - np.int64(values[0])).astype(np.float64)
            if values.dtype.kind in "bf":
                return values.astype(np.float64) - float(values[0])
        exact = [self._decimal(value, first + row, name) for row, value in enumerate(values)]
        return np.array([float(_EXACT.subtract(value, exact[0])) for value in exact])

    def _decimal(self, value: Any, row: int, column: str) -> Decimal:
        """An entry with all its digits, NaN where it is missing."""
        try:
            return Decimal(value.strip() if isinstance(value, str) else value)
        except (ArithmeticError, TypeError, ValueError):
            return Decimal(self._number(value, row, column))

    def numbers(self, name: str, what: str) -> np.ndarray:
        """The entries of a column as numbers ``(rows,)``, NaN where they are missing; time in seconds.

        Time stamps count from the first one.

        Raises:
            LogError: An entry is not a number; names row and column.
        """
        values = self.column(name, what)
        array = values if isinstance(values, np.ndarray) else None
        if array is not None and array.dtype.kind in "mM":
            durations = array - array[:1] if array.dtype.kind == "M" else array
            return (durations / np.timedelta64(1, "ns") * 1e-9).astype(np.float64)
        if array is not None and array.dtype.kind in "biuf":
            return array.astype(np.float64)
        try:
            return np.array(values, dtype=np.float64)
        except (TypeError, ValueError):
            return np.array([self._number(value, row, name) for row, value in enumerate(values)])

    def _number(self, value: Any, row: int, column: str) -> float:
        if value is None or (isinstance(value, str) and value.strip().lower() in _MISSING):
            return np.nan
        if isinstance(value, str) and value.strip().lower() in _TRUTH:  # as pandas and Python write choices
            return _TRUTH[value.strip().lower()]
        try:
            return float(value)
        except (TypeError, ValueError):
            text = value if isinstance(value, str) else ""
            hint = "; write numbers with a point" if "," in text else ""
            if _STAMP.match(text.strip()):
                hint = "; write seconds, or save time stamps in a .parquet or .npz file as such"
            raise LogError(f"{self.place(row, column)}: {entry_text(value)} is not a number{hint}") from None

    def rows(self, names: Mapping[str, str]) -> int:
        """Number of rows of the columns ``names`` (name -> role), which must be equally long.

        Raises:
            LogError: They differ in length, or there is no row.
        """
        lengths = {name: len(self.column(name, what)) for name, what in names.items()}
        most, least = max(lengths, key=lengths.__getitem__), min(lengths, key=lengths.__getitem__)
        if lengths[most] != lengths[least]:
            raise LogError(
                f"{self.source}: columns must be equally long, {most!r} has {lengths[most]} rows and {least!r} has "
                f"{lengths[least]}; a last row without action is written as NaN"
            )
        if not lengths[most]:
            raise LogError(f"{self.source} holds no rows")
        return lengths[most]


def read_table(path: Path) -> LogTable:
    """Read the columns of a file.

    Raises:
        FileNotFoundError: There is no such file.
        LogError: It is damaged, or not a supported format.
    """
    readers = {".csv": _read_csv, ".npz": _read_npz, ".parquet": _read_parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise LogError(
            f"{path.name} must end in {', '.join(LOG_SUFFIXES)}, be a log of a RealEnv (.jsonl) or a data set of "
            "Minari; save it as one of these"
        )
    with damage(path, LogError):
        return reader(path)


def _read_csv(path: Path) -> LogTable:
    with open_plain(path) as file:
        budget = Budget.of_file(size_of(file), _FACTOR)
        text = decoded(file.read())
    comments = begin = 0
    while (line := _LINE.match(text, begin)) and (text[begin] == "#" or not line[0].strip()):
        comments, begin = comments + 1, line.end()
    if line is None:
        raise LogError("it has no line with the names of its columns")
    delimiter = max(_DELIMITERS, key=line[0].count)
    header, *rows = parse_csv(text[begin:], budget, delimiter=delimiter, skip_space=True, lines_before=comments)
    while rows and not any(map(str.strip, rows[-1])) and len(rows[-1]) < 2:
        rows.pop()
    names = [name.strip() for name in header]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LogError(f"the column {twice!r} occurs twice; rename one")
    for number, row in enumerate(rows):
        if len(row) != len(names):
            where = f"row {number + 1} (line {number + 2 + comments})"
            if len(row) < 2 and not any(map(str.strip, row)):
                raise LogError(
                    f"{where} is empty: remove it; if it separates rollouts, add a column that distinguishes them "
                    "(episode)"
                )
            ends = "; the log ends in the middle of a line: remove that line" if number == len(rows) - 1 else ""
            raise LogError(f"{where} has {len(row)} cells, the first line names {len(names)} columns{ends}")
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return LogTable(path.name, dict(zip(names, cells, strict=True)), comments + 1)


def _read_npz(path: Path) -> LogTable:
    arrays = load_npz(path, LogError)
    return LogTable(path.name, array_table(arrays), singles=[name for name, array in arrays.items() if not array.ndim])


def array_table(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns ``name``, or ``name[0]``, ``name[1]``, ... of arrays ``(rows, ...)``; single numbers are left out.

    Raises:
        LogError: There are more columns than a log may have.
    """
    columns: dict[str, np.ndarray] = {}
    count = sum(math.prod(array.shape[1:]) for array in arrays.values() if array.ndim)
    if count > _MOST_COLUMNS:
        raise LogError(f"its arrays are {count} columns of numbers, expected at most {_MOST_COLUMNS}")
    for name, array in arrays.items():
        if array.ndim:
            for index in np.ndindex(array.shape[1:]):
                columns[column_name(name, index)] = array[(slice(None), *index)]
    return columns


def _read_parquet(path: Path) -> LogTable:
    with open_plain(path) as file:
        return LogTable(path.name, number_columns(file, Budget.of_file(size_of(file), _FACTOR)))
