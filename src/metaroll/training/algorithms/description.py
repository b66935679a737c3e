"""What an algorithm says of itself: its name, its options, its presets, and how it is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from metaroll.training.algorithms.options import Option, constructor_options

if TYPE_CHECKING:
    import numpy as np

    from metaroll.types import EnvUpdate

__all__ = ["AlgorithmDescription", "BuildOptions", "setup_of"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What an algorithm is built from.

    Attributes:
        env: Name of the environment or of the task family.
        values: A value for each of the algorithm's options, by name.
        seed: Seed of networks and training.
        task_seed: Seed of the training and held-out tasks; ``None`` means ``seed``.
        hidden_sizes: Hidden layers of the networks.
        init: How weights are initialized.
        device: Where gradient steps run.
        epochs: How long training lasts; ``None`` where that is not known.
    """

    env: str
    values: Mapping[str, Any]
    seed: int = 0
    task_seed: int | None = None
    hidden_sizes: tuple[int, ...]
    init: str
    device: str = "cpu"
    epochs: int | None = None

    @property
    def seed_of_tasks(self) -> int:
        """Seed that tasks are drawn from."""
        return self.seed if self.task_seed is None else self.task_seed

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> BuildOptions:
        """The part of a run's configuration (sections ``run`` and ``algorithm``) that building needs."""
        run = config["run"]
        return cls(
            env=config["env"],
            values=config["algorithm"],
            seed=run["seed"],
            task_seed=run["task_seed"],
            hidden_sizes=tuple(run["hidden_sizes"]),
            init=run["init"],
            device=run["device"],
            epochs=run["epochs"],
        )


def setup_of(kind: type[T], values: Mapping[str, Any]) -> T:
    """The dataclass ``kind`` of options from ``values``, which may be of an older run that lacks some names."""
    return kind(**{field.name: values[field.name] for field in fields(kind) if field.name in values})  # pyright: ignore[reportArgumentType]


class AlgorithmDescription(ABC):
    """All that commands and other callers need to know of one algorithm; stateless.

    A module that defines one imports no learner at its top, so that names and presets can be listed at once.

    Attributes:
        name: What users call it.
        adapts: Whether it adapts to each task, and is evaluated before and after that.
        common: Option name -> value in every environment, where the constructor has no (or another) default.
        presets: Environment -> option values that are known to work there; they take the place of ``common``.
        follows_epochs: Options that a preset sets to the number of its epochs, and that follow the epochs of the run.
    """

    name: str
    adapts: bool = False
    common: Mapping[str, Any] = MappingProxyType({})
    presets: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    follows_epochs: tuple[str, ...] = ()

    # -- what it is ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def learner(self) -> type:
        """The documented class."""

    def option_sources(self) -> Sequence[tuple[type, Collection[str]]]:
        """What gives options beside ``learner``: classes, and names of theirs that do not count."""
        return ()

    def options(self, taken: Collection[str] = ()) -> list[Option]:
        """All options of the algorithm but those that are ``taken``."""
        options = constructor_options(self.learner(), "algorithm", skip=taken)
        for source, skips in self.option_sources():
            options += constructor_options(source, "algorithm", skip={*taken, *skips})
        return options

    def preset(self, env: str) -> dict[str, Any]:
        """Option name -> value in ``env``; without a preset for it ``common``."""
        return dict(self.presets.get(env, self.common))

    @property
    def metric(self) -> str:
        """The number that its evaluations are compared by."""
        return "return_after" if self.adapts else "return_mean"

    @property
    def phase(self) -> str:
        """Phase of ``metrics.jsonl`` that holds ``metric``."""
        return "MetaTest" if self.adapts else "Evaluation"

    def evaluator(self) -> type:
        """Class of its evaluator."""
        from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
        from metaroll.training.evaluation.policy_evaluator import PolicyEvaluator

        return MetaEvaluator if self.adapts else PolicyEvaluator

    # -- how it is built -----------------------------------------------------------------------------------------------

    @abstractmethod
    def sizes(self, env: str) -> Mapping[str, Any]:
        """Values of options that follow from the environment.

        Raises:
            ValueError: The algorithm cannot learn there.
        """

    @abstractmethod
    def tasks(self, given: BuildOptions, num_test: int | None = None) -> tuple[Any, list[EnvUpdate]]:
        """What to train in (``None``: the environment as it is), and held-out tasks (none: as it is).

        Args:
            given: Environment and options.
            num_test: Another number of held-out tasks than the options ask for.
        """

    @abstractmethod
    def build(self, given: BuildOptions, train: Any, test: Sequence[EnvUpdate]) -> Any:
        """The algorithm; all its randomness comes from the seed.

        Args:
            given: Environment and options.
            train: What ``tasks`` gave to train in.
            test: Held-out tasks.
        """

    def environment(self, given: BuildOptions, train: Any) -> Any:
        """What the runner is set up with: the environment as it is, or that of a family with its first task."""
        return train[0] if isinstance(train, list) else given.env

    # -- what is said of a run -----------------------------------------------------------------------------------------

    @abstractmethod
    def amount(self, algo: Any, values: Mapping[str, Any]) -> str:
        """What one epoch takes, or what the run needs, in a few words."""

    def notes(self, given: BuildOptions, epochs: int) -> list[str]:
        """What a user should know before ``epochs`` epochs are trained; usually nothing."""
        return []

    def summary_values(self, returns: np.ndarray, values: Mapping[str, Any]) -> dict[str, Any]:
        """Further numbers of an evaluation with these ``returns`` ``(tasks, episodes)``."""
        return {}

    def ended_early(self, algo: Any) -> tuple[int, str] | None:
        """After how many epochs the algorithm has ended by itself, and why; ``None`` if it has not."""
        return None
