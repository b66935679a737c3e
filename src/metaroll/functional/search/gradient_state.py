"""State of searches that follow a gradient of the mean with Adam."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metaroll.functional.adam import adam_moments
from metaroll.functional.search.base import SearchState, checked_mean

__all__ = ["GradientState", "ascended", "gradient_start"]


@dataclass(frozen=True, kw_only=True)
class GradientState(SearchState):
    """State of a search that follows a gradient with Adam.

    Attributes:
        std: Standard deviation of the candidates ``(P,)``.
        first, second: Moments of Adam ``(P,)``.
    """

    std: np.ndarray
    first: np.ndarray
    second: np.ndarray


def gradient_start(mean: Any, std: float) -> GradientState:
    """The initial state at ``mean (P,)``; see ``Search.start``.

    Args:
        mean: Center of the first candidates.
        std: Their standard deviation.
    """
    center = checked_mean(mean)
    zeros = np.zeros(len(center))
    return GradientState(
        mean=center, best=center.copy(), std=np.full(len(center), float(std)), first=zeros, second=zeros.copy()
    )


def ascended(state: GradientState, gradient: np.ndarray, learning_rate: float) -> GradientState:
    """``state`` after an Adam step up ``gradient (P,)``."""
    # mean <- mean + lr m_hat / (sqrt(v_hat) + eps), (P,)
    mean, deviation, first, second = adam_moments(gradient, state.first, state.second, state.generation)
    return replace(state, mean=state.mean + learning_rate * mean / deviation, first=first, second=second)
