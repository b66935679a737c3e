"""Plug-ins: of an entry point, of ``module:attribute``, or given as an object; listed without an import.

A distribution declares its rows under the entry point ``metaroll.algorithms``, each by the name that the row has::

    [project.entry-points."metaroll.algorithms"]
    crossq = "crossq:CROSSQ"

A class of searches stands under ``metaroll.searches``, and becomes the algorithm that searches by it. What metaroll
declares itself (``contrib``) is found, loaded and checked as anybody's.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metaroll.configs import table
from metaroll.data.doors.plain_files import read_bytes
from metaroll.errors import MetarollError, command_text, said
from metaroll.functional.search.base import Search
from metaroll.own_code import (
    GIVEN,
    Declared,
    GivenObjects,
    PluginError,
    attribute_of,
    contributed,
    in_file,
    is_given,
    is_named,
    module_files,
    module_of,
    names_in_modules,
    usable,
)

if TYPE_CHECKING:
    from metaroll.training.algorithms.algorithm import Algorithm

__all__ = [
    "GROUP",
    "SEARCHES",
    "differs",
    "installed",
    "is_other",
    "is_row",
    "load_row",
    "name_of",
    "origin",
    "refused",
]

GROUP = "metaroll.algorithms"
"""Entry point of algorithms."""
SEARCHES = "metaroll.searches"
"""Entry point of searches, which become algorithms."""
_MOST_BYTES = 2**24


_given = GivenObjects("algorithm", "algo", "put it into a module, and train module:attribute")


def installed() -> Mapping[str, Declared]:
    """Name -> algorithm or search, of those that distributions declare under free names; nothing is imported."""
    searches = usable(SEARCHES, _ours())[0]
    return {**searches, **usable(GROUP, _ours())[0]}


def refused() -> list[str]:
    """Why algorithms and searches that are declared cannot be used, as far as their names tell."""
    return [why for group in (GROUP, SEARCHES) for why in usable(group, _ours())[1]]


def _ours() -> set[str]:
    return {*table.CONFIGS, *contributed()}


def is_other(name: str) -> bool:
    """Whether a name may be that of an algorithm of somebody else; nothing is imported."""
    return name in installed() or is_named(name)


def load_row(name: str) -> Algorithm:
    """The row of a plug-in, whose options ``table.run_options`` knows from then on.

    Args:
        name: See ``is_other``; or of what metaroll declares itself.

    Raises:
        PluginError: It cannot be used.
        UnknownNameError: There is no such module, or nothing of this name in it.
    """
    if is_given(name):
        return _given[name]
    one = installed().get(name)
    where = contributed().get(name, name) if one is None else one.target
    of = f"algorithm {name!r}" + ("" if one is None else f" ({one.of})")
    try:
        row = attribute_of(where, "algorithm")
    except MetarollError as error:
        if one is None:  # what it says is about what was typed
            raise
        raise PluginError(f"{of} cannot be loaded: {error}") from error
    ours = where in contributed().values()
    checked = _checked(_row_of(row, "" if is_named(name) else name), of + in_file(where), ours)
    if not is_named(name) and checked.name != name:
        raise PluginError(f"{of}: its row must be called {name!r}, as it is declared, got name={checked.name!r}")
    table.add_algorithm(name, checked.configs, checked.adapts, checked.filled)
    return checked


def _checked(row: Any, of: str, ours: bool = False) -> Algorithm:
    from metaroll.training.algorithms.plugin_rows import checked_row, guarded

    checked = checked_row(row, of)
    if ours:
        return checked
    if checked.name in _ours():
        raise PluginError(
            f"{of}: name must not be that of an algorithm of metaroll, got {checked.name!r}: choose another, or take "
            + said(f"metaroll.agent({checked.name!r}, env)", command_text("train", checked.name, "ENV"))
        )
    return guarded(checked, of)


def _row_of(given: Any, name: str = "") -> Any:
    """The row of a search, if that is given, called so or as its class; anything else as it is."""
    if not (isinstance(given, type) and issubclass(given, Search)):
        return given
    from metaroll.training.algorithms.evolution import search_row

    words = re.findall(r"[A-Z]*[a-z0-9]+|[A-Z]+", given.__name__)
    return search_row(name or "-".join(words).lower(), given)


def is_row(given: Any) -> bool:
    """Whether ``name_of`` takes an object: an ``Algorithm``, or a class of searches."""
    from metaroll.training.algorithms.algorithm import Algorithm

    return isinstance(given, Algorithm) or (isinstance(given, type) and issubclass(given, Search))


def name_of(given: Any) -> str:
    """The name under which all functions of this process know a row or search: as others do, where they can.

    Raises:
        PluginError: It cannot be used.
    """
    for name, target in {**contributed(), **{one.name: one.target for one in installed().values()}}.items():
        if _is_there(target, given):
            return name
    made = _row_of(given)
    kind = made.learner if made is given else given
    row = _checked(made, f"algo {made.name!r}" + (in_file(kind.__module__) if isinstance(kind, type) else ""))
    name = next(iter(names_in_modules(given, row.learner.__module__)), f"{GIVEN}{row.name}")
    if is_given(name):
        _given[name] = row
    table.add_algorithm(name, row.configs, row.adapts, row.filled)
    return name


def _is_there(target: str, given: Any) -> bool:
    module, _, attribute = target.partition(":")
    return module in sys.modules and vars(sys.modules[module]).get(attribute) is given


def origin(name: str, among: Mapping[str, Declared] | None = None) -> dict[str, str]:
    """Where an algorithm of somebody else, or ``module:attribute``, is from, for ``config.yaml``.

    That is the distribution, its version, and the hash of its file.

    Args:
        name: Its name.
        among: What distributions declare; ``None`` means algorithms.
    """
    one = (installed() if among is None else among).get(name)
    target = name if one is None else one.target
    files = module_files(module_of(target) or target)
    found = {} if one is None else {"object": one.target, "distribution": one.distribution, "version": one.version}
    if files and files[-1].is_file():
        found["sha256"] = hashlib.sha256(read_bytes(files[-1].resolve(), _MOST_BYTES)).hexdigest()
    return found


def differs(name: str, kept: Any, here: Mapping[str, str]) -> str:
    """What is another thing now than ``origin`` was when a run began; empty where nothing is, or it was not kept.

    Args:
        name: Name of the algorithm, or ``module:attribute``.
        kept: The entry of the run.
        here: ``origin`` as it is now.
    """
    if not isinstance(kept, Mapping):
        return ""
    if "version" in kept and kept["version"] != here.get("version", ""):
        now = here.get("version", "not installed")
        return f"the run began with {kept.get('distribution')} {kept['version']} for {name}, which is {now} here"
    if "sha256" in kept and kept["sha256"] != here.get("sha256", kept["sha256"]):
        if is_given(name):
            return f"{name} is another than what the run began with: its source, or its layers, have been changed"
        return f"the file of {name} has been changed since the run began, which goes on with what it holds now"
    return ""
