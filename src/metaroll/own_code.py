"""The location of a module, determined without importing it; and the folders that modules may come from.

A run names its environment, e.g. ``my_env:make``. Before a foreign run is rebuilt, it must be known which file
that would execute.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from metaroll.errors import MetarollError, UnknownNameError, for_reader, unknown_name

__all__ = [
    "ENVIRONMENTS",
    "GIVEN",
    "Declared",
    "GivenObjects",
    "OwnCodeError",
    "PluginError",
    "add_code_folder",
    "attribute_of",
    "contributed",
    "declared",
    "forbid",
    "held",
    "in_file",
    "is_given",
    "is_importable",
    "is_named",
    "lies_in",
    "look_in",
    "module_files",
    "module_of",
    "names_in_modules",
    "sort_declared",
]

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""Names in declarations."""
ENVIRONMENTS = "metaroll.environments"
"""Entry point of environments and families."""
GIVEN = "given:"
"""Before names of objects that only the running script has."""
_SCRIPTS = ("__main__", "__mp_main__")
"""Modules that are another thing in every process."""
_OWN = "metaroll"
"""The distribution that this is."""
_folders: list[str] = []
"""Folders of the user's modules that are not on the path yet (see ``look_in``)."""


class OwnCodeError(MetarollError, ImportError):
    """A module of yours cannot be imported, or its content cannot be used."""


class PluginError(OwnCodeError):
    """A foreign plug-in cannot be used; names it, its origin, and the problem."""


class Declared(NamedTuple):
    """An entry point that a distribution declares.

    Attributes:
        name: Its name.
        target: ``module:attribute``.
        distribution, version: The declaring distribution.
    """

    name: str
    target: str
    distribution: str
    version: str

    @property
    def label(self) -> str:
        """The origin, for messages."""
        return f"{self.target} of {self.distribution} {self.version}"

    @property
    def location(self) -> str:
        """The same behind its name, with its file, for errors."""
        return f"({self.label}){in_file(self.target)}"


@functools.cache
def declared(group: str) -> tuple[Declared, ...]:
    """All that other distributions declare under an entry point, by name; nothing is imported."""
    entries = [
        Declared(point.name, point.value, point.dist.name, point.dist.version)
        for point in metadata.entry_points(group=group)
        if point.dist is not None and point.dist.name != _OWN
    ]
    return tuple(sorted(entries))


@functools.cache
def contributed(room: str = "contrib") -> dict[str, str]:
    """Name -> ``module:attribute`` of metaroll's own plug-ins; nothing is imported.

    The list ``entry_points.txt`` of the room exists before anything is installed. That of ``contrib``, algorithms and
    searches, is also in pyproject.toml; that of ``lab`` has its views.
    """
    ours = metadata.Distribution.at(Path(__file__).with_name(room))
    return {point.name: point.value for point in ours.entry_points}


def sort_declared(groups: Sequence[str], ours: Iterable[str]) -> tuple[Mapping[str, Declared], list[tuple[str, str]]]:
    """Entries that can be used, by name, and name and reason of each that cannot; nothing is imported.

    Args:
        groups: Entry points that share their names; of two with one name, the first has it.
        ours: Names that are taken.
    """
    return _sorted(tuple(one for group in groups for one in declared(group)), frozenset(ours))


@functools.cache
def _sorted(entries: Sequence[Declared], ours: frozenset[str]) -> tuple[Mapping[str, Declared], list[tuple[str, str]]]:
    free: dict[str, Declared] = {}
    refused: list[tuple[str, str]] = []
    for one in entries:
        why = ""
        if one.name in ours:
            why = "metaroll has that name itself"
        elif not NAME.fullmatch(one.name):
            why = "a name is lowercase words with dashes between them"
        elif one.name in free:
            why = f"{free[one.name].label} has that name, too"
        if why:
            refused.append((one.name, f"{one.name!r} {one.location} is not used: {why}"))
        else:
            free[one.name] = one
    return free, refused


def is_named(name: str) -> bool:
    """Whether a name has the form ``module:attribute``."""
    module, _, attribute = name.partition(":")
    return all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")])


def module_of(name: str) -> str | None:
    """The module of ``module:attribute``; ``None`` for a name without one."""
    return None if ":" not in name or is_given(name) else name.partition(":")[0]


