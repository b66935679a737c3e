"""At most one process writes into a run folder: a lock that ends with its process, so that none is ever stale."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import weakref
from pathlib import Path
from types import TracebackType

from metaroll.errors import RunExistsError

__all__ = ["LOCK_FILE", "RunLock"]

LOCK_FILE = ".lock"
_TAKEN = (errno.EACCES, errno.EAGAIN)


class RunLock:
    """The right to write into a run folder, held until ``release`` or the end of the process.

    It is a POSIX record lock on ``<run>/.lock``. The kernel frees it when its process ends, however it ends; the file
    stays, and says who held it last. Workers do not inherit it. Within one process it excludes nobody.

    Args:
        run_dir: Existing folder of the run.

    Raises:
        RunExistsError: Another process holds it.
    """

    def __init__(self, run_dir: str | Path) -> None:
        path = Path(run_dir) / LOCK_FILE
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._close = weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(descriptor)
            if error.errno in _TAKEN:
                self._close()
                raise RunExistsError(
                    f"{run_dir} is in use by {holder}: wait until that process is done or stop it, or choose another "
                    "folder with --out (run_dir=...)"
                ) from None
            return  # a file system without locks: go on without
        with contextlib.suppress(OSError):  # the lock counts, the name is only for the message
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        """Let others write."""
        self._close()

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _holder(descriptor: int) -> str:
    """Who wrote the lock file."""
    with contextlib.suppress(OSError, ValueError):
        pid, host = os.pread(descriptor, 1000, 0).decode().split()
        return f"process {int(pid)}" + ("" if host == socket.gethostname() else f" on {host}")
    return "another process"
