"""CMA-ES: a normal distribution whose mean, covariance and step size follow the best candidates.

Equations are those of Hansen 2016, "The CMA Evolution Strategy: A Tutorial" (arXiv:1604.00772, version of 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from metaroll.checks import check_number, check_whole
from metaroll.errors import ShapeError, option_name
from metaroll.functional.search.base import Search, SearchState, best_first, checked_mean, default_population
from metaroll.functional.search.cma_constants import CMAConstants, cma_constants
from metaroll.functional.search.rank_noise import rank_noise
from metaroll.functional.search.sampling import normal_rows, reflected

__all__ = ["CMA", "SEPARABLE_ABOVE", "STOP_REASONS", "CMAState"]

SEPARABLE_ABOVE = 500
"""Number of parameters above which only the diagonal of the covariance is learned, unless it is said."""

STOP_REASONS = (
    "target",
    "maxiter",
    "maxfevals",
    "tolfun",
    "tolfunhist",
    "tolx",
    "tolupsigma",
    "conditioncov",
    "noeffectaxis",
    "noeffectcoord",
    "stagnation",
)
"""Names that ``CMA.stop`` gives (tutorial, section B.3, and pycma)."""

_HISTORY = 20_000  # generations that "stagnation" looks back at most
_TIME_FACTOR = 1.5  # alpha_t of Hansen et al. 2009: more repetitions where ranks are noise, and fewer where not


@dataclass(frozen=True, kw_only=True)
class CMAState(SearchState):
    """Where CMA-ES stands.

    Attributes:
        sigma, first_sigma: Step size now, and at first.
        population: Number of candidates K.
        covariance: ``(P, P)``, or its diagonal ``(P,)``.
        axes: Eigenvectors of the covariance as columns ``(P, P)``; ``(0, 0)`` for a diagonal one.
        scales: Roots of its eigenvalues ``(P,)``.
        decomposed: Generation after which both were computed.
        path, sigma_path: Evolution paths of covariance and step size ``(P,)``.
        best_history, median_history: Highest and median fitness of each generation, as far back as matters.
        fitness_range: Highest minus lowest fitness of the last generation.
        noise: Measure of noise of the ranking (smoothed); positive where noise counts.
        repetitions: How often each candidate should be evaluated, at present (with ``reevaluated``).
    """

    growing: ClassVar[tuple[str, ...]] = ("best_history", "median_history")

    sigma: float
    first_sigma: float
    population: int
    covariance: np.ndarray
    axes: np.ndarray
    scales: np.ndarray
    decomposed: int
    path: np.ndarray
    sigma_path: np.ndarray
    best_history: np.ndarray
    median_history: np.ndarray
    fitness_range: float = math.inf
    noise: float = 0.0
    repetitions: float = 1.0


@final
@dataclass(frozen=True, kw_only=True)
class CMA(Search[CMAState]):
    """(mu_w, lambda)-CMA-ES with active update, full or separable (Ros and Hansen 2008).

    Bounds: candidates outside are mirrored at the bounds, and the distribution learns from what they became, so that
    its mean never leaves the bounds.

    Noise: with ``reevaluated`` the first candidates are asked twice (at the end of ``ask``), and ranked by the mean of
    both; what changed in their ranks says whether noise decides (Hansen et al. 2009, UH-CMA-ES). If so,
    ``state.repetitions`` grows up to ``max_repetitions``, and from there on the step size.

    Attributes:
        sigma: Standard deviation of the first candidates.
        population: Number of candidates; ``None`` means 4 + int(3 ln P).
        separable: Learn the diagonal of the covariance only; ``None`` means above ``SEPARABLE_ABOVE`` parameters.
        active: Learn from the worse half, too, by negative weights. Full covariances with bounds do not: a step that
            was reflected says nothing of where not to go, and the step size would explode.
        mirrored: Draw candidates in pairs on both sides of the mean.
        elitism: The best candidate so far is one of each generation (and its step is cut to a usual length, Hansen
            2011, arXiv:1110.4181, equation 3).
        lower, upper: Bounds, a number or ``(P,)``.
        reevaluated: How many candidates are evaluated twice to measure noise; 0 means none.
        max_repetitions: Upper bound of ``state.repetitions``.
        target: Fitness that ends the search.
        max_generations, max_evaluations: Ends of the search; ``None`` means no end.
        tolfun: It ends where the best fitness of the last generations, and all of the last one, lie within this ...
        tolfunhist: ... or the former alone within this;
        tolx: where all standard deviations are below this times ``sigma``;
        tolupsigma: where the step size has grown by this times the largest axis: ``sigma`` was far too small;
        conditioncov: where the condition number of the covariance is above this.
    """

    sigma: float = 0.5
    population: int | None = None
    separable: bool | None = None
    active: bool = True
    mirrored: bool = False
    elitism: bool = False
    lower: Any = None
    upper: Any = None
    reevaluated: int = 0
    max_repetitions: float = 1.0
    target: float | None = None
    max_generations: int | None = None
    max_evaluations: int | None = None
    tolfun: float = 1e-11
    tolfunhist: float = 1e-12
    tolx: float = 1e-11
    tolupsigma: float = 1e20
    conditioncov: float = 1e14

    def __post_init__(self) -> None:
        check_number("sigma", self.sigma, 0.0, above_low=True)
        if self.population is not None:
            check_whole("population", self.population, 2)
        check_whole("reevaluated", self.reevaluated, 0, self.population)
        check_number("max_repetitions", self.max_repetitions, 1.0)
        for name, value in (("max_generations", self.max_generations), ("max_evaluations", self.max_evaluations)):
            if value is not None:
                check_whole(name, value)

    def start(self, mean: Any, *, sigma: float | None = None, population: int | None = None) -> CMAState:
        """See ``Search.start``.

        Args:
            mean: Shape ``(P,)``.
            sigma, population: Instead of those of the settings.
        """
        center = checked_mean(mean)
        n = len(center)
        self._check_bounds(center)
        if population is None:
            population = default_population(n) if self.population is None else self.population
        width = self.sigma if sigma is None else sigma
        diagonal = self.is_separable(n)
        return CMAState(
            mean=center,
            best=center.copy(),
            sigma=float(width),
            first_sigma=float(width),
            population=population,
            covariance=np.ones(n) if diagonal else np.eye(n),
            axes=np.zeros((0, 0)) if diagonal else np.eye(n),
            scales=np.ones(n),
            decomposed=0,
            path=np.zeros(n),
            sigma_path=np.zeros(n),
            best_history=np.zeros(0),
            median_history=np.zeros(0),
        )

    def beginning(self, state: CMAState, draw: np.random.Generator, std: float | None = None) -> np.ndarray:
        """See ``Search.beginning``; within the bounds, and anywhere between them if all are finite."""
        lower, upper = self.bounds(len(state.mean))
        if std is None and np.isfinite(lower).all() and np.isfinite(upper).all():
            return draw.uniform(lower, upper)
        return np.clip(super().beginning(state, draw, std), lower, upper)

    def is_separable(self, num_params: int) -> bool:
        """Whether only the diagonal of the covariance is learned for so many parameters."""
        return num_params > SEPARABLE_ABOVE if self.separable is None else self.separable

    def constants(self, state: CMAState) -> CMAConstants:
        """Weights and learning rates of ``state``."""
        return cma_constants(
            len(state.mean), state.population, state.covariance.ndim == 1, self._learns_from_worse(state)
        )

    def _learns_from_worse(self, state: CMAState) -> bool:
        bounded = self.lower is not None or self.upper is not None
        return self.active and not (bounded and state.covariance.ndim == 2)

    def num_candidates(self, state: CMAState) -> int:
        """``population``, and what is evaluated again."""
        return state.population + min(self.reevaluated, state.population)

    def ask(self, state: CMAState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``; the last ``reevaluated`` candidates are the first ones again."""
        normal = normal_rows(generator, state.population, len(state.mean), self.mirrored)  # eq. (38)
        normal *= state.scales
        steps = normal if state.covariance.ndim == 1 else normal @ state.axes.T  # eq. (39)
        steps *= state.sigma
        steps += state.mean  # eq. (40)
        rows = self._within_bounds(steps)
        if self.elitism and state.generation:
            rows[0] = state.best
        again = self.num_candidates(state) - len(rows)
        return np.concatenate([rows, rows[:again]]) if again else rows

    def spread(self, state: CMAState) -> float:
        """See ``Search.spread``."""
        diagonal = state.covariance if state.covariance.ndim == 1 else np.diagonal(state.covariance)
        return state.sigma * math.sqrt(float(diagonal.mean()))

    def repetitions(self, state: CMAState) -> float:
        """``state.repetitions``."""
        return state.repetitions

    @property
    def measures_noise(self) -> bool:
        """Whether ``reevaluated`` is set."""
        return self.reevaluated > 0

    def numbers(self, state: CMAState) -> dict[str, float]:
        """Step size, whether the covariance is diagonal, roots of its condition number, and noise where measured."""
        found = {
            "sigma": state.sigma,
            "separable": float(state.covariance.ndim == 1),
            "axis_ratio": float(state.scales.max() / state.scales.min()),
        }
        return found | ({"noise": state.noise, "repetitions": state.repetitions} if self.reevaluated else {})

    # -- learning ------------------------------------------------------------------------------------------------------

    def learned(self, state: CMAState, candidates: np.ndarray, fitness: np.ndarray) -> CMAState:
        constants, count = self.constants(state), state.population
        noise, repetitions, widened = state.noise, state.repetitions, 1.0
        if len(fitness) > count:
            noise, repetitions, widened = self._treated(state, fitness)
            again = len(fitness) - count
            fitness = np.concatenate([(fitness[:again] + fitness[count:]) / 2.0, fitness[again:count]])
        order = best_first(fitness)
        steps = (candidates[:count][order] - state.mean) / state.sigma  # y of eq. (39), the best first
        if self.elitism:
            self._shorten(state, steps)
        moved = constants.weights[: constants.num_parents] @ steps[: constants.num_parents]  # eq. (41)
        mean = state.mean + state.sigma * moved  # eq. (42) with c_m = 1

        cs, cc = constants.cs, constants.cc
        sigma_path = (1 - cs) * state.sigma_path + math.sqrt(cs * (2 - cs) * constants.mueff) * _whitened(
            state, moved
        )  # eq. (43)
        length = math.sqrt(float(sigma_path @ sigma_path))
        faded = math.sqrt(1 - (1 - cs) ** (2 * state.generation))  # generation counts from 1 here
        moving = length / faded < (1.4 + 2 / (len(mean) + 1)) * constants.chi  # h_sigma, below eq. (45)
        change = (cs / constants.damps) * (length / constants.chi - 1)
        sigma = state.sigma * math.exp(min(1.0, change)) * widened  # eq. (44)

        path = (1 - cc) * state.path
        if moving:
            path = path + math.sqrt(cc * (2 - cc) * constants.mueff) * moved  # eq. (45)
        covariance = self._covariance(state, constants, steps, path, 0.0 if moving else cc * (2 - cc))
        finite = fitness[np.isfinite(fitness)]
        told = finite if len(finite) else np.zeros(1)
        following = replace(
            state,
            mean=mean,
            sigma=sigma,
            covariance=covariance,
            path=path,
            sigma_path=sigma_path,
            best_history=np.append(state.best_history, told.max())[-_HISTORY:],
            median_history=np.append(state.median_history, np.median(told))[-_HISTORY:],
            fitness_range=float(told.max() - told.min()) if len(told) == len(fitness) else math.inf,
            noise=noise,
            repetitions=repetitions,
        )
        return _decomposed(following, constants)

    def _shorten(self, state: CMAState, steps: np.ndarray) -> None:
        """Cut steps, in place, to a length that a drawn one hardly ever has (Hansen 2011, equation 3)."""
        n = len(state.mean)
        lengths = np.sqrt(_squared_lengths(state, steps))
        usual = math.sqrt(n) + 2 * n / (n + 2)
        long = lengths > usual
        steps[long] *= (usual / lengths[long])[:, None]

    def _covariance(
        self, state: CMAState, constants: CMAConstants, steps: np.ndarray, path: np.ndarray, missed: float
    ) -> np.ndarray:
        """Eq. (47), with ``missed`` for the variance that a path without its last step lacks."""
        c1, cmu, weights, parents = constants.c1, constants.cmu, constants.weights, constants.num_parents
        kept = 1 + c1 * missed - c1 - cmu * float(weights.sum())
        scaled = cmu * weights
        if not self._learns_from_worse(state):
            scaled, steps = scaled[:parents], steps[:parents]
        elif parents < len(weights):
            lengths = _squared_lengths(state, steps[parents:])
            scaled[parents:] *= len(path) / np.maximum(lengths, 1e-30)  # eq. (46)
        if state.covariance.ndim == 1:
            squares = np.square(steps)
            return kept * state.covariance + c1 * np.square(path) + scaled @ squares
        rows = np.concatenate([steps, path[None]])
        # One product for the rank-one and the rank-mu update.
        covariance = (rows.T * np.append(scaled, c1)) @ rows
        covariance += kept * state.covariance
        return covariance

    def _treated(self, state: CMAState, fitness: np.ndarray) -> tuple[float, float, float]:
        """Noise, repetitions, and a factor for the step size (Hansen et al. 2009, algorithm 4)."""
        noise = rank_noise(fitness[: state.population], fitness[state.population :])
        if noise > 0.0:
            if state.repetitions < self.max_repetitions:
                return noise, min(_TIME_FACTOR * state.repetitions, self.max_repetitions), 1.0
            return noise, state.repetitions, 1.0 + 2.0 / (len(state.mean) + 10)
        return noise, max(state.repetitions / _TIME_FACTOR, 1.0), 1.0

    # -- bounds --------------------------------------------------------------------------------------------------------

    def _check_bounds(self, mean: np.ndarray) -> None:
        lower, upper = self.bounds(len(mean))
        if not (lower < upper).all():
            raise ValueError(
                f"{option_name('lower')} must lie below {option_name('upper')}, got {self.lower!r} and {self.upper!r}"
            )
        outside = (mean < lower) | (mean > upper)
        if outside.any():
            place = int(np.flatnonzero(outside)[0])
            raise ValueError(
                f"lower and upper must hold the mean between them, entry {place} is {mean[place]:g}, got "
                f"[{lower[place]:g}, {upper[place]:g}]"
            )

    def bounds(self, num_params: int) -> tuple[np.ndarray, np.ndarray]:
        ends = []
        for name, given, none in (("lower", self.lower, -math.inf), ("upper", self.upper, math.inf)):
            end = np.asarray(none if given is None else given, dtype=np.float64)
            if end.shape not in ((), (num_params,)):
                raise ShapeError(f"{name} must be a number or have shape ({num_params},), got {end.shape}")
            ends.append(np.broadcast_to(end, (num_params,)))
        return ends[0], ends[1]

    def _within_bounds(self, rows: np.ndarray) -> np.ndarray:
        if self.lower is None and self.upper is None:
            return rows
        return reflected(rows, *self.bounds(rows.shape[1]))

    # -- when to end ---------------------------------------------------------------------------------------------------

    def stop(self, state: CMAState) -> tuple[str, ...]:
        """Those of ``STOP_REASONS`` that hold, in their order."""
        if not state.generation:
            return ()
        n, deviations = len(state.mean), state.sigma * _deviations(state)
        look_back = 10 + math.ceil(30 * n / state.population)
        recent = state.best_history[-look_back:]
        flat = math.inf if len(recent) < look_back else float(np.ptp(recent))
        holds = {
            "target": self.target is not None and state.best_fitness >= self.target,
            "maxiter": self.max_generations is not None and state.generation >= self.max_generations,
            "maxfevals": self.max_evaluations is not None and state.evaluations >= self.max_evaluations,
            "tolfun": flat < self.tolfun and state.fitness_range < self.tolfun,
            "tolfunhist": flat < self.tolfunhist,
            "tolx": bool(max(deviations.max(), state.sigma * np.abs(state.path).max()) < self.tolx * state.first_sigma),
            "tolupsigma": state.sigma / state.first_sigma > self.tolupsigma * float(state.scales.max()),
            "conditioncov": float(state.scales.max()) ** 2 > self.conditioncov * float(state.scales.min()) ** 2,
            "noeffectaxis": _no_effect_of_axis(state),
            "noeffectcoord": bool((state.mean == state.mean + 0.2 * deviations).any()),
            "stagnation": _stagnates(state),
        }
        return tuple(name for name in STOP_REASONS if holds[name])


