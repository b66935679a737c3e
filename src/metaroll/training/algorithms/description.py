"""What an algorithm says of itself: its name, its options, and how it is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metaroll.envs.lookup.registry import is_varied
from metaroll.errors import option_text
from metaroll.training.algorithms.building import BuildOptions, env_sizes, training_tasks
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.types import EnvUpdate

__all__ = ["AlgorithmDescription", "Work"]


@dataclass(frozen=True)
class Work:
    """What a run does; rollouts are never cut, so that there may be more steps.

    Attributes:
        initial_steps: Environment steps before the first update.
        epoch_steps: Environment steps of each epoch.
        epoch_updates: Gradient steps of each epoch.
        initial: What the first of them are.
        at_most: Episodes are counted, and their steps as if each took all that it may.
    """

    initial_steps: int
    epoch_steps: int
    epoch_updates: int
    initial: str = "after {} initial steps"
    at_most: bool = False

    def epochs_for(self, env_steps: int) -> int:
        """The fewest epochs that take ``env_steps``, at least one."""
        return max(1, -(-(env_steps - self.initial_steps) // self.epoch_steps))


class AlgorithmDescription(ABC):
    """All that commands and other callers need to know of one algorithm; stateless.

    As it is, it describes one that does not adapt, in one environment, in random domains of it, or in the tasks of a
    family, as options ``randomize``, ``randomize_param``, ``num_train_tasks`` and ``num_test_tasks`` say.

    Attributes:
        name: What users call it.
        learner: The documented class.
        adapts: Whether it adapts to each task, and is evaluated before and after that.
        follows_epochs: Options that a preset sets to the number of its epochs, and that follow the epochs of the run.
        seen_hint: What to do where policies see more than an environment shows as it is (see ``seen_env``).
    """

    name: ClassVar[str]
    learner: ClassVar[type]
    adapts: ClassVar[bool] = False
    follows_epochs: ClassVar[tuple[str, ...]] = ()
    seen_hint: ClassVar[str] = ""

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def metric(self) -> str:
        """The number that its evaluations are compared by."""
        return "return_after" if self.adapts else "return_mean"

    @property
    def phase(self) -> str:
        """Phase of ``metrics.jsonl`` that holds ``metric``."""
        return "MetaTest" if self.adapts else "Evaluation"

    @property
    def evaluator(self) -> type[MetaEvaluator | PolicyEvaluator]:
        """Class of its evaluator."""
        return MetaEvaluator if self.adapts else PolicyEvaluator

    def settled(self, values: Mapping[str, Any], given: Collection[str]) -> Mapping[str, Any]:
        """Values that follow from those of other options, unless they are ``given``; by default none.

        Args:
            values: A value for each option of a run.
            given: Names of the options that somebody gave a value for.
        """
        return {}

    def idle(self, env: str, values: Mapping[str, Any]) -> dict[str, str]:
        """Options that change nothing, beside those whose fields say so: name -> why.

        Args:
            env: Name of the environment.
            values: A value for each option of a run.
        """
        found: dict[str, str] = {}
        if not self.adapts and not is_varied(env):
            found["num_train_tasks"] = f"{env} is one environment, without tasks"
            if values.get("randomize", "none") == "none" and not values.get("randomize_param"):
                varies = option_text("randomize_param", ["NAME=LOW:HIGH"])
                why = f"nothing varies in {env}; say what does, {varies}"
                found |= dict.fromkeys(("num_test_tasks", "tasks_per_epoch"), why)
        return found

    # -- how it is built -----------------------------------------------------------------------------------------------

    def sizes(self, env: str) -> Mapping[str, Any]:
        """Values of options that follow from the environment.

        Raises:
            ValueError: The algorithm cannot learn there.
        """
        return env_sizes(env)

    def tasks(self, given: BuildOptions, num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
        """What to train in (``None``: the nominal environment), and held-out tasks (none: as it is).

        Args:
            given: Environment and options.
            num_test: Another number of held-out tasks than the options ask for.
        """
        return training_tasks(given, num_test)

    @abstractmethod
    def build(self, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> Any:
        """The algorithm; all its randomness comes from the seed.

        Args:
            given: Environment and options.
            train: What ``tasks`` gave to train in.
            test: Held-out tasks.
        """

    def environment(self, given: BuildOptions, train: Any) -> Any:
        """What the runner is set up with: the nominal environment, or that of a family with its first task."""
        return train[0] if isinstance(train, list) else given.env

    def seen_env(self, env: Any, config: Mapping[str, Any]) -> Any:
        """An environment of one task, as policies of the algorithm see it; by default itself.

        Args:
            env: The environment, which stays the caller's.
            config: Configuration of the run.
        """
        return env

    # -- what is said of a run -----------------------------------------------------------------------------------------

    @abstractmethod
    def amount(self, algo: Any, values: Mapping[str, Any]) -> str:
        """What one epoch takes, or what the run needs, in a few words."""

    @abstractmethod
    def work(self, values: Mapping[str, Any]) -> Work:
        """What a run does with these values of the algorithm's options."""

    def largest_batch(self, values: Mapping[str, Any]) -> int:
        """Maximum number of rows that pass the networks in one gradient step; 0 where none is taken."""
        return 0

    def notes(self, given: BuildOptions, epochs: int) -> list[str]:
        """What a user should know before ``epochs`` epochs are trained; usually nothing."""
        return []

    def summary_values(self, returns: np.ndarray, values: Mapping[str, Any]) -> dict[str, Any]:
        """Further numbers of an evaluation with these ``returns`` ``(tasks, episodes)``."""
        return {}

    def ended_early(self, algo: Any) -> tuple[int, str] | None:
        """After how many epochs the algorithm has ended by itself, and why; ``None`` if it has not."""
        return None
