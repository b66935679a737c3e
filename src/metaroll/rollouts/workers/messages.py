"""What goes to and from a worker, and how a command is run; shared by every transport."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import pickle
import socket
import struct
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle

from metaroll.errors import NotPicklableError

if TYPE_CHECKING:
    from metaroll.seeding import GlobalStream

__all__ = [
    "BeatReader",
    "BeatWriter",
    "Buffer",
    "Event",
    "GlobalNamespace",
    "Incoming",
    "RemoteFailure",
    "call_numbered",
    "decode",
    "encode_command",
    "heartbeat",
    "packed",
    "run_command",
    "seed_worker",
    "send_some",
]

Buffer = bytes | bytearray | memoryview

_PREFIX = struct.Struct("<BI")
"""Kind of a message, and the number of its parts, whose lengths (8 bytes each) and contents follow."""

_KINDS = ("command", "ok", "error")

_LARGE = 1 << 15
"""Arrays of so many bytes are parts of their own, which nobody copies; for smaller ones a copy costs less."""

_MOST_VIEWS = 64
"""Parts that are handed to the operating system at a time."""

_BEAT = struct.Struct("@dq")  # native: each number is one store, so that the parent never reads half of one
_PHASES = ("start", "idle", "call", "reset", "step", "send")


class GlobalNamespace:
    """Empty object, one per worker, first argument of every function that runs there; set attributes on it freely."""

    _random_stream: GlobalStream | None = None
    """What ``seed_worker`` has put here."""

    def __init__(self, heartbeat: Callable[[str], None] | None = None) -> None:
        self._heartbeat = heartbeat  # ``None`` in the caller's own process

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"nothing called {name!r} has been stored in this worker's namespace; set it with invoke_all first, and "
            "again after a worker was replaced (SamplerPool.describe_workers() tells), or with SamplerPool.keep, "
            "which does so by itself"
        )


class Event(NamedTuple):
    """``kind`` is ``ok`` (payload: parts of a result), ``error`` (of a ``RemoteFailure``) or ``lost`` (text)."""

    worker: int
    kind: str
    payload: Any


class RemoteFailure(NamedTuple):
    """An exception on its way back; ``error`` is ``None`` if it cannot be pickled."""

    error: BaseException | None
    summary: str
    traceback: str


def packed(kind: str, parts: Sequence[Buffer]) -> list[memoryview]:
    """A message as it is sent: kind, lengths of its parts, parts."""
    sizes = [memoryview(part).nbytes for part in parts]
    head = _PREFIX.pack(_KINDS.index(kind), len(parts)) + struct.pack(f"<{len(sizes)}Q", *sizes)
    return [memoryview(head), *(memoryview(part).cast("B") for part in parts if len(part))]


def send_some(connection: socket.socket, views: deque[memoryview]) -> None:
    """Send as much of the views as fits at once, straight from their memory, and take it out of the queue."""
    sent = connection.sendmsg(list(itertools.islice(views, _MOST_VIEWS)))
    while sent:
        view = views.popleft()
        if sent < view.nbytes:
            views.appendleft(view[sent:])
            return
        sent -= view.nbytes


class Incoming:
    """Messages that come in over a socket, each part into memory of its own."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._begin()

    def receive(self) -> tuple[str, list[Buffer]]:
        """Kind and parts of the next message; with a non-blocking socket, what has come of it is kept.

        Raises:
            BlockingIOError: Not all of it is there yet.
            EOFError: The other side has closed.
        """
        while True:
            while self._space:
                count = self._connection.recv_into(self._space)
                if not count:
                    raise EOFError
                self._space = self._space[count:]
            try:
                self._space = memoryview(next(self._parts))
            except StopIteration as done:
                self._begin()
                return done.value

    def _begin(self) -> None:
        self._parts = _parts_of_message()
        self._space = memoryview(next(self._parts))


def _parts_of_message() -> Generator[bytearray, None, tuple[str, list[Buffer]]]:
    """Room for each part of a message, to be filled before the next is asked for."""
    prefix = bytearray(_PREFIX.size)
    yield prefix
    kind, count = _PREFIX.unpack(prefix)
    sizes = bytearray(8 * count)
    yield sizes
    parts: list[Buffer] = []
    for size in struct.unpack(f"<{count}Q", sizes):
        part = bytearray(size)
        yield part
        parts.append(part)
    return _KINDS[kind], parts


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


def heartbeat(namespace: GlobalNamespace) -> Callable[[str], None] | None:
    """What a long function of the engine tells what it is doing; ``None`` where nobody listens."""
    return namespace._heartbeat


def run_command(namespace: GlobalNamespace, blob: Buffer) -> tuple[str, list[Buffer]]:
    """Run an encoded command; ``("ok" | "error", parts of the payload)``.

    In a worker process the parts may be memory of the result itself: send them before anything else is run.

    Whatever is raised becomes a payload, ``SystemExit`` too. Only Ctrl-C in the caller's own process passes.
    """
    in_worker = namespace._heartbeat is not None
    try:
        func, args, kwargs = pickle.loads(blob)  # look: ok between our own processes only
        stream = namespace._random_stream
        with contextlib.nullcontext() if stream is None else stream.active():
            result = func(namespace, *args, **kwargs)
        try:
            return "ok", _encode_result(result, in_place=in_worker)
        except Exception as error:
            raise NotPicklableError(f"the result of {func!r} cannot be sent back: {error}") from error
    except KeyboardInterrupt as error:
        if not in_worker:
            raise
        return "error", [_encode_failure(error)]  # workers ignore the signal: the function has raised it by itself
    except BaseException as error:
        return "error", [_encode_failure(error)]


def seed_worker(namespace: GlobalNamespace, seed: int | None) -> None:
    """From now on functions of this worker draw from a seeded stream where they use global generators.

    It goes on from call to call, and is in place while a function runs only: in the serial pool the caller's own
    generators stay as they are. ``None`` ends that.
    """
    from metaroll.seeding import GlobalStream, effective_seed  # loads torch, which not every worker needs

    namespace._random_stream = None if seed is None else GlobalStream(effective_seed(seed))


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


def _encode_result(result: Any, in_place: bool) -> list[Buffer]:
    """As a pickle, followed by its large arrays, which are not copied (``in_place``), or are part of the pickle."""
    arrays: list[Buffer] = []

    def stays_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        memory = buffer.raw()
        if memory.nbytes >= _LARGE:
            arrays.append(memory)
        return memory.nbytes < _LARGE

    given = {"protocol": pickle.HIGHEST_PROTOCOL, "buffer_callback": stays_in_pickle if in_place else None}
    try:
        return [pickle.dumps(result, **given), *arrays]
    except Exception:  # what only cloudpickle can send (a class of the user's script) costs several times more
        arrays.clear()
        return [cloudpickle.dumps(result, **given), *arrays]


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


def decode(parts: Sequence[Buffer]) -> Any:
    """What ``run_command`` encoded; arrays keep the parts that they arrived in."""
    return pickle.loads(parts[0], buffers=parts[1:])  # look: ok between our own processes only
