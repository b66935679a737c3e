"""Features of time series: a few summary numbers per series, for many series at once (torch)."""

from __future__ import annotations

import torch

from metaroll.errors import ShapeError

__all__ = [
    "bayes_sim_features",
    "constant_features",
    "feature_scale",
    "kept_steps",
    "series_of_changes",
]

_ROUNDING = 32.0
"""A spread below this multiple of the rounding error of the largest number counts as 0."""


def kept_steps(num_steps: int, downsampling_factor: int = 1) -> int:
    """Number of steps left of ``num_steps`` if every ``downsampling_factor``-th is kept, beginning with the first."""
    return (num_steps - 1) // downsampling_factor + 1


def series_of_changes(states: torch.Tensor) -> torch.Tensor:
    """Changes from each step to the next, ``s_{t+1} - s_t``.

    Args:
        states: Shape ``(..., T, S)``.

    Returns:
        Shape ``(..., T - 1, S)``.

    Raises:
        ShapeError: There are fewer than two steps.
    """
    if states.ndim < 2 or states.shape[-2] < 2:
        raise ShapeError(f"changes need series (..., T, S) of at least two steps, got shape {tuple(states.shape)}")
    return states[..., 1:, :] - states[..., :-1, :]


def bayes_sim_features(states: torch.Tensor, actions: torch.Tensor, span: int = 1) -> torch.Tensor:
    """Ramos, Possas and Fox (2019, BayesSim, RSS, arXiv 1906.01728), equation 22, of changes over ``span`` steps.

    With ``tau_t = s_{t+k} - s_t`` and ``b_t`` the mean of ``a_t ... a_{t+k-1}`` (in the paper k = 1): the sum over t of
    ``b_t[i] tau_t[j]`` for each action i and state j (i slow); then mean and (biased) variance of ``tau`` over time.

    Args:
        states: Shape ``(..., T, S)``.
        actions: Shape ``(..., T, A)``; the last one, which no change follows, is not used.
        span: k.

    Returns:
        Shape ``(..., A S + 2 S)``.

    Raises:
        ShapeError: There are fewer than ``span + 1`` steps.
    """
    if 1 < span >= states.shape[-2]:
        raise ShapeError(f"changes over {span} steps need series of more, got shape {tuple(states.shape)}")
    changes = series_of_changes(states) if span == 1 else states[..., span:, :] - states[..., :-span, :]
    acting = actions[..., :-1, :]
    if span > 1:
        acting = acting.unfold(-2, span, 1).mean(dim=-1)
    products = acting.transpose(-1, -2) @ changes
    mean = changes.mean(dim=-2)
    variance = (changes - mean.unsqueeze(-2)).square().mean(dim=-2)  # var_mean takes three times as long
    return torch.cat([products.flatten(-2), mean, variance], dim=-1)


def constant_features(features: torch.Tensor) -> torch.Tensor:
    """Which columns are constant, up to rounding, so that their spread is meaningless.

    Examples are the padded end of a series, and the distance of data from itself. Divided by its standard deviation,
    any other value of such a feature in the observed data would become huge.

    Args:
        features: Shape ``(N, F)``; rows with NaN or infinite entries (simulations that failed) do not count.

    Returns:
        Bool, shape ``(F,)``; all true where there are fewer than two rows that count.

    Raises:
        ShapeError: ``features`` is not a table.
    """
    rows = _finite_rows(features)
    if len(rows) < 2:
        return torch.ones(rows.shape[1], dtype=torch.bool, device=rows.device)
    low, high = rows.amin(0), rows.amax(0)
    # The precision of the computation: float32 features passed as float64 still have float32's rounding errors.
    epsilon = torch.finfo(torch.float32 if features.dtype != torch.float64 else torch.float64).eps
    return high - low <= _ROUNDING * epsilon * torch.maximum(low.abs(), high.abs())


def feature_scale(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Shift and scale that standardize features: mean and standard deviation, and scale 1 for constant ones.

    A constant feature thus becomes 0, and if it deviates in the observed data, that deviation is not scaled.

    Args:
        features: Shape ``(N, F)``; rows with NaN or infinite entries do not count.

    Returns:
        Shift and scale, each of shape ``(F,)``, in the dtype of ``features``.

    Raises:
        ShapeError: ``features`` is not a table.
        ValueError: No row is finite.
    """
    rows = _finite_rows(features)
    if not len(rows):
        raise ValueError(f"features must have a row without NaN and infinities, got none in {len(features)}")
    deviation, mean = torch.std_mean(rows.double(), dim=0, correction=0)
    scale = torch.where(constant_features(features), 1.0, deviation)
    return mean.to(rows.dtype), scale.to(rows.dtype)


def _finite_rows(features: torch.Tensor) -> torch.Tensor:
    if features.ndim != 2 or not features.dtype.is_floating_point:
        raise ShapeError(
            f"features must be a table (N, F) of real numbers, got {features.dtype} of shape {tuple(features.shape)}"
        )
    return features[torch.isfinite(features).all(dim=1)]
