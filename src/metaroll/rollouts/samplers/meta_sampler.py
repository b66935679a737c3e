"""ProMP's samplers: an exact number of paths of each of many tasks."""

from __future__ import annotations

import contextlib
import itertools
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np

from metaroll.checks import check_flag, check_whole, described
from metaroll.data.data_format import own_copy
from metaroll.data.paths import Paths
from metaroll.data.rollouts import Rollouts, plan_summary
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.old_gym import as_gymnasium
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import RolloutError
from metaroll.policies.adapters import ForeignMetaPolicy, as_policy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.engine.recorder import stack_infos
from metaroll.rollouts.engine.unit_work import shared_or_own
from metaroll.rollouts.failures import without_advice
from metaroll.rollouts.samplers.executors import (
    END_INFOS,
    MetaEnvExecutor,
    MetaIterativeEnvExecutor,
    MetaParallelEnvExecutor,
    TaskSource,
    process_options,
)
from metaroll.rollouts.samplers.sampler import LAST_SEED, Closable, SeedOption, chosen_seed
from metaroll.rollouts.workers.messages import GlobalNamespace
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import fresh_seed
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.types import Context, EnvUpdate, Policy, PolicyInfo, PolicyState, RolloutPlan

__all__ = ["MetaSampler", "Sampler"]


class Sampler(Closable, ABC):
    """Interface of ProMP's samplers.

    Args:
        env: As for ``RolloutEngine``, or an environment of the old Gym API.
        policy: The acting policy.
        batch_size: Number of trajectories per task.
        max_path_length: Most steps of a trajectory.

    Raises:
        TypeError: ``env`` makes no environment, or a number is not an integer.
        ValueError: A number is below 1.
    """

    def __init__(self, env: Any, policy: Any, batch_size: int, max_path_length: int) -> None:
        self._source = EnvSource.of(as_gymnasium(env))
        self.env, self.policy = env, policy
        self.batch_size = check_whole("batch_size", batch_size)
        self.max_path_length = check_whole("max_path_length", max_path_length)

    @abstractmethod
    def obtain_samples(self) -> Any:
        """Collect ``batch_size`` trajectories.

        Returns:
            A list of paths, or a dict of such.
        """
        raise NotImplementedError(f"{type(self).__name__} must have obtain_samples()")


