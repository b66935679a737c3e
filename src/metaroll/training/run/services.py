"""Services of a runner for its algorithm: rollouts, evaluations, a log, and counters."""

from __future__ import annotations

import functools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from metaroll.data.rollouts import Rollouts
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import DamagedFileError, NotSetupError, named_as
from metaroll.learners.base import RLAlgorithm
from metaroll.learners.foreign import as_algorithm
from metaroll.rollouts.requests import SampleRequest
from metaroll.tasks.task_sampler import TaskSampler
from metaroll.training.evaluation.evaluation_result import EvaluationResult, PolicyEvaluation
from metaroll.training.evaluation.evaluator import Evaluator
from metaroll.training.run.callbacks import CallbackGroup
from metaroll.training.run.progress import PhaseProgress
from metaroll.training.run.rollout_source import LiveRequest, RolloutSource
from metaroll.training.run.run_state import TrainArgs
from metaroll.training.store.metrics_log import MetricsLog, read_metrics, scalar
from metaroll.training.store.run_store import RunStore
from metaroll.types import Context, EnvUpdate

__all__ = ["RunnerServices", "newest_numbers"]


class EpochLog:
    """Numbers of the current epoch, by name (``<phase>/<metric>``; ``train/`` is omitted).

    Attributes:
        epoch: The current epoch.
        numbers: Its numbers so far.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.numbers: dict[str, float] = {}

    def start(self, epoch: int) -> None:
        """Forget the last epoch's numbers."""
        self.epoch, self.numbers = epoch, {}

    def add(self, log: MetricsLog, env_steps: int, metrics: Mapping[str, Any]) -> None:
        """Numbers of training, or of the phase that a name begins with."""
        for name, value in metrics.items():
            phase, _, metric = name.rpartition("/")
            log.append(self.epoch, env_steps, phase or "train", {metric: value})
            self.numbers[name] = scalar(name, value)

    def add_evaluation(self, log: MetricsLog, env_steps: int, result: EvaluationResult | PolicyEvaluation) -> None:
        """Summary of an evaluation, and the returns in each task."""
        average = f"{result.prefix}/Average/"
        pooled = {name.removeprefix(average): v for name, v in result.metrics.items() if name.startswith(average)}
        values = {**result.summary(), **pooled, "env_steps_of_evaluation": result.env_steps}
        log.append(self.epoch, env_steps, result.prefix, values)
        for name, numbers in result.per_task():
            log.append(self.epoch, env_steps, result.prefix, numbers, name)
        self.numbers.update({f"{result.prefix}/{name}": scalar(name, value) for name, value in values.items()})


def newest_numbers(run_dir: Path, epoch: int) -> dict[str, float]:
    """The newest of each number up to ``epoch``, by name as in ``EpochLog``; empty if they are gone or damaged."""
    try:
        rows = read_metrics(run_dir)
    except (FileNotFoundError, DamagedFileError):
        return {}
    # Times are added after callbacks have seen the others.
    rows = [r for r in rows if r["iteration"] <= epoch and r["task"] is None and r["phase"] != "time"]
    return {r["metric"] if r["phase"] == "train" else f"{r['phase']}/{r['metric']}": r["value"] for r in rows}


