"""The worker process: reads commands from a socket, runs them, writes results. Started by ``ProcessTransport``."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections import deque

__all__ = ["main"]


def main(socket_fd: int, beat_fd: int, life_fd: int, parent: int) -> None:
    """Serve commands until the parent closes the socket or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for fd in (socket_fd, beat_fd, life_fd):
        os.set_inheritable(fd, False)  # what environments start must not hold them open
    _die_with(parent, life_fd)
    from metaroll.rollouts.workers.messages import BeatWriter, GlobalNamespace, Incoming, packed, run_command, send_some

    # Rollouts are many small objects that live until they are sent: looking for cycles among them is wasted time.
    gc.set_threshold(20_000, 20, 20)
    beat = BeatWriter(beat_fd)
    beat("start")
    namespace = GlobalNamespace(beat)
    connection = socket.socket(fileno=socket_fd)
    incoming = Incoming(connection)
    while True:
        beat("idle")
        try:
            _, (blob,) = incoming.receive()
            beat("call")
            kind, parts = run_command(namespace, blob)
            beat("send")
            views = deque(packed(kind, parts))
            del blob, parts
            while views:
                send_some(connection, views)
        except (ConnectionError, EOFError):  # the parent is gone
            return


def _die_with(parent: int, life_fd: int) -> None:
    """End this process, and what it has started, when ``parent`` is gone, also in the middle of a long unit."""
    if hasattr(fcntl, "F_SETSIG"):  # Linux
        # The kernel kills the process group when the last holder of the pipe's other end is gone. That also reaches a
        # worker that is stopped, or in a C function that keeps Python's lock.
        with contextlib.suppress(OSError):
            fcntl.fcntl(life_fd, fcntl.F_SETOWN, -os.getpgrp() if _leads_group() else os.getpid())
            fcntl.fcntl(life_fd, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(life_fd, fcntl.F_SETFL, fcntl.fcntl(life_fd, fcntl.F_GETFL) | os.O_ASYNC)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        _leave(1)

    threading.Thread(target=watch, daemon=True).start()


def _leave(status: int) -> None:
    """Straight out: interpreters with MuJoCo or torch loaded can hang in their own clean-up."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    if _leads_group():
        os.killpg(os.getpgrp(), signal.SIGKILL)  # environments may have started processes of their own
    os._exit(status)


def _leads_group() -> bool:
    return os.getpgrp() == os.getpid()


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:5]))
    _leave(0)
