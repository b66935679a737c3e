"""Approximate Bayesian computation with sequential Monte Carlo: a baseline without neural networks and without sbi."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch

from metaroll.checks import array_of, check_fraction, check_number, check_path, check_seed, check_whole, described
from metaroll.config import understands
from metaroll.errors import ShapeError, option_name, unknown_name
from metaroll.functional.posteriors.populations import (
    Kernel,
    effective_sample_size,
    importance_weights,
    kernel_scale,
    perturbed,
    regression_adjusted,
    smoothed_draws,
)
from metaroll.functional.series.features import feature_scale
from metaroll.inference.neural import InferenceProgress
from metaroll.inference.parameter_names import named
from metaroll.inference.posterior import Posterior
from metaroll.inference.priors import Prior, as_prior
from metaroll.inference.regions import NUM_DRAWS
from metaroll.inference.simulations import Simulate, Simulations, SimulationStore, fingerprint
from metaroll.seeding import derive_seed

__all__ = ["ABCSMC", "Population"]

Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Population(NamedTuple):
    """Weighted particles with features within a tolerance of the observed ones.

    Attributes:
        normals: Their parameters on the scale where the prior is standard normal, ``(n, d)``.
        features: Their simulated features, ``(n, F)``.
        distances: Distances from the observed features, ``(n,)``.
        weights: Importance weights, which sum to 1, ``(n,)``.
        tolerance: Largest accepted distance.
    """

    normals: np.ndarray
    features: np.ndarray
    distances: np.ndarray
    weights: np.ndarray
    tolerance: float


@final
class ABCSMC:
    """ABC by sequential Monte Carlo (Toni et al. 2009, J. R. Soc. Interface 6), with weights of Beaumont et al. (2009).

    The first population is drawn from the prior. Each further one is drawn from the last, perturbed by a kernel,
    simulated, and accepted if the features are within a tolerance of the observed ones: a quantile of the last
    population's distances, which thus decreases adaptively (Drovandi and Pettitt 2011). Particles are on the scale
    where the prior is standard normal, so none can leave its bounds. Finally, they are adjusted by regression (Beaumont
    et al. 2002).

    Simulations with non-finite features are never accepted.

    Args:
        prior: The prior: ``{"mass": (0.5, 2.0), ...}``, or another argument of ``as_prior``.
        num_particles: Number of particles of a population.
        quantile: Quantile of the last population's distances that is the next tolerance.
        kernel: ``"normal"``, ``"componentwise"`` or ``"uniform"``: see ``functional/posteriors/populations.py``.
        distance: ``(features (n, F), observed (F,)) -> (n,)``. By default Euclidean, each feature divided by its
            standard deviation under the prior (by 1 where it is constant).
        min_tolerance: Minimum tolerance; the first population with it is the last one.
        least_accepted: Stop after a population with a smaller acceptance rate.
        regression: Adjust the last population.
        seed: Seed of all randomness.
        batch_size: Simulations per call of the simulator.
        run_dir: Folder in which simulations are kept and reused; ``None`` keeps them in memory.
        simulator: Identifies the simulator, text or JSON types: those of a different simulator are not reused.
        progress: Called for every batch of simulations.

    Attributes:
        population: The last population of the last ``infer``, before the regression.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    @understands(own=["batch_size"])
    def __init__(
        self,
        prior: Any,
        num_particles: int = 500,
        *,
        quantile: float = 0.5,
        kernel: Kernel = "normal",
        distance: Distance | None = None,
        min_tolerance: float = 0.0,
        least_accepted: float = 0.02,
        regression: bool = True,
        seed: int = 0,
        batch_size: int = 1000,
        run_dir: str | Path | None = None,
        simulator: Mapping[str, Any] | str = "",
        progress: Callable[[InferenceProgress], None] | None = None,
    ) -> None:
        self.prior: Prior = as_prior(prior)
        if kernel not in ("normal", "componentwise", "uniform"):
            raise unknown_name("kernel", str(kernel), ("normal", "componentwise", "uniform"))
        for name, function in (("distance", distance), ("progress", progress)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} must be a function, got {described(function)}")
        self._num = check_whole("num_particles", num_particles, 10)
        self._kernel: Kernel = kernel
        self._quantile, self._distance = check_fraction("quantile", quantile), distance
        self._min_tolerance = check_number("min_tolerance", min_tolerance, 0.0)
        self._least_accepted = check_number("least_accepted", least_accepted, 0.0, 1.0)
        self._regression = bool(regression)
        self._seed, self._batch_size = check_seed(option_name("seed"), seed), check_whole("batch_size", batch_size)
        self._run_dir = None if run_dir is None else check_path("run_dir", run_dir)
        self._simulator = dict(simulator) if isinstance(simulator, Mapping) else str(simulator)
        self._progress = progress
        self.population: Population | None = None

    def infer(self, simulate: Simulate, observed: Any, num_simulations: int = 10_000) -> Posterior:
        """The posterior of the parameters: draws from the last population, smoothed.

        Its ``description`` has tolerance, acceptance and effective sample size of every population. A population that
        is cut off by the budget is used if it is at least half full.

        Args:
            simulate: ``thetas (B, d) -> features (B, F)``; NaN in a row means that its simulation failed. Columns are
                in the order of the prior, or of the function's attribute ``names``, if it has one.
            observed: Observed features, ``(F,)`` or ``(1, F)``.
            num_simulations: Maximum number of simulations.

        Raises:
            ShapeError: ``simulate`` returns another shape, or ``observed`` does not have the shape of its features.
            ValueError: ``observed`` is not finite, or too few simulations gave finite features.
        """
        simulate = named(simulate, self.prior.names)
        budget = check_whole("num_simulations", num_simulations, self._num)
        target = array_of("observed", observed, "an array of features (F,)").astype(np.float64).reshape(-1)
        if not np.isfinite(target).all():
            raise ValueError("observed must be finite, got features with NaN or infinity")
        run = _Run(self, simulate, target, budget)
        population, summary = run.first()
        generations = [summary]
        while run.left and population.tolerance > self._min_tolerance:
            tolerance = max(float(np.quantile(population.distances, self._quantile)), self._min_tolerance)
            following, summary = run.next(population, tolerance, len(generations) + 1)
            if following is None:
                break
            population = following
            generations.append(summary)
            if summary["accepted"] < self._least_accepted:
                break
        self.population = population
        return self._posterior(population, target, generations, run.store)

    def _posterior(
        self, population: Population, target: np.ndarray, generations: list[dict[str, Any]], store: SimulationStore
    ) -> Posterior:
        rows, weights = population.normals, population.weights
        if self._regression:
            rows, weights = regression_adjusted(rows, population.features, target, population.distances, weights)
        generator = np.random.default_rng(derive_seed("ABC draws", self._seed))
        description = {
            "algorithm": "ABC-SMC",
            "kernel": self._kernel,
            "regression": self._regression,
            "seed": self._seed,
            "simulator": self._simulator,
            "num_simulations": store.num_made + store.num_reused,
            "num_failed": store.num_failed,
            "num_reused": store.num_reused,
            "populations": generations,
        }
        draws = self.prior.from_normal(smoothed_draws(rows, weights, NUM_DRAWS, generator))
        return Posterior(self.prior, target, draws, description=description, seed=self._seed)


