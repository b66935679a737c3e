"""The source of classes and functions that a script has given, as a hash that its runs keep."""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import functools
import hashlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterable
from types import CodeType, FunctionType
from typing import Any

__all__ = ["hash_of", "is_ours", "pieces_of", "sources_of"]

_LIBRARIES = ("builtins", "torch", "metaroll")
"""Packages whose source is not the user's: it changes with their versions. So does that of Python."""
_TYPED = "<string>"
"""File name of code from ``exec`` or ``python -c``, for which ``inspect`` returns lines of the script."""


def is_ours(definition: type | FunctionType) -> bool:
    """Whether a class or function is one of metaroll."""
    return _package_of(definition) == "metaroll"


def _package_of(definition: type | FunctionType) -> str:
    return (definition.__module__ or "").partition(".")[0]


def pieces_of(function: Any) -> list[Any]:
    """A function; or the one inside a ``functools.partial``, and its arguments."""
    if not isinstance(function, functools.partial):
        return [function]
    return list(
        itertools.chain.from_iterable(map(pieces_of, (function.func, *function.args, *function.keywords.values())))
    )


def hash_of(texts: Iterable[str]) -> dict[str, str]:
    """The entry of ``config.yaml`` about texts; empty without any."""
    cleaned = [re.sub(r" at 0x[0-9a-fA-F]+", "", text) for text in texts]
    return {"sha256": hashlib.sha256("\n".join(cleaned).encode()).hexdigest()} if cleaned else {}


def sources_of(definition: Any, seen: set[int] | None = None) -> list[str]:
    """Of a function, or of a class and the classes that it is of: the text, and what it uses of its own module.

    Plain values (numbers, texts, tuples of these) are part of that. A lambda, and what was typed in, has its code
    instead of a text: the text of a lambda includes its surroundings.

    Args:
        definition: The function or class; of anything else there is none.
        seen: Identities of those that are in it already, which are only named again.
    """
    if not isinstance(definition, type | FunctionType):
        return []
    seen = set() if seen is None else seen
    kinds = definition.__mro__ if isinstance(definition, type) else [definition]
    texts: list[str] = []
    for kind in filter(_is_users, kinds):
        if id(kind) in seen:
            texts.append(kind.__qualname__)
            continue
        seen.add(id(kind))
        if isinstance(kind, type):
            texts += _sources_of_class(kind, seen)
        else:
            uses = (_stable_text(value, kind.__module__, seen) for value in _values_of(kind))
            texts += [_source_of(kind), *filter(None, uses)]
    return texts


def _is_users(definition: type | FunctionType) -> bool:
    package = _package_of(definition)
    return package not in _LIBRARIES and package not in sys.stdlib_module_names


def _sources_of_class(kind: type, seen: set[int]) -> list[str]:
    """The contents of the class itself: its text, methods, the fields of a dataclass, and plain values.

    Methods and values are those of what ``exec`` or a function has made, which has no text, or one with many others.
    """
    members = vars(kind)
    fields = inspect.get_annotations(kind) if dataclasses.is_dataclass(kind) else {}
    texts = [f"class {kind.__name__}", _text_of(kind)]
    texts += [f"{name}: {hint} = {members.get(name)!r}" for name, hint in fields.items()]
    for name, member in members.items():
        if functions := _functions_of(member):
            # Methods that a dataclass generates have no source text, and their code depends on the Python version.
            own = [each for each in functions if not (fields and each.__code__.co_filename == _TYPED)]
            sources = list(itertools.chain.from_iterable(sources_of(each, seen) for each in own))
            texts += [f"{name}: {type(member).__name__}", *sources] if sources else []
        elif not name.startswith("__") and (text := _stable_text(member, kind.__module__, seen)):
            texts.append(f"{name} = {text}")
    return texts


def _functions_of(member: Any) -> list[FunctionType]:
    """The functions of a method or property."""
    if isinstance(member, property):
        functions = [member.fget, member.fset, member.fdel]
    else:
        functions = [member.func if isinstance(member, functools.cached_property) else member]
    if isinstance(member, classmethod | staticmethod):
        functions = [member.__func__]
    return [each for each in functions if isinstance(each, FunctionType)]


def _source_of(function: FunctionType) -> str:
    """Text of a function, or its code."""
    is_plain = function.__name__ != "<lambda>" and function.__code__.co_filename != _TYPED
    return (_text_of(function) if is_plain else "") or _stable_text(function.__code__, "", set())


def _text_of(definition: type | FunctionType) -> str:
    """The text in the file; empty without one."""
    try:
        text = textwrap.dedent(inspect.getsource(definition)).strip()
    except (OSError, TypeError, SyntaxError):  # e.g. typed in
        return ""
    # For a class made by exec, inspect may return lines of the script.
    is_found = isinstance(definition, FunctionType) or re.search(rf"^class {definition.__name__}\b", text, re.MULTILINE)
    return text if is_found else ""


def _values_of(function: FunctionType) -> list[Any]:
    """The surroundings that a function uses: defaults, variables of functions, and of the module."""
    values = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not set yet
            values.append(cell.cell_contents)
    names = [name for name in _globals_of(function.__code__) if not name.startswith("__")]
    return values + [function.__globals__[name] for name in dict.fromkeys(names) if name in function.__globals__]


def _globals_of(code: CodeType) -> list[str]:
    names = [each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"]
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return names + list(itertools.chain.from_iterable(map(_globals_of, inner)))


def _stable_text(value: Any, home: str, seen: set[int]) -> str:
    """A text that is the same in every process; empty if there is none.

    Args:
        value: Any value.
        home: The module whose classes and functions are more than a name.
        seen: See ``sources_of``.
    """
    if isinstance(value, type | FunctionType):
        return "\n".join(sources_of(value, seen) if value.__module__ == home else ()) or value.__qualname__
    if isinstance(value, CodeType):
        return _stable_text((value.co_code, value.co_consts, value.co_names), home, seen)
    if isinstance(value, tuple | list):
        return f"({', '.join(_stable_text(each, home, seen) for each in value)})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(_stable_text(each, home, seen) for each in value))}}}"
    return repr(value) if value is None or isinstance(value, int | float | complex | str | bytes) else ""
