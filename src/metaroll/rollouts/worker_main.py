"""The worker process: reads commands from a socket, runs them, writes results. Started by ``ProcessTransport``."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time

__all__ = ["main"]


def main(socket_fd: int, beat_fd: int, parent: int) -> None:
    """Serve commands until the parent closes the socket or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(parent)
    from metaroll.rollouts.messages import HEADER, BeatWriter, run_command
    from metaroll.rollouts.namespace import GlobalNamespace

    beat = BeatWriter(beat_fd)
    beat("start")
    namespace = GlobalNamespace()
    connection = socket.socket(fileno=socket_fd)
    while True:
        beat("idle")
        header = _read(connection, HEADER.size)
        if header is None:
            return
        blob = _read(connection, HEADER.unpack(header)[0])
        if blob is None:
            return
        beat("call")
        kind, payload = run_command(namespace, bytes(blob), beat)
        beat("send")
        try:
            connection.sendall(HEADER.pack(len(payload) + 1) + (b"o" if kind == "ok" else b"e"))
            connection.sendall(payload)
        except ConnectionError:
            return


def _read(connection: socket.socket, size: int) -> bytearray | None:
    """Exactly ``size`` bytes, or ``None`` when the parent is gone."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        try:
            count = connection.recv_into(view)
        except ConnectionError:
            return None
        if not count:
            return None
        view = view[count:]
    return data


def _die_with(parent: int) -> None:
    """End this process when ``parent`` is gone, also in the middle of a long unit."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:4]))
    # Straight out: interpreters with MuJoCo or torch loaded can hang in their own clean-up.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
