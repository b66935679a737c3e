"""Rows of plug-ins: what is wrong with one, and errors of their functions that say whose they are."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections import abc
from collections.abc import Callable, Collection, Mapping
from typing import Any

from metaroll.checks import described
from metaroll.config import Config, merge_layers, options_of
from metaroll.configs import RunConfig
from metaroll.configs.algorithms import Domains, HeldOutTasks
from metaroll.configs.evaluation import EvaluationConfig, MetaEvaluationConfig
from metaroll.errors import MetarollError
from metaroll.functional.search.base import Search
from metaroll.learners.base import RLAlgorithm, RolloutLimit
from metaroll.learners.off_policy.base import OffPolicyLearner
from metaroll.own_code import NAME, PluginError
from metaroll.own_frames import frames_of_user
from metaroll.training.algorithms.algorithm import API, Algorithm, Work

__all__ = ["FUNCTIONS", "checked_row", "guarded", "hint_for"]

_RETURNED: Mapping[str, type] = {"build": RLAlgorithm, "work": Work, "amount": str}
"""What functions of a row return, where one type is meant."""
FUNCTIONS = tuple(
    name for name, hint in typing.get_type_hints(Algorithm).items() if typing.get_origin(hint) is abc.Callable
)
"""Names of members of a row that are functions."""


def checked_row(row: Any, of: str) -> Algorithm:
    """``row``, if it can be used.

    Args:
        row: What was given in its place.
        of: What it is called in errors, with its file.

    Raises:
        PluginError: It cannot be used.
    """
    if not isinstance(row, Algorithm):
        got = described(row) if isinstance(row, type) else type(row).__name__
        raise PluginError(f"{of} must be a metaroll.plugins.Algorithm, got {got}: {hint_for(row)}")
    if row.api != API:
        raise PluginError(
            f"{of} must be written for version {API} of the interface, got api={row.api!r}: "
            + ("say it, api=1" if row.api is None else "install a version of it that fits this metaroll")
        )
    try:
        _check_types(row)
        _check_classes(row)
        _check_options(row)
    except (TypeError, ValueError) as error:
        raise PluginError(f"{of}: {error}") from error
    return row


def hint_for(given: Any) -> str:
    """How to make a row of what was given in its place."""
    name = given.__name__ if isinstance(given, type) else ""
    if name and issubclass(given, OffPolicyLearner):
        return f"make a row of it, off_policy_row({name.lower()!r}, {name}, networks, api=API)"
    if name and issubclass(given, RLAlgorithm):
        return f"make a row of it, Algorithm(name={name.lower()!r}, learner={name}, api=API, ...)"
    return "Algorithm(name=...)" + (", or a subclass of metaroll.plugins.Search" if name else "")


def _check_types(row: Algorithm) -> None:
    if not (isinstance(row.name, str) and NAME.fullmatch(row.name)):
        raise ValueError(f"name must be lowercase words with dashes between them, got {row.name!r}")
    if not isinstance(row.purpose, str):
        raise TypeError(f"purpose must be a text, got {described(row.purpose)}")
    for name in FUNCTIONS:
        if not callable(value := getattr(row, name)):
            raise TypeError(f"{name} must be a function, got {described(value)}")
    if isinstance(row.filled, str) or not (
        isinstance(row.filled, Collection) and all(isinstance(name, str) for name in row.filled)
    ):
        raise TypeError(f"filled must be a collection of names of fields, ('n_step',) say, got {described(row.filled)}")
    if not (isinstance(row.configs, tuple) and row.configs):
        raise TypeError(f"configs must be a tuple of classes of configs, (MyConfig,) say, got {described(row.configs)}")
    if not isinstance(row.common, Mapping):
        raise TypeError(f"common must be a dict of options and values, got {described(row.common)}")
    presets = row.presets
    if not (isinstance(presets, Mapping) and all(isinstance(values, Mapping) for values in presets.values())):
        raise TypeError(f"presets must be a dict of environments and dicts of options, got {described(presets)}")


def _check_classes(row: Algorithm) -> None:
    if not isinstance(row.learner, type):
        raise TypeError(f"learner must be a class, got {described(row.learner)}")
    for kind in (row.learner, *row.configs):
        if inspect.isabstract(kind):
            missing = ", ".join(sorted(kind.__abstractmethods__))
            raise TypeError(f"the class {kind.__name__} lacks {missing}: write what is missing")


def _check_options(row: Algorithm) -> None:
    """Error if fields are missing that every run needs, or ``filled``, ``common`` and ``presets`` name no options."""
    if wrong := [kind for kind in row.configs if not (isinstance(kind, type) and issubclass(kind, Config | Search))]:
        raise TypeError(f"configs must be classes of configs, got {described(wrong[0])}")
    try:
        known = {option.name: option for kind in reversed(row.configs) for option in options_of(kind)}
    except (MetarollError, TypeError, ValueError, AttributeError, NameError) as error:
        raise TypeError(f"configs must be classes of configs: {error}") from error
    if unknown := sorted(set(row.filled) - set(known)):
        raise ValueError(f"filled must name fields of its configs, got {', '.join(unknown)}")
    needed: dict[str, type[Config]] = {"max_steps": RolloutLimit, "num_test_tasks": HeldOutTasks}
    if not row.adapts:
        needed |= {"num_test_tasks": Domains, "randomize": Domains}
    if missing := {name: kind for name, kind in needed.items() if name not in known or name in row.filled}:
        fields = ", ".join(f"{name} (of metaroll.plugins.{kind.__name__})" for name, kind in missing.items())
        raise ValueError(f"configs lack fields that every run needs: {fields}")
    evaluation = MetaEvaluationConfig if row.adapts else EvaluationConfig
    beside = {option.name: option for kind in (evaluation, RunConfig) for option in options_of(kind)}
    options = [option for name, option in {**known, **beside}.items() if name not in row.filled]
    layers = {"common": row.common, **{f"presets[{env!r}]": values for env, values in row.presets.items()}}
    for where, values in layers.items():
        merge_layers(options, [(where, values)])


def guarded(row: Algorithm, of: str) -> Algorithm:
    """The row whose functions say in errors whose they are, and what they must return.

    Args:
        row: The row.
        of: What it is called in errors, with its file.
    """
    return dataclasses.replace(row, **{name: _guarded(getattr(row, name), name, of) for name in FUNCTIONS})


def _guarded(function: Callable[..., Any], name: str, of: str) -> Callable[..., Any]:
    expected = _RETURNED.get(name)

    def call(*arguments: Any) -> Any:
        try:
            made = function(*arguments)
        except (MetarollError, ValueError, OSError, MemoryError):
            raise  # they are for the user, who has given options or files
        except Exception as error:
            if isinstance(error, RuntimeError) and "memory" in str(error).lower():
                raise
            frames = frames_of_user(error)
            where = f" ({frames[-1]})" if frames else ""
            raise PluginError(f"{of}: its {name} fails with {type(error).__name__}: {error}{where}") from error
        if expected is not None and not isinstance(made, expected):
            raise PluginError(
                f"{of}: its {name} must return an object of type {expected.__name__}, got {described(made)}"
            )
        return made

    return functools.update_wrapper(call, function) if inspect.isfunction(function) else call
