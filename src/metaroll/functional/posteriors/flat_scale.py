"""The scale on which a uniform prior is flat with soft edges, and its map to the standard normal scale.

With u in (0, 1) the share of the prior below a parameter, its normal score is ``z = Phi^-1(u)``. Its flat one is the y
with ``F(y) = u``, where F is the distribution of a uniform number in (-1, 1) plus a normal one of deviation e: ::

    F(y) = e / 2 [G((y + 1) / e) - G((y - 1) / e)],   G(t) = t Phi(t) + phi(t),   F'(y) = [Phi((y + 1) / e) - ...] / 2

It is then divided by its deviation, ``sqrt(1 / 3 + e^2)``. A posterior of constant width on the flat scale is
``1 / phi(z)`` times as wide on the normal one: there a network would have to learn from few simulations how the width
varies. Without soft edges (e = 0) networks leave a part of their density outside the bounds, and the rest is too
narrow: a normal with the deviation of a uniform, cut at the uniform's ends, has 0.83 of it.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

__all__ = ["EDGE", "flat_of_normal", "log_flat_slope", "normal_of_flat"]

EDGE = 0.2
"""e. If it is smaller, posteriors at a bound become too narrow; if larger, those inside become too wide."""
_SCALE = math.sqrt(1.0 / 3.0 + EDGE * EDGE)
_LEAST_SHARE = 1e-12
"""Smallest share of the prior: beyond it, normal scores are all -7.03 or 7.03."""
_OUTERMOST = -1.0 - 9.0 * EDGE
"""Where the share is 1e-20."""
_TABLE = 2001


def flat_of_normal(normals: Tensor, flat: Tensor) -> Tensor:
    """``normals (..., d)`` with those columns that are ``flat (d,)`` (bool) on the flat scale, in double precision."""
    wanted = normals.to(torch.float64)
    low = -wanted.abs()  # an odd function; small shares are precise below the middle
    grid, scores = (entries.to(low.device) for entries in _table())
    low = torch.maximum(low, scores[0])
    right = torch.searchsorted(scores, low.contiguous()).clamp(1, len(scores) - 1)
    share = (low - scores[right - 1]) / (scores[right] - scores[right - 1])
    points = grid[right - 1] + share * (grid[right] - grid[right - 1])
    score = _score(points)  # followed by one Newton step, with a remaining error of 1e-13
    points = points - (score - low) * torch.exp(_log_slope(score, points)) * _SCALE
    return torch.where(flat, torch.copysign(points, wanted) / _SCALE, wanted)


def normal_of_flat(points: Tensor, flat: Tensor) -> Tensor:
    """The inverse of ``flat_of_normal``, in double precision; close to a bound it is constant."""
    places = points.to(torch.float64)
    scores = _score(torch.clamp(-places.abs() * _SCALE, _OUTERMOST, 0.0)).abs()
    most = -float(torch.special.ndtri(torch.tensor(_LEAST_SHARE, dtype=torch.float64)))
    return torch.where(flat, torch.copysign(scores.clamp(max=most), places), places)


def log_flat_slope(normals: Tensor, points: Tensor, flat: Tensor) -> Tensor:
    """``log |dy / dz|`` of ``normals (..., d)``, ``(...,)``: ``log phi(z) - log F'(y)``, summed over flat columns.

    Args:
        normals: Normal scores.
        points: Their values on the flat scale, from ``flat_of_normal``.
        flat: Which columns are flat, bool ``(d,)``.
    """
    each = _log_slope(normals.to(torch.float64), -points.to(torch.float64).abs() * _SCALE)
    return torch.where(flat, each, torch.zeros_like(each)).sum(dim=-1)


def _log_slope(scores: Tensor, places: Tensor) -> Tensor:
    """``log |dy / dz|`` at normal ``scores``, whose ``places`` (before the division by the deviation) are at most 0."""
    density = 0.5 * (_below((places + 1.0) / EDGE) - _below((places - 1.0) / EDGE))
    log_phi = -0.5 * scores.square() - 0.5 * math.log(2.0 * math.pi)
    return log_phi - torch.log(density) - math.log(_SCALE)


def _score(places: Tensor) -> Tensor:
    """Normal scores of ``places``, all at most 0."""
    shares = 0.5 * EDGE * (_integral((places + 1.0) / EDGE) - _integral((places - 1.0) / EDGE))
    return torch.special.ndtri(shares)


def _integral(t: Tensor) -> Tensor:
    """``G(t)``, the integral of Phi up to t."""
    return t * _below(t) + torch.exp(-0.5 * t.square()) / math.sqrt(2.0 * math.pi)


def _below(t: Tensor) -> Tensor:
    """``Phi(t)``; ``torch.special.ndtr`` is 0 where this is 1e-19."""
    return 0.5 * torch.erfc(-t / math.sqrt(2.0))


@cache
def _table() -> tuple[Tensor, Tensor]:
    """Places from the outermost to 0, and their normal scores."""
    grid = torch.linspace(_OUTERMOST, 0.0, _TABLE, dtype=torch.float64)
    return grid, _score(grid)
