"""garage's LocalSampler: workers in this process, one rollout after the other."""

from __future__ import annotations

import copy
from typing import Any

from metaroll.checks import check_whole
from metaroll.data.paths import TrajectoryBatch
from metaroll.envs.lookup.source import is_env_instance, make_env
from metaroll.rollouts.garage.workers import Worker, WorkerFactory
from metaroll.tasks.env_copies import copy_env
from metaroll.tasks.updates import ExistingEnvUpdate
from metaroll.types import EnvUpdate

__all__ = ["LocalSampler", "param_values_of"]


class LocalSampler:
    """Round-robin over ``n_workers`` workers. The agent is shared with the caller, not copied.

    For speed use ``RolloutEngine``; this class serves code that was written for garage.

    Args:
        worker_factory: Makes the workers.
        agents: The agent, or a list with one per worker.
        envs: The environment (instance, id or constructor), or a list with one per worker.
    """

    def __init__(self, worker_factory: WorkerFactory, agents: Any, envs: Any) -> None:
        if not isinstance(worker_factory, WorkerFactory):
            raise TypeError(f"worker_factory must be a WorkerFactory, got {worker_factory!r}")
        self._factory = worker_factory
        self._workers: list[Worker] = [worker_factory(i) for i in range(worker_factory.n_workers)]
        agents = worker_factory.prepare_worker_messages(agents)
        envs = worker_factory.prepare_worker_messages(envs, _live)
        if len({id(env) for env in envs}) < len(envs):  # workers must not share a live environment
            envs = [envs[0], *(copy_env(env) for env in envs[1:])]
        for worker, agent, env in zip(self._workers, agents, envs, strict=True):
            worker.update_agent(agent)
            worker.update_env(env)
        self.total_env_steps = 0

    @classmethod
    def from_worker_factory(cls, worker_factory: WorkerFactory, agents: Any, envs: Any) -> LocalSampler:
        """Same as the constructor."""
        return cls(worker_factory, agents, envs)

    def obtain_samples(self, itr: int, num_samples: int, agent_update: Any, env_update: Any = None) -> TrajectoryBatch:
        """Whole rollouts with at least ``num_samples`` steps in total.

        Args:
            itr: Number of the iteration (for logs only).
            num_samples: Minimum number of steps.
            agent_update: See ``DefaultWorker.update_agent``; a list holds one per worker.
            env_update: See ``DefaultWorker.update_env``; a list holds one per worker.

        Raises:
            ValueError: ``num_samples`` is below 1, or a list has the wrong length.
        """
        check_whole("num_samples", num_samples)
        self._update(agent_update, env_update)
        batches: list[TrajectoryBatch] = []
        steps = 0
        while True:
            for worker in self._workers:
                batch = worker.rollout()
                batches.append(batch)
                steps += int(sum(batch.lengths))
                if steps >= num_samples:
                    self.total_env_steps += steps
                    return TrajectoryBatch.concatenate(*batches)

    def obtain_exact_trajectories(
        self, n_traj_per_worker: int, agent_update: Any, env_update: Any = None
    ) -> TrajectoryBatch:
        """Exactly ``n_traj_per_worker`` rollouts of each worker, in worker order."""
        check_whole("n_traj_per_worker", n_traj_per_worker)
        self._update(agent_update, env_update)
        batches = [worker.rollout() for worker in self._workers for _ in range(n_traj_per_worker)]
        self.total_env_steps += sum(int(sum(batch.lengths)) for batch in batches)
        return TrajectoryBatch.concatenate(*batches)

    def shutdown_worker(self) -> None:
        """Close all environments."""
        for worker in self._workers:
            worker.shutdown()

    def _update(self, agent_update: Any, env_update: Any) -> None:
        agents = self._factory.prepare_worker_messages(agent_update)
        envs = self._factory.prepare_worker_messages(env_update, _own_copy)
        for worker, agent, env in zip(self._workers, agents, envs, strict=True):
            worker.update_agent(agent)
            worker.update_env(env)


def param_values_of(agent: Any) -> Any:
    """The data of an agent that workers receive by default: its ``get_param_values``, if it has them."""
    give = getattr(agent, "get_param_values", None)
    return give() if callable(give) else None


def _live(env: Any) -> Any:
    return env if is_env_instance(env) else make_env(env)


def _own_copy(env_update: Any) -> Any:
    # An ExistingEnvUpdate is bound to one particular environment: a copy of it would be another.
    if isinstance(env_update, EnvUpdate) and not isinstance(env_update, ExistingEnvUpdate):
        return copy.deepcopy(env_update)
    return env_update
