"""A family of tasks: an environment, where its tasks come from, and which of them are held out."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec as Registration

from metaroll.checks import check_seed, check_whole, short_name
from metaroll.envs.base.constructors import (
    Constructor,
    CopiedEnv,
    NamedEnv,
    ResetTaskMaker,
    check_no_arguments,
    close_env,
    register_env,
)
from metaroll.errors import DataError
from metaroll.seeding import derive_seed
from metaroll.tasks.domain_access import check_param_names, check_param_ranges
from metaroll.tasks.domain_randomizer import DomainRandomizer, RandomDomains, are_distributions, as_randomizer
from metaroll.tasks.finite_samplers import named_constructors
from metaroll.tasks.split_sampler import (
    SplitTaskSampler,
    check_test_share,
    check_test_tasks,
    draw_distinct,
    draw_more,
    draw_split,
    split_list,
    task_side,
)
from metaroll.tasks.task_sampler import FixedTaskSampler, SetTaskSampler, TaskSampler, distinct_tasks
from metaroll.tasks.updates import EnvConstructor, NewEnvUpdate, SetTaskUpdate, env_layers, layer_with
from metaroll.types import EnvSpec, EnvUpdate

__all__ = ["TaskFamily", "register_family", "registered_families"]

USUAL_TRAIN_TASKS, USUAL_TEST_TASKS, _TEST_SHARE = 80, 20, 0.2


@dataclass(frozen=True)
class TaskFamily:
    """A distribution of tasks on one environment, split into training tasks and held-out tasks.

    ``from_params``, ``from_env`` and ``from_constructors`` make one of an environment of yours.

    Attributes:
        name: Its name at the command line.
        env_constructor: Makes the environment, without a task.
        num_train_tasks: Default number of training tasks.
        num_test_tasks: Default number of held-out tasks.
        horizon: Steps of an episode; ``None`` if it is unlimited.
        description: One line.
        source: Sampler of all tasks, or a function that makes it when it is first needed; ``None``: the environment has
            ``sample_tasks`` and ``set_task``.
        test_share: Share of all tasks that is held out. Then a hash of its values decides on which side a task is,
            for good. ``None`` splits as publications do: the first and the last tasks of one list.
        same_tasks: Held-out tasks are the training tasks, as published where there are so few (only with
            ``test_share=None``).
        test_tasks: Which tasks of a list are held out, instead of those of the hash.
        lists: ``seed -> (training tasks, held-out tasks)`` of a benchmark that defines what is held out (only with
            ``test_share=None``); ``split`` takes from the start of both.
        all_tasks: Whether the held-out tasks are all there are, and no sample of many: then results
            hold for these tasks alone, and chance is that of repetitions.
        observed_reward: Name of the info that an agent sees as reward while it adapts; ``None`` means the reward
            itself, by which policies are trained.
        scored_reward: Name of the info whose sum is the return of an evaluation; ``None`` means the reward itself.
        drawn_as: Source of the tasks, beside the seed; ``None``: the name. For names that hold a path, which can
            be written in many ways.
    """

    name: str
    env_constructor: Callable[[], Any]
    num_train_tasks: int
    num_test_tasks: int
    horizon: int | None
    description: str = ""
    source: TaskSampler | Callable[[], TaskSampler] | None = None
    test_share: float | None = None
    same_tasks: bool = False
    test_tasks: tuple[Any, ...] | None = None
    lists: Callable[[int], tuple[Sequence[EnvUpdate], Sequence[EnvUpdate]]] | None = None
    drawn_as: str | None = None
    all_tasks: bool = False
    observed_reward: str | None = None
    scored_reward: str | None = None

    def __post_init__(self) -> None:
        if self.horizon is not None:
            check_whole("horizon", self.horizon)

    @classmethod
    def from_params(
        cls,
        make_env: EnvConstructor | str,
        params: Any,
        *,
        name: str | None = None,
        num_train_tasks: int = USUAL_TRAIN_TASKS,
        num_test_tasks: int = USUAL_TEST_TASKS,
        horizon: int | None = None,
        test_share: float = _TEST_SHARE,
        description: str = "",
    ) -> TaskFamily:
        """Tasks that differ in constants of the environment (see ``DomainParamUpdate`` for how they are set).

        Args:
            make_env: Class or function that makes the environment, or an id.
            params: ``{"mass": (0.5, 2.0), "length": NormalDomainParam("length", 1.0, 0.1)}`` (a pair means uniform), a
                list of distributions, or a ``DomainRandomizer``.
            name: Its name in logs; its tasks are drawn from the seed and this name.
            num_train_tasks: Default number of training tasks.
            num_test_tasks: Default number of held-out tasks.
            horizon: Steps of an episode; ``None`` means the environment's time limit.
            test_share: Share of all tasks that is held out.
            description: One line.
        """
        maker = _maker(make_env)
        source = DomainRandomizer(*as_randomizer(params).domain_params, generator=0, env_constructor=maker)
        env = maker()
        try:
            _check_params(maker, env, source.names)
            _try_params(maker, env, source)
            limit = EnvSpec.from_env(env).max_episode_length
        finally:
            close_env(env)
        return cls(
            _name_of(maker) if name is None else name,
            maker,
            num_train_tasks,
            num_test_tasks,
            limit if horizon is None else horizon,
            description,
            source,
            check_test_share(test_share),
        )

    @classmethod
    def from_env(
        cls,
        make_env: EnvConstructor | str,
        tasks: Any = None,
        *,
        option: str | None = None,
        name: str | None = None,
        num_train_tasks: int | None = None,
        num_test_tasks: int | None = None,
        horizon: int | None = None,
        test_share: float = _TEST_SHARE,
        test_tasks: Sequence[Any] | None = None,
        description: str = "",
    ) -> TaskFamily:
        """Tasks that are handed to the environment: by ``set_task(task)``, or by ``reset(options={"task": task})``.

        Args:
            make_env: Class or function that makes the environment, or an id.
            tasks: A list of tasks; distributions as for ``from_params``, of which a task is a dict of numbers; or a
                function ``(num, generator) -> tasks``. ``None`` asks the environment's ``sample_tasks(num)``.
            option: Option of ``reset`` that holds the task. ``None`` means ``set_task`` where the environment has that,
                else the option ``"task"``.
            name: Its name in logs; its tasks are drawn from the seed and this name.
            num_train_tasks: Default number of training tasks; ``None`` means 80, or all that a list has for training.
            num_test_tasks: The same of held-out tasks; ``None`` means 20, or all.
            horizon: Steps of an episode; ``None`` means the environment's time limit.
            test_share: Share of all tasks that is held out. In a list, one task is on either side at least: that whose
                hash is nearest to the border.
            test_tasks: Which tasks of a list are held out, instead of those of the hash; ``[]`` means none.
            description: One line.
        """
        maker = _maker(make_env)
        env = maker()
        try:
            if tasks is None and layer_with(env, "sample_tasks") is None:
                raise TypeError(
                    f"{_name_of(maker)} has no sample_tasks(num_tasks): add it, or give its tasks with "
                    "TaskFamily.from_env(make_env, tasks=...); tasks that are constants of the environment: "
                    "TaskFamily.from_params(make_env, {'mass': (0.5, 2.0)})"
                )
            set_by_reset = option is not None or layer_with(env, "set_task") is None
            limit = EnvSpec.from_env(env).max_episode_length
            source = _sampler(maker, tasks)
            if not set_by_reset:
                _try_task(maker, env, source, tasks)
        finally:
            close_env(env)
        name = _name_of(maker) if name is None else name
        if set_by_reset:
            maker = ResetTaskMaker(maker, "task" if option is None else option)
            source = _sampler(maker, tasks)
        share = check_test_share(test_share)
        held_out, train, test = _sides(source, share, test_tasks, num_train_tasks, num_test_tasks)
        limit = limit if horizon is None else horizon
        return cls(name, maker, train, test, limit, description, source, share, test_tasks=held_out)

    @classmethod
    def from_constructors(
        cls,
        constructors: Mapping[str, EnvConstructor] | Sequence[EnvConstructor],
        *,
        name: str = "constructors",
        num_train_tasks: int | None = None,
        num_test_tasks: int | None = None,
        horizon: int | None = None,
        test_share: float = _TEST_SHARE,
        test_tasks: Sequence[str] | None = None,
        description: str = "",
    ) -> TaskFamily:
        """A family whose tasks are separate environments.

        Args:
            constructors: Classes or functions that make the environments, or a dict that gives them names. The name is
                the task, and decides on which side of the split it is.
            name: Name of the family in logs.
            num_train_tasks: Default number of training tasks; ``None`` means all that are not held out.
            num_test_tasks: Default number of held-out tasks; ``None`` means all of them.
            horizon: Steps of an episode; ``None`` means the time limit of the first environment.
            test_share: Share of all tasks that is held out; one is on either side at least: that whose hash is nearest
                to the border.
            test_tasks: Names of those that are held out, instead of those of the hash; ``[]`` means none.
            description: One line.
        """
        named, share = named_constructors(constructors), check_test_share(test_share)
        for task, constructor in named.items():
            check_no_arguments(constructor, task)
        updates = [NewEnvUpdate(constructor, task=task) for task, constructor in named.items()]
        source, first = FixedTaskSampler(updates), updates[0]
        if horizon is None:
            env = first()
            horizon = EnvSpec.from_env(env).max_episode_length
            close_env(env)
        held_out, train, test = _sides(source, share, test_tasks, num_train_tasks, num_test_tasks)
        return cls(name, first, train, test, horizon, description, source, share, test_tasks=held_out)

    @property
    def tasks(self) -> TaskSampler:
        """Sampler of all tasks, of both sides of the split."""
        if self.lists is not None:
            train, test = self.lists(0)
            return FixedTaskSampler([*train] if self.same_tasks else [*train, *test])
        if isinstance(self.source, TaskSampler):
            return self.source
        return SetTaskSampler(self.env_constructor) if self.source is None else self.source()

    def split(
        self,
        num_train: int | None = None,
        num_test: int | None = None,
        seed: int = 0,
        *,
        test_after_train: bool = False,
    ) -> tuple[list[EnvUpdate], list[EnvUpdate]]:
        """Training and held-out tasks, all different from one another (but see ``same_tasks``).

        Where a hash decides what is held out, other numbers leave the tasks that were there before as they were, and no
        seed makes a training task a held-out one. Elsewhere more tasks are drawn after those that were there, too, and
        held-out tasks are the same for all numbers of training tasks (with as many held-out ones).

        Args:
            num_train: Number of training tasks; ``None`` means the family's own.
            num_test: Number of held-out tasks; ``None`` means the family's own.
            seed: The same seed and numbers give the same tasks, everywhere.
            test_after_train: Where no hash decides what is held out, draw that after as many training tasks as there
                are, and draw tasks from the family's name even where there is ``drawn_as``: as runs of before
                2026-11-28 have it.
        """
        seed = check_seed("seed", seed)
        num_train = check_whole("num_train", self.num_train_tasks if num_train is None else num_train, 0)
        num_test = check_whole("num_test", self.num_test_tasks if num_test is None else num_test, 0)
        if self.lists is not None:
            train, test = self.lists(seed)
            if len(train) < num_train or len(test) < num_test:
                raise ValueError(
                    f"{self.name} has {len(train)} training and {len(test)} held-out tasks, too few for "
                    f"num_train={num_train} and num_test={num_test}; ask for fewer"
                )
            return list(train[:num_train]), list(test[:num_test])
        stream = self.name if test_after_train else self._stream
        generator = np.random.default_rng(derive_seed("tasks", stream, seed))
        if self.test_share is not None:
            sizes = num_train, num_test
            return draw_split(self.tasks, *sizes, self.test_share, generator, self.name, self.test_tasks)
        if self.same_tasks:
            most = max(num_train, num_test, self.num_train_tasks)
            updates = draw_distinct(self.tasks, most, generator, self.name)
            # If fewer tasks are trained in than exist, the others come first in the test.
            return updates[:num_train], [*updates[num_train:], *updates[:num_train]][:num_test]
        # The usual numbers first, for any request: held-out tasks are the same for all numbers of training tasks.
        usual = self.num_train_tasks, self.num_test_tasks
        if test_after_train:
            usual = num_train, self.num_test_tasks if num_test else 0
        known = draw_distinct(self.tasks, sum(usual), generator, self.name)
        train, test = known[: usual[0]], known[usual[0] :]
        for side, more, count in ((test, "held-out", num_test), (train, "training", num_train)):
            if count > len(side):
                generator = np.random.default_rng(derive_seed(f"more {more} tasks", stream, seed))
                try:
                    side += draw_more(self.tasks, count - len(side), [*train, *test], generator, self.name)
                except ValueError:  # there are few: training tasks that are not requested are held out, too
                    if side is train or num_train >= len(train):
                        raise
                    known = [*train[:num_train], *test]
                    side += draw_more(self.tasks, count - len(side), known, generator, self.name)
        return train[:num_train], test[:num_test]

    def samplers(self, seed: int = 0) -> tuple[TaskSampler, TaskSampler]:
        """Samplers of training tasks and of held-out tasks, which never meet.

        They draw new tasks without end, or from a list in random order; where the family splits as a publication does,
        they hand out the lists of ``split``.

        Args:
            seed: The same seed gives the same tasks in the same order.
        """
        seed = check_seed("seed", seed)
        if self.test_share is None:
            train, test = self.split(seed=seed)
            return FixedTaskSampler(train, generator=seed), FixedTaskSampler(test, generator=seed)
        source, share, held_out = self.tasks, self.test_share, self.test_tasks
        train, test = (
            SplitTaskSampler(
                source,
                side,
                share,
                test_tasks=held_out,
                generator=derive_seed("sampler", side, self._stream, seed),
            )
            for side in ("train", "test")
        )
        return train, test

    @property
    def _stream(self) -> str:
        return self.name if self.drawn_as is None else self.drawn_as


_FAMILIES: dict[str, TaskFamily] = {}


def register_family(family: TaskFamily) -> None:
    """Register the family, and its environment, under ``family.name``."""
    _FAMILIES[family.name] = family
    register_env(family.name, family.env_constructor)


def registered_families() -> dict[str, TaskFamily]:
    """Name -> family, in the order in which they were registered."""
    return dict(_FAMILIES)


def _maker(make_env: Any) -> Constructor:
    """A picklable constructor: for an id it includes the script's registration, which workers do not know."""
    if isinstance(make_env, str):
        named = NamedEnv(make_env)
        return named.constructor() or named
    if not callable(make_env):
        raise TypeError(
            f"make_env must be a class or function that makes the environment, or an id such as 'Pendulum-v1', got "
            f"{make_env!r} of type {type(make_env).__name__}"
        )
    check_no_arguments(make_env, _name_of(make_env))
    return make_env


