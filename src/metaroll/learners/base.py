"""Base classes of learners, ``RLAlgorithm`` and ``MetaRLAlgorithm`` (with adaptation to tasks), and the training loop.

A learner collects rollouts (``collect``) and learns from them (``update``); ``train`` is the loop over epochs. The
module also has the training tasks of learners, an adapter for drivers with less than a ``Runner``, and shared settings.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar, cast, final, runtime_checkable

import numpy as np

from metaroll.checks import check_whole, described
from metaroll.config import Config, Count, Positive, Was, Whole
from metaroll.errors import DivergedError
from metaroll.state import Parts, Saved, Stateful, parts

if TYPE_CHECKING:  # configs stand on this module, and load no torch
    from torch import Tensor

    from metaroll.data.rollouts import Rollouts
    from metaroll.processing.on_policy import OnPolicyData
    from metaroll.types import Context, EnvSpec, EnvUpdate, PartsRunner, Runner

__all__ = [
    "KNOWN_EPOCHS",
    "NOP",
    "AdamSteps",
    "AlgorithmInfo",
    "EpochLearner",
    "Evaluated",
    "ForeignRunner",
    "HasPosterior",
    "Learner",
    "MetaRLAlgorithm",
    "NewData",
    "Progress",
    "RLAlgorithm",
    "RolloutLimit",
    "ScaledActions",
    "TrainingTasks",
    "as_runner",
    "columns_read",
    "episode_metrics",
    "horizon_of",
    "reads",
    "refuse_non_finite",
    "train",
]

KNOWN_EPOCHS = 10
"""Weight, in epochs of data, of the observation moments that a user's policy comes with."""


Method = TypeVar("Method", bound=Callable[..., Any])


class Progress(Protocol):
    """Called as ``progress(done, total)`` by an ``update`` that takes long, in units of its choice."""

    def __call__(self, done: int, total: int, /) -> None: ...


@dataclass(frozen=True, kw_only=True)
class AlgorithmInfo:
    """Properties of an algorithm. Runners, evaluators and the command line use these instead of its class.

    Attributes:
        name: Name in messages, snapshots and reports.
        adapts: Whether it is a ``MetaRLAlgorithm``, to be evaluated after adaptation.
        adapts_again: Whether ``adapt_policy`` accepts policies that it returned, besides exploration policies.
        metric: Name of the main metric of its evaluations.
        deterministic_exploration: Whether its exploration policies may act without noise in an evaluation. PEARL's may,
            since their latent variable is still sampled; adaptation by score-function gradients needs noise.
        has_state: Whether it has ``state_dict`` and ``load_state_dict``, which snapshots need.
        inner_steps: Number of adaptation steps, each from new rollouts of the policy after the previous step.
    """

    name: str
    adapts: bool = False
    adapts_again: bool = False
    metric: str = "return_mean"
    deterministic_exploration: bool = True
    has_state: bool = False
    inner_steps: int = 1


