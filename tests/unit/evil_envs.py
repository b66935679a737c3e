"""Environments that do to their process, once, what no environment should; imported by the workers, too."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import numpy as np
from engine_envs import Drift

from metaroll.rollouts.workers import messages
from metaroll.types import EnvUpdate, RolloutPlan

SLEEPER = f"600.{os.getppid()}"
"""How long a process sleeps that an environment has started in a worker of that process: tells it from others."""


class Evil(Drift):
    """Does what ``kind`` says at one step, where ``marker`` does not exist yet; else it is a ``Drift``."""

    def __init__(self, kind: str, at_step: int, marker: str):
        super().__init__(end=0.0)
        self.kind, self.at_step, self.marker = kind, at_step, marker

    def step(self, action):
        due = self._t == self.at_step and not os.path.exists(self.marker)
        if due:
            Path(self.marker).touch()
            DEEDS[self.kind]()
        out = super().step(action)
        if due and self.kind == "nan":
            out[0][1] = np.nan
        return out


class MakeEvil(EnvUpdate):
    """Puts such an environment in the place of the given one."""

    def __init__(self, kind: str, at_step: int, marker: Path):
        self.kind, self.at_step, self.marker = kind, at_step, str(marker)

    def __call__(self, old_env=None):
        return Evil(self.kind, self.at_step, self.marker)


class EvilPlans:
    """Plans of which one (``None``: none) has such an environment."""

    def __init__(self, number: int, troubled: int | None, update: MakeEvil):
        self.number, self.troubled, self.update = number, troubled, update

    def __call__(self, n: int) -> RolloutPlan:
        return RolloutPlan(n, (7, self.number, n), self.update if n == self.troubled else None, max_steps=40)


# -- the usual -----------------------------------------------------------------------------------------------------


def fail(error: type[BaseException]) -> None:
    raise error("the motor is on fire")


def crash() -> None:
    ctypes.string_at(0)


def sleeper(**environment: dict[str, str]) -> None:
    subprocess.Popen(["sleep", SLEEPER], start_new_session=True, **environment)


def leave_sleepers() -> None:
    """One in a session of its own, one without an environment, one whose parent is gone."""
    sleeper()
    sleeper(env={})
    if (child := os.fork()) == 0:
        sleeper(env={})
        os._exit(0)
    os.waitpid(child, 0)


def leave_sleepers_and_die() -> None:
    leave_sleepers()
    os.kill(os.getpid(), signal.SIGKILL)


USUAL = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "exit": lambda: os._exit(3),
    "segfault": crash,
    "hang": lambda: time.sleep(600),
    "exception": lambda: fail(ArithmeticError),
    "memory error": lambda: fail(MemoryError),
    "sys.exit": lambda: fail(SystemExit),
    "nan": lambda: None,
}
RAISES = ("exception", "memory error", "sys.exit", "nan")


# -- the evil ------------------------------------------------------------------------------------------------------


def connections() -> list[int]:
    """Sockets that this process has inherited."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(int(name))
        except OSError:
            continue
    return found


def write(data: bytes) -> None:
    for descriptor in connections():
        os.write(descriptor, data)


def garbage_everywhere() -> None:
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2:
                os.write(int(name), b"\xa5" * 64)
        except OSError:
            continue


def both_go_on() -> None:
    os.fork()


def only_the_fork_goes_on() -> None:
    if os.fork():
        os._exit(0)


def fork_goes_on_in_a_thread_of_its_own() -> None:
    if os.fork() == 0:
        os.setsid()


def close_connection() -> None:
    for descriptor in connections():
        os.close(descriptor)


def reuse_descriptors() -> None:
    os.closerange(3, 4096)
    global kept
    kept = [socket.socketpair() for _ in range(4)]


kept: list[tuple[socket.socket, socket.socket]] = []


def number_now() -> int:
    """Of the command that this worker runs."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and "worker_main" not in frame.f_code.co_filename:
        frame = frame.f_back
    assert frame is not None
    return frame.f_locals["number"]


def answer(number: int, parts: list[bytes], pid: int | None = None) -> bytes:
    """A whole message, as if ``pid`` had sent it."""
    real = os.getpid
    try:
        os.getpid = lambda: pid or real()  # type: ignore[assignment]
        return b"".join(messages.packed("ok", number, parts))
    finally:
        os.getpid = real


def partial_answer() -> None:
    write(answer(number_now(), [b"x" * 1000])[:500])
    os._exit(0)


def steal() -> None:
    """Reads what comes, as a library might that has got a descriptor of another process."""
    duplicates = [socket.socket(fileno=os.dup(descriptor)) for descriptor in connections()]
    for duplicate in duplicates:
        threading.Thread(target=duplicate.recv, args=(64,), daemon=True).start()


def fill(descriptor: int) -> None:
    """Write into a pipe that nobody reads, until somebody does."""
    while True:
        os.write(descriptor, b"x" * 65536)


EVIL = {
    "both go on after a fork": both_go_on,
    "only the fork goes on": only_the_fork_goes_on,
    "the fork goes on in another session": fork_goes_on_in_a_thread_of_its_own,
    "garbage on the socket": lambda: write(b"\xa5" * 64),
    "some bytes on the socket": lambda: write(b"mro"),
    "garbage on all descriptors": garbage_everywhere,
    "a head without an end": lambda: write(messages._HEAD.pack(b"mrol", 1, 1, os.getpid(), 1, 2**31, 1)),
    "children of setsid": leave_sleepers,
    "children of setsid, then death": leave_sleepers_and_die,
    "the socket is closed": close_connection,
    "all descriptors are closed": lambda: os.closerange(3, 4096),
    "all descriptors are others": reuse_descriptors,
    "a part of an answer, then death": partial_answer,
    "an answer of another process": lambda: write(answer(number_now(), [b"\x80\x05K\x01."], os.getpid() + 1)),
    "an answer twice": lambda: write(answer(number_now() - 1, [b"\x80\x05K\x01."])),
    "an answer to come": lambda: write(answer(number_now() + 1, [b"\x80\x05K\x01."])),
    "an answer that is no pickle": lambda: write(answer(number_now(), [b"\xff" * 100])),
    "somebody reads the socket": steal,
}
DEEDS = {**USUAL, **EVIL, "fill": lambda: fill(1)}
