"""Files that are whole or not there: JSON, and state trees as safetensors + JSON. Nothing is ever unpickled."""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from metaroll.checks import is_tensor
from metaroll.data.doors import json_files
from metaroll.data.doors.budget import MAX_BYTES
from metaroll.data.doors.tensor_files import load_tensors
from metaroll.data.folders.atomic_files import checksum, write_atomic, write_files, write_text
from metaroll.data.replay.ring_rows import RingRows
from metaroll.errors import DamagedFileError, RecordingError, SnapshotError
from metaroll.training.store.row_files import RowFiles, load_rows

__all__ = [
    "is_tree",
    "load_tree",
    "number_of",
    "read_json",
    "save_tree",
    "to_plain",
    "tree_structure",
    "write_atomic",
    "write_json",
]

_FORMAT = 2
_MOST_JSON = 2**30
"""Bytes of the JSON of a tree."""
_CURE = "choose another snapshot with from_epoch=..., or restore the file from a copy"


def to_plain(value: Any) -> Any:
    """``value`` as JSON types: arrays become lists, NaN ``None``, infinities ``"Infinity"`` and ``"-Infinity"``."""
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [to_plain(v) for v in value]
    if is_tensor(value):
        return to_plain(value.detach().cpu().tolist())
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"only numbers, texts, arrays, and lists and dicts of them can be written, got {value!r}")


def number_of(value: Any) -> float:
    """A number from ``to_plain``; NaN for anything else."""
    if isinstance(value, str):
        return {"Infinity": math.inf, "-Infinity": -math.inf}.get(value, math.nan)
    return float(value) if isinstance(value, int | float) else math.nan


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` as readable JSON in one piece; see ``to_plain`` for arrays and non-finite numbers."""
    text = json.dumps(to_plain(value), indent=2, allow_nan=False, ensure_ascii=False)
    write_text(path, text + "\n")


def read_json(path: str | Path, hint: str = "restore it from a copy, or write it again") -> Any:
    """Content of a JSON file; ``SnapshotError`` with ``hint`` if it is damaged."""
    return json_files.read_json(path, SnapshotError, hint)


def save_tree(folder: str | Path, name: str, tree: Any, row_files: RowFiles | None = None) -> dict[str, dict[str, int]]:
    """Write a state tree as ``<name>.safetensors`` (arrays) and ``<name>.json`` (all else); file name -> checksum.

    The JSON comes last and holds the checksum of the arrays, so that a half-written pair is recognized.

    Args:
        folder: Existing folder.
        name: Name of the tree.
        tree: Nested dicts, lists, tuples and sets of tensors, arrays, numbers, texts, bytes, bools and ``None``.
            Tensors come back on the CPU.
        row_files: Takes rows of replay memories (``RingRows``), if there are many.

    Raises:
        TypeError: Something in it cannot be saved.
    """
    from metaroll.data.plain_data import encode  # here, as below: it loads torch, which lists of runs do not need

    folder = Path(folder)
    arrays: dict[str, np.ndarray] = {}
    try:
        structure = encode(tree, name, arrays)
    except RecordingError as error:
        raise TypeError(f"a state cannot be saved: {error}") from error
    arrays_path = folder / f"{name}.safetensors"
    rows: dict[str, RingRows] = {}
    if row_files is not None:
        rows = {path: array for path, array in arrays.items() if row_files.takes(array)}
    arrays = {path: array for path, array in arrays.items() if path not in rows}
    sums: dict[str, dict[str, int]] = {}

    def write(file: BinaryIO) -> None:
        save_file(arrays, file.name)  # in its own file, which has another mode than those of a run
        os.chmod(file.name, os.fstat(file.fileno()).st_mode & 0o777)
        with open(file.name, "rb+") as written:
            os.fsync(written.fileno())
        sums[arrays_path.name] = checksum(file.name)

    try:
        write_files({arrays_path: write})
    except SafetensorError as error:  # it hides the error of the operating system, such as a full disk
        raise OSError(f"{arrays_path} cannot be written: {error}") from error
    document = {"format": _FORMAT, "arrays": sums[arrays_path.name], "tree": structure}
    if row_files is not None and rows:
        stems = (f"{name}-{number}" for number in range(len(rows)))
        entries = {
            path: row_files.write(path, stem, array) for stem, (path, array) in zip(stems, rows.items(), strict=True)
        }
        document["rows"] = entries
        for file in (file for entry in entries.values() for file in entry["files"]):
            sums[file["name"]] = {"size": file["size"], "crc32": file["crc32"]}
    json_path = folder / f"{name}.json"
    data = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    write_atomic(json_path, data)
    sums[json_path.name] = {"size": len(data), "crc32": zlib.crc32(data)}
    return sums


def load_tree(folder: str | Path, name: str, hint: str = _CURE) -> Any:
    """The tree that ``save_tree`` wrote, bitwise identical; ``SnapshotError`` with ``hint`` if it is damaged."""
    from metaroll.data.plain_data import decode

    arrays_path, json_path = Path(folder) / f"{name}.safetensors", Path(folder) / f"{name}.json"
    for path in (json_path, arrays_path):
        if not os.path.lexists(path):
            raise SnapshotError(f"{path} is missing: the snapshot is incomplete; {hint}")
    document = json_files.read_json(json_path, SnapshotError, hint, max_bytes=_MOST_JSON, least=MAX_BYTES)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        stored_format = document.get("format") if isinstance(document, dict) else document
        raise SnapshotError(
            f"{json_path} must have format {_FORMAT}, got {stored_format!r}: use the metaroll that wrote it"
        )
    expected, rows = document.get("arrays"), document.get("rows", {})
    is_whole = isinstance(expected, dict) and expected.keys() == {"size", "crc32"} and isinstance(rows, dict)
    if not is_whole or "tree" not in document:
        raise SnapshotError(f"{json_path} must hold a tree and the checksum of {arrays_path.name}; {hint}")
    stored = load_tensors(arrays_path, SnapshotError, hint, expected=expected)
    arrays = {path: array.values for path, array in stored.items()}
    arrays |= {path: load_rows(Path(folder), entry, hint) for path, entry in rows.items()}
    try:
        return decode(document["tree"], arrays)
    except (DamagedFileError, MemoryError) as error:
        problem = f"does not fit {arrays_path.name} ({error})"
        raise SnapshotError(f"{json_path} {problem}; {hint}", json_path) from error


def is_tree(value: Any) -> bool:
    """Whether ``save_tree`` can write ``value``."""
    from metaroll.data.plain_data import encode

    try:
        encode(value, "value", {})
    except RecordingError:
        return False
    return True


def tree_structure(tree: Any) -> Any:
    """Names, shapes and dtypes of a state tree, without its values: equal for algorithms that are built alike."""
    if isinstance(tree, Mapping):
        return {str(key): tree_structure(child) for key, child in tree.items()}
    if isinstance(tree, list | tuple):
        return [tree_structure(child) for child in tree]
    if isinstance(tree, np.ndarray) or is_tensor(tree):
        return f"{str(tree.dtype).removeprefix('torch.')}{list(tree.shape)}"
    return type(tree).__name__
