"""Messages to and from a worker, and how a command is run; shared by every transport."""

from __future__ import annotations

import contextlib
import functools
import itertools
import mmap
import os
import pickle
import socket
import struct
import time
import traceback
import zlib
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import cloudpickle

from metaroll.errors import NotPicklableError, RolloutError
from metaroll.processes.endings import shortened

if TYPE_CHECKING:
    from metaroll.seeding import GlobalStream

__all__ = [
    "BeatReader",
    "BeatWriter",
    "Buffer",
    "Event",
    "FrameError",
    "GlobalNamespace",
    "Incoming",
    "Message",
    "RemoteFailure",
    "call_numbered",
    "decode",
    "encode_command",
    "heartbeat_of",
    "packed",
    "run_command",
    "seed_worker",
    "send_some",
]

Buffer = bytes | bytearray | memoryview

_MAGIC, _END, _VERSION = b"mrol", b"lorm", 1
_HEAD = struct.Struct("<4sBBIIIQ")
"""Magic, version, kind, process of the sender, number of the command, number of parts, and length of the first; then a
CRC of these, where there are more parts their lengths (8 bytes each) and a CRC, the parts, and an end: bytes of others
in between do not go unseen."""

_CHECK = struct.Struct("<I")
_FOOT = struct.Struct("<4sI")

_MOST_PARTS = 1 << 20

_KINDS = ("command", "ok", "error")

_LARGE = 1 << 15
"""Arrays of at least this many bytes are separate parts, which are not copied; for smaller ones a copy costs less."""

_MOST_VIEWS = 64
"""Parts that are handed to the operating system at a time."""

_MOST_OF_ERROR = 1 << 20
"""Bytes of an exception that travel; of a longer one its words."""

_BEAT = struct.Struct("@dq")  # native: each number is a single store, so that the parent never reads half of one
_PHASES = ("start", "idle", "call", "reset", "step", "send")


class GlobalNamespace:
    """Empty object, one per worker, first argument of every function that runs there; set attributes on it freely."""

    _random_stream: GlobalStream | None = None
    """The stream that ``seed_worker`` has put here."""

    def __init__(self, heartbeat: Callable[[str], None] | None = None) -> None:
        self._heartbeat = heartbeat  # ``None`` in the caller's own process

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"nothing called {name!r} has been stored in this worker's namespace; set it with invoke_all first, and "
            "again after a worker was replaced (see SamplerPool.describe_workers()), or with SamplerPool.keep, "
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


class FrameError(ConnectionError):
    """Received bytes are no message of the process that should have sent them."""


class Message(NamedTuple):
    """``kind``, ``number`` of the command that it is, or answers, and ``parts``."""

    kind: str
    number: int
    parts: list[Buffer]


