"""Adam as a pure function on flat vectors."""

from __future__ import annotations

import numpy as np

__all__ = ["adam_change"]


def adam_change(
    gradient: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    count: int,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The step along ``gradient (P,)``, and the moments after it (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1).

    Args:
        gradient: Direction in which to go.
        first, second: Moments ``(P,)`` before; zeros at first.
        count: Which step it is, from 1.
        learning_rate: Length of the step of each parameter, at most about.
        betas: Decay rates of both moments.
        eps: Added to the root of the second moment.
    """
    first = betas[0] * first + (1.0 - betas[0]) * gradient
    second = betas[1] * second + (1.0 - betas[1]) * np.square(gradient)
    mean, square = first / (1.0 - betas[0] ** count), second / (1.0 - betas[1] ** count)
    return learning_rate * mean / (np.sqrt(square) + eps), first, second
