"""Looks after the Ray cluster of a run: Ray itself says nothing for more than a minute after its head has gone."""

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
    """Inside, a thread ends this process when nobody listens at ``address`` any more.

    Args:
        address: ``HOST:PORT`` of the cluster's head; ``None`` while there is none yet.
        lost: Called with the address before the process is ended.
        every: Seconds between two looks, of which several must fail.
        grace: Seconds to end in order; calls into Ray may hang until then.
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
