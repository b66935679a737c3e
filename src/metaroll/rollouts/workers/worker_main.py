"""The worker process: reads commands from a socket, runs them, writes results. Started by ``ProcessTransport``."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import socket
import sys
from collections import deque
from typing import NoReturn

__all__ = ["BAD_CONNECTION", "main"]

BAD_CONNECTION = os.EX_PROTOCOL
"""Exit status of a worker whose socket was replaced."""


def main() -> None:
    """Serve commands until the parent closes the socket."""
    _, socket_fd, heartbeat_fd = (sys.argv[0], *map(int, sys.argv[1:]))
    for fd in (socket_fd, heartbeat_fd):
        os.set_inheritable(fd, False)  # children of environments must not hold them open
    from metaroll.rollouts.workers.messages import BeatWriter, GlobalNamespace, Incoming, packed, run_command, send_some

    # Rollouts are many small objects that live until they are sent: searching them for cycles is wasted time.
    gc.set_threshold(20_000, 20, 20)
    own, known = os.getpid(), os.fstat(socket_fd)
    heartbeat = BeatWriter(heartbeat_fd)
    heartbeat("start")
    namespace = GlobalNamespace(heartbeat)
    connection = socket.socket(fileno=socket_fd)
    incoming = Incoming(connection, os.getppid())
    for number in itertools.count(1):
        heartbeat("idle")
        try:
            command = incoming.receive()
            if command.number != number:
                _leave(BAD_CONNECTION)
            heartbeat("call")
            kind, parts = run_command(namespace, command.parts[0])
            if os.getpid() != own:  # an environment has forked this process, and the child returned
                os._exit(0)
            heartbeat("send")
            if not os.path.samestat(known, os.fstat(socket_fd)):  # an environment has closed, and opened, descriptors
                _leave(BAD_CONNECTION)
            views = deque(packed(kind, number, parts))
            del command, parts
            while views:
                send_some(connection, views)
        except (BrokenPipeError, ConnectionResetError, EOFError):  # the parent is gone, or has closed the socket
            _leave(0)
        except OSError:  # an environment has closed it
            _leave(BAD_CONNECTION)


def _leave(status: int) -> NoReturn:
    """Straight out: interpreters with MuJoCo or torch loaded can hang in their own clean-up."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
