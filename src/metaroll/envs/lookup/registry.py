"""Families of tasks by name: ours, ``metaworld:BENCHMARK``, ``SIM@POSTERIOR``, ``module:attribute`` for your own."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Mapping
from typing import Any

import gymnasium

import metaroll.envs.mujoco.families

# isort: off (families are listed in the order of these lines)
import metaroll.envs.point.families
import metaroll.envs.sims.families
import metaroll.envs.tabular.families  # noqa: F401
from metaroll.envs.base.batching import unwrapped_and_limit
from metaroll.envs.base.constructors import (
    CopiedEnv,
    SharedEnv,
    check_no_arguments,
    close_env,
    constructor_of,
    register_env,
    register_finder,
)
from metaroll.envs.base.task_family import TaskFamily, registered_families

# isort: on
from metaroll.envs.lookup.name_hints import refuse_misread
from metaroll.envs.lookup.posteriors import AT, posterior_family
from metaroll.envs.metaworld.families import PREFIX, benchmark_family, meant_name
from metaroll.envs.mujoco.library import graphics_trouble
from metaroll.envs.sims.catalog import sim_constructor
from metaroll.errors import MetarollError, UnknownNameError, unknown_name
from metaroll.own_code import Declared, OwnCodeError, attribute_of, declared, usable
from metaroll.tasks.updates import layer_with

__all__ = [
    "GROUP",
    "TaskFamily",
    "family_names",
    "family_of",
    "get_family",
    "has_family",
    "id_of_given",
    "installed",
    "is_entry_point",
    "is_given",
    "is_varied",
    "load_entry_point",
    "name_given",
    "newest_version",
    "refuse_alike",
]

GROUP = "metaroll.environments"
"""Entry point of environments and families."""
_GIVEN = "given"
"""In place of the module in names of environments that only the running script has."""

_SCRIPTS = ("__main__", "__mp_main__")
"""Modules that are another thing in every process."""

_given: dict[str, Any] = {}

_own: dict[str, tuple[Any, TaskFamily | None]] = {}
"""``module:attribute`` -> what it was when it was asked for last, and its family, if it has tasks."""


def is_entry_point(name: str) -> bool:
    """Whether ``name`` has the form ``module:attribute``; ids of Gymnasium such as ``module:Env-v0`` have not.

    ``metaworld:`` is reserved for benchmarks. So has one that a distribution declares by a name of its own.
    """
    if name in installed():
        return True
    module, _, attribute = name.partition(":")
    return not name.startswith(PREFIX) and all(
        part.isidentifier() for part in [*module.split("."), *attribute.split(".")]
    )


def installed() -> Mapping[str, Declared]:
    """Name -> environment or family that a distribution declares under a free name; nothing is imported."""
    if not declared(GROUP):
        return {}
    return usable(GROUP, {*registered_families(), *gymnasium.registry})[0]


def load_entry_point(name: str) -> Any:
    """What ``name`` stands for: a class, a function, a ``TaskFamily`` ...

    Raises:
        UnknownNameError: There is no such module, or nothing of this name in it.
        OwnCodeError: The module cannot be imported.
    """
    if is_given(name):
        if name not in _given:
            raise UnknownNameError(
                f"environment {name!r} is one that a script has given to metaroll.agent, and is known there only: use "
                "metaroll.load(run, env=...) in Python, with that environment, what makes one, or the name of one "
                "with the same spaces; or put it into a module and train in module:attribute"
            )
        return _given[name]
    one = installed().get(name)
    try:
        return attribute_of(name if one is None else one.target, "environment", graphics_trouble)
    except UnknownNameError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            refuse_misread(name)
        raise


def is_given(name: str) -> bool:
    """Whether ``name`` is one that ``name_given`` has made up, and that other processes do not know."""
    return name.startswith(f"{_GIVEN}:")


def id_of_given(name: str) -> str | None:
    """The id of Gymnasium that makes, alone, the environment that was given under ``name``; ``None`` if none does.

    It may be drawn otherwise. Wrappers but those of ``gymnasium.make`` itself, or other arguments, make it another one.
    """
    value = _given.get(name)
    if not isinstance(value, CopiedEnv):
        return None
    inner, limit = unwrapped_and_limit(value.env)
    made = value.env.spec
    registered = None if made is None else gymnasium.registry.get(made.id)
    if made is None or registered is None or inner is not value.env.unwrapped or limit != registered.max_episode_steps:
        return None
    given = {key: argument for key, argument in made.kwargs.items() if key != "render_mode"}
    usual = {key: argument for key, argument in registered.kwargs.items() if key != "render_mode"}
    return made.id if given == usual else None


def newest_version(name: str) -> str | None:
    """The id that Gymnasium takes for ``name``, which is one without its version; ``None`` if it is none of these."""
    if name in gymnasium.registry:
        return None
    versions = {
        entry.version: entry.id
        for entry in gymnasium.registry.values()
        if entry.version is not None and entry.id == f"{name}-v{entry.version}"
    }
    return versions[max(versions)] if versions else None


def name_given(env: Any, name: str | None = None) -> str:
    """A name for ``env``, under which every function of this process knows it from now on.

    Args:
        env: A name (which is returned), a ``TaskFamily``, an environment, or a class or function that makes one. What
            its module can be asked for is called ``module:attribute``, which other processes understand, too.
        name: What to call it, even where it has a name already: a run goes on under the name that it began with.

    Raises:
        TypeError: It is none of these.
        UnknownNameError: There is no environment of that name.
    """
    if name is None:
        found = _name_there_is(env)
        if found is not None:
            return found
    elif isinstance(env, str):
        env = _named_value(env)
    plain = str(env.name if isinstance(env, TaskFamily) else getattr(env, "__name__", type(env).__name__))
    plain = re.sub(r"\W+", "_", plain).strip("_").lstrip("0123456789") or "env"
    value: Any = env if isinstance(env, TaskFamily) else constructor_of(env)
    if isinstance(value, SharedEnv):
        raise TypeError("env must make single environments, got a vector environment: give what makes one of them")
    # Tasks are drawn from the seed and this name, which must not depend on what else has been given.
    family = family_of(value, plain) if _has_tasks(value, plain) else None
    if name is None:
        numbered = (f"{_GIVEN}:{plain}_{number}" for number in itertools.count(2))
        name = next(n for n in itertools.chain([f"{_GIVEN}:{plain}"], numbered) if n not in _given)
    _given[name] = value if family is None else family
    register_env(name, value if family is None else family.env_constructor)  # workers get it with the name
    return name


def _name_there_is(env: Any) -> str | None:
    """The name that other processes know ``env`` by, too; ``None`` where there is none."""
    if isinstance(env, str):
        return env
    if not isinstance(env, TaskFamily):
        return _importable_name(env, getattr(env, "__module__", None), getattr(env, "__qualname__", None))
    if _known_family(env.name) is env:
        return env.name
    held = ((module, attribute) for module in list(sys.modules) for attribute in _attributes_that_are(env, module))
    names = (_importable_name(env, *place) for place in sorted(held, key=lambda place: (len(place[0]), place)))
    return next((name for name in names if name is not None), None)


def _attributes_that_are(value: Any, module: str) -> list[str]:
    """Public attributes of a loaded module that are ``value`` itself."""
    members = getattr(sys.modules.get(module), "__dict__", {})
    return [name for name, member in list(members.items()) if member is value and not name.startswith("_")]


def _named_value(name: str) -> Any:
    """What makes the environments of ``name``, or their family."""
    if is_entry_point(name):
        return load_entry_point(name)
    return get_family(name) if is_varied(name) else constructor_of(name)


def _importable_name(env: Any, module: str | None, attribute: str | None) -> str | None:
    """``module:attribute``, where that is ``env``."""
    if not (callable(env) or isinstance(env, TaskFamily)) or module in (None, *_SCRIPTS) or attribute is None:
        return None
    name = f"{module}:{attribute}"
    if not is_entry_point(name):
        return None
    try:
        return name if load_entry_point(name) is env else None
    except (MetarollError, ImportError):
        return None


def _known_family(name: str) -> TaskFamily | None:
    if AT in name:
        return posterior_family(name)
    return benchmark_family(name) if name.startswith(PREFIX) else registered_families().get(name)


def family_names() -> list[str]:
    """Names of all our families."""
    return list(registered_families())


def has_family(name: str) -> bool:
    """Whether ``get_family(name)`` gives a family.

    Raises:
        ImportError: It is a benchmark of Meta-World, which is not installed.
        UnknownNameError: It begins as one, but there is none of this name.
    """
    if _known_family(name) is not None:
        return True
    return is_entry_point(name) and _own_family(name)[1] is not None


def refuse_alike(name: str) -> None:
    """Error that says how a benchmark of Meta-World is written, if ``name`` seems to mean one and is nothing else."""
    meant = None if name.startswith(PREFIX) else meant_name(name)
    theirs = name in gymnasium.registry and not name.startswith("Meta-World/")  # of which no name alone makes anything
    if meant is not None and name not in registered_families() and not theirs:
        raise UnknownNameError(f"unknown environment {name!r}; did you mean {meant!r}? (docs/metaworld.md)")


def is_varied(name: str) -> bool:
    """Whether ``name`` stands for many tasks, in which algorithms that do not adapt learn, too.

    A simulated system counts as one environment here, though there is a family of its variations.
    """
    return sim_constructor(name) is None and has_family(name)


def get_family(name: str) -> TaskFamily:
    """The family called ``name``.

    Args:
        name: One of ours; ``metaworld:`` and a benchmark (``metaworld:ML1-reach-v3``, ``metaworld:ML10``);
            ``SIM@FOLDER``, a simulator and the folder of a posterior over its parameters; or ``module:attribute``,
            which ``family_of`` makes a family of.

    Raises:
        UnknownNameError: There is none; the message has the nearest names.
        ImportError: It needs a package that is not installed.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be text, such as 'cheetah-vel', got {name!r} of type {type(name).__name__}")
    known = _known_family(name)
    if known is not None:
        return known
    refuse_alike(name)
    if is_entry_point(name):
        value, family = _own_family(name)
        return family_of(value, name) if family is None else family
    refuse_misread(name)
    raise unknown_name("task family", name, registered_families())


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
        close_env(made)
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
            raise OwnCodeError(
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
        close_env(made)


def _own_constructor(name: str) -> Any:
    """What makes the environment ``module:attribute`` or ``metaworld:BENCHMARK``; ``None`` for names of other forms."""
    if name.startswith(PREFIX):
        return benchmark_family(name).env_constructor
    if AT in name:
        return posterior_family(name).env_constructor
    refuse_alike(name)
    if not is_entry_point(name):
        refuse_misread(name)
        return None
    value, family = _own_family(name)
    return value if family is None else family.env_constructor


register_finder(_own_constructor)
