"""Samplers of a given number of tasks: constructors, or environments that exist."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from metaroll.checks import check_list, check_whole
from metaroll.seeding import as_generator
from metaroll.tasks.env_copies import copy_env
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.tasks.updates import EnvConstructor, ExistingEnvUpdate, NewEnvUpdate, env_layers
from metaroll.types import EnvUpdate

__all__ = ["ConstructEnvsSampler", "EnvPoolSampler", "named_constructors", "sample_indices"]

_SEED_LIMIT = 2**31


def sample_indices(
    count: int, size: int, with_replacement: bool, generator: np.random.Generator | int | None = None
) -> np.ndarray:
    """``(count,)`` indices below ``size``: independent ones, or whole permutations one after the other, cut to length.

    Without replacement every index comes up ``count // size`` times or once more, and none again before all others
    have.

    Args:
        count: How many.
        size: How many there are to choose from.
        with_replacement: Whether draws are independent of one another.
        generator: Source of randomness; ``None`` means fresh entropy.
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}: there is nothing to draw from")
    draw = as_generator(generator)
    if with_replacement:
        return draw.integers(size, size=count)
    blocks = [draw.permutation(size) for _ in range(-(-count // size))]
    return np.concatenate([np.zeros(0, dtype=np.int64), *blocks])[:count]


class ConstructEnvsSampler(TaskSampler):
    """Tasks that are separate environments, each made by a constructor.

    The sampler itself builds no environment.

    Args:
        env_constructors: Classes or functions that make an environment, called without arguments.
        generator: Source of randomness; ``None`` means fresh entropy.
    """

    def __init__(
        self, env_constructors: Sequence[EnvConstructor], *, generator: np.random.Generator | int | None = None
    ) -> None:
        self._env_constructors = check_list("env_constructors", env_constructors, "constructors")
        if not self._env_constructors:
            raise ValueError("env_constructors must not be empty: there is nothing to draw from")
        for position, constructor in enumerate(self._env_constructors):
            if not callable(constructor):
                raise TypeError(
                    f"env_constructors[{position}] must be a class or function that makes an environment, got "
                    f"{constructor!r} of type {type(constructor).__name__}"
                )
        self._generator = as_generator(generator)

    @property
    def n_tasks(self) -> int:
        """The number of constructors."""
        return len(self._env_constructors)

    @property
    def updates(self) -> list[EnvUpdate]:
        return [NewEnvUpdate(constructor) for constructor in self._env_constructors]

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """Updates that close the old environment and build one of the constructors'.

        Args:
            n_tasks: How many.
            with_replacement: Whether a constructor may come up again before all others have.
        """
        count, updates = check_whole("n_tasks", n_tasks, 0), self.updates
        return [updates[i] for i in sample_indices(count, len(updates), with_replacement, self._generator)]


class EnvPoolSampler(TaskSampler):
    """Tasks that are environments which exist.

    The updates return the very environments, so one environment is in use in one place at a time.

    Args:
        envs: The environments, possibly none; the list is copied, the environments are not.
        generator: Source of randomness; ``None`` means fresh entropy.
    """

    def __init__(self, envs: Sequence[Any], *, generator: np.random.Generator | int | None = None) -> None:
        self._envs = check_list("envs", envs, "environments")
        for position, env in enumerate(self._envs):
            if isinstance(env, type) or not (hasattr(env, "reset") and hasattr(env, "step")):
                raise TypeError(
                    f"envs[{position}] must be an environment, got {env!r} of type {type(env).__name__}; "
                    "give constructors to ConstructEnvsSampler"
                )
        self._generator = as_generator(generator)

    @property
    def n_tasks(self) -> int:
        """The size of the pool."""
        return len(self._envs)

    @property
    def updates(self) -> list[EnvUpdate]:
        return [ExistingEnvUpdate(env) for env in self._envs]

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """Updates that return environments of the pool, each at most once, in random order.

        Args:
            n_tasks: How many, at most ``self.n_tasks``.
            with_replacement: Must be false, since one environment cannot be in two places.
        """
        if with_replacement:
            raise ValueError(
                "with_replacement must be False: an environment of the pool cannot be used twice at a time; "
                "grow_pool(new_size) makes copies"
            )
        count = check_whole("n_tasks", n_tasks, 0)
        if count > len(self._envs):
            hint = f"call grow_pool({count}) first" if self._envs else "make a sampler of a list that is not empty"
            raise ValueError(f"n_tasks must be at most {len(self._envs)}, the size of the pool, got {count}; {hint}")
        chosen = self._generator.permutation(len(self._envs))[:count]
        return [ExistingEnvUpdate(self._envs[i]) for i in chosen]

    def grow_pool(self, new_size: int) -> None:
        """Add copies of random environments of the pool until there are ``new_size``.

        A pool of that size, or a larger one, stays unchanged. No environment is copied again before all others have
        been. Each copy is given its own generators, seeded from the sampler's, or it would repeat its original.
        """
        missing = check_whole("new_size", new_size, 0) - len(self._envs)
        if missing <= 0:
            return
        if not self._envs:
            raise ValueError(f"new_size must be 0, got {new_size}: the pool is empty, so there is nothing to copy")
        copies = []
        for i in sample_indices(missing, len(self._envs), False, self._generator):
            env = self._envs[i]
            try:
                copied = copy_env(env)
            except (TypeError, ValueError) as error:
                raise type(error)(
                    f"the pool stays at {len(self._envs)}: {error}; or make more of them, and a new EnvPoolSampler"
                ) from error
            _reseed(copied, self._generator)
            copies.append(copied)
        self._envs.extend(copies)


def _reseed(env: Any, generator: np.random.Generator) -> None:
    """New generators for every layer that has one, and for its spaces."""
    for layer in env_layers(env):
        own = vars(layer) if hasattr(layer, "__dict__") else {}
        for name, value in own.items():
            if isinstance(value, np.random.Generator):
                setattr(layer, name, np.random.default_rng(int(generator.integers(_SEED_LIMIT))))
            elif isinstance(value, np.random.RandomState | gymnasium.Space):
                value.seed(int(generator.integers(_SEED_LIMIT)))


def named_constructors(constructors: Any) -> dict[str, EnvConstructor]:
    """Name -> constructor, from such a dict, or from a list of constructors whose own names differ.

    Raises:
        TypeError: Something is not a constructor.
        ValueError: There is none, or two have one name.
    """
    if isinstance(constructors, Mapping):
        pairs = list(constructors.items())
    else:
        pairs = [
            (_name_of(constructor), constructor)
            for constructor in check_list("constructors", constructors, "constructors")
        ]
    if not pairs:
        raise ValueError("constructors must hold at least one, got none")
    named: dict[str, EnvConstructor] = {}
    for name, constructor in pairs:
        if not callable(constructor):
            raise TypeError(f"constructors must be functions or classes that make an environment, got {constructor!r}")
        if name in named or name.endswith("<lambda>"):
            raise ValueError(
                f"constructors must have their own names, which decide on which side of the split they are, got "
                f"{name!r}{' twice' if name in named else ''}; give a dict {{'light': make_light, 'heavy': make_heavy}}"
            )
        named[str(name)] = constructor
    return named


def _name_of(constructor: Any) -> str:
    if isinstance(constructor, functools.partial):
        arguments = [repr(value) for value in constructor.args]
        arguments += [f"{key}={value!r}" for key, value in sorted(constructor.keywords.items())]
        return f"{_name_of(constructor.func)}({', '.join(arguments)})"
    return str(getattr(constructor, "__qualname__", repr(constructor)))
