"""Options of commands: parsed into plain values, with one clear error if they are invalid."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import itertools
import random
import re
import tempfile
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import tyro
from rich.console import Console
from rich.text import Text

from metaroll.config import MISSING, Config, Option, largest_integer, options_of, whole_number_hint
from metaroll.data.folders.links import refuse_link
from metaroll.errors import UnknownNameError, UsageError, blame_input, command_text, name_given, option_text, shortened
from metaroll.lab.display.consoles import HelpShown, make_console, wrapped
from metaroll.option_names import names_here, near_options, value_here

__all__ = [
    "HELP",
    "AsTrained",
    "Newest",
    "Output",
    "Switch",
    "asks_for_help",
    "file_to_write",
    "flags_for",
    "flags_of",
    "options_class",
    "parse",
    "parse_command",
    "peek_option",
    "renamed_flags",
    "take_positionals",
    "unset",
]

T = TypeVar("T")

HELP = ("-h", "--help")
_ALIASES = {"transport": ["--engine"]}
"""Other flags of an option."""
_REPEATED = ("randomize_param",)
"""Options with several values that are given one at a time, by repeating the flag."""


_LONG = re.compile(r"[-+]?[\d_]{1000,}")


def take_positionals(
    arguments: Sequence[str], count: int, valued_flags: Collection[str] | None = None
) -> tuple[list[str], list[str]]:
    """Split off the first positional arguments, at most ``count``; also the remaining arguments.

    Args:
        arguments: What the user typed.
        count: Maximum number of arguments to take.
        valued_flags: Flags that are followed by a value, to find positional arguments after them; ``None`` (not known
            yet) only takes those before all options.
    """
    taken: list[str] = []
    remaining: list[str] = []
    queue = list(arguments)
    while queue and len(taken) < count:
        argument = queue.pop(0)
        if not argument.startswith("-"):
            taken.append(argument)
            continue
        remaining.append(argument)
        if valued_flags is None:
            break
        if argument.replace("_", "-") in valued_flags and queue:
            remaining.append(queue.pop(0))
    return taken, remaining + queue


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether the user asks for the help text, which is shown even if other arguments are wrong."""
    return any(flag in arguments for flag in HELP)


def peek_option(arguments: Sequence[str], flag: str) -> str | None:
    """The value of ``flag``, read before parsing because it decides the defaults."""
    for position, argument in enumerate(arguments):
        if argument == flag:
            if position + 1 == len(arguments):
                raise UsageError(f"{flag} needs a value")
            return arguments[position + 1]
        if argument.startswith(flag + "="):
            return argument[len(flag) + 1 :]
    return None


def renamed_flags(arguments: Sequence[str], options: Sequence[Option]) -> tuple[list[str], dict[str, str]]:
    """Replace flags named as in other libraries or former versions by those of their options.

    A name for several options is replaced by all of their flags, each with its values.

    Returns:
        The arguments, and for each option renamed in them what was typed (for ``named_as``).

    Raises:
        UsageError: An option is given twice, by two names.
    """
    groups: list[list[str]] = []
    for argument in arguments:
        if argument.startswith("--") or not groups:
            groups.append([argument])
        else:
            groups[-1].append(argument)
    known = {flag: option.name for option in options for flag in flags_for(option)}
    result: list[str] = []
    typed: dict[str, str] = {}
    names: dict[str, str] = {}
    for first, *values in groups:
        flag, equals, value = first.partition("=")
        plain = flag.replace("_", "-")
        here = [known[plain]] if plain in known else []
        no = "no-" if plain.startswith("--no-") else ""
        if plain.startswith("--") and not here:
            foreign = plain[2 + len(no) :].replace("-", "_")
            here = names_here(foreign, options, lambda name: option_text(name), of_run=True)
            flags = [f"--{no}{name.replace('_', '-')}" for name in here]
            if not known.keys() >= set(flags):
                here, flags = [], [flag]
            names |= dict.fromkeys(here, flag)
        else:
            flags = [flag]
            if here and not no and plain != option_text(here[0]):
                names[here[0]] = plain
        for name in here:
            if typed.setdefault(name, plain) != plain and no == "" and not typed[name].startswith("--no-"):
                raise UsageError(f"{option_text(name)} is given twice, by {typed[name]} and {plain}: keep one")
        for name, written in zip(here or [""], flags, strict=True):
            with blame_input():
                texts = [value_here(plain[2:].replace("-", "_"), name, text, option_text) for text in (value, *values)]
            result += [f"{written}{equals}{texts[0]}", *map(str, texts[1:])]
    return result, names


