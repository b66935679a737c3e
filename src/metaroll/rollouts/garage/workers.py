"""garage's workers: one environment, one agent, stepped by hand. Each is a live collection with one slot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from metaroll.checks import check_whole
from metaroll.data.data_format import cat_to_format
from metaroll.data.paths import TimeStep, TrajectoryBatch
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import make_slots
from metaroll.policies.adapters import as_policy
from metaroll.rollouts.engine.collection import Collection, collect_here
from metaroll.rollouts.engine.recorder import stack_infos
from metaroll.seeding import fresh_seed
from metaroll.types import Context, EnvSpec, EnvUpdate, RolloutPlan

__all__ = ["DefaultWorker", "PEARLWorker", "Worker", "WorkerFactory", "evaluates_deterministically"]


class Worker(ABC):
    """Interface of workers.

    Args:
        seed: Base seed; rollout ``k`` of worker ``w`` has the seed triple ``(seed, w, k)``.
        max_path_length: Rollouts are truncated after this many steps; may be ``inf``.
        worker_number: Number of this worker.

    Raises:
        TypeError, ValueError: ``max_path_length`` is not an integer of at least 1, nor ``inf``.
    """

    def __init__(self, *, seed: int | None, max_path_length: float, worker_number: int) -> None:
        if max_path_length != float("inf"):
            max_path_length = check_whole("max_path_length", max_path_length)
        self._seed = fresh_seed() if seed is None else seed
        self._max_path_length = max_path_length
        self._worker_number = worker_number

    @abstractmethod
    def update_agent(self, agent_update: Any) -> None:
        """A new agent, or new parameters for the present one."""

    @abstractmethod
    def update_env(self, env_update: Any) -> None:
        """A new environment, or a change to the present one."""

    @abstractmethod
    def rollout(self) -> TrajectoryBatch:
        """Sample a single rollout."""

    @abstractmethod
    def start_rollout(self) -> None:
        """Begin a new rollout."""

    @abstractmethod
    def step_rollout(self) -> bool:
        """Take one step; True iff the rollout is over."""

    @abstractmethod
    def collect_rollout(self) -> TrajectoryBatch:
        """The rollout that has just ended."""

    @abstractmethod
    def shutdown(self) -> None:
        """Close the environment."""

    def __getstate__(self) -> NoReturn:
        raise ValueError("workers hold a live environment and are not pickled; pickle the WorkerFactory instead")


class DefaultWorker(Worker):
    """One environment and one agent.

    Attributes:
        agent: The agent, or None.
        env: The environment, or None.
    """

    _wants_steps = False
    """Whether each step is wanted at once, as a piece of the rollout."""

    def __init__(self, *, seed: int | None, max_path_length: float, worker_number: int) -> None:
        super().__init__(seed=seed, max_path_length=max_path_length, worker_number=worker_number)
        self.agent: Any = None
        self.env: Any = None
        self._count = 0
        self._live: Collection | None = None
        self._parameters: np.ndarray | None = None
        self._parts: list[StepSequence] = []

    def update_agent(self, agent_update: Any) -> None:
        """Parameters replace those of the agent: a flat vector, or a state dict. Another object replaces the agent."""
        if agent_update is None:
            return
        if isinstance(agent_update, Mapping | tuple | np.ndarray):
            if self.agent is None:
                raise ValueError(
                    "agent_update brings parameters, but the worker has no agent yet; pass the agent first"
                )
            if isinstance(agent_update, Mapping) and hasattr(self.agent, "load_state_dict"):
                self.agent.load_state_dict(agent_update)
            else:
                self.agent.set_param_values(agent_update)
        else:
            self.agent = agent_update

    def update_env(self, env_update: Any) -> None:
        """An ``EnvUpdate`` is called on the environment; an environment replaces it; ``None`` keeps it.

        Raises:
            TypeError: It is none of these.
        """
        if env_update is None:
            return
        if isinstance(env_update, EnvUpdate):
            self.env = env_update(self.env)
        elif hasattr(env_update, "reset") and hasattr(env_update, "step"):
            if self.env is not None and self.env is not env_update:
                self.env.close()
            self.env = env_update
        else:
            raise TypeError(f"env_update must be an EnvUpdate, an environment or None, got {type(env_update).__name__}")

    def start_rollout(self) -> None:
        """Begin a new rollout."""
        if self.env is None or self.agent is None:
            raise ValueError("the worker needs update_env(...) and update_agent(...) before start_rollout()")
        if callable(getattr(self.agent, "reset", None)):
            self.agent.reset()
        self._start(_latent_of(self.agent))

    def step_rollout(self) -> bool:
        """Take a single time-step in the current rollout.

        Returns:
            True iff the rollout is over: the environment ended, or ``max_path_length`` is reached.
        """
        if self._live is None or not self._live.active[0]:
            raise ValueError("no rollout is running; call start_rollout() first")
        self._parts.extend(self._live.advance(1, self._parameters))
        return not self._live.active[0]

    def collect_rollout(self) -> TrajectoryBatch:
        """The rollout that has just ended, with its true last observation.

        Raises:
            ValueError: No rollout has ended since the last call.
        """
        parts = self._parts
        if not parts or not parts[-1].done[-1]:
            raise ValueError("no rollout to collect; step_rollout() until it returns True")
        self._parts = []
        return TrajectoryBatch.from_rollouts(EnvSpec.from_env(self.env), [_joined(parts)])

    def rollout(self) -> TrajectoryBatch:
        """Sample a single rollout of the agent in the environment.

        Returns:
            TrajectoryBatch: The collected trajectory.
        """
        self.start_rollout()
        while not self.step_rollout():
            pass
        return self.collect_rollout()

    def shutdown(self) -> None:
        """Close the environment."""
        if self.env is not None:
            self.env.close()
        self.env = self._live = None

    def _start(self, context: Context | None, deterministic: bool = False) -> None:
        limit = None if self._max_path_length == float("inf") else int(self._max_path_length)
        plan = RolloutPlan(
            index=self._count,
            seed=(self._seed, self._worker_number, self._count),
            context=context,
            max_steps=limit,
            deterministic=deterministic,
        )
        self._count += 1
        self._parts = []
        policy = as_policy(self.agent, EnvSpec.from_env(self.env))
        self._parameters = policy.acting_parameters()
        self._live = collect_here(make_slots(self.env, 1, share=True), policy, pieces=self._wants_steps)
        self._live.start([0], [plan])


class PEARLWorker(DefaultWorker):
    """Worker for PEARL: a latent z is drawn from the agent's belief once per rollout.

    Args:
        seed: Base seed.
        max_path_length: Maximum length of rollouts; may be ``inf``.
        worker_number: Number of the worker.
        deterministic: Act with the mean action.
        accum_context: Add every step to the agent's context.

    Note:
        The documents say that the belief is re-sampled every step; as in the code that they describe (and in the
        paper), z is drawn once per rollout and kept.

    Attributes:
        agent: The agent, or None.
        env: The environment, or None.
    """

    def __init__(
        self,
        *,
        seed: int | None,
        max_path_length: float,
        worker_number: int,
        deterministic: bool = False,
        accum_context: bool = False,
    ) -> None:
        super().__init__(seed=seed, max_path_length=max_path_length, worker_number=worker_number)
        self._deterministic = deterministic
        self._wants_steps = accum_context

    def start_rollout(self) -> None:
        """Begin a new rollout with the agent's present z."""
        if self.env is None or self.agent is None:
            raise ValueError("the worker needs update_env(...) and update_agent(...) before start_rollout()")
        self._start(_latent_of(self.agent), self._deterministic)

    def step_rollout(self) -> bool:
        """Take a single time-step in the current rollout.

        Returns:
            True iff the rollout is over: the environment ended, or ``max_path_length`` is reached.
        """
        over = super().step_rollout()
        if self._wants_steps:
            self.agent.update_context(_time_step(self._parts[-1], EnvSpec.from_env(self.env)))
        return over

    def rollout(self) -> TrajectoryBatch:
        """Sample a single rollout of the agent in the environment, with z redrawn from its belief.

        Returns:
            TrajectoryBatch: The collected trajectory.
        """
        if self.agent is None:
            raise ValueError("the worker needs update_agent(...) before rollout()")
        self.agent.sample_from_belief()
        return super().rollout()