class RLAlgorithm(ABC):
    """Turns rollouts into a better policy.

    Only ``train`` is abstract. Everything else has a default; a subclass sets the attribute, or defines a property.
    Snapshots need ``state_dict`` and ``load_state_dict``: a learner that is also ``Stateful`` declares their contents.

    Attributes:
        policy: The policy to evaluate; ``None`` for an algorithm that samples nothing.
        exploration_policy: Behavior policy of training; ``None`` means ``policy``.
        max_path_length: Maximum number of steps of a rollout. An algorithm with a policy needs it.
        max_eval_path_length: The same in evaluations; ``None`` means ``max_path_length``.
        n_eval_trajs: Default number of episodes of an evaluation; ``None`` leaves it to the evaluator.
        discount: Discount factor.
        env_spec: Spaces of the environment; ``None`` where the algorithm does not know them.
        train_tasks: Training tasks: a test task must not be among them. ``None`` means unknown.
        test_env_sampler: Task sampler of its evaluations; ``None`` means the nominal environment.
        num_test_tasks: Number of tasks to draw from that; ``None`` means all.
        evaluation_env: Constructor of the evaluation environment; ``None`` means the training environment.
        sampler_cls: garage sampler class to collect with; ``None`` means the rollout engine.
        converged: Whether further training changes nothing.
        arithmetic: Version of the arithmetic of its updates: raised when the same update rounds differently (or takes
            a different step), so that training does not continue across that change.
        log_is_complete: Whether the last log holds every metric that it will ever log: other names are unknown then.
        cycles_per_epoch: Collect-and-update cycles per epoch (for ``metaroll.learners.base.train``).
        evaluate_every: Evaluate every n epochs; 0 means never.
        warming_up: Whether it is still collecting data for its first gradient step; nothing is evaluated until then.
        training_return: Name of the return of training rollouts in its log.
    """

    policy: Any = None
    exploration_policy: Any = None
    arithmetic = 1
    test_env_sampler: Any = None
    evaluation_env: Any = None
    sampler_cls: Any = None
    # These have no annotation: type checkers would not let a subclass have a property of the name.
    max_path_length = cast("float | None", None)
    max_eval_path_length = cast("float | None", None)
    n_eval_trajs = cast("int | None", None)
    discount = 1.0
    env_spec = cast("EnvSpec | None", None)
    train_tasks = cast("Sequence[Any] | None", None)
    num_test_tasks = cast("int | None", None)
    converged = False
    log_is_complete = cast("bool", True)
    cycles_per_epoch = cast("int", 1)
    evaluate_every = cast("int", 0)
    warming_up = cast("bool", False)
    training_return = "return"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        order = cls.__mro__
        if Stateful in order and order.index(Stateful) > order.index(RLAlgorithm):
            raise TypeError(f"Stateful must come first among the bases of {cls.__name__}, or its buffers are not saved")

    @property
    def info(self) -> AlgorithmInfo:
        """Properties of the algorithm."""
        return AlgorithmInfo(name=type(self).__name__, has_state=isinstance(self, Saved))

    @abstractmethod
    def train(self, runner: Runner) -> float | None:
        """Train for the epochs of ``runner``; returns the last average return (``None`` if there is none).

        Args:
            runner: Provides epochs, rollouts, evaluation and logging: ``for epoch in runner.step_epochs(): ...
                runner.obtain_samples(runner.step_itr, ...)``. Its counters are read-only.
        """

    def begin_epoch(self) -> None:  # noqa: B027 (most keep nothing)
        """Called by ``metaroll.learners.base.train`` at the beginning of each epoch."""

    def end_epoch(self, numbers: Mapping[str, float]) -> Mapping[str, float]:
        """Called by ``metaroll.learners.base.train`` at the end of each epoch; returns the numbers to log.

        Args:
            numbers: The result of the last ``update`` of the epoch.
        """
        return numbers

    def buffers_state_dict(self, copy: bool = True) -> Mapping[str, Any] | None:
        """Collected data, which only the newest snapshot keeps; ``None`` if the algorithm has none.

        Args:
            copy: ``False`` allows views of its memory, for a caller that immediately writes them to a file.
        """
        return None

    def load_buffers_state_dict(self, tree: Mapping[str, Any]) -> None:
        """Restore ``buffers_state_dict``."""
        raise TypeError(f"{type(self).__name__} has no buffers: it needs load_buffers_state_dict(tree)")

    @property
    def evaluation_limit(self) -> float | None:
        """Maximum number of steps of a rollout in an evaluation."""
        return self.max_path_length if self.max_eval_path_length is None else self.max_eval_path_length

    def update_seconds(self) -> float | None:
        """Seconds per gradient step on this machine, timed on throw-away copies that leave the algorithm unchanged.

        ``None`` where the first epoch shows it soon enough.
        """
        return None

    def fingerprint(self) -> str | None:
        """A short text, equal for algorithms with the same construction, which can load each other's snapshots.

        ``None`` means that names, shapes and dtypes of ``state_dict`` decide.
        """
        return None


@final
class NOP(RLAlgorithm):
    """No optimization performed: an algorithm that samples nothing and leaves its policy unchanged."""

    def init_opt(self) -> None:
        """Does nothing."""

    def optimize_policy(self, paths: Sequence[Any]) -> None:
        """Does nothing.

        Args:
            paths: Collected rollouts.
        """

    def train(self, runner: Runner) -> None:
        """Does nothing: starts no epoch."""


