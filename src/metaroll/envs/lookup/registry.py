"""Families of tasks by name: ours, ``metaworld:BENCHMARK``, ``SIM@POSTERIOR``, ``module:attribute`` for your own."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

import metaroll.envs.mujoco.families

# isort: off (families are listed in the order of these lines)
import metaroll.envs.point.families
import metaroll.envs.sims.families
import metaroll.envs.tabular.families  # noqa: F401
from metaroll.checks import described
from metaroll.envs.base.batching import unwrapped_and_limit
from metaroll.envs.base.constructors import (
    Constructor,
    CopiedEnv,
    SharedEnv,
    check_no_arguments,
    close_env,
    constructor_of,
    register_env,
    register_finder,
)
from metaroll.envs.base.names import AT, BENCHMARK, simulator_and_posterior
from metaroll.envs.base.task_family import TaskFamily, registered_families

# isort: on
from metaroll.envs.lookup.name_hints import refuse_misread
from metaroll.envs.lookup.posteriors import posterior_family
from metaroll.envs.metaworld.families import benchmark_family, meant_name
from metaroll.envs.mujoco.library import graphics_trouble
from metaroll.envs.sims.catalog import sim_constructor
from metaroll.errors import MetarollError, UnknownNameError, unknown_name
from metaroll.own_code import (
    ENVIRONMENTS,
    Declared,
    GivenObjects,
    OwnCodeError,
    PluginError,
    attribute_of,
    declared,
    is_given,
    is_importable,
    is_named,
    names_in_modules,
    sort_declared,
)
from metaroll.tasks.updates import layer_with

__all__ = [
    "KnownName",
    "TaskFamily",
    "family_names",
    "family_of",
    "get_family",
    "installed",
    "is_entry_point",
    "load_entry_point",
    "name_given",
    "refused",
]


def _register(name: str, value: Any) -> None:
    """Workers get the registered object with its name."""
    register_env(name, value.env_constructor if isinstance(value, TaskFamily) else value)


_given = GivenObjects(
    "environment",
    "env",
    "give it another with the same spaces, what makes one, or its name; or put it into a module and train in "
    "module:attribute",
    _register,
)

_own: dict[str, tuple[Any, TaskFamily | None]] = {}
"""``module:attribute`` -> the object when it was last looked up, and its family if it has tasks."""


def is_entry_point(name: str) -> bool:
    """Whether ``name`` has the form ``module:attribute``; ids of Gymnasium such as ``module:Env-v0`` have not.

    ``metaworld:`` is reserved for benchmarks. So has one that a distribution declares by its own name.
    """
    if name in installed():
        return True
    return not name.startswith(BENCHMARK) and is_named(name)


def installed() -> Mapping[str, Declared]:
    """Name -> environment or family that a distribution declares under a free name; nothing is imported."""
    return _declared()[0]


def refused() -> list[tuple[str, str]]:
    """Names of environments that are declared and cannot be used, and why, as far as their names show."""
    return _declared()[1]


def _declared() -> tuple[Mapping[str, Declared], list[tuple[str, str]]]:
    if not declared(ENVIRONMENTS):
        return {}, []
    return sort_declared([ENVIRONMENTS], _names_of_ours())


@functools.cache
def _names_of_ours() -> frozenset[str]:
    """The families of metaroll, and Gymnasium's own ids: others, perhaps of a plug-in, depend on imports so far."""
    ids = [name for name, entry in gymnasium.registry.items() if str(entry.entry_point).startswith("gymnasium.")]
    return frozenset([*registered_families(), *ids])


def load_entry_point(name: str) -> Any:
    """The object of ``name``: a class, a function, a ``TaskFamily`` ...

    Raises:
        UnknownNameError: There is no such module, or no such name in it.
        OwnCodeError: The module cannot be imported.
        PluginError: The same of an entry point, or it holds something else.
    """
    if is_given(name):
        return _given[name]
    if name in installed():
        return _of_plugin(installed()[name])
    try:
        return attribute_of(name, "environment", graphics_trouble)
    except UnknownNameError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            refuse_misread(name)
        raise


