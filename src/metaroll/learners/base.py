"""What every learner offers: ``RLAlgorithm``, or ``MetaRLAlgorithm`` if it adapts to a task; and shared settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Protocol,
    Self,
    TypeVar,
    cast,
    final,
    overload,
    runtime_checkable,
)

from metaroll.config import Config, Count, Positive, Was, Whole, config_of
from metaroll.errors import option_name, option_text
from metaroll.state import Saved

if TYPE_CHECKING:
    from metaroll.learners.runner import Runner
    from metaroll.types import EnvSpec

__all__ = [
    "NOP",
    "AdamSteps",
    "AlgorithmInfo",
    "Checked",
    "ConfigField",
    "Evaluated",
    "HasPosterior",
    "MetaRLAlgorithm",
    "NewData",
    "RLAlgorithm",
    "RolloutLimit",
    "ScaledActions",
    "columns_read",
    "reads",
]

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class AlgorithmInfo:
    """What an algorithm is. Runners, evaluators and the command line ask for this, not for its class.

    Attributes:
        name: Name in messages, snapshots and reports.
        adapts: Whether it is a ``MetaRLAlgorithm``, to be judged after adaptation.
        adapts_again: Whether ``adapt_policy`` takes policies that it returned as well as exploration policies.
        metric: Name of the number that stands for an evaluation of it.
        deterministic_exploration: Whether its exploration policies may act without noise in an evaluation. PEARL's may,
            since their latent variable still is drawn; adaptation by score-function gradients needs noise.
        has_state: Whether it has ``state_dict`` and ``load_state_dict``, which snapshots need.
        inner_steps: How many steps its adaptation takes, each from new rollouts of the policy after the step before.
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

    Only ``train`` must be written. All else has a default; a subclass sets an attribute of the name, or has a property.
    Snapshots need ``state_dict`` and ``load_state_dict``: a learner that is ``Stateful``, too, declares what they hold.

    Attributes:
        policy: What acts; ``None`` for an algorithm that samples nothing.
        exploration_policy: What acts in training in its place; ``None`` means ``policy``.
        max_path_length: Maximum number of steps of a rollout. An algorithm with a policy needs it.
        max_eval_path_length: The same in evaluations; ``None`` means ``max_path_length``.
        n_eval_trajs: Episodes of an evaluation where nobody else says; ``None`` means as the evaluator has it.
        discount: Discount factor.
        env_spec: Spaces of the environment; ``None`` where the algorithm does not know them.
        train_tasks: Tasks that it learns in: a test task must not be among them. ``None`` means unknown.
        test_env_sampler: Task sampler of its evaluations; ``None`` means the nominal environment.
        num_test_tasks: Number of tasks to draw from that; ``None`` means all.
        evaluation_env: What makes the environment of its evaluations; ``None`` means that which it is trained in.
        sampler_cls: garage sampler class to collect with; ``None`` means the rollout engine.
        converged: Whether further training changes nothing.
        arithmetic: Which arithmetic its updates have: larger in a version in which the same update rounds otherwise
            (or takes another step), so that training does not go on across it.
        log_is_complete: Whether the last numbers that it logged are all that it ever logs: others are unknown then.
        cycles_per_epoch: How often an epoch collects and updates (for ``metaroll.learners.training.train``).
        evaluate_every: Evaluate after every so many epochs; 0 means never.
        warming_up: Whether it still collects what its first gradient step needs: nothing is evaluated meanwhile.
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

    @property
    def info(self) -> AlgorithmInfo:
        """What the algorithm is."""
        return AlgorithmInfo(name=type(self).__name__, has_state=isinstance(self, Saved))

    @abstractmethod
    def train(self, runner: Runner) -> float | None:
        """Train for the epochs of ``runner``; the last average return (``None`` where there is none).

        Args:
            runner: Gives epochs, rollouts, evaluation and logging: ``for epoch in runner.step_epochs(): ...
                runner.obtain_samples(runner.step_itr, ...)``. Its counters belong to it; nobody assigns them.
        """

    def begin_epoch(self) -> None:  # noqa: B027 (most keep nothing)
        """Begin an epoch of ``metaroll.learners.training.train``."""

    def end_epoch(self, numbers: Mapping[str, float]) -> Mapping[str, float]:
        """End an epoch of ``metaroll.learners.training.train``; its numbers for the log.

        Args:
            numbers: Those of the last update.
        """
        return numbers

    def buffers_state_dict(self, copy: bool = True) -> Mapping[str, Any] | None:
        """Collected data that only the newest snapshot keeps; ``None`` for an algorithm without any.

        Args:
            copy: ``False`` allows views, for whoever writes them to a file at once.
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
        """Seconds of one gradient step on this machine, timed on throw-away copies: nothing of the algorithm changes.

        ``None`` where the first epoch tells that soon enough.
        """
        return None

    def fingerprint(self) -> str | None:
        """A short text that is equal for algorithms built alike, between which a snapshot may be exchanged.

        ``None`` means that names, shapes and dtypes of ``state_dict`` tell.
        """
        return None


@final
class NOP(RLAlgorithm):
    """No optimization performed: an algorithm that samples nothing and leaves its policy as it is."""

    def init_opt(self) -> None:
        """Does nothing."""

    def optimize_policy(self, paths: Sequence[Any]) -> None:
        """Does nothing.

        Args:
            paths: Collected rollouts.
        """

    def train(self, runner: Runner) -> None:
        """Does nothing: no epoch is begun."""


class MetaRLAlgorithm(RLAlgorithm):
    """An ``RLAlgorithm`` whose policy is adapted to a task from a few rollouts in it.

    One whose policies believe something about their task also has the method of ``HasPosterior``.

    Attributes:
        adapts_again: Whether ``adapt_policy`` takes policies that it returned as well as exploration policies: an
            evaluator that adapts after every episode then need not ask for a new exploration policy each time. All
            that counts for the result still are the given trajectories.
        deterministic_exploration: See ``AlgorithmInfo``; ``False`` where adaptation lives on noise in actions.
        inner_steps: See ``AlgorithmInfo``; ``adapt_policy`` takes one of these steps.
    """

    adapts_again = False
    deterministic_exploration = True
    inner_steps = 1

    @property
    def info(self) -> AlgorithmInfo:
        """What the algorithm is."""
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

        Every call gives a policy of its own: use each in one task only. Nothing that is done with it changes the
        policy in training.
        """

    def get_exploration_policies(self, count: int) -> list[Any]:
        """``count`` exploration policies at once, for tasks that are explored side by side.

        A subclass whose policies can share what adaptation leaves as it is overrides this.
        """
        return [self.get_exploration_policy() for _ in range(count)]

    @abstractmethod
    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> Any:
        """The policy adapted to the task that the trajectories come from.

        Args:
            exploration_policy: A policy from ``get_exploration_policy()`` which made the trajectories; in a meta-test
                with ``adapt_from="last"`` from the second round on what this method returned in the round before. The
                caller gives it up: it must not be used after this call.
            exploration_trajectories: Trajectories of one task (``TrajectoryBatch``, ``StepSequence``, or a sequence of
                either).
        """

    def adapt_policies(self, policies: Sequence[Any], batches: Sequence[Any]) -> list[Any]:
        """Policies adapted to many tasks at once; a subclass that can do so in one computation overrides this.

        Args:
            policies: One for each task, as ``adapt_policy`` takes them.
            batches: Trajectories of each task.

        Returns:
            What ``adapt_policy`` would return for each.
        """
        return [self.adapt_policy(policy, batch) for policy, batch in zip(policies, batches, strict=True)]


