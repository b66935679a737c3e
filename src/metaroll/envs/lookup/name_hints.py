"""Hints for a name of no environment: a file of theirs, or a package that is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import gymnasium

from metaroll.envs.base.task_family import TaskFamily
from metaroll.errors import UnknownNameError
from metaroll.own_code import add_code_folder

__all__ = ["refuse_misread"]

_PACKAGES = {"ALE": ("ale-py", "ale_py")}
"""Namespace of Gymnasium -> package that registers it, and its module."""


def refuse_misread(name: str) -> None:
    """Error for an unknown ``name`` whose form shows its meaning, so that similar names would not help.

    Raises:
        UnknownNameError: It is a file of Python, a dotted name in a module, or an id in a namespace that was not
            registered.
    """
    if name in gymnasium.registry:
        return
    add_code_folder()
    _refuse_other_forms(name)
    module = _module_of(name)
    if module is not None:
        raise UnknownNameError(_file_text(name, module))
    match = re.fullmatch(r"(\w+)/(\S+)", name)
    if match is None or any(spec.namespace == match[1] for spec in gymnasium.registry.values()):
        return
    if match[1] in _PACKAGES:
        package, module = _PACKAGES[match[1]]
        raise UnknownNameError(
            f"unknown environment {name!r}: the package {package} registers it: pip install {package}, and name it "
            f"with the module that is to be imported first, {module}:{name}"
        )
    raise UnknownNameError(
        f"unknown environment {name!r}: no package that is imported registers environments as {match[1]}/...; name it "
        f"with the module that does, module:{name}"
    )


def _refuse_other_forms(name: str) -> None:
    """Error for other ways to write ``my_env:Hidden``: ``./my_env.py:Hidden``, ``/there/my_env:Hidden``, with a dot."""
    typed, _, attribute = name.rpartition(":")
    path = Path(typed if typed.endswith(".py") else f"{typed}.py")
    if typed and attribute.isidentifier() and (typed.endswith(".py") or path.is_file()):
        if name == f"{path.stem}:{attribute}":
            raise UnknownNameError(
                f"unknown environment {name!r}: {path} lies in the current folder, where Python does not look for "
                "modules (sys.path); run a script that lies there, too, or add the folder to PYTHONPATH"
            )
        meant = f"unknown environment {name!r}: write it as {path.stem}:{attribute}"
        if not path.is_file():
            raise UnknownNameError(f"{meant}, in the folder of the file; there is no file {path}")
        elsewhere = path.absolute().parent != Path.cwd()
        raise UnknownNameError(f"{meant}, and run in its folder, {path.parent}" if elsewhere else meant)
    parts = name.split(".")
    if len(parts) > 1 and all(part.isidentifier() for part in parts) and parts[-1] != "py" and _is_module(parts[0]):
        raise UnknownNameError(f"unknown environment {name!r}; did you mean '{'.'.join(parts[:-1])}:{parts[-1]}'?")


def _is_module(name: str) -> bool:
    """Whether there is a module of that name, which is not imported for that."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # one that was made by hand has no spec
        return False


def _module_of(name: str) -> str | None:
    """The module of a file that ``name`` means: ``my_env``, ``my_env.py`` or ``./my_env.py``."""
    path = Path(name)
    if path.suffix == ".py":
        return path.stem
    return name if name.isidentifier() and Path(f"{name}.py").is_file() else None


def _file_text(name: str, module: str) -> str:
    path = Path(name if name.endswith(".py") else f"{name}.py")
    if not path.is_file():
        return (
            f"unknown environment {name!r}: there is no file {path}; name one as module:attribute, e.g. my_env:family"
        )
    start = f"unknown environment {name!r}: it is a file, of which one name is meant"
    if path.absolute().parent != Path.cwd():
        return f"{start}: run in its folder ({path.parent}), with {module}:NAME"
    try:
        environments = _environments_in(module)
    except Exception as error:  # the user's file may raise anything
        return f"{start}, {module}:NAME; and it cannot be imported ({type(error).__name__}: {error})"
    if not environments:
        return f"{start}, {module}:NAME; there is no TaskFamily and no environment in it (docs/own_environment.md)"
    return f"{start}: {', '.join(f'{module}:{attribute} ({kind})' for attribute, kind in environments.items())}"


def _environments_in(module: str) -> dict[str, str]:
    """Names in a module -> their kinds; families first."""
    members = {name: value for name, value in vars(importlib.import_module(module)).items() if name[:1] != "_"}
    kinds = {name: "a family of tasks" for name, value in members.items() if isinstance(value, TaskFamily)}
    kinds |= {name: "an environment" for name, value in members.items() if _makes_env(value, module)}
    return kinds


def _makes_env(value: Any, module: str) -> bool:
    is_env = inspect.isclass(value) and hasattr(value, "step") and hasattr(value, "reset")
    return is_env and value.__module__ == module
