"""Environments of your own by name: ``module:attribute``, for command lines and configurations."""

from __future__ import annotations

import importlib
from typing import Any

from metaroll.envs.mujoco.library import graphics_trouble
from metaroll.errors import MetarollError, UnknownNameError, unknown_name

__all__ = ["EntryPointError", "is_entry_point", "load_entry_point"]


class EntryPointError(MetarollError, ImportError):
    """The module of an environment of yours cannot be imported."""


def is_entry_point(name: str) -> bool:
    """Whether ``name`` has the form ``module:attribute``; ids of Gymnasium such as ``module:Env-v0`` have not."""
    module, _, attribute = name.partition(":")
    return all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")])


def load_entry_point(name: str) -> Any:
    """What ``name`` stands for: a class, a function, a ``TaskFamily`` ...

    Raises:
        UnknownNameError: There is no such module, or nothing of this name in it.
        EntryPointError: The module cannot be imported.
    """
    module_name, _, attribute = name.partition(":")
    try:
        value = importlib.import_module(module_name)
    except Exception as error:
        missing = getattr(error, "name", None)
        if isinstance(error, ModuleNotFoundError) and missing and f"{module_name}.".startswith(f"{missing}."):
            raise UnknownNameError(
                f"unknown environment {name!r}: there is no module {missing!r} in the current folder, or among what is "
                "installed; run in the folder of your file, and leave its .py out"
            ) from error
        graphics = graphics_trouble(error)
        reason = f"{type(error).__name__}: {error}; the same happens in python -c 'import {module_name}'"
        raise EntryPointError(f"{module_name} cannot be imported for {name!r}: {graphics or reason}") from error
    where = module_name
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise unknown_name(f"name in {where}", part, [n for n in vars(value) if not n.startswith("_")])
        value, where = getattr(value, part), f"{where}.{part}"
    return value
