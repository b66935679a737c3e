"""Functions that tests run in child processes. They import nothing that takes long."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

DAEMON = """
import os, signal, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(60)
"""


def daemon(path, environment=None):
    """A process in a session of its own, whose parents are gone; its number is appended to the file."""
    subprocess.run([sys.executable, "-I", "-S", "-c", DAEMON, path], env=environment, check=True)


def started(path, pids=()):
    with open(path, "a") as file:
        file.write("".join(f"{pid}\n" for pid in [*pids, os.getpid()]))


def with_daemons():
    """Starts daemons, one with an empty environment, and waits."""
    _, path, how = sys.argv
    daemon(path)
    daemon(path, {})
    started(path, [subprocess.Popen(["sleep", "60"], start_new_session=True, env={}).pid])
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "lock":
        re.match(r"(a+)+$", "a" * 60 + "b")  # keeps Python's lock
    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


def parent():
    """Has a child that starts daemons, ends at once or in order, and waits."""
    from metaroll.processes import children
    from metaroll.processes.children import ChildProcess, guard_pid

    children.GRACE_SECONDS = 0.5  # of the guard
    _, path, how, at_once = sys.argv
    ChildProcess("process_programs:with_daemons", [path, how], at_once=at_once == "at once")
    started(path, [guard_pid()])
    time.sleep(60)


def say():
    """Says its arguments, and exits with the status that the first one is."""
    print(*sys.argv[1:], sep="\n", flush=True)
    return int(sys.argv[1])


def in_order():
    """Waits, and says that it was told to end."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit("told to end"))
    print("ready", flush=True)
    time.sleep(60)


def killed():
    print("epoch 1/2\nlast line\nhalf a li", end="", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
