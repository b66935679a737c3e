"""Lazy exports (PEP 562) of documented names, with hints at names that do not exist yet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_exports", "register_simulators"]


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
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    names = sorted(home)
    return getattribute, lambda: list(names), names


def register_simulators() -> None:
    """Tell Gymnasium the ids of our simulators, if it has been loaded: ``gymnasium.make("metaroll/Pendulum-v0")``."""
    if "gymnasium.vector" in sys.modules:
        import_module("metaroll.rollouts.single.gymnasium_ids")
