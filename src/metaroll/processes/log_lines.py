"""Output of a process in a file, read line by line while it grows, in bounded memory."""

from __future__ import annotations

import os
import stat
from collections import deque
from pathlib import Path
from typing import final

__all__ = ["LogLines", "open_log"]

_CHUNK = 2**16
_LONGEST = 4096
"""Bytes of a line that are kept."""

_MOST_NEW, _MOST_LAST = 1000, 30
"""Lines that are kept: those that were not read yet, and those of the end."""


def open_log(path: Path) -> int:
    """A descriptor that reads the file, and appends to it; it is made if there is none, and is never a link.

    Raises:
        OSError: It is a link, a pipe, or anything but a plain file.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(f"{path} is not a plain file, and so nothing is written into it")


@final
class LogLines:
    """Lines of a growing file; each byte is read once, and a line without an end costs no memory.

    A carriage return ends a line, too: so do bars of progress. In ``last`` the next line takes its place, as on a
    screen.

    Args:
        descriptor: Descriptor of the file, which is read from its current end on.
        progress: Prefixes of lines about progress; none: all lines are.

    Attributes:
        last: The last output, after the last line about progress.
    """

    def __init__(self, descriptor: int, progress: tuple[str, ...]) -> None:
        self.last: deque[str] = deque(maxlen=_MOST_LAST)
        self._file, self._progress = descriptor, tuple(text.encode() for text in progress)
        self._offset = os.fstat(descriptor).st_size
        self._new: deque[str] = deque(maxlen=_MOST_NEW)
        self._begun = b""
        """Of a line that has not ended."""
        self._overwritten = False
        """Whether the line that came last ended with a carriage return."""

    def new(self) -> list[str]:
        """Lines about progress since the last call; of very many the last."""
        while chunk := os.pread(self._file, _CHUNK, self._offset):
            self._offset += len(chunk)
            *ended, rest = chunk.replace(b"\r", b"\r\n").split(b"\n")
            for line in ended:
                self._take(self._begun + line)
                self._begun = b""
            # A carriage return at the cut stays after the kept text, so that it is known how the line ended.
            self._begun = (self._begun + rest)[:_LONGEST]
        new_lines = list(self._new)
        self._new.clear()
        return new_lines

    def words(self) -> str:
        """The last output, with a line that has not ended."""
        self.new()
        return "\n".join([*self.last, _text(self._begun)]).strip()

    def _take(self, line: bytes) -> None:
        returned = line.endswith(b"\r")
        line = line.rstrip(b"\r")[:_LONGEST]
        if not line and self._overwritten and not returned:  # \r\n: the line was not overwritten
            self._overwritten = False
            return
        if self._overwritten and self.last:
            self.last.pop()
        if self._progress and line.startswith(self._progress):
            self.last.clear()
            self._overwritten = False
        else:
            self.last.append(_text(line))
            self._overwritten = returned
        if line.startswith(self._progress or b""):
            self._new.append(_text(line))


def _text(line: bytes) -> str:
    return line.decode(errors="replace")