class MetaRLAlgorithm(RLAlgorithm):
    """An ``RLAlgorithm`` whose policy is adapted to a task from a few rollouts in it.

    If its policies hold a belief about their task, it also has the method of ``HasPosterior``.

    Attributes:
        adapts_again: Whether ``adapt_policy`` accepts policies that it returned, besides exploration policies: an
            evaluator that adapts after every episode then needs no new exploration policy each time. The result still
            depends on the given trajectories alone.
        deterministic_exploration: See ``AlgorithmInfo``; ``False`` where adaptation needs noise in actions.
        inner_steps: See ``AlgorithmInfo``; ``adapt_policy`` takes one of these steps.
    """

    adapts_again = False
    deterministic_exploration = True
    inner_steps = 1

    @property
    def info(self) -> AlgorithmInfo:
        """Properties of the algorithm."""
        return AlgorithmInfo(
            name=type(self).__name__,
            adapts=True,
            adapts_again=self.adapts_again,
            metric="return_after",
            deterministic_exploration=self.deterministic_exploration,
            has_state=isinstance(self, Saved),
            inner_steps=self.inner_steps,
        )

    @abstractmethod
    def get_exploration_policy(self) -> Any:
        """A policy to collect rollouts with, before adaptation to one task.

        Every call returns a new policy: use each in one task only. It is independent of the policy in training.
        """

    def get_exploration_policies(self, count: int) -> list[Any]:
        """``count`` exploration policies at once, for tasks that are explored in parallel.

        A subclass whose policies can share what adaptation does not change overrides this.
        """
        return [self.get_exploration_policy() for _ in range(count)]

    @abstractmethod
    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> Any:
        """The policy adapted to the task that the trajectories come from.

        Args:
            exploration_policy: The policy from ``get_exploration_policy()`` that collected the trajectories; in a
                meta-test with ``adapt_from="last"``, from the second round on, the policy that this method returned in
                the previous round. It is consumed: the caller must not use it afterwards.
            exploration_trajectories: Trajectories of one task (``TrajectoryBatch``, ``StepSequence``, or a sequence of
                either).
        """

    def adapt_policies(self, policies: Sequence[Any], batches: Sequence[Any]) -> list[Any]:
        """Policies adapted to many tasks; a subclass that can batch the computation overrides this.

        Args:
            policies: One per task, each a policy for ``adapt_policy``.
            batches: Trajectories of each task.

        Returns:
            The result of ``adapt_policy`` for each.
        """
        return [self.adapt_policy(policy, batch) for policy, batch in zip(policies, batches, strict=True)]


@runtime_checkable
class HasPosterior(Protocol):
    """An additional protocol of a ``MetaRLAlgorithm`` whose policies hold a belief about their task."""

    def posterior_divergence(self, policy: Any, other: Any = None) -> float | None:
        """KL divergence of an adapted policy's belief about its task from the prior, or from another's belief, in nats.

        Args:
            policy: From ``adapt_policy``; not modified.
            other: Another one; ``None`` means the prior.

        Returns:
            ``KL(posterior || prior)`` or ``KL(posterior || posterior of other)``; ``None`` where there is
            no posterior.
        """
        ...


def reads(*columns: str) -> Callable[[Method], Method]:
    """Declare which columns of rollouts a method reads; others need not be recorded for it.

    Args:
        columns: Their names.
    """

    def declared(method: Method) -> Method:
        vars(method)["columns"] = columns
        return method

    return declared


def columns_read(method: Callable[..., Any]) -> tuple[str, ...] | None:
    """The columns declared by ``reads``; ``None`` for a method without a declaration, which may read all."""
    return vars(method).get("columns")


# -------------------------------------------------------------------------------------- the one loop over epochs


class Learner(Protocol):
    """The part of ``RLAlgorithm`` that ``train`` uses: ``collect`` and ``update``; the rest has defaults there."""

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
        """Rollouts of one cycle, or data computed from them.

        Args:
            runner: A ``PartsRunner``.
        """
        ...

    def update(self, collected: Any, /, progress: Progress | None = None) -> Mapping[str, float]:
        """Learn from the collected data; returns numbers for the log.

        Args:
            collected: The result of ``collect``.
            progress: Called as ``progress(done, total)``, in gradient steps or cycles.
        """
        ...

    def begin_epoch(self) -> None: ...
    def end_epoch(self, numbers: Mapping[str, float]) -> Mapping[str, float]: ...


