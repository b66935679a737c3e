"""Where messages of the command line go: consoles that show what they are given as it is."""

from __future__ import annotations

from rich.console import Console

__all__ = ["make_console"]


def make_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console that colors nothing by itself, and leaves names as ``my_env:family:`` what they are (no emoji).

    Args:
        stderr: Write to standard error.
        quiet: Write nothing.
    """
    return Console(stderr=stderr, quiet=quiet, highlight=False, emoji=False)
