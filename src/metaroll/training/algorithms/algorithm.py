"""The description of an algorithm: its name, its options, how it is built, and texts about its runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metaroll.checks import check_whole, described
from metaroll.config import Config
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import option_text
from metaroll.training.algorithms.building import BuildOptions, env_sizes, training_tasks
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.types import EnvUpdate

__all__ = ["API", "Algorithm", "Values", "Work"]

API = 1
"""Version of this interface; it changes when rows for an earlier version no longer work."""

Values = Mapping[str, Any]
"""A value for each option of a run, or of an algorithm, by name."""


@dataclass(frozen=True)
class Work:
    """The amount of work of a run. Rollouts are never cut, so there may be more steps.

    Attributes:
        initial_steps: Environment steps before the first update.
        epoch_steps: Environment steps of each epoch.
        epoch_updates: Gradient steps of each epoch.
        initial: Text about ``initial_steps``, with ``{}`` for the number.
        at_most: An epoch is a number of episodes, so ``epoch_steps`` is an upper bound.

    Raises:
        TypeError: A number is not an integer, or ``initial`` is not a string.
        ValueError: A number is too small (an epoch has at least one step), or ``initial`` has no ``{}`` for a number.
    """

    initial_steps: int
    epoch_steps: int
    epoch_updates: int
    initial: str = "after {} initial steps"
    at_most: bool = False

    def __post_init__(self) -> None:
        for name, low in (("initial_steps", 0), ("epoch_steps", 1), ("epoch_updates", 0)):
            check_whole(name, getattr(self, name), low)
        expected = f"initial must be a text with {{}} for a number of steps, got {described(self.initial)}"
        if not isinstance(self.initial, str):
            raise TypeError(expected)
        try:
            self.initial.format("1,000")
        except (LookupError, ValueError, AttributeError) as error:
            raise ValueError(expected) from error

    def epochs_for(self, env_steps: int) -> int:
        """The smallest number of epochs with at least ``env_steps`` steps; at least one."""
        return max(1, -(-(env_steps - self.initial_steps) // self.epoch_steps))


def _environment(given: BuildOptions, train: Any) -> Any:
    return train[0] if isinstance(train, list) else given.env


def _unchanged(env: Any, config: Values) -> Any:
    return env


def _no_settled_values(values: Values, given: Collection[str]) -> Values:
    return {}


def _no_batch(values: Values) -> int:
    return 0


def _no_notes(given: BuildOptions, epochs: int) -> list[str]:
    return []


def _no_numbers(returns: np.ndarray, values: Values) -> dict[str, Any]:
    return {}


def _not_ended(algo: Any) -> tuple[int, str] | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """Everything that commands and other callers need to know about one algorithm.

    The defaults describe an algorithm that does not adapt. It trains in one environment, in random domains of it, or in
    the tasks of a family, by the options ``randomize``, ``randomize_param``, ``num_train_tasks`` and
    ``num_test_tasks``.

    Attributes:
        name: Its name for users.
        configs: Classes of its options; if two have the same field, the first one counts.
        learner: The documented class.
        build: Builds the learner from the environment and options, the training tasks (the first result of ``tasks``),
            and the held-out tasks. All its randomness comes from the seed.
        work: The amount of work of a run with these values of the algorithm's options.
        amount: The size of an epoch of a learner, or of the run, in a few words; what ``work`` has is shown anyway.
        api: Version of the interface that the row was written for (``API``); rows of metaroll may leave it out.
        purpose: The purpose of the algorithm, in a few words that follow its name.
        filled: Names of fields of the configs that ``build`` sets itself, so that they are not options.
        common: Option name -> value, for options whose config has no default or another one.
        presets: Name of an environment -> values that are known to work there, instead of ``common``.
        adapts: Whether it adapts to each task, and is evaluated before and after that.
        sizes: Values of options that follow from an environment; raises ``ValueError`` if the algorithm cannot learn
            there.
        tasks: The training tasks (``None``: the nominal environment), and the held-out tasks (if empty, evaluations use
            the nominal environment). The second argument replaces the number of held-out tasks of the options, unless
            it is ``None``.
        environment: The environment of the runner: the nominal environment, or that of a family with its first task.
            Evaluations do not use it, but the user's environment or held-out tasks, and for a learner that adapts its
            ``evaluation_env``. So it may vary the training (e.g. draw domains at every reset), but must not change
            spaces, rewards or endings, which define returns; an environment that does is the user's own, or a family
            (entry point ``metaroll.environments``).
        seen_env: Wraps an environment of one task as policies of the algorithm see it; the environment remains the
            caller's to close. The second argument is the configuration of the run.
        seen_hint: The hint for callers if policies see more than the environment itself shows.
        settled: Values that follow from those of other options, unless they were set (their names are the second
            argument).
        follows_epochs: Options that a preset sets to the number of its epochs, and that follow the epochs of the run.
        largest_batch: Maximum number of rows that pass the networks in one gradient step; 0 without gradient steps.
        notes: Notes for the user before training for this number of epochs; usually empty.
        summary_values: Further numbers of an evaluation with returns ``(tasks, episodes)``.
        ended_early: Number of epochs after which a learner has stopped on its own, and the reason; ``None`` if it has
            not.
    """

    name: str
    configs: tuple[type[Config], ...]
    learner: type
    build: Callable[[BuildOptions, Any, Sequence[EnvUpdate]], Any]
    work: Callable[[Values], Work]
    amount: Callable[[Any, Values], str]
    api: int | None = None
    purpose: str = ""
    filled: Collection[str] = ()
    common: Values = field(default_factory=dict)
    presets: Mapping[str, Values] = field(default_factory=dict)
    adapts: bool = False
    sizes: Callable[[EnvSource], Values] = env_sizes
    tasks: Callable[[BuildOptions, int | None], tuple[Any, list[EnvUpdate]]] = training_tasks
    environment: Callable[[BuildOptions, Any], Any] = _environment
    seen_env: Callable[[Any, Values], Any] = _unchanged
    seen_hint: str = ""
    settled: Callable[[Values, Collection[str]], Values] = _no_settled_values
    follows_epochs: tuple[str, ...] = ()
    largest_batch: Callable[[Values], int] = _no_batch
    notes: Callable[[BuildOptions, int], list[str]] = _no_notes
    summary_values: Callable[[np.ndarray, Values], dict[str, Any]] = _no_numbers
    ended_early: Callable[[Any], tuple[int, str] | None] = _not_ended

    @property
    def evaluator(self) -> type[MetaEvaluator | PolicyEvaluator]:
        """Class of its evaluator."""
        return MetaEvaluator if self.adapts else PolicyEvaluator

    def idle(self, env: EnvSource, values: Values) -> dict[str, str]:
        """Options that have no effect, besides those whose fields declare it: name -> reason.

        Args:
            env: The environment.
            values: A value for each option of a run.
        """
        reasons: dict[str, str] = {}
        if not self.adapts and not env.is_varied:
            reasons["num_train_tasks"] = f"{env} is one environment, without tasks"
            if values.get("randomize", "none") == "none" and not values.get("randomize_param"):
                usual, own = option_text("randomize", "default"), option_text("randomize_param", ["NAME=LOW:HIGH"])
                why = f"nothing varies in {env}; define what does, by {usual} (systems of metaroll) or {own}"
                reasons |= dict.fromkeys(("num_test_tasks", "tasks_per_epoch"), why)
        return reasons
