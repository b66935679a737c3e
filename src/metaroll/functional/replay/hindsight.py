"""Goals in hindsight (Andrychowicz et al. 2017, "Hindsight Experience Replay", strategy "future")."""

from __future__ import annotations

import numpy as np

__all__ = ["hindsight_draws"]


def hindsight_draws(
    steps_left: np.ndarray, ratio: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Which of N steps get a goal that was reached later in their episode, and where that was.

    Args:
        steps_left: From each to the end of what is known of its episode, at least 1, ``(N,)``.
        ratio: Share of the steps; k / (k + 1) for k goals in hindsight to each original one.
        generator: Source of randomness; it always draws two numbers for each step.

    Returns:
        Bool ``(N,)``, and how many steps later the goal was reached: uniform from 1 to ``steps_left``, ``(N,)``.
    """
    draws = generator.random((2, len(steps_left)))
    return draws[0] < ratio, 1 + (draws[1] * steps_left).astype(np.int64)
