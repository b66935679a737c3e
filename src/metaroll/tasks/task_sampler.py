"""Samplers of tasks: each sample is a list of ``EnvUpdate``."""

from __future__ import annotations

import contextlib
import inspect
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium.utils.seeding import np_random

from metaroll.checks import check_list, check_whole
from metaroll.seeding import as_generator, isolated_rng
from metaroll.tasks.task_key import refuse_nan, task_key
from metaroll.tasks.updates import EnvConstructor, EnvWrapper, SetTaskUpdate, env_layers, layer_with
from metaroll.types import EnvUpdate

__all__ = ["Draw", "FixedTaskSampler", "OwnDraws", "SetTaskSampler", "TaskSampler", "distinct_tasks", "draw_tasks"]

Draw = Callable[[int, np.random.Generator], list[EnvUpdate]]
"""``(num, generator) -> num updates``, which depend on the generator alone."""


class TaskSampler(ABC):
    """Source of tasks: draws updates that turn an environment into one of a task.

    ``sample`` is all that a sampler must have. One that has a list of all its tasks gives it as ``updates``; one that
    draws them from other generators than its own overrides ``drawing``. Splits (``SplitTaskSampler``) use both.
    """

    @abstractmethod
    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """A list of ``n_tasks`` updates.

        Args:
            n_tasks: How many.
            with_replacement: Whether a task may be drawn again before all others were.
        """

    @property
    def n_tasks(self) -> int | None:
        """Number of tasks; ``None`` if unknown or infinite."""
        return None

    @property
    def updates(self) -> list[EnvUpdate] | None:
        """An update for each task, where there is a list of them; ``None`` where they are drawn."""
        return None

    def drawing(self) -> contextlib.AbstractContextManager[Draw]:
        """Inside, a function ``(num, generator) -> num updates`` that draws tasks by that generator alone.

        What it takes for that (e.g. an environment that draws them) exists only inside. By default tasks of a list are
        drawn independently; a sampler without a list uses ``sample``, which has only its own generator
        (``OwnDraws``).
        """
        listed = self.updates
        if listed is None:
            return OwnDraws(self)
        return contextlib.nullcontext(
            lambda num, generator: [listed[i] for i in generator.integers(len(listed), size=num)]
        )


@final
class OwnDraws(contextlib.AbstractContextManager[Draw]):
    """The result of ``drawing`` for a sampler that draws by its own generator alone, and ignores others.

    Args:
        sampler: Its ``sample`` draws.
    """

    def __init__(self, sampler: TaskSampler) -> None:
        self._sampler = sampler

    def __enter__(self) -> Draw:
        return lambda num, generator: self._sampler.sample(num, with_replacement=True)

    def __exit__(self, *error: object) -> None: ...


class SetTaskSampler(TaskSampler):
    """Draws tasks with the environment's own ``sample_tasks``, set with its ``set_task``.

    Args:
        env_constructor: Class or callable that makes the environment.
        env: Environment that draws tasks; by default one is built when it is first needed.
        wrapper: Called as ``wrapper(env, task)`` around every environment that an update makes or re-uses.
        generator: Source of randomness, handed to ``sample_tasks`` where that takes a ``generator``; ``None`` means
            fresh entropy.
        tasks: Draws the tasks instead of the environment: ``tasks(num, generator)`` returns ``num`` of them.

    Raises:
        TypeError: What should be a class or function is none.
    """

    def __init__(
        self,
        env_constructor: EnvConstructor,
        *,
        env: Any = None,
        wrapper: EnvWrapper | None = None,
        generator: np.random.Generator | int | None = None,
        tasks: Callable[[int, np.random.Generator], Sequence[Any]] | None = None,
    ) -> None:
        for name, value in (("env_constructor", env_constructor), ("wrapper", wrapper), ("tasks", tasks)):
            if not callable(value) and (value is not None or name == "env_constructor"):
                named = "; get_family(name).env_constructor is that of a name" if isinstance(value, str) else ""
                raise TypeError(
                    f"{name} must be a class or function, got {value!r} of type {type(value).__name__}{named}"
                )
        self._env_constructor = env_constructor
        self._wrapper = wrapper
        self._env = env
        self._tasks = tasks
        self._generator = as_generator(generator)
        self._made_by = None if isinstance(env_constructor, type) else secrets.token_hex(8)

    @property
    def n_tasks(self) -> int | None:
        """The environment's ``num_tasks``, if it has one; ``None`` where ``tasks`` draws them."""
        if self._tasks is not None:
            return None
        counts = (getattr(layer, "num_tasks", None) for layer in env_layers(self._asked_env()))
        return next((count for count in counts if count is not None), None)

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """A list of ``n_tasks`` updates.

        Args:
            n_tasks: How many.
            with_replacement: Has no effect: whether tasks repeat is up to the environment.
        """
        count = check_whole("n_tasks", n_tasks, 0)
        return self._drawn(None if self._tasks is not None else self._asked_env(), count, self._generator)

    @contextlib.contextmanager
    def drawing(self) -> Iterator[Draw]:
        if self._tasks is not None or self._env is not None:
            yield lambda num, generator: self._drawn(self._env, num, generator)
        elif _samples_without_instance(self._env_constructor):
            yield lambda num, generator: self._drawn(self._env_constructor, num, generator)
        else:
            env = self._env_constructor()
            try:
                yield lambda num, generator: self._drawn(env, num, generator)
            finally:
                if hasattr(env, "close"):
                    env.close()

    def _asked_env(self) -> Any:
        if self._env is None:
            self._env = self._env_constructor()
        return self._env

    def _drawn(self, env: Any, num_tasks: int, generator: np.random.Generator) -> list[EnvUpdate]:
        if self._tasks is None or num_tasks == 0:
            tasks = draw_tasks(env, num_tasks, generator)
        else:
            tasks = list(self._tasks(num_tasks, generator))
            if len(tasks) != num_tasks:
                raise ValueError(f"tasks({num_tasks}, generator) must return {num_tasks} tasks, got {len(tasks)}")
        return [SetTaskUpdate(self._env_constructor, task, self._wrapper, made_by=self._made_by) for task in tasks]