def is_given(name: str | None) -> bool:
    """Whether ``name`` is one of ``GivenObjects``, which other processes do not know."""
    return name is not None and name.startswith(GIVEN)


def is_importable(module: str | None) -> bool:
    """Whether other processes find the same in a module of this name."""
    return module is not None and module not in _SCRIPTS


def names_in_modules(value: Any, first: str = "") -> list[str]:
    """``module:attribute`` of all public names that loaded modules have for ``value``, those of ``first`` first.

    What follows does not depend on the order of imports: short names of modules come before long ones.
    """
    held = [
        (module != first, len(module), module, attribute)
        for module, loaded in list(sys.modules.items())
        if is_importable(module)
        for attribute, member in list(getattr(loaded, "__dict__", {}).items())
        if member is value and not attribute.startswith("_")
    ]
    return [name for *_, module, attribute in sorted(held) if is_named(name := f"{module}:{attribute}")]


class GivenObjects:
    """Objects that a script has given, under names that its runs keep and other processes do not know.

    Args:
        kind: Their kind, in messages.
        argument: Under which ``metaroll.load`` takes one again.
        instead: An alternative, in messages.
        make_known: Called with each name and object: makes it known where else that is needed, or raises an error.
    """

    def __init__(
        self, kind: str, argument: str, instead: str, make_known: Callable[[str, Any], object] | None = None
    ) -> None:
        self._kind, self._argument, self._instead = kind, argument, instead
        self._make_known = make_known
        self._objects: dict[str, Any] = {}
        _tables[argument] = self

    def __setitem__(self, name: str, value: Any) -> None:
        if self._make_known is not None:
            self._make_known(name, value)
        self._objects[name] = value

    def __getitem__(self, name: str) -> Any:
        if name not in self._objects:
            load = f"metaroll.load(run, {self._argument}=...)"
            raise UnknownNameError(
                f"{self._kind} {name!r} is one that a script has given to metaroll.agent, and is known there only: "
                f"{for_reader(f'use {load} with it', f'continue with {load} in Python')}, or {self._instead}"
            )
        return self._objects[name]

    def get(self, name: str) -> Any:
        """The object of this name, ``None`` if there is none."""
        return self._objects.get(name)

    def clear(self) -> None:
        """Forget all, as in another process."""
        self._objects.clear()

    def free_name(self, plain: str, value: Any) -> str:
        """The name that ``value`` has already, or a new one made of ``plain``."""
        numbered = (f"{GIVEN}{plain}_{number}" for number in itertools.count(2))
        names = itertools.chain([f"{GIVEN}{plain}"], numbered)
        return next(name for name in names if name not in self._objects or self._objects[name] is value)


_tables: dict[str, GivenObjects] = {}
"""Argument of ``metaroll.load`` -> objects that scripts have passed for it."""


def held(names: Mapping[str, str | None]) -> list[Callable[[], None]]:
    """Functions that bind names again to their present objects, after any later change.

    Args:
        names: Argument of ``metaroll.load`` -> name of what it takes; of those that are not given there is nothing.
    """
    bound = [(_tables[argument], name) for argument, name in names.items() if name is not None and is_given(name)]
    return [functools.partial(table.__setitem__, name, table[name]) for table, name in bound]