@final
class MetaSampler(Sampler):
    """Samples exactly ``rollouts_per_meta_task`` paths of each of ``meta_batch_size`` tasks.

    Path ``b`` of a task is one of its environment ``b % envs_per_task``. How many episodes each environment runs is
    fixed before the first step, so short episodes are not preferred. Episode ``k`` of environment ``i`` (of all tasks,
    counted over the lifetime of the sampler) has the seed ``(seed, i, k)``, with ``parallel`` and without.

    Policies of metaroll, and others that act for one observation, run on the rollout engine: a plan for each path,
    with its own parameters for each task (see ``obtain_samples``). ProMP's own policies, with ``get_actions`` of a
    list of M arrays, act step by step for all tasks in an executor (``vec_env``).

    Args:
        env: A meta-environment, with ``sample_tasks(n)`` and ``set_task(task)``: Gymnasium's API or that of the old
            Gym; or what ``RolloutEngine`` takes (``"cheetah-dir"``). A given one is copied, and never stepped.
        policy: The acting policy.
        rollouts_per_meta_task: Number of paths of each task, B.
        meta_batch_size: Number of tasks, M.
        max_path_length: Paths are truncated after this many steps.
        envs_per_task: Environments of each task, E; ``None``: as many as paths. With ProMP's policies this many are
            stepped at a time.
        parallel: Whether environments run in worker processes.
        seed: Seed of all randomness; ``None`` draws fresh entropy. Default: that of ``metaroll.set_seed``.
        num_workers: Processes with ``parallel``; ``None``: one for each task, but no more than processors.
        pool: Workers to share with ``parallel``, which ``close`` does not end.
        task_sampler: Where ``update_tasks`` gets tasks; ``None``: ``sample_tasks`` of the environment, or the family
            of its name.
        log_to: Called with what is logged (e.g. ``runner.log``); ``logged`` holds it in any case.

    Attributes:
        batch_size: B.
        meta_batch_size: M.
        envs_per_task: E.
        total_samples: Most steps of a call, ``M * B * max_path_length``.
        total_timesteps_sampled: Steps that were truly taken, in all calls.
        tasks: The tasks that were set last; ``None`` before.
        vec_env: The executor of a policy of ProMP's; ``None`` with others.
        logged: Metrics of the last call.
    """

    def __init__(
        self,
        env: Any,
        policy: Any,
        rollouts_per_meta_task: int,
        meta_batch_size: int,
        max_path_length: int,
        envs_per_task: int | None = None,
        parallel: bool = False,
        *,
        seed: SeedOption = LAST_SEED,
        num_workers: int | None = None,
        pool: SamplerPool | None = None,
        task_sampler: TaskSampler | None = None,
        log_to: Callable[[Mapping[str, float]], Any] | None = None,
    ) -> None:
        count = check_whole("rollouts_per_meta_task", rollouts_per_meta_task)
        super().__init__(env, policy, count, max_path_length)
        self.meta_batch_size = check_whole("meta_batch_size", meta_batch_size)
        self.envs_per_task = count if envs_per_task is None else check_whole("envs_per_task", envs_per_task)
        if task_sampler is not None and not isinstance(task_sampler, TaskSampler):
            raise TypeError(f"task_sampler must be a TaskSampler or None, got {described(task_sampler)}")
        parallel = check_flag("parallel", parallel)
        if (num_workers is not None or pool is not None) and not parallel:
            raise ValueError(f"num_workers and pool are for parallel=True, got parallel={parallel}")
        workers: dict[str, Any] = {"num_workers": 1, "transport": "serial"}
        if parallel:
            workers = process_options(self.meta_batch_size, num_workers, pool)
        chosen = chosen_seed(seed)
        self.seed = fresh_seed() if chosen is None else chosen
        self.parallel, self.log_to = parallel, log_to
        self.total_samples = self.meta_batch_size * count * self.max_path_length
        self.total_timesteps_sampled = 0
        self.logged: dict[str, float] = {}
        self.tasks: list[Any] | None = None
        self._task_sampler, self._tasks = task_sampler, TaskSource(self._source, self.seed)
        self._updates: list[EnvUpdate | None] = [None] * self.meta_batch_size
        self._episodes = np.zeros((self.meta_batch_size, self.envs_per_task), dtype=np.int64)
        self.vec_env: MetaEnvExecutor | None = None
        self._stepwise: ForeignMetaPolicy | None = None
        self._engine: RolloutEngine | None = None
        if ForeignMetaPolicy.fits(policy):
            arguments = (self._tasks.source, self.meta_batch_size, self.envs_per_task, self.max_path_length)
            self._stepwise = ForeignMetaPolicy(policy, self.seed)
            if parallel:
                self.vec_env = MetaParallelEnvExecutor(*arguments, seed=self.seed, num_workers=num_workers, pool=pool)
            else:
                self.vec_env = MetaIterativeEnvExecutor(*arguments, seed=self.seed)
        else:
            self._timed = _TimedPolicy(as_policy(policy, self._tasks.spec))
            self._engine = RolloutEngine(self._tasks.source, self._timed, **workers)

    def update_tasks(self) -> None:
        """Draw a new task for each of the M; they hold from the next ``obtain_samples`` on.

        Raises:
            RuntimeError: The sampler is closed.
            TypeError: The environment has no ``sample_tasks`` or ``set_task``, nor is it a family's.
            ValueError: There are fewer tasks than M.
        """
        count = self.meta_batch_size
        updates = self._tasks.updates(self._tasks.sample(count, self._task_sampler), count)
        self._updates, self.tasks = [*updates], [update.task for update in updates]
        if self.vec_env is not None:
            self.vec_env.set_tasks(updates)

    def obtain_samples(
        self, log: bool = False, log_prefix: str = "", *, parameters: np.ndarray | None = None
    ) -> dict[int, Paths]:
        """Collect B paths from each of M tasks.

        Args:
            log: Whether to log ``PolicyExecTime`` and ``EnvExecTime``, seconds that policy and environments took (with
                workers, of each of them).
            log_prefix: Comes before these names.
            parameters: Flat parameters of the policy, ``(P,)`` for all tasks, or ``(M, P)``, a policy adapted to each
                task; ``None``: the policy's present ones.

        Returns:
            For each task, by number, its B paths: a sequence of dicts with ``observations (t, O)``, ``actions (t, A)``,
            ``rewards (t,)``, and the dicts ``env_infos`` and ``agent_infos`` of ``(t, ...)``. ``paths[m].rollouts`` has
            the same as columns, with last observations and endings.

        Raises:
            RolloutError: An environment or the policy raised, or gave NaN or Inf.
            ShapeError: ``parameters`` have another shape.
            TypeError: ``parameters`` are given with a policy of ProMP's, which has its own way to adapt.
        """
        log = check_flag("log", log)
        if not isinstance(log_prefix, str):
            raise TypeError(f"log_prefix must be a text, got {described(log_prefix)}")
        begin = time.perf_counter()
        if self._engine is None and parameters is not None:
            raise TypeError("parameters are for policies of metaroll; policies of ProMP's hold those of each task")
        with self._plain_errors():
            groups, acting = self._step() if self._engine is None else self._run(self._engine, parameters, log)
        self.logged = {}
        if log:
            seconds = time.perf_counter() - begin
            times = {"PolicyExecTime": acting, "EnvExecTime": max(seconds - acting, 0.0)}
            self.logged = {f"{log_prefix}{name}": value for name, value in times.items()}
            if self.log_to is not None:
                self.log_to(dict(self.logged))
        self.total_timesteps_sampled += sum(int(group.bounds[-1]) for group in groups)
        return {m: Paths(group) for m, group in enumerate(groups)}

    @contextlib.contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Errors inside do not advise options that this sampler lacks: it samples an exact number of paths."""
        try:
            yield
        except RolloutError as error:
            without_advice(error, engines=True)
            raise

    def close(self) -> None:
        """Close environments, and end the workers."""
        for held in (self._engine, self.vec_env, self._tasks):
            if held is not None:
                held.close()

    # -- policies of metaroll, on the engine -------------------------------------------------------------------------

    def _run(self, engine: RolloutEngine, parameters: np.ndarray | None, timed: bool) -> tuple[list[Rollouts], float]:
        tasks, paths = self.meta_batch_size, self.batch_size
        shared, own = shared_or_own(engine.policy, parameters, tasks)
        before = self._timed.seconds_in(engine) if timed else 0.0
        plans = [
            RolloutPlan(
                index=m * paths + b,
                seed=self._seed_of(m, b),
                env_update=self._updates[m],
                parameters=None if own is None else own[m],
                max_steps=self.max_path_length,
            )
            for m in range(tasks)
            for b in range(paths)
        ]
        rollouts = engine.run(plans, shared)
        self._episodes += self._quotas()
        acting = self._timed.seconds_in(engine) - before if timed else 0.0
        return [rollouts[m * paths : (m + 1) * paths] for m in range(tasks)], max(acting, 0.0) / engine.num_workers

    def _quotas(self) -> np.ndarray:
        """Episodes of each environment of a task in a call, ``(E,)``."""
        each, more = divmod(self.batch_size, self.envs_per_task)
        return each + (np.arange(self.envs_per_task) < more)

    def _seed_of(self, task: int, path: int) -> tuple[int, int, int]:
        round_, env = divmod(path, self.envs_per_task)
        return self.seed, task * self.envs_per_task + env, int(self._episodes[task, env]) + round_

    # -- policies of ProMP's, in an executor -------------------------------------------------------------------------

    def _step(self) -> tuple[list[Rollouts], float]:
        assert self.vec_env is not None
        assert self._stepwise is not None
        executor, tasks, each = self.vec_env, self.meta_batch_size, self.envs_per_task
        left = np.tile(self._quotas(), tasks)
        done_paths: list[list[StepSequence]] = [[] for _ in left]
        acting = 0.0
        observations = executor.reset()
        running = [_RunningPath() for _ in left]
        # Environments without a quota (fewer paths than environments) are stepped as well, and their steps are dropped.
        while any(len(paths) < quota for paths, quota in zip(done_paths, left, strict=True)):
            begin = time.perf_counter()
            actions, infos_of_policy = self._stepwise.act(observations, tasks)
            acting += time.perf_counter() - begin
            again = np.array([len(paths) + 1 < quota for paths, quota in zip(done_paths, left, strict=True)])
            following, rewards, dones, infos = executor.step_and_start(actions, again)
            for i, path in enumerate(running):
                if len(done_paths[i]) >= left[i]:
                    continue
                path.add(observations[i], actions[i], rewards[i], infos[i], infos_of_policy[i])
                if dones[i]:
                    plan = self._plan_of(i, len(done_paths[i]))
                    done_paths[i].append(path.rollout(infos[i], plan))
                    running[i] = _RunningPath()
            observations = following
        self._episodes += self._quotas()
        groups = []
        for m in range(tasks):
            envs = done_paths[m * each : (m + 1) * each]
            groups.append(Rollouts.of([envs[b % each][b // each] for b in range(self.batch_size)]))
        return groups, acting

    def _plan_of(self, env: int, number: int) -> RolloutPlan:
        task, own = divmod(env, self.envs_per_task)
        path = number * self.envs_per_task + own
        index, seed = task * self.batch_size + path, self._seed_of(task, path)
        return RolloutPlan(index=index, seed=seed, env_update=self._updates[task], max_steps=self.max_path_length)


class _RunningPath:
    """The record of one environment's present episode, in its own memory."""

    def __init__(self) -> None:
        self._steps: list[tuple[Any, Any, float, dict[str, Any], dict[str, Any]]] = []

    def add(self, observation: Any, action: Any, reward: float, env_info: Mapping, agent_info: dict[str, Any]) -> None:
        kept_info = {name: value for name, value in env_info.items() if name not in END_INFOS}
        self._steps.append((own_copy(observation), own_copy(action), reward, kept_info, agent_info))

    def rollout(self, last: Mapping[str, Any], plan: RolloutPlan) -> StepSequence:
        """The whole path, given the infos of its last step."""
        observations, actions, rewards, env_infos, agent_infos = (
            list(column) for column in zip(*self._steps, strict=True)
        )
        ends: dict[str, Any] = {name: np.zeros(len(rewards), dtype=bool) for name in ("terminated", "truncated")}
        for name, flags in ends.items():
            flags[-1] = last[name]
        infos = {"env_infos": stack_infos(env_infos), "policy_infos": stack_infos(agent_infos)}
        fields: dict[str, Any] = {name: value for name, value in infos.items() if value}
        return StepSequence(
            observations=np.stack([*observations, last["final_observation"]]),
            actions=np.stack(actions),
            rewards=np.array(rewards),
            complete=True,
            rollout_info={"plan": plan_summary(plan)},
            **ends,
            **fields,
        )


