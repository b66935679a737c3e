"""Watches the Ray cluster of a run: Ray itself reports nothing for over a minute after its head is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

__all__ = ["watched"]

_EVERY_S = 5.0
_TRIES = 3
_GRACE_S = 15.0


@contextlib.contextmanager
def watched(
    address: Callable[[], str | None], lost: Callable[[str], None], every: float = _EVERY_S, grace: float = _GRACE_S
) -> Iterator[None]:
    """Run a thread that ends this process when nothing listens at ``address`` any more.

    Args:
        address: ``HOST:PORT`` of the cluster's head; ``None`` while there is none yet.
        lost: Called with the address before the process is ended.
        every: Seconds between two checks; several in a row must fail.
        grace: Seconds to shut down in order; calls into Ray may hang until then.
    """
    done = threading.Event()

    def watch() -> None:
        failed, seen = 0, False
        while not done.wait(every):
            where = address()
            if where is None:
                continue
            answers = _listens(where)
            seen = seen or answers
            failed = 0 if answers else failed + seen
            if failed >= _TRIES:
                lost(where)
                os.kill(os.getpid(), signal.SIGTERM)
                if not done.wait(grace):
                    os._exit(1)
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_EVERY_S).close()
    except OSError:
        return False
    return True
