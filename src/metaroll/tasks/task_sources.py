"""Where the tasks of a family come from: random numbers, the environment itself, a list, or a list of constructors."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from metaroll.tasks.distributions import DomainParam, UniformDomainParam
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.tasks.hashed_split import Side, split_list, task_numbers
from metaroll.tasks.task_sampler import draw_tasks
from metaroll.tasks.updates import EnvConstructor, NewEnvUpdate, SetTaskUpdate, task_key
from metaroll.types import EnvUpdate

__all__ = ["ConstructorTasks", "Draw", "EnvTasks", "ParamTasks", "TaskSource", "as_randomizer"]

Draw = Callable[[int, np.random.Generator], Any]
"""``(num, generator) -> num tasks``, which depend on the generator alone."""

Distributions = Mapping[str, Any] | Sequence[DomainParam] | DomainRandomizer
"""How numbers vary: name -> distribution or ``(low, high)``; a list of distributions; a randomizer."""


class TaskSource(ABC):
    """Draws tasks, and makes the updates that set them."""

    _held_out: frozenset[Any] | None = None
    """Keys of the tasks of a list that are held out; ``None``: a hash decides."""

    @property
    def all_tasks(self) -> list[Any] | None:
        """All tasks, where there is a list of them; ``None`` where they are drawn."""
        return None

    def split_list(self, test_share: float) -> dict[Side, list[Any]]:
        """All tasks of the list by side: as ``hold_out`` said, else by their hash (``hashed_split.split_list``)."""
        tasks = self.all_tasks or []
        if self._held_out is None:
            return split_list(tasks, test_share)
        sides: dict[Side, list[Any]] = {"train": [], "test": []}
        for task in tasks:
            sides["test" if task_key(task) in self._held_out else "train"].append(task)
        return sides

    def hold_out(self, test_tasks: Iterable[Any]) -> None:
        """Hold out these tasks of the list, and no others."""
        listed = self.all_tasks
        if listed is None:
            raise ValueError(
                "test_tasks must be some of a list of tasks, but here tasks are drawn, and a hash of each says on "
                "which side it is; say how many are held out with test_share"
            )
        if isinstance(test_tasks, str) or not isinstance(test_tasks, Iterable):
            raise TypeError(f"test_tasks must be a list of tasks, got {test_tasks!r}")
        known, given = set(map(task_key, listed)), list(test_tasks)
        unknown = next((task for task in given if task_key(task) not in known), None)
        if unknown is not None:
            some = ", ".join(map(repr, listed[:6])) + ", ..." * (len(listed) > 6)
            raise ValueError(f"test_tasks must be some of the tasks, {some}, got {unknown!r}")
        self._held_out = frozenset(map(task_key, given))

    @abstractmethod
    def drawing(self) -> contextlib.AbstractContextManager[Draw]:
        """Inside, a function that draws tasks."""

    @abstractmethod
    def update(self, task: Any) -> EnvUpdate:
        """What makes an environment one of ``task``."""


class ParamTasks(TaskSource):
    """Tasks are sets of domain parameters.

    Args:
        make_env: Makes the environment; picklable, for workers.
        randomizer: How the parameters vary, or a function that says so when it is first needed.
    """

    def __init__(self, make_env: EnvConstructor, randomizer: DomainRandomizer | Callable[[], DomainRandomizer]) -> None:
        self._make_env = make_env
        self._given = randomizer

    @functools.cached_property
    def randomizer(self) -> DomainRandomizer:
        """How the parameters vary."""
        return self._given if isinstance(self._given, DomainRandomizer) else self._given()

    @contextlib.contextmanager
    def drawing(self) -> Iterator[Draw]:
        yield self.randomizer.draw

    def update(self, task: Any) -> EnvUpdate:
        return DomainParamUpdate(task, env_constructor=self._make_env)


class EnvTasks(TaskSource):
    """Tasks are set with the environment's ``set_task``.

    Args:
        make_env: Makes the environment; picklable, for workers.
        tasks: A list of tasks, distributions (a task is then a dict of numbers), or a function ``(num, generator) ->
            tasks``; ``None`` asks the environment's ``sample_tasks``.
    """

    def __init__(self, make_env: EnvConstructor, tasks: Any = None) -> None:
        self._make_env = make_env
        self._made_by = None if isinstance(make_env, type) else secrets.token_hex(8)
        self._list: list[Any] | None = None
        self._draw: Draw | None = None
        self._is_random = isinstance(tasks, Mapping | DomainRandomizer) or _are_distributions(tasks)
        if self._is_random:
            self._draw = as_randomizer(tasks, "tasks").draw
        elif callable(tasks):
            self._draw = tasks
        elif tasks is not None:
            self._list = _distinct(tasks)

    @property
    def all_tasks(self) -> list[Any] | None:
        return None if self._list is None else list(self._list)

    @contextlib.contextmanager
    def drawing(self) -> Iterator[Draw]:
        if self._list is not None:
            yield functools.partial(_draw_from, self._list)
        elif self._draw is not None:
            yield self._checked_draw
        elif _samples_without_instance(self._make_env):
            yield functools.partial(draw_tasks, self._make_env)
        else:
            env = self._make_env()
            try:
                yield functools.partial(draw_tasks, env)
            finally:
                if hasattr(env, "close"):
                    env.close()

    def example(self) -> Any:
        """One task, where it takes neither an environment nor a function of the user's; else ``None``."""
        if self._list is not None:
            return self._list[0]
        return self._draw(1, np.random.default_rng(0))[0] if self._is_random and self._draw is not None else None

    def update(self, task: Any) -> EnvUpdate:
        return SetTaskUpdate(self._make_env, task, made_by=self._made_by)

    def _checked_draw(self, num_tasks: int, generator: np.random.Generator) -> list[Any]:
        drawn = list(self._draw(num_tasks, generator)) if self._draw is not None else []
        if len(drawn) != num_tasks:
            raise ValueError(f"tasks({num_tasks}, generator) must return {num_tasks} tasks, got {len(drawn)}")
        return drawn


