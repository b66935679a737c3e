"""What goes to and from a worker, and how a command is run; shared by every transport."""

from __future__ import annotations

import contextlib
import mmap
import pickle
import struct
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle

from metaroll.errors import NotPicklableError

__all__ = [
    "HEADER",
    "BeatReader",
    "BeatWriter",
    "Event",
    "RemoteFailure",
    "call_numbered",
    "decode",
    "encode_command",
    "run_command",
    "seed_worker",
]

HEADER = struct.Struct("<Q")
"""Length of the message that follows."""

_BEAT = struct.Struct("@dq")  # native: each number is one store, so that the parent never reads half of one
_STREAM = "_random_stream"
"""Where a namespace keeps the stream that ``seed_worker`` has put there."""
_PHASES = ("start", "idle", "call", "reset", "step", "send")


class Event(NamedTuple):
    """``kind`` is ``ok`` (payload: pickled result), ``error`` (pickled ``RemoteFailure``) or ``lost`` (text)."""

    worker: int
    kind: str
    payload: Any


class RemoteFailure(NamedTuple):
    """An exception on its way back; ``error`` is ``None`` if it cannot be pickled."""

    error: BaseException | None
    summary: str
    traceback: str


class BeatWriter:
    """The worker's heartbeat: time and phase in a page of memory that the parent reads; costs no message."""

    def __init__(self, fd: int) -> None:
        # Views, since this is called at every step: writing through them takes a third of the time of struct.
        page = memoryview(mmap.mmap(fd, mmap.PAGESIZE))[: _BEAT.size]
        self._moment, self._phase = page.cast("d"), page.cast("q")
        self._last = ""

    def __call__(self, phase: str) -> None:
        self._moment[0] = time.monotonic()
        if phase != self._last:
            self._phase[1] = _PHASES.index(phase)
            self._last = phase


class BeatReader:
    """The parent's side of ``BeatWriter``."""

    def __init__(self, fd: int) -> None:
        self._page = mmap.mmap(fd, mmap.PAGESIZE)

    def read(self) -> tuple[str, float]:
        """Phase and time (``time.monotonic``, one clock for all processes of a machine) of the last beat."""
        moment, phase = _BEAT.unpack_from(self._page)
        return _PHASES[phase if 0 <= phase < len(_PHASES) else 0], moment

    def close(self) -> None:
        self._page.close()


def encode_command(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], what: str, hint: str = ""
) -> bytes:
    """A command as bytes.

    Args:
        func: What to call.
        args: Arguments.
        kwargs: More arguments.
        what: What an error names.
        hint: What else an error may advise.

    Raises:
        NotPicklableError: Something in it cannot be sent; names ``what`` and the hint.
    """
    try:
        return cloudpickle.dumps((func, args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise NotPicklableError(
            f"{what} cannot be sent to a worker: {type(error).__name__}: {error}. Pass a function that builds it (an "
            "environment's constructor instead of an instance, say), and keep open files, locks and viewers out of it"
            f"{hint}"
        ) from error


def run_command(namespace: Any, blob: bytes, beat: Callable[[str], None] | None) -> tuple[str, bytes]:
    """Run an encoded command; ``("ok" | "error", pickled payload)``.

    Whatever is raised becomes a payload, ``SystemExit`` too. Only Ctrl-C in this process (``beat`` is ``None``) passes.
    """
    try:
        func, args, kwargs = pickle.loads(blob)  # look: ok between our own processes only
        if getattr(func, "wants_beat", False):
            kwargs = {**kwargs, "beat": beat}
        stream = vars(namespace).get(_STREAM)
        with contextlib.nullcontext() if stream is None else stream.active():
            result = func(namespace, *args, **kwargs)
        try:
            return "ok", _encode_result(result)
        except Exception as error:
            raise NotPicklableError(f"the result of {func!r} cannot be sent back: {error}") from error
    except KeyboardInterrupt as error:
        if beat is None:
            raise
        return "error", _encode_failure(error)  # workers ignore the signal: the function has raised it by itself
    except BaseException as error:
        return "error", _encode_failure(error)


def seed_worker(namespace: Any, seed: int | None) -> None:
    """From now on functions of this worker draw from a seeded stream where they use global generators.

    It goes on from call to call, and is in place while a function runs only: in the serial pool the caller's own
    generators stay as they are. ``None`` ends that.
    """
    from metaroll.seeding import GlobalStream, effective_seed  # loads torch, which not every worker needs

    vars(namespace)[_STREAM] = None if seed is None else GlobalStream(effective_seed(seed))


def call_numbered(namespace: Any, command: bytes, number: int) -> tuple[Any, int]:
    """Run an encoded command with ``number`` as its first argument; it must return ``(result, count)``.

    Raises:
        TypeError: It returned something else.
        ValueError: The count is negative.
    """
    func, args, kwargs = pickle.loads(command)  # look: ok between our own processes only
    result = func(namespace, number, *args, **kwargs)
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"{func!r} must return (result, number of samples), got {type(result).__name__}")
    count = result[1]
    if isinstance(count, bool) or not hasattr(count, "__index__"):
        raise TypeError(f"{func!r} must return a whole number of samples as second value, got {count!r}")
    if count < 0:
        raise ValueError(f"{func!r} must not return a negative number of samples, got {count}")
    return result[0], int(count)


def _encode_result(result: Any) -> bytes:
    """As bytes; what only cloudpickle can send (a class of the user's script) costs several times more."""
    try:
        return pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        return cloudpickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)


def _encode_failure(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(error))
    summary = f"{type(error).__name__}: {error}"
    if not isinstance(error, Exception):  # a SystemExit must not end the parent
        return cloudpickle.dumps(RemoteFailure(None, summary, text))
    # The traceback travels as text: frames cannot be pickled and would hold the worker's memory.
    bare = error.with_traceback(None)
    bare.__cause__ = bare.__context__ = None
    try:
        payload = cloudpickle.dumps(RemoteFailure(bare, summary, text))
        pickle.loads(payload)  # look: ok some exceptions pickle but do not unpickle
        return payload
    except Exception:
        return cloudpickle.dumps(RemoteFailure(None, summary, text))


def decode(payload: bytes) -> Any:
    """What ``run_command`` encoded."""
    return pickle.loads(payload)  # look: ok between our own processes only