def _check_params(maker: Any, env: Any, names: Sequence[str]) -> None:
    """Refuse names that cannot be set; entries of a task are for ``from_env``."""
    try:
        check_param_names(env, names)
    except DataError as error:
        teller = layer_with(env, "get_task")
        task = {} if teller is None else teller.get_task()
        in_task = [name for name in names if isinstance(task, Mapping) and name in task]
        if not in_task:
            raise
        raise DataError(
            f"{in_task[0]!r} is not a constant of {_name_of(maker)}, but an entry of its task: "
            f"TaskFamily.from_env(make_env, {{{in_task[0]!r}: ...}})"
        ) from error


def _sampler(maker: Any, tasks: Any) -> TaskSampler:
    """A sampler of tasks that are set with ``set_task``: of a list, of distributions, of a function or of the env."""
    if isinstance(tasks, Mapping | RandomDomains) or are_distributions(tasks):
        return SetTaskSampler(maker, tasks=as_randomizer(tasks, "tasks").draw)
    if tasks is None:
        return SetTaskSampler(maker)
    if callable(tasks):
        draw: Any = tasks
        return SetTaskSampler(maker, tasks=draw)
    mark = None if isinstance(maker, type) else secrets.token_hex(8)
    return FixedTaskSampler([SetTaskUpdate(maker, task, made_by=mark) for task in distinct_tasks(tasks)])


