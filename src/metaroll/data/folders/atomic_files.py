"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from metaroll.data.doors.plain_files import file_sum, open_plain
from metaroll.data.folders.links import refuse_link

__all__ = ["checksum", "flush_folder", "named_errors", "temporary_path", "write_atomic", "write_files", "write_text"]


def temporary_path(path: Path) -> Path:
    """Temporary path for the new content of ``path``: ``.NAME.PROCESS-RANDOM.tmp``, different in each call."""
    # Processes and threads that write the same file must not write into each other's content.
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


@contextlib.contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Errors of the operating system with the file's name: those of writing, as on a full disk, have none.

    Raises:
        OSError: The one that the body raised, naming ``path``.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_files(writers: Mapping[Path, Callable[[BinaryIO], object]]) -> None:
    """Write files that belong together: none of them changes before all are complete on disk.

    If one cannot be written, nothing is left behind, and files that existed before stay unchanged. A kill may leave
    some of them replaced, and others not; ``replace_set`` is for sets of files.

    Args:
        writers: Path -> function that writes the content into an open file.

    Raises:
        IsADirectoryError: A path is a folder.
        LinkError: A path is a link: neither it nor what it points to is ours to replace.
        OSError: One cannot be written; names it.
    """
    new = {path: temporary_path(path) for path in writers}
    for path in new:
        refuse_link(path)
        if path.is_dir():  # would be noticed only after others have been replaced
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        for path, write in writers.items():
            with named_errors(path), open(new[path], "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
        for path, temporary in new.items():
            os.replace(temporary, path)
    except BaseException:
        for temporary in new.values():
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise


def write_atomic(path: str | Path, data: bytes) -> None:
    """Write ``data`` to ``path``, whose old content stays until the new is complete on disk."""
    write_files({Path(path): lambda file: file.write(data)})


def write_text(path: str | Path, text: str) -> None:
    r"""Write ``text`` in UTF-8, as ``write_atomic`` does.

    What UTF-8 lacks (half a character, as names of files may hold) is spelled out, as JSON does: ``\udcff``.
    """
    write_atomic(path, text.encode("utf-8", "backslashreplace"))


def flush_folder(folder: str | Path) -> None:
    """Make renames inside ``folder`` survive a loss of power (where the system can open folders)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with contextlib.suppress(OSError):  # some file systems cannot
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(path: str | Path) -> dict[str, int]:
    """``{"size": bytes, "crc32": checksum}`` of a file, read in pieces."""
    with open_plain(path) as file:
        return file_sum(file)
