"""Changes to environments: build a new one, set a task, or use one that exists."""

from __future__ import annotations

import contextlib
import functools
import secrets
import warnings
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from metaroll.tasks.task_key import task_key
from metaroll.types import EnvUpdate

__all__ = ["ExistingEnvUpdate", "NewEnvUpdate", "SetTaskUpdate", "env_layers", "layer_with"]

EnvConstructor = Callable[[], Any]
EnvWrapper = Callable[[Any, Any], Any]

# Marks that an update leaves on its environments and wrappers, so that a later update can undo it.
_MADE_BY = "_metaroll_made_by"
_WRAPS = "_metaroll_wraps"


def env_layers(env: Any) -> Iterator[Any]:
    """``env`` and everything that it wraps, from the outermost wrapper to the environment itself."""
    while env is not None:
        yield env
        inner = getattr(env, "env", None)
        env = None if inner is env else inner


class NewEnvUpdate(EnvUpdate):
    """Closes the old environment and builds another one.

    Args:
        env_constructor: Called without arguments; returns the environment.
        task: Its value in logs and overlap checks; by default the name of the constructor.
    """

    builds_env = True  # the result does not depend on the old environment

    def __init__(self, env_constructor: EnvConstructor, *, task: Any = None) -> None:
        self._env_constructor = _checked_callable("env_constructor", env_constructor)
        self.task = _name_of(env_constructor) if task is None else task

    @property
    def env_constructor(self) -> EnvConstructor:
        """The constructor of the environment."""
        return self._env_constructor

    def __call__(self, old_env: Any = None) -> Any:
        if old_env is not None:
            old_env.close()
        return self._env_constructor()

    def __eq__(self, other: object) -> bool:
        if type(other) is not NewEnvUpdate:
            return NotImplemented
        return self._env_constructor == other._env_constructor and task_key(self.task) == task_key(other.task)

    def __hash__(self) -> int:
        return hash((NewEnvUpdate, task_key(self.task)))

    def __repr__(self) -> str:
        return f"NewEnvUpdate({_name_of(self._env_constructor)})"


class ExistingEnvUpdate(EnvUpdate):
    """Returns an environment that exists; the old one is left unchanged, and never closed.

    A copy of the update refers to the same environment; pickling it copies the environment, and
    warns, since changes made in another process do not come back.

    Args:
        env: The environment.
        task: Its value in logs and overlap checks; by default the result of ``env.get_task()``, if there is such a
            method.
    """

    builds_env = True

    def __init__(self, env: Any, *, task: Any = None) -> None:
        self._env = env
        if task is None:
            owner = layer_with(env, "get_task")
            task = None if owner is None else owner.get_task()
        self.task = task

    def __call__(self, old_env: Any = None) -> Any:
        return self._env

    def __copy__(self) -> ExistingEnvUpdate:
        return ExistingEnvUpdate(self._env, task=self.task)

    def __deepcopy__(self, memo: dict[int, Any]) -> ExistingEnvUpdate:
        return self.__copy__()

    def __getstate__(self) -> dict[str, Any]:
        warnings.warn(
            "an ExistingEnvUpdate is being pickled: the receiver works on a copy of the environment; "
            "use NewEnvUpdate or SetTaskUpdate to build environments where they are needed",
            stacklevel=2,
        )
        return dict(self.__dict__)

    def __eq__(self, other: object) -> bool:
        if type(other) is not ExistingEnvUpdate:
            return NotImplemented
        return self._env is other._env

    def __hash__(self) -> int:
        return hash((ExistingEnvUpdate, id(self._env)))

    def __repr__(self) -> str:
        return f"ExistingEnvUpdate({self._env!r})"


