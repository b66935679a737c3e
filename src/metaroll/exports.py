"""Lazy exports (PEP 562) of documented names, with hints at names that do not exist."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["lazy_exports", "missing_attribute", "register_simulators"]


def lazy_exports(
    module: str, built: Mapping[str, Iterable[str]], planned: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a module that re-exports names of others.

    Args:
        module: Name of the module that re-exports.
        built: Home module (below ``metaroll``) -> names that it offers.
        planned: Documented names that are not built yet; accessing one raises an error about this.
    """
    home = {name: f"metaroll.{source}" for source, names in built.items() for name in names}
    not_yet = frozenset(planned)

    def getattribute(name: str) -> Any:
        if name in home:
            value = getattr(import_module(home[name]), name)
            register_simulators()
            return value
        if name in not_yet:
            raise AttributeError(f"{module}.{name} is planned, but not built yet (docs/coverage.md lists what is)")
        raise missing_attribute(module, name, home)

    names = sorted(home)
    return getattribute, lambda: list(names), names


def missing_attribute(module: str, name: str, own: Iterable[str]) -> AttributeError:
    """The error for an attribute that ``metaroll`` or one of its rooms does not have, with the nearest name there is.

    Args:
        module: Name of the module.
        name: The attribute.
        own: The public names of the module.
    """
    # Python itself asks for many names with underscores, and ``from metaroll import errors`` asks for an attribute
    # before it imports the module: nothing is imported for these, also amid another import.
    if not name.isidentifier() or name.startswith("_") or _is_module(module, name):
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    root: Any = import_module("metaroll")
    known: dict[str, str] = {}
    for room in root._ROOMS:
        if room != "testing":  # which imports torch
            known |= {each: f"metaroll.{room}.{each}" for each in import_module(f"metaroll.{room}").__all__}
    known |= {each: f"metaroll.{each}" for each in (*root.__all__, *root._ROOMS)}
    known |= {each: f"{module}.{each}" for each in own}
    text = import_module("metaroll.training.algorithms.other_names").unknown_in_module(module, name, known)
    return AttributeError(text, name=name)  # without ``obj``, so that Python does not add a suggestion itself


def _is_module(package: str, name: str) -> bool:
    try:
        return find_spec(f"{package}.{name}") is not None
    except ModuleNotFoundError:  # ``package`` is a single file
        return False


def register_simulators() -> None:
    """Tell Gymnasium the ids of our simulators, if it has been loaded: ``gymnasium.make("metaroll/Pendulum-v0")``."""
    if "gymnasium.vector" in sys.modules:
        import_module("metaroll.rollouts.single.gymnasium_ids")
