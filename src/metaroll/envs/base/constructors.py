"""Constructors of environments: by name, by class or function, or by copying an environment."""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec as Registration

from metaroll.errors import MissingPackageError, UnknownNameError, unknown_name
from metaroll.own_code import ENVIRONMENTS, NAME, add_code_folder, declared
from metaroll.tasks.env_copies import copy_env

__all__ = [
    "Constructor",
    "CopiedEnv",
    "NamedEnv",
    "ResetTaskMaker",
    "SharedEnv",
    "check_no_arguments",
    "close_env",
    "constructor_of",
    "env_names",
    "is_env_instance",
    "make_env",
    "register_env",
    "register_finder",
    "with_render_mode",
]

Constructor = Callable[[], Any]

_NAMED: dict[str, Constructor] = {}
_find: Callable[[str], Any] | None = None
"""Looks names up (see ``register_finder``)."""


def register_env(name: str, constructor: Constructor) -> None:
    """Register ``name`` for the environments of ``constructor``; it takes precedence over Gymnasium's ids."""
    _NAMED[name] = constructor


def register_finder(find: Callable[[str], Any]) -> None:
    """Look names up by ``find``; the ``constructor`` of its result is ``None`` where only Gymnasium may know it."""
    global _find
    _find = find


def env_names() -> list[str]:
    """All registered names."""
    return list(_NAMED)


def is_env_instance(source: Any) -> bool:
    """Whether ``source`` is an environment itself, not a recipe for one."""
    if isinstance(source, type):
        return False
    return isinstance(source, gymnasium.Env) or (hasattr(source, "reset") and hasattr(source, "step"))


def constructor_of(env: Any) -> Constructor:
    """A callable that makes environments as ``env`` specifies; picklable, if ``env`` is.

    Args:
        env: An id (``"point-robot"``, ``"HalfCheetah-v5"``, ``"module:attribute"``), the ``EnvSpec`` of a registered
            environment, a class or function without arguments, or an environment, of which a copy is kept and copies
            are made. A ``gymnasium.vector.VectorEnv`` (or what makes one) also works; in this process a given one
            is used itself.

    Raises:
        TypeError: It makes no environment, or cannot be copied.
        ValueError: A copy of the environment is configured otherwise (see ``copy_env``).
    """
    if isinstance(env, str):
        return NamedEnv(env)
    if isinstance(env, Registration):
        return NamedEnv(env.id, env)
    if isinstance(env, gymnasium.vector.VectorEnv):
        return SharedEnv(env)
    if is_env_instance(env):
        return CopiedEnv(env)
    if callable(env):
        return env
    raise TypeError(
        f"env must be an id such as 'point-robot' or 'HalfCheetah-v5', a class or function that makes an environment, "
        f"or an environment, got {env!r} of type {type(env).__name__}"
    )


def make_env(source: Any) -> Any:
    """A new environment (``source`` as in ``constructor_of``), checked to have the methods of one.

    Raises:
        TypeError: It does not.
    """
    env = constructor_of(source)()
    if not is_env_instance(env) or not hasattr(env, "action_space") or not hasattr(env, "observation_space"):
        raise TypeError(
            f"{source!r} must make an environment with reset, step, observation_space and action_space, "
            f"got {env!r} of type {type(env).__name__}"
        )
    return env


def close_env(env: Any) -> None:
    """Close ``env``, if it can be closed."""
    if hasattr(env, "close"):
        env.close()


class NamedEnv:
    """Makes the environment of a name: a registered one, else one that a finder resolves, else Gymnasium's.

    Keeps what is registered under the name here, for workers, which do not know what a script has registered.

    Args:
        name: The name.
        spec: Its entry in Gymnasium's registry; by default the present one.
    """

    def __init__(self, name: str, spec: Registration | None = None) -> None:
        self.name = name
        self._registered = _NAMED.get(name)
        self._spec = gymnasium.registry.get(name) if spec is None else spec

    @functools.cached_property
    def known(self) -> Any:
        """The entry of the name, as ``register_finder`` has it; looked up once here, and once in each worker."""
        return None if _find is None else _find(self.name)

    def constructor(self) -> Constructor | None:
        """The constructor; ``None`` for ids of Gymnasium (and for unknown names)."""
        if self._registered is not None:
            return self._registered
        return None if self.known is None else self.known.constructor

    def __call__(self, **options: Any) -> Any:
        constructor = self.constructor()
        if constructor is not None:
            return constructor(**options)
        module, colon, env_id = self.name.partition(":")
        if colon and (not module or ":" in env_id) and self.name not in gymnasium.registry:
            raise self._unknown()
        add_code_folder()  # Gymnasium imports the module of module:Id-v0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "out of date", "overriding environment": nothing that a rollout needs
            try:
                # The passive checker costs more than many environments do, and only warns.
                spec = self._spec
                source = self.name if spec is None or gymnasium.registry.get(self.name) is spec else spec
                return gymnasium.make(source, disable_env_checker=True, **options)
            except gymnasium.error.Error as error:
                if self.name.rpartition(":")[2] in gymnasium.registry:
                    if isinstance(error, gymnasium.error.DependencyNotInstalled):
                        raise MissingPackageError(
                            f"{self.name} is known, and a package that it needs is missing: {error}"
                        ) from error
                    raise
                raise self._unknown() from error
            except ModuleNotFoundError as error:
                if getattr(error.__cause__, "name", None) != module:
                    raise
                raise UnknownNameError(f"unknown environment {self.name!r}: there is no module {module!r}") from error

    def _unknown(self) -> UnknownNameError:
        named = {*_NAMED, *(one.name for one in declared(ENVIRONMENTS) if NAME.fullmatch(one.name))}
        near = difflib.get_close_matches(self.name, [*named, *gymnasium.registry], n=3, cutoff=0.5)
        unknown = unknown_name("environment", self.name, {*named, *near})
        return UnknownNameError(f"{unknown}, or any id of Gymnasium")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "known"}

    def __repr__(self) -> str:
        return repr(self.name)


