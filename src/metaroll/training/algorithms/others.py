"""Algorithms of others: of an entry point, of ``module:attribute``, or given as an object; listed without an import.

A distribution declares its rows under the entry point ``metaroll.algorithms``, each by the name that the row has::

    [project.entry-points."metaroll.algorithms"]
    crossq = "crossq:CROSSQ"
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

from metaroll.config import options_of
from metaroll.configs import table
from metaroll.data.doors.plain_files import read_bytes
from metaroll.errors import MetarollError, UnknownNameError, said
from metaroll.own_code import OwnCodeError, attribute_of, module_files

if TYPE_CHECKING:
    from metaroll.training.algorithms.algorithm import Algorithm

__all__ = [
    "GROUP",
    "Installed",
    "PluginError",
    "differs",
    "installed",
    "is_named",
    "is_other",
    "load_row",
    "name_of",
    "origin",
    "refused",
]

GROUP = "metaroll.algorithms"
"""Entry point of algorithms."""
_GIVEN = "given"
"""In place of the module in names of rows that only the running script has."""
_SCRIPTS = ("__main__", "__mp_main__")
"""Modules that are another thing in every process."""
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MOST_BYTES = 2**24

_given: dict[str, Algorithm] = {}


class PluginError(OwnCodeError):
    """An algorithm of somebody else cannot be used; says which, where it is from, and what is missing."""


class Installed(NamedTuple):
    """An algorithm that a distribution declares.

    Attributes:
        name: Its name.
        target: ``module:attribute`` of its row.
        distribution, version: What declares it.
    """

    name: str
    target: str
    distribution: str
    version: str

    @property
    def of(self) -> str:
        """Where it is from, for messages."""
        return f"{self.target} of {self.distribution} {self.version}"


@functools.cache
def installed() -> Mapping[str, Installed]:
    """Name -> algorithm, of those that distributions declare under names that are free; nothing is imported."""
    return {one.name: one for one in _declared() if not _why_refused(one)}


def refused() -> list[str]:
    """Why algorithms that are declared cannot be used, as far as their names tell."""
    return [why for one in _declared() if (why := _why_refused(one))]


@functools.cache
def _declared() -> tuple[Installed, ...]:
    found = [
        Installed(point.name, point.value, point.dist.name, point.dist.version)
        for point in metadata.entry_points(group=GROUP)
        if point.dist is not None
    ]
    return tuple(sorted(found))


def _why_refused(one: Installed) -> str:
    if one.name in table.CONFIGS:
        return f"{one.name!r} ({one.of}) is not used: an algorithm of metaroll has that name"
    if not _NAME.fullmatch(one.name):
        return f"{one.name!r} ({one.of}) is not used: a name is lowercase words with dashes between them"
    first = next(other for other in _declared() if other.name == one.name)
    return "" if first is one else f"{one.name!r} ({one.of}) is not used: {first.of} has that name, too"


def is_other(name: str) -> bool:
    """Whether a name may be that of an algorithm of somebody else; nothing is imported."""
    return name in installed() or is_named(name)


def is_named(name: str) -> bool:
    """Whether a name has the form ``module:attribute``."""
    module, _, attribute = name.partition(":")
    return all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")])


def load_row(name: str) -> Algorithm:
    """The row of an algorithm of somebody else, whose options ``table.run_options`` knows from then on.

    Args:
        name: See ``is_other``.

    Raises:
        PluginError: It cannot be used.
        UnknownNameError: There is no such module, or nothing of this name in it.
    """
    if name.startswith(f"{_GIVEN}:"):
        if name not in _given:
            raise UnknownNameError(
                f"algorithm {name!r} is one that a script has given to metaroll.agent, and is known there only: "
                + said("use metaroll.load(run, algo=...) with it", "go on with metaroll.load(run, algo=...) in Python")
                + ", or put it into a module, and train module:attribute"
            )
        return _given[name]
    one = installed().get(name)
    where = name if one is None else one.target
    of = f"algorithm {name!r}" + ("" if one is None else f" ({one.of})")
    try:
        row = attribute_of(where, "algorithm")
    except MetarollError as error:
        if one is None:  # what it says is about what was typed
            raise
        raise PluginError(f"{of} cannot be loaded: {error}") from error
    checked = _checked(row, of + _file_of(where))
    if one is not None and checked.name != one.name:
        raise PluginError(f"{of}: its row must be called {one.name!r}, as it is declared, got name={checked.name!r}")
    table.add_algorithm(name, checked.configs, checked.adapts)
    return checked


def _checked(row: Any, of: str) -> Algorithm:
    from metaroll.training.algorithms.algorithm import API, Algorithm

    if not isinstance(row, Algorithm):
        raise PluginError(f"{of} must be a metaroll.plugins.Algorithm, got {type(row).__name__}: Algorithm(name=...)")
    if row.api != API:
        raise PluginError(
            f"{of} must be written for version {API} of the interface, got api={row.api!r}: "
            + ("say it, api=1" if row.api is None else "install a version of it that fits this metaroll")
        )
    if not _NAME.fullmatch(row.name):
        raise PluginError(f"{of}: name must be lowercase words with dashes between them, got {row.name!r}")
    try:
        for kind in row.configs:
            options_of(kind)
    except (MetarollError, TypeError, ValueError, AttributeError) as error:
        raise PluginError(f"{of}: configs must be classes of configs: {error}") from error
    return row


def _file_of(where: str) -> str:
    files = module_files(where.partition(":")[0])
    return f" in {files[-1]}" if files else ""


def name_of(row: Any) -> str:
    """The name under which all functions of this process know a row: as others do, where they can.

    Raises:
        PluginError: It is no row that can be used.
    """
    checked = _checked(row, "algo")
    for one in installed().values():
        if one.name == checked.name and _is_there(one.target, checked):
            return one.name
    places = dict.fromkeys([checked.learner.__module__, *list(sys.modules)])
    for module in places:
        members = vars(sys.modules[module]) if module in sys.modules and module not in _SCRIPTS else {}
        names = [name for name, value in list(members.items()) if value is checked and not name.startswith("_")]
        for name in names:
            if is_named(f"{module}:{name}"):
                table.add_algorithm(f"{module}:{name}", checked.configs, checked.adapts)
                return f"{module}:{name}"
    given = f"{_GIVEN}:{checked.name}"
    _given[given] = checked
    table.add_algorithm(given, checked.configs, checked.adapts)
    return given


def _is_there(target: str, row: Algorithm) -> bool:
    module, _, attribute = target.partition(":")
    return module in sys.modules and vars(sys.modules[module]).get(attribute) is row


def origin(name: str) -> dict[str, str]:
    """Where an algorithm of somebody else is from, for ``config.yaml``: distribution, version, and hash of its file."""
    one = installed().get(name)
    files = module_files((name if one is None else one.target).partition(":")[0])
    found = {} if one is None else {"object": one.target, "distribution": one.distribution, "version": one.version}
    if files and files[-1].is_file():
        found["sha256"] = hashlib.sha256(read_bytes(files[-1].resolve(), _MOST_BYTES)).hexdigest()
    return found


def differs(name: str, kept: Any) -> str:
    """What is another thing now than ``origin`` was when a run began; empty where nothing is, or it was not kept.

    Args:
        name: Name of the algorithm.
        kept: The entry of the run.
    """
    if not isinstance(kept, Mapping):
        return ""
    here = origin(name)
    if "version" in kept and kept["version"] != here.get("version", ""):
        now = here.get("version", "not installed")
        return f"the run began with {kept.get('distribution')} {kept['version']} for {name}, which is {now} here"
    if "sha256" in kept and kept["sha256"] != here.get("sha256"):
        return f"the file of {name} has been changed since the run began, which goes on with what it holds now"
    return ""
