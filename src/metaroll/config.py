"""Configs: frozen dataclasses whose fields declare all there is to know of a setting, and are read in one way.

A field is a name, a type with its bounds, a default and one line of text::

    @dataclass(frozen=True, kw_only=True)
    class WalkConfig(Config):
        num_walks: Annotated[Whole, "Walks of an epoch."] = 3
        step_std: Annotated[Positive, Was("step_size"), "Standard deviation of a step."] = 0.1

From it come the check at construction, flags and their help, what a YAML file may hold, the fingerprint of a snapshot,
the table in the documentation, and the keywords that editors see. Modules that define configs import no torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import inspect
import math
import re
import types
import typing
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, ParamSpec, Self, TypeVar, final, overload

import numpy as np

from metaroll.checks import check_number, check_whole
from metaroll.errors import (
    LARGEST_COUNT,
    LARGEST_SEED,
    UnknownNameError,
    for_reader,
    name_given,
    named_as,
    option_name,
    option_text,
    shortened,
)
from metaroll.option_names import GIVEN, Absent, names_here, understood, unknown_options

__all__ = [
    "MISSING",
    "Added",
    "Bounds",
    "Checked",
    "Config",
    "ConfigField",
    "Count",
    "Number",
    "Option",
    "Positive",
    "RunFile",
    "Share",
    "UnusedWhere",
    "UsedWhere",
    "Was",
    "Weight",
    "Whole",
    "config_of",
    "described",
    "described_values",
    "former_names",
    "largest_integer",
    "merge_layers",
    "options_of",
    "parts_of",
    "understands",
    "unused",
    "whole_number_hint",
]

MISSING: Any = inspect.Parameter.empty
"""Default of an option that has none."""


class RunFile(str):
    """Name of the file of a run, which holds all options: those that change nothing are no mistake in it."""

    __slots__ = ()


C = TypeVar("C", bound="Config")
P = ParamSpec("P")
T = TypeVar("T")


# ------------------------------------------------------------------------------------------- what fields declare
@dataclass(frozen=True)
class Bounds:
    """Bounds of a number: in [low, high], excluding ``low`` if ``above_low``, or ``high`` if ``below_high``."""

    low: float = -math.inf
    high: float = math.inf
    above_low: bool = False
    below_high: bool = False


@dataclass(frozen=True)
class Was:
    """Name of the field before: understood with a ``DeprecationWarning``, and kept in fingerprints of snapshots."""

    name: str


@dataclass(frozen=True)
class Added:
    """The field joined a config that snapshots were made with: fingerprints leave it out where it has its default.

    So these snapshots are read as before; its default must be what was done without it.
    """


@dataclass(frozen=True)
class UnusedWhere:
    """The field changes nothing where ``other`` has this value: whoever sets it gets a warning."""

    other: str
    value: Any = None

    def why(self, name: str, values: Mapping[str, Any]) -> str:
        """Why the field called ``name`` has no effect; empty if it has one."""
        value = values.get(self.other, MISSING)
        if value is MISSING or value != self.value:
            return ""
        if value is None:
            return f"it only counts with {option_text(self.other, beside=name)}; give that, too"
        return f"{option_name(self.other, name)} is {value!r}"


@dataclass(frozen=True)
class UsedWhere:
    """The field changes something only where ``other`` has this value."""

    other: str
    value: Any = None

    def why(self, name: str, values: Mapping[str, Any]) -> str:
        """Why the field called ``name`` has no effect; empty if it has one."""
        value = values.get(self.other, MISSING)
        if value is MISSING or value == self.value:
            return ""
        return f"{option_name(self.other, name)} is {value!r}; leave that out, and it counts"


Whole = Annotated[int, Bounds(1)]
"""An integer of at least 1."""
Count = Annotated[int, Bounds(0)]
"""An integer of at least 0."""
Number = Annotated[float, Bounds()]
"""A finite number."""
Positive = Annotated[float, Bounds(0.0, above_low=True)]
"""A finite number above 0."""
Weight = Annotated[float, Bounds(0.0)]
"""A finite number of at least 0."""
Share = Annotated[float, Bounds(0.0, 1.0)]
"""A number in [0, 1]."""

_SCALARS = (bool, int, float, str)


@dataclass(frozen=True)
class Option:
    """A field of a config, as all that reads it sees it.

    Attributes:
        name: Name of the field; the flag is the same with dashes.
        kind: ``bool``, ``int``, ``float`` or ``str``; of what only Python gives, a frozen dataclass that checks itself.
        section: Section of ``config.yaml`` and of the help that it belongs to.
        many: A tuple of ``kind`` instead of one.
        optional: ``None`` is allowed.
        choices: The values allowed; empty means all.
        default: Its default, or ``MISSING``.
        help: Its line of text.
        bounds: Where numbers lie.
        was: Its name before; empty for none.
        added: It joined later: fingerprints leave it out where it has its default.
        unused: Where it changes nothing.
    """

    name: str
    kind: type
    section: str = ""
    many: bool = False
    optional: bool = False
    choices: tuple[Any, ...] = ()
    default: Any = MISSING
    help: str = ""
    bounds: Bounds = Bounds()
    was: str = ""
    added: bool = False
    unused: tuple[UnusedWhere | UsedWhere, ...] = ()

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

    def checked(self, value: Any, where: str = GIVEN) -> Any:
        """``value`` as plain Python, if it is one of the values that the field takes.

        Args:
            value: The value; lists, rows of arrays and integers are taken for tuples and numbers.
            where: Its source, which errors name: ``GIVEN``, or a file.

        Raises:
            TypeError: It is of another type.
            ValueError: It lies outside the bounds, or is none of the choices.
        """
        if self._is_plain(value):
            return value
        try:
            return self._checked(self.name, value, where)
        except (TypeError, ValueError):
            name = option_name(self.name)
            if where != GIVEN and f" in {where}" not in name:
                name = f"{self.name} in {where}"
            if name == self.name:
                raise
        return self._checked(name, value, where)  # which raises an error: only that needs the name

    def _is_plain(self, value: Any) -> bool:
        """Whether the field accepts ``value`` without conversion or warning, the usual case."""
        if value is None:
            return self.optional
        if self.many:
            return type(value) is tuple and all(map(self._entry._is_plain, value))
        if type(value) is not self.kind:
            return False
        if self.choices:
            return value in self.choices
        low, high = self._limits
        return self.kind not in (int, float) or (
            low <= value <= high
            and not (self.bounds.above_low and value == low)
            and not (self.bounds.below_high and value == high)
            and math.isfinite(value)
        )

    @functools.cached_property
    def _entry(self) -> Option:
        """The same of each value of a tuple."""
        return dataclasses.replace(self, many=False, optional=False)

    @functools.cached_property
    def _limits(self) -> tuple[float, float]:
        """Lowest and highest value of a number."""
        low, high = self.bounds.low, self.bounds.high
        if self.kind is not int:
            return low, high
        lowest = -LARGEST_COUNT if low == -math.inf else int(low)
        return lowest, largest_integer(self.name) if high == math.inf else int(high)

    def _checked(self, name: str, value: Any, where: str) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            value = value.tolist()
        if value is None and self.optional:
            return None
        typed = where == GIVEN
        if self.many and value is not None and _is_listed(value):
            try:
                return tuple(self._entry._checked(f"each entry of {name}", item, where) for item in value)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{error}, in {shortened(list(value))}") from error
        if self.kind is float and isinstance(value, str) and not typed:
            with contextlib.suppress(ValueError):
                value = float(value)  # YAML 1.1 reads 3e-4 as text
        right = isinstance(value, int | float if self.kind is float else self.kind)
        if self.many or not right or isinstance(value, bool) != (self.kind is bool):
            example = f", as in {shortened(_listed(self, value))}" if self.many and _is_one(value) else ""
            got = shortened(value) + (
                for_reader(f" of type {type(value).__name__}", "") if typed and value is not None else ""
            )
            hint = whole_number_hint(value, self.bounds.low) if self.kind is int and not self.many else ""
            raise TypeError(f"{name} must be {_expectation(self, typed)}{example}, got {got}{hint}")
        if self.choices and value not in self.choices:
            near = difflib.get_close_matches(str(value), map(str, self.choices), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UnknownNameError(f"{name} must be {_expectation(self, typed)}, got {shortened(value)}{hint}")
        low, high = self._limits
        if self.kind is int and not self.choices:
            return check_whole(name, value, int(low), int(high))
        if self.kind is float:
            ends = {"above_low": self.bounds.above_low, "below_high": self.bounds.below_high}
            return check_number(name, value, low, high, **ends)
        return value


def whole_number_hint(value: Any, low: float = -math.inf) -> str:
    """How to write a whole number of at least ``low`` that came with a point, an exponent, or as a text."""
    if isinstance(value, bool) or not isinstance(value, float | str):
        return ""
    try:
        number = float(value)
    except ValueError:
        return ""
    return f": write {int(number)}" if number.is_integer() and low <= number <= LARGEST_COUNT else ""


def largest_integer(name: str) -> int:
    """The largest value of an integer option: seeds may have more bits than counts."""
    return LARGEST_SEED if name.endswith("seed") else LARGEST_COUNT


# ------------------------------------------------------------------------------------------------------------- configs
class _NamesUnderstood(ABCMeta):
    """Makes configs of names in other libraries and of former ones, too; errors call values as they were given."""

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature for ``inspect`` and ``help``: the fields."""
        signature = inspect.signature(cls.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(cls: type[T], *positional: Any, **values: Any) -> T:
        if positional:
            raise TypeError(f"{cls.__name__} takes keywords only, got {shortened(positional[0])}")
        options = options_of(cls)  # type: ignore[arg-type]  # a config
        fields = {option.name for option in options}
        own = vars(cls)
        again = [o.name for o in options if o.name in own and own[o.name] is not o.default]
        if "__dataclass_fields__" not in own:
            again += [name for name in inspect.get_annotations(cls) if name not in fields | _class_variables(cls)]
        if again:
            raise TypeError(
                f"{cls.__name__} sets {', '.join(again)}: decorate it, @dataclass(frozen=True, kw_only=True)"
            )
        names: dict[str, str] = {}
        if not values.keys() <= fields:
            if fields <= values.keys():
                _refuse_replaced(values.keys() - fields, options)
            values, names = understood(values, options)
            names = _as_typed(names)
            if (wrong := unknown_options(values, fields, GIVEN, absent=_absent_of(cls))) is not None:  # type: ignore[attr-defined]
                raise wrong
        values |= cls.settled(values, values)  # type: ignore[attr-defined]
        if missing := [option.name for option in options if option.default is MISSING and option.name not in values]:
            with _called(names):
                for option in options:
                    if option.name in values:
                        option.checked(values[option.name])
            raise TypeError(f"{cls.__name__} has no default for {', '.join(map(option_text, missing))}: give a value")
        with _called(names):
            made: T = super().__call__(**values)  # pyright: ignore[reportAttributeAccessIssue]
        object.__setattr__(made, _NAMES, names)
        return made


_NAMES = "_names_given"


def _called(names: Mapping[str, str]) -> contextlib.AbstractContextManager[None]:
    """``named_as``, where there are other ``names``."""
    return named_as(names) if names else contextlib.nullcontext()


def _refuse_replaced(aliases: Iterable[str], options: Sequence[Option]) -> None:
    """``ValueError`` where one of these names means fields, which ``dataclasses.replace`` has given already."""
    for alias in aliases:
        if (names := names_here(alias, options)) != [alias]:
            raise ValueError(
                f"{alias} means what is given already, since dataclasses.replace hands all fields on: write "
                f"{', '.join(map(option_text, names))} there"
            )


class Config(metaclass=_NamesUnderstood):
    """Base of configs, which are frozen, keyword-only dataclasses; their fields are checked at construction.

    Raises:
        TypeError: A value is of another type than its field.
        ValueError: A value lies outside the bounds of its field, or does not go with another.
        UnknownNameError: There is no field of a name; names the nearest ones.
    """

    complete: ClassVar[bool] = False
    """Whether these are all settings of a learner, so that errors can name those that are not options."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # ``name = default`` gives a field of a base another default, and leaves its type and its text.
        inherited: dict[str, Any] = {}
        for kind in cls.__mro__[:0:-1]:
            again = vars(cls).keys() & inspect.get_annotations(kind).keys()
            inherited |= {name: _hints_of(kind)[name] for name in again}
        own: type = cls  # else type checkers take this for an attribute that the class declares
        own.__annotations__ = {**inherited, **inspect.get_annotations(cls)}

    def __post_init__(self) -> None:
        for option in options_of(type(self)):
            # Plain Python, so that equal configs have equal texts: 1 is 1.0 where a float is meant, lists are tuples.
            object.__setattr__(self, option.name, option.checked(getattr(self, option.name)))
        self.check()

    @classmethod
    def settled(cls, values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
        """Values that follow from those of other fields, unless they are ``given``; by default none.

        Args:
            values: Values of fields, which are not checked yet.
            given: Names of the fields that were given a value.
        """
        return {}

    def check(self) -> None:
        """Raise ``wrong`` where values of several fields do not go together; a subclass calls this one, too."""

    def wrong(self, name: str, expected: str, hint: str = "") -> ValueError:
        """Error of a field: the expected value, with respect to other fields (``shown``), and perhaps the reason."""
        value = shortened(getattr(self, name))
        return ValueError(f"{option_name(name)} must {expected}, got {value}" + (f": {hint}" if hint else ""))

    def shown(self, name: str) -> str:
        """A field and its value, for messages: ``num_atoms=25``, ``--num-atoms 25``."""
        return option_text(name, getattr(self, name))

    @property
    def names_given(self) -> Mapping[str, str]:
        """Fields that were given by another name: name here -> that name, for ``named_as``."""
        return vars(self).get(_NAMES, {})


@functools.cache
def options_of(kind: type[Config]) -> tuple[Option, ...]:
    """The fields of a config, in the order of the dataclass."""
    hints = _hints_of(kind)
    options = tuple(
        _option_of(field, hints[field.name])
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]  # all configs are dataclasses
    )
    for option in options:
        if option.default is not MISSING:
            option._checked(option.name, option.default, GIVEN)
    return options


@functools.cache
def _class_variables(kind: type) -> set[str]:
    """Names that are annotated, and belong to the class rather than to its instances."""
    return {
        name
        for name, hint in _hints_of(kind).items()
        if hint is typing.ClassVar or typing.get_origin(hint) is typing.ClassVar
    }


@functools.cache
def _hints_of(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _option_of(field: dataclasses.Field[Any], hint: Any) -> Option:
    extras: list[Any] = []
    members = _members(hint, extras)
    many = False
    if typing.get_origin(members[0]) is tuple:
        many, members = True, [*_members(typing.get_args(members[0])[0], extras), *members[1:]]
    choices = typing.get_args(members[0]) if typing.get_origin(members[0]) is typing.Literal else ()
    kind: type = type(choices[0]) if choices else members[0]
    if kind not in _SCALARS and not dataclasses.is_dataclass(kind):
        expected = "a number, a text, a flag, a tuple of these or a dataclass"
        raise TypeError(f"{field.name} of a config must be {expected}, got {hint}")
    text = " ".join(" ".join(extra.split()) for extra in extras if isinstance(extra, str))
    if not text:
        raise TypeError(f"{field.name} of a config must have a line of text: Annotated[{kind.__name__}, 'What it is.']")
    return Option(
        field.name,
        kind,
        many=many,
        optional=type(None) in members,
        choices=choices,
        default=MISSING if field.default is dataclasses.MISSING else field.default,
        help=text,
        bounds=next((extra for extra in extras if isinstance(extra, Bounds)), Bounds()),
        was=next((extra.name for extra in extras if isinstance(extra, Was)), ""),
        added=any(isinstance(extra, Added) for extra in extras),
        unused=tuple(extra for extra in extras if isinstance(extra, UnusedWhere | UsedWhere)),
    )


def _members(hint: Any, extras: list[Any]) -> list[Any]:
    """The types of a union, or the one type, ``None`` last; additions of ``Annotated`` go to ``extras``."""
    if typing.get_origin(hint) is Annotated:
        inner, *more = typing.get_args(hint)
        extras += more
        return _members(inner, extras)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for part in typing.get_args(hint) for member in _members(part, extras)]
        return sorted(members, key=lambda member: member is type(None))
    return [hint]


def config_of(kind: type[C], config: C | None, keywords: Mapping[str, Any], owner: type | None = None) -> C:
    """The config of a learner that was given one, or keywords, or one and keywords that replace parts of it.

    Args:
        kind: Class of the config.
        config: A config; ``None`` for the defaults.
        keywords: Values by name; names of other libraries, and former ones, are understood.
        owner: Class whose constructor was given them: its own keywords may be meant by one that is unknown.

    Raises:
        TypeError: ``config`` is something else.
        UnknownNameError: There is no field of a name; names the nearest ones.
    """
    if config is not None and not isinstance(config, kind):
        got = f"the class {config.__name__}" if isinstance(config, type) else type(config).__name__
        raise TypeError(
            f"{option_name('config')} must be of type {kind.__name__}, got {got}: all else is given by keyword"
        )
    if not keywords:
        return _defaults_of(kind) if config is None else config
    options = options_of(kind if config is None else type(config))
    values, names = understood(keywords, options)
    names = _as_typed(names)
    known = {option.name for option in options}
    if not values.keys() <= known:
        wrong = unknown_options(values, sorted(known | _keywords_of(owner)), GIVEN, absent=_absent_of(kind))
        if wrong is not None:
            raise wrong
    if config is not None:
        kept = {name: called for name, called in config.names_given.items() if name not in values}
        kind, names = type(config), {**kept, **names}
        whole = {option.name: getattr(config, option.name) for option in options} | values
        values = whole | kind.settled(whole, values)
    with _called(names):
        made = kind(**values)
    object.__setattr__(made, _NAMES, names)
    return made


def understands(
    *kinds: type[Config],
    former: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    own: Collection[str] = (),
    **names: str,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator of a constructor, or a function, with parameters for fields of configs: it takes all of their names.

    Names of fields, of other libraries and former ones are understood as in ``config_of``, those of its other
    parameters, too; a keyword of no parameter is an ``UnknownNameError``, which names the nearest, and more
    values than have a place are a ``TypeError``. Errors call a parameter as it was given.

    Args:
        kinds: Classes of the configs.
        former: Gives keywords in place of those that there were in an earlier version.
        own: Parameters that mean something else than the field of the name: no other name means them.
        names: Parameters that are called otherwise inside: that name -> name of the parameter.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        kept = list(inspect.signature(function).parameters.values())
        places = [parameter.name for parameter in kept if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        parameters = [p.name for p in kept if p.kind is not p.VAR_KEYWORD and p.name != "self"]
        has_options = any(parameter.kind is parameter.VAR_KEYWORD for parameter in kept)
        keywords = functools.cache(lambda: _keywords_of_parameters(kinds, parameters, own, names))

        @functools.wraps(function)
        def checked(*args: Any, **passed: Any) -> T:
            called = dict(names)
            if len(args) > len(places):
                owner = type(args[0]).__name__ if places[0] == "self" else function.__name__
                placed = " and ".join(name for name in places if name != "self") or "nothing"
                got = type(args[len(places)]).__name__
                raise TypeError(f"{owner} takes {placed} by position, and all else by keyword: got a further {got}")
            if passed:
                options, meant = keywords()
                values, typed = understood(passed if former is None else former(passed), options)
                known = sorted({*parameters, *meant})
                wrong = None if has_options else unknown_options(values, known, GIVEN, absent=_absent_of(*kinds))
                if wrong is not None:
                    raise wrong
                for kind in kinds:
                    values |= kind.settled(values, values)
                passed = _renamed(values, meant, typed, places[: len(args)])
                called |= {
                    name: typed.get(field, field) for field in values for name in (field, meant.get(field, field))
                }
            with _called({name: other for name, other in called.items() if name != other}):
                return function(*args, **passed)  # type: ignore[call-arg]  # as it was called

        return checked

    return decorated


def _keywords_of_parameters(
    kinds: Iterable[type[Config]], parameters: Iterable[str], own: Collection[str], names: Mapping[str, str]
) -> tuple[list[Option], dict[str, str]]:
    """The fields of ``parameters``, as options (those that are no field have only a name), and name -> parameter."""
    fields = {option.name: option for kind in kinds for option in options_of(kind)}
    meant = {here: name for name in parameters for here in names_here(name, [*fields.values()])}
    meant |= names
    return [fields.get(name, Option(name, str)) for name in meant if name not in own], meant


def _as_typed(names: Mapping[str, str]) -> dict[str, str]:
    """``names`` of fields, as the constructor was given that has handed them on (see ``understands``)."""
    typed = {name: name_given(alias) or alias for name, alias in names.items()}
    return {name: alias for name, alias in typed.items() if name != alias}


def _renamed(
    values: Mapping[str, Any], names: Mapping[str, str], called: Mapping[str, str], placed: Sequence[str]
) -> dict[str, Any]:
    """``values`` by other ``names``; ``ValueError`` where two of them, or one that is ``placed``, are the same."""
    renamed: dict[str, Any] = {}
    for field, value in values.items():
        name = names.get(field, field)
        if name in renamed or name in placed:
            raise ValueError(f"{name} is given twice, the second time as {called.get(field, field)}: keep one")
        renamed[name] = value
    return renamed


def _absent_of(*kinds: type[Config]) -> Absent:
    """The ``absent`` of ``near_options`` for options that none of these configs has."""
    return "learner" if any(kind.complete for kind in kinds) else False


def _keywords_of(owner: type | None) -> set[str]:
    """Keywords of the constructor of a class, and of those that it hands keywords on to."""
    names: set[str] = set()
    for kind in () if owner is None else owner.__mro__:
        if inspect.isfunction(constructor := vars(kind).get("__init__")):
            names |= inspect.signature(constructor).parameters.keys()
    return names - {"self", "config", "options"}


@functools.cache
def _defaults_of(kind: type[C]) -> C:
    """The config of the defaults: one for all, since it is immutable."""
    return kind()


def parts_of(kind: type[C], values: Mapping[str, Any]) -> C:
    """The config ``kind`` of those of ``values`` that it has, which may be of an older run that lacks some names."""
    return kind(**{option.name: values[option.name] for option in options_of(kind) if option.name in values})


def former_names(values: Mapping[str, Any], kind: type[Config]) -> dict[str, Any]:
    """``values`` of fields of ``kind`` by the names that the fields had before; other names stay."""
    names = {option.name: option.was or option.name for option in options_of(kind)}
    return {names.get(name, name): value for name, value in values.items()}


def described_values(config: Any, kind: type[Config] | None = None) -> dict[str, Any]:
    """The values of a config (those of its base ``kind``), or of another dataclass, by name; 1 is 1.0 for a float.

    Snapshots are compared by them: names are those of the first version that had them, and what was ``Added`` is left
    out where it has its default.
    """
    kind = type(config) if kind is None else kind
    if not isinstance(config, Config):
        floats = {field.name for field in dataclasses.fields(config) if field.type == "float"}
        values = dataclasses.asdict(config)
        return {name: float(value) if name in floats else value for name, value in values.items()}
    options = [o for o in options_of(kind) if not o.added or getattr(config, o.name) != o.default]
    return former_names({option.name: getattr(config, option.name) for option in options}, kind)


def described(config: Any, kind: type[Config] | None = None) -> str:
    """``described_values`` as one line of text, the same on every machine."""
    values = described_values(config, kind)
    return ", ".join(f"{name}={value!r}" for name, value in sorted(values.items()))


# ------------------------------------------------------------------------------------- attributes of what has a config
class _Attribute(ABC, Generic[T]):
    """Attribute that reads a field of the same name, unless another is given."""

    def __init__(self, field: str) -> None:
        self.field = self.name = field

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.field = self.field or name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...

    def __get__(self, instance: Any, owner: type) -> Self | T:
        return self if instance is None else self.value(instance)

    @abstractmethod
    def value(self, instance: Any) -> T:
        """Its current value."""


@final
class ConfigField(_Attribute[T]):
    """Attribute of an object with a ``config``: one of its fields, under the documented name.

    Args:
        field: Name of the field; empty: that of the attribute.
        changes: It may be set, which makes another config, for ``settle``.
        shown: Gives what it is now, of its owner, where that is not the value of the field.
    """

    def __init__(self, field: str = "", *, changes: bool = False, shown: Callable[[Any], T] | None = None) -> None:
        super().__init__(field)
        self.changes, self.shown = changes, shown

    def value(self, instance: Any) -> T:
        return getattr(instance.config, self.field) if self.shown is None else self.shown(instance)

    def __set__(self, instance: Any, value: T) -> None:
        if not self.changes:
            raise AttributeError(
                f"{self.name} of a {type(instance).__name__} stays as it was made: make another one, with "
                f"{option_text(self.name, value)}"
            )
        instance.settle(config_of(type(instance.config), instance.config, {self.name: value}))


@final
class Checked(_Attribute[T]):
    """Attribute that is checked whenever it is set, by the constructor, too; errors call it as it was given.

    Args:
        check: Gives the value of what it is set to, or raises; the first argument is the name, for errors.
        field: Attribute that it is another name of; empty: none.
    """

    def __init__(self, check: Callable[[str, Any], T], field: str = "") -> None:
        super().__init__(field)
        self.check = check

    def value(self, instance: Any) -> T:
        return vars(instance)[self.field]

    def __set__(self, instance: Any, value: T) -> None:
        try:
            vars(instance)[self.field] = self.check(self.name, value)
            return
        except (TypeError, ValueError):
            name = option_name(self.name)
            if name == self.name:
                raise
        vars(instance)[self.field] = self.check(name, value)  # which raises: see Option.checked


# ------------------------------------------------------------------------------------------ values from flags and files
def _is_listed(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_one(value: Any) -> bool:
    return isinstance(value, int | float | str)


def _listed(option: Option, value: Any) -> list[Any]:
    """The likely meaning of a value that is not a list: ``[64]`` by 64, ``[64, 64]`` by the text ``64,64``."""
    numbers = re.findall(r"\d{1,18}", value) if option.kind is int and isinstance(value, str) else []
    return [*map(int, numbers)] or [value]


def _expectation(option: Option, typed: bool) -> str:
    # A file has its own words for these; a flag accepts None, like Python.
    yes_or_no = for_reader("True or False", "true or false") if typed else "true or false"
    nothing = "None" if typed else "null"
    one = " or ".join(repr(c) for c in option.choices) or {
        bool: yes_or_no,
        int: "an integer" + (f" of at least {option.bounds.low:g}" if option.bounds.low > -math.inf else ""),
        float: "a number",
        str: "a text",
    }.get(option.kind, option.kind.__name__)
    if option.many:
        one = f"a list with each entry {one}"
    return f"{one} (or {nothing})" if option.optional else one


def merge_layers(
    options: Iterable[Option],
    layers: Iterable[tuple[str, Mapping[str, Any]]],
    usual: Mapping[str, Any] = types.MappingProxyType({}),
) -> dict[str, Any]:
    """Name -> value for all options: their defaults, overridden by each layer in turn.

    Args:
        options: All options of the run.
        layers: ``(where, values)`` pairs, weakest first; ``where`` names the source in errors.
        usual: Values in place of defaults, checked before.
    """
    known = {option.name: option for option in options}
    values = {name: option.default for name, option in known.items()} | dict(usual)
    for where, layer in layers:
        if not layer.keys() <= known.keys() and (wrong := unknown_options(layer, known, where)) is not None:
            raise wrong
        for name, value in layer.items():
            values[name] = known[name].checked(value, where)
    return values


def unused(options: Iterable[Option], values: Mapping[str, Any]) -> dict[str, str]:
    """Options that change nothing with these ``values``, as their fields declare: name -> why."""
    return {
        option.name: why for option in options for other in option.unused if (why := other.why(option.name, values))
    }
