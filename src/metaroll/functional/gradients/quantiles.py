"""Distributional values with atoms: the truncated mixture of critics, and the quantile regression loss.

B counts the steps of a batch, K the critics, M the atoms of each, T those of a target.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from metaroll.errors import ShapeError

__all__ = ["QuantileLoss", "quantile_huber_loss", "smallest_atoms"]


def smallest_atoms(atoms: Tensor, dropped: int) -> Tensor:
    """The smallest ``K M - dropped`` atoms, pooled over critics, ascending, ``(B, K M - dropped)``.

    Kuznetsov et al. 2020, arXiv:2005.04269, section 4.2: the mixture of the critics' distributions without its right
    tail, which overestimates.

    Args:
        atoms: ``(K, B, M)``.
        dropped: Number of atoms to drop, less than ``K M``.

    Raises:
        ValueError: No atom would be left.
    """
    count = atoms.shape[0] * atoms.shape[2]
    if not 0 <= dropped < count:
        raise ValueError(f"dropped must lie in [0, {count - 1}] for {count} atoms, got {dropped}")
    return atoms.transpose(0, 1).flatten(1).sort(dim=-1).values[:, : count - dropped]


class QuantileLoss(NamedTuple):
    """A loss ``()``, and its gradient w.r.t. the atoms ``(K, B, M)``."""

    loss: Tensor
    grad_atoms: Tensor


def quantile_huber_loss(atoms: Tensor, target: Tensor, weights: Tensor | None = None) -> QuantileLoss:
    """``sum_k mean_b w_b mean_m mean_i |tau_m - 1[u < 0]| h(u)`` with ``u = y_i - theta_km``, and its gradient.

    ``h(u) = u^2 / 2`` for ``|u| <= 1``, else ``|u| - 1/2``; ``tau_m = (2 m - 1) / (2 M)``. Dabney et al. 2018,
    arXiv:1710.10044, equation 10; Kuznetsov et al. 2020, arXiv:2005.04269, equations 12 and 13, of which this is the
    sum over critics.

    Pairs of atoms are never formed: with sorted targets, sums over the targets below a point x (of ``x - y`` and its
    square) give the losses of an atom from three points, ``theta`` and ``theta +- 1``. That takes
    O((K M + T) log T) per step instead of O(K M T).

    Args:
        atoms: Atoms of the critics, ``(K, B, M)``.
        target: Target atoms, in any order, ``(B, T)``.
        weights: Importance weights of prioritized replay, ``(B,)``; ``None`` for 1.

    Raises:
        ShapeError: Shapes are wrong, or the numbers of steps differ.
    """
    if atoms.ndim != 3 or target.ndim != 2 or atoms.shape[1] != target.shape[0]:
        raise ShapeError(
            f"atoms must have shape (K, B, M) and target (B, T), got {tuple(atoms.shape)} and {tuple(target.shape)}"
        )
    num_atoms, num_targets = atoms.shape[2], target.shape[1]
    # Sorted targets y_(i), (B, T)
    ordered = target.sort(dim=-1).values
    # Centered at the median target, so that sums of large numbers do not hide small differences.
    middle = ordered[:, num_targets // 2, None]
    ordered = (ordered - middle).contiguous()
    theta = (atoms - middle).transpose(0, 1).flatten(1)
    # The points theta - 1, theta, theta + 1, (B, 3 K M), and sums over the targets below each, (B, K M) per point
    points = torch.cat((theta - 1.0, theta, theta + 1.0), dim=-1)
    first, second = (part.unflatten(-1, (3, -1)).unbind(1) for part in _sums_below(ordered, points))
    # u clipped to [0, 1] and to [-1, 0], and h(u) for u > 0 and for u < 0, summed over the targets, (B, K M).
    clipped_up, clipped_down = num_targets + first[1] - first[2], first[0] - first[1]
    up = ordered.sum(dim=-1, keepdim=True) - num_targets * (theta + 0.5) - second[1] + second[2]
    down = second[1] - second[0]
    # tau_m = (2 m - 1) / (2 M), repeated for each critic, (K M,)
    tau = (torch.arange(num_atoms, dtype=theta.dtype, device=theta.device) + 0.5) / num_atoms
    tau = tau.repeat(len(atoms))
    # dL/dtheta = -(tau sum_i clip(u_i, 0, 1) + (1 - tau) sum_i clip(u_i, -1, 0)) / (M T), (B, K M), before weights
    grad = (tau * clipped_up + (1.0 - tau) * clipped_down) * (-1.0 / (num_atoms * num_targets))
    losses = _by_critic(tau * up + (1.0 - tau) * down, num_atoms).mean(dim=-1) / num_targets  # (K, B)
    share = losses.new_full((), 1.0 / losses.shape[1]) if weights is None else weights * (1.0 / losses.shape[1])
    loss = (losses if weights is None else losses * weights).mean(dim=-1).sum()
    return QuantileLoss(loss, _by_critic(grad, num_atoms) * share[..., None])


def _sums_below(ordered: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """``sum_i max(x - y_i, 0)`` and ``sum_i max(x - y_i, 0)^2 / 2`` for ``points (B, P)``, of ``ordered (B, T)``."""
    sums, squares = (torch.nn.functional.pad(part.cumsum(-1), (1, 0)) for part in (ordered, ordered.square()))
    count = torch.searchsorted(ordered, points)
    total = sums.gather(-1, count)
    first = count * points - total
    return first, 0.5 * ((first - total) * points + squares.gather(-1, count))


def _by_critic(values: Tensor, num_atoms: int) -> Tensor:
    """``(B, K M)`` as ``(K, B, M)``."""
    return values.unflatten(-1, (-1, num_atoms)).transpose(0, 1)
