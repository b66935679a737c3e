"""What all commands share: the options of what is shown and where, and how a dataclass of options is parsed."""

from __future__ import annotations

import dataclasses
import errno
import tempfile
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from rich.console import Console

from metaroll.cli.arguments import UsageError, parse
from metaroll.cli.display.consoles import make_console

__all__ = ["Output", "file_to_write", "flags_of", "parse_options", "unset"]

T = TypeVar("T")


def unset(metavar: str, meaning: str) -> Any:
    """How the help text shows an option that is not set: what happens then, instead of ``None``."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {meaning})")


@dataclass(frozen=True, kw_only=True)
class Output:
    """What is shown, and where."""

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the summary as JSON, the only thing on standard output."""
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show nothing but errors (and the JSON)."""
    traceback: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show where an error comes from."""

    def console(self) -> Console:
        """Where messages go: beside the JSON nothing else may be on standard output."""
        return make_console(stderr=self.json, quiet=self.quiet)


def parse_options(kind: type[T], arguments: Sequence[str], prog: str, about: str) -> T:
    """An instance of the dataclass ``kind`` from ``arguments``."""
    return parse(kind, arguments, prog, about, [*flags_of(kind), "--help"])


def file_to_write(flag: str, text: str, endings: Sequence[str]) -> Path:
    """The file that ``flag`` names, of one of these endings, where a file can be written; its folder may be missing.

    Nothing is left behind, and what takes long is not begun in vain.
    """
    path = Path(text).expanduser()
    if path.suffix.lower() not in endings:
        raise UsageError(f"{flag} must end in {' or '.join([', '.join(endings[:-1]), endings[-1]])}, got {text!r}")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        place = next(folder for folder in path.absolute().parents if folder.exists())
        with tempfile.TemporaryFile(dir=place):
            pass  # tells of full disks, too, and of folders that only seem to be writable
    except OSError as error:
        raise UsageError(f"{flag} must name a file that can be written, got {text!r}: {error.strerror}") from error
    return path


def flags_of(kind: Any, valued_only: bool = False) -> list[str]:
    """All flags of a dataclass of options, nested ones included; perhaps those only that a value follows."""
    hints = typing.get_type_hints(kind)
    flags: list[str] = []
    for field in dataclasses.fields(kind):
        inner = hints[field.name]
        if dataclasses.is_dataclass(inner):
            flags += flags_of(inner, valued_only)
        elif not (valued_only and inner is bool):
            flags.append("--" + field.name.replace("_", "-"))
    return flags
