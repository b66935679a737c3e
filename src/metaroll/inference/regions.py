"""Truncated proposals: rounds after the first draw parameters where the posterior of the observation lies."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor

from metaroll.functional.posteriors.populations import systematic_choice, weighted_covariance
from metaroll.functional.posteriors.truncation import truncated_normal_chains
from metaroll.seeding import derive_seed

__all__ = ["NUM_DRAWS", "Estimator", "Region", "find_region"]

NUM_DRAWS = 10_000
"""Number of draws of a posterior."""
_OUTSIDE = 1e-4
"""Mass of a posterior that lies outside the region."""
_REACH = 5.0
"""Deviations of a standard normal beyond which no draws of the prior lie (6e-7 of them)."""
_FEWEST_WITHIN, _NEAREST = 100, 0.01
"""With fewer draws of a posterior within reach, the region is the nearest hundredth of the prior."""
_CANDIDATES = 50_000
_LEAST_ACCEPTED = 1e-3
_MOVES, _MOVES_EACH = 20, 10
"""Moves of a chain until it is independent of its start; more are added per dimension."""
_MOST_TRIED = 64
"""Draws of another posterior per requested one; if too few of them lie in the region, it is dropped."""


class Estimator(Protocol):
    """Estimator of the posterior of any observation, on the scale where the prior is standard normal."""

    event_shape: tuple[int, ...]
    """Shape of the features of one observation."""

    def sample(self, num: int, features: np.ndarray, seed: int) -> np.ndarray:
        """``num`` draws for each of m observations, ``(m, num, d)``."""
        ...

    def log_prob(self, normals: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Log densities of n points (``(n, d)`` or ``(m, n, d)``) for m observations, ``(m, n)``."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """Weights and buffers by name."""
        ...

    def to_plain(self) -> dict[str, Any]:
        """All that is needed to rebuild it, except the weights."""
        ...


class Region(NamedTuple):
    """High-density region of the posterior of an observation, in the standard normal space.

    It is defined by estimator, observation and border: the region is ``{log_prob >= border}``.

    Attributes:
        estimator: Estimator of the posterior.
        observed: Features of the observation.
        border: Minimum log density within.
    """

    estimator: Estimator
    observed: np.ndarray
    border: float

    def to_plain(self) -> dict[str, Any]:
        """All that is needed to rebuild it, except the weights of its estimator."""
        own = {"observed": self.observed.tolist(), "border": self.border}
        return {**own, "estimator": self.estimator.to_plain()}

    def log_prob(self, normals: np.ndarray) -> np.ndarray:
        """Log density of points ``(n, d)``, ``(n,)``."""
        return self.estimator.log_prob(normals, self.observed[None])[0]

    def holds(self, normals: np.ndarray) -> np.ndarray:
        """Which of ``(n, d)`` points lie within, bool ``(n,)``."""
        inside: np.ndarray = self.log_prob(normals) >= self.border
        return inside

    def sample(self, num: int, dim: int, seed: int) -> np.ndarray:
        """``num`` distinct draws of the prior within the region, ``(num, d)``.

        Rejection sampling from the prior. If the acceptance rate is too low, each draw is the end of its own Markov
        chain, whose stationary distribution is the prior within the region; chains start from draws of the posterior,
        resampled by importance weights (prior over posterior), and run until independent of them. (Deistler, Goncalves
        and Macke 2022, section A.6.3, only resample: a thousand draws of a narrow region are then some 300 points.)

        Args:
            num: Number of draws.
            dim: d, the number of parameters.
            seed: The same seed gives the same draws.
        """
        generator = np.random.default_rng(derive_seed("truncated", seed))
        accepted: list[np.ndarray] = []
        tried = num_accepted = 0
        while num_accepted < num and (tried < _CANDIDATES or num_accepted > _LEAST_ACCEPTED * tried):
            candidates = generator.standard_normal((min(_CANDIDATES, max(5 * num, tried)), dim))
            accepted.append(candidates[self.holds(candidates)])
            tried, num_accepted = tried + len(candidates), num_accepted + len(accepted[-1])
        if num_accepted >= num:
            return np.concatenate(accepted)[:num]
        drawn = self.estimator.sample(NUM_DRAWS, self.observed[None], derive_seed("starts", seed))[0]
        densities = self.log_prob(drawn)
        within = (densities >= self.border) & _reached(drawn)
        drawn, densities = drawn[within], densities[within]
        weights = -0.5 * np.square(drawn).sum(axis=1) - densities
        weights = np.exp(weights - weights.max())
        starts = drawn[systematic_choice(weights / weights.sum(), num, generator)]
        covariance = weighted_covariance(drawn, np.full(len(drawn), 1.0 / len(drawn)))
        moves = _MOVES + _MOVES_EACH * dim
        return truncated_normal_chains(
            starts, self.log_prob, self.border, np.linalg.cholesky(covariance), moves, generator
        )

    def posterior_draws(self, features: np.ndarray, num: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws within the region from the posterior of each of m simulations, if enough of it lies there.

        Returns:
            Draws ``(k, num, d)``, and indices ``(k,)`` of their simulations. The selection of a simulation depends on
            its features only, not on its parameters, so calibration on all of them implies calibration on these.
        """
        left = np.arange(len(features))
        kept: list[list[np.ndarray]] = [[] for _ in left]
        counts = np.zeros(len(features), dtype=np.int64)
        tried, size, dim = 0, num, 0
        while len(left) and tried < _MOST_TRIED * num:
            drawn = self.estimator.sample(size, features[left], derive_seed("within", seed, tried))
            dim = drawn.shape[2]
            inside = self.holds(drawn.reshape(-1, dim)).reshape(drawn.shape[:2])
            for place, number in enumerate(left):
                kept[number].append(drawn[place, inside[place]])
            counts[left] += inside.sum(axis=1)
            tried, size = tried + size, max(size, tried)
            left = left[(counts[left] < num) & (counts[left] * _MOST_TRIED >= tried)]
        numbers = np.flatnonzero(counts >= num)
        rows = [np.concatenate(kept[number])[:num] for number in numbers]
        empty = np.zeros((0, num, dim))
        return (np.stack(rows) if rows else empty), numbers


def find_region(
    estimator: Estimator, dim: int, observed: np.ndarray, seed: int, drawn: np.ndarray | None = None
) -> Region:
    """The region that holds all but 1e-4 of a posterior.

    If the posterior lies far from all simulations, beyond the bounds of the prior, the region is the 1 % of the prior
    with the highest posterior density, since all draws of the posterior itself would be one point at the bounds.

    Args:
        estimator: Estimator of the posterior.
        dim: d, the number of parameters.
        observed: Features of the observation.
        seed: The same seed gives the same region.
        drawn: Draws of the posterior, ``(n, d)``; ``None`` draws them.
    """
    rows = drawn
    if rows is None:
        rows = estimator.sample(NUM_DRAWS, observed[None], derive_seed("region", seed))[0]
    densities = estimator.log_prob(rows, observed[None])[0]
    border = float(np.quantile(densities, _OUTSIDE))
    if ((densities >= border) & _reached(rows)).sum() < _FEWEST_WITHIN:
        candidates = np.random.default_rng(derive_seed("nearest", seed)).standard_normal((_CANDIDATES, dim))
        border = float(np.quantile(estimator.log_prob(candidates, observed[None])[0], 1.0 - _NEAREST))
    return Region(estimator, observed, border)


def _reached(normals: np.ndarray) -> np.ndarray:
    """Which of ``(n, d)`` points are possible draws of the prior."""
    return np.asarray((np.abs(normals) <= _REACH).all(axis=1))
