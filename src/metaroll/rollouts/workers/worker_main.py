"""The worker process: reads commands from a socket, runs them, writes results. Started by ``ProcessTransport``."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
from collections import deque

__all__ = ["main"]


def main() -> None:
    """Serve commands until the parent closes the socket."""
    _, socket_fd, beat_fd = (sys.argv[0], *map(int, sys.argv[1:]))
    for fd in (socket_fd, beat_fd):
        os.set_inheritable(fd, False)  # what environments start must not hold them open
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
            _leave(0)


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