class FixedTaskSampler(TaskSampler):
    """Hands out a given list of updates: the first ``n_tasks``, in order, at every call.

    Args:
        updates: The updates, at least one.
        generator: Source of randomness for draws with replacement; ``None`` means fresh entropy.
    """

    def __init__(self, updates: Sequence[EnvUpdate], *, generator: np.random.Generator | int | None = None) -> None:
        self._updates = check_list(
            "updates", updates, "EnvUpdates", EnvUpdate, "; SetTaskUpdate(env_type, task) makes one of a task"
        )
        if not self._updates:
            raise ValueError("updates must hold at least one EnvUpdate, got none")
        self._generator = as_generator(generator)

    @property
    def n_tasks(self) -> int:
        """Length of the list."""
        return len(self._updates)

    @property
    def updates(self) -> list[EnvUpdate]:
        return list(self._updates)

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
        """The first ``n_tasks`` updates, or ``n_tasks`` draws from all of them ``with_replacement``."""
        count = check_whole("n_tasks", n_tasks, 0)
        if with_replacement:
            return [self._updates[i] for i in self._generator.integers(len(self._updates), size=count)]
        if count > len(self._updates):
            raise ValueError(
                f"n_tasks must be at most {len(self._updates)}, the number of given tasks, got {count}; "
                "ask for fewer, or sample with_replacement=True"
            )
        return self._updates[:count]


def distinct_tasks(tasks: Any) -> list[Any]:
    """The different tasks of a list.

    Raises:
        TypeError: ``tasks`` is not a list.
        ValueError: It is empty, or a task holds NaN.
    """
    if isinstance(tasks, str) or not isinstance(tasks, Iterable):
        raise TypeError(
            f"tasks must be a list of tasks, a dict of distributions, or a function (num, generator) -> tasks, "
            f"got {tasks!r}"
        )
    listed = list({task_key(task): task for task in tasks}.values())
    if not listed:
        raise ValueError("tasks must hold at least one task, got none")
    for position, task in enumerate(listed):
        refuse_nan(f"tasks[{position}]", task)
    return listed


def _samples_without_instance(constructor: Any) -> bool:
    """Whether tasks can be drawn from a class itself, without an environment (and its simulator)."""
    method = inspect.getattr_static(constructor, "sample_tasks", None) if isinstance(constructor, type) else None
    return isinstance(method, classmethod | staticmethod)


def draw_tasks(env: Any, num_tasks: int, generator: np.random.Generator) -> list[Any]:
    """Tasks from ``env.sample_tasks`` (of an environment, or of a class where that is a class method).

    ``generator`` is handed on where the method takes one; methods that draw from global generators get them seeded
    from it (and give them back as they were); Gymnasium's ``np_random`` of the environment is seeded from it, too. One
    that draws from another generator of its own cannot be reached.
    """
    if num_tasks == 0:
        return []
    owner = env if isinstance(env, type) else layer_with(env, "sample_tasks")
    sample_tasks = getattr(owner, "sample_tasks", None)
    if sample_tasks is None:
        *_, inner = env_layers(env)
        name = env.__name__ if isinstance(env, type) else type(inner).__name__
        raise TypeError(
            f"env must have sample_tasks(num_tasks), which {name} lacks; add it, or give FixedTaskSampler a list"
        )
    if "generator" in inspect.signature(sample_tasks).parameters:
        tasks = list(sample_tasks(num_tasks, generator=generator))
    else:
        seed = int(generator.integers(2**31))
        if isinstance(owner, gymnasium.Env):
            owner.np_random, _ = np_random(seed)
        with isolated_rng(seed):
            tasks = list(sample_tasks(num_tasks))
    if len(tasks) != num_tasks:
        raise ValueError(f"sample_tasks({num_tasks}) must return {num_tasks} tasks, got {len(tasks)}")
    return tasks