class _Run:
    """One call of ``infer``: its simulations, and the budget used so far."""

    def __init__(self, method: ABCSMC, simulate: Simulate, target: np.ndarray, budget: int) -> None:
        self._method, self._simulate, self._target, self._budget = method, simulate, target, budget
        self.store = SimulationStore(method.prior, None if method._run_dir is None else method._run_dir / "simulations")
        # Everything that the parameters of all batches depend on.
        self._mark = fingerprint(
            "ABC-SMC",
            method.prior.to_plain(),
            method._seed,
            method._simulator,
            [method._num, method._quantile, method._kernel, method._min_tolerance, method._batch_size],
            None if method._distance is None else f"{method._distance!r}".split(" at ")[0],
            target.tolist(),
        )
        self._used = self._batches = 0
        self._measure: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def left(self) -> int:
        """Simulations that may still be made."""
        return self._budget - self._used

    def first(self) -> tuple[Population, dict[str, Any]]:
        """The population of the prior, and its summary."""
        method, batches = self._method, []
        while self.left and sum(len(part.thetas) for part in batches) < method._num:
            wanted = min(self.left, method._num - sum(len(part.thetas) for part in batches))
            batches.append(self._batch(lambda count, seed: method.prior.sample(count, seed), wanted, 1).usable)
        features = np.concatenate([part.features for part in batches])
        made = Simulations(np.concatenate([part.thetas for part in batches]), features)
        if len(made.thetas) < method._num:
            raise ValueError(
                f"only {len(made.thetas)} of {self._used} simulations from the prior gave finite features, too few for "
                f"num_particles={method._num}; check why they fail, or exclude what cannot be simulated from the prior"
            )
        self._measure = self._distance_of(made.features)
        distances = self._measure(made.features)
        weights = np.full(method._num, 1.0 / method._num)
        normals = method.prior.to_normal(made.thetas)
        population = Population(normals, made.features, distances, weights, float(distances.max()))
        return population, self._summary(population, self._used)

    def next(self, last: Population, tolerance: float, number: int) -> tuple[Population | None, dict[str, Any]]:
        """The population within ``tolerance``, if the budget suffices for half of it, and its summary."""
        method, measure = self._method, self._measure
        assert measure is not None
        scale = kernel_scale(method._kernel, last.normals, last.weights)

        def draw(count: int, seed: int) -> np.ndarray:
            generator = np.random.default_rng(seed)
            chosen = generator.choice(len(last.normals), size=count, p=last.weights)
            return method.prior.from_normal(perturbed(method._kernel, last.normals[chosen], scale, generator))

        before, parts, count = self._used, [], 0
        while self.left and count < method._num:
            share = count / (self._used - before) if count else method._quantile / 2.0
            wanted = min(self.left, method._batch_size, int((method._num - count) / share * 1.1) + 1)
            made = self._batch(draw, wanted, number).usable
            distances = measure(made.features)
            near = distances <= tolerance
            parts.append((method.prior.to_normal(made.thetas[near]), made.features[near], distances[near]))
            count += int(near.sum())
        tried = self._used - before
        if count < method._num / 2.0:
            return None, {}
        # In the order of the draws, so that the selection does not depend on distances.
        normals, features, distances = (np.concatenate(kind)[: method._num] for kind in zip(*parts, strict=True))
        weights = importance_weights(
            method._kernel, normals, -0.5 * np.square(normals).sum(axis=1), last.normals, last.weights, scale
        )
        population = Population(normals, features, distances, weights, tolerance)
        return population, {**self._summary(population, tried), "accepted": count / tried}

    def _batch(self, draw: Callable[[int, int], np.ndarray], count: int, number: int) -> Simulations:
        method = self._method
        self._batches += 1
        seed = derive_seed("ABC", method._seed, self._batches)
        wanted = min(count, method._batch_size)
        made = self.store.run(
            self._simulate, self._batches, wanted, self._mark, lambda _, num: draw(num, seed), method._batch_size
        )
        self._used += wanted
        features = made.features.reshape(wanted, -1)
        if features.shape[1] != len(self._target):
            raise ShapeError(
                f"observed must have the {features.shape[1]} features that simulate returns, got {len(self._target)}"
            )
        if method._progress is not None:
            progress = InferenceProgress("simulate", number, number, self._used, self._budget, self.store.num_failed)
            method._progress(progress)
        return Simulations(made.thetas, features.astype(np.float64))

    def _distance_of(self, features: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """``features (n, F) -> (n,)``, scaled by simulations of the prior."""
        target, given = self._target, self._method._distance
        # In the precision of the simulations, which decides whether a feature is constant.
        scale = feature_scale(torch.from_numpy(features.astype(np.float32)))[1].double().numpy()

        def measure(rows: np.ndarray) -> np.ndarray:
            if given is None:
                return np.sqrt(np.square((rows - target) / scale).sum(axis=1))
            distances = np.asarray(given(rows, target), dtype=np.float64)
            if distances.shape != (len(rows),):
                raise ShapeError(f"distance must return one number per row ({len(rows)},), got {distances.shape}")
            return np.where(np.isnan(distances), np.inf, distances)

        return measure

    @staticmethod
    def _summary(population: Population, tried: int) -> dict[str, Any]:
        return {
            "tolerance": population.tolerance,
            "simulations": tried,
            "accepted": len(population.normals) / tried,
            "effective_sample_size": effective_sample_size(population.weights),
        }
