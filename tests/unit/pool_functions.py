"""Functions that tests run in workers. Workers import this module, so it imports nothing that takes long."""

from __future__ import annotations

import os
import signal
import time


def whereabouts(G):
    return os.getpid(), os.getppid()


def remember(G, value):
    G.value = value
    return value


def add(G, x):
    return G.value + x


def count(G, number, most):
    return number, min(number, most)


def once(G, marker, what):
    """Hangs, the first time, after sending the signal ``what`` to the actor of this worker."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "done"
    if what is not None:
        os.kill(os.getppid(), what)
    time.sleep(60)


def once_silent(G, marker):
    return once(G, marker, None)


def once_killed(G, marker):
    return once(G, marker, signal.SIGKILL)


def once_stopped(G, marker):
    return once(G, marker, signal.SIGSTOP)


def die(G, x):
    os.kill(os.getpid(), signal.SIGKILL)
