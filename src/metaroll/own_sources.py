"""The source of classes and functions that a script has given, as a hash that its runs keep."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterable
from types import FunctionType
from typing import Any

__all__ = ["hash_of", "is_ours", "pieces_of", "sources_of"]

_LIBRARIES = ("builtins", "torch", "metaroll")
"""Packages whose source is not the user's: it changes with their versions."""


def is_ours(given: type | FunctionType) -> bool:
    """Whether a class or function is one of metaroll."""
    return _package_of(given) == "metaroll"


def _package_of(given: type | FunctionType) -> str:
    return (given.__module__ or "").partition(".")[0]


def pieces_of(function: Any) -> list[Any]:
    """A function; or the one inside a ``functools.partial``, and its arguments."""
    if not isinstance(function, functools.partial):
        return [function]
    return list(
        itertools.chain.from_iterable(map(pieces_of, (function.func, *function.args, *function.keywords.values())))
    )


def hash_of(texts: Iterable[str]) -> dict[str, str]:
    """The entry of ``config.yaml`` about texts; empty without any."""
    found = [re.sub(r" at 0x[0-9a-fA-F]+", "", text) for text in texts]
    return {"sha256": hashlib.sha256("\n".join(found).encode()).hexdigest()} if found else {}


def sources_of(given: Any) -> list[str]:
    """Of a function, or of fields and methods of a class, and of the classes that it is of, as far as there is one.

    A lambda has none: its source is what stands around it, too.
    """
    if isinstance(given, type):
        kinds = [kind for kind in given.__mro__ if _package_of(kind) not in _LIBRARIES]
        return list(itertools.chain.from_iterable(map(_sources_of_class, kinds)))
    if not isinstance(given, FunctionType) or given.__name__ == "<lambda>" or is_ours(given):
        return []
    if given.__code__.co_filename == "<string>":  # of exec or python -c, for which inspect takes lines of the script
        return []
    try:
        return [textwrap.dedent(inspect.getsource(given)).strip()]
    except (OSError, TypeError):  # typed in, say
        return []


def _sources_of_class(kind: type) -> list[str]:
    """What stands in the class itself: methods, and the fields of a dataclass."""
    members = vars(kind)
    fields = inspect.get_annotations(kind) if dataclasses.is_dataclass(kind) else {}
    texts = [f"{name}: {hint} = {members.get(name)!r}" for name, hint in fields.items()]
    methods = [each.__func__ if isinstance(each, classmethod | staticmethod) else each for each in members.values()]
    return texts + [text for method in methods if isinstance(method, FunctionType) for text in sources_of(method)]
