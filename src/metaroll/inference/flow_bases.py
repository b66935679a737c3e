"""The normal base of a flow: of any covariance, so that it can be fitted once the flow is trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["base_is_fitted", "with_fitted_base", "with_full_base_weights"]

_FITTED = ("maf", "autoregressive_nsf")


def base_is_fitted(method: str, model: str) -> bool:
    """Whether densities of a method and model have a base that is fitted after training."""
    return method == "npe" and model in _FITTED


def with_fitted_base(member: Any, dim: int) -> Any:
    """The flow with a normal base of any covariance, which is standard normal until it is fitted or loaded."""
    from zuko.lazy import UnconditionalDistribution

    old = member.net.base
    member.net.base = UnconditionalDistribution(
        torch.distributions.MultivariateNormal,
        loc=torch.zeros_like(old.loc),
        scale_tril=torch.eye(dim, dtype=old.loc.dtype, device=old.loc.device),
        buffer=True,
    )
    return member


def with_full_base_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of such a flow; its base may have been saved as deviations only."""
    if (scale := weights.pop("net.base.scale", None)) is not None and scale.ndim == 1:
        weights["net.base.scale_tril"] = torch.diag(scale)
    return weights
