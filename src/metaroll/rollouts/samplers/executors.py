"""ProMP's vectorized executors: the environments of many tasks, stepped together with given actions.

Both are views of one live collection of the engine, in this process or in workers, and so give the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from metaroll.checks import check_whole, described
from metaroll.data.data_format import own_copy
from metaroll.data.space_batches import action_row, flat_actions, take_rows
from metaroll.envs.base.old_gym import OldGymMaker, as_gymnasium
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.mujoco.threads import num_processors
from metaroll.errors import ReplayError, RolloutError, ShapeError
from metaroll.policies.adapters import ScriptedPolicy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.samplers.sampler import LAST_SEED, Closable, SeedOption, chosen_seed
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import derive_seed, fresh_seed
from metaroll.tasks.task_sampler import TaskSampler, draw_tasks
from metaroll.tasks.updates import SetTaskUpdate, env_layers, layer_with
from metaroll.types import EnvSpec, EnvUpdate, RolloutPlan

__all__ = [
    "END_INFOS",
    "MetaEnvExecutor",
    "MetaIterativeEnvExecutor",
    "MetaParallelEnvExecutor",
    "TaskSource",
    "process_options",
]

_MOST_NAMED = 4
END_INFOS = ("final_observation", "terminated", "truncated")
"""Entries that executors add to ``env_infos`` of steps that ended an episode."""


class TaskSource(Closable):
    """A meta-environment as a source of environments, and one of them, which draws tasks.

    Args:
        env: As for ``RolloutEngine``, or an environment of the old Gym API. With tasks it has ``sample_tasks(n)`` and
            ``set_task(task)``, as ProMP's ``MetaEnv``. A given one is copied.
        seed: Seed of the tasks that are drawn.

    Attributes:
        source: Makes environments.
        spec: Their spaces.
    """

    def __init__(self, env: Any, seed: int) -> None:
        self.source = EnvSource.of(as_gymnasium(env))
        made = self.source.make()
        self._example = as_gymnasium(made)
        if self._example is not made:  # a class, or a function, that makes an environment of the old API
            self.source = EnvSource.of(OldGymMaker(self.source))
        self.spec = EnvSpec.from_env(self._example)
        self._seed, self._draws, self._closed = seed, 0, False

    def sample(self, count: int, task_sampler: TaskSampler | None = None) -> list[Any]:
        """``count`` tasks from ``task_sampler``; ``None``: from ``sample_tasks`` of the environment, or from the family
        of its name; others at each call.

        Raises:
            RuntimeError: It is closed.
            TypeError: The environment has no such method, and is no family's.
            ValueError: There are fewer tasks.
        """
        self._check_open()
        try:
            if task_sampler is not None:
                return task_sampler.sample(count)
            generator = np.random.default_rng(derive_seed("meta tasks", self._seed, self._draws))
            self._draws += 1
            if layer_with(self._example, "sample_tasks") is None:
                with self._family_tasks().drawing() as draw:
                    return list(draw(count, generator))
            return draw_tasks(self._example, count, generator)
        except ValueError as error:
            raise ValueError(f"meta_batch_size={count} tasks cannot be drawn: {error}") from error

    def _family_tasks(self) -> TaskSampler:
        if self.source.is_varied:
            return self.source.family.tasks
        *_, inner = env_layers(self._example)
        raise TypeError(
            f"env must have sample_tasks(num_tasks), which {type(inner).__name__} lacks: add it, or name the tasks "
            "there are (MetaSampler(..., task_sampler=FixedTaskSampler([...])), or set_tasks of an executor)"
        )

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("it is closed: no more tasks can be drawn or set")

    def updates(self, tasks: Any, count: int) -> list[EnvUpdate]:
        """The changes to an environment that set ``tasks``, of which there must be ``count``.

        Raises:
            RuntimeError: It is closed.
            TypeError: ``tasks`` is not a list, or the environment has no ``set_task``.
            ValueError: There is another number of them.
        """
        self._check_open()
        if isinstance(tasks, str | Mapping) or not isinstance(tasks, Sequence | np.ndarray):
            raise TypeError(f"tasks must be a list with one task for each of {count}, got {described(tasks)}")
        if len(tasks) != count:
            raise ValueError(f"tasks must hold one task for each of meta_batch_size={count}, got {len(tasks)}")
        return [task if isinstance(task, EnvUpdate) else self._update(task) for task in tasks]

    def _update(self, task: Any) -> EnvUpdate:
        owner = layer_with(self._example, "set_task")
        if owner is None:
            raise TypeError(f"env must have set_task(task), which {type(self._example).__name__} lacks")
        return SetTaskUpdate(type(owner), own_copy(task))

    def close(self) -> None:
        """Close the environment that draws tasks."""
        if not self._closed:
            self._closed = True
            self.source.close(self._example)


class MetaEnvExecutor(Closable, ABC):
    """The base of both executors; see there.

    Episode ``k`` of environment ``i``, counted over the lifetime of the executor, has the seed ``(seed, i, k)``.
    """

    def __init__(
        self,
        env: Any,
        meta_batch_size: int,
        envs_per_task: int,
        max_path_length: int,
        *,
        seed: SeedOption,
        **workers: Any,
    ) -> None:
        self.meta_batch_size = check_whole("meta_batch_size", meta_batch_size)
        self.envs_per_task = check_whole("envs_per_task", envs_per_task)
        self.max_path_length = check_whole("max_path_length", max_path_length)
        chosen = chosen_seed(seed)
        self.seed = fresh_seed() if chosen is None else chosen
        self._updates: list[EnvUpdate | None] = [None] * self.meta_batch_size
        self._episodes = np.zeros(self.num_envs, dtype=np.int64)
        self._begun = False
        self._tasks = TaskSource(env, self.seed)
        self._engine = RolloutEngine(self._tasks.source, ScriptedPolicy(_no_policy), **workers)
        self._live = self._engine.open(None, self.num_envs)

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return self.meta_batch_size * self.envs_per_task

    @abstractmethod
    def set_tasks(self, tasks: Any) -> None:
        """Set a task for the environments of each of M = ``meta_batch_size`` tasks."""

    def reset(self) -> list[Any]:
        """Begin a new episode in every environment.

        Returns:
            First observations, a list of ``num_envs``: those of the first task's environments come first.

        Raises:
            RolloutError: An environment failed; with the traceback of its worker.
        """
        self._begun = False
        self._start(np.ones(self.num_envs, dtype=bool))
        first = self._observations()
        self._begun = True
        return first

    def step(self, actions: Sequence[Any]) -> tuple[list[Any], list[float], np.ndarray, list[dict[str, Any]]]:
        """Step all environments; those whose episode ends begin the next one at once.

        Args:
            actions: One for each environment, a list of ``num_envs`` (or an array).

        Returns:
            Observations (of the next episode where one has ended), rewards, ``dones`` (bool array ``(num_envs,)``) and
            ``env_infos``, which at the end of an episode hold ``final_observation``, ``terminated`` and ``truncated``
            besides.

        Raises:
            RolloutError: An environment failed, with the traceback of its worker, or a worker was lost; ``reset()``
                starts over.
            RuntimeError: ``reset()`` has not been called since.
            ShapeError, ValueError: ``actions`` are not one for each environment, or none of its space.
        """
        return self.step_and_start(actions, np.ones(self.num_envs, dtype=bool))

    def step_and_start(
        self, actions: Sequence[Any], again: np.ndarray
    ) -> tuple[list[Any], list[float], np.ndarray, list[dict[str, Any]]]:
        """``step``, but only environments in ``again (num_envs,)`` begin another episode when theirs has ended.

        The others rest until the next ``reset()``: they are not stepped, show their last observation and bring 0.
        """
        if not self._begun:
            raise RuntimeError("call reset() before step(), and again after an error")
        batch = self._batch(actions)
        running, ended = self._live.active, len(self._live.cut)
        self._begun = False  # where an environment fails, all are to be reset
        try:
            self._live.advance(1, actions=batch)
        except ReplayError as error:  # running rollouts can be rebuilt only from plans
            raise self._lost(running) from error
        result = self._live.last_step
        terminated, truncated = result.terminated & running, result.truncated & running
        dones = terminated | truncated
        infos = _infos(result.infos, running)
        last = self._live.observations
        for i in np.flatnonzero(dones).tolist():
            ends = (own_copy(take_rows(last, i)), bool(terminated[i]), bool(truncated[i]))
            infos[i] |= dict(zip(END_INFOS, ends, strict=True))
        if (dones & again).any():
            begun = dones & again
            self._start(begun)
            if len(self._live.cut) > ended:
                raise self._lost((running & ~dones) | begun)
        answer = self._observations(), np.where(running, result.rewards, 0.0).tolist(), dones, infos
        self._begun = True  # last: a step whose result is lost, by Ctrl-C, must not go unnoticed
        return answer

    def close(self) -> None:
        """Close all environments, and end the workers."""
        self._live.close()
        self._engine.close()
        self._tasks.close()

    def _set(self, tasks: Any) -> None:
        chosen = self._tasks.sample(self.meta_batch_size) if tasks is None else tasks
        self._updates = [*self._tasks.updates(chosen, self.meta_batch_size)]

    def _start(self, chosen: np.ndarray) -> None:
        rows = np.flatnonzero(chosen).tolist()
        plans = [
            RolloutPlan(
                index=i,
                seed=(self.seed, i, int(self._episodes[i])),
                env_update=self._updates[i // self.envs_per_task],
                max_steps=self.max_path_length,
                extras={"name": f"episode {self._episodes[i]} of environment {i} (seed {self.seed})"},
            )
            for i in rows
        ]
        self._episodes[rows] += 1
        self._live.start(rows, plans)

    def _lost(self, running: np.ndarray) -> RolloutError:
        """The error that a worker was lost, and with it some of the environments that were ``running``."""
        lost = np.flatnonzero(running & ~self._live.active).tolist()
        named = [f"{i} (task {self._task_of(i)})" for i in lost[:_MOST_NAMED]]
        more = f" and {len(lost) - len(named)} more" if len(lost) > len(named) else ""
        return RolloutError(
            f"a worker was lost, and with it the episodes of environments {', '.join(named)}{more}; reset() continues, "
            "in a new worker: all environments begin their next episodes"
        )

    def _task_of(self, env: int) -> Any:
        update = self._updates[env // self.envs_per_task]
        return "of the environment as it is" if update is None else update.task

    def _batch(self, actions: Sequence[Any]) -> Any:
        if isinstance(actions, str | Mapping) or not isinstance(actions, Sequence | np.ndarray):
            raise TypeError(f"actions must be a list of num_envs={self.num_envs}, got {described(actions)}")
        if len(actions) != self.num_envs:
            raise ShapeError(f"actions must be one for each of num_envs={self.num_envs}, got {len(actions)}")
        space = self._tasks.spec.action_space
        return flat_actions(space, [action_row(space, action, f"action {i}") for i, action in enumerate(actions)])

    def _observations(self) -> list[Any]:
        batch = self._live.observations
        return [own_copy(take_rows(batch, i)) for i in range(self.num_envs)]


@final
class MetaIterativeEnvExecutor(MetaEnvExecutor):
    """The environments of many tasks, stepped in this process.

    Environments with a batched simulator are stepped as one. The given environment is copied, and never stepped.

    Args:
        env: A meta-environment: Gymnasium's API or that of the old Gym, with ``sample_tasks`` and ``set_task``; or what
            ``RolloutEngine`` takes.
        meta_batch_size: Number of tasks, M.
        envs_per_task: Number of environments of each task; environment ``i`` is one of task ``i // envs_per_task``.
        max_path_length: An episode is truncated after this many steps, and the next one begins.
        seed: Seed of all randomness; ``None`` draws fresh entropy. Default: that of ``metaroll.set_seed``.
    """

    def __init__(
        self,
        env: Any,
        meta_batch_size: int,
        envs_per_task: int,
        max_path_length: int,
        *,
        seed: SeedOption = LAST_SEED,
    ) -> None:
        workers: dict[str, Any] = {"num_workers": 1, "transport": "serial"}
        super().__init__(env, meta_batch_size, envs_per_task, max_path_length, seed=seed, **workers)

    def set_tasks(self, tasks: Any) -> None:
        """Set tasks; nothing is reset, episodes that run end in their old task.

        Args:
            tasks: One for each of M = ``meta_batch_size`` tasks; ``EnvUpdate`` s work too. ``None``: they are drawn by
                ``sample_tasks`` of the environment.

        Raises:
            TypeError: It is not a list, or the environment has no ``set_task``.
            ValueError: There are not M of them.
        """
        self._set(tasks)


@final
class MetaParallelEnvExecutor(MetaEnvExecutor):
    """The environments of many tasks, stepped in worker processes, with the results of ``MetaIterativeEnvExecutor``.

    Args:
        env: See ``MetaIterativeEnvExecutor``.
        meta_batch_size: Number of tasks, M.
        envs_per_task: See ``MetaIterativeEnvExecutor``.
        max_path_length: See ``MetaIterativeEnvExecutor``.
        seed: See ``MetaIterativeEnvExecutor``.
        num_workers: Number of processes; ``None``: one for each task, as documented, but no more than processors.
        pool: Workers to share, which ``close`` does not end.

    The processes end with ``close()``, at the end of a ``with`` block, or with the executor.
    """

    def __init__(
        self,
        env: Any,
        meta_batch_size: int,
        envs_per_task: int,
        max_path_length: int,
        *,
        seed: SeedOption = LAST_SEED,
        num_workers: int | None = None,
        pool: SamplerPool | None = None,
    ) -> None:
        workers = process_options(meta_batch_size, num_workers, pool)
        super().__init__(env, meta_batch_size, envs_per_task, max_path_length, seed=seed, **workers)

    def set_tasks(self, tasks: Any = None) -> None:
        """Set tasks; nothing is reset, episodes that run end in their old task.

        Args:
            tasks: One for each of M = ``meta_batch_size`` tasks; ``EnvUpdate`` s work too. ``None``: they are drawn by
                ``sample_tasks`` of the environment.

        Raises:
            TypeError: It is not a list, or the environment has no ``set_task``.
            ValueError: There are not M of them.
        """
        self._set(tasks)


def process_options(meta_batch_size: int, num_workers: int | None, pool: SamplerPool | None) -> dict[str, Any]:
    """Options of an engine with worker processes: one for each task, but no more than processors, if none are named."""
    if pool is not None:
        return {"pool": pool}
    most = min(check_whole("meta_batch_size", meta_batch_size), num_processors())
    return {"num_workers": most if num_workers is None else num_workers, "transport": "process"}


def _no_policy(observations: Any, contexts: Any) -> Any:
    raise RuntimeError("the actions of an executor come from its caller")


def _infos(infos: Any, running: np.ndarray) -> list[dict[str, Any]]:
    """A dict for each environment, in its own memory; empty for idle ones."""
    if isinstance(infos, Mapping):
        return [
            {name: _entry(values[i]) for name, values in infos.items()} if on else {} for i, on in enumerate(running)
        ]
    return [dict(infos[i]) if on else {} for i, on in enumerate(running)]


def _entry(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