def _try_params(maker: Any, env: Any, source: RandomDomains) -> None:
    """Set one draw, and both ends of ranges: values that cannot be need not wait until they are drawn."""
    try:
        check_param_ranges(env, source.ranges)
        with source.drawing() as draw:
            draw(1, np.random.default_rng(0))[0](env)
    except Exception as error:
        raise ValueError(f"params of {_name_of(maker)} cannot be set: {type(error).__name__}: {error}") from error


def _try_task(maker: Any, env: Any, source: TaskSampler, tasks: Any) -> None:
    """Set one task, if tasks are listed, so that errors in all of them appear early."""
    if source.updates is None and (tasks is None or callable(tasks)):
        return
    with source.drawing() as draw:
        task = draw(1, np.random.default_rng(0))[0].task if source.updates is None else source.updates[0].task
    try:
        layer_with(env, "set_task").set_task(task)
    except Exception as error:
        is_path = isinstance(task, Mapping) and any(":" in str(name) for name in task)
        hint = "; constants of the simulator vary by TaskFamily.from_params(make_env, {...})" if is_path else ""
        raise ValueError(f"tasks of {_name_of(maker)} cannot be set: {type(error).__name__}: {error}{hint}") from error


def _name_of(maker: Any) -> str:
    if isinstance(maker, NamedEnv):
        return maker.name
    if isinstance(maker, CopiedEnv):
        return type(list(env_layers(maker.env))[-1]).__name__
    if isinstance(maker, functools.partial):
        made = maker.args[0] if maker.args else None  # by gymnasium.make
        return made.id if isinstance(made, Registration) else _name_of(maker.func)
    return short_name(maker)