def train(learner: Learner, runner: Runner) -> float | None:
    """Train for the epochs of ``runner``, or until the learner has ``converged``.

    An epoch is ``cycles_per_epoch`` times ``collect`` and ``update``. An evaluation follows every
    ``evaluate_every`` epochs, unless the learner is still ``warming_up``.

    Args:
        learner: The learner.
        runner: Provides epochs, rollouts, evaluation and logging.

    Returns:
        Average return of the last evaluation; without any, that of the last training rollouts, logged under
        ``training_return`` (``None`` if it is not logged).
    """
    driver = as_runner(runner)
    progress = _progress_of(learner, driver)
    average_return: float | None = None
    evaluated = False
    for epoch in driver.step_epochs():
        if learner.converged:  # checked here, so that the previous epoch has been saved
            break
        learner.begin_epoch()
        numbers: Mapping[str, float] = {}
        for _ in range(learner.cycles_per_epoch):
            numbers = _checked_numbers(learner, "update", learner.update(learner.collect(driver), progress))
        numbers = _checked_numbers(learner, "end_epoch", learner.end_epoch(numbers))
        driver.log(numbers)
        if learner.evaluate_every and (epoch + 1) % learner.evaluate_every == 0 and not learner.warming_up:
            average_return, evaluated = driver.evaluate(learner, learner.test_env_sampler), True
        elif not evaluated:
            average_return = numbers.get(learner.training_return)
    return average_return


def _checked_numbers(learner: Learner, method: str, numbers: Any) -> Mapping[str, float]:
    """``numbers``, returned by a method for the log.

    Raises:
        TypeError: It is not a dict of name -> number.
    """
    wrong = [name for name in numbers if not isinstance(name, str)] if isinstance(numbers, Mapping) else [numbers]
    if wrong:
        got = f"the key {described(wrong[0])}" if isinstance(numbers, Mapping) else described(numbers)
        raise TypeError(
            f"{method} of {type(learner).__name__} must return numbers for the log, a dict of name -> number, got {got}"
        )
    return numbers


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
        """Learn from the rollouts; returns numbers for the log, with ``return`` where there is one.

        Args:
            rollouts: The result of ``collect``.
            progress: Called as ``progress(done, total)``, in gradient steps.
        """

    def train(self, runner: Runner) -> float | None:
        """See ``metaroll.learners.base.train``."""
        return train(self, runner)


def horizon_of(max_path_length: int | None, env_spec: EnvSpec) -> int:
    """``max_path_length``, or the time limit of the environment.

    Raises:
        ValueError: There is neither.
    """
    limit = env_spec.max_episode_length if max_path_length is None else max_path_length
    if limit is None:
        raise ValueError("max_path_length is missing: the environment has no time limit")
    return check_whole("max_path_length", limit)


def episode_metrics(data: OnPolicyData) -> dict[str, float]:
    """Metrics of the training rollouts."""
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
    """Raise ``DivergedError`` if losses or weights hold NaN or Inf after ``epoch`` (counted from 1)."""
    if all(map(math.isfinite, numbers.values())) and all(bool(weight.isfinite().all()) for weight in weights):
        return
    problem = f"losses or weights are no longer finite in epoch {epoch} ({dict(numbers)})"
    raise DivergedError.of(problem, {"learning_rate": learning_rate})


@runtime_checkable
class _SamplesTasks(Protocol):
    """Any task sampler."""

    def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]: ...


@runtime_checkable
class _DrawsTasks(Protocol):
    """Members of a ``TaskSampler`` besides ``sample``."""

    @property
    def updates(self) -> list[EnvUpdate] | None: ...

    def drawing(self) -> AbstractContextManager[Callable[[int, np.random.Generator], list[EnvUpdate]]]: ...


class TrainingTasks(Stateful):
    """Draws environment updates with replacement.

    The generator of this object draws from a list, from a sampler with ``drawing`` (see ``TaskSampler``), and from a
    sampler whose ``sample`` takes a ``generator``. For other samplers, the snapshot includes their ``state_dict``, if
    they have ``state_dict`` and ``load_state_dict``; without these, they draw different variations after a resume.

    Args:
        source: A list of ``EnvUpdate``, or a sampler with ``sample(n_tasks, with_replacement)``; ``None`` means the
            nominal environment.
        seed: Seed of the generator.
    """

    def __init__(self, source: Any, seed: int) -> None:
        self._source: Any = list(source) if isinstance(source, list | tuple) else source
        if isinstance(self._source, list):
            if not self._source or not all(callable(update) for update in self._source):
                raise ValueError(f"task_sampler must be a sampler, or a list of at least one EnvUpdate, got {source!r}")
        elif source is not None and not (isinstance(source, _SamplesTasks) and callable(source.sample)):
            raise TypeError(f"task_sampler must have sample(n_tasks), got {type(source).__name__}")
        self._generator = np.random.default_rng(seed)

    @property
    def source(self) -> Any:
        """The sampler, the list, or ``None``."""
        return self._source

    @property
    def listed(self) -> list[EnvUpdate] | None:
        """All possible draws, where there is a list; ``None`` for an infinite set."""
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
        """At least ``num_steps`` steps in total, or ``num_rollouts``, spread evenly over ``num_tasks`` variations.

        Args:
            runner: Collects the rollouts.
            num_tasks: Number of variations to draw; without a source, the nominal environment is used.
            num_steps: Minimum number of steps.
            num_rollouts: Number of rollouts, a multiple of ``num_tasks``.
            actor: Behavior policy, instead of the learner's policy.

        Raises:
            ValueError: Neither ``num_steps`` nor ``num_rollouts`` is given, or both are.
        """
        from metaroll.data.rollouts import Rollouts  # here: it loads torch

        if (num_steps is None) == (num_rollouts is None):
            raise ValueError(f"give either num_steps or num_rollouts, got {num_steps} and {num_rollouts}")
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
        """The generator, and the sampler where it has a state; ``None`` without a source."""
        return None if self._source is None else parts(generator="_generator", sampler="_sampler")

    @property
    def _sampler(self) -> Saved | None:
        return self._source if isinstance(self._source, Saved) else None


