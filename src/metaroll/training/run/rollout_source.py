"""Source of a runner's rollouts: the rollout engine, or a garage sampler; workers are shared and start late."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from metaroll.checks import check_whole
from metaroll.data.paths import TrajectoryBatch
from metaroll.data.rollouts import Rollouts
from metaroll.errors import RolloutError
from metaroll.learners.base import RLAlgorithm
from metaroll.rollouts.configs import EngineConfig
from metaroll.rollouts.engine.collection import Collection
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.engine.unit_work import be_ready
from metaroll.rollouts.garage.local_sampler import LocalSampler, param_values_of
from metaroll.rollouts.garage.workers import DefaultWorker, PEARLWorker, WorkerFactory
from metaroll.rollouts.requests import SampleRequest
from metaroll.rollouts.samplers.parameter_exploration import ParameterExplorationSampler
from metaroll.rollouts.workers.pool import PREPARING, SamplerPool
from metaroll.seeding import derive_seed
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.training.evaluation.engine_policy import context_of, use_policy
from metaroll.training.run.live_plans import LivePlans
from metaroll.types import EnvUpdate

__all__ = ["LiveRequest", "RolloutSource", "SamplerChoice"]


class LiveRequest(NamedTuple):
    """Arguments of ``Runner.advance`` that are the same in all calls, since its rollouts continue; see there."""

    seed: int
    num_slots: int
    env_updates: TaskSampler | Sequence[EnvUpdate] | None
    deterministic: bool


class SamplerChoice:
    """Which garage sampler is to collect rollouts, if any.

    The rollout engine does what ``LocalSampler`` does with ``DefaultWorker`` or ``PEARLWorker``, only exactly
    reproducible, and with one belief per task in a batch, so it stands for them.

    Args:
        sampler_cls: Called as ``sampler_cls(worker_factory, agents, envs, **sampler_args)``; ``None`` means the rollout
            engine, unless ``worker_class`` is one that the engine does not stand for.
        sampler_args: Further arguments of that class; ``max_path_length`` replaces that of the algorithm.
        worker_class: Class of the workers.
        worker_args: Further arguments of the workers.

    Attributes:
        in_process: Whether the engine stands for a sampler without workers of its own.
        deterministic: Whether the engine stands for workers that act without noise.
        max_path_length: Maximum number of steps of a rollout, if given.
    """

    def __init__(
        self, sampler_cls: Any, sampler_args: Mapping[str, Any] | None, worker_class: Any, worker_args: Any
    ) -> None:
        self._sampler_args, self._worker_args = dict(sampler_args or {}), dict(worker_args or {})
        self._worker_class = DefaultWorker if worker_class is None else worker_class
        self.max_path_length: float | None = self._sampler_args.pop("max_path_length", None)
        self.in_process = self.deterministic = False
        if self._worker_class not in (DefaultWorker, PEARLWorker):
            self.sampler_cls = LocalSampler if sampler_cls is None else sampler_cls
            return
        self.sampler_cls = sampler_cls if sampler_cls not in (None, LocalSampler) else None
        if self.sampler_cls is None:
            self.in_process = sampler_cls is LocalSampler
            self._take_over_by_engine()

    def _take_over_by_engine(self) -> None:
        arguments = dict(self._worker_args)
        if self._worker_class is PEARLWorker:
            arguments.pop("accum_context", None)  # contexts belong to the algorithm
            self.deterministic = bool(arguments.pop("deterministic", False))
        if self._sampler_args or arguments:
            raise ValueError(
                f"sampler_args and worker_args need a sampler_cls or worker_class that takes them, got "
                f"{self._sampler_args} and {arguments}; the rollout engine takes LocalRunner(engine=EngineConfig(...))"
            )

    def build(self, algo: RLAlgorithm, env: Any, agent: Any, seed: int, num_workers: int) -> Any:
        """The sampler; ``None`` stands for the engine."""
        if self.sampler_cls is None:
            return None
        factory = WorkerFactory(
            max_path_length=cast("float", self.limit_of(algo)),  # RolloutSource has checked that it is known
            seed=seed,
            n_workers=num_workers,
            worker_class=self._worker_class,
            worker_args=self._worker_args,
        )
        return self.sampler_cls(factory, agent, env, **self._sampler_args)

    def limit_of(self, algo: RLAlgorithm) -> float | None:
        """Maximum number of steps of a rollout; infinity for no limit, ``None`` if unspecified."""
        return algo.max_path_length if self.max_path_length is None else self.max_path_length

    def max_steps_of(self, algo: RLAlgorithm) -> int | None:
        """``limit_of`` as the engine takes it."""
        limit = self.limit_of(algo)
        return None if limit is None or math.isinf(limit) else int(limit)


class RolloutSource:
    """Collects rollouts for one algorithm in one environment.

    Args:
        algo: Its ``exploration_policy``, else ``policy``, acts.
        env: Instance, id, constructor or ``EnvUpdate``.
        choice: Sampler to use instead of the engine.
        config: How rollouts are run.

    Attributes:
        algo: The algorithm.
    """

    def __init__(
        self,
        algo: RLAlgorithm,
        env: Any,
        choice: SamplerChoice,
        config: EngineConfig,
    ) -> None:
        self.algo = algo
        self._env = env
        self._choice = choice
        here = {"num_workers": 1, "transport": "serial", "address": None}
        self._config = replace(config, **here) if choice.in_process else config
        self._sampler: Any = None
        self._pool: SamplerPool | None = None
        self._engine: RolloutEngine | None = None
        self._evaluation_engine: RolloutEngine | None = None
        self._explorer: ParameterExplorationSampler | None = None
        self._live: Collection | None = None
        self._live_request: LiveRequest | None = None
        self._live_described: dict[str, Any] = {}
        self._live_state: Mapping[str, Any] | None = None
        """Half-done rollouts of a collection that is not open."""
        if self.agent is not None and choice.limit_of(algo) is None:
            raise ValueError(f"{algo.info.name} has a policy but no max_path_length, which sampling needs: set it")

    @property
    def agent(self) -> Any:
        """The behavior policy in training, ``None`` without a policy."""
        exploration = self.algo.exploration_policy
        return self.algo.policy if exploration is None else exploration

    @property
    def evaluation_engine(self) -> RolloutEngine | None:
        """An engine for evaluations, on the same workers; ``None`` without a policy to begin with."""
        if self._evaluation_engine is None and self.agent is not None:
            env = self._env if self.algo.evaluation_env is None else self.algo.evaluation_env
            self._evaluation_engine = RolloutEngine(env, self.agent, pool=self._shared_pool())
        return self._evaluation_engine

    def start_workers(self) -> None:
        """Start the workers, which takes seconds: now, so that these are not taken for those of the first rollouts."""
        if self.agent is None or self._choice.sampler_cls is not None:
            return
        pool = self._shared_pool()
        if not pool.is_serial:
            pool.invoke_own(be_ready, in_words=PREPARING, phase="start")

    def obtain(self, request: SampleRequest, itr: int, agent_update: Any = None) -> Sequence[Sequence[Any]]:
        """One list of whole rollouts per update.

        Args:
            request: The requested rollouts; their length is up to the algorithm.
            itr: For samplers that log it.
            agent_update: Behavior policy to use instead of the algorithm's agent, or parameters of that.
        """
        self._check_agent()
        if self._choice.sampler_cls is not None:
            return self._from_sampler(request, itr, agent_update)
        engine, given = self._training_engine(), request.parameters
        if isinstance(agent_update, np.ndarray):
            if given is not None:
                raise ValueError("give either parameters or an agent_update of parameters, got both")
            agent_update, given = None, agent_update
        acting = self.agent if agent_update is None else agent_update
        parameters = use_policy(engine, acting)
        contexts = request.contexts
        return engine.run_groups(
            replace(
                request,
                max_steps=self._choice.max_steps_of(self.algo),
                contexts=[context_of(acting)] * len(request.updates) if contexts is None else contexts,
                deterministic=request.deterministic or self._choice.deterministic,
                parameters=parameters if given is None else given,
            )
        )

    def advance(self, num_steps: int, request: LiveRequest, parameters: np.ndarray | None, actions: Any) -> Rollouts:
        """Pieces of rollouts that continue over calls; see ``Runner.advance``."""
        self._check_agent()
        check_whole("num_steps", num_steps)
        check_whole("num_slots", request.num_slots)
        if self._choice.sampler_cls is not None:
            raise ValueError("advance needs the rollout engine: setup with sampler_cls None or LocalSampler")
        engine = self._training_engine()
        # A learner that passes parameters calls often, with the same behavior policy.
        is_current = parameters is not None and engine.policy is self.agent
        own = None if is_current else use_policy(engine, self.agent)
        before_opening, opened = self._live_state, self._live is None
        live = self._live
        if live is None:
            live, described = self._opened(engine, request)
            # In one statement, since Ctrl-C may come between two: the state must not be lost.
            self._live, self._live_request, self._live_described, self._live_state = live, request, described, None
        for name, value, before in zip(request._fields, request, self._live_request or request, strict=True):
            if value is not before and value != before:
                raise ValueError(f"{name} must stay as in the calls of advance before, {before!r}, got {value!r}")
        try:
            return live.advance(num_steps, own if parameters is None else parameters, actions=actions)
        except ValueError as error:
            if opened and not isinstance(error, RolloutError):  # bad input: not even the number of slots is fixed yet
                self.load_live_state(before_opening)
            raise

    def live_state(self) -> Mapping[str, Any] | None:
        """The unfinished rollouts of ``advance``, for a snapshot; ``None`` if there are none."""
        if self._live is None:
            return self._live_state
        return {**self._live.state_dict(), "arguments": self._live_described}

    def load_live_state(self, state: Mapping[str, Any] | None) -> None:
        """The next ``advance`` continues the rollouts of ``live_state``."""
        live, self._live, self._live_state = self._live, None, state
        if live is not None:
            live.close()

    def _opened(self, engine: RolloutEngine, request: LiveRequest) -> tuple[Collection, dict[str, Any]]:
        """The collection, and the description of its arguments."""
        num_slots, state = request.num_slots, self._live_state
        if state is not None and state["num_slots"] != num_slots:
            raise ValueError(f"num_slots must be {state['num_slots']} as in the run so far, got {num_slots}")
        limit = self._choice.max_steps_of(self.algo)
        plans = LivePlans(request.seed, request.env_updates, limit, request.deterministic or self._choice.deterministic)
        here, before = plans.described(), {} if state is None else state.get("arguments", {})
        for name, value in here.items():
            if before.get(name, value) != value:
                raise ValueError(f"{name} must be {before[name]!r} as in the run so far, got {value!r}")
        live = engine.open(plans, num_slots)
        if state is not None:
            live.load_state_dict(state)
        return live, here

    def _training_engine(self) -> RolloutEngine:
        if self._engine is None:
            self._engine = RolloutEngine(self._env, self.agent, config=self._config, pool=self._shared_pool())
        return self._engine

    def explorer(self, num_domains: int, num_init_states_per_domain: int) -> ParameterExplorationSampler:
        """The sampler of many sets of parameters, on the same workers."""
        if self._choice.sampler_cls is not None:
            raise ValueError("sample_parameters needs the rollout engine: setup with sampler_cls None")
        self._check_agent()
        explorer, numbers = self._explorer, (num_init_states_per_domain, num_domains)
        if explorer is not None and (explorer.num_init_states_per_domain, explorer.num_domains) == numbers:
            return explorer
        if explorer is not None:
            explorer.close()
        pool = self._shared_pool()
        self._explorer = ParameterExplorationSampler(
            self._env,
            self.agent,
            *numbers,
            pool.num_workers,
            0,
            pool=pool,
            max_steps=self._choice.max_steps_of(self.algo),
            slots_per_unit=self._config.slots_per_unit,
        )
        return self._explorer

    def close(self) -> None:
        """Free workers and environments; they are made again when needed, and half-done rollouts continue."""
        self.load_live_state(self.live_state())
        for engine in (self._engine, self._evaluation_engine, self._explorer):
            if engine is not None:
                engine.close()
        if self._pool is not None:
            self._pool.stop()
        if self._sampler is not None:
            self._sampler.shutdown_worker()
        self._engine = self._evaluation_engine = self._explorer = self._pool = self._sampler = None

    def _shared_pool(self) -> SamplerPool:
        if self._pool is None:
            self._pool = SamplerPool(self._config.num_workers, config=self._config)
        return self._pool

    def _check_agent(self) -> None:
        if self.agent is None:
            raise ValueError(f"{self.algo.info.name} has no policy, so there is nothing to sample with: set policy")

    def _from_sampler(self, request: SampleRequest, itr: int, agent_update: Any) -> list[Sequence[Any]]:
        engine_only = (request.contexts, request.num_rollouts, request.parameters)
        if any(value is not None for value in engine_only) or request.deterministic:
            raise ValueError(
                "contexts, num_rollouts, deterministic and parameters need the rollout engine: setup with sampler_cls "
                "None or LocalSampler, and with worker_class DefaultWorker or PEARLWorker"
            )
        if self._sampler is None:
            # One that is built after a resume must not repeat its rollouts.
            seed = derive_seed("sampler", request.seed, request.sub_seed)
            self._sampler = self._choice.build(self.algo, self._env, self.agent, seed, self._config.num_workers)
        if agent_update is None:
            agent_update = param_values_of(self.agent)
        updates = [request.updates[m] for m in request.chosen()]
        batches = (self._sampler.obtain_samples(itr, request.min_steps, agent_update, update) for update in updates)
        return [batch.to_rollouts() if isinstance(batch, TrajectoryBatch) else list(batch) for batch in batches]