def _whitened(state: CMAState, step: np.ndarray) -> np.ndarray:
    """``C^(-1/2) step``, by the last eigendecomposition."""
    if state.covariance.ndim == 1:
        return step / state.scales
    return state.axes @ ((step @ state.axes) / state.scales)


def _squared_lengths(state: CMAState, steps: np.ndarray) -> np.ndarray:
    """``|C^(-1/2) y|^2`` of each row."""
    whitened = (steps if state.covariance.ndim == 1 else steps @ state.axes) / state.scales
    return np.einsum("kp,kp->k", whitened, whitened)


def _decomposed(state: CMAState, constants: CMAConstants) -> CMAState:
    """``state`` with axes and scales of its covariance, where these are old enough (tutorial, section B.2)."""
    if state.covariance.ndim == 1:
        return replace(state, scales=np.sqrt(state.covariance), decomposed=state.generation)
    if state.generation - state.decomposed < constants.eigen_gap:
        return state
    covariance = (state.covariance + state.covariance.T) / 2.0
    values, axes = np.linalg.eigh(covariance)
    least = values[-1] * 1e-20  # rounding may leave an eigenvalue at or below 0; "conditioncov" then tells
    scales = np.sqrt(np.maximum(values, least))
    return replace(state, covariance=covariance, axes=axes, scales=scales, decomposed=state.generation)


def _deviations(state: CMAState) -> np.ndarray:
    return state.scales if state.covariance.ndim == 1 else np.sqrt(np.diagonal(state.covariance))


def _no_effect_of_axis(state: CMAState) -> bool:
    """A tenth of the deviation along one axis, another in each generation, leaves the mean as it is."""
    place = state.generation % len(state.mean)
    if state.covariance.ndim == 1:
        return bool(state.mean[place] == state.mean[place] + 0.1 * state.sigma * state.scales[place])
    return bool((state.mean == state.mean + 0.1 * state.sigma * state.scales[place] * state.axes[:, place]).all())


def _stagnates(state: CMAState) -> bool:
    """Neither best nor median of the last 30 % of a long look back are better than those of its first 30 %."""
    least = 120 + 30 * len(state.mean) / state.population
    look_back = int(min(max(least, 0.2 * state.generation), _HISTORY))
    if len(state.best_history) < look_back:
        return False
    part = max(1, int(0.3 * look_back))
    return all(
        np.median(history[-part:]) <= np.median(history[-look_back : part - look_back])
        for history in (state.best_history, state.median_history)
    )
