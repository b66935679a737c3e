"""CMA-ES: a normal distribution whose mean, covariance and step size adapt to the best candidates.

Equations are those of Hansen 2016, "The CMA Evolution Strategy: A Tutorial" (arXiv:1604.00772, version of 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import numpy as np

from metaroll.checks import array_of, check_number, check_whole
from metaroll.errors import ShapeError, option_name
from metaroll.functional.search.base import Search, SearchState, best_first, checked_mean, default_population
from metaroll.functional.search.cma_constants import CMAConstants, cma_constants
from metaroll.functional.search.rank_noise import rank_noise
from metaroll.functional.search.sampling import normal_rows, reflected

__all__ = ["CMA", "SEPARABLE_ABOVE", "STOP_REASONS", "CMAState"]

SEPARABLE_ABOVE = 500
"""Number of parameters above which, by default, only the diagonal of the covariance is learned."""

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
"""Results of ``CMA.stop`` (tutorial, section B.3, and pycma)."""

_HISTORY = 20_000  # maximum number of generations for "stagnation"
_TIME_FACTOR = 1.5  # alpha_t of Hansen et al. 2009: factor of the repetitions, up if ranks are noisy, else down


@dataclass(frozen=True, kw_only=True)
class CMAState(SearchState):
    """State of CMA-ES.

    Attributes:
        sigma, first_sigma: Current and initial step size.
        population: Number of candidates K.
        covariance: ``(P, P)``, or its diagonal ``(P,)``.
        axes: Eigenvectors of the covariance as columns ``(P, P)``; ``(0, 0)`` for a diagonal one.
        scales: Roots of its eigenvalues ``(P,)``.
        decomposed: Generation after which both were computed.
        path, sigma_path: Evolution paths of covariance and step size ``(P,)``.
        best_history, median_history: Highest and median fitness of each generation, as far back as needed.
        fitness_range: Highest minus lowest fitness of the last generation.
        noise: Noise measure of the ranking; positive if noise dominates.
        repetitions: Current number of evaluations per candidate (with ``reevaluated``).
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

    Bounds: candidates outside are reflected at the bounds, and the distribution learns from the reflected ones, so that
    its mean stays within the bounds.

    Noise: with ``reevaluated`` the first candidates are evaluated twice (repeated at the end of ``ask``), and ranked by
    their mean; the changes in their ranks measure the noise (Hansen et al. 2009, UH-CMA-ES). If it dominates,
    ``state.repetitions`` grows up to ``max_repetitions``, and then the step size.

    Attributes:
        sigma: Standard deviation of the first candidates.
        population: Number of candidates; ``None`` means 4 + int(3 ln P).
        separable: Learn the diagonal of the covariance only; ``None`` means above ``SEPARABLE_ABOVE`` parameters.
        active: Also learn from the worse half, with negative weights. Not used for full covariances with bounds:
            reflected steps are no evidence against their direction, and the step size would explode.
        mirrored: Draw candidates in pairs on both sides of the mean.
        elitism: Include the best candidate so far in each generation (with its step shortened, Hansen 2011,
            arXiv:1110.4181, equation 3).
        lower, upper: Bounds, a number or ``(P,)``.
        reevaluated: Number of candidates to evaluate twice to measure noise; 0 means none.
        max_repetitions: Upper bound of ``state.repetitions``.
        target: Fitness that ends the search.
        max_generations, max_evaluations: Limits of the search; ``None`` means no limit.
        tolfun: Stop if the best fitness of the last generations, and all fitness of the last one, vary by less.
        tolfunhist: Stop if the best fitness of the last generations varies by less.
        tolx: Stop if all standard deviations are below this times ``sigma``.
        tolupsigma: Stop if the step size has grown by more than this times the largest axis: ``sigma`` was too small.
        conditioncov: Stop if the condition number of the covariance exceeds this.
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
        for name, value in (("lower", self.lower), ("upper", self.upper)):
            if value is None:
                continue
            missing = np.argwhere(np.isnan(array_of(name, value, "a number or an array of numbers")))
            if len(missing):
                place = missing[0].tolist()
                raise ValueError(f"{name} must not be NaN, got {f'NaN at {place}' if place else 'NaN'}")

    def start(self, mean: Any, *, sigma: float | None = None, population: int | None = None) -> CMAState:
        """See ``Search.start``.

        Args:
            mean: Shape ``(P,)``.
            sigma, population: Override the settings.
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
        """See ``Search.beginning``; within the bounds, and uniform between them if all are finite."""
        lower, upper = self.bounds(len(state.mean))
        if std is None and np.isfinite(lower).all() and np.isfinite(upper).all():
            return draw.uniform(lower, upper)
        return np.clip(super().beginning(state, draw, std), lower, upper)

    def is_separable(self, num_params: int) -> bool:
        """Whether only the diagonal of the covariance is learned, for this number of parameters."""
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
        """``population``, plus reevaluated candidates."""
        return state.population + min(self.reevaluated, state.population)

    def ask(self, state: CMAState, generator: np.random.Generator) -> np.ndarray:
        """See ``Search.ask``; the last ``reevaluated`` candidates repeat the first ones."""
        # z ~ N(0, I), (K, P), eq. (38)
        normal = normal_rows(generator, state.population, len(state.mean), self.mirrored)
        # y = B D z ~ N(0, C), (K, P), eq. (39)
        normal *= state.scales
        steps = normal if state.covariance.ndim == 1 else normal @ state.axes.T
        # x = m + sigma y, (K, P), eq. (40)
        steps *= state.sigma
        steps += state.mean
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
        """Step size, whether the covariance is diagonal, root of its condition number, and noise if measured."""
        numbers = {
            "sigma": state.sigma,
            "separable": float(state.covariance.ndim == 1),
            "axis_ratio": float(state.scales.max() / state.scales.min()),
        }
        return numbers | ({"noise": state.noise, "repetitions": state.repetitions} if self.reevaluated else {})

    # -- learning ------------------------------------------------------------------------------------------------------

    def learned(self, state: CMAState, candidates: np.ndarray, fitness: np.ndarray) -> CMAState:
        constants, count = self.constants(state), state.population
        noise, repetitions, widened = state.noise, state.repetitions, 1.0
        if len(fitness) > count:
            noise, repetitions, widened = self._treated(state, fitness)
            again = len(fitness) - count
            fitness = np.concatenate([(fitness[:again] + fitness[count:]) / 2.0, fitness[again:count]])
        # y_{i:K} = (x_{i:K} - m) / sigma, (K, P), the best first, eq. (39)
        order = best_first(fitness)
        steps = (candidates[:count][order] - state.mean) / state.sigma
        if self.elitism:
            self._shorten(state, steps)
        # <y>_w = sum_{i <= mu} w_i y_{i:K}, (P,), eq. (41); m <- m + sigma <y>_w, eq. (42) with c_m = 1
        moved = constants.weights[: constants.num_parents] @ steps[: constants.num_parents]
        mean = state.mean + state.sigma * moved

        # p_sigma <- (1 - c_s) p_sigma + sqrt(c_s (2 - c_s) mu_eff) C^(-1/2) <y>_w, (P,), eq. (43)
        cs, cc = constants.cs, constants.cc
        sigma_path = (1 - cs) * state.sigma_path + math.sqrt(cs * (2 - cs) * constants.mueff) * _whitened(state, moved)
        # h_sigma: whether |p_sigma| is not unusually long, below eq. (45); generation counts from 1 here
        length = math.sqrt(float(sigma_path @ sigma_path))
        faded = math.sqrt(1 - (1 - cs) ** (2 * state.generation))
        moving = length / faded < (1.4 + 2 / (len(mean) + 1)) * constants.chi
        # sigma <- sigma exp((c_s / d_s) (|p_sigma| / E|N(0, I)| - 1)), eq. (44)
        change = (cs / constants.damps) * (length / constants.chi - 1)
        sigma = state.sigma * math.exp(min(1.0, change)) * widened

        # p_c <- (1 - c_c) p_c + h_sigma sqrt(c_c (2 - c_c) mu_eff) <y>_w, (P,), eq. (45)
        path = (1 - cc) * state.path
        if moving:
            path = path + math.sqrt(cc * (2 - cc) * constants.mueff) * moved
        # C by the rank-one and the rank-mu update, eqs. (46) and (47)
        covariance = self._covariance(state, constants, steps, path, 0.0 if moving else cc * (2 - cc))
        finite = fitness[np.isfinite(fitness)]
        history = finite if len(finite) else np.zeros(1)
        following = replace(
            state,
            mean=mean,
            sigma=sigma,
            covariance=covariance,
            path=path,
            sigma_path=sigma_path,
            best_history=np.append(state.best_history, history.max())[-_HISTORY:],
            median_history=np.append(state.median_history, np.median(history))[-_HISTORY:],
            fitness_range=float(history.max() - history.min()) if len(history) == len(fitness) else math.inf,
            noise=noise,
            repetitions=repetitions,
        )
        return _decomposed(following, constants)

    def _shorten(self, state: CMAState, steps: np.ndarray) -> None:
        """Shorten steps, in place, to a length that sampled steps hardly ever exceed (Hansen 2011, equation 3)."""
        n = len(state.mean)
        lengths = np.sqrt(_squared_lengths(state, steps))
        max_length = math.sqrt(n) + 2 * n / (n + 2)
        long = lengths > max_length
        steps[long] *= (max_length / lengths[long])[:, None]

    def _covariance(
        self, state: CMAState, constants: CMAConstants, steps: np.ndarray, path: np.ndarray, missed: float
    ) -> np.ndarray:
        """Eq. (47); ``missed`` is ``(1 - h_sigma) c_c (2 - c_c)``: it makes up for a path without its last step."""
        c1, cmu, weights, parents = constants.c1, constants.cmu, constants.weights, constants.num_parents
        # C <- (1 + c_1 delta(h_sigma) - c_1 - c_mu sum_i w_i) C + c_1 p_c p_c^T + c_mu sum_i w_i y_i y_i^T, (P, P)
        kept = 1 + c1 * missed - c1 - cmu * float(weights.sum())
        scaled = cmu * weights
        if not self._learns_from_worse(state):
            scaled, steps = scaled[:parents], steps[:parents]
        elif parents < len(weights):
            # Negative weights are scaled by n / |C^(-1/2) y_i|^2, eq. (46)
            lengths = _squared_lengths(state, steps[parents:])
            scaled[parents:] *= len(path) / np.maximum(lengths, 1e-30)
        if state.covariance.ndim == 1:
            squares = np.square(steps)
            return kept * state.covariance + c1 * np.square(path) + scaled @ squares
        rows = np.concatenate([steps, path[None]])
        # One product for both the rank-one and the rank-mu update.
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
        crossed = lower >= upper
        if crossed.any():
            place = int(np.flatnonzero(crossed)[0])
            raise ValueError(
                f"{option_name('lower')} must lie below {option_name('upper')}, got {lower[place]:g} and "
                f"{upper[place]:g} in entry {place}"
            )
        outside = (mean < lower) | (mean > upper)
        if outside.any():
            place = int(np.flatnonzero(outside)[0])
            raise ValueError(
                f"{option_name('lower')} and {option_name('upper')} must hold the mean between them, entry {place} is "
                f"{mean[place]:g}, got [{lower[place]:g}, {upper[place]:g}]"
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

    # -- termination ---------------------------------------------------------------------------------------------------

    def stop(self, state: CMAState) -> tuple[str, ...]:
        """The ``STOP_REASONS`` that apply, in their order."""
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
    """``state`` with ``C = B D^2 B^T`` decomposed again, if the last decomposition is old enough (tutorial, B.2)."""
    if state.covariance.ndim == 1:
        return replace(state, scales=np.sqrt(state.covariance), decomposed=state.generation)
    if state.generation - state.decomposed < constants.eigen_gap:
        return state
    covariance = (state.covariance + state.covariance.T) / 2.0
    values, axes = np.linalg.eigh(covariance)
    least = values[-1] * 1e-20  # rounding may make an eigenvalue 0 or negative; "conditioncov" then stops the search
    scales = np.sqrt(np.maximum(values, least))
    return replace(state, covariance=covariance, axes=axes, scales=scales, decomposed=state.generation)


def _deviations(state: CMAState) -> np.ndarray:
    return state.scales if state.covariance.ndim == 1 else np.sqrt(np.diagonal(state.covariance))


def _no_effect_of_axis(state: CMAState) -> bool:
    """Whether a tenth of the deviation along one axis (they take turns) does not change the mean numerically."""
    place = state.generation % len(state.mean)
    if state.covariance.ndim == 1:
        return bool(state.mean[place] == state.mean[place] + 0.1 * state.sigma * state.scales[place])
    return bool((state.mean == state.mean + 0.1 * state.sigma * state.scales[place] * state.axes[:, place]).all())


def _stagnates(state: CMAState) -> bool:
    """Whether neither best nor median fitness improved from the first 30 % to the last 30 % of a long history."""
    min_length = 120 + 30 * len(state.mean) / state.population
    look_back = int(min(max(min_length, 0.2 * state.generation), _HISTORY))
    if len(state.best_history) < look_back:
        return False
    part = max(1, int(0.3 * look_back))
    return all(
        np.median(history[-part:]) <= np.median(history[-look_back : part - look_back])
        for history in (state.best_history, state.median_history)
    )
