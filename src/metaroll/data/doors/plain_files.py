"""The door to bytes and text, through which all other doors go: plain files only, and nothing through a link.

Everything that can go wrong while a file is read becomes one error: ``PATH: line N: what is wrong; hint``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from metaroll.errors import LARGEST_SEED, DamagedFileError, MetarollError

__all__ = [
    "at_line",
    "check_plain_name",
    "damage",
    "decoded",
    "file_sum",
    "long_integer",
    "not_utf8",
    "open_plain",
    "read_bytes",
    "read_text",
    "size_of",
]

_CHUNK = 1 << 22
_KINDS = {
    stat.S_IFDIR: "it is a folder",
    stat.S_IFIFO: "it is a pipe or a device",
    stat.S_IFCHR: "it is a pipe or a device",
    stat.S_IFBLK: "it is a pipe or a device",
    stat.S_IFSOCK: "it is a pipe or a device",
}
_OF_NUMBERS = (errno.EINVAL, errno.EOVERFLOW, errno.EFBIG)
"""Error numbers of the system for invalid positions and sizes in a damaged file."""


@contextlib.contextmanager
def damage(path: str | Path, error: type[DamagedFileError] = DamagedFileError, hint: str = "") -> Iterator[None]:
    """Context for reading a file: exceptions become ``error``, which names the file and ends with ``hint``.

    A missing file stays ``FileNotFoundError``, what the system refuses ``OSError`` with the name of the file, and a
    missing package ``ImportError``.

    Raises:
        DamagedFileError: ``error``, for all else: reading nonsense can raise anything.
    """
    try:
        yield
    except DamagedFileError as caught:
        if caught.path is not None and isinstance(caught, error):
            raise  # of a file inside a folder, and complete
        raise _damaged(path, str(caught), error, hint, caught.line) from caught
    except (ImportError, MetarollError):
        raise
    except FileNotFoundError as caught:
        if caught.filename is None:  # complete already
            raise
        raise FileNotFoundError(f"there is no file {path}") from None
    except OSError as caught:
        if caught.errno is None or caught.errno in _OF_NUMBERS:  # of packages, about the content
            raise _damaged(path, _cause(caught), error, hint) from caught
        if caught.filename is None:
            raise OSError(caught.errno, caught.strerror, str(path)) from caught
        raise
    except MemoryError as caught:
        raise _damaged(path, "it takes more memory than there is", error, hint) from caught
    except RecursionError as caught:
        raise _damaged(path, "it is nested too deeply", error, hint) from caught
    except Exception as caught:
        raise _damaged(path, _cause(caught), error, hint) from caught


@contextlib.contextmanager
def at_line(line: int) -> Iterator[None]:
    """Inside, a line of a file is parsed: errors about the file name it."""
    try:
        yield
    except DamagedFileError as caught:
        if caught.line is not None or caught.path is not None:
            raise
        raise type(caught)(str(caught), None, line) from caught


def _cause(caught: Exception) -> str:
    text = " ".join(str(caught).split())
    if len(text) > 300:  # some quote everything that they have read
        text = f"{text[:300]}..."
    # Classes whose messages need no further explanation.
    plain = type(caught) in (ValueError, OSError) or isinstance(caught, UnicodeError | struct.error)
    return (
        f"it is damaged, or of another kind ({text})"
        if plain
        else (f"it is damaged, or of another kind ({type(caught).__name__}: {text})")
    )


def _damaged(
    path: str | Path, what: str, error: type[DamagedFileError], hint: str, line: int | None = None
) -> DamagedFileError:
    place = str(path) if line is None else f"{path}: line {line}"
    return error(f"{place}: {what}{'; ' if hint else ''}{hint}", path, line)


def long_integer(text: str, line: int | None = None) -> DamagedFileError:
    """The error for an integer of a file that has more bits than a seed: no text, float or array may hold it later."""
    shown = text if len(text) <= 50 else f"{text[:20]}...{text[-10:]}"
    return DamagedFileError(f"the integer {shown} has more than {LARGEST_SEED.bit_length()} bits", None, line)


def open_plain(path: str | Path) -> BinaryIO:
    """The open file at ``path``, if it is a plain one.

    Raises:
        DamagedFileError: It is a link, a folder, a pipe or a device.
        FileNotFoundError: There is none.
        OSError: It cannot be opened; names it.
    """
    _check_kind(path, os.lstat(path))  # first: opening some devices does something
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ELOOP:  # it has become one in the meantime
            raise _no_link(path) from error
        raise
    try:
        _check_kind(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(descriptor)
        raise


def _check_kind(path: str | Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _no_link(path)
    if not stat.S_ISREG(status.st_mode):
        raise DamagedFileError(_KINDS.get(stat.S_IFMT(status.st_mode), "it is not a regular file"))


def _no_link(path: str | Path) -> DamagedFileError:
    target = ""
    with contextlib.suppress(OSError):
        target = f" to {os.readlink(path)}"
    return DamagedFileError(f"it is a link{target}, and links are not followed: name the file itself")


def size_of(file: BinaryIO) -> int:
    """Bytes of an open file, whose place stays."""
    position = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(position)
    return size


def read_bytes(
    path: str | Path, max_bytes: int, error: type[DamagedFileError] = DamagedFileError, hint: str = ""
) -> bytes:
    """The content of a plain file.

    Args:
        path: The file.
        max_bytes: How many it may have.
        error: Class of the error for one that is not a plain file, or larger.
        hint: Last part of error messages.
    """
    with damage(path, error, hint), open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise DamagedFileError(f"it has {size} bytes, expected at most {max_bytes}")
        data = file.read(max_bytes + 1)
        if len(data) > max_bytes:  # it grows
            raise DamagedFileError(f"it has more than {max_bytes} bytes")
        return data


def read_text(
    path: str | Path, max_bytes: int, error: type[DamagedFileError] = DamagedFileError, hint: str = ""
) -> str:
    """The content of a plain file in UTF-8, with or without a mark at its beginning; see ``read_bytes``."""
    with damage(path, error, hint):
        return decoded(read_bytes(path, max_bytes, error, hint))


def decoded(data: bytes) -> str:
    """Text of UTF-8.

    Raises:
        DamagedFileError: It is not valid UTF-8; names the line.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(data, error) from error


def not_utf8(data: bytes, error: UnicodeDecodeError) -> DamagedFileError:
    """The error for ``data`` that is not valid UTF-8; names the line."""
    what = f"it is not valid UTF-8 text ({error.reason} 0x{data[error.start]:02x} at position {error.start})"
    return DamagedFileError(what, None, data.count(b"\n", 0, error.start) + 1)


def check_plain_name(name: object) -> str:
    """``name``, as a file gives it for another in the same folder, if it cannot lead out of that.

    Raises:
        DamagedFileError: It can, or is not a name.
    """
    if not isinstance(name, str) or not name or name in (".", "..") or any(mark in name for mark in "/\\\0"):
        raise DamagedFileError(f"it refers to {str(name)[:100]!r}, expected the name of a file in the same folder")
    return name


def file_sum(file: BinaryIO) -> dict[str, int]:
    """``{"size": bytes, "crc32": checksum}`` of an open file, read in pieces from its place on."""
    size = crc = 0
    while chunk := file.read(_CHUNK):
        size += len(chunk)
        crc = zlib.crc32(chunk, crc)
    return {"size": size, "crc32": crc}