class RunnerServices(ABC):
    """Serves the algorithm that was set up; how a run begins, continues and ends is up to the subclass.

    Args:
        store: The run folder.
        seed: Seed of all rollouts.
        evaluator: Does ``evaluate``.
        callbacks: Notified of progress and evaluations.
    """

    def __init__(self, store: RunStore, seed: int, evaluator: Evaluator[Any], callbacks: Sequence[Any]) -> None:
        self._store = store
        self._seed = seed
        self._given_evaluator: Evaluator[Any] = evaluator
        self._evaluator: Evaluator[Any] = evaluator
        self._has_own_sampler = evaluator.test_task_sampler is not None
        self._callbacks = CallbackGroup(callbacks)
        self._env: Any = None
        self._source: RolloutSource | None = None
        self._args: TrainArgs | None = None
        self._step_itr = 0
        self._total_env_steps = 0
        self._log = EpochLog()
        self._progress = PhaseProgress()
        self._last_paths: Sequence[Any] = []
        self._last_evaluation: EvaluationResult | PolicyEvaluation | None = None

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self._seed

    @property
    def run_dir(self) -> Path | None:
        """Folder of the run."""
        return self._store.run_dir

    @property
    def step_itr(self) -> int:
        """Number of calls of ``obtain_samples`` and ``sample_parameters`` so far."""
        return self._step_itr

    @property
    def total_env_steps(self) -> int:
        """Environment steps of training so far (those of evaluations are not counted)."""
        return self._total_env_steps

    @property
    def last_paths(self) -> Sequence[Any]:
        """The rollouts of the last call, if training was started with ``store_paths``."""
        return self._last_paths

    @property
    def last_evaluation(self) -> EvaluationResult | PolicyEvaluation | None:
        """The newest result of ``evaluate``."""
        return self._last_evaluation

    @abstractmethod
    def step_epochs(self) -> Iterator[int]:
        """Epochs to run."""

    def obtain_samples(
        self,
        itr: int,
        batch_size: int | None = None,
        agent_update: Any = None,
        env_update: EnvUpdate | Sequence[EnvUpdate] | None = None,
        *,
        contexts: Sequence[Context | None] | None = None,
        num_rollouts: int | None = None,
        deterministic: bool = False,
        parameters: np.ndarray | None = None,
    ) -> Sequence[Any]:
        """Whole rollouts with at least ``batch_size`` steps (or exactly ``num_rollouts``); see ``Runner``.

        ``batch_size`` defaults to that of ``train``. The behavior policy is ``agent_update``, by default the
        ``exploration_policy`` of the algorithm, else its ``policy``; ``parameters`` replace its parameters. Seeds come
        from the runner's own counter; ``itr`` is for samplers that log it.

        Raises:
            ShapeError: ``parameters`` are neither ``(P,)`` nor a row for each ``env_update``; nothing was sampled.
        """
        source = self._require_setup("obtain_samples")
        if batch_size is None and num_rollouts is None and self._args is not None:
            batch_size = self._args.batch_size
        several = isinstance(env_update, Sequence)
        updates = list(env_update) if isinstance(env_update, Sequence) else [env_update]
        if not updates:
            raise ValueError("env_update must hold at least one update, got an empty list")
        if (batch_size is None) == (num_rollouts is None):
            raise ValueError(
                f"give either batch_size (here or in train) or num_rollouts, got {batch_size} and {num_rollouts}"
            )
        steps = None if batch_size is None else len(updates) * batch_size
        progress = self._count_rollouts(steps, len(updates) * (num_rollouts or 0))
        with named_as(_NAMES_HERE):
            request = SampleRequest(
                updates=updates,
                seed=self._seed,
                sub_seed=self._step_itr,
                min_steps=batch_size,
                num_rollouts=num_rollouts,
                contexts=contexts,
                deterministic=deterministic,
                parameters=parameters,
                progress=progress,
            )
        groups = source.obtain(request, itr, agent_update)
        result = groups if several else groups[0]
        self._count(groups, result)
        return result

    def obtain_in_parts(
        self,
        itr: int,
        batch_size: int,
        env_updates: Sequence[EnvUpdate],
        *,
        contexts: Sequence[Context | None] | None = None,
        missing: Sequence[int] | None = None,
    ) -> Iterator[tuple[Sequence[int], Sequence[Sequence[Any]]]]:
        """The result of one call of ``obtain_samples``, some variations at a time; see ``PartsRunner``.

        Parts take a few seconds each. Between them a snapshot is saved if the last is old.
        """
        source = self._require_setup("obtain_in_parts")
        left = list(range(len(env_updates)) if missing is None else missing)
        progress = self._count_rollouts(len(left) * batch_size, 0)
        with named_as(_NAMES_HERE):
            request = SampleRequest(
                updates=env_updates,
                seed=self._seed,
                sub_seed=self._step_itr,
                min_steps=batch_size,
                contexts=contexts,
                progress=progress,
            )
        size = max(1, math.ceil(len(left) / _PARTS_AT_FIRST))
        kept: list[Sequence[Any]] = []
        while left:
            part, left = left[:size], left[size:]
            started = time.perf_counter()
            groups = source.obtain(replace(request, only=part), itr)
            kept = [*kept, *groups] if self._args is not None and self._args.store_paths else kept
            self._count_steps(groups, kept)
            # Only time depends on how many run together.
            size = _next_size(size, time.perf_counter() - started)
            yield part, groups
            self._step_itr += not left  # the last part ends the call
            self._save_within_epoch()

    def advance(
        self,
        num_steps: int,
        *,
        num_slots: int = 1,
        env_updates: TaskSampler | Sequence[EnvUpdate] | None = None,
        parameters: np.ndarray | None = None,
        actions: Any = None,
        deterministic: bool = False,
    ) -> Rollouts:
        """Up to ``num_steps`` steps in each of ``num_slots`` rollouts that continue from call to call; see ``Runner``.

        Unfinished rollouts are part of snapshots: a resumed run continues in the middle of its episodes.

        Raises:
            ShapeError: ``parameters`` or ``actions`` have another shape; nothing was done.
            TypeError: ``env_updates`` is a sampler that can only draw from its own generator.
            ValueError: ``num_slots``, ``env_updates`` or ``deterministic`` differ from those of earlier calls; or
                ``parameters`` or ``actions`` are ragged, hold no real numbers, or NaN or Inf; nothing was done.
            ReplayError: After a resume, an environment does not reproduce what it did before.
        """
        source = self._require_setup("advance")
        request = LiveRequest(self._seed, num_slots, env_updates, deterministic)
        rollouts = source.advance(num_steps, request, parameters, actions)
        self._total_env_steps += int(rollouts.bounds[-1])
        if self._args is not None and self._args.store_paths:
            self._last_paths = list(rollouts)
        return rollouts

    def sample_parameters(
        self,
        param_sets: np.ndarray,
        *,
        num_domains: int = 1,
        num_init_states_per_domain: int = 1,
        deterministic: bool = True,
        fields: tuple[str, ...] | None = None,
    ) -> list[Sequence[Any]]:
        """Whole rollouts of the algorithm's policy with each of n parameter vectors: n lists; see ``Runner``.

        Domains come from what randomizes the environment that was set up (see ``ParameterExplorationSampler``).
        """
        source = self._require_setup("sample_parameters")
        stored = self._args is not None and self._args.store_paths
        explorer = source.explorer(num_domains, num_init_states_per_domain)
        explorer.seed = self._seed  # a restored run may have another seed
        groups = explorer.sample_groups(
            param_sets,
            eval=deterministic,
            number=self._step_itr,
            fields=None if stored else fields,
            progress=self._count_rollouts(None, len(param_sets) * explorer.num_rollouts_per_param),
        )
        self._count(groups, groups)
        return list(groups)

    def evaluate(self, algo: Any, task_sampler: Any = None) -> float:
        """Evaluate ``algo`` on held-out tasks; the result is in ``last_evaluation``.

        An algorithm that adapts gets a meta-test, and its mean return after adaptation is returned; otherwise the mean
        return of the policy, in the nominal environment if there are no tasks.

        Args:
            algo: The algorithm.
            task_sampler: Sampler of held-out tasks, unless the runner's evaluator was given one; ``None`` means the
                algorithm's ``test_env_sampler``.
        """
        source = self._require_setup("evaluate")
        evaluator = self._evaluator
        algo = as_algorithm(algo)
        task_sampler = algo.test_env_sampler if task_sampler is None else task_sampler
        self._bind_evaluator(algo, task_sampler)
        elsewhere = task_sampler is not evaluator.test_task_sampler and not self._has_own_sampler
        if task_sampler is not None and elsewhere:
            evaluator = evaluator.for_sampler(task_sampler)
        progress = functools.partial(self.progress, "evaluation")
        result = evaluator.evaluate(algo, engine=source.evaluation_engine, progress=progress)
        self._last_evaluation = result
        self._log.add_evaluation(self._store.metrics, self._total_env_steps, result)
        self._notify("on_evaluation", result)
        return result.score

    def log(self, metrics: Mapping[str, float]) -> None:
        """Write numbers to the run's metrics, in the phase ``train`` (or that of names ``<phase>/<metric>``)."""
        self._log.add(self._store.metrics, self._total_env_steps, metrics)

    def progress(self, phase: str, done: int, total: int) -> None:
        """Report progress; see ``Runner``. Callbacks are notified ten times a second at most."""
        if self._progress.say(phase, done, total):
            self._report_progress()

    def get_env_copy(self) -> Any:
        """A copy of the environment, as a worker would get it (from an id, constructor or update: one made by it)."""
        self._require_setup("get_env_copy")
        return cloudpickle.loads(cloudpickle.dumps(EnvSource.of(self._env))).make()

    def _report_progress(self) -> None:
        progress = self._progress
        self._notify("on_progress", progress.phase, progress.done, progress.total)

    def _count_rollouts(self, total_steps: int | None, total_rollouts: int) -> Callable[[int, int], None]:
        """The function that an engine calls with the numbers of new rollouts and steps; see ``PhaseProgress``."""
        if self._progress.expect_rollouts(total_steps, total_rollouts):
            self._report_progress()
        return self._add_rollouts

    def _add_rollouts(self, rollouts: int, steps: int) -> None:
        if self._progress.add(rollouts, steps):
            self._report_progress()

    def _count(self, groups: Sequence[Sequence[Any]], result: Sequence[Any]) -> None:
        """Count a call that sampled ``groups`` and returns ``result``."""
        self._step_itr += 1
        self._count_steps(groups, result)

    def _count_steps(self, groups: Sequence[Sequence[Any]], result: Sequence[Any]) -> None:
        self._total_env_steps += sum(map(_num_steps, groups))
        if self._args is not None and self._args.store_paths:
            self._last_paths = result

    @abstractmethod
    def _save_within_epoch(self) -> None:
        """Save a snapshot if the last one is old; the algorithm can continue from its data so far."""

    def _require_setup(self, caller: str) -> RolloutSource:
        if self._source is None:
            raise NotSetupError(
                f"{caller} needs setup(algo, env) first (to resume: the same as in the run's first part)"
            )
        return self._source

    def _bind_evaluator(self, algo: RLAlgorithm, task_sampler: Any = None) -> None:
        task_sampler = algo.test_env_sampler if task_sampler is None else task_sampler
        self._evaluator.bind(task_sampler, algo.evaluation_limit, algo.num_test_tasks)

    def _notify(self, event: str, *args: Any) -> bool:
        """Notify every callback; return whether one of them has answered ``False``."""
        return self._callbacks.notify(self, event, *args)


_NAMES_HERE = {"min_steps": "batch_size", "update": "env_update"}
"""Names of parts of a request in errors."""

_PARTS_AT_FIRST = 16
_PART_SECONDS = 5.0


def _next_size(size: int, seconds: float) -> int:
    """Number of variations to run together, after ``size`` of them took ``seconds``."""
    return max(1, round(size * min(4.0, max(0.25, _PART_SECONDS / max(seconds, 1e-6)))))


def _num_steps(group: Sequence[Any]) -> int:
    return group.num_steps if isinstance(group, Rollouts) else sum(map(_length, group))


def _length(rollout: Any) -> int:
    return len(rollout["rewards"]) if isinstance(rollout, Mapping) else len(rollout.rewards)
