"""Frames of messages: what does not fit is seen, whatever it is, and before memory is taken for it."""

from __future__ import annotations

import os
import socket
import struct
import tracemalloc
import zlib

import numpy as np
import pytest

from metaroll.rollouts.workers import messages
from metaroll.rollouts.workers.messages import FrameError, Incoming, packed


def received(data: bytes, sender: int | None = None) -> messages.Message:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(data)
        theirs.close()
        return Incoming(ours, os.getpid() if sender is None else sender).receive()


def frame(*parts: bytes, kind: str = "ok", number: int = 7) -> bytes:
    return b"".join(packed(kind, number, parts))


def head(count: int, sizes: list[int]) -> bytes:
    fixed = messages._HEAD.pack(b"mrol", 1, 1, os.getpid(), 7, count, sizes[0])
    lengths = struct.pack(f"<{len(sizes) - 1}Q", *sizes[1:])
    begin = fixed + struct.pack("<I", zlib.crc32(fixed))
    return begin + lengths + struct.pack("<I", zlib.crc32(lengths)) if sizes[1:] else begin


def test_a_message_comes_as_it_was_sent() -> None:
    array = np.arange(6.0)
    kind, number, parts = received(b"".join(packed("error", 3, [b"abc", b"", memoryview(array)])))
    assert (kind, number, [bytes(part) for part in parts]) == ("error", 3, [b"abc", b"", array.tobytes()])


def test_any_byte_that_is_changed_in_the_frame_is_seen() -> None:
    for data in (frame(b"12345678"), frame(b"12345678", b"87654321")):
        payload = data.index(b"12345678")
        size = 8 if b"87654321" not in data else 16
        for place in [*range(payload), *range(payload + size, len(data))]:
            with pytest.raises((FrameError, EOFError, BlockingIOError)):
                received(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])


@pytest.mark.parametrize("where", ["before", "in the head", "in the payload", "before the end"])
def test_bytes_in_between_are_seen(where: str) -> None:
    data = frame(b"12345678")
    payload = data.index(b"12345678")
    place = {"before": 0, "in the head": 9, "in the payload": payload + 3, "before the end": payload + 8}[where]
    for count in (1, 5, 64):
        with pytest.raises((FrameError, EOFError)):
            received(data[:place] + b"\xa5" * count + data[place:])


def test_a_message_of_another_process_is_refused() -> None:
    with pytest.raises(FrameError, match=f"process {os.getpid()} has sent it, not 1$"):
        received(frame(b"x"), sender=1)


def test_nothing_is_allocated_for_what_cannot_be() -> None:
    tracemalloc.start()
    for data, text in (
        (head(2**31, [1]), "2,147,483,648 parts"),
        (head(2, [5, 2**60]), "this machine's memory"),
        (head(1, [2**60]), "this machine's memory"),
    ):
        with pytest.raises(FrameError, match=text):
            received(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6