def packed(kind: str, number: int, parts: Sequence[Buffer]) -> list[memoryview]:
    """The bytes of a message of this process, which has at least one part."""
    views = [memoryview(part).cast("B") for part in parts]
    first, *more = [view.nbytes for view in views]
    head = _HEAD.pack(_MAGIC, _VERSION, _KINDS.index(kind), os.getpid(), number, len(parts), first)
    begin = head + _CHECK.pack(zlib.crc32(head))
    if more:
        lengths = struct.pack(f"<{len(more)}Q", *more)
        begin += lengths + _CHECK.pack(zlib.crc32(lengths))
    return [memoryview(begin), *(view for view in views if view.nbytes), memoryview(_FOOT.pack(_END, number))]


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
    """Messages that come in over a socket, each part into its own memory.

    Args:
        connection: The socket.
        sender: Number of the process at its other end.
    """

    def __init__(self, connection: socket.socket, sender: int) -> None:
        self._connection, self._sender = connection, sender
        self._begin()

    def receive(self) -> Message:
        """The next message; with a non-blocking socket, an incomplete message is kept.

        Raises:
            BlockingIOError: Not all of it is there yet.
            EOFError: The other side has closed.
            FrameError: It is not a message of the sender.
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
        self._parts = _parts_of_message(self._sender)
        self._space = memoryview(next(self._parts))


def _parts_of_message(sender: int) -> Generator[bytearray, None, Message]:
    """Room for each part of a message, to be filled before the next is requested."""
    head = bytearray(_HEAD.size + _CHECK.size)
    yield head
    magic, version, kind, process, number, count, first = _HEAD.unpack_from(head)
    if magic != _MAGIC or version != _VERSION or not _checks(head) or kind >= len(_KINDS):
        raise FrameError("it does not begin as messages do")
    if process != sender:
        raise FrameError(f"process {process} has sent it, not {sender}")
    if not 0 < count <= _MOST_PARTS:
        raise FrameError(f"it has {count:,} parts")
    sizes: tuple[int, ...] = (first,)
    if count > 1:
        lengths = bytearray(8 * (count - 1) + _CHECK.size)
        yield lengths
        if not _checks(lengths):
            raise FrameError("its lengths are damaged")
        sizes += struct.unpack_from(f"<{count - 1}Q", lengths)
    if sum(sizes) > _most_bytes():
        raise FrameError(f"it is {sum(sizes):,} bytes long, more than this machine's memory")
    parts: list[Buffer] = []
    for size in sizes[:-1]:
        part = bytearray(size)
        yield part
        parts.append(part)
    last = bytearray(sizes[-1] + _FOOT.size)  # with the end: a call of the system less
    yield last
    if last[sizes[-1] :] != _FOOT.pack(_END, number):
        raise FrameError("it does not end as messages do")
    parts.append(memoryview(last)[: sizes[-1]])
    return Message(_KINDS[kind], number, parts)


def _checks(data: bytearray) -> bool:
    """Whether the CRC at the end is that of the bytes before it."""
    content = memoryview(data)[: -_CHECK.size]
    return zlib.crc32(content) == _CHECK.unpack_from(data, len(content))[0]


@functools.cache
def _most_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class BeatWriter:
    """The worker's heartbeat: time and phase in a page of memory that the parent reads; costs no message."""

    def __init__(self, fd: int) -> None:
        # Views, since this is called at every step: writing through them takes a third of the time of struct.
        self._write_to(mmap.mmap(fd, mmap.PAGESIZE))
        # A surviving fork must not make this process seem alive.
        os.register_at_fork(after_in_child=lambda: self._write_to(bytearray(_BEAT.size)))

    def _write_to(self, memory: mmap.mmap | bytearray) -> None:
        page = memoryview(memory)[: _BEAT.size]
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
        """Phase and time (``time.monotonic``, one clock for all processes of a machine) of the last heartbeat."""
        moment, phase = _BEAT.unpack_from(self._page)
        return _PHASES[phase if 0 <= phase < len(_PHASES) else 0], moment

    def close(self) -> None:
        self._page.close()


