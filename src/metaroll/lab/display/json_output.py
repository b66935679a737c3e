"""Standard output that is one JSON document, whatever environments, libraries and workers print."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

__all__ = ["only_json", "print_json", "write_document"]

_WAITING: ContextVar[list[str] | None] = ContextVar("waiting", default=None)
"""The document to write at the end; ``None`` outside of ``only_json``."""


def print_json(values: Mapping[str, Any]) -> None:
    """Write ``values`` to standard output as one JSON document; inside ``only_json`` when that ends."""
    from metaroll.training.store.files import to_plain  # imports packages, which metaroll doctor may find missing

    write_document(to_plain(values))


def write_document(plain: Mapping[str, Any]) -> None:
    """Write plain JSON types as ``print_json`` does, using only the standard library."""
    text = json.dumps(plain, indent=2, allow_nan=False) + "\n"
    waiting = _WAITING.get()
    if waiting is not None:
        waiting[:] = [text]
    else:
        sys.stdout.write(text)
        sys.stdout.flush()


@contextlib.contextmanager
def only_json(*, for_good: bool) -> Iterator[None]:
    """Send all output to standard error, except for the document of ``print_json``: that goes to standard output.

    Descriptor 1 itself is redirected, so this includes C libraries and processes that are started inside. The document
    is written whole at the end, and not at all after an error.

    Args:
        for_good: The program is about to end: later output also goes to standard error.

    Raises:
        OSError: The document cannot be written.
    """
    before = sys.stdout
    _flush(before)
    kept = _duplicate(1)
    if kept is not None:
        _point_to_errors()
    waiting: list[str] = []
    token = _WAITING.set(waiting)
    sys.stdout = sys.stderr
    try:
        yield
        if waiting:
            _write(waiting[0], before, kept)
    finally:
        _WAITING.reset(token)
        _flush(before)  # code may have kept the old object and printed to it
        if not for_good:
            sys.stdout = before
            if kept is not None:
                os.dup2(kept, 1)
        if kept is not None:
            os.close(kept)


def _flush(stream: Any) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, full, or none at all
        stream.flush()


def _duplicate(descriptor: int) -> int | None:
    try:
        return os.dup(descriptor)  # not inherited by child processes
    except OSError:  # it is closed
        return None


def _point_to_errors() -> None:
    try:
        os.dup2(2, 1)
    except OSError:  # it is closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


def _write(text: str, stream: Any, kept: int | None) -> None:
    """Write to the original standard output: to its descriptor, or to the object if that has been replaced."""
    if stream is None:
        raise OSError(errno.EBADF, "the JSON cannot be written: standard output is closed")
    descriptor = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        descriptor = stream.fileno()
    if descriptor != 1 or kept is None:
        stream.write(text)
        stream.flush()
        return
    data = memoryview(text.encode())
    while data:
        data = data[os.write(kept, data) :]
