"""Elementwise policy gradient objectives, as differentiable functions of log-probabilities (torch).

All are to be maximized. Weights, masks and means are up to the caller: ``(weights * objective).sum()``.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["magic_box", "magic_box_objective", "ratio_objective"]


def ratio_objective(
    log_prob: Tensor, old_log_prob: Tensor, advantages: Tensor, clip_range: float | None = None
) -> Tensor:
    """``r A`` with ``r = exp(log_prob - old_log_prob)``, or ``min(r A, clip(r, 1 - c, 1 + c) A)``; all ``(...)``.

    The first is equation 6, the second equation 7 of Schulman et al. 2017 (arXiv:1707.06347). At ``log_prob =
    old_log_prob`` the first has the gradient of ``log_prob A``, but the low-variance curvature of Rothfuss et al. 2019
    (arXiv:1810.06784, equation 6), which ``log_prob A`` lacks.
    """
    # r = pi(a | s) / pi_old(a | s), (...)
    ratio = torch.exp(log_prob - old_log_prob)
    if clip_range is None:
        return ratio * advantages
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    return torch.minimum(ratio * advantages, clipped * advantages)


def magic_box(exponent: Tensor) -> Tensor:
    """``exp(x - stop_gradient(x))``: equal to 1, with the derivatives (of all orders) of a likelihood ratio.

    Foerster et al. 2018, "DiCE: The infinitely differentiable Monte Carlo estimator" (arXiv:1802.05098, equation 5).
    """
    return torch.exp(exponent - exponent.detach())


def magic_box_objective(log_prob: Tensor, rewards: Tensor) -> Tensor:
    """``magic_box(sum_{t' <= t} log_prob_{t'}) r_t`` along complete rollouts, all ``(..., T)``.

    The sum over t equals the return, and in expectation its derivatives of all orders are those of the expected return
    (arXiv:1802.05098, equation 9). Padding must come last, with weight 0.
    """
    return magic_box(torch.cumsum(log_prob, dim=-1)) * rewards