def attribute_of(name: str, what: str, explained: Callable[[BaseException], str | None] | None = None) -> Any:
    """The object of ``module:attribute``; imports the module.

    Args:
        name: The module and the attribute, both perhaps with dots.
        what: Its kind, in messages: ``"environment"``.
        explained: Returns, for an error of the module, what the user can do, if that is known.

    Raises:
        UnknownNameError: There is no such module, or no such name in it.
        OwnCodeError: The module cannot be imported, or fails to give what is named.
    """
    module_name, _, attribute = name.partition(":")
    if not attribute:
        raise UnknownNameError(f"unknown {what} {name!r}: it names a module and nothing in it; write {name}:NAME")
    add_code_folder()
    try:
        value = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        missing = getattr(error, "name", None)
        if isinstance(error, ModuleNotFoundError) and missing and f"{module_name}.".startswith(f"{missing}."):
            raise UnknownNameError(
                f"unknown {what} {name!r}: there is no module {missing!r} in the current folder, or among what is "
                "installed; run in the folder of your file, and leave its .py out"
            ) from error
        reason = f"{type(error).__name__}: {error}; the same happens in python -c 'import {module_name}'"
        advice = None if explained is None else explained(error)
        raise OwnCodeError(f"{module_name} cannot be imported for {name!r}: {advice or reason}") from error
    where = module_name
    for part in attribute.split("."):
        try:
            value, where = getattr(value, part), f"{where}.{part}"
        except (Exception, SystemExit) as error:  # for a module that creates it on access
            if isinstance(error, AttributeError) and error.obj is value:
                known = [member for member in getattr(value, "__dict__", ()) if not member.startswith("_")]
                raise unknown_name(f"name in {where}", part, known) from error
            advice = None if explained is None else explained(error)
            reason = advice or f"{type(error).__name__}: {error}"
            raise OwnCodeError(f"{where}{in_file(name)} has no {part} for {name!r}: {reason}") from error
    return value


def look_in(folder: str) -> None:
    """Modules of environments may lie in ``folder``, too.

    It joins the path as late as ``add_code_folder``, when an environment is named: libraries try to import packages
    that are not installed, and must not find a file of that name in the current folder.
    """
    if folder not in sys.path and folder not in _folders:
        _folders.append(folder)


def add_code_folder() -> None:
    """Put the folders of ``look_in`` on the path, behind all that is installed."""
    while _folders:
        sys.path.append(_folders.pop(0))


def forbid(folder: Path) -> None:
    """Stop finding modules inside ``folder`` by name, here and in workers that start later."""
    for places in (sys.path, _folders):
        # An empty entry is the current folder.
        places[:] = [place for place in places if not lies_in(Path(place or os.curdir), folder)]


def lies_in(path: Path, folder: Path) -> bool:
    """Whether ``path`` is ``folder`` or inside it, links followed."""
    with contextlib.suppress(OSError, RuntimeError):
        return path.resolve().is_relative_to(folder.resolve())
    return False


def module_files(name: str) -> list[Path]:
    """The files that would be executed to import the module ``name``: those of the packages around it, and last its
    own.

    Folders are packages without an ``__init__``. Empty where there is no such module, or it has no file.
    """
    files: list[Path] = []
    places: list[str] | None = None
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return []
    for count, part in enumerate(parts, start=1):
        whole = ".".join(parts[:count])
        origin, inner = _find(whole, part, places)
        if origin is None and inner is None:
            return []
        files += [Path(origin)] if origin is not None else [Path(place) for place in inner or ()]
        if count < len(parts) and inner is None:
            return []
        places = inner
    return files


def in_file(where: str) -> str:
    """The location of a module, or ``module:attribute``, to follow its name; empty for a module without a file."""
    files = module_files(module_of(where) or where)
    return f" in {files[-1]}" if files else ""


def _find(whole: str, part: str, places: Sequence[str] | None) -> tuple[str | None, list[str] | None]:
    """File of a module, and the places of its submodules where it is a package.

    Args:
        whole: Its name.
        part: The last part of that.
        places: Where its package searches for submodules; ``None`` for a module at the top.
    """
    loaded = sys.modules.get(whole)
    members = getattr(loaded, "__dict__", {})  # rather than attributes, for which a module may have a function
    spec, file = members.get("__spec__"), members.get("__file__")
    if loaded is not None and (spec is not None or file is not None):
        inner = members.get("__path__")
        return file, None if inner is None else list(inner)
    for finder in sys.meta_path:
        # The folders of a namespace package inside a package that is not imported are unknown.
        with contextlib.suppress(KeyError):
            spec = finder.find_spec(whole, places, None)
            if spec is not None:
                return _of_spec(spec)
    if places is None:
        spec = importlib.machinery.PathFinder.find_spec(whole, _folders)
        return (None, None) if spec is None else _of_spec(spec)
    inner = [os.path.join(place, part) for place in places if os.path.isdir(os.path.join(place, part))]
    return None, inner or None


def _of_spec(spec: importlib.machinery.ModuleSpec) -> tuple[str | None, list[str] | None]:
    inner = spec.submodule_search_locations
    return spec.origin if spec.has_location else None, None if inner is None else list(inner)