def _sides(
    source: TaskSampler, share: float, test_tasks: Sequence[Any] | None, num_train: int | None, num_test: int | None
) -> tuple[tuple[Any, ...] | None, int, int]:
    """The held-out tasks as given (``None``: by the hash), and the number of tasks on each side.

    Numbers are as given, else all that a list has on that side, else the usual ones. Where no held-out task is wanted,
    none is made one that the hash does not hold out.
    """
    held_out = None if test_tasks is None else tuple(check_test_tasks(source, test_tasks))
    usual = USUAL_TRAIN_TASKS, USUAL_TEST_TASKS
    if source.updates is not None:
        listed = [update.task for update in source.updates]
        all_train = len(listed) == 1 or all(task_side(task, share) == "train" for task in listed)
        if held_out is None and num_test == 0 and all_train:
            held_out = ()
        if held_out is None and len(listed) == 1 and (num_train is None or num_test is None):
            raise ValueError(
                f"there must be at least two tasks, one to train in and one to hold out, got {listed[0]!r} alone; list "
                "more tasks, or hold none out: test_tasks=[]"
            )
        sides = split_list(source.updates, share, held_out)
        usual = len(sides["train"]), len(sides["test"])
    return held_out, usual[0] if num_train is None else num_train, usual[1] if num_test is None else num_test
