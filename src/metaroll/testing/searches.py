"""A conformance kit: is a search a set of pure functions of its state, which a snapshot can hold?"""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaroll.checks import check_whole, described, entry_text
from metaroll.data.compare import trees_equal
from metaroll.errors import ConformanceError
from metaroll.functional.search.base import Search, SearchState, restored_search
from metaroll.state import tree_of
from metaroll.testing.shared import check_factory, difference_of, globals_untouched, overwrite
from metaroll.training.store.files import load_tree, save_tree

__all__ = ["check_search"]


def check_search(
    make: Callable[[], Search[Any]],
    *,
    num_params: int = 4,
    num_generations: int = 12,
    lower: float = -math.inf,
    upper: float = math.inf,
    seed: int = 0,
) -> None:
    """Raise a ConformanceError unless a search keeps the promises of ``metaroll.functional.search.base.Search``.

    - ``form``: shapes, types and counters of states and candidates; reasons to stop are texts.
    - ``determinism``: searches made alike, given equal generators, give the same candidates and states.
    - ``pure``: what comes out depends on the arguments alone, not on calls before: ``ask`` and ``tell`` of an old
      state give the same again.
    - ``mutation``: no argument is changed, neither a state nor candidates, fitness or a mean.
    - ``memory``: candidates and means that the caller overwrites afterwards change no state.
    - ``round_trip``: a state that was written to files, as a snapshot is, and read by another search made alike
      continues with the same bits.
    - ``globals``: no global generator is moved.
    - ``forms``: lists are taken as arrays are.
    - ``bad_numbers``: a fitness of NaN or minus infinity ranks last and leaves no NaN behind; all NaN, shapes that do
      not fit, and a first mean that is not a vector of finite numbers, are a ValueError.
    - ``best``: ``state.best`` is the candidate with the highest fitness of all.
    - ``bounds``: candidates and what is recommended lie within ``lower`` and ``upper``.
    - ``progress``: what is recommended after ``num_generations`` is better than the start: fitness is maximized.

    Args:
        make: Makes the search; called several times.
        num_params: Number of parameters P.
        num_generations: How many generations each search runs, at least 2.
        lower, upper: Bounds that the search was made with, the same for all parameters.
        seed: For the draws of the kit.

    Raises:
        ConformanceError: A promise is broken.
        TypeError: ``make`` is not a function, or makes no ``Search``.
        ValueError: A number is below 1.
    """
    check_factory(make, "a function that makes a search", "check_search(lambda: CMA(sigma=0.3))")
    check_whole("num_params", num_params)
    check_whole("num_generations", num_generations, 2)
    search = make()
    if not isinstance(search, Search):
        raise TypeError(f"make() must return a Search, got {search!r} of type {type(search).__name__}")
    kit = _Kit(make, num_params, num_generations, lower, upper, seed)
    with globals_untouched("the search"):
        kit.check_all()


@dataclass(frozen=True)
class _Turn:
    """One generation: the state before it, candidates and their fitness, and the state after it."""

    before: Any
    candidates: np.ndarray
    fitness: np.ndarray
    after: Any