# ------------------------------------------------------------------------------------------ third-party drivers


def as_runner(runner: Any) -> PartsRunner:
    """Adapts a runner that lacks ``progress`` or ``obtain_in_parts``."""
    complete = isinstance(runner, _ReportsProgress) and isinstance(runner, _CollectsInParts)
    return cast("PartsRunner", runner if complete else ForeignRunner(runner))


@runtime_checkable
class _ReportsProgress(Protocol):
    def progress(self, phase: str, done: int, total: int) -> None: ...


@runtime_checkable
class _CollectsInParts(Protocol):
    obtain_in_parts: Callable[..., Any]


@final
class ForeignRunner:
    """Adapter for a driver with epochs, rollouts, evaluation and log; progress is passed on if the driver takes it.

    Args:
        runner: The driver.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        if name == "_runner":  # during copying, before __init__
            raise AttributeError(name)
        return getattr(self._runner, name)

    def progress(self, phase: str, done: int, total: int) -> None:
        if isinstance(self._runner, _ReportsProgress):
            self._runner.progress(phase, done, total)

    def obtain_in_parts(
        self,
        itr: int,
        batch_size: int,
        env_updates: Sequence[EnvUpdate],
        *,
        contexts: Sequence[Context | None] | None = None,
        missing: Sequence[int] | None = None,
    ) -> Iterator[tuple[Sequence[int], Sequence[Any]]]:
        """Everything that is missing in one part, by ``obtain_samples``."""
        wanted = range(len(env_updates)) if missing is None else missing
        wanted_contexts = None if contexts is None else [contexts[m] for m in wanted]
        updates = [env_updates[m] for m in wanted]
        yield wanted, self._runner.obtain_samples(itr, batch_size, env_update=updates, contexts=wanted_contexts)


# ------------------------------------------------------------------------------- settings shared by several learners
@dataclass(frozen=True, kw_only=True)
class Evaluated(Config):
    """How often a learner is evaluated."""

    evaluate_every: Annotated[Count, "Evaluate every n epochs; 0 means never."] = 10


@dataclass(frozen=True, kw_only=True)
class RolloutLimit(Config):
    """How long rollouts are."""

    max_steps: Annotated[
        Whole | None,
        Was("max_path_length"),
        "Maximum number of steps of a rollout; null means the environment's time limit.",
    ] = None


@dataclass(frozen=True, kw_only=True)
class ScaledActions(Config):
    """Scaling of actions."""

    scale_actions: Annotated[bool, "Scale actions from [-1, 1] to the bounds of the action space, and clip them."] = (
        True
    )


@dataclass(frozen=True, kw_only=True)
class AdamSteps(Config):
    """Gradient steps with one learning rate."""

    learning_rate: Annotated[Positive, "Learning rate (Adam)."] = 1e-3
    max_grad_norm: Annotated[Positive | None, "Maximum gradient norm, over all networks; null does not limit it."] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class NewData(AdamSteps, RolloutLimit):
    """On-policy learning from the data of each epoch."""

    steps_per_epoch: Annotated[
        Whole, "Minimum number of environment steps per epoch; rollouts are completed, so there may be more."
    ] = 4000
    tasks_per_epoch: Annotated[
        Whole | None, "Variations drawn per epoch; null means one per full-length rollout that is needed."
    ] = None
    num_passes: Annotated[Whole, "Passes over the data of an epoch."] = 4
