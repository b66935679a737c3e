"""The beginning of every child: binds its life to that of its parent, then calls a function.

``python -P -m metaroll.processes.child_main LIFE PARENT HOW LIMIT FUNCTION [ARGUMENT ...]``, by ``ChildProcess``.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable

__all__ = ["GRACE_SECONDS", "main", "mark_by_limit"]

GRACE_SECONDS = 5.0
"""Seconds that a child may take to end in order."""

_LOOK_MS = 1000


def main() -> None:
    """Call the function that the command line names, with its arguments in ``sys.argv``."""
    life, parent, how, limit, function, *arguments = sys.argv[1:]
    sys.argv = [function, *arguments]
    os.set_inheritable(int(life), False)  # children of this process must not hold it open
    mark_by_limit(int(limit))
    if how == "at-once":
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
        _kill_with(int(life))
        _watch(int(life), int(parent), _vanish)
    else:
        _watch(int(life), int(parent), _end_in_order)
    module, _, name = function.partition(":")
    sys.exit(getattr(importlib.import_module(module), name)())


def mark_by_limit(limit: int) -> None:
    """Mark this process and its descendants by a limit, for systems and programs that drop the environment."""
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
        resource.setrlimit(resource.RLIMIT_RTTIME, (limit, hard))


def _kill_with(life: int) -> None:
    """The kernel (Linux) kills this process group when the last holder of the pipe's other end is gone.

    That also reaches a process that is stopped, or in a C function that keeps Python's lock.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        own = os.open(
            f"/proc/self/fd/{life}", os.O_RDONLY
        )  # the flags belong to the open file, which other processes share
        os.dup2(own, life, inheritable=False)
        os.close(own)
        fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp() if _leads_group() else os.getpid())
        fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)


def _watch(life: int, parent: int, leave: Callable[[], None]) -> None:
    """Call ``leave`` in a thread when the pipe, or the parent, is gone."""
    known = os.fstat(life)
    waiting = select.poll()
    waiting.register(life, 0)  # which signals its end

    def watch() -> None:
        bound = True
        while os.getppid() == parent:
            if bound:
                ended = waiting.poll(_LOOK_MS)
                bound = _is_same(known, life)
                if ended and bound:
                    break
            else:  # all descriptors have been closed
                time.sleep(_LOOK_MS / 1000)
        leave()

    threading.Thread(target=watch, daemon=True).start()


def _is_same(known: os.stat_result, descriptor: int) -> bool:
    try:
        return os.path.samestat(known, os.fstat(descriptor))
    except OSError:
        return False


def _vanish() -> None:
    if _leads_group():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def _end_in_order() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(128 + signal.SIGTERM)


def _leads_group() -> bool:
    return os.getpgrp() == os.getpid()


if __name__ == "__main__":
    main()
