"""Adam's moments as a pure function of arrays (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1)."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["AdamMoments", "adam_moments"]


class AdamMoments(NamedTuple):
    """What a step of Adam is made of, all ``(P,)``.

    Attributes:
        mean: ``m / (1 - beta1^t)``, the average gradient.
        deviation: ``sqrt(v / (1 - beta2^t)) + eps``. A step is the learning rate times ``mean / deviation``.
        first: m, to be kept for the next step.
        second: v, to be kept for the next step.
    """

    mean: Any
    deviation: Any
    first: Any
    second: Any


def adam_moments(
    gradient: Any,
    first: Any,
    second: Any,
    num_steps: Any,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> AdamMoments:
    """The moments after ``gradient (P,)``, of NumPy or torch.

    Args:
        gradient: Of this step.
        first: m before it, ``(P,)``; zeros at first.
        second: v before it, ``(P,)``; zeros at first.
        num_steps: Which step it is, from 1; a number or an array ``()``.
        betas: Decay of both.
        eps: Added to the root of the second moment, after its bias correction.
    """
    beta1, beta2 = betas
    first = beta1 * first + (1.0 - beta1) * gradient
    second = beta2 * second + (1.0 - beta2) * (gradient * gradient)
    mean = first / (1.0 - beta1**num_steps)
    deviation = (second / (1.0 - beta2**num_steps)) ** 0.5 + eps
    return AdamMoments(mean, deviation, first, second)
