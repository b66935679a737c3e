"""The door to JSON and JSON lines: entries and depth are counted before anything is made of the text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.data.doors.budget import Budget
from metaroll.data.doors.plain_files import damage, long_integer, not_utf8, read_bytes
from metaroll.errors import LARGEST_SEED, DamagedFileError

__all__ = ["json_lines", "parse_json", "parse_json_line", "read_json", "read_json_dict"]

_MAX_BYTES = 2**26
"""Limit for a file of results, or of settings."""
_LEAST = 2**28
_FACTOR = 16
"""A file may take this many times its own size in any case."""
_MOST_DEPTH = 400
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_LONG = re.compile(rb"[0-9]{39}")
"""Matches every integer of more bits than a seed, and few others: without a match, no integer is checked."""
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


def parse_json(text: str | bytes, budget: Budget | None = None) -> Any:
    """The data of a JSON text.

    Args:
        text: The JSON.
        budget: Memory that its data may take; ``None``: that of a separate file.

    Raises:
        DamagedFileError: It is not JSON (names the line), is nested too deeply, takes too much, or holds an integer of
            more bits than a seed.
    """
    # Lone surrogates, which some text holds, are kept.
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    openings = data.count(b"[") + data.count(b"{")
    budget = Budget() if budget is None else budget
    budget.spend(4 * len(data), "its text")
    budget.spend_entries(data.count(b",") + data.count(b":") + openings, "the entries of its lists and dicts")
    if openings > _MOST_DEPTH and _depth(data) > _MOST_DEPTH:
        raise DamagedFileError(f"it is nested deeper than {_MOST_DEPTH} levels")
    parse_int = _integer_of(data) if _LONG.search(data) else None
    try:
        decoded = text if isinstance(text, str) else data.decode("utf-8-sig", "surrogatepass")
        return json.loads(decoded, parse_int=parse_int)
    except DamagedFileError:
        raise
    except json.JSONDecodeError as error:
        raise DamagedFileError(
            f"it is not valid JSON (column {error.colno}): {error.msg}", None, error.lineno
        ) from error
    except UnicodeDecodeError as error:
        raise not_utf8(data, error) from error
    except RecursionError as error:
        raise DamagedFileError("it is nested too deeply") from error


def _integer_of(data: bytes) -> Callable[[str], int]:
    """A function from the text of an integer in ``data`` to its value, if that has no more bits than a seed."""

    def integer_of(digits: str) -> int:
        if len(digits) <= 40 and abs(value := int(digits)) <= LARGEST_SEED:
            return value
        outside = _TEXTS.sub(b"", data)  # strings hold no line breaks
        match = re.search(rb"(?<![\w.+-])" + digits.encode() + rb"(?![\w.])", outside)
        line = None if match is None else outside.count(b"\n", 0, match.start()) + 1
        raise long_integer(digits, line)

    return integer_of


def _depth(data: bytes) -> int:
    """Nesting depth of lists and dicts."""
    marks = np.frombuffer(_TEXTS.sub(b"", data), dtype=np.uint8)
    return int(np.cumsum(_STEPS[marks], dtype=np.int64).max(initial=0))


def read_json(
    path: str | Path,
    error: type[DamagedFileError] = DamagedFileError,
    hint: str = "",
    *,
    max_bytes: int = _MAX_BYTES,
    least: int = _LEAST,
) -> Any:
    """The content of a JSON file.

    Args:
        path: The file.
        error: Class of the error for a damaged one.
        hint: Last part of error messages.
        max_bytes: How many the file may have.
        least: Bytes that its data may take, however small it is.

    Raises:
        DamagedFileError: ``error``: it is damaged, too large, or no plain file.
        FileNotFoundError: There is none.
    """
    with damage(path, error, hint):
        data = read_bytes(path, max_bytes, error, hint)
        return parse_json(data, Budget.of_file(len(data), _FACTOR, least))


def read_json_dict(
    path: str | Path, error: type[DamagedFileError] = DamagedFileError, hint: str = ""
) -> dict[str, Any]:
    """The content of a JSON file that holds names and values; see ``read_json``."""
    document = read_json(path, error, hint)
    with damage(path, error, hint):
        if not isinstance(document, dict):
            raise DamagedFileError(f"it must hold a JSON object, got {type(document).__name__}")
    return document


def parse_json_line(line: bytes, number: int, budget: Budget) -> dict[str, Any]:
    """The dict in a line of a file of JSON lines.

    Raises:
        DamagedFileError: It is not JSON, or no dict; names the line ``number``.
    """
    try:
        entry = parse_json(line, budget)
    except DamagedFileError as error:
        raise DamagedFileError(str(error), None, number) from error
    if not isinstance(entry, dict):
        raise DamagedFileError("it is not a JSON object", None, number)
    return entry


def json_lines(data: bytes, budget: Budget) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number (from 1) and dict of each line; a last one without its end, which was not finished, is left out.

    Raises:
        DamagedFileError: One is not JSON, or no dict; names the line.
    """
    number, begin = 0, 0
    while (end := data.find(b"\n", begin)) >= 0:
        number += 1
        yield number, parse_json_line(data[begin:end], number, budget)
        begin = end + 1