@runtime_checkable
class HasPosterior(Protocol):
    """What a ``MetaRLAlgorithm`` whose policies believe something about their task has, beside all else."""

    def posterior_divergence(self, policy: Any, other: Any = None) -> float | None:
        """How far what an adapted policy believes about its task is from the prior, or from another's belief, in nats.

        Args:
            policy: From ``adapt_policy``; it is left as it is.
            other: Another one; ``None`` means the prior.

        Returns:
            ``KL(posterior || prior)`` or ``KL(posterior || posterior of other)``; ``None`` where there is
            no posterior.
        """
        ...


def reads(*columns: str) -> Callable[[Method], Method]:
    """Declare which columns of rollouts a method reads: others need not be recorded for it.

    Args:
        columns: Their names.
    """

    def declared(method: Method) -> Method:
        vars(method)["columns"] = columns
        return method

    return declared


def columns_read(method: Callable[..., Any]) -> tuple[str, ...] | None:
    """What was declared of a method by ``reads``; ``None`` for one of which nothing is known: it may read all."""
    return vars(method).get("columns")


@final
class ConfigField(Generic[T]):
    """Attribute of what has a ``config``: one of its fields, by the name that the documents have for it.

    Args:
        field: Name of the field; empty: that of the attribute.
        changes: It may be set, which makes another config, for ``settle``.
        shown: Gives what it is now, of its owner, where that is not the value of the field.
    """

    def __init__(self, field: str = "", *, changes: bool = False, shown: Callable[[Any], T] | None = None) -> None:
        self.field, self.changes, self.shown = field, changes, shown
        self.name = field
        """Name of the attribute."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.field = self.field or name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...

    def __get__(self, instance: Any, owner: type) -> Self | T:
        if instance is None:
            return self
        return getattr(instance.config, self.field) if self.shown is None else self.shown(instance)

    def __set__(self, instance: Any, value: T) -> None:
        if not self.changes:
            raise AttributeError(
                f"{self.name} of a {type(instance).__name__} stays as it was made: make another one, with "
                f"{option_text(self.name, value)}"
            )
        instance.settle(config_of(type(instance.config), instance.config, {self.name: value}))


@final
class Checked(Generic[T]):
    """Attribute that is checked whenever it is set, by the constructor, too; errors call it as it was given.

    Args:
        check: Gives the value of what it is set to, or raises; the first argument is the name, for errors.
        field: Attribute that it is another name of; empty: none.
    """

    def __init__(self, check: Callable[[str, Any], T], field: str = "") -> None:
        self.check, self.field = check, field
        self.name = field
        """Name of the attribute."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.field = self.field or name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...

    def __get__(self, instance: Any, owner: type) -> Self | T:
        return self if instance is None else vars(instance)[self.field]

    def __set__(self, instance: Any, value: T) -> None:
        vars(instance)[self.field] = self.check(option_name(self.name), value)