class ConstructorTasks(TaskSource):
    """Each task is an environment of its own, made by a constructor; its name is the task.

    Args:
        constructors: Name -> constructor, or a list of constructors whose own names differ.
    """

    def __init__(self, constructors: Mapping[str, EnvConstructor] | Sequence[EnvConstructor]) -> None:
        self._constructors = _named(constructors)

    @property
    def all_tasks(self) -> list[str]:
        return list(self._constructors)

    @contextlib.contextmanager
    def drawing(self) -> Iterator[Draw]:
        yield functools.partial(_draw_from, self.all_tasks)

    def update(self, task: Any) -> NewEnvUpdate:
        return NewEnvUpdate(self._constructors[task], task=task)


def as_randomizer(params: Distributions, what: str = "params") -> DomainRandomizer:
    """A randomizer from distributions in any form; ``what`` is what errors call them."""
    if isinstance(params, DomainRandomizer):
        return params
    if isinstance(params, Mapping):
        params = [_distribution(what, name, value) for name, value in params.items()]
    elif not _are_distributions(params):
        raise TypeError(
            f"{what} must be a dict such as {{'mass': (0.5, 2.0), 'length': NormalDomainParam('length', 1.0, 0.1)}}, "
            f"or a DomainRandomizer, got {params!r}"
        )
    if not params:
        raise ValueError(f"{what} must name at least one number that varies, got none")
    return DomainRandomizer(*params, generator=0)  # only its draw(num, generator) is used


def _draw_from(tasks: Sequence[Any], num_tasks: int, generator: np.random.Generator) -> list[Any]:
    return [tasks[i] for i in generator.integers(len(tasks), size=num_tasks)]


def _samples_without_instance(constructor: Any) -> bool:
    """Whether tasks can be drawn from a class itself, without an environment (and its simulator)."""
    method = inspect.getattr_static(constructor, "sample_tasks", None) if isinstance(constructor, type) else None
    return isinstance(method, classmethod | staticmethod)


def _distribution(what: str, name: str, value: Any) -> DomainParam:
    if isinstance(value, DomainParam):
        if name not in value.names:
            raise ValueError(f"{what}[{name!r}] must be a distribution of {name!r}, got one of {value.names}")
        return value
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(
            f"{what}[{name!r}] must be (low, high), or a distribution such as NormalDomainParam({name!r}, 1.0, 0.1), "
            f"got {value!r}"
        )
    low, high = value
    try:
        middle, halfspan = 0.5 * (float(low) + float(high)), 0.5 * (float(high) - float(low))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what}[{name!r}] must be two numbers (low, high), got {value!r}") from error
    if halfspan <= 0:
        raise ValueError(f"{what}[{name!r}] must be (low, high) with low below high, got {value!r}")
    return UniformDomainParam(name, middle, halfspan, clip_lo=low, clip_up=high)


def _are_distributions(params: Any) -> bool:
    return isinstance(params, list | tuple) and bool(params) and all(isinstance(p, DomainParam) for p in params)


def _distinct(tasks: Any) -> list[Any]:
    if isinstance(tasks, str) or not hasattr(tasks, "__iter__"):
        raise TypeError(
            f"tasks must be a list of tasks, a dict of distributions, or a function (num, generator) -> tasks, "
            f"got {tasks!r}"
        )
    listed = list({task_key(task): task for task in tasks}.values())
    if not listed:
        raise ValueError("tasks must hold at least one task, got none")
    for position, task in enumerate(listed):
        wrong = next((name for name, value in task_numbers(task).items() if math.isnan(value)), None)
        if wrong is not None:
            where = "" if wrong == "task" else f" ({wrong} is NaN)"
            raise ValueError(f"tasks[{position}] must be without NaN, which equals nothing, got {task!r}{where}")
    return listed


def _named(constructors: Any) -> dict[str, EnvConstructor]:
    pairs = list(constructors.items()) if isinstance(constructors, Mapping) else None
    if pairs is None:
        if isinstance(constructors, str) or not hasattr(constructors, "__iter__"):
            raise TypeError(f"constructors must be a list of functions or classes, got {constructors!r}")
        pairs = [(_name_of(constructor), constructor) for constructor in constructors]
    if not pairs:
        raise ValueError("constructors must hold at least one, got none")
    named: dict[str, EnvConstructor] = {}
    for name, constructor in pairs:
        if not callable(constructor):
            raise TypeError(f"constructors must be functions or classes that make an environment, got {constructor!r}")
        if name in named or name.endswith("<lambda>"):
            raise ValueError(
                f"constructors must have names of their own, which say on which side of the split they are, got "
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
