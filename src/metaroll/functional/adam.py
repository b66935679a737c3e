"""Adam's moments as a pure function of arrays (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1)."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["AdamMoments", "adam_moments"]


class AdamMoments(NamedTuple):
    """Quantities of an Adam step, all ``(P,)``.

    Attributes:
        mean: ``m / (1 - beta1^t)``, the average gradient.
        deviation: ``sqrt(v / (1 - beta2^t)) + eps``. A step is the learning rate times ``mean / deviation``.
        first: m, for the next step.
        second: v, for the next step.
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
    """The moments after ``gradient (P,)``, an array of NumPy or torch.

    Args:
        gradient: Gradient of this step.
        first: m before it, ``(P,)``; initially zeros.
        second: v before it, ``(P,)``; initially zeros.
        num_steps: Number t of this step, from 1; a number or an array ``()``.
        betas: Decay rates of both.
        eps: Added to the root of the second moment, after its bias correction.
    """
    beta1, beta2 = betas
    # m <- beta1 m + (1 - beta1) g, v <- beta2 v + (1 - beta2) g^2, (P,)
    first = beta1 * first + (1.0 - beta1) * gradient
    second = beta2 * second + (1.0 - beta2) * (gradient * gradient)
    # Bias correction: m / (1 - beta1^t), sqrt(v / (1 - beta2^t)) + eps
    mean = first / (1.0 - beta1**num_steps)
    deviation = (second / (1.0 - beta2**num_steps)) ** 0.5 + eps
    return AdamMoments(mean, deviation, first, second)
