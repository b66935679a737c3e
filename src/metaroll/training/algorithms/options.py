"""Options, derived from documented constructors: no parameter is listed twice."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from metaroll.errors import LARGEST_COUNT, LARGEST_SEED, said, shortened
from metaroll.training.algorithms.other_names import GIVEN, unknown_options

__all__ = [
    "MISSING",
    "Option",
    "argument_help",
    "check_value",
    "constructor_options",
    "largest_integer",
    "merge_layers",
]

MISSING: Any = inspect.Parameter.empty
"""Default of an option that has none."""

_SCALARS = (bool, int, float, str)
_SEQUENCES = (list, tuple, collections.abc.Sequence)
_NAMESPACE = {"Sequence": collections.abc.Sequence, "Any": Any, "Literal": typing.Literal}


@dataclass(frozen=True)
class Option:
    """One value that a user may set, by flag or in a file.

    Attributes:
        name: Name of the constructor's parameter; the flag is the same with dashes.
        section: Section of ``config.yaml`` and of the help that it belongs to.
        kind: ``bool``, ``int``, ``float`` or ``str``.
        many: A tuple of ``kind`` instead of one.
        optional: ``None`` is allowed.
        choices: The values allowed; empty means all.
        default: Default of the constructor, or ``MISSING``.
        help: Text from the ``Args`` section of the constructor's docstring.
    """

    name: str
    section: str
    kind: type
    many: bool = False
    optional: bool = False
    choices: tuple[Any, ...] = ()
    default: Any = MISSING
    help: str = ""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def annotation(self) -> Any:
        """The type that the command-line parser needs."""
        base: Any = typing.Literal[self.choices] if self.choices else self.kind
        if self.many:
            base = tuple[base, ...]
        return base | None if self.optional else base


def largest_integer(name: str) -> int:
    """The largest value of an option of integers: seeds may have more bits than what is counted."""
    return LARGEST_SEED if name.endswith("seed") else LARGEST_COUNT


def constructor_options(constructor: Callable[..., Any], section: str, skip: Collection[str] = ()) -> list[Option]:
    """Options for the plain parameters (numbers, strings, flags and lists of them) of a documented constructor.

    Parameters that take objects (environments, networks, classes) are left out: a run builds them itself.

    Args:
        constructor: A class or function with annotated parameters.
        section: Section that the options are put in.
        skip: Names that the run fills itself.
    """
    texts = argument_help(constructor)
    namespace = {**_NAMESPACE, **vars(sys.modules[constructor.__module__])}
    options = []
    for parameter in inspect.signature(constructor).parameters.values():
        if parameter.name in skip or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        plain = _plain_type(_evaluated(parameter.annotation, namespace), parameter.default)
        if plain is None:
            continue
        kind, many, optional, choices = plain
        default = tuple(parameter.default) if many and _is_listed(parameter.default) else parameter.default
        text = texts.get(parameter.name, "")
        options.append(Option(parameter.name, section, kind, many, optional, choices, default, text))
    return options


def _is_listed(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _evaluated(annotation: Any, namespace: Mapping[str, Any]) -> Any:
    """The annotation as an object; ``None`` where it names something that only a type checker sees."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, dict(namespace))  # source text of the constructor itself, as typing.get_type_hints does
    except (NameError, AttributeError, TypeError, SyntaxError):
        return None


