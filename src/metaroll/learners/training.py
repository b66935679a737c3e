"""What learners share: the one loop over their epochs, and the tasks that they train in."""

from __future__ import annotations

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from metaroll.checks import check_whole
from metaroll.data.rollouts import Rollouts
from metaroll.errors import DivergedError
from metaroll.learners.base import RLAlgorithm
from metaroll.learners.runner import PartsRunner, Runner, as_runner
from metaroll.processing.on_policy import OnPolicyData
from metaroll.state import Parts, Saved, Stateful, parts
from metaroll.types import EnvSpec, EnvUpdate

__all__ = [
    "KNOWN_EPOCHS",
    "EpochLearner",
    "Learner",
    "Progress",
    "TrainingTasks",
    "episode_metrics",
    "horizon_of",
    "refuse_non_finite",
    "train",
]

Progress = Callable[[int, int], None]
"""Called as ``progress(done, total)`` while something runs."""

KNOWN_EPOCHS = 10
"""Moments that a given policy has count for so many epochs: so they stay in its own world, and follow in another."""


class Learner(Protocol):
    """What ``train`` needs of an ``RLAlgorithm``: ``collect`` and ``update``; all else has a default there."""

    test_env_sampler: Any
    training_return: str

    @property
    def cycles_per_epoch(self) -> int: ...
    @property
    def evaluate_every(self) -> Any: ...
    @property
    def converged(self) -> bool: ...
    @property
    def warming_up(self) -> bool: ...

    def collect(self, runner: Any) -> Any:
        """Rollouts of one cycle, or what was made of them.

        Args:
            runner: A ``PartsRunner``.
        """
        ...

    def update(self, collected: Any, /, progress: Progress | None = None) -> Mapping[str, float]:
        """Learn from them; numbers for the log.

        Args:
            collected: What ``collect`` returned.
            progress: Called as ``progress(done, total)``, in gradient steps or cycles, now and then.
        """
        ...

    def begin_epoch(self) -> None: ...
    def end_epoch(self, numbers: Mapping[str, float]) -> Mapping[str, float]: ...


def train(learner: Learner, runner: Runner) -> float | None:
    """Train for the epochs of ``runner``, or until the learner has ``converged``.

    An epoch is ``cycles_per_epoch`` times ``collect`` and ``update``. An evaluation follows every
    ``evaluate_every`` epochs, unless the learner is still ``warming_up``.

    Args:
        learner: What learns.
        runner: Gives epochs, rollouts, evaluation and logging.

    Returns:
        Average return of the last evaluation; where there was none, that of the last training rollouts, as the log
        has it under ``training_return`` (``None`` if it does not).
    """
    driver = as_runner(runner)
    progress = _progress_of(learner, driver)
    average_return: float | None = None
    evaluated = False
    for epoch in driver.step_epochs():
        if learner.converged:  # asked here, so that the epoch before has been saved
            break
        learner.begin_epoch()
        numbers: Mapping[str, float] = {}
        for _ in range(learner.cycles_per_epoch):
            numbers = learner.update(learner.collect(driver), progress)
        numbers = learner.end_epoch(numbers)
        driver.log(numbers)
        if learner.evaluate_every and (epoch + 1) % learner.evaluate_every == 0 and not learner.warming_up:
            average_return, evaluated = driver.evaluate(learner, learner.test_env_sampler), True
        elif not evaluated:
            average_return = numbers.get(learner.training_return)
    return average_return


def _progress_of(learner: Learner, runner: PartsRunner) -> Progress:
    def progress(done: int, total: int) -> None:
        runner.progress("warm-up" if learner.warming_up else "updates", done, total)

    return progress


class EpochLearner(RLAlgorithm):
    """Collects rollouts in every epoch, learns from them, and evaluates after some of the epochs."""

    @abstractmethod
    def collect(self, runner: Runner) -> Any:
        """The rollouts of one epoch."""

    @abstractmethod
    def update(self, rollouts: Any, progress: Progress | None = None) -> Mapping[str, float]:
        """Learn from them; numbers for the log, ``return`` among them.

        Args:
            rollouts: What ``collect`` returned.
            progress: Called as ``progress(done, total)``, in gradient steps, now and then.
        """

    def train(self, runner: Runner) -> float | None:
        """See ``metaroll.learners.training.train``."""
        return train(self, runner)


def horizon_of(max_path_length: int | None, env_spec: EnvSpec) -> int:
    """``max_path_length``, or the time limit of the environment.

    Raises:
        ValueError: There is neither.
    """
    limit = env_spec.max_episode_length if max_path_length is None else max_path_length
    if limit is None:
        raise ValueError("max_path_length is missing: the environment has no time limit of its own")
    return check_whole("max_path_length", limit)


