"""System identification: the parameters that explain an observation best, as a baseline of inference without sbi."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast, final

import numpy as np
import torch
from scipy.optimize import least_squares
from scipy.special import ndtri

from metaroll.checks import array_of, check_fraction, check_seed, check_whole, described
from metaroll.errors import ShapeError, unknown_name
from metaroll.functional.posteriors.curvature import (
    covariance_of_information,
    difference_points,
    draws_of_information,
    jacobian_of_differences,
)
from metaroll.functional.posteriors.populations import weighted_covariance
from metaroll.functional.series.features import feature_scale
from metaroll.inference.parameter_names import named
from metaroll.inference.posterior import Posterior
from metaroll.inference.priors import Prior, as_prior
from metaroll.inference.regions import NUM_DRAWS
from metaroll.inference.simulations import Simulate
from metaroll.seeding import derive_seed

__all__ = ["Identification", "identify"]

_FURTHEST = 8.0
"""Truncation of the standard normal: the ends of the unit cube would be infinite for a prior without bounds."""
_NARROW = 1e-5
"""The cross-entropy method has converged when the elites' deviation is this share of the prior's range."""
_EXACT = 1e-6
"""Residuals (of features with deviation 1) up to this count as 0: float32 simulations are rounded."""


@final
@dataclass(frozen=True, eq=False)
class Identification:
    """The best parameters, and how well the observation determines them.

    Attributes:
        prior: Prior of the search.
        theta: The best parameters, ``(d,)``.
        std: Their standard deviations by the curvature there, ``(d,)``; not above those of the prior.
        residual: Root mean square residual of the features, in their standard deviations under the prior.
        method: The optimization method.
        num_simulations: Simulations made.
        num_failed: Number of simulations with non-finite features.
        converged: Whether the search converged before the budget was used up.
        point: ``theta`` in the unit cube, where the prior is uniform, ``(d,)``.
        information: Inverse covariance from the curvature in the unit cube, ``(d, d)``; it may be singular.
        observed: Features of the observation, ``(F,)``.
    """

    prior: Prior
    theta: np.ndarray
    std: np.ndarray
    residual: float
    method: str
    num_simulations: int
    num_failed: int
    converged: bool
    point: np.ndarray
    information: np.ndarray
    observed: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters in the environment."""
        return self.prior.names

    @property
    def identified(self) -> np.ndarray:
        """Which parameters the observation determines: to less than half of the prior's deviation, bool ``(d,)``."""
        return self.std < 0.5 * self.prior.std

    def posterior(self, seed: int = 0) -> Posterior:
        """Draws around the best parameters by the curvature there (Laplace's approximation), within the prior's bounds.

        Args:
            seed: Seed of the draws.
        """
        seed = check_seed("seed", seed)
        generator = np.random.default_rng(derive_seed("identification", seed))
        rows = draws_of_information(self.point, self.information, NUM_DRAWS, generator)
        description = {
            "algorithm": "system identification",
            "method": self.method,
            "theta": self.theta.tolist(),
            "std": self.std.tolist(),
            "residual": self.residual,
            "num_simulations": self.num_simulations,
            "num_failed": self.num_failed,
            "converged": self.converged,
        }
        draws = _from_unit(self.prior, rows)
        return Posterior(self.prior, self.observed, draws, description=description, seed=seed)

    def __repr__(self) -> str:
        rows = zip(self.names, self.theta, self.std, strict=True)
        shown = ", ".join(f"{name} = {value:.4g} +- {std:.2g}" for name, value, std in rows)
        return f"Identification({shown}; residual {self.residual:.2g}, {self.num_simulations} simulations)"


