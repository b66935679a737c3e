"""Where messages of the command line go: consoles, and names made safe for terminals."""

from __future__ import annotations

from rich import markup
from rich.console import Console

__all__ = ["HelpShown", "escape", "make_console", "printable"]


class HelpShown(Exception):
    """The parser has printed the help text, and nothing else is to be done."""


def make_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console that colors nothing by itself, and leaves names as ``my_env:family:`` what they are (no emoji).

    Args:
        stderr: Write to standard error.
        quiet: Write nothing.
    """
    return Console(stderr=stderr, quiet=quiet, highlight=False, emoji=False)


def printable(text: str) -> str:
    """``text`` with control characters spelled out, as a terminal would obey those in a name or a file."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def escape(text: str) -> str:
    """``text`` for a console, without markup and control characters."""
    return markup.escape(printable(text))
