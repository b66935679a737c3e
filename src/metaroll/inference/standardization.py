"""Standardized features for density estimators, safe for constant features."""

from __future__ import annotations

from typing import final

import torch
from torch import nn

from metaroll.checks import check_instance
from metaroll.functional.series.features import constant_features, feature_scale

__all__ = ["FeatureStandardizer"]


@final
class FeatureStandardizer(nn.Module):
    """Features with mean 0 and deviation 1; a constant feature becomes 0 instead of being divided by almost 0.

    For density estimators, in place of their own standardization (``z_score_x="none"`` of sbi), which gives a constant
    feature a scale of 1e-14.

    Args:
        features: Features that define mean and deviation, ``(N, F)``; rows with NaN (failed simulations) are ignored.

    Attributes:
        shift: Mean of each feature ``(F,)``.
        scale: Standard deviation of each feature ``(F,)``; 1 for constant ones.
        constant: Which features are constant, bool ``(F,)``.

    Raises:
        ShapeError: ``features`` is not a table.
        ValueError: No row is finite.
    """

    shift: torch.Tensor
    scale: torch.Tensor
    constant: torch.Tensor

    def __init__(self, features: torch.Tensor) -> None:
        super().__init__()
        check_instance("features", features, torch.Tensor, "a tensor (R, F)")
        shift, scale = feature_scale(features.detach())
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)
        self.register_buffer("constant", constant_features(features.detach()))
        # sbi asks an embedding_net for the device of its first parameter.
        self.anchor = nn.Parameter(torch.zeros(0), requires_grad=False)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Standardized features, ``(..., F) -> (..., F)``."""
        return (features - self.shift) / self.scale