def _of_plugin(one: Declared) -> Any:
    label = f"environment {one.name!r} {one.location}"
    try:
        value = attribute_of(one.target, "environment", graphics_trouble)
    except MetarollError as error:
        raise PluginError(f"{label} cannot be loaded: {error}") from error
    if not (callable(value) or isinstance(value, TaskFamily | Mapping | list | tuple)):
        raise PluginError(
            f"{label} must be a TaskFamily, a class or function that makes one or an environment, or "
            f"a list of constructors, got {described(value)}"
        )
    return value


def name_given(env: Any, name: str | None = None) -> str:
    """A name for ``env``, under which every function of this process knows it from now on.

    Args:
        env: A name (which is returned), a ``TaskFamily``, an environment, or a class or function that makes one. What
            its module can be asked for is called ``module:attribute``, which other processes understand, too.
        name: A name for it, even where it has one already: a run continues under the name that it began with.

    Raises:
        TypeError: It is none of these.
        UnknownNameError: There is no environment of that name.
    """
    if name is None:
        existing = _existing_name(env)
        if existing is not None:
            return existing
    elif isinstance(env, str):
        env = _named_value(env)
    plain = str(env.name if isinstance(env, TaskFamily) else getattr(env, "__name__", type(env).__name__))
    plain = re.sub(r"\W+", "_", plain).strip("_").lstrip("0123456789") or "env"
    value: Any = env if isinstance(env, TaskFamily) else constructor_of(env)
    if isinstance(value, SharedEnv):
        raise TypeError("env must make single environments, got a vector environment: give what makes one of them")
    # Tasks are drawn from the seed and this name, which must not depend on other arguments.
    family = family_of(value, plain) if _has_tasks(value, plain) else None
    if name is None:
        name = _given.free_name(plain, value)
    _given[name] = value if family is None else family
    return name


def _existing_name(env: Any) -> str | None:
    """The name that other processes know ``env`` by, too; ``None`` if there is none."""
    if isinstance(env, str):
        return env
    if not isinstance(env, TaskFamily):
        return _importable_name(env, getattr(env, "__module__", None), getattr(env, "__qualname__", None))
    if _known_family(env.name) is env:
        return env.name
    names = (_importable_name(env, *name.split(":")) for name in names_in_modules(env))
    return next((name for name in names if name is not None), None)


def _named_value(name: str) -> Any:
    """The constructor of the environments of ``name``, or their family."""
    known = KnownName(name)
    if known.is_entry_point:
        return load_entry_point(name)
    return known.family if known.is_varied else constructor_of(name)


def _importable_name(env: Any, module: str | None, attribute: str | None) -> str | None:
    """``module:attribute``, where that is ``env``."""
    if not (callable(env) or isinstance(env, TaskFamily)) or not is_importable(module) or attribute is None:
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
    return benchmark_family(name) if name.startswith(BENCHMARK) else registered_families().get(name)


def family_names() -> list[str]:
    """Names of all our families."""
    return list(registered_families())


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
    return KnownName(name).family


