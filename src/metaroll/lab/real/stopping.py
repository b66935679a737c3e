"""Ways to stop a device: a key, a watchdog, and the end of the program."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import sys
import termios
import threading
import tty
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, final

import numpy as np

from metaroll.errors import DeviceError

__all__ = ["StopKey", "Watchdog", "stop_all", "stop_at_exit", "stop_for_sure"]

_ATTEMPTS = 3
"""Number of attempts to stop a device before that counts as failed."""


class _Stoppable(Protocol):
    def halt(self, reason: str = ...) -> None: ...


@final
class StopKey:
    """A key press as emergency stop: ``with StopKey() as key: RealEnv(..., stop_when=[key])``.

    Inside the context, the terminal delivers keys at once and does not echo them.

    Args:
        keys: Any of these keys stops the device.
        stream: The terminal; ``None`` means standard input.
    """

    def __init__(self, keys: str = " q", stream: Any = None) -> None:
        self._keys, self._stream = keys, sys.stdin if stream is None else stream
        self._before: Any = None

    def __enter__(self) -> StopKey:
        """Start to listen.

        Raises:
            ValueError: There is no terminal.
        """
        if not self._stream.isatty():
            raise ValueError("StopKey needs a terminal: run the program in one, or pass another function as stop_when")
        self._before = termios.tcgetattr(self._stream)
        tty.setcbreak(self._stream)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            termios.tcsetattr(self._stream, termios.TCSADRAIN, self._before)
            self._before = None

    def __call__(self, observation: np.ndarray) -> str:
        """Which key was pressed since the last call, in words; empty for none."""
        if self._before is None:
            return ""
        while select.select([self._stream], [], [], 0.0)[0]:
            key = os.read(self._stream.fileno(), 1).decode(errors="replace")
            if not key:
                return ""
            if key in self._keys:
                return f"the key {key!r} was pressed"
        return ""


@final
class Watchdog:
    """Calls a function in its own thread unless it is fed in time.

    Args:
        seconds: Timeout; ``None``: never calls.
        bark: Function to call once, with the watchdog.
    """

    def __init__(self, seconds: float | None, bark: Callable[[Watchdog], None]) -> None:
        self._seconds, self._bark = seconds, bark
        self._changed = threading.Condition()
        self._fed, self._done = False, False
        if seconds is not None:
            threading.Thread(target=self._watch, name="metaroll-watchdog", daemon=True).start()

    def feed(self) -> None:
        """Restart the timeout."""
        with self._changed:
            self._fed = True
            self._changed.notify()

    def cancel(self) -> None:
        """Stop watching."""
        with self._changed:
            self._done = True
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._fed or self._done, self._seconds)
                if self._done:
                    return
                if self._fed:
                    self._fed = False
                    continue
                self._done = True
            self._bark(self)
            return


def stop_for_sure(stop: Callable[[], None], name: str) -> None:
    """Call ``stop`` until it succeeds, despite interrupts; an interrupt is raised afterwards.

    Raises:
        DeviceError: It fails repeatedly.
    """
    failure: Exception | None = None
    interrupt: BaseException | None = None
    for _ in range(_ATTEMPTS):
        try:
            stop()
            failure = None
            break
        except Exception as error:
            failure = error
        except BaseException as error:  # Ctrl-C must not prevent it
            interrupt = error
    if failure is not None:
        raise DeviceError(
            f"THE STOP ACTION COULD NOT BE SENT to {name} ({failure}); switch it off by hand"
        ) from failure
    if interrupt is not None:
        raise interrupt


_ACTING: weakref.WeakSet[Any] = weakref.WeakSet()
"""Devices to stop when the program ends."""


def stop_at_exit(device: _Stoppable) -> None:
    """Halt ``device`` when the interpreter ends, if it still exists then."""
    _ACTING.add(device)


@atexit.register
def stop_all() -> None:
    """Halt all devices registered by ``stop_at_exit``."""
    for device in list(_ACTING):
        with contextlib.suppress(Exception):
            device.halt("the program has ended")