class CopiedEnv:
    """Makes copies of an environment, from a private copy that never changes (see ``copy_env``)."""

    def __init__(self, env: Any) -> None:
        self.env = copy_env(env)

    def __call__(self) -> Any:
        return copy_env(self.env)

    def __repr__(self) -> str:
        return f"a copy of {self.env!r}"


class SharedEnv:
    """Gives a vector environment itself (many cannot be copied); another process gets a copy, if it can be pickled."""

    def __init__(self, env: gymnasium.vector.VectorEnv) -> None:
        self.env = env

    def __call__(self) -> gymnasium.vector.VectorEnv:
        return self.env

    def __repr__(self) -> str:
        return repr(self.env)


class ResetTaskWrapper(gymnasium.Wrapper):
    """Keeps a task, and hands it to the environment at every reset.

    Args:
        env: Environment that reads its task from the options of ``reset``.
        option: Name of the option.
    """

    def __init__(self, env: Any, option: str = "task") -> None:
        super().__init__(env)
        self._option = option
        self._task: Any = None

    def set_task(self, task: Any) -> None:
        """The task of all episodes that are started from now on."""
        self._task = task

    def get_task(self) -> Any:
        """The task that was set last, or ``None``."""
        return self._task

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode of the task; one in ``options`` goes before ours."""
        if self._task is not None:
            options = {self._option: self._task, **(options or {})}
        return self.env.reset(seed=seed, options=options)


class ResetTaskMaker:
    """Makes environments with a ``ResetTaskWrapper``: a picklable constructor.

    Args:
        make_env: Makes the environment inside.
        option: Name of the option.
    """

    def __init__(self, make_env: Constructor, option: str = "task") -> None:
        if not isinstance(option, str) or not option:
            raise ValueError(f"option must be the name of an option of reset, got {option!r}")
        self.make_env, self.option = make_env, option

    def __call__(self) -> ResetTaskWrapper:
        return ResetTaskWrapper(self.make_env(), self.option)

    def __repr__(self) -> str:
        return f"{self.make_env!r} with its task in options[{self.option!r}] of reset"


def with_render_mode(constructor: Constructor, mode: str) -> Constructor:
    """A constructor of the same environment that draws; ``constructor`` itself if it takes no ``render_mode``."""
    if isinstance(constructor, ResetTaskMaker):
        return ResetTaskMaker(with_render_mode(constructor.make_env, mode), constructor.option)
    if isinstance(constructor, NamedEnv):
        made = constructor.constructor()
        if made is not None:
            return with_render_mode(made, mode)
        return functools.partial(constructor, render_mode=mode)
    inner = constructor.func if isinstance(constructor, functools.partial) else constructor
    try:
        parameters = inspect.signature(inner).parameters
        hands_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        draws = mode in getattr(inner, "metadata", {}).get(
            "render_modes", ()
        )  # classes that pass options on declare it
        takes = inner is gymnasium.make or "render_mode" in parameters or (hands_on and draws)
    except (TypeError, ValueError):  # written in C
        takes = False
    return functools.partial(constructor, render_mode=mode) if takes else constructor


def check_no_arguments(constructor: Any, name: str) -> None:
    """Refuse a constructor with required arguments, which would not be given.

    Args:
        constructor: A class or function.
        name: Its name.

    Raises:
        TypeError: It needs arguments.
    """
    try:
        signature = inspect.signature(constructor)
    except (TypeError, ValueError):
        return  # built-in: it raises the error itself
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    wanted = [p.name for p in signature.parameters.values() if p.default is p.empty and p.kind not in kinds]
    if wanted:
        names, example = ", ".join(wanted), ", ".join(f"{argument}=..." for argument in wanted)
        raise TypeError(
            f"{name} needs the argument{'s' * (len(wanted) > 1)} {names}, but environments are made without "
            f"any; give default values, or write a function def make(): return {name.rpartition(':')[2]}({example})"
        )
