"""The scale on which a uniform prior is flat between two bounds, beside that on which it is a standard normal.

With u in (0, 1) the share of the prior below a parameter, its normal score is ``z = Phi^-1(u)``. Its flat one is
``y = sqrt(3) (2 u - 1) = sqrt(3) erf(z / sqrt(2))``, which has mean 0 and deviation 1 under the prior, and ends at
``-sqrt(3)`` and ``sqrt(3)``. A posterior of one width everywhere on the flat scale is ``1 / phi(z)`` times as wide on
the normal one: there a network would have to learn from few simulations that widths vary with the place.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["flat_of_normal", "inside_bounds", "log_flat_slope", "normal_of_flat"]

_EDGE = math.sqrt(3.0)
_LAST = 1.0 - 1e-12
"""Share of the way to a bound beyond which normal scores are all the same number, 7.1."""
_LOG_SLOPE_AT_0 = math.log(2.0 * _EDGE / math.sqrt(2.0 * math.pi))


def flat_of_normal(normals: Tensor, flat: Tensor) -> Tensor:
    """``normals (..., d)`` with those columns that are ``flat (d,)`` (bool) on the flat scale."""
    return torch.where(flat, _EDGE * torch.erf(normals / math.sqrt(2.0)), normals)


def normal_of_flat(points: Tensor, flat: Tensor) -> Tensor:
    """The inverse of ``flat_of_normal``, in double precision; beyond a bound it is the bound."""
    shares = torch.clamp(points.to(torch.float64) / _EDGE, -_LAST, _LAST)
    return torch.where(flat, math.sqrt(2.0) * torch.erfinv(shares), points.to(torch.float64))


def log_flat_slope(normals: Tensor, flat: Tensor) -> Tensor:
    """``log |dy / dz|`` of ``normals (..., d)``, ``(...,)``: ``log(2 sqrt(3)) + log phi(z)`` of each flat column."""
    each = _LOG_SLOPE_AT_0 - 0.5 * normals.square()
    return torch.where(flat, each, torch.zeros_like(each)).sum(dim=-1)


def inside_bounds(points: Tensor, flat: Tensor) -> Tensor:
    """Which ``points (..., d)`` lie within the bounds of their flat columns, bool ``(...,)``."""
    return ((points.abs() <= _EDGE) | ~flat).all(dim=-1)
