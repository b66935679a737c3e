"""Losses of proximal policy optimization, with hand-written gradients, for the rows of a minibatch.

The clipped surrogate is equation 7 of Schulman et al. 2017 (arXiv:1707.06347). B counts rows, A entries of an action, n
choices. All losses are means over rows and are to be minimized. Surrogate and value loss take arrays of NumPy or torch.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

__all__ = [
    "GaussianRows",
    "Surrogate",
    "ValueLoss",
    "categorical_log_prob",
    "categorical_log_prob_gradient",
    "clipped_surrogate",
    "clipped_value_loss",
    "gaussian_rows",
    "log_softmax",
    "standardize",
]

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


Rows = Any
"""An array ``(B,)`` of NumPy or torch; sums over it are ``()``."""


class Surrogate(NamedTuple):
    """Sums over rows, to be divided by B, and the gradient of the loss.

    Attributes:
        objective: Sum of ``min(r A, clip(r, 1 - c, 1 + c) A)``; the loss is its negative mean.
        d_log_prob: Gradient ``(B,)`` of the loss w.r.t. the log-probabilities.
        kl: Sum of ``ratio - 1 - log ratio``: its mean is an unbiased, non-negative estimate of ``KL(old || new)`` (the
            estimator k3 of J. Schulman, "Approximating KL divergence").
        num_clipped: Number of rows whose ratio was clipped.
    """

    objective: Any
    d_log_prob: Rows
    kl: Any
    num_clipped: Any


class ValueLoss(NamedTuple):
    """The sum of squared errors over rows; the loss is its mean, with the gradient ``d_values (B,)``."""

    squares: Any
    d_values: Rows


def clipped_surrogate(log_prob: Rows, old_log_prob: Rows, advantages: Rows, clip_range: float) -> Surrogate:
    """``-mean(min(r A, clip(r, 1 - c, 1 + c) A))`` with ``r = exp(log_prob - old_log_prob)``; all ``(B,)``."""
    xp = _namespace(log_prob)
    # r = pi(a | s) / pi_old(a | s), (B,)
    log_ratio = log_prob - old_log_prob
    ratio = xp.exp(log_ratio)
    # r A and clip(r, 1 - c, 1 + c) A, (B,) (Schulman et al. 2017, equation 7)
    plain = ratio * advantages
    clipped = _clip(ratio, 1.0 - clip_range, 1.0 + clip_range)
    clipped *= advantages
    # dL/dln pi = -r A / B, (B,); where the clipped term is smaller, it is constant and the gradient 0.
    d_log_prob = xp.where(plain <= clipped, plain, 0.0)
    d_log_prob *= -1.0 / len(ratio)
    change = ratio - 1.0
    num_clipped = xp.count_nonzero(abs(change) > clip_range)
    return Surrogate(_sum(xp.minimum(plain, clipped)), d_log_prob, _sum(change - log_ratio), num_clipped)


def clipped_value_loss(values: Rows, targets: Rows, old_values: Rows, clip_range: float | None = None) -> ValueLoss:
    """``mean((V - R)^2)`` and its gradient w.r.t. the values; all ``(B,)``.

    With ``clip_range`` c it is ``mean(max((V - R)^2, (V_old + clip(V - V_old, -c, c) - R)^2))``, as in the code of
    PPO's authors.
    """
    # V(s) - R, (B,)
    error = values - targets
    size = len(values)
    if clip_range is None:
        return ValueLoss(error @ error, error * (2.0 / size))  # dL/dV = 2 (V - R) / B, (B,)
    xp = _namespace(values)
    # V_old + clip(V - V_old, -c, c) - R, (B,)
    change = values - old_values
    clipped_error = old_values + _clip(change, -clip_range, clip_range) - targets
    plain, clipped = error * error, clipped_error * clipped_error
    # The clipped term depends on V only inside the range, where both terms are equal.
    gradient = xp.where((plain >= clipped) | (abs(change) <= clip_range), error, 0.0)
    gradient *= 2.0 / size
    return ValueLoss(_sum(xp.maximum(plain, clipped)), gradient)


def _namespace(rows: Rows) -> Any:
    return torch if isinstance(rows, torch.Tensor) else np


def _sum(rows: Rows) -> Any:
    return rows.sum() if isinstance(rows, torch.Tensor) else np.add.reduce(rows)  # twice as fast as the method


def _clip(rows: Rows, low: float, high: float) -> Rows:
    if isinstance(rows, torch.Tensor):
        return rows.clamp(low, high)
    clipped = np.maximum(rows, low)  # np.clip takes three times as long for a few dozen rows
    return np.minimum(clipped, high, out=clipped)


class GaussianRows(NamedTuple):
    """Log-densities of actions, and the ingredients of their gradients.

    Attributes:
        log_prob: ``(B,)``.
        deviations: ``z = (a - mean) / std``, ``(B, A)``. The gradient of a log-density w.r.t. the mean is ``z / std``,
            w.r.t. ``log_std`` it is ``z^2 - 1``.
        inverse_std: ``1 / std (A,)``.
        entropy: Entropy of each row; its gradient w.r.t. ``log_std`` is 1.
    """

    log_prob: np.ndarray
    deviations: np.ndarray
    inverse_std: np.ndarray
    entropy: float


def gaussian_rows(actions: np.ndarray, mean: np.ndarray, log_std: np.ndarray) -> GaussianRows:
    """Log-densities of ``actions (B, A)`` under ``N(mean, exp(log_std)^2)``, ``mean (B, A)`` and ``log_std (A,)``."""
    inverse_std, total = np.exp(-log_std), float(np.add.reduce(log_std))
    # z = (a - mu) / sigma, (B, A)
    z = actions - mean
    z *= inverse_std
    # ln pi = -sum_i (z_i^2 / 2 + ln sigma_i + ln(2 pi) / 2), (B,)
    log_prob = np.einsum("ba,ba->b", z, z)
    log_prob *= np.float32(-0.5)
    log_prob -= np.float32(total + len(log_std) * _HALF_LOG_2PI)
    return GaussianRows(log_prob, z, inverse_std, total + len(log_std) * (_HALF_LOG_2PI + 0.5))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities ``(B, n)`` of ``logits (B, n)``."""
    shifted = logits - np.maximum.reduce(logits, axis=1, keepdims=True)
    shifted -= np.log(np.add.reduce(np.exp(shifted), axis=1, keepdims=True))
    return shifted