def identify(
    simulate: Simulate,
    observed: Any,
    prior: Any,
    method: Literal["least_squares", "cem"] = "least_squares",
    *,
    num_simulations: int = 2000,
    num_starts: int = 3,
    elite_fraction: float = 0.2,
    noise_std: Any = None,
    step: float = 1e-3,
    seed: int = 0,
    batch_size: int = 200,
) -> Identification:
    """The parameters whose simulated features are the closest to those observed (least squares).

    A first batch of simulations comes from the prior; each feature is divided by its standard deviation there.
    ``"least_squares"`` continues from its best ones by a trust region (SciPy's ``least_squares``), with derivatives by
    differences, all in one call of the simulator. ``"cem"`` draws batches from a normal distribution that is fitted to
    the best of each batch (cross-entropy method, Rubinstein 1999); it also copes with rugged objectives and noisy
    simulators.

    The search runs in the unit cube, where the prior is uniform, so bounds hold. Simulations with non-finite features
    are never used.

    Args:
        simulate: ``thetas (B, d) -> features (B, F)``; NaN in a row means that it failed. Columns are in the
            order of the prior, or in that of its attribute ``names``, if it has one.
        observed: Features of the observation, ``(F,)`` or ``(1, F)``.
        prior: Search space: ``{"mass": (0.5, 2.0), ...}``, or another form accepted by ``as_prior``.
        method: Optimization method.
        num_simulations: Budget of simulations (plus ``2 d + 1`` for derivatives at the end).
        num_starts: Number of the best simulations from which ``"least_squares"`` continues.
        elite_fraction: Share of a batch to which ``"cem"`` fits.
        noise_std: Standard deviation of the noise of each feature, ``(F,)`` or a number, if known; it then scales the
            features, and the uncertainty. Otherwise it is estimated from the final residuals.
        step: Step size of finite differences, as a share of the prior's range.
        seed: Seed of all randomness.
        batch_size: Simulations per call of the simulator.

    Raises:
        ShapeError: The features of ``simulate`` have the wrong shape, or another one than ``observed``.
        UnknownNameError: ``method`` is unknown.
        ValueError: ``observed`` is not finite, or no simulation from the prior has finite features.
    """
    prior = as_prior(prior)
    simulate = named(simulate, prior.names)
    if method not in ("least_squares", "cem"):
        raise unknown_name("method", str(method), ("least_squares", "cem"))
    target = array_of("observed", observed, "an array of features (F,)").astype(np.float64).reshape(-1)
    if not np.isfinite(target).all():
        raise ValueError("observed must be finite, got features with NaN or infinity")
    size = check_whole("batch_size", batch_size, 4)
    search = _Search(simulate, target, prior, check_whole("num_simulations", num_simulations, 8), size)
    generator = np.random.default_rng(derive_seed("identify", check_seed("seed", seed)))
    points = generator.random((min(size, search.left // 2), search.prior.dim))
    search.begin(points, noise_std)
    step = check_fraction("step", step)
    if method == "cem":
        converged = _cem(search, generator, check_fraction("elite_fraction", elite_fraction))
    else:
        converged = _trust_regions(search, check_whole("num_starts", num_starts), step)
    return _at_the_end(search, method, step, noise_std is not None, converged)


def _from_unit(prior: Prior, points: np.ndarray) -> np.ndarray:
    """Parameters ``(n, d)`` of points of the unit cube, on which the prior is uniform."""
    return prior.from_normal(np.clip(ndtri(points), -_FURTHEST, _FURTHEST))


class _Search:
    """Simulates points of the unit cube, and keeps the best."""

    def __init__(self, simulate: Simulate, target: np.ndarray, prior: Prior, budget: int, batch_size: int) -> None:
        self._simulate, self._budget, self._batch_size = simulate, budget, batch_size
        self.target, self.prior = target, prior
        self.made = self.failed = 0
        self._scale = np.ones(len(target))
        self.points, self.residuals = np.empty((0, prior.dim)), np.empty((0, len(target)))
        self.best_point, self.best_residual = np.full(prior.dim, 0.5), np.full(len(target), np.inf)

    @property
    def left(self) -> int:
        """Remaining budget of simulations."""
        return max(self._budget - self.made, 0)

    @property
    def batch_size(self) -> int:
        """Simulations in one call."""
        return min(self._batch_size, self.left)

    def begin(self, points: np.ndarray, noise_std: Any) -> None:
        """Simulate the first points, by which features are scaled."""
        features = self._features(points)
        finite = np.isfinite(features).all(axis=1)
        if not finite.any():
            raise ValueError(
                f"none of {len(points)} simulations from the prior gave finite features; check why they fail, or "
                "exclude what cannot be simulated from the prior"
            )
        if noise_std is None:
            self._scale = feature_scale(torch.from_numpy(features.astype(np.float32)))[1].double().numpy()
        else:
            self._scale = np.broadcast_to(np.asarray(noise_std, dtype=np.float64), self.target.shape)
            if not (np.isfinite(self._scale).all() and (self._scale > 0.0).all()):
                raise ValueError(f"noise_std must be above 0 and finite, got {noise_std!r}")
        self._note(points, features)

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Residuals ``(n, F)``; NaN where a simulation failed."""
        parts = [points[k : k + self._batch_size] for k in range(0, len(points), self._batch_size)]
        return np.concatenate([self._note(part, self._features(part)) for part in parts])

    def _features(self, points: np.ndarray) -> np.ndarray:
        returned = self._simulate(_from_unit(self.prior, points))
        features = np.asarray(returned.detach().cpu() if isinstance(returned, torch.Tensor) else returned)
        features = features.astype(np.float64).reshape(len(features) if features.ndim else 1, -1)
        if features.shape != (len(points), len(self.target)):
            raise ShapeError(
                f"simulate must return one row of the {len(self.target)} observed features for each of {len(points)} "
                f"rows of thetas, got {described(returned)}"
            )
        self.made += len(points)
        return features

    def _note(self, points: np.ndarray, features: np.ndarray) -> np.ndarray:
        finite = np.asarray(np.isfinite(features).all(axis=1))
        residuals = np.where(finite[:, None], (features - self.target) / self._scale, np.nan)
        self.failed += int((~finite).sum())
        self.points, self.residuals = points[finite], residuals[finite]
        if finite.any():
            best = np.square(self.residuals).sum(axis=1).argmin()
            if np.square(self.residuals[best]).sum() < np.square(self.best_residual).sum():
                self.best_point, self.best_residual = self.points[best], self.residuals[best]
        return residuals


def _trust_regions(search: _Search, num_starts: int, step: float) -> bool:
    """Least squares from each start; whether each of them converged."""
    order = np.argsort(np.square(search.residuals).sum(axis=1))[:num_starts]
    arrived = True
    for k, start in enumerate(search.points[order]):
        start = np.clip(start, step, 1.0 - step)
        last: dict[bytes, np.ndarray] = {}

        def residuals(point: np.ndarray, last: dict[bytes, np.ndarray] = last) -> np.ndarray:
            values = search(point[None])[0]
            last[point.tobytes()] = values
            # The trust region shrinks after a step to non-finite residuals.
            return np.where(np.isfinite(values), values, np.inf)

        def jacobian(point: np.ndarray, last: dict[bytes, np.ndarray] = last) -> np.ndarray:
            points = difference_points(point, step)
            return jacobian_of_differences(point, last[point.tobytes()], points, search(points))

        evaluations = (search.left // (len(order) - k) - 1) // (2 * search.prior.dim + 1)
        if evaluations < 2 or not np.isfinite(search(start[None])).all():
            arrived = False
            continue
        result = least_squares(residuals, start, cast("Any", jacobian), bounds=(0.0, 1.0), max_nfev=evaluations)
        arrived &= result.status > 0
    return arrived


def _cem(search: _Search, generator: np.random.Generator, elite_fraction: float) -> bool:
    """Iteratively refit a normal to the elites; whether it has converged."""
    points, residuals = search.points, search.residuals
    while True:
        costs = np.square(residuals).sum(axis=1)
        elites = points[np.argsort(costs)[: max(2 * search.prior.dim, round(elite_fraction * len(points)))]]
        # Full covariance: in a diagonal valley, independent deviations would shrink too early.
        covariance = weighted_covariance(elites, np.full(len(elites), 1.0 / len(elites)))
        if np.diag(covariance).max() < _NARROW**2:
            return True
        if search.left < 4:
            return False
        noise = generator.standard_normal((search.batch_size, search.prior.dim))
        search(np.clip(elites.mean(axis=0) + noise @ np.linalg.cholesky(covariance).T, 0.0, 1.0))
        # Elitism: keep the best point so far.
        points = np.concatenate([search.points, search.best_point[None]])
        residuals = np.concatenate([search.residuals, search.best_residual[None]])


def _at_the_end(search: _Search, method: str, step: float, noise_known: bool, converged: bool) -> Identification:
    point, residual = search.best_point, search.best_residual
    points = difference_points(point, step)
    slopes = jacobian_of_differences(point, residual, points, search(points))
    freedom = len(residual) - search.prior.dim
    variance = 1.0 if noise_known else float(np.square(residual).sum()) / max(freedom, 1)
    variance = max(variance, _EXACT**2)
    information = slopes.T @ slopes / variance
    sd = np.sqrt(np.diag(covariance_of_information(information)))
    # From the unit cube to parameters: half the distance between the points one deviation to either side.
    to_side = [_from_unit(search.prior, np.clip(point + sign * sd, 0.0, 1.0)[None])[0] for sign in (1.0, -1.0)]
    width = np.clip(point + sd, 0.0, 1.0) - np.clip(point - sd, 0.0, 1.0)
    std = np.minimum((to_side[0] - to_side[1]) * sd / np.maximum(width, 1e-300), search.prior.std)
    return Identification(
        search.prior,
        _from_unit(search.prior, point[None])[0],
        std,
        float(np.sqrt(np.square(residual).mean())),
        method,
        search.made,
        search.failed,
        bool(converged),
        point,
        information,
        search.target,
    )
