"""Sets of policy parameters around a mean, and how far they reach (for hill climbing)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from metaroll.functional.hyper_sphere import sample_from_hyper_sphere_surface
from metaroll.seeding import as_generator

__all__ = ["adapted_spread", "noisy_sets"]


def noisy_sets(
    mean: np.ndarray,
    spread: float,
    num_sets: int,
    noise: Literal["normal", "sphere"],
    generator: np.random.Generator | int | Sequence[int] | None = None,
) -> np.ndarray:
    """``num_sets`` parameter vectors around ``mean``, float32 ``(num_sets, P)``.

    Args:
        mean: Shape ``(P,)``, float64.
        spread: Standard deviation of each parameter (normal), or the distance of every set from the mean (sphere).
        num_sets: How many.
        noise: ``"normal"``: independent normal noise on each parameter. ``"sphere"``: uniform on the surface of a
            hypersphere around the mean.
        generator: Source of randomness; ``None`` means fresh entropy.
    """
    drawn = as_generator(generator)
    if noise == "normal":
        steps: Any = drawn.standard_normal((num_sets, len(mean)))
    else:
        steps = sample_from_hyper_sphere_surface(len(mean), "normal", num_samples=num_sets, generator=drawn).numpy()
    return (mean + spread * steps).astype(np.float32)


def adapted_spread(
    spread: float, improved: bool, factor: float, bounds: tuple[float, float], noise: str, initial: float
) -> float:
    """How far the next sets reach: nearer after a success, ``spread / factor^2``, else farther, ``spread * factor``.

    Args:
        spread: Spread of the last sets.
        improved: Whether one of them was better than the mean.
        factor: At least 1.
        bounds: Minimum and maximum spread. Normal noise is clipped to them; a radius outside restarts from
            ``initial``.
        noise: See ``noisy_sets``.
        initial: Initial spread.
    """
    changed = spread / factor**2 if improved else spread * factor
    low, high = bounds
    if noise == "sphere":
        return changed if low <= changed <= high else initial
    return min(max(changed, low), high)