# ------------------------------------------------------------------------------- settings that several learners have
@dataclass(frozen=True, kw_only=True)
class Evaluated(Config):
    """How often a learner is evaluated."""

    evaluate_every: Annotated[Count, "Evaluate after every so many epochs; 0 means never."] = 10


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
    """What becomes of actions."""

    scale_actions: Annotated[
        bool, "Bring actions from [-1, 1] to the bounds of the action space, and clip them there."
    ] = True


@dataclass(frozen=True, kw_only=True)
class AdamSteps(Config):
    """Gradient steps of one learning rate."""

    learning_rate: Annotated[Positive, "Learning rate (Adam)."] = 1e-3
    max_grad_norm: Annotated[
        Positive | None, "Maximum norm of the gradient, of all networks together; null does not limit it."
    ] = None


@dataclass(frozen=True, kw_only=True)
class NewData(AdamSteps, RolloutLimit):
    """Learning from what an epoch has collected."""

    steps_per_epoch: Annotated[
        Whole, "Minimum number of environment steps per epoch; rollouts are never cut, so there may be more."
    ] = 4000
    tasks_per_epoch: Annotated[
        Whole | None, "Variations drawn per epoch; null means as many as full-length rollouts are needed."
    ] = None
    num_passes: Annotated[Whole, "Passes over the data of an epoch."] = 4
