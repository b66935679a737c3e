"""Functions that tests run in workers. Workers import this module, so it imports nothing that takes long."""

from __future__ import annotations

import os
import random
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


def double(G, x):
    return 2 * x


def set_base(G, base):
    G.base = base
    return os.getpid()


def add_base(G, x):
    return G.base + x


def fail_on_three(G, x):
    if x == 3:
        raise KeyError("three")
    return x


def pids(G):
    return os.getpid()


def die_once(G, args):
    """Ends its process the first time that it meets the marker file's name."""
    x, marker = args
    if x == 2 and not os.path.exists(marker):
        open(marker, "w").close()
        os._exit(7)
    return x


def die_always(G, x):
    os.kill(os.getpid(), signal.SIGKILL)


def slow_large(G, args):
    size, marker = args
    if not os.path.exists(marker):
        with open(marker, "w") as file:
            file.write(str(os.getpid()))
    import numpy as np

    return np.arange(size)


def sleepy(G, x):
    time.sleep(x)
    return x


def random_amount(G, number):
    """Between 5 and 15 samples, a function of the run's number alone."""
    import numpy as np

    count = int(np.random.default_rng(number).integers(5, 16))
    return count, count


def five(G, number, scale, *, offset=0):
    return scale * number + offset, 5


def fails_at(G, number, bad, count, first_waits=0.0):
    if number == 1:
        time.sleep(first_waits)
    if number == bad:
        raise KeyError(f"run {number}")
    return number, count


def dies_once_at(G, number, bad, marker):
    if number == bad and not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return number, 1


def draws(G, count=2):
    import numpy as np
    import torch

    return [random.random(), *np.random.rand(count).tolist(), torch.rand(1).item()]


def nap(G, x):
    time.sleep(x)
    return x


def returns_and_lengths(columns, bounds):
    import numpy as np

    return np.stack([np.add.reduceat(columns["rewards"], bounds[:-1]), np.diff(bounds)], axis=1)


def refuses_short_ones(columns, bounds):
    import numpy as np

    if (np.diff(bounds) < 8).any():
        raise ArithmeticError("too short")
    return np.diff(bounds)
