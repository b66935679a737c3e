"""Checks of plug-ins' rows, and of the results of their functions, with errors that name the row."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections import abc
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from metaroll.checks import described
from metaroll.config import Config, Option, merge_layers, options_of
from metaroll.configs.algorithms import Domains, HeldOutTasks
from metaroll.configs.table import options_with, taken_names
from metaroll.envs.base.constructors import close_env
from metaroll.envs.lookup.source import EnvSource, is_env_instance, make_env
from metaroll.errors import MetarollError
from metaroll.functional.search.base import Search
from metaroll.learners.base import MetaRLAlgorithm, RLAlgorithm, RolloutLimit
from metaroll.learners.off_policy.base import OffPolicyLearner
from metaroll.own_code import NAME, PluginError
from metaroll.own_frames import frames_of_user, is_raised
from metaroll.own_sources import is_ours
from metaroll.training.algorithms.algorithm import API, Algorithm, Values, Work
from metaroll.training.algorithms.building import BuildOptions, family_sizes, is_out_of_memory
from metaroll.training.store.files import to_plain
from metaroll.types import EnvUpdate

__all__ = ["FUNCTIONS", "checked_row", "guarded", "hint_for"]


def _are_texts(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(text, str) for text in value)


def _makes_env(value: Any) -> bool:
    return callable(value) or is_env_instance(value) or isinstance(value, str | EnvSource)


def _is_a(kind: Any) -> Callable[[Any], bool]:
    return lambda made: isinstance(made, kind)


def _is_dict(made: Any) -> bool:
    return isinstance(made, Mapping) and _are_texts(made)


def _are_tasks(made: Any) -> bool:
    return isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Sequence)


def _is_count(made: Any) -> bool:
    return isinstance(made, int | np.integer) and not isinstance(made, bool) and bool(made >= 0)


def _is_end(made: Any) -> bool:
    return made is None or (
        isinstance(made, tuple) and len(made) == 2 and _is_count(made[0]) and isinstance(made[1], str)
    )


_RETURNED: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "build": ("an object of type RLAlgorithm", _is_a(RLAlgorithm)),
    "work": ("an object of type Work", _is_a(Work)),
    "amount": ("a text", _is_a(str)),
    "sizes": ("a dict of options and values", _is_dict),
    "tasks": ("what to train in and a list of held-out tasks, e.g. (None, [])", _are_tasks),
    "environment": ("what makes an environment", _makes_env),
    "seen_env": ("an environment", is_env_instance),
    "settled": ("a dict of options and values", _is_dict),
    "largest_batch": ("a number of rows", _is_count),
    "notes": ("a list of texts", _are_texts),
    "summary_values": ("a dict of names and numbers", _is_dict),
    "ended_early": ("None, or a number of epochs and why they are the last", _is_end),
}
"""Function of a row -> its expected result in words, and a test of that."""


def _check_sizes(row: Algorithm, made: Values, env: EnvSource) -> None:
    further = made.keys() - _options_of(row)
    standard = family_sizes(env) if further and env.known.has_family else {}  # a row need not have all of these
    left_out = further & standard.keys()
    _check_settled(row, {name: value for name, value in made.items() if value is not None and name not in left_out})


def _check_settled(row: Algorithm, made: Values, values: Values = MappingProxyType({})) -> None:
    changed = {name: value for name, value in made.items() if name not in values or values[name] is not value}
    merge_layers(_options_of(row).values(), [("it", changed)])


def _options_of(row: Algorithm) -> dict[str, Option]:
    return {option.name: option for option in options_with(row.configs, row.adapts, row.filled)}


def _check_tasks(row: Algorithm, made: tuple[Any, Sequence[Any]], given: BuildOptions) -> None:
    for task in made[1]:
        if not isinstance(task, EnvUpdate):
            raise TypeError(f"each held-out task must be an EnvUpdate, got {described(task)}")


def _check_environment(row: Algorithm, made: Any, given: BuildOptions) -> None:
    if isinstance(made, str) and made != given.env.name:  # the user's own choice was checked before
        close_env(make_env(made))


_CHECKS: Mapping[str, Callable[[Algorithm, Any, Any], object]] = {
    "sizes": _check_sizes,
    "tasks": _check_tasks,
    "environment": _check_environment,
    "settled": _check_settled,
    "summary_values": lambda row, made, returns: to_plain(made),
}
"""Further checks of results, which also get the first argument of the function."""
_WITHOUT_OPTIONS = ("work", "amount", "largest_batch", "summary_values", "ended_early")
"""Functions that get checked options, so that their errors are not about options."""
FUNCTIONS = tuple(
    name for name, hint in typing.get_type_hints(Algorithm).items() if typing.get_origin(hint) is abc.Callable
)
"""Names of the attributes of a row that are functions."""


def checked_row(row: Any, label: str) -> Algorithm:
    """Check that ``row`` can be used; return it.

    Args:
        row: The object to check.
        label: Its name in errors, with its file.

    Raises:
        PluginError: It cannot be used.
    """
    if not isinstance(row, Algorithm):
        got = described(row) if isinstance(row, type) else type(row).__name__
        raise PluginError(f"{label} must be a metaroll.plugins.Algorithm, got {got}: {hint_for(row)}")
    if row.api != API:
        raise PluginError(
            f"{label} must be written for version {API} of the interface, got api={row.api!r}: "
            + ("declare it, api=1" if row.api is None else "install a version of it that fits this metaroll")
        )
    try:
        _check_types(row)
        _check_classes(row)
        _check_options(row)
    except (TypeError, ValueError) as error:
        raise PluginError(f"{label}: {error}") from error
    return row


def hint_for(value: Any) -> str:
    """A hint at how to make a row from an object that is not one."""
    name = value.__name__ if isinstance(value, type) else ""
    if name and issubclass(value, OffPolicyLearner):
        return f"make a row of it, off_policy_row({name.lower()!r}, {name}, networks, api=API)"
    if name and issubclass(value, RLAlgorithm):
        return f"make a row of it, Algorithm(name={name.lower()!r}, learner={name}, api=API, ...)"
    return "Algorithm(name=...)" + (", or a subclass of metaroll.plugins.Search" if name else "")


def _check_types(row: Algorithm) -> None:
    if not (isinstance(row.name, str) and NAME.fullmatch(row.name)):
        raise ValueError(f"name must be lowercase words with dashes between them, got {row.name!r}")
    for name in ("purpose", "seen_hint"):
        if not isinstance(value := getattr(row, name), str):
            raise TypeError(f"{name} must be a text, got {described(value)}")
    for name in FUNCTIONS:
        if not callable(value := getattr(row, name)):
            raise TypeError(f"{name} must be a function, got {described(value)}")
    for name in ("filled", "follows_epochs"):
        if not _are_texts(value := getattr(row, name)):
            raise TypeError(
                f"{name} must be a collection of names of fields such as ('n_step',), got {described(value)}"
            )
    if not (isinstance(row.configs, tuple) and row.configs):
        raise TypeError(
            f"configs must be a tuple of classes of configs such as (MyConfig,), got {described(row.configs)}"
        )
    if not isinstance(row.common, Mapping):
        raise TypeError(f"common must be a dict of options and values, got {described(row.common)}")
    presets = row.presets
    if not (isinstance(presets, Mapping) and all(isinstance(values, Mapping) for values in presets.values())):
        raise TypeError(f"presets must be a dict of environments and dicts of options, got {described(presets)}")


def _check_classes(row: Algorithm) -> None:
    expected = MetaRLAlgorithm if row.adapts else RLAlgorithm
    if not (isinstance(row.learner, type) and issubclass(row.learner, expected)):
        adapts = ", since adapts=True" if row.adapts else ""
        raise TypeError(f"learner must be a subclass of {expected.__name__}{adapts}, got {described(row.learner)}")
    for kind in (row.learner, *row.configs):
        if inspect.isabstract(kind):
            missing = ", ".join(sorted(kind.__abstractmethods__))
            raise TypeError(f"the class {kind.__name__} lacks {missing}: write what is missing")


def _check_options(row: Algorithm) -> None:
    """Raise an error if a row lacks fields that every run needs, names unknown options, or uses reserved names."""
    if wrong := [kind for kind in row.configs if not (isinstance(kind, type) and issubclass(kind, Config | Search))]:
        raise TypeError(f"configs must be classes of configs, got {described(wrong[0])}")
    try:
        fields = {option.name for kind in row.configs for option in options_of(kind)}
    except (MetarollError, TypeError, ValueError, AttributeError, NameError) as error:
        raise TypeError(f"configs must be classes of configs: {error}") from error
    for name, kind in taken_names(row.configs, row.adapts).items():
        raise ValueError(f"the field {name} of {kind.__name__} has a name that every run has already: choose another")
    if unknown := sorted(set(row.filled) - fields):
        raise ValueError(f"filled must name fields of its configs, got {', '.join(unknown)}")
    options = options_with(row.configs, row.adapts, row.filled)
    known = {option.name for option in options if option.section == "algorithm"}
    if unknown := sorted(set(row.follows_epochs) - known):
        raise ValueError(f"follows_epochs must name options, fields of its configs, got {', '.join(unknown)}")
    needed: dict[str, type[Config]] = {"max_steps": RolloutLimit, "num_test_tasks": HeldOutTasks}
    if not row.adapts:
        needed |= {"num_test_tasks": Domains, "randomize": Domains}
    if missing := {name: kind for name, kind in needed.items() if name not in known}:
        named = ", ".join(f"{name} (of metaroll.plugins.{kind.__name__})" for name, kind in missing.items())
        raise ValueError(f"configs lack fields that every run needs: {named}")
    layers = {"common": row.common, **{f"presets[{env!r}]": values for env, values in row.presets.items()}}
    for where, values in layers.items():
        merge_layers(options, [(where, values)])


def guarded(row: Algorithm, label: str) -> Algorithm:
    """The row with checks around its functions: errors name the row and the expected result.

    Functions of metaroll itself stay unchanged.

    Args:
        row: The row.
        label: Its name in errors, with its file.
    """
    functions = {name: getattr(row, name) for name in FUNCTIONS}
    theirs = {name: each for name, each in functions.items() if not (inspect.isfunction(each) and is_ours(each))}
    return dataclasses.replace(row, **{name: _guarded(each, name, label, row) for name, each in theirs.items()})


def _guarded(function: Callable[..., Any], name: str, label: str, row: Algorithm) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            made = function(*arguments, **keywords)
        except (Exception, SystemExit) as error:
            if _is_for_the_user(error, name):
                raise
            frames = frames_of_user(error)
            where = f" ({frames[-1]})" if frames else ""
            raise PluginError(f"{label}: its {name} fails with {type(error).__name__}: {error}{where}") from error
        expected, fits = _RETURNED[name]
        if not fits(made):
            raise PluginError(f"{label}: its {name} must return {expected}, got {described(made)}")
        try:
            if name in _CHECKS:
                _CHECKS[name](row, made, next(iter((*arguments, *keywords.values()))))
        except Exception as error:
            raise PluginError(f"{label}: its {name} must return {expected}: {error}") from error
        return made

    return functools.update_wrapper(call, function) if inspect.isfunction(function) else call


def _is_for_the_user(error: BaseException, name: str) -> bool:
    """Whether an error of a row's function is about the user's options or files, rather than a bug of the row."""
    if isinstance(error, MetarollError | OSError) or is_out_of_memory(error):
        return True
    return isinstance(error, ValueError) and name not in _WITHOUT_OPTIONS and is_raised(error)
