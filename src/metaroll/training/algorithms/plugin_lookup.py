"""Lookup of plug-ins: by entry point, as ``module:attribute``, or as objects; listing them imports nothing.

A distribution declares its rows under the entry point ``metaroll.algorithms``, each by the name of the row::

    [project.entry-points."metaroll.algorithms"]
    crossq = "crossq:CROSSQ"

A class of searches is declared under ``metaroll.searches``, and becomes the algorithm that uses this search. The
plug-ins of metaroll itself (``contrib``) are looked up, loaded and checked like any other.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sys
from collections.abc import Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from metaroll.configs import table
from metaroll.data.doors.plain_files import read_bytes
from metaroll.errors import MetarollError, command_text, for_reader
from metaroll.functional.search.base import Search
from metaroll.own_code import (
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
    sort_declared,
)
from metaroll.own_sources import hash_of, is_ours, pieces_of, sources_of

if TYPE_CHECKING:
    from metaroll.training.algorithms.algorithm import Algorithm

__all__ = [
    "GROUP",
    "SEARCHES",
    "change_text",
    "installed",
    "is_other",
    "is_row",
    "load_row",
    "name_given",
    "origin",
    "refused",
    "remembered",
]

GROUP = "metaroll.algorithms"
"""Entry point of algorithms."""
SEARCHES = "metaroll.searches"
"""Entry point of searches, which become algorithms."""
_MOST_BYTES = 2**24
_given = GivenObjects(
    "algorithm",
    "algo",
    "put it into a module, and train module:attribute",
    lambda name, source: _row_made_of(source, name),
)
_rows: dict[str, tuple[Any, Algorithm]] = {}
"""Name -> its object, and the row made from it."""


def installed() -> Mapping[str, Declared]:
    """Name -> declared algorithm or search of a distribution, if that name is free; nothing is imported."""
    return sort_declared((GROUP, SEARCHES), _ours())[0]


def refused() -> list[tuple[str, str]]:
    """Declared algorithms and searches whose names cannot be used, each with the reason."""
    return sort_declared((GROUP, SEARCHES), _ours())[1]


def _ours() -> set[str]:
    return {*table.CONFIGS, *contributed()}


def is_other(name: str) -> bool:
    """Whether a name may be that of a plug-in; nothing is imported."""
    return name in installed() or is_named(name) or is_given(name)


def load_row(name: str) -> Algorithm:
    """Load the row of a plug-in, and register its options for ``table.run_options``.

    Args:
        name: See ``is_other``; or the name of a plug-in of metaroll itself.

    Raises:
        PluginError: It cannot be used.
        UnknownNameError: There is no such module, or no such name in it.
    """
    return _row_made_of(_given[name] if is_given(name) else _named_object(name), name)


def _named_object(name: str) -> Any:
    one = installed().get(name)
    try:
        return attribute_of(_target(name), "algorithm")
    except MetarollError as error:
        if one is None:  # the message already names what the user typed
            raise
        raise PluginError(f"algorithm {name!r} {one.location} cannot be loaded: {error}") from error


def _target(name: str) -> str:
    one = installed().get(name)
    return contributed().get(name, name) if one is None else one.target


def _row_made_of(source: Any, name: str) -> Algorithm:
    """The row of the object ``source``, called ``name``; made and checked once per object."""
    if name in _rows and _rows[name][0] is source:
        return _rows[name][1]
    from metaroll.training.algorithms.plugin_rows import checked_row, guarded

    one = installed().get(name)
    where = f"{_home(source)}:" if is_given(name) else _target(name)
    label = f"algorithm {name!r}{in_file(where) if one is None else f' {one.location}'}"
    row = checked_row(_row_of(source, "" if ":" in name else name), label)
    if ":" not in name and row.name != name:
        raise PluginError(f"{label}: its row must be called {name!r}, as it is declared, got name={row.name!r}")
    if where not in contributed().values():
        if row.name in _ours():
            raise PluginError(
                f"{label}: name must not be that of an algorithm of metaroll, got {row.name!r}: choose another, or "
                f"take {for_reader(f'metaroll.agent({row.name!r}, env)', command_text('train', row.name, 'ENV'))}"
            )
        row = guarded(row, label)
    table.add_algorithm(name, row)
    return remembered(name, row, source)


def remembered(name: str, row: Algorithm, source: Any = None) -> Algorithm:
    """Register ``row``, made from ``source`` (``None``: itself), so that ``name_given`` knows its name; return it."""
    _rows[name] = row if source is None else source, row
    return row


def _row_of(source: Any, name: str = "") -> Any:
    """The row of a class of searches, named ``name`` or like the class; any other object is returned unchanged."""
    if not (isinstance(source, type) and issubclass(source, Search)):
        return source
    from metaroll.training.algorithms.evolution import search_row

    words = re.findall(r"[A-Z]*[a-z0-9]+|[A-Z]+", source.__name__)
    return search_row(name or "-".join(words).lower(), source)


def is_row(value: Any) -> bool:
    """Whether ``name_given`` accepts an object: an ``Algorithm``, or a class of searches."""
    from metaroll.training.algorithms.algorithm import Algorithm

    return isinstance(value, Algorithm) or (isinstance(value, type) and issubclass(value, Search))


def name_given(source: Any, name: str | None = None) -> str:
    """Register an algorithm in this process; returns its name, which other processes know too if possible.

    Args:
        source: An ``Algorithm``, a class of searches, or ``module:attribute`` of one.
        name: Name to register it under, even if it has another one: a run keeps the name that it began with.

    Raises:
        PluginError: It cannot be used.
    """
    if name is None:
        if (existing := _existing_name(source)) is not None:
            return existing
        name = _given.free_name(_row_of(source).name, source)
    _given[name] = _named_object(source) if isinstance(source, str) else source
    return name


def _existing_name(source: Any) -> str | None:
    """The name of ``source`` in all processes, or that of a row registered in this one; else ``None``."""
    for name, target in {**contributed(), **{one.name: one.target for one in installed().values()}}.items():
        if _target_is(target, source):
            return name
    made = [name for name, (_, row) in _rows.items() if row is source]
    return next(iter(made or names_in_modules(source, _home(source))), None)


def _home(source: Any) -> str:
    """The module that defines the parts of a row, or a search; empty if unknown."""
    return next((piece.__module__ for piece in _pieces(source) if not is_ours(piece)), "")


def _pieces(source: Any) -> list[Any]:
    """The classes and functions that make up a row, its learner first; or the class of a search."""
    from metaroll.training.algorithms.plugin_rows import FUNCTIONS

    if source is None or isinstance(source, type):
        return [] if source is None else [source]
    pieces = [source.learner, *source.configs] if isinstance(source.configs, tuple) else [source.learner]
    pieces += itertools.chain.from_iterable(pieces_of(getattr(source, name)) for name in FUNCTIONS)
    return [piece for piece in pieces if isinstance(piece, type | FunctionType)]


def _target_is(target: str, source: Any) -> bool:
    module, _, attribute = target.partition(":")
    return module in sys.modules and vars(sys.modules[module]).get(attribute) is source


def origin(name: str, among: Mapping[str, Declared] | None = None) -> dict[str, str]:
    """The origin of a plug-in, or of ``module:attribute``, for ``config.yaml``: distribution, version, and file hash.

    Args:
        name: Its name.
        among: Declarations of distributions; ``None`` means those of algorithms, and algorithms that a script has
            passed as objects, which have a hash of their source.
    """
    if among is None and is_given(name):
        return hash_of(itertools.chain.from_iterable(map(sources_of, _pieces(_given.get(name)))))
    one = (installed() if among is None else among).get(name)
    target = name if one is None else one.target
    files = module_files(module_of(target) or target)
    entries = {} if one is None else {"object": one.target, "distribution": one.distribution, "version": one.version}
    if files and files[-1].is_file():
        entries["sha256"] = hashlib.sha256(read_bytes(files[-1].resolve(), _MOST_BYTES)).hexdigest()
    return entries


def change_text(name: str, kept: Any, here: Mapping[str, str]) -> str:
    """A sentence on the change since the run began; empty if there is none, or the run recorded nothing.

    Args:
        name: Name of the algorithm, or ``module:attribute``.
        kept: The entry of the run.
        here: The current ``origin``.
    """
    if not isinstance(kept, Mapping):
        return ""
    if "version" in kept and kept["version"] != here.get("version", ""):
        now = here.get("version", "not installed")
        return f"the run began with {kept.get('distribution')} {kept['version']} for {name}, which is {now} here"
    if "sha256" in kept and kept["sha256"] != here.get("sha256", kept["sha256"]):
        if is_given(name):
            changed = "its source, or the layers of a network, have been changed"
            return f"{name} is another than what the run began with: {changed}"
        return f"the file of {name} has been changed since the run began, which continues with what it holds now"
    return ""