def encode_command(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], what: str, hint: str = ""
) -> bytes:
    """A command as bytes.

    Args:
        func: The function to call.
        args: Arguments.
        kwargs: More arguments.
        what: The name in errors.
        hint: A further hint for errors.

    Raises:
        NotPicklableError: Something in it cannot be sent; names ``what`` and the hint.
    """
    try:
        return cloudpickle.dumps((func, args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise NotPicklableError(
            f"{what} cannot be sent to a worker: {type(error).__name__}: {error}. Pass a function that builds it (e.g. "
            "an environment's constructor instead of an instance), and keep open files, locks and viewers out of it"
            f"{hint}"
        ) from error


def heartbeat_of(namespace: GlobalNamespace) -> Callable[[str], None] | None:
    """The function to which a long function of the engine reports its phase; ``None`` if there is none."""
    return namespace._heartbeat


def run_command(namespace: GlobalNamespace, blob: Buffer) -> tuple[str, list[Buffer]]:
    """Run an encoded command; ``("ok" | "error", parts of the payload)``.

    In a worker process the parts may be memory of the result itself: send them before anything else is run.

    Every exception becomes a payload, ``SystemExit`` too. Only Ctrl-C in the caller's own process passes.
    """
    in_worker = namespace._heartbeat is not None
    try:
        func, args, kwargs = pickle.loads(blob)  # between our own processes only
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
        return "error", [_encode_failure(error)]  # workers ignore the signal, so the function itself has raised it
    except BaseException as error:
        return "error", [_encode_failure(error)]


def seed_worker(namespace: GlobalNamespace, seed: int | None) -> None:
    """From now on functions of this worker draw from a seeded stream where they use global generators.

    It continues from call to call, and is in place while a function runs only: in the serial pool the caller's own
    generators stay unchanged. ``None`` ends that.
    """
    from metaroll.seeding import GlobalStream, effective_seed  # loads torch, which not every worker needs

    namespace._random_stream = None if seed is None else GlobalStream(effective_seed(seed))


def call_numbered(namespace: Any, command: bytes, number: int) -> tuple[Any, int]:
    """Run an encoded command with ``number`` as its first argument; it must return ``(result, count)``.

    Raises:
        TypeError: It returned something else.
        ValueError: The count is negative.
    """
    func, args, kwargs = pickle.loads(command)  # between our own processes only
    result = func(namespace, number, *args, **kwargs)
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"{func!r} must return (result, number of samples), got {type(result).__name__}")
    count = result[1]
    if isinstance(count, bool) or not isinstance(count, SupportsIndex):
        raise TypeError(f"{func!r} must return a whole number of samples as second value, got {count!r}")
    number_of_samples = int(count)
    if number_of_samples < 0:
        raise ValueError(f"{func!r} must not return a negative number of samples, got {count}")
    return result[0], number_of_samples


def _encode_result(result: Any, in_place: bool) -> list[Buffer]:
    """As a pickle, followed by its large arrays, which are not copied (``in_place``), or are part of the pickle."""
    arrays: list[Buffer] = []

    def stays_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        memory = buffer.raw()
        if memory.nbytes >= _LARGE:
            arrays.append(memory)
        return memory.nbytes < _LARGE

    options = {"protocol": pickle.HIGHEST_PROTOCOL, "buffer_callback": stays_in_pickle if in_place else None}
    try:
        return [pickle.dumps(result, **options), *arrays]
    except Exception:  # what only cloudpickle can send (a class of the user's script) costs several times more
        arrays.clear()
        return [cloudpickle.dumps(result, **options), *arrays]


def _encode_failure(error: BaseException) -> bytes:
    text = shortened("".join(traceback.format_exception(error)))
    summary = shortened(f"{type(error).__name__}: {error}")
    nameless = RemoteFailure(None, summary, text)
    if not isinstance(error, Exception):  # a SystemExit must not end the parent
        return cloudpickle.dumps(nameless)
    # The traceback travels as text: frames cannot be pickled and would hold the worker's memory.
    bare = error.with_traceback(None)
    bare.__cause__ = bare.__context__ = None
    try:
        bare.args = tuple(shortened(value) if isinstance(value, str) else value for value in bare.args)
        if notes := vars(bare).get("__notes__"):
            bare.__notes__ = [shortened(str(note)) for note in notes]
        payload = cloudpickle.dumps(RemoteFailure(bare, summary, text))
        pickle.loads(payload)  # some exceptions pickle but do not unpickle
    except Exception:
        return cloudpickle.dumps(nameless)
    # Errors of rollouts contain their plans, which may hold a policy's parameters.
    return payload if len(payload) < _MOST_OF_ERROR or isinstance(error, RolloutError) else cloudpickle.dumps(nameless)


def decode(parts: Sequence[Buffer]) -> Any:
    """The decoded result of ``run_command``; arrays keep the parts that they arrived in."""
    return pickle.loads(parts[0], buffers=parts[1:])  # between our own processes only