def categorical_log_prob(log_probs: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability ``(B,)`` of the chosen ``actions (B,)``, and entropy ``(B,)``, of ``log_probs (B, n)``."""
    entropy = -np.einsum("bn,bn->b", np.exp(log_probs), log_probs)
    return log_probs[np.arange(len(actions)), actions], entropy


def categorical_log_prob_gradient(
    log_probs: np.ndarray, actions: np.ndarray, entropy: np.ndarray, d_log_prob: np.ndarray, d_entropy: np.ndarray
) -> np.ndarray:
    """Gradient ``(B, n)`` of a loss w.r.t. the logits, from those ``(B,)`` w.r.t. log-probability and entropy.

    ``d log p_a / d logit_j = [a = j] - p_j`` and ``d H / d logit_j = -p_j (log p_j + H)``.
    """
    probs = np.exp(log_probs)
    # dL/dH dH/dlogit_j + dL/dln pi dln pi/dlogit_j, both with the factor p_j, (B, n)
    gradient = log_probs + entropy[:, None]
    gradient *= -d_entropy[:, None]
    gradient -= d_log_prob[:, None]
    gradient *= probs
    gradient[np.arange(len(actions)), actions] += d_log_prob  # the term [a = j]
    return gradient


def standardize(advantages: np.ndarray) -> np.ndarray:
    """``(A - mean) / (std + 1e-8)`` of ``advantages (B,)``, with the sample's deviation; a single row is unchanged."""
    size = len(advantages)
    if size < 2:
        return advantages
    centered = advantages - np.float32(float(np.add.reduce(advantages)) / size)
    std = math.sqrt(float(np.dot(centered, centered)) / (size - 1))
    centered *= np.float32(1.0 / (std + 1e-8))
    return centered