def parse(kind: type[T], arguments: Sequence[str], prog: str, description: str, other_flags: Collection[str] = ()) -> T:
    """Parse ``arguments`` into an instance of the dataclass ``kind``; ``--help`` prints and raises ``HelpShown``.

    Args:
        kind: Dataclass of options (nested ones are groups of the help text).
        arguments: What the user typed.
        prog: Name of the command in the help text.
        description: Text above the options.
        other_flags: Further names of its options that the command has translated, for guesses at misspelled ones.
    """
    for argument in arguments:
        number = argument.rpartition("=")[2]
        if _LONG.fullmatch(number):  # Python refuses to convert it
            raise UsageError(f"{number[:20]}... ({len(number)} digits) is larger than any option accepts")
    output = io.StringIO()
    random_state = random.getstate()
    try:
        with contextlib.redirect_stderr(output):
            parsed, unknown = tyro.cli(
                kind,
                args=list(arguments),
                prog=prog,
                description=wrapped(description, make_console()),
                return_unknown_args=True,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as leaving:
        if leaving.code in (0, None):
            raise HelpShown from None
        box = Text.from_ansi(output.getvalue()).plain  # in a terminal the parser colors it
        message = _in_plain_words(_first_sentence(box), arguments, _choices_of(kind))
        message = _FLAG.sub(lambda match: name_given(match[1].replace("-", "_")) or match[0], message)  # as typed
        raise UsageError(f"{message}; see {prog} --help") from None
    finally:
        random.setstate(random_state)  # under pytest the parser draws from Python's global generator
    if unknown:
        first = unknown[0].split("=")[0]
        if first.startswith("-"):
            value = " ".join(unknown[0].split("=", 1)[1:] or unknown[1:2])
            # Only commands that train have options of all kinds; other commands use their own names.
            trains = prog.startswith(command_text("train"))
            near = near_options(first, value, [*flags_of(kind), "--help"], absent=trains, foreign=trains)
            near = near or near_options(first, value, other_flags, absent=False, foreign=False)
            hint = f"; {near} See" if near.endswith(("?", ")")) else f"; {near}; see" if near else "; see"
            raise UnknownNameError(f"unknown option {first}{hint} {prog} --help")
        switch = _switch_before(unknown[0], arguments, kind)
        raise UsageError(switch or f"unexpected argument {first!r}; see {prog} --help")
    _refuse_huge(parsed)
    return parsed


def _switch_before(value: str, arguments: Sequence[str], kind: Any) -> str:
    """The error for a ``value`` that was given to a flag that takes none; empty if there is no such flag before it."""
    switches = _switches_of(kind)
    words = [word for argument in arguments for word in argument.split("=", 1)]
    for word, following in itertools.pairwise(words):
        flag = word.replace("_", "-")
        if following == value and flag in switches:
            return f"{flag} takes no value, got {value!r}: write {' or '.join(switches[flag])} alone"
    return ""


def _switches_of(kind: Any) -> dict[str, list[str]]:
    """Flag -> all flags of its option, for those that take no value."""
    hints = typing.get_type_hints(kind, include_extras=True)
    switches: dict[str, list[str]] = {}
    for field in dataclasses.fields(kind):
        inner, *details = typing.get_args(hints[field.name]) or (hints[field.name],)
        flag = "--" + field.name.replace("_", "-")
        if dataclasses.is_dataclass(inner):
            switches |= _switches_of(inner)
        elif inner is bool:
            single = tyro.conf.FlagCreatePairsOff in details
            flags = [flag] if single else [flag, flag.replace("--", "--no-", 1)]
            switches |= dict.fromkeys(flags, flags)
    return switches


def _refuse_huge(options: Any) -> None:
    """Raise ``UsageError`` for absurdly large integers, which later code may not check for."""
    for field in dataclasses.fields(options):
        value, most = getattr(options, field.name), largest_integer(field.name)
        if dataclasses.is_dataclass(value):
            _refuse_huge(value)
        for number in value if isinstance(value, tuple | list) else (value,):
            if isinstance(number, int) and abs(number) > most:
                flag = "--" + field.name.replace("_", "-")
                raise UsageError(f"{flag} must be at most {most}, got {shortened(number)}")


_FLAG = re.compile(r"(?<![\w-])--((?!no-)[a-z][a-z0-9-]*)")
_NO_NUMBER = re.compile(
    r"Error parsing (?P<flag>--\S+): "
    r"(?P<optional>no type matching \{None\}\|(?:INT|FLOAT) .*<class '(?:int|float)'>: )?"
    r"(?P<kind>invalid literal for int\(\)|could not convert string to float).*: (?P<text>.*)"
)

_OF_A_GROUP = re.compile(r"Error parsing \w+: (?P<name>\w+)(?P<text> .*)")
"""A message of an options dataclass about one of its fields: the name of the group is not a flag."""
_NO_NUMBERS = re.compile(r"Error parsing (?P<flag>--\S+): Could not find valid parse for arguments: \[(?P<texts>.*)\]")
_NO_VALUE = re.compile(r"Missing value for argument '(?P<flag>--[\w-]+).*")

_NOTHING = ("null", "none", "nil", "~", "")
_NONE_HINT = ": none is written None"
_NO_CHOICE = re.compile(
    r"invalid choice '(?P<text>.*)' for argument '(?P<flags>\S+)'\. Expected one of \((?P<choices>.*)\)"
)


def _in_plain_words(sentence: str, arguments: Sequence[str], choices: Mapping[str, Sequence[Any]]) -> str:
    """Rephrase the parser's message for the user: about a text that is not a number or not among the choices.

    Args:
        sentence: The parser's message.
        arguments: What the user typed.
        choices: Flag -> the values it accepts, if these are listed.
    """
    match = _NO_CHOICE.fullmatch(sentence)
    if match is not None:
        flags = match["flags"].split("/")
        typed = [argument.split("=")[0].replace("_", "-") for argument in arguments]
        flag = next((flag for flag in flags if flag in typed), flags[0])
        listed = sorted(choice.strip(" '") for choice in match["choices"].split(","))
        known = ", ".join(choice for choice in listed if choice not in ("", "None"))
        hint = _NONE_HINT if "None" in listed and match["text"].lower() in _NOTHING else ""
        return f"{flag} must be one of {known}, got {match['text']!r}{hint}"
    match = _NO_VALUE.fullmatch(sentence)
    if match is not None:
        known = ", ".join(str(choice) for choice in choices.get(match["flag"], ()))
        return f"{match['flag']} needs a value" + (f", one of {known}" if known else "") + ", got none"
    match = _NO_NUMBERS.fullmatch(sentence)
    if match is not None:
        flag, numbers = match["flag"], match["texts"].replace("'", "").replace(",", " ")
        return f"{flag} takes numbers with spaces between them, as in {flag} 64 64, got {','.join(numbers.split())!r}"
    match = _OF_A_GROUP.fullmatch(sentence)
    if match is not None:
        return f"--{match['name'].replace('_', '-')}{match['text']}"
    match = _NO_NUMBER.fullmatch(sentence)
    if match is None:
        return sentence
    kind, text = ("a whole number" if "int()" in match["kind"] else "a number"), match["text"].strip("'")
    hint = whole_number_hint(text) if "int()" in match["kind"] else ""
    if match["optional"] and text.lower() in _NOTHING:
        hint = _NONE_HINT
    return f"{match['flag']} must be {kind}, got {match['text']}{hint}"


def _first_sentence(box: str) -> str:
    """Extract the parser's message from the box that it draws: the first block between two rules.

    Without box characters the title is a separate block before it.
    """
    blocks: list[list[str]] = [[]]
    for line in box.splitlines():
        text = line.strip(" │")
        if text.startswith(("╭", "╰", "───", "---")):
            blocks.append([])
        elif text:
            blocks[-1].append(text)
    filled = [" ".join(block) for block in blocks if block]
    position = 0 if "│" in box else 1
    return filled[position].rstrip(".") if position < len(filled) else " ".join(filled) or "invalid arguments"


def unset(metavar: str, meaning: str) -> Any:
    """Show in the help text what happens if an option is not set, instead of ``None``."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {meaning})")


Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Newest = Annotated[str | None, unset("INT|first|best", "that of the newest snapshot")]
AsTrained = Annotated[int | None, unset("INT", "as in training")]


@dataclass(frozen=True, kw_only=True)
class Output:
    """Options of the output."""

    json: Switch = False
    """Print the summary as JSON, and nothing else, to standard output."""
    quiet: Switch = False
    """Print only errors (and the JSON)."""
    traceback: Switch = False
    """Show the traceback of an error."""

    def console(self) -> Console:
        """The console of messages: standard error if standard output is for the JSON."""
        return make_console(stderr=self.json, quiet=self.quiet)


def parse_command(
    kind: type[T],
    arguments: Sequence[str],
    usage: str,
    about: str,
    missing: str,
    most: int = 1,
    other_flags: Collection[str] = (),
) -> tuple[list[str], T]:
    """The names that a command is given, and its options: an instance of the dataclass ``kind``.

    Args:
        kind: Dataclass of options.
        arguments: What the user typed after the name of the command.
        usage: Usage of the command, such as ``metaroll watch RUN [options]``.
        about: Text above the options, below the usage.
        missing: Error message if no name is given; empty for commands that need none.
        most: Maximum number of names, which may come before, between or after the options.
        other_flags: See ``parse``.
    """
    names, flags = take_positionals(arguments, most, flags_of(kind, valued_only=True))
    if missing and not names and not asks_for_help(flags):
        raise UsageError(f"{usage}: {missing}")
    return names, parse(kind, flags, " ".join(usage.split()[:2]), f"{usage}\n\n{about}", other_flags)


def file_to_write(
    flag: str, text: str | None, endings: Sequence[str], default: Path = Path(), inside: str = ""
) -> Path:
    """Check that ``flag`` names a writable file with one of these extensions; its folder need not exist yet.

    Called before long work begins; leaves no file behind.

    Args:
        flag: The flag.
        text: Its value; ``None`` if it was not given.
        endings: Extensions.
        default: What is meant then.
        inside: Name of the file, if ``flag`` names its folder.
    """
    path = (default if text is None else Path(text).expanduser()) / inside
    kind = "folder" if inside else "file"
    if path.suffix.lower() not in endings:
        raise UsageError(f"{flag} must end in {' or '.join([', '.join(endings[:-1]), endings[-1]])}, got {text!r}")
    refuse_link(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        place = next(folder for folder in path.absolute().parents if folder.exists())
        with tempfile.TemporaryFile(dir=place):
            pass  # also detects full disks, and folders that only seem to be writable
    except OSError as error:
        given = f"{flag} must name a {kind} that can be written, got {text!r}: {error.strerror}"
        left_out = f"{path} cannot be written ({error.strerror}): choose another {kind} with {flag}"
        raise UsageError(left_out if text is None else given) from error
    return path


def flags_of(kind: Any, valued_only: bool = False) -> list[str]:
    """All flags of an options dataclass, including nested ones; with ``valued_only`` just those that take a value."""
    hints = typing.get_type_hints(kind)
    flags: list[str] = []
    for field in dataclasses.fields(kind):
        inner = hints[field.name]
        if dataclasses.is_dataclass(inner):
            flags += flags_of(inner, valued_only)
        elif not (valued_only and inner is bool):
            flags.append("--" + field.name.replace("_", "-"))
    return flags


def _choices_of(kind: Any) -> dict[str, tuple[Any, ...]]:
    """Flag -> accepted values, for the options of a dataclass with a fixed set of choices."""
    hints = typing.get_type_hints(kind)
    choices: dict[str, tuple[Any, ...]] = {}
    for field in dataclasses.fields(kind):
        inner = hints[field.name]
        if dataclasses.is_dataclass(inner):
            choices |= _choices_of(inner)
        elif members := [m for m in (inner, *typing.get_args(inner)) if typing.get_origin(m) is typing.Literal]:
            choices["--" + field.name.replace("_", "-")] = typing.get_args(members[0])
    return choices


def flags_for(option: Option) -> set[str]:
    """All flags that set the option."""
    return {option.flag, option.flag.replace("--", "--no-", 1), *_ALIASES.get(option.name, [])}


def with_config(kind: type[T], name: str, config: type[Config]) -> type[Any]:
    """The options dataclass ``kind`` with an additional group ``name`` of the fields of a config."""
    options = options_of(config)
    group = options_class(config.__name__, options, {option.name: option.default for option in options})
    fields = [(name, group, dataclasses.field(default_factory=group))]
    return dataclasses.make_dataclass(kind.__name__, fields, bases=(kind,), frozen=True, kw_only=True)


def options_class(
    name: str,
    options: Iterable[Option],
    values: Mapping[str, Any],
    note: str = "",
    hints: Mapping[str, str] = MappingProxyType({}),
) -> type:
    """A dataclass with one field per option for the command-line parser.

    Args:
        name: Name of the class.
        options: The options.
        values: Their defaults.
        note: Help text for the whole group.
        hints: Help text of an option instead of its default, which then is ``None``.
    """
    fields: list[tuple[str, Any, Any]] = []
    for option in options:
        metavar = None
        if option.optional and not option.many:
            metavar = "{" + ",".join(option.choices) + "}" if option.choices else option.kind.__name__.upper()
        hint = hints.get(option.name)
        annotated = Annotated[
            option.annotation if hint is None else option.annotation | None,
            tyro.conf.arg(
                help=re.sub(r"\bnull\b", "None", option.help) or None,  # flags take None
                metavar=metavar,
                aliases=_ALIASES.get(option.name),
                help_behavior_hint=None if hint is None else f"(default: {hint})",
            ),
        ]
        if option.name in _REPEATED:
            annotated = Annotated[annotated, tyro.conf.UseAppendAction]
        value = values.get(option.name, MISSING) if hint is None else None
        default = tyro.MISSING if value is MISSING else value
        fields.append((option.name, annotated, dataclasses.field(default=default)))
    made = dataclasses.make_dataclass(name, fields, frozen=True, kw_only=True)
    made.__doc__ = note
    return made
