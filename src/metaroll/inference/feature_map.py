"""Preprocessing of simulated features for estimators and checks."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from metaroll.functional.posteriors.random_features import matern_frequencies, median_distance
from metaroll.functional.regression import cross_fitted_ridge
from metaroll.functional.series.features import constant_features

__all__ = ["FeatureMap"]

_NU = 2.5
"""Smoothness of the Matern kernel of random features: 5/2, as BayesSim has it."""
_FOLDS = 10
_MOST_WORK = 3e10
"""Largest cost of regressions (seconds): rows times features squared, or rows cubed if there are fewer rows."""


class FeatureMap(nn.Module):
    """Inputs of an estimator: standardized non-constant features, or functions of them.

    A feature that is constant in all simulations is dropped: it has no standard deviation and no information.

    Args:
        num_features: F, the number of features of a simulation.
        num_kept: Number of non-constant ones.
        num_frequencies: Number of random Fourier features; 0 means none.
        num_regressions: Number of linear regressions on the non-constant features, which replace them; 0 means none.
    """

    def __init__(self, num_features: int, num_kept: int, num_frequencies: int = 0, num_regressions: int = 0) -> None:
        super().__init__()
        self.num_features = num_features
        self.kept: Tensor
        self.mean: Tensor
        self.scale: Tensor
        self.frequencies: Tensor
        self.register_buffer("kept", torch.zeros(num_kept, dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(num_kept, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(num_kept, dtype=torch.float64))
        self.register_buffer("frequencies", torch.zeros(num_frequencies, num_kept, dtype=torch.float64))
        self.weights: Tensor | None
        self.offset: Tensor | None
        for name, shape in (("weights", (num_kept, num_regressions)), ("offset", (num_regressions,))):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64) if num_regressions else None)

    @classmethod
    def fitted(cls, features: np.ndarray, num_frequencies: int = 0, seed: int = 0) -> FeatureMap:
        """The map for simulations with ``features (n, F)``.

        Args:
            features: Features of the simulations, finite.
            num_frequencies: Number of random Fourier features.
            seed: Seed of their scrambling.

        Raises:
            ValueError: No feature varies.
        """
        rows = np.asarray(features, dtype=np.float64)
        mean, std = rows.mean(axis=0), rows.std(axis=0)
        kept = np.flatnonzero(~constant_features(torch.as_tensor(features)).numpy())
        if not kept.size:
            raise ValueError(
                f"features must vary with the parameters, but all {rows.shape[1]} are the same in all {len(rows)} "
                "simulations; take other features, or wider priors"
            )
        made = cls(rows.shape[1], len(kept), num_frequencies)
        made.kept.copy_(torch.from_numpy(kept))
        made.mean.copy_(torch.from_numpy(mean[kept]))
        made.scale.copy_(torch.from_numpy(1.0 / std[kept]))
        if num_frequencies:
            scaled = (rows[:, kept] - mean[kept]) / std[kept]
            frequencies = matern_frequencies(num_frequencies, len(kept), median_distance(scaled), _NU, seed)
            made.frequencies.copy_(torch.from_numpy(frequencies))
        return made

    def regressed(self, features: np.ndarray, targets: np.ndarray, seed: int) -> tuple[FeatureMap, Tensor] | None:
        """The map to linear regressions of d targets on the features, and its outputs for these simulations.

        Ten-fold cross-fitting: outputs for each fold come from regressions on the other nine. A regression fits its own
        training data too well, and an estimator trained on these fits would be overconfident. ``None`` if regressions
        explain no target, or would take very long.

        Args:
            features: Features of the simulations, ``(n, F)``.
            targets: Regression targets, ``(n, d)``.
            seed: Seed of the folds.
        """
        count, width = len(features), len(self.kept)
        if float(count) * min(count, width) ** 2 > _MOST_WORK:
            return None
        folds = np.random.default_rng(seed).permutation(count) % _FOLDS
        fit = cross_fitted_ridge(self._scaled(torch.as_tensor(features)).numpy(), targets, folds)
        tells = np.abs(fit.weights).sum(axis=0) > 0.0
        if not tells.any():
            return None
        mean, std = fit.left_out.mean(axis=0), np.where(tells, fit.left_out.std(axis=0), 1.0)
        made = FeatureMap(self.num_features, width, 0, targets.shape[1])
        for name in ("kept", "mean", "scale"):
            getattr(made, name).copy_(getattr(self, name))
        assert made.weights is not None and made.offset is not None
        made.weights.copy_(torch.from_numpy(fit.weights / std))
        made.offset.copy_(torch.from_numpy((fit.offset - mean) / std))
        return made, torch.from_numpy((fit.left_out - mean) / std).to(torch.float32)

    def forward(self, features: Tensor) -> Tensor:
        """Inputs of the estimator for ``features (n, F)``, float32 ``(n, K)``."""
        scaled = self._scaled(features)
        if self.weights is not None and self.offset is not None:
            scaled = scaled @ self.weights + self.offset
        if len(self.frequencies):
            angles = scaled @ self.frequencies.T
            scaled = math.sqrt(2.0) * torch.cat([torch.cos(angles), torch.sin(angles)], dim=1)
        return scaled.to(torch.float32)

    def _scaled(self, features: Tensor) -> Tensor:
        """Non-constant features, float64 ``(n, K)``."""
        return (features.to(torch.float64)[:, self.kept] - self.mean) * self.scale