# -- how long policies take --------------------------------------------------------------------------------------------

_seconds: dict[str, float] = {}
"""Seconds that policies have acted for in this process, by the key of each."""


def _acted_for(namespace: GlobalNamespace, key: str) -> float:
    return _seconds.get(key, 0.0)


class _TimedPolicy(Policy):
    """Acts as ``policy``, and counts the seconds, wherever it is sent."""

    _numbers = itertools.count()

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._key = f"{next(self._numbers)}-{uuid.uuid4().hex[:8]}"

    def seconds_in(self, engine: RolloutEngine) -> float:
        """Seconds in all workers of an engine so far."""
        return sum(engine.pool.invoke_own(_acted_for, self._key, in_words="reading the time of a policy"))

    @property
    def info(self) -> PolicyInfo:
        return self.policy.info

    def act(
        self,
        obs: Any,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[Any, PolicyState, Mapping[str, np.ndarray]]:
        begin = time.perf_counter()
        try:
            return self.policy.act(obs, state, noise, deterministic, parameters)
        finally:
            _seconds[self._key] = _seconds.get(self._key, 0.0) + time.perf_counter() - begin

    def acting_parameters(self) -> np.ndarray:
        return self.policy.acting_parameters()

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        return self.policy.initial_state(contexts, generators, domain_params)

    def with_actions_taken(self, state: PolicyState, actions: Any) -> PolicyState:
        return self.policy.with_actions_taken(state, actions)

    def plan_context(self) -> Context | None:
        return self.policy.plan_context()
