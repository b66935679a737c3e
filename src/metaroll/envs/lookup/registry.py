"""Families of tasks by name: ours, and ``module:attribute`` for those of your own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import metaroll.envs.mujoco.families

# isort: off (families are listed in the order of these lines)
import metaroll.envs.point.families
import metaroll.envs.sims.families
import metaroll.envs.tabular.families  # noqa: F401
from metaroll.envs.base.constructors import check_no_arguments, register_finder
from metaroll.envs.base.task_family import TaskFamily, registered_families
from metaroll.envs.lookup.entry_points import EntryPointError, is_entry_point, load_entry_point

# isort: on
from metaroll.envs.mujoco.library import graphics_trouble
from metaroll.envs.sims.catalog import sim_constructor
from metaroll.errors import MetarollError, unknown_name
from metaroll.tasks.updates import layer_with

__all__ = ["TaskFamily", "family_names", "family_of", "get_family", "has_family", "is_varied"]

_own: dict[str, tuple[Any, TaskFamily | None]] = {}
"""``module:attribute`` -> what it was when it was asked for last, and its family, if it has tasks."""


def family_names() -> list[str]:
    """Names of all our families."""
    return list(registered_families())


def has_family(name: str) -> bool:
    """Whether ``get_family(name)`` gives a family."""
    return name in registered_families() or (is_entry_point(name) and _own_family(name)[1] is not None)


def is_varied(name: str) -> bool:
    """Whether ``name`` stands for many tasks, in which algorithms that do not adapt learn, too.

    A simulated system they take as it is, though there is a family of it.
    """
    return sim_constructor(name) is None and has_family(name)


def get_family(name: str) -> TaskFamily:
    """The family called ``name``: one of ours, or ``module:attribute``, which ``family_of`` makes a family of.

    An unknown name gives an error with the nearest ones.
    """
    families = registered_families()
    if name in families:
        return families[name]
    if is_entry_point(name):
        value, family = _own_family(name)
        return family_of(value, name) if family is None else family
    raise unknown_name("task family", name, families)


def _own_constructor(name: str) -> Any:
    """What makes the environment ``module:attribute``; ``None`` for names of any other form."""
    if not is_entry_point(name):
        return None
    value, family = _own_family(name)
    return value if family is None else family.env_constructor


def family_of(value: Any, name: str | None = None) -> TaskFamily:
    """A family of tasks from a ``TaskFamily``, an environment's class or function, or constructors of environments.

    Args:
        value: A ``TaskFamily``, or a function that makes one; a class or function that makes an environment with
            ``sample_tasks``; a list or dict of constructors, each of which makes the environment of one task.
        name: What it is called, if it has no name yet.
    """
    if isinstance(value, TaskFamily):
        return value
    if isinstance(value, Mapping | list | tuple):
        return TaskFamily.from_constructors(value, name=name or "constructors")
    if not callable(value):
        raise TypeError(
            f"{name or 'a family'} must be a TaskFamily, a class or function that makes one or an environment, or a "
            f"list of constructors, got {value!r} of type {type(value).__name__}"
        )
    check_no_arguments(value, name or getattr(value, "__name__", repr(value)))
    if not isinstance(value, type):
        made = value()
        if isinstance(made, TaskFamily):
            return made
        _close(made)
    return TaskFamily.from_env(value, name=name)


def _own_family(name: str) -> tuple[Any, TaskFamily | None]:
    value = load_entry_point(name)
    known = _own.get(name)
    if known is None or known[0] is not value:
        try:
            known = _own[name] = value, family_of(value, name) if _has_tasks(value, name) else None
        except (MetarollError, TypeError, ValueError):
            raise
        except Exception as error:
            raise EntryPointError(
                f"{name} cannot be used, since its environment cannot be made: "
                f"{graphics_trouble(error) or f'{type(error).__name__}: {error}'}"
            ) from error
    return known


def _has_tasks(value: Any, name: str) -> bool:
    """Whether ``family_of`` can make a family of it, rather than take it for an environment without tasks."""
    if not callable(value) or isinstance(value, TaskFamily):
        return True
    check_no_arguments(value, name)
    if isinstance(value, type) and callable(getattr(value, "sample_tasks", None)):
        return True
    made = value()
    try:
        return isinstance(made, TaskFamily) or layer_with(made, "sample_tasks") is not None
    finally:
        _close(made)


def _close(made: Any) -> None:
    if hasattr(made, "close"):
        made.close()


register_finder(_own_constructor)