class SetTaskUpdate(EnvUpdate):
    """Sets a task on the environment at hand if it is of the right kind, otherwise builds one.

    - Without an old environment: ``env_type()``, ``set_task(task)``, then ``wrapper_constructor(env, task)``.
    - An old environment of exactly this type (a subclass is another type) is re-used: it gets the task, and the wrapper
      is made again around it, so that no wrapper keeps data of the task before. Without a wrapper of our own the
      old environment's wrappers stay, except those that an earlier update had put on.
    - Any other old environment is closed, with a warning, and a new one is built.

    Args:
        env_type: A class, or any callable that returns an environment. What a callable made is recognized as its own,
            so that two functions making differently configured environments of one class are not mixed up.
        task: Handed to ``set_task``.
        wrapper_constructor: Called as ``wrapper_constructor(env, task)``.
        made_by: Internal: the mark shared by updates of one sampler whose ``env_type`` is not a class.

    Note:
        garage refuses functions and lambdas; they are accepted here.
    """

    def __init__(
        self,
        env_type: EnvConstructor,
        task: Any,
        wrapper_constructor: EnvWrapper | None = None,
        *,
        made_by: str | None = None,
    ) -> None:
        self._env_type = _checked_callable("env_type", env_type)
        self.task = task
        if wrapper_constructor is not None:
            _checked_callable("wrapper_constructor", wrapper_constructor)
        self._wrapper = wrapper_constructor
        # A token, since a function that traveled to a worker no longer is the same object.
        self._made_by = None if isinstance(env_type, type) else (made_by or secrets.token_hex(8))

    @property
    def env_type(self) -> EnvConstructor:
        """The class or callable that makes the environment."""
        return self._env_type

    @property
    def wrapper_constructor(self) -> EnvWrapper | None:
        """The wrapper around the environment, or ``None``."""
        return self._wrapper

    @property
    def origin(self) -> Hashable:
        """The same for updates that would give each other's environments their task."""
        return self._env_type if self._made_by is None else self._made_by

    def __call__(self, old_env: Any = None) -> Any:
        if old_env is None:
            return self._wrapped(self._with_task(self._build()))
        base = self._base_of(old_env)
        if base is None:
            warnings.warn(
                f"SetTaskUpdate is for environments made by {_name_of(self._env_type)}, got "
                f"{type(old_env).__name__}, which is closed and replaced by a new one",
                stacklevel=2,
            )
            old_env.close()
            return self._wrapped(self._with_task(self._build()))
        self._with_task(base)
        return _without_update_wrapper(old_env) if self._wrapper is None else self._wrapped(base)

    def reuses(self, env: Any) -> bool:
        """Whether ``env`` would get the task, rather than be replaced."""
        return self._base_of(env) is not None

    def replaces(self, previous: EnvUpdate) -> bool:
        """Whether the environment of ``previous`` can be reused with the same result as an untouched environment."""
        if not isinstance(previous, SetTaskUpdate) or not self._same_constructor(previous):
            return False
        # A wrapper of ours replaces all others; without one, those of the untouched environment have to be there.
        return previous._wrapper is None or self._wrapper is not None

    def _build(self) -> Any:
        env = self._env_type()
        if self._made_by is not None:
            with contextlib.suppress(AttributeError):  # an object that cannot be marked is never reused
                setattr(env, _MADE_BY, self._made_by)
        return env

    def _base_of(self, env: Any) -> Any:
        """The layer of ``env`` that our constructor made, or ``None``."""
        for layer in env_layers(env):
            if self._made_by is None:
                if type(layer) is self._env_type:
                    return layer
            elif getattr(layer, "__dict__", {}).get(_MADE_BY) == self._made_by:
                return layer
        return None

    def _with_task(self, env: Any) -> Any:
        owner = layer_with(env, "set_task")
        if owner is None:
            layers = [type(layer).__name__ for layer in env_layers(env)]
            raise TypeError(
                f"SetTaskUpdate needs an environment with set_task(task), got {' around '.join(layers)}; "
                "add the method, or use NewEnvUpdate(constructor)"
            )
        owner.set_task(self.task)
        return env

    def _wrapped(self, env: Any) -> Any:
        if self._wrapper is None:
            return env
        wrapped = self._wrapper(env, self.task)
        if wrapped is not env:
            with contextlib.suppress(AttributeError):
                setattr(wrapped, _WRAPS, env)
        return wrapped

    def _same_constructor(self, other: SetTaskUpdate) -> bool:
        if self._made_by is None or other._made_by is None:
            return self._env_type is other._env_type
        return self._made_by == other._made_by or self._env_type is other._env_type

    def __eq__(self, other: object) -> bool:
        if type(other) is not SetTaskUpdate:
            return NotImplemented
        return self._same_constructor(other) and task_key(self.task) == task_key(other.task)

    def __hash__(self) -> int:
        return hash((SetTaskUpdate, task_key(self.task)))

    def __repr__(self) -> str:
        return f"SetTaskUpdate({_name_of(self._env_type)}, {self.task!r})"


def _without_update_wrapper(env: Any) -> Any:
    while (inner := getattr(env, "__dict__", {}).get(_WRAPS)) is not None:
        env = inner
    return env


def layer_with(env: Any, method: str) -> Any:
    """The outermost layer that itself has ``method``; Gymnasium's wrappers do not forward it."""
    return next((layer for layer in env_layers(env) if callable(getattr(layer, method, None))), None)


def _checked_callable(name: str, value: Any) -> Any:
    if not callable(value):
        raise TypeError(f"{name} must be a class or function, got {value!r} of type {type(value).__name__}")
    return value


def _name_of(constructor: Any) -> str:
    if isinstance(constructor, functools.partial):
        return repr(constructor)
    return getattr(constructor, "__qualname__", None) or repr(constructor)
