"""What all searches share: states that are plain data, the best candidate so far, and ask and tell."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from metaroll import checks
from metaroll.config import described
from metaroll.errors import ShapeError
from metaroll.state import restored

__all__ = ["Search", "SearchState", "best_first", "checked_mean", "default_population", "restored_search"]


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """Where a search stands: arrays, numbers, and states of other searches (or tuples of them), saved as they are.

    Attributes:
        mean: Center of the next candidates ``(P,)``, float64.
        best: The best candidate so far ``(P,)``; the first mean before any was told.
        best_fitness: Its fitness; with random tasks or initial states luck is in it.
        generation: How often fitness was told.
        evaluations: How many candidates that were.
    """

    growing: ClassVar[tuple[str, ...]] = ()
    """Names of arrays whose first axis may have another length in another state of the same search."""

    mean: np.ndarray
    best: np.ndarray
    best_fitness: float = -math.inf
    generation: int = 0
    evaluations: int = 0

    @classmethod
    def completed(cls, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """What ``metaroll.state.tree_of`` gave in an earlier version, with the entries that states have had since."""
        return tree


StateT = TypeVar("StateT", bound=SearchState)


class Search(ABC, Generic[StateT]):
    """A search that maximizes a fitness: frozen settings, and functions of a state without any side effect.

    ``state = search.start(mean)``, then in turns ``candidates = search.ask(state, generator)`` and
    ``state = search.tell(state, candidates, fitness)``, until ``search.stop(state)`` names a reason. A candidate whose
    fitness is NaN ranks behind all others. ``search.recommended(state)`` is what to use of what was found;
    ``state.mean`` is where the search looks, and ``state.best`` the best candidate, which may have been lucky.
    """

    @abstractmethod
    def start(self, mean: Any) -> StateT:
        """The state of a search that begins at ``mean (P,)``.

        Raises:
            ShapeError: ``mean`` has another shape.
            ValueError: It is not finite, or does not suit the settings.
        """

    @abstractmethod
    def ask(self, state: StateT, generator: np.random.Generator) -> np.ndarray:
        """The candidates of one generation, float64 ``(K, P)``; fresh memory."""

    def tell(self, state: StateT, candidates: Any, fitness: Any) -> StateT:
        """The state after the candidates of ``ask`` were tried.

        Args:
            state: The state that they were asked of.
            candidates: Shape ``(K, P)``.
            fitness: The fitness of each ``(K,)``, more being better; NaN ranks last.

        Raises:
            ShapeError: Shapes do not fit.
            TypeError: ``learned`` gives no state.
            ValueError: The fitness of no candidate is a number.
        """
        rows = np.asarray(candidates, dtype=np.float64)
        values = checks.array_of("fitness", fitness, f"numbers ({len(rows)},)").astype(np.float64, copy=False)
        expected = (self.num_candidates(state), len(state.mean))
        if rows.shape != expected or values.shape != rows.shape[:1]:
            raise ShapeError(
                f"candidates must have shape {expected}, as ask gave them, and fitness ({expected[0]},), got "
                f"{rows.shape} and {values.shape}"
            )
        if np.isnan(values).all():
            raise ValueError(f"fitness must have a number for at least one of {len(values)} candidates, all are NaN")
        learned = self.learned(_with_best(state, rows, values), rows, values)
        if not isinstance(learned, SearchState):
            raise TypeError(
                f"learned of {type(self).__name__} must return the new state, a {type(state).__name__} "
                f"(dataclasses.replace(state, mean=...), say), got {checks.described(learned)}"
            )
        return learned

    @abstractmethod
    def num_candidates(self, state: StateT) -> int:
        """How many candidates the next ``ask`` gives."""

    @abstractmethod
    def learned(self, state: StateT, candidates: np.ndarray, fitness: np.ndarray) -> StateT:
        """``state``, whose best candidate and counters are up to date, after its ``candidates``."""

    def stop(self, state: StateT) -> tuple[str, ...]:
        """Names of the reasons to end the search; none is an empty tuple."""
        return ()

    @abstractmethod
    def spread(self, state: StateT) -> float:
        """Root mean square over the parameters of the standard deviation of the next candidates."""

    def seeded(self, state: StateT, seed: int) -> StateT:
        """``state``, which ``start`` has just given, for a search that draws beside ``ask``: from ``seed``.

        Args:
            state: What ``start`` gave.
            seed: Source of those draws, not negative.
        """
        return state

    def beginning(self, state: StateT, draw: np.random.Generator, std: float | None = None) -> np.ndarray:
        """Another point to begin at ``(P,)``: normal around ``state.mean``.

        Args:
            state: Of a search that has just begun.
            draw: Source of randomness.
            std: Standard deviation; ``None`` means ``spread``.
        """
        width = self.spread(state) if std is None else std
        return state.mean + width * draw.standard_normal(len(state.mean))

    def recommended(self, state: StateT) -> np.ndarray:
        """What to use of what was found ``(P,)``: the mean, but of searches that look elsewhere in the end."""
        return state.mean

    @property
    def begins_again(self) -> bool:
        """Whether a run that has ended is followed by another, which begins elsewhere."""
        return False

    def finished(self, state: StateT) -> tuple[int, np.ndarray]:
        """How many runs have ended, and the mean that the last of these has left ``(P,)``."""
        return 0, state.mean

    def leading(self, state: StateT) -> Any:
        """The state of the search that ``state.mean`` is of, for a search that is made of others."""
        return state

    def repetitions(self, state: StateT) -> float:
        """How many times the usual number of evaluations each candidate should get, at least 1."""
        return 1.0

    @property
    def measures_noise(self) -> bool:
        """Whether some candidates are asked twice, whose values must differ as by chance they do."""
        return False

    def numbers(self, state: StateT) -> dict[str, float]:
        """What a log should tell beside ``spread``."""
        return {}

    def described(self) -> str:
        """Settings as one line of text, by which snapshots are compared."""
        return described(self)


def default_population(num_params: int) -> int:
    """``4 + int(3 ln P)``, the usual size of a population in P dimensions (Hansen 2016, equation 48)."""
    return 4 + int(3.0 * math.log(num_params))


def best_first(fitness: np.ndarray) -> np.ndarray:
    """Positions of ``fitness (K,)`` from the highest to the lowest, NaN last; of equal ones the first comes first."""
    return np.argsort(-fitness, kind="stable")


def checked_mean(mean: Any) -> np.ndarray:
    """A copy of ``mean (P,)`` as float64.

    Raises:
        ShapeError: It has another shape, or no entry.
        ValueError: It is not finite.
    """
    found = np.array(checks.array_of("mean", mean, "numbers (P,)"), dtype=np.float64)
    if found.ndim != 1 or not found.size:
        raise ShapeError(f"mean must have shape (P,) with at least one parameter, got {found.shape}")
    if not np.isfinite(found).all():
        raise ValueError(f"mean must be finite, entry {int(np.flatnonzero(~np.isfinite(found))[0])} is not")
    return found


def _with_best(state: StateT, candidates: np.ndarray, fitness: np.ndarray) -> StateT:
    counters = {"generation": state.generation + 1, "evaluations": state.evaluations + len(fitness)}
    first = int(np.nanargmax(fitness))
    if fitness[first] > state.best_fitness:
        return replace(state, best=candidates[first].copy(), best_fitness=float(fitness[first]), **counters)
    return replace(state, **counters)


def restored_search(like: StateT, tree: Mapping[str, Any]) -> StateT:
    """The state that ``metaroll.state.tree_of`` was taken of.

    Args:
        like: A state of the same search in as many dimensions.
        tree: What ``tree_of`` gave.

    Raises:
        KeyError: An entry is missing.
        ShapeError: It is of a search of another size.
        TypeError: A number is none, or would lose something by its type here.
    """
    values: dict[str, Any] = {}
    tree = like.completed(tree)
    for field in fields(like):
        own, saved = getattr(like, field.name), tree[field.name]
        if isinstance(own, SearchState):
            values[field.name] = restored_search(own, saved)
        elif isinstance(own, tuple):
            values[field.name] = tuple(restored_search(own[0], saved[str(number)]) for number in range(len(saved)))
        elif field.name in like.growing:
            found = np.array(saved, dtype=own.dtype)
            if found.ndim != own.ndim or found.shape[1:] != own.shape[1:]:
                raise ShapeError(f"{field.name} must have shape (n, *{own.shape[1:]}), got {found.shape}")
            values[field.name] = found
        else:
            try:
                values[field.name] = restored(own, saved)
            except (ShapeError, TypeError) as error:
                raise type(error)(f"{field.name} {error}") from error
    return type(like)(**values)