def _plain_type(annotation: Any, default: Any) -> tuple[type, bool, bool, tuple[Any, ...]] | None:
    """``(kind, many, optional, choices)`` of a plain parameter, ``None`` for one that takes objects."""
    optional = default is None
    members = [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = list(typing.get_args(annotation))
    if type(None) in members:
        optional, members = True, [m for m in members if m is not type(None)]
    members = [m for m in members if m in _SCALARS or typing.get_origin(m) in (*_SEQUENCES, typing.Literal)]
    if not members:  # annotated with a class (or not at all): only a plain default tells what is meant
        if type(default) in _SCALARS:
            return type(default), False, optional, ()
        return None
    member = float if float in members else members[0]
    if typing.get_origin(member) is typing.Literal:
        choices = typing.get_args(member)
        return type(choices[0]), False, optional, choices
    if typing.get_origin(member) in _SEQUENCES:
        inner = [a for a in typing.get_args(member) if a is not Ellipsis]
        return (inner[0], True, optional, ()) if inner and inner[0] in _SCALARS else None
    return member, False, optional, ()


def argument_help(constructor: Any) -> dict[str, str]:
    """Name -> text from the ``Args`` (or ``Attributes``) sections of the docstrings of a class and its constructor."""
    texts: dict[str, str] = {}
    for documented in (constructor, getattr(constructor, "__init__", None)):
        texts.update(_parse_arguments(inspect.cleandoc(getattr(documented, "__doc__", None) or "")))
    return texts


def _parse_arguments(doc: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for section in re.finditer(r"^(?:Args|Arguments|Attributes):\n((?:[ \t]+.*\n?|\n)+)", doc, re.MULTILINE):
        block = textwrap.dedent(section.group(1))
        for entry in re.finditer(
            r"^(\w+(?:, \w+)*)(?: \([^)\n]*\))?:(.*(?:\n(?:[ \t]+.*|(?=\n)))*)", block, re.MULTILINE
        ):
            text = " ".join(entry.group(2).replace("``", "").split())
            texts.update({name: text for name in entry.group(1).split(", ")})
    return texts


def check_value(option: Option, value: Any, where: str) -> Any:
    """``value`` as the option's type, or an error that says where it stands and what was expected."""
    if value is None:
        if option.optional:
            return None
    elif option.many:
        if _is_listed(value):
            element = dataclasses.replace(option, many=False, optional=False)
            return tuple(check_value(element, item, where) for item in value)
    elif option.choices:
        if value in option.choices:
            return value
    elif option.kind is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            raise ValueError(f"{option.name} in {where} must be at most {sys.float_info.max:g}, got {shortened(value)}")
        with contextlib.suppress(ValueError):
            return float(value)  # YAML 1.1 reads 3e-4 as text
    elif isinstance(value, option.kind) and isinstance(value, bool) == (option.kind is bool):
        if option.kind is int and abs(value) > (most := largest_integer(option.name)):
            raise ValueError(f"{option.name} in {where} must be at most {most}, got {shortened(value)}")
        return value
    expected = _expectation(option, where == GIVEN)
    if option.many and isinstance(value, int | float | str):
        expected += f", as in {shortened(_listed(option, value))}"
    raise ValueError(f"{option.name} in {where} must be {expected}, got {shortened(value)}")


def _listed(option: Option, value: Any) -> list[Any]:
    """What may be meant by a value that is no list: ``[64]`` by 64, ``[64, 64]`` by the text ``64,64``."""
    numbers = re.findall(r"\d{1,18}", value) if option.kind is int and isinstance(value, str) else []
    return [*map(int, numbers)] or [value]


def _expectation(option: Option, typed: bool) -> str:
    yes_or_no, nothing = (
        (said("True or False", "true or false"), said("None", "null")) if typed else ("true or false", "null")
    )
    one = " or ".join(repr(c) for c in option.choices) or {
        bool: yes_or_no,
        int: "an integer",
        float: "a number",
        str: "a text",
    }.get(option.kind, option.kind.__name__)
    if option.many:
        one = f"a list with each entry {one}"
    return f"{one} (or {nothing})" if option.optional else one


def merge_layers(options: Iterable[Option], layers: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Name -> value for all options: the constructor's defaults, overridden by each layer in turn.

    Args:
        options: All options of the run.
        layers: ``(where, values)`` pairs, weakest first; ``where`` names the source in errors.
    """
    known = {option.name: option for option in options}
    # Defaults, too, as the type of their option: a run is built from them now, and from its file when it goes on.
    values = {
        name: MISSING if option.default is MISSING else check_value(option, option.default, "the constructor")
        for name, option in known.items()
    }
    for where, layer in layers:
        if (wrong := unknown_options(layer, known, where)) is not None:
            raise wrong
        for name, value in layer.items():
            values[name] = check_value(known[name], value, where)
    return values