class WorkerFactory:
    """Makes workers; picklable, unlike them.

    Args:
        max_path_length: Maximum length of rollouts.
        seed: Base seed; ``None`` draws fresh entropy when the factory is built.
        n_workers: Number of workers.
        worker_class: Class of the workers.
        worker_args: Further keyword arguments of that class.
    """

    def __init__(
        self,
        *,
        max_path_length: float,
        seed: int | None = None,
        n_workers: int = 1,
        worker_class: type[Worker] = DefaultWorker,
        worker_args: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_workers = check_whole("n_workers", n_workers)
        self._seed = fresh_seed() if seed is None else seed
        self._max_path_length = max_path_length
        self._worker_class = worker_class
        self._worker_args = dict(worker_args or {})

    def prepare_worker_messages(self, objs: Any, preprocess: Callable[[Any], Any] = lambda obj: obj) -> list[Any]:
        """One message per worker: a list of ``n_workers`` is used directly, anything else is sent to all.

        Raises:
            ValueError: A list of another length.
        """
        if isinstance(objs, list):
            if len(objs) != self.n_workers:
                raise ValueError(f"a list of messages needs one entry per worker ({self.n_workers}), got {len(objs)}")
            return [preprocess(obj) for obj in objs]
        return [preprocess(objs) for _ in range(self.n_workers)]

    def __call__(self, worker_number: int) -> Worker:
        """Worker ``worker_number``.

        Raises:
            ValueError: There are not that many workers.
        """
        return self._worker_class(
            seed=self._seed,
            max_path_length=self._max_path_length,
            worker_number=check_whole("worker_number", worker_number, low=0, high=self.n_workers - 1),
            **self._worker_args,
        )


def evaluates_deterministically(
    worker_class: Any, worker_args: Mapping[str, Any] | None, deterministic: bool = True
) -> bool:
    """Whether episodes of an evaluation are deterministic that was to run in these workers, and runs on the engine.

    Args:
        worker_class: ``DefaultWorker`` or ``PEARLWorker``, whose behavior the engine has.
        worker_args: Further arguments of the worker, of which ``deterministic`` counts.
        deterministic: The default where these leave it open.

    Raises:
        TypeError: The engine is no such worker, or has no such arguments.
    """
    if worker_class not in (None, DefaultWorker, PEARLWorker):
        raise TypeError(
            f"worker_class must be DefaultWorker or PEARLWorker (evaluations run on the rollout engine), got "
            f"{worker_class!r}; change the environment or the policy instead"
        )
    arguments = dict(worker_args or {})
    arguments.pop("accum_context", None)  # contexts are kept by the evaluator
    deterministic = bool(arguments.pop("deterministic", deterministic))
    if arguments:
        raise TypeError(f"worker_args may hold deterministic and accum_context, got also {', '.join(arguments)}")
    return deterministic


def _latent_of(agent: Any) -> Context | None:
    """The latent z that an agent holds for one task; ``None`` for agents without."""
    latent = getattr(agent, "z", None)
    if not isinstance(latent, torch.Tensor):
        return None
    z = latent.detach().cpu().numpy().reshape(-1, latent.shape[-1])
    if len(z) != 1:
        raise ValueError(f"the agent must hold the belief of one task, got {len(z)}; call reset_belief() first")
    return {"z": z[0].copy()}


def _joined(parts: Sequence[StepSequence]) -> StepSequence:
    """Consecutive pieces of one rollout, of one step each unless it is the only one, as one."""
    last = parts[-1]
    if len(parts) == 1:
        return last
    fields: dict[str, Any] = {
        name: cat_to_format([getattr(part, name) for part in parts], "numpy")
        for name in ("actions", "rewards", "terminated", "truncated")
    }
    observations = [part.observations[:1] for part in parts] + [last.observations[1:]]
    for name in ("policy_infos", "env_infos"):
        infos = stack_infos([_infos_of(part, name) for part in parts])
        if infos:
            fields[name] = infos
    return StepSequence(
        observations=cat_to_format(observations, "numpy"), complete=True, rollout_info=last.rollout_info, **fields
    )


def _infos_of(part: StepSequence, name: str) -> dict[str, Any]:
    """Infos of the only step of a piece."""
    return {key: value[0] for key, value in getattr(part, name).items()} if name in part.data_names else {}


def _time_step(part: StepSequence, env_spec: EnvSpec) -> TimeStep:
    """The only step of a piece of length one."""
    return TimeStep(
        env_spec=env_spec,
        observation=part.observations[0],
        action=part.actions[0],
        reward=float(part.rewards[0]),
        next_observation=part.observations[1],
        terminal=bool(part.terminated[0]),
        env_info=_infos_of(part, "env_infos"),
        agent_info=_infos_of(part, "policy_infos"),
    )
