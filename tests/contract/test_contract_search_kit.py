"""``check_search`` passes on every search that is found, and fails on planted faults with the promise named.

These are ours, those of ``contrib``, and what is installed here.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from metaroll import contrib
from metaroll.contrib import PGPE, SNES, OpenAIES
from metaroll.functional import search as searches
from metaroll.functional.search.averaging import AveragedMean
from metaroll.functional.search.base import Search, SearchState, best_first, checked_mean
from metaroll.functional.search.cem import CEM
from metaroll.functional.search.cma import CMA
from metaroll.functional.search.finite_differences import ARS
from metaroll.functional.search.hill_climbing import HillClimb
from metaroll.functional.search.multi_start import MultiStart, Starts
from metaroll.functional.search.restarts import RestartedCMA
from metaroll.functional.search.reviewing import Reviewed
from metaroll.own_code import attribute_of, contributed, sort_declared
from metaroll.testing import ConformanceError, check_search
from metaroll.training.algorithms.plugin_lookup import SEARCHES

RESTLESS = CMA(tolfun=1e6)
"""One whose runs end after their first generations, so that its restarts happen within a few."""

SHORT_ROUNDS = Starts(starts=4, round_length=2)

CASES: dict[str, tuple[Callable[[], Search[Any]], dict[str, Any]]] = {
    "ARS": (ARS, {}),
    "ARS, the best": (lambda: ARS(num_directions=6, num_best=3), {}),
    "AveragedMean": (lambda: AveragedMean(search=CMA(), window=3), {}),
    "CEM": (lambda: CEM(population=8, best_frac=0.375, extra_std=0.0), {}),
    "CEM, full": (
        lambda: CEM(population=8, best_frac=0.375, covariance="full", extra_std=0.2, mirrored=True, elitism=True),
        {},
    ),
    "CMA": (CMA, {}),
    "CMA, separable": (lambda: CMA(separable=True, mirrored=True), {}),
    "CMA, noisy": (lambda: CMA(reevaluated=3, max_repetitions=4.0, elitism=True), {}),
    "CMA, bounded": (lambda: CMA(lower=-0.1, upper=0.3), {"lower": -0.1, "upper": 0.3}),
    "HillClimb": (HillClimb, {}),
    "HillClimb, sphere": (lambda: HillClimb(noise="sphere", plus=False), {}),
    "MultiStart": (lambda: MultiStart(search=CMA(population=4), rules=SHORT_ROUNDS), {}),
    "MultiStart, bipop": (
        lambda: MultiStart(search=RestartedCMA(cma=RESTLESS, rule="bipop"), rules=SHORT_ROUNDS),
        {"num_generations": 24},
    ),
    "MultiStart, CEM": (
        lambda: MultiStart(search=CEM(population=6, best_frac=0.5, extra_std=0.0), rules=SHORT_ROUNDS),
        {},
    ),
    "MultiStart, ARS": (lambda: MultiStart(search=ARS(), rules=SHORT_ROUNDS), {}),
    "OpenAIES": (OpenAIES, {}),
    "OpenAIES, one-sided": (lambda: OpenAIES(mirrored=False, shaping="standardized", weight_decay=0.01), {}),
    "PGPE": (PGPE, {}),
    "RestartedCMA": (lambda: RestartedCMA(cma=RESTLESS), {}),
    "RestartedCMA, bipop": (lambda: RestartedCMA(cma=RESTLESS, rule="bipop"), {}),
    "Reviewed": (lambda: Reviewed(search=RestartedCMA(cma=RESTLESS), reviews=2), {}),
    "SNES": (SNES, {}),
    "SNES, mirrored": (lambda: SNES(mirrored=True, population=7), {}),
}


INSTALLED = sort_declared([SEARCHES], contributed())[0]


@pytest.mark.parametrize("name", [*CASES, *INSTALLED])
def test_searches_keep_their_promises(name: str) -> None:
    make, options = CASES[name] if name in CASES else (attribute_of(INSTALLED[name].target, "search"), {})
    check_search(make, **options)


def test_every_search_has_a_case() -> None:
    rooms = (searches, contrib)
    names = [f"{room.__name__}.{module.name}" for room in rooms for module in pkgutil.iter_modules(room.__path__)]
    modules = [importlib.import_module(name) for name in names]
    kinds = {value.__name__ for module in modules for value in vars(module).values() if _is_search(value)}
    assert kinds == {name.partition(",")[0] for name in CASES}


def _is_search(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Search) and value is not Search


# ---- planted faults --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClimberState(SearchState):
    width: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Climber(Search[ClimberState]):
    """Honest: the best of six candidates becomes the mean, and the width shrinks."""

    population: int = 6
    memory: dict[str, Any] = field(default_factory=dict)

    def start(self, mean: Any) -> ClimberState:
        center = checked_mean(mean)
        return ClimberState(mean=center, best=center.copy())

    def num_candidates(self, state: ClimberState) -> int:
        return self.population

    def spread(self, state: ClimberState) -> float:
        return state.width

    def ask(self, state: ClimberState, generator: np.random.Generator) -> np.ndarray:
        return state.mean + state.width * generator.standard_normal((self.population, len(state.mean)))

    def learned(self, state: ClimberState, candidates: np.ndarray, fitness: np.ndarray) -> ClimberState:
        first = best_first(fitness)[0]
        return replace(state, mean=candidates[first].copy(), width=0.9 * state.width)


class GeneratorOfItsOwn(Climber):
    def ask(self, state: ClimberState, generator: np.random.Generator) -> np.ndarray:
        return super().ask(state, np.random.default_rng())


class GlobalGenerator(Climber):
    def ask(self, state: ClimberState, generator: np.random.Generator) -> np.ndarray:
        np.random.normal()
        return super().ask(state, generator)


class WidthOutsideTheState(Climber):
    """The counter of its width is a member, which no snapshot has."""

    def ask(self, state: ClimberState, generator: np.random.Generator) -> np.ndarray:
        asked = self.memory["asked"] = self.memory.get("asked", 0) + 1
        return super().ask(replace(state, width=state.width / asked), generator)


class ShrinksInPlace(Climber):
    def learned(self, state: ClimberState, candidates: np.ndarray, fitness: np.ndarray) -> ClimberState:
        state.mean[:] = candidates[best_first(fitness)[0]]
        return replace(state, mean=state.mean.copy())


class SortsInPlace(Climber):
    def tell(self, state: ClimberState, candidates: Any, fitness: Any) -> ClimberState:
        after = super().tell(state, candidates, fitness)
        if isinstance(fitness, np.ndarray):
            fitness.sort()
        return after


class KeepsRows(Climber):
    """Its mean is a view of the candidates."""

    def learned(self, state: ClimberState, candidates: np.ndarray, fitness: np.ndarray) -> ClimberState:
        return replace(state, mean=candidates[best_first(fitness)[0]], width=0.9 * state.width)


class OneMatrix(Climber):
    """Hands out the same memory in every generation."""

    def ask(self, state: ClimberState, generator: np.random.Generator) -> np.ndarray:
        buffer = self.memory.setdefault("buffer", np.zeros((self.population, len(state.mean))))
        buffer[:] = super().ask(state, generator)
        return buffer


@dataclass(frozen=True, kw_only=True)
class TextState(ClimberState):
    note: Any = None


class StateNoFileTakes(Climber):
    def start(self, mean: Any) -> ClimberState:
        begun = super().start(mean)
        return TextState(mean=begun.mean, best=begun.best, note=print)


@dataclass(frozen=True, kw_only=True)
class RoundedState(ClimberState):
    scale: int = 1


class Rounds(Climber):
    """Where it starts a field is an integer, and so it is when it comes back, whatever it was then."""

    def start(self, mean: Any) -> ClimberState:
        begun = super().start(mean)
        return RoundedState(mean=begun.mean, best=begun.best)

    def learned(self, state: Any, candidates: np.ndarray, fitness: np.ndarray) -> Any:
        return replace(super().learned(state, candidates, fitness), scale=state.scale * 0.7)


class Minimizes(Climber):
    def learned(self, state: ClimberState, candidates: np.ndarray, fitness: np.ndarray) -> ClimberState:
        return super().learned(state, candidates, -fitness)


class NaNFirst(Climber):
    def learned(self, state: ClimberState, candidates: np.ndarray, fitness: np.ndarray) -> ClimberState:
        weights = fitness - fitness.min()
        return replace(state, mean=weights @ candidates / weights.sum(), width=0.9 * state.width)


class TakesAnything(Climber):
    def tell(self, state: ClimberState, candidates: Any, fitness: Any) -> ClimberState:
        try:
            return super().tell(state, candidates, fitness)
        except ValueError:
            return state


class TakesAnyMean(Climber):
    def start(self, mean: Any) -> ClimberState:
        center = np.array(mean)
        return ClimberState(mean=center, best=center.copy())


class ArraysOnly(Climber):
    def tell(self, state: ClimberState, candidates: Any, fitness: Any) -> ClimberState:
        shift = 0.0 if isinstance(candidates, np.ndarray) else 1.0
        return super().tell(state, np.asarray(candidates) + shift, fitness)


class ForgetsTheBest(Climber):
    def learned(self, state: ClimberState, candidates: np.ndarray, fitness: np.ndarray) -> ClimberState:
        return replace(super().learned(state, candidates, fitness), best=candidates[-1].copy())


class SinglePrecision(Climber):
    def ask(self, state: ClimberState, generator: np.random.Generator) -> np.ndarray:
        return super().ask(state, generator).astype(np.float32)


PLANTED: dict[type[Climber], str] = {
    GeneratorOfItsOwn: "determinism",
    GlobalGenerator: "globals",
    WidthOutsideTheState: "pure",
    ShrinksInPlace: "mutation",
    SortsInPlace: "mutation",
    KeepsRows: "memory",
    OneMatrix: "memory",
    StateNoFileTakes: "round_trip",
    Rounds: "round_trip",
    Minimizes: "progress",
    NaNFirst: "bad_numbers",
    TakesAnything: "bad_numbers",
    TakesAnyMean: "bad_numbers",
    ArraysOnly: "forms",
    ForgetsTheBest: "best",
    SinglePrecision: "form",
}


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_planted_faults_are_named(kind: type[Climber]) -> None:
    before = np.random.get_state()
    with pytest.raises(ConformanceError, match=f"^{PLANTED[kind]}: ") as caught:
        check_search(kind)
    assert caught.value.rule == PLANTED[kind] and not re.search(r"\bnp\.|\n", caught.value.seen), "plain and short"
    np.random.set_state(before)


def test_candidates_beyond_the_bounds_are_named() -> None:
    match = r"^bounds: candidates of turn 0 leave the bounds \[-0.5, 0.5\]: -?[\d.]+ at \[\d, \d\]$"
    with pytest.raises(ConformanceError, match=match):
        check_search(Climber, lower=-0.5, upper=0.5)


def test_a_correct_search_passes_and_wrong_arguments_are_errors() -> None:
    check_search(Climber)
    with pytest.raises(TypeError, match="make must be a function that makes a search, got CMA"):
        check_search(CMA())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must return a Search, got 3 of type int"):
        check_search(lambda: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="num_generations"):
        check_search(Climber, num_generations=0)
