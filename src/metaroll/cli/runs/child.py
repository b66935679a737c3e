"""A command in a process of its own that ends with its parent, and writes what it says to a file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Child"]

_GRACE_SECONDS = 30.0
_MOST_LINES = 30
_MOST_BYTES = 2**16
_PROGRESS = ("epoch ", "about ")


class Child:
    """A running command ``metaroll`` with ``arguments``.

    The process holds the other end of a pipe of this one. However this process ends, the pipe closes with it, and the
    child then ends in order. A file takes what the child says: nobody has to read it for the child to go on.

    Args:
        arguments: What a user would type behind ``metaroll``.
        folder: Folder of its run, which is made.
        log: File of its messages, to which it appends.
    """

    def __init__(self, arguments: Sequence[str], folder: Path, log: Path) -> None:
        self.folder = folder
        self.log = log
        folder.mkdir(parents=True, exist_ok=True)
        self._read_to = self._began_at = log.stat().st_size if log.exists() else 0
        # -P: modules are found as in this process, and not in the current folder first.
        command = (sys.executable, "-P", "-m", "metaroll.cli.runs.child", *arguments)
        variables = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
        with open(log, "ab") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT, env=variables
            )

    @property
    def returncode(self) -> int | None:
        """Exit status; ``None`` while it runs."""
        return self._process.poll()

    def progress(self) -> list[str]:
        """Lines about epochs, begun or finished, that are new since the last call."""
        with open(self.log, "rb") as file:
            file.seek(self._read_to)
            text = file.read()
        text = text[: text.rfind(b"\n") + 1]
        self._read_to += len(text)
        return [line for line in text.decode(errors="replace").splitlines() if line.startswith(_PROGRESS)]

    def last_words(self) -> str:
        """What it said at its end, after its last epoch."""
        with open(self.log, "rb") as file:
            file.seek(max(self._began_at, self.log.stat().st_size - _MOST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        epochs = [i for i, line in enumerate(lines) if line.startswith(_PROGRESS)]
        return "\n".join(lines[epochs[-1] + 1 if epochs else 0 :][-_MOST_LINES:]).strip()

    def terminate(self) -> None:
        """Let it end in order, so that its run can be resumed."""
        self._process.terminate()

    def close(self) -> None:
        """Wait until it has ended, and see to it after some time."""
        with self._process:  # which closes the pipe at its end
            try:
                self._process.wait(timeout=_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()


def _end_with_parent() -> None:
    """Wait for the end of the pipe that is standard input, and then end this process in order."""
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    from metaroll.cli.main import main

    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(main())
