"""Base class of searches: states as plain data, the best candidate so far, and ask and tell."""

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
    """State of a search: arrays, numbers, and states of other searches (or tuples of them), which are saved.

    Attributes:
        mean: Center of the next candidates ``(P,)``, float64.
        best: The best candidate so far ``(P,)``; the first mean before the first ``tell``.
        best_fitness: Its fitness; with random tasks or initial states, partly by chance.
        generation: Number of calls of ``tell``.
        evaluations: Number of candidates evaluated.
    """

    growing: ClassVar[tuple[str, ...]] = ()
    """Names of arrays whose first axis may have a different length in each state of the same search."""

    mean: np.ndarray
    best: np.ndarray
    best_fitness: float = -math.inf
    generation: int = 0
    evaluations: int = 0

    @classmethod
    def completed(cls, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """A tree from ``metaroll.state.tree_of`` of an earlier version, completed with entries added since."""
        return tree


StateT = TypeVar("StateT", bound=SearchState)


class Search(ABC, Generic[StateT]):
    """A search that maximizes a fitness: frozen settings, and pure functions of a state.

    ``state = search.start(mean)``, then repeatedly ``candidates = search.ask(state, generator)`` and
    ``state = search.tell(state, candidates, fitness)``, until ``search.stop(state)`` returns a reason. A candidate with
    fitness NaN ranks last. ``search.recommended(state)`` is the result to use; ``state.mean`` is the center of the
    search, and ``state.best`` the best candidate, which may have been lucky.
    """

    @abstractmethod
    def start(self, mean: Any) -> StateT:
        """The initial state at ``mean (P,)``.

        Raises:
            ShapeError: ``mean`` has the wrong shape.
            ValueError: It is not finite, or does not fit the settings.
        """

    @abstractmethod
    def ask(self, state: StateT, generator: np.random.Generator) -> np.ndarray:
        """The candidates of one generation, float64 ``(K, P)``, in new memory."""

    def tell(self, state: StateT, candidates: Any, fitness: Any) -> StateT:
        """The state after the candidates of ``ask`` were evaluated.

        Args:
            state: The state that ``ask`` was called with.
            candidates: Shape ``(K, P)``.
            fitness: The fitness of each ``(K,)``, higher is better; NaN ranks last.

        Raises:
            ShapeError: Shapes do not fit.
            TypeError: ``learned`` does not return a state.
            ValueError: All fitness values are NaN.
        """
        rows = np.asarray(candidates, dtype=np.float64)
        values = checks.array_of("fitness", fitness, f"numbers ({len(rows)},)").astype(np.float64, copy=False)
        expected = (self.num_candidates(state), len(state.mean))
        if rows.shape != expected or values.shape != rows.shape[:1]:
            raise ShapeError(
                f"candidates must have shape {expected}, as returned by ask, and fitness ({expected[0]},), got "
                f"{rows.shape} and {values.shape}"
            )
        if np.isnan(values).all():
            raise ValueError(f"fitness must have a number for at least one of {len(values)} candidates, all are NaN")
        learned = self.learned(_with_best(state, rows, values), rows, values)
        if not isinstance(learned, SearchState):
            raise TypeError(
                f"learned of {type(self).__name__} must return the new state, a {type(state).__name__} "
                f"(for example dataclasses.replace(state, mean=...)), got {checks.described(learned)}"
            )
        return learned

    @abstractmethod
    def num_candidates(self, state: StateT) -> int:
        """Number of candidates of the next ``ask``."""

    @abstractmethod
    def learned(self, state: StateT, candidates: np.ndarray, fitness: np.ndarray) -> StateT:
        """The updated ``state`` after ``candidates``; its best candidate and counters are already up to date."""

    def stop(self, state: StateT) -> tuple[str, ...]:
        """Names of the reasons to end the search; empty if there are none."""
        return ()

    @abstractmethod
    def spread(self, state: StateT) -> float:
        """Standard deviation of the next candidates, as root mean square over the parameters."""

    def seeded(self, state: StateT, seed: int) -> StateT:
        """An initial ``state`` with a seed, for a search that draws random numbers outside ``ask``.

        Args:
            state: The result of ``start``.
            seed: Seed of those draws, not negative.
        """
        return state

    def beginning(self, state: StateT, draw: np.random.Generator, std: float | None = None) -> np.ndarray:
        """Another starting point ``(P,)``, drawn normally around ``state.mean``.

        Args:
            state: An initial state.
            draw: Source of randomness.
            std: Standard deviation; ``None`` means ``spread``.
        """
        width = self.spread(state) if std is None else std
        return state.mean + width * draw.standard_normal(len(state.mean))

    def recommended(self, state: StateT) -> np.ndarray:
        """The result to use ``(P,)``: the mean, unless the search has moved on (restarts)."""
        return state.mean

    @property
    def begins_again(self) -> bool:
        """Whether the search has restarts: a run that has ended is followed by another."""
        return False

    def finished(self, state: StateT) -> tuple[int, np.ndarray]:
        """Number of completed runs, and the final mean of the last of them ``(P,)``."""
        return 0, state.mean

    def leading(self, state: StateT) -> Any:
        """The inner state that ``state.mean`` belongs to, for a search composed of others."""
        return state

    def repetitions(self, state: StateT) -> float:
        """Factor of the number of evaluations per candidate, at least 1."""
        return 1.0

    @property
    def measures_noise(self) -> bool:
        """Whether some candidates are evaluated twice to measure noise, which must then be independent."""
        return False

    def numbers(self, state: StateT) -> dict[str, float]:
        """Further numbers for the log, besides ``spread``."""
        return {}

    def described(self) -> str:
        """Settings as one line of text, which snapshots must match."""
        return described(self)


def default_population(num_params: int) -> int:
    """``4 + int(3 ln P)``, the default population size in P dimensions (Hansen 2016, equation 48)."""
    return 4 + int(3.0 * math.log(num_params))


def best_first(fitness: np.ndarray) -> np.ndarray:
    """Indices of ``fitness (K,)`` from the highest to the lowest, NaN last; ties keep their order."""
    return np.argsort(-fitness, kind="stable")


def checked_mean(mean: Any) -> np.ndarray:
    """A copy of ``mean (P,)`` as float64.

    Raises:
        ShapeError: It has the wrong shape, or no entries.
        ValueError: It is not finite.
    """
    center = np.array(checks.array_of("mean", mean, "numbers (P,)"), dtype=np.float64)
    if center.ndim != 1 or not center.size:
        raise ShapeError(f"mean must have shape (P,) with at least one parameter, got {center.shape}")
    if not np.isfinite(center).all():
        raise ValueError(f"mean must be finite, entry {int(np.flatnonzero(~np.isfinite(center))[0])} is not")
    return center


def _with_best(state: StateT, candidates: np.ndarray, fitness: np.ndarray) -> StateT:
    counters = {"generation": state.generation + 1, "evaluations": state.evaluations + len(fitness)}
    first = int(np.nanargmax(fitness))
    if fitness[first] > state.best_fitness:
        return replace(state, best=candidates[first].copy(), best_fitness=float(fitness[first]), **counters)
    return replace(state, **counters)


def restored_search(like: StateT, tree: Mapping[str, Any]) -> StateT:
    """The state saved by ``metaroll.state.tree_of``.

    Args:
        like: A state of the same search in the same number of dimensions.
        tree: The result of ``tree_of``.

    Raises:
        KeyError: An entry is missing.
        ShapeError: It belongs to a search of another size.
        TypeError: A value is not a number, or would lose precision in the type expected here.
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
            array = np.array(saved, dtype=own.dtype)
            if array.ndim != own.ndim or array.shape[1:] != own.shape[1:]:
                raise ShapeError(f"{field.name} must have shape (n, *{own.shape[1:]}), got {array.shape}")
            values[field.name] = array
        else:
            try:
                values[field.name] = restored(own, saved)
            except (ShapeError, TypeError) as error:
                raise type(error)(f"{field.name} {error}") from error
    return type(like)(**values)
