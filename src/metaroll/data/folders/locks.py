"""Locks of folders: one process at a time may write, and a lock never outlives its process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import weakref
from pathlib import Path
from types import TracebackType
from typing import final

from metaroll.data.folders.kinds import LOCK_FILE
from metaroll.errors import RunExistsError, other_folder

__all__ = ["FolderLock", "is_locked"]

_TAKEN = (errno.EACCES, errno.EAGAIN)
_ATTEMPTS = 100


@final
class _Held:
    """An open lock file. The process has one lock on it, which ends when any of its descriptors is closed."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)


_HELD: weakref.WeakValueDictionary[tuple[int, ...], _Held] = weakref.WeakValueDictionary()
"""The locks of this process, by ``_key`` of their files."""


def _key(status: os.stat_result) -> tuple[int, ...]:
    return os.getpid(), status.st_dev, status.st_ino  # a fork has the object, but not the lock


@final
class FolderLock:
    """The right to write into a folder, held until ``release`` or the end of the process.

    It is a POSIX record lock on ``.lock``. The kernel frees it when its process ends, however it ends; the file stays,
    and names the process that held it last. Workers do not inherit it. Within one process it does not exclude, and is
    held until the last ``FolderLock`` of the folder is released.

    Args:
        folder: Existing folder.

    Raises:
        RunExistsError: Another process holds it, or ``.lock`` is a link or no file.
    """

    def __init__(self, folder: str | Path) -> None:
        self._held: _Held | None = _lock(Path(folder))

    def release(self) -> None:
        """Let others write."""
        self._held = None

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _lock(folder: Path) -> _Held:
    """A lock on the file that has the name afterwards; its former holder may have removed it before we got it."""
    path = folder / LOCK_FILE
    for _ in range(_ATTEMPTS):
        held = _lock_file(folder, path)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held.descriptor), os.lstat(path)):
                return held
    raise RunExistsError(f"{path} is made and removed again and again: {other_folder()}")


def _lock_file(folder: Path, path: Path) -> _Held:
    other = other_folder()
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):  # a link, a pipe ...: it is not opened
            raise RunExistsError(f"{path} must be a plain file: remove it, or {other}")
        if (held := _HELD.get(_key(status))) is not None:
            return held
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    held = _Held(descriptor)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder(descriptor)
        if error.errno in _TAKEN:
            held.close()
            raise RunExistsError(
                f"{folder} is in use by {holder}: wait until that process is done or stop it, or {other}"
            ) from None
        return held  # a file system without locks: continue without
    with contextlib.suppress(OSError):  # the lock counts, the number is only for the message
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    _HELD[_key(os.fstat(descriptor))] = held
    return held


def is_locked(folder: str | Path) -> bool:
    """Whether another process may write into a folder now; only a query, which makes no process fail."""
    path = Path(folder) / LOCK_FILE
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or _key(status) in _HELD:
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        os.lockf(descriptor, os.F_TEST, 0)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _holder(descriptor: int) -> str:
    """The writer of the lock file; earlier versions wrote the name of the machine behind the number."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return f"process {int(os.pread(descriptor, 1000, 0).decode().split()[0])}"
    return "another process"
