"""The door to ``.npz`` files: declared sizes of an archive and its arrays are checked before memory is allocated.

Objects are never read, since that would unpickle them. The checksum of each array is compared.
"""

from __future__ import annotations

import ast
import math
import re
import struct
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from metaroll.data.doors.budget import Budget
from metaroll.data.doors.plain_files import damage, open_plain, size_of
from metaroll.errors import DamagedFileError

__all__ = ["load_npz", "read_npz"]

_FACTOR = 4
"""An archive may take this many times its own size in any case."""
_MOST_ARRAYS = 50_000
_MOST_DIRECTORY = 2**24
"""Bytes of the list of arrays at the end of an archive."""
_MOST_HEADER = 10_000
"""Characters of the header of an array, as of NumPy."""
_MOST_DEPTH = 20
_END, _END_64, _LOCATOR = b"PK\5\6", b"PK\6\6", b"PK\6\7"
_PLAIN = re.compile(r"\{'descr': '([^'\\]*)', 'fortran_order': (True|False), 'shape': (\([\d, ]*\)),? *\}\s*")
_CHUNK = 1 << 20


def load_npz(
    path: str | Path,
    error: type[DamagedFileError] = DamagedFileError,
    hint: str = "",
    *,
    budget: Budget | None = None,
) -> dict[str, np.ndarray]:
    """All arrays of an ``.npz`` file by name.

    Args:
        path: The file.
        error: Class of the error for a damaged one.
        hint: Last part of error messages.
        budget: Memory that the arrays may take; ``None``: 1 GiB, or four times the size of the file.

    Raises:
        DamagedFileError: ``error``: it is damaged, no archive of arrays, holds objects, or takes too much memory.
        FileNotFoundError: There is none.
    """
    with damage(path, error, hint), open_plain(path) as file:
        return read_npz(file, Budget.of_file(size_of(file), _FACTOR) if budget is None else budget)


def read_npz(file: BinaryIO, budget: Budget, *, structured: bool = False) -> dict[str, np.ndarray]:
    """All arrays of an open ``.npz`` file by name.

    Args:
        file: The file.
        budget: Memory that they may take.
        structured: Whether they may have dtypes with fields.

    Raises:
        DamagedFileError: It is not an archive of arrays, or they take too much memory.
    """
    budget.spend(_size_of_directory(file), "the list of its arrays")
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile as error_of_zip:
        raise DamagedFileError("it is not a .npz file, or is truncated") from error_of_zip
    with archive:
        entries = archive.infolist()
        if len(entries) > _MOST_ARRAYS:
            raise DamagedFileError(f"it holds {len(entries)} arrays, expected at most {_MOST_ARRAYS}")
        budget.spend(sum(entry.file_size for entry in entries), "the sizes of its entries")
        names = {entry.filename.removesuffix(".npy"): entry for entry in entries}
        if len(names) < len(entries):
            raise DamagedFileError("it holds two arrays of the same name")
        return {name: _read_array(archive, name, entry, budget, structured) for name, entry in names.items()}


def _size_of_directory(file: BinaryIO) -> int:
    """Bytes of the list of entries at the end of an archive, of which each becomes an object.

    Raises:
        DamagedFileError: It is too long.
    """
    size = size_of(file)
    start = max(0, size - 2**16 - 98)
    file.seek(start)
    tail = file.read()
    file.seek(0)
    end = tail.rfind(_END)
    if end < 0 or len(tail) < end + 22:
        raise DamagedFileError("it is not a .npz file, or is truncated")
    listed = struct.unpack_from("<L", tail, end + 12)[0]
    if end >= 76 and tail[end - 20 : end - 16] == _LOCATOR and tail[end - 76 : end - 72] == _END_64:
        listed = struct.unpack_from("<Q", tail, end - 76 + 40)[0]
    if listed > min(size, _MOST_DIRECTORY):
        raise DamagedFileError(
            f"the list of its arrays has {listed} bytes, expected at most {min(size, _MOST_DIRECTORY)}"
        )
    return 20 * listed


