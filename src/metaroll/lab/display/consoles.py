"""Consoles for messages of the command line, text made safe for terminals, and the table of findings."""

from __future__ import annotations

import copy
import errno
import os
import re
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, cast

from rich import markup
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from metaroll.lab.checking.report import TaskCheck

__all__ = [
    "HelpShown",
    "escape",
    "make_console",
    "print_table",
    "printable",
    "show_findings",
    "show_notes",
    "show_problem",
    "unwrapped_width",
    "warning_line",
    "wrapped",
]

_NOTEBOOK_COLUMNS = 80
_ANY_WIDTH = 10_000
"""More columns than any table needs."""
_HANGING = 4
_UNBROKEN = re.compile(
    r"(?:(?<=: )|(?<=see )|(?<=with )|(?<=, or )|(?<=  ))metaroll (?:(?![,.:;)] ).)*$"
    r"|pip install(?: '[^']*')+\S*"
    r"|(?:`[^`]*`|(?<![^\s(=])'[^']*'|\S)+"
)
"""What stays on one line: a word, a command in backquotes, one that ends a line as in "see metaroll list envs",
``pip install`` with its packages, and what is quoted for a shell."""
_NAMED = re.compile(r" *\S+ {2,}(?=\S)")
"""The beginning of a line that explains a name: its text is a column."""
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}


class HelpShown(Exception):
    """The parser has printed the help text, and there is nothing else to do."""


class _Encodable:
    """A stream that escapes characters missing from its encoding, such as an arrow in ASCII, instead of raising."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except UnicodeEncodeError as error:  # nothing has been written yet
            return self._stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _OwnConsole(Console):
    """Prints any character, and raises ``BrokenPipeError`` if the output pipe is closed (rich would exit).

    What is printed with ``soft_wrap`` is wrapped between words in a terminal, which would break it anywhere. In files
    and pipes it stays on one line, which is easier to search.
    """

    @property
    def file(self) -> IO[str]:
        return cast("IO[str]", _Encodable(super().file))

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """Print as rich does; with ``soft_wrap`` text is wrapped between words in a terminal."""
        if soft_wrap and self.is_terminal:
            texts = [
                self.render_str(one, markup=options.get("markup")) if isinstance(one, str) else one for one in objects
            ]
            objects = tuple(_at_words(one, self.width) if isinstance(one, Text) else one for one in texts)
        super().print(*objects, soft_wrap=soft_wrap, **options)

    def on_broken_pipe(self) -> None:
        """Stop writing, and raise the error that rich is handling."""
        self.quiet = True
        raise BrokenPipeError(errno.EPIPE, "the output pipe is closed")


def make_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console without automatic highlighting, and without emoji: ``my_env:family:`` is printed as it is.

    Args:
        stderr: Write to standard error.
        quiet: Write nothing.
    """
    console = _OwnConsole(stderr=stderr, quiet=quiet, highlight=False, emoji=False)
    if console.is_jupyter and "JUPYTER_COLUMNS" not in os.environ:
        console.width = _NOTEBOOK_COLUMNS  # notebooks report no width, and wider output would need scrolling
    return console


def show_problem(severity: str, text: str = "", *, style: str = "bold red") -> None:
    """Print ``metaroll: SEVERITY text`` on standard error; the prefix, since libraries also print ``error:`` lines.

    Args:
        severity: Kind of message, with its punctuation.
        text: The message.
        style: Style of the severity.
    """
    line = f"metaroll: [{style}]{escape(severity)}[/]{text and ' '}{escape(text)}"
    make_console(stderr=True).print(line, soft_wrap=True)


def show_notes(notes: Sequence[str]) -> None:
    """Print sentences on standard error, one per line."""
    for note in notes:
        make_console(stderr=True).print(escape(note), soft_wrap=True)


def warning_line(text: str) -> str:
    """The line that shows a warning to the user."""
    return wrapped(f"metaroll: warning: {text}", make_console(stderr=True)) + "\n"


def wrapped(text: str, console: Console) -> str:
    """``text`` for other printers than ``console``, wrapped as it would wrap it."""
    return _at_words(Text(text), console.width).plain if console.is_terminal else text


def printable(text: str) -> str:
    """``text`` with control characters escaped, since a terminal would obey those in a name or a file."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def escape(text: str) -> str:
    """``text`` for a console, without markup and control characters."""
    return markup.escape(printable(text))


def _at_words(text: Text, width: int) -> Text:
    """``text`` wrapped between words, its continued lines indented, or below the text that explains a name.

    A command or path that is longer than a line is left to the terminal: then it can still be copied whole.
    """
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        plain, cuts, indents = line.plain, [0], [0]
        column = _NAMED.match(plain)
        hanging = len(plain) - len(plain.lstrip()) + _HANGING
        if column is not None and column.end() <= width // 2:
            hanging = column.end()
        for piece in _UNBROKEN.finditer(plain):
            begins = cuts[-1]
            if plain[begins : piece.start()].strip() and indents[-1] + cell_len(plain[begins : piece.end()]) > width:
                cuts.append(piece.start())
                indents.append(hanging if hanging + cell_len(piece[0]) <= width else 0)
        parts = line.divide(cuts[1:])
        for part in parts[:-1]:
            part.rstrip()
        lines += [Text(" " * indent) + part for indent, part in zip(indents, parts, strict=True)]
    return Text("\n").join(lines)


def unwrapped_width(console: Console, content: Table | str) -> int:
    """Columns that ``content`` takes if nothing in it is wrapped."""
    return _measured(console, content).maximum


def _measured(console: Console, content: Any) -> Measurement:
    return console.measure(content, options=console.options.update_width(_ANY_WIDTH))


def print_table(console: Console, table: Table) -> None:
    """Print a table of names and numbers, none of which is cut or broken, even in a narrow terminal or a pipe.

    Text wraps between words, and not at all in a column with ``no_wrap``. A table that needs more columns than there
    are is printed wider.
    """
    table = copy.deepcopy(table)
    for column in table.columns:
        cells = [_measured(console, cell) for cell in (column.header, *column.cells)]
        column.min_width = max(cell.maximum if column.no_wrap else cell.minimum for cell in cells)
        column.width = column.min_width
    least = unwrapped_width(console, table)
    if least > console.width:  # rich would make columns narrower than min_width, and leave some out
        table.width = least
    else:
        for column in table.columns:
            column.width = None
    console.print(table, crop=False)


def show_findings(console: Console, findings: Sequence[TaskCheck]) -> None:
    """Print one line for each finding, with its hint below."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for finding in findings:
        hint = f"\n[cyan]-> {escape(finding.hint)}[/]" if finding.hint else ""
        table.add_row(f"[{_STYLES[finding.status]}]{finding.status}[/]", finding.name, f"{escape(finding.value)}{hint}")
    console.print(table)