def family_of(value: Any, name: str | None = None) -> TaskFamily:
    """A family of tasks from a ``TaskFamily``, an environment's class or function, or constructors of environments.

    Args:
        value: A ``TaskFamily``, or a function that makes one; a class or function that makes an environment with
            ``sample_tasks``; a list or dict of constructors, each of which makes the environment of one task.
        name: Its name, if it has none yet.
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
        except (Exception, SystemExit) as error:
            one = installed().get(name)
            label = name if one is None else f"{name} {one.location}"
            raise OwnCodeError(
                f"{label} cannot be used, since its environment cannot be made: "
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


@dataclass(frozen=True)
class KnownName:
    """The meaning of a name. Each property is looked up when it is first needed, and never again.

    Attributes:
        name: The name; empty for an environment that has none, which is none of these things.
    """

    name: str

    @functools.cached_property
    def parts(self) -> tuple[str, str]:
        """The simulator, and the folder of the posterior of its parameters (empty without one)."""
        return simulator_and_posterior(self.name)

    @property
    def is_given(self) -> bool:
        """Whether a script has given it, so that other processes do not know it."""
        return is_given(self.name)

    @functools.cached_property
    def is_entry_point(self) -> bool:
        """Whether it is of the user, or of a plug-in: see the function of that name."""
        return is_entry_point(self.name)

    @functools.cached_property
    def has_family(self) -> bool:
        """Whether it means tasks.

        Raises:
            ImportError: It is a benchmark of Meta-World, which is not installed.
            UnknownNameError: It begins as one, but there is none of this name.
        """
        return self._known is not None or (self.is_entry_point and self._own[1] is not None)

    @functools.cached_property
    def is_varied(self) -> bool:
        """Whether it means many tasks, in which algorithms that do not adapt learn, too.

        A simulated system counts as one environment here, though there is a family of its variations.
        """
        return sim_constructor(self.name) is None and self.has_family

    @functools.cached_property
    def family(self) -> TaskFamily:
        """Its tasks; see ``get_family``."""
        if self._known is not None:
            return self._known
        self.refuse_alike()
        if self.is_entry_point:
            value, family = self._own
            return family_of(value, self.name) if family is None else family
        refuse_misread(self.name)
        raise unknown_name("task family", self.name, {*registered_families(), *installed()})

    @functools.cached_property
    def constructor(self) -> Constructor | None:
        """The constructor of one environment; ``None`` where that is left to Gymnasium.

        Raises:
            UnknownNameError: It has a form that shows what is meant instead.
        """
        if self._known is not None:
            return self._known.env_constructor
        self.refuse_alike()
        if not self.is_entry_point:
            refuse_misread(self.name)
            return None
        value, family = self._own
        return value if family is None else family.env_constructor

    def refuse_alike(self) -> None:
        """Raise an error with the right spelling if the name seems to mean a benchmark of Meta-World."""
        if self._meant is not None:
            raise UnknownNameError(
                f"unknown environment {self.name!r}; did you mean {self._meant!r}? (docs/metaworld.md)"
            )

    @property
    def id_of_given(self) -> str | None:
        """The id of Gymnasium that makes, alone, the environment that was given; ``None`` if none does.

        It may be drawn otherwise. Wrappers but those of ``gymnasium.make`` itself, or other arguments, make it another
        one.
        """
        value = self._own[0] if self.is_given and not self.parts[1] else None
        if not isinstance(value, CopiedEnv):
            return None
        inner, limit = unwrapped_and_limit(value.env)
        made = value.env.spec
        entry = None if made is None else gymnasium.registry.get(made.id)
        if made is None or entry is None or inner is not value.env.unwrapped or limit != entry.max_episode_steps:
            return None
        arguments = {key: argument for key, argument in made.kwargs.items() if key != "render_mode"}
        usual = {key: argument for key, argument in entry.kwargs.items() if key != "render_mode"}
        return made.id if arguments == usual else None

    @property
    def newest_version(self) -> str | None:
        """The id that Gymnasium takes for it, if it is one without its version."""
        if self.name in gymnasium.registry:
            return None
        versions = {
            entry.version: entry.id
            for entry in gymnasium.registry.values()
            if entry.version is not None and entry.id == f"{self.name}-v{entry.version}"
        }
        return versions[max(versions)] if versions else None

    @functools.cached_property
    def _known(self) -> TaskFamily | None:
        return _known_family(self.name)

    @functools.cached_property
    def _own(self) -> tuple[Any, TaskFamily | None]:
        return _own_family(self.name)

    @functools.cached_property
    def _meant(self) -> str | None:
        if self.name.startswith(BENCHMARK) or self.name in registered_families():
            return None
        if self.name in gymnasium.registry and not self.name.startswith("Meta-World/"):
            return None
        return meant_name(self.name)  # also ids of Meta-World itself, which do not make an environment on their own


register_finder(KnownName)
