"""A posterior: draws, the prior, and an estimator; stored as a folder. Its draws can be read without sbi."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
from torch import Tensor, nn

from metaroll.checks import array_of, check_path, check_seed, check_whole
from metaroll.data.posteriors.folder import Draws, read_description, read_draws, read_weights, write_folder
from metaroll.errors import PosteriorError, ShapeError
from metaroll.inference.estimators import NeuralEstimator
from metaroll.inference.priors import Prior, as_prior
from metaroll.inference.regions import NUM_DRAWS, Estimator, Region
from metaroll.seeding import derive_seed

__all__ = ["BORDER", "Posterior"]

BORDER = "border"
"""Key in the description of a posterior of the whole prior after directed rounds: minimum log density, on the normal
scale, in the region where it lies."""
_REGION = "region."
"""Prefix of the weights of its region's estimator."""


@final
class Posterior:
    """Posterior distribution of simulator parameters given an observation.

    Args:
        prior: The prior; any form accepted by ``as_prior``.
        observed: Features of the observation, ``(F,)`` or of any other shape; ``None``: none yet (see ``at``).
        draws: Equally weighted draws for it, ``(n, d)``; ``None`` samples them from the estimator.
        estimator: Approximates the posterior of any observation; ``None``: only the draws are known.
        description: Further contents of the folder, JSON types: settings of simulations and training.
        seed: Seed of the draws from the estimator.
        region: Region of the parameters of all training simulations: the estimator approximates the posterior of the
            prior truncated to it. ``None``: of the whole prior.

    Raises:
        ShapeError: ``draws`` or ``observed`` has another shape than expected.
        ValueError: A draw is not finite, or there is neither an estimator nor a draw.
    """

    def __init__(
        self,
        prior: Any,
        observed: Any = None,
        draws: Any = None,
        *,
        estimator: Estimator | None = None,
        description: Mapping[str, Any] | None = None,
        seed: int = 0,
        region: Region | None = None,
    ) -> None:
        self.prior: Prior = as_prior(prior)
        """The prior."""
        self.region = region
        """Region of the parameters on which its estimator was trained; ``None``: the whole prior."""
        self.description: dict[str, Any] = dict(description or {})
        """Settings and statistics of its simulations and training."""
        self._estimator, self._seed = estimator, check_seed("seed", seed)
        self.observed: np.ndarray | None = None if observed is None else self._features("observed", observed)[0]
        """Features of the observation, ``None`` without one."""
        self._draws: np.ndarray | None = None
        if draws is not None:
            self._draws = self.prior.check_rows("draws", draws)
            if not len(self._draws) or not np.isfinite(self._draws).all():
                raise ValueError(f"draws must be at least one finite row, got {self._draws.shape}")
        elif estimator is None:
            raise ValueError("a posterior must have draws, an estimator, or both, got neither")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters in the environment."""
        return self.prior.names

    @property
    def draws(self) -> np.ndarray:
        """Draws for the observation, ``(n, d)``.

        Raises:
            ValueError: There is no observation yet.
        """
        if self._draws is not None:
            return self._draws
        if self.observed is None:
            raise ValueError("nothing was observed yet: posterior.at(features) is the posterior given features")
        drawn: np.ndarray = self._from_estimator(NUM_DRAWS, self.observed[None], self._seed)[0]
        self._draws = drawn
        return drawn

    @property
    def failures(self) -> str:
        """Number of failed training simulations, in words; empty if unknown."""
        failed, made = (self.description.get(key) for key in ("num_failed", "num_simulations"))
        if failed is None or made is None:
            return ""
        # A list has the usable ones of each round of training.
        total = sum(made) + failed + self.description.get("num_unlearned", 0) if isinstance(made, list) else made
        return f"{failed:,} of {total:,} simulations failed"

    @property
    def mean(self) -> np.ndarray:
        """Mean of the draws, ``(d,)``."""
        return self.draws.mean(axis=0)

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of the draws, ``(d,)``."""
        return self.draws.std(axis=0)

    @property
    def estimator(self) -> Estimator:
        """Estimator of the posterior of any observation, in the standard normal space.

        Raises:
            ValueError: There are only draws.
        """
        return self._needed()

    @property
    def has_estimator(self) -> bool:
        """Whether posteriors of other observations are available (``at``)."""
        return self._estimator is not None

    def at(self, observed: Any, seed: int = 0) -> Posterior:
        """The posterior of other features.

        If the estimator was trained in one round from the prior (amortized), it is valid for any features; after rounds
        that were directed to one observation, near that one.
        """
        self._needed()
        # Without the border, which belongs to the former observation
        description = {key: value for key, value in self.description.items() if key != BORDER}
        return Posterior(
            self.prior, observed, estimator=self._estimator, description=description, seed=seed, region=self.region
        )

    def sample(self, num: int, seed: int, observed: Any = None) -> np.ndarray:
        """Draws, ``(num, d)``; for a batch of observations, ``(m, num, d)``.

        Args:
            num: Number of draws.
            seed: The same seed gives the same draws.
            observed: Features of one observation, or of m; ``None`` means those of the posterior. Without an
                estimator, its draws are resampled with replacement.
        """
        count, seed = check_whole("num", num, 0), check_seed("seed", seed)
        if observed is None and (self._estimator is None or self.observed is None):
            generator = np.random.default_rng(derive_seed("posterior rows", seed))
            return self.draws[generator.integers(len(self.draws), size=count)]
        given = np.asarray(self.observed) if observed is None else observed
        features = self._features("observed", given)
        drawn = self._from_estimator(count, features, seed)
        return drawn if np.ndim(given) == 1 + len(self._event_shape) else drawn[0]

    def log_prob(self, thetas: Any, observed: Any = None) -> np.ndarray:
        """Log density of each row of ``thetas (n, d)``, ``(n,)``; of a learned likelihood, up to a constant.

        Args:
            thetas: Sets of parameters; outside the bounds of the prior the density is 0.
            observed: Features of one observation; ``None`` means those of the posterior. With m of them, ``thetas`` has
                one row for each.

        Raises:
            ValueError: There is no estimator, or no observation.
        """
        estimator, rows = self._needed(), self.prior.check_rows("thetas", thetas)
        if observed is None and self.observed is None:
            raise ValueError("observed must be given: the posterior has no observation yet")
        given = np.asarray(self.observed) if observed is None else observed
        features = self._features("observed", given)
        paired = np.ndim(given) == 1 + len(self._event_shape)
        if paired and len(rows) != len(features):
            raise ShapeError(f"thetas must be one set for each of {len(features)} observations, got {len(rows)}")
        normals = self.prior.to_normal(rows)
        logs = estimator.log_prob(normals[:, None] if paired else normals, features)
        inside = np.isfinite(self.prior.log_prob(rows))
        safe = np.where(inside[:, None], rows, self.prior.from_normal(np.zeros_like(rows)))
        return np.where(inside, (logs[:, 0] if paired else logs[0]) + self.prior.log_stretch(safe), -np.inf)

    # ---- on disk ---------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write ``draws.npz``, ``weights.safetensors`` and ``posterior.json`` into a folder; overwrites a posterior.

        Args:
            folder: Destination.

        Raises:
            FileExistsError: ``folder`` exists and is not a posterior.
            ValueError: There is no observation, so there are no draws.
        """
        estimator, region = self._estimator, self.region
        description = {
            "prior": self.prior.to_plain(),
            "observed": None if self.observed is None else self.observed.tolist(),
            "num_draws": len(self.draws),
            "estimator": None if estimator is None else estimator.to_plain(),
            "region": None if region is None or estimator is None else region.to_plain(),
            "training": self.description,
            "seed": self._seed,
        }
        weights = None if estimator is None else estimator.weights()
        if weights is not None and region is not None:
            weights = {**weights, **{_REGION + name: value for name, value in region.estimator.weights().items()}}
        return write_folder(folder, Draws(self.names, self.draws), description, weights)

    @classmethod
    def load(cls, folder: str | Path, *, embedding_net: nn.Module | None = None) -> Posterior:
        """Load the posterior of a folder. sbi is needed only once ``sample`` or ``log_prob`` evaluate its estimator.

        Args:
            folder: The folder, or that of the run of ``metaroll infer`` that holds it.
            embedding_net: A network of the same architecture as in training, if one was used.

        Raises:
            PosteriorError: The folder is damaged, or not a posterior.
        """
        path = check_path("folder", folder)
        plain, draws, weights = read_description(path), read_draws(path), read_weights(path)
        try:
            prior = Prior.from_plain(plain["prior"])
            if prior.names != draws.names:
                raise ValueError(f"the prior is of {list(prior.names)}, the draws are of {list(draws.names)}")
            estimator = region = None
            if plain["estimator"] is not None and weights is not None:
                of_region = {name: value for name, value in weights.items() if name.startswith(_REGION)}
                own = {name: value for name, value in weights.items() if name not in of_region}
                estimator = _LaterEstimator(prior.dim, plain["estimator"], own, embedding_net)
                if (region_plain := plain.get("region")) is not None:
                    named = {name.removeprefix(_REGION): value for name, value in of_region.items()}
                    earlier = _LaterEstimator(prior.dim, region_plain["estimator"], named, embedding_net)
                    region = Region(
                        earlier, np.asarray(region_plain["observed"], dtype=np.float64), float(region_plain["border"])
                    )
                    if region.observed.shape != earlier.event_shape or not np.isfinite(region.observed).all():
                        raise ValueError(f"observed of its region must be finite, {earlier.event_shape} numbers")
                    if not math.isfinite(region.border):
                        raise ValueError(f"the border of its region must be finite, got {region.border}")
            return cls(
                prior,
                plain["observed"],
                draws.values,
                estimator=estimator,
                description=plain["training"],
                seed=plain["seed"],
                region=region,
            )
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise PosteriorError(
                f"{path} holds no posterior of this version ({type(error).__name__}: {error})"
            ) from error

    # ---- internals
    # ----------------------------------------------------------------------------------------------------

    @property
    def _event_shape(self) -> tuple[int, ...]:
        if self._estimator is not None:
            return self._estimator.event_shape
        return () if self.observed is None else self.observed.shape

    def _needed(self) -> Estimator:
        if self._estimator is None:
            raise ValueError("this posterior has draws only, and no estimator for densities or further draws")
        return self._estimator

    def _features(self, what: str, features: Any) -> np.ndarray:
        """``(m, *event_shape)``, finite."""
        rows = array_of(what, features, "an array of features").astype(np.float64)
        shape = rows.shape if self._estimator is None else self._estimator.event_shape
        rows = rows[None] if rows.shape == shape else rows
        if rows.shape[1:] != shape:
            raise ShapeError(f"{what} must have shape {shape}, or a batch of it, got {rows.shape}")
        if not np.isfinite(rows).all():
            raise ValueError(f"{what} must be finite, got features with NaN or infinity")
        return rows

    def _from_estimator(self, num: int, features: np.ndarray, seed: int) -> np.ndarray:
        estimator = self._needed()
        drawn = estimator.sample(num, features, seed) if num else np.empty((len(features), 0, self.prior.dim))
        return self.prior.from_normal(drawn.reshape(-1, self.prior.dim)).reshape(drawn.shape)

    def __repr__(self) -> str:
        if self.observed is None:
            text = f"Posterior of {', '.join(self.names)}, amortized: at(features) is the posterior given features"
            return text + (f"; {self.failures}" if self.failures else "")
        rows = zip(self.names, self.mean, self.std, self.prior.std, strict=True)
        shown = ", ".join(f"{n} = {m:.4g} +- {s:.2g} (prior +- {p:.2g})" for n, m, s, p in rows)
        return f"Posterior: {shown}" + (f"; {self.failures}" if self.failures else "")


class _LaterEstimator:
    """An estimator from a folder, built on first use, since draws can be read without sbi."""

    def __init__(
        self, dim: int, plain: Mapping[str, Any], weights: Mapping[str, Tensor], embedding_net: nn.Module | None
    ) -> None:
        self.event_shape = tuple(int(size) for size in plain["event_shape"])
        self._dim, self._plain, self._weights, self._net = dim, plain, weights, embedding_net

    @functools.cached_property
    def _built(self) -> NeuralEstimator:
        return NeuralEstimator.from_weights(self._dim, self._plain, self._weights, self._net)

    def sample(self, num: int, features: np.ndarray, seed: int) -> np.ndarray:
        return self._built.sample(num, features, seed)

    def log_prob(self, normals: np.ndarray, features: np.ndarray) -> np.ndarray:
        return self._built.log_prob(normals, features)

    def weights(self) -> dict[str, Tensor]:
        return dict(self._weights)

    def to_plain(self) -> dict[str, Any]:
        return dict(self._plain)