@dataclass
class _Kit:
    """The arguments of ``check_search``, and the checks."""

    make: Callable[[], Search[Any]]
    num_params: int
    num_generations: int
    lower: float
    upper: float
    seed: int

    def __post_init__(self) -> None:
        bounded = math.isfinite(self.lower) and math.isfinite(self.upper)
        self.width = self.upper - self.lower if bounded else 2.0
        self.middle = (self.lower + self.upper) / 2 if bounded else min(max(0.0, self.lower), self.upper)
        self.mean = np.full(self.num_params, self.middle)
        self.goal = self.middle + 0.25 * self.width * np.linspace(0.5, 1.0, self.num_params)

    def check_all(self) -> None:
        turns = self.run(self.make())
        self.check_form(self.make())
        self.compare(turns, self.run(self.make()), "determinism", "searches made alike differ", "seed what it draws")
        self.check_pure(turns)
        self.check_mutation(turns)
        self.check_memory(turns)
        self.check_round_trip(turns)
        self.check_forms(turns)
        self.check_bad_numbers(turns)
        self.check_results(turns)

    # -- running -------------------------------------------------------------------------------------------------------

    def fitness(self, candidates: np.ndarray) -> np.ndarray:
        """A paraboloid with its top, 0, at ``goal``."""
        return -np.square(candidates - self.goal).sum(axis=-1)

    def started(self, search: Search[Any]) -> Any:
        return search.seeded(search.start(self.mean), self.seed)

    def draw(self, generation: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, generation))

    def run(self, search: Search[Any], state: Any = None, first: int = 0) -> list[_Turn]:
        state = self.started(search) if state is None else state
        turns = []
        for generation in range(first, self.num_generations):
            kept = _saved(state)
            candidates = search.ask(state, self.draw(generation))
            rows, fitness = candidates.copy(), self.fitness(candidates)
            handed = fitness.copy()
            after = search.tell(state, candidates, handed)
            self._check_unchanged("ask or tell", kept, state)
            if not trees_equal([rows, fitness], [candidates, handed]):
                raise ConformanceError("mutation", "tell changed the candidates or the fitness of its caller")
            turns.append(_Turn(state, rows, fitness, after))
            state = after
        return turns

    def _check_unchanged(self, method: str, kept: dict[str, Any], state: Any) -> None:
        difference = difference_of(kept, _saved(state))
        if difference is not None:
            message = f"{method} changed the state that it was given: {difference}"
            raise ConformanceError("mutation", message, "return a new state: dataclasses.replace(state, ...)")

    def compare(
        self, expected: list[_Turn], turns: list[_Turn], rule: str, message: str, hint: str, first: int = 0
    ) -> None:
        for number, (a, b) in enumerate(zip(expected, turns, strict=True), first):
            for name, one, two in (
                ("candidates", a.candidates, b.candidates),
                ("the state", _saved(a.after), _saved(b.after)),
            ):
                difference = difference_of(one, two, name)
                if difference is not None:
                    raise ConformanceError(rule, f"{message}: in turn {number} {difference}", hint)

    # -- checks --------------------------------------------------------------------------------------------------------

    def check_form(self, search: Search[Any]) -> None:
        state = self.started(search)
        for generation in range(2):
            self._check_state(search, state, generation)
            count = search.num_candidates(state)
            candidates = search.ask(state, self.draw(generation))
            shape = (count, self.num_params)
            if not isinstance(candidates, np.ndarray) or (candidates.shape, candidates.dtype) != (shape, np.float64):
                message = f"ask must return a float64 array of shape {shape}, got {described(candidates)}"
                raise ConformanceError("form", message)
            if not np.isfinite(candidates).all():
                where = _first_entry(candidates, ~np.isfinite(candidates))
                raise ConformanceError("form", f"candidates of generation {generation} are not finite: {where}")
            state = search.tell(state, candidates, self.fitness(candidates))

    def _check_state(self, search: Search[Any], state: Any, generation: int) -> None:
        if not isinstance(state, SearchState):
            raise ConformanceError("form", f"a state must be a SearchState, got {type(state).__name__}")
        spread, reasons, recommended = search.spread(state), search.stop(state), search.recommended(state)
        wrong = {
            "mean": state.mean.shape != (self.num_params,) or state.mean.dtype != np.float64,
            "best": state.best.shape != (self.num_params,),
            "generation": state.generation != generation,
            "evaluations": (state.evaluations > 0) != (generation > 0),
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            raise ConformanceError(
                "form",
                f"{name} of the state after {generation} generations is {described(getattr(state, name))}",
                "tell of Search counts, and remembers the best: write learned, not tell",
            )
        if not (isinstance(spread, float) and math.isfinite(spread) and spread >= 0.0):
            raise ConformanceError("form", f"spread must be a finite number of at least 0, got {described(spread)}")
        if not (isinstance(reasons, tuple) and all(isinstance(reason, str) for reason in reasons)):
            raise ConformanceError("form", f"stop must return a tuple of names, got {reasons!r}")
        if np.shape(recommended) != (self.num_params,):
            message = f"recommended must have shape ({self.num_params},), got {described(recommended)}"
            raise ConformanceError("form", message)

    def check_pure(self, turns: list[_Turn]) -> None:
        """All turns again, the last first, by one search that has seen other states before."""
        search = self.make()
        self.run(search)
        for number, turn in reversed(list(enumerate(turns))):
            candidates = search.ask(turn.before, self.draw(number))
            after = search.tell(turn.before, turn.candidates, turn.fitness)
            again = _Turn(turn.before, candidates, turn.fitness, after)
            self.compare(
                [turn],
                [again],
                "pure",
                f"the state before turn {number}, with the same arguments again, gives something else",
                "keep in the state all that changes: the search itself is settings",
                number,
            )

    def check_mutation(self, turns: list[_Turn]) -> None:
        search = self.make()
        mean = self.mean.copy()
        search.start(mean)
        if not np.array_equal(mean, self.mean):
            raise ConformanceError("mutation", "start changed the mean that it was given")
        for number, turn in enumerate(turns):
            state = copy.deepcopy(turn.before)
            calls: dict[str, Callable[[], Any]] = {
                "spread": lambda state=state: search.spread(state),
                "recommended": lambda state=state: search.recommended(state),
                "stop": lambda state=state: search.stop(state),
                "numbers": lambda state=state: search.numbers(state),
                "beginning": lambda number=number, state=state: search.beginning(state, self.draw(number)),
                "finished": lambda state=state: search.finished(state),
            }
            for name, call in calls.items():
                call()
                self._check_unchanged(name, _saved(turn.before), state)

    def check_memory(self, turns: list[_Turn]) -> None:
        search, mean = self.make(), self.mean.copy()
        first = search.ask(turns[0].before, self.draw(0))
        search.ask(turns[0].before, self.draw(1))
        if not np.array_equal(first, turns[0].candidates):
            raise ConformanceError("memory", "asking again changes candidates that were returned; return fresh memory")
        state = search.seeded(search.start(mean), self.seed)
        overwrite(mean)
        again = []
        for number in range(self.num_generations):
            candidates = search.ask(state, self.draw(number))
            kept, fitness = candidates.copy(), self.fitness(candidates)
            after = search.tell(state, candidates, fitness)
            overwrite([candidates, fitness])
            again.append(_Turn(state, kept, fitness, after))
            state = after
        hint = "copy what a state keeps of candidates, fitness and means"
        self.compare(turns, again, "memory", "overwriting candidates, fitness or the first mean changes states", hint)

    def check_round_trip(self, turns: list[_Turn]) -> None:
        for number in sorted({1, self.num_generations // 2, self.num_generations - 1} - {0}):
            search = self.make()
            with tempfile.TemporaryDirectory() as folder:
                try:
                    save_tree(folder, "state", _saved(turns[number].before))
                    state = restored_search(self.started(search), load_tree(folder, "state"))
                except (TypeError, KeyError, ValueError) as error:
                    raise ConformanceError(
                        "round_trip",
                        f"the state before turn {number} does not come back from files: {error}",
                        "states hold arrays, numbers and states; name arrays that grow in `growing`",
                    ) from error
            difference = difference_of(_saved(turns[number].before), _saved(state))
            if difference is not None:
                raise ConformanceError("round_trip", f"the state before turn {number} comes back changed: {difference}")
            self.compare(
                turns[number:],
                self.run(search, state, number),
                "round_trip",
                "a search that continues from a saved state does something else",
                "keep in the state all that changes",
                number,
            )

    def check_forms(self, turns: list[_Turn]) -> None:
        search = self.make()
        for number, turn in enumerate(turns):
            after = search.tell(turn.before, turn.candidates.tolist(), turn.fitness.tolist())
            again = _Turn(turn.before, turn.candidates, turn.fitness, after)
            self.compare(
                [turn], [again], "forms", f"turn {number} with lists differs from arrays", "use np.asarray", number
            )

    def check_bad_numbers(self, turns: list[_Turn]) -> None:
        search = self.make()
        for number, turn in enumerate(turns):
            for bad in (math.nan, -math.inf):
                fitness = turn.fitness.copy()
                fitness[0] = bad
                if len(fitness) > 1:
                    state = search.tell(turn.before, turn.candidates, fitness)
                    self._check_finite(search, state, f"a fitness of {bad} in turn {number}")
            wrong: dict[str, tuple[Any, Any]] = {
                "a fitness that is NaN throughout": (turn.candidates, np.full(len(turn.fitness), math.nan)),
                "a fitness too few": (turn.candidates, turn.fitness[1:]),
                "a candidate too few": (turn.candidates[1:], turn.fitness[1:]),
                "candidates of another length": (turn.candidates[:, 1:], turn.fitness),
            }
            for what, arguments in wrong.items():
                try:
                    search.tell(turn.before, *arguments)
                except ValueError:
                    continue
                raise ConformanceError("bad_numbers", f"tell takes {what}; it must raise a ValueError")
        for mean in (np.zeros((2, self.num_params)), np.zeros(0), [math.nan] * self.num_params):
            try:
                search.start(mean)
            except ValueError:
                continue
            message = f"start takes the mean {entry_text(mean)}; it must raise a ValueError"
            raise ConformanceError("bad_numbers", message, "begin with checked_mean(mean)")

    def _check_finite(self, search: Search[Any], state: Any, what: str) -> None:
        tried = {"mean": state.mean, "best": state.best, "what is recommended": search.recommended(state)}
        for name, values in tried.items():
            if not np.isfinite(values).all():
                where = _first_entry(values, ~np.isfinite(values))
                raise ConformanceError("bad_numbers", f"after {what}, {name} is not finite: {where}")
        if math.isnan(state.best_fitness) or not np.isfinite(search.ask(state, self.draw(0))).all():
            raise ConformanceError("bad_numbers", f"after {what}, the next candidates or best_fitness are not finite")

    def check_results(self, turns: list[_Turn]) -> None:
        search = self.make()
        best = -math.inf
        for number, turn in enumerate(turns):
            recommended = search.recommended(turn.after)
            for name, values in (("candidates", turn.candidates), ("what is recommended", recommended)):
                outside = (values < self.lower) | (values > self.upper)
                if outside.any():
                    message = f"{name} of turn {number} leave the bounds [{self.lower}, {self.upper}]"
                    raise ConformanceError("bounds", f"{message}: {_first_entry(values, outside)}")
            best = max(best, float(turn.fitness.max()))
            if turn.after.best_fitness != best or float(self.fitness(turn.after.best)) != best:
                raise ConformanceError(
                    "best",
                    f"the best fitness so far is {best} after turn {number}, and the state has "
                    f"{turn.after.best_fitness} for {entry_text(turn.after.best)}",
                )
        begun, ended = (float(self.fitness(row)) for row in (self.mean, search.recommended(turns[-1].after)))
        if not ended > begun:
            raise ConformanceError(
                "progress",
                f"after {len(turns)} generations what is recommended has fitness {ended}, and the start had {begun}",
                "more fitness is better; settings with small steps need more of num_generations",
            )


def _first_entry(values: Any, wrong: np.ndarray) -> str:
    """The first wrong entry of an array, with its place; ``wrong`` marks these entries."""
    place = tuple(np.argwhere(wrong)[0].tolist())
    return f"{entry_text(np.asarray(values)[place])} at {list(place)}"


def _saved(state: SearchState) -> dict[str, Any]:
    try:
        return tree_of(state)
    except TypeError as error:
        raise ConformanceError(
            "round_trip", f"a state cannot be saved: {error}", "states hold arrays, numbers and states"
        ) from error
