"""Where messages of the command line go: consoles, names made safe for terminals, and the table of findings."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, cast

from rich import markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from metaroll.lab.checking.report import TaskCheck

__all__ = [
    "HelpShown",
    "escape",
    "make_console",
    "printable",
    "show_findings",
    "show_line",
    "show_notes",
    "show_problem",
    "warning_line",
]

_NOTEBOOK_COLUMNS = 80
_HANGING, _NARROWEST = 4, 20
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}


class HelpShown(Exception):
    """The parser has printed the help text, and nothing else is to be done."""


class _Encodable:
    """A stream that spells out what its encoding lacks, an arrow in ASCII say, rather than raise an error."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except UnicodeEncodeError as error:  # of which nothing has been written
            return self._stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _OwnConsole(Console):
    """Prints whatever a name holds, and lets whoever prints know that nobody reads any more (rich ends the program)."""

    @property
    def file(self) -> IO[str]:
        return cast("IO[str]", _Encodable(super().file))

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def on_broken_pipe(self) -> None:
        """Write nothing more, and raise the error that is being handled (see rich)."""
        self.quiet = True
        raise BrokenPipeError(errno.EPIPE, "nobody reads the output any more, whose pipe is closed")


def make_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console that colors nothing by itself, and leaves names as ``my_env:family:`` what they are (no emoji).

    Args:
        stderr: Write to standard error.
        quiet: Write nothing.
    """
    console = _OwnConsole(stderr=stderr, quiet=quiet, highlight=False, emoji=False)
    if console.is_jupyter and "JUPYTER_COLUMNS" not in os.environ:
        console.width = _NOTEBOOK_COLUMNS  # of what no notebook tells: more of them would have to be scrolled
    return console


def show_problem(severity: str, text: str = "", *, style: str = "bold red") -> None:
    """Print ``metaroll: SEVERITY text`` on standard error: libraries, too, print lines that begin with ``error:``.

    Args:
        severity: What kind of message it is, with its punctuation.
        text: The message.
        style: Style of the severity.
    """
    line = f"metaroll: [{style}]{escape(severity)}[/]{text and ' '}{escape(text)}"
    make_console(stderr=True).print(line, soft_wrap=True)


def show_notes(notes: Sequence[str]) -> None:
    """Print sentences on standard error, a line each."""
    for note in notes:
        make_console(stderr=True).print(escape(note), soft_wrap=True)


def warning_line(text: str) -> str:
    """The line of a warning that concerns the user."""
    return f"metaroll: warning: {text}\n"


def printable(text: str) -> str:
    """``text`` with control characters spelled out, as a terminal would obey those in a name or a file."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def escape(text: str) -> str:
    """``text`` for a console, without markup and control characters."""
    return markup.escape(printable(text))


def show_line(console: Console, text: str) -> None:
    """Print a sentence (markup); at a terminal it is broken between words, and further lines are indented below.

    In files and pipes it stays one line, which can be searched.
    """
    if not console.is_terminal:
        console.print(text, soft_wrap=True)
        return
    line = Text.from_markup(text)
    indent = len(line.plain) - len(line.plain.lstrip()) + _HANGING
    first, *rest = line.wrap(console, max(console.width - indent, _NARROWEST))
    console.print(Text("\n").join([first, *(Text(" " * indent) + part for part in rest)]), soft_wrap=True)


def show_findings(console: Console, findings: Sequence[TaskCheck]) -> None:
    """Print one line for each finding, and its hint below."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for found in findings:
        hint = f"\n[cyan]-> {escape(found.hint)}[/]" if found.hint else ""
        table.add_row(f"[{_STYLES[found.status]}]{found.status}[/]", found.name, f"{escape(found.value)}{hint}")
    console.print(table)