def episode_metrics(data: OnPolicyData) -> dict[str, float]:
    """What the log tells of all rollouts that are learned from."""
    returns = data.episode_returns
    return {
        "return": float(returns.mean()),
        "return_std": float(returns.std()),
        "episode_length": float(data.lengths.mean()),
        "episodes": float(len(returns)),
    }


def refuse_non_finite(
    numbers: Mapping[str, float], weights: Iterable[Tensor], epoch: int, learning_rate: float
) -> None:
    """``DivergedError`` if losses or weights hold NaN or Inf after ``epoch``, the first of which is 1."""
    if all(map(math.isfinite, numbers.values())) and all(bool(torch.isfinite(weight).all()) for weight in weights):
        return
    happened = f"losses or weights are not finite any more in epoch {epoch} ({dict(numbers)})"
    raise DivergedError.of(happened, {"learning_rate": learning_rate})


@runtime_checkable
class _SamplesTasks(Protocol):
    """What any sampler of tasks has."""

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]: ...


@runtime_checkable
class _DrawsTasks(Protocol):
    """What a ``TaskSampler`` has beside ``sample``."""

    @property
    def updates(self) -> list[EnvUpdate] | None: ...

    def drawing(self) -> AbstractContextManager[Callable[[int, np.random.Generator], list[EnvUpdate]]]: ...


class TrainingTasks(Stateful):
    """Draws environment updates with replacement.

    A list is drawn from with a generator of its own, and so is a sampler with ``drawing`` (a ``TaskSampler``: see
    there) or whose ``sample`` takes a ``generator``. Of others the state goes into the snapshot if they have
    ``state_dict`` and ``load_state_dict``; one that has neither draws other variations after a resume.

    Args:
        source: A list of ``EnvUpdate``, or a sampler with ``sample(n_tasks, with_replacement)``; ``None`` means the
            environment as it is.
        seed: Seed of the generator.
    """

    def __init__(self, source: Any, seed: int) -> None:
        self._source: Any = list(source) if isinstance(source, list | tuple) else source
        if isinstance(self._source, list):
            if not self._source or not all(callable(update) for update in self._source):
                raise ValueError(f"task_sampler must be a sampler, or a list of at least one EnvUpdate, got {source!r}")
        elif source is not None and not isinstance(source, _SamplesTasks):
            raise TypeError(f"task_sampler must have sample(n_tasks), got {type(source).__name__}")
        self._generator = np.random.default_rng(seed)

    @property
    def source(self) -> Any:
        """The sampler, the list, or ``None``."""
        return self._source

    @property
    def listed(self) -> list[EnvUpdate] | None:
        """All that may be drawn, where there is a list of it; ``None`` where it is drawn without end."""
        if isinstance(self._source, list):
            return list(self._source)
        listed = self._source.updates if isinstance(self._source, _DrawsTasks) else None
        return None if listed is None else list(listed)

    def draw(self, count: int) -> list[EnvUpdate]:
        """``count`` updates."""
        source, generator = self._source, self._generator
        if isinstance(source, list):
            return [source[i] for i in generator.integers(len(source), size=count)]
        if isinstance(source, _DrawsTasks):
            with source.drawing() as draw:
                return list(draw(count, generator))
        if "generator" in inspect.signature(source.sample).parameters:
            return list(source.sample(count, with_replacement=True, generator=generator))
        return list(source.sample(count, with_replacement=True))

    def collect(
        self, runner: Runner, num_tasks: int, num_steps: int | None, num_rollouts: int | None, actor: Any = None
    ) -> Rollouts:
        """At least ``num_steps`` steps together, or ``num_rollouts``, in ``num_tasks`` variations (all alike in that).

        Args:
            runner: Who collects.
            num_tasks: How many to draw; where there is no source, rollouts are of the nominal environment.
            num_steps: Minimum number of steps.
            num_rollouts: Number of rollouts, a multiple of ``num_tasks``.
            actor: What acts instead of the policy of the learner.
        """
        if self._source is None:
            return Rollouts.of(runner.obtain_samples(runner.step_itr, num_steps, actor, num_rollouts=num_rollouts))
        least = None if num_steps is None else -(-num_steps // num_tasks)
        exact = None if num_rollouts is None else num_rollouts // num_tasks
        updates = self.draw(num_tasks)
        return Rollouts.joined(
            runner.obtain_samples(runner.step_itr, least, actor, env_update=updates, num_rollouts=exact)
        )

    @property
    def state_parts(self) -> Parts | None:
        """The generator, and the sampler where it has a state; ``None`` where nothing is drawn."""
        return None if self._source is None else parts(generator="_generator", sampler="_sampler")

    @property
    def _sampler(self) -> Saved | None:
        return self._source if isinstance(self._source, Saved) else None
