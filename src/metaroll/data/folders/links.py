"""Nothing is written through a link: where files are appended to, cut and removed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from metaroll.errors import LinkError, other_folder

__all__ = ["append_to", "is_link", "link_error", "no_file_error", "refuse_link", "remove_file", "truncate_to"]


def is_link(path: str | Path) -> bool:
    """Whether there is a link of that name, wherever it points."""
    return os.path.islink(path)


def link_error(path: str | Path) -> LinkError:
    """The error that names a link."""
    other = other_folder("put a copy of what it points to in its place", "place")
    return LinkError(f"{path} is a link, and nothing is written through links: remove it, or {other}")


def no_file_error(path: str | Path) -> LinkError:
    """The error that names what is no plain file."""
    return LinkError(f"{path} must be a plain file: move away what is there now")


def refuse_link(path: str | Path) -> None:
    """Error if ``path`` itself is a link; folders above it may be.

    Raises:
        LinkError: It is one.
    """
    if is_link(path):
        raise link_error(path)


def _open(path: str | Path, flags: int) -> int:
    """A descriptor of a plain file; the target of a link is not opened, and a pipe does not block."""
    refuse_link(path)  # the system's own error is about loops
    descriptor = os.open(path, flags | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise no_file_error(path)
    return descriptor


def append_to(path: str | Path) -> BinaryIO:
    """The file ``path``, made if needed, open for appending.

    Raises:
        LinkError: It is a link, or no plain file.
    """
    return os.fdopen(_open(path, os.O_APPEND | os.O_CREAT), "ab")


def truncate_to(path: str | Path, size: int) -> None:
    """Cut the file ``path`` to ``size`` bytes.

    Raises:
        LinkError: It is a link, or no plain file.
    """
    descriptor = _open(path, 0)
    try:
        os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


def remove_file(path: str | Path) -> None:
    """Remove a file, or a link rather than its target; nothing happens if there is none."""
    Path(path).unlink(missing_ok=True)