def _read_array(
    archive: zipfile.ZipFile, name: str, entry: zipfile.ZipInfo, budget: Budget, structured: bool
) -> np.ndarray:
    if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DamagedFileError(f"the array {name!r} is encrypted, or compressed in another way than NumPy's")
    if entry.filename == name:
        raise DamagedFileError(f"it holds the file {name!r}, which is not an array (.npy)")
    with archive.open(entry) as file:
        shape, is_fortran, dtype = _read_header(file, name, structured)
        count = math.prod(shape)
        if count * dtype.itemsize != entry.file_size - file.tell():
            raise DamagedFileError(f"the array {name!r} is longer or shorter than its header declares")
        if not count:  # without entries, the other sizes can be anything
            budget.spend(math.prod(max(size, 1) for size in shape) * dtype.itemsize, f"the array {name!r}")
        array = np.empty(shape, dtype, order="F" if is_fortran else "C")
        if array.nbytes:
            _fill(array.reshape(-1, order="A").view(np.uint8), file, name)
        if file.read(1):  # the end, where the checksum is compared
            raise DamagedFileError(f"the array {name!r} is longer than its header declares")
    return array


def _fill(target: np.ndarray, file: IO[bytes], name: str) -> None:
    begin = 0
    while begin < len(target):
        chunk = file.read(min(_CHUNK, len(target) - begin))
        if not chunk:
            raise DamagedFileError(f"the array {name!r} is truncated")
        target[begin : begin + len(chunk)] = np.frombuffer(chunk, np.uint8)
        begin += len(chunk)


def _read_header(file: IO[bytes], name: str, structured: bool) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and dtype of an array; not by NumPy, which also reads headers from Python 2, with a warning."""
    magic = file.read(8)
    version = tuple(magic[6:8])
    if magic[:6] != np.lib.format.MAGIC_PREFIX or version not in ((1, 0), (2, 0), (3, 0)):
        raise DamagedFileError(f"the array {name!r} has no NumPy header")
    kind = "<H" if version == (1, 0) else "<I"
    (length,) = struct.unpack(kind, file.read(struct.calcsize(kind)))
    if length > _MOST_HEADER:
        raise DamagedFileError(f"the header of {name!r} has {length} bytes, expected at most {_MOST_HEADER}")
    text = file.read(length).decode("utf-8" if version == (3, 0) else "latin-1")
    simple = _PLAIN.fullmatch(text)
    header = (
        {"descr": simple[1], "fortran_order": simple[2] == "True", "shape": _plain_shape(simple[3])}
        if simple
        else _literal(text, name)
    )
    shape = header["shape"]
    if not isinstance(shape, tuple) or len(shape) > 32 or any(type(size) is not int or size < 0 for size in shape):
        raise DamagedFileError(f"the array {name!r} has the invalid shape {str(shape)[:100]}")
    descr = header["descr"]
    dtype: Any = np.dtype(descr) if isinstance(descr, str) else np.lib.format.descr_to_dtype(descr)
    if dtype.hasobject:
        raise DamagedFileError(
            f"the array {name!r} holds objects, which are not read (allow_pickle): save arrays of numbers, not of "
            "objects"
        )
    if dtype.kind not in "biufcSUmM" + "V" * structured:
        raise DamagedFileError(f"the array {name!r} has dtype {dtype}, expected numbers, text or times")
    return shape, bool(header["fortran_order"]), dtype


def _plain_shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text[1:-1].split(",") if size.strip())


def _literal(text: str, name: str) -> dict[str, Any]:
    """A header in another layout than that of today's NumPy, or whose dtype has fields."""
    depth = most = 0
    for mark in text:
        depth += (mark in "([{") - (mark in ")]}")
        most = max(most, depth)
    header: Any = None
    if most <= _MOST_DEPTH and "--" not in text:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd literals
            try:
                header = ast.literal_eval(text.strip())
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                header = None
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise DamagedFileError(
            f"the header of the array {name!r} is damaged, or was written by Python 2: save it again"
        )
    return header
