"""Random points on the surface of the unit sphere in any number of dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from metaroll.checks import check_whole
from metaroll.errors import unknown_name
from metaroll.seeding import as_generator

__all__ = ["sample_from_hyper_sphere_surface"]

_METHODS = ("normal", "uniform", "Marsaglia")

_MAX_UNIFORM_DIM = 12
"""Of the points in a cube, 1 in 3,000 lies in the ball in 12 dimensions, 1 in 80,000 in 15, 1 in 40 million in 20."""

_MAX_NUMBERS = 1 << 20
"""Random numbers that are drawn at once."""


def sample_from_hyper_sphere_surface(
    num_dim: int,
    method: str,
    *,
    num_samples: int | None = None,
    generator: np.random.Generator | int | Sequence[int] | None = None,
) -> torch.Tensor:
    """Points that lie uniformly on the unit sphere.

    Args:
        num_dim: Number of dimensions d of the space around the sphere, at least 1.
        method: ``"normal"``: directions of normal random vectors, for any d. ``"uniform"``: directions of points in the
            cube, of which those outside the ball are rejected, up to d = 12. ``"Marsaglia"``: Marsaglia 1972, *Choosing
            a point from the surface of a sphere*, for d = 3 and 4.
        num_samples: Number of points; ``None`` gives one, without the axis for it.
        generator: Source of randomness, or its seed; ``None`` means fresh entropy.

    Returns:
        Tensor of the default dtype with L2-norm 1, shape ``(d,)``, or ``(num_samples, d)``.

    Raises:
        TypeError: A number is not an integer.
        ValueError: There is no such method, or it cannot draw in that many dimensions.
    """
    dim = check_whole("num_dim", num_dim)
    number = 1 if num_samples is None else check_whole("num_samples", num_samples, low=0)
    if not isinstance(method, str) or method not in _METHODS:
        raise unknown_name("method", str(method), _METHODS)
    if method == "Marsaglia" and dim not in (3, 4):
        raise ValueError(f"method 'Marsaglia' exists for num_dim 3 and 4 only, got {dim}; take 'normal'")
    if method == "uniform" and dim > _MAX_UNIFORM_DIM:
        raise ValueError(
            f"method 'uniform' rejects nearly all points above num_dim {_MAX_UNIFORM_DIM}, got {dim}; take 'normal'"
        )
    drawn = as_generator(generator)
    if method == "Marsaglia":
        points = _marsaglia(dim, number, drawn)
    else:
        draw = drawn.standard_normal if method == "normal" else lambda shape: drawn.uniform(-1.0, 1.0, shape)
        points = _accepted(draw, dim, number, np.inf if method == "normal" else 1.0)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    result = torch.from_numpy(points).to(torch.get_default_dtype())
    return result[0] if num_samples is None else result


def _accepted(draw: Callable[[tuple[int, int]], np.ndarray], dim: int, number: int, max_square: float) -> np.ndarray:
    """The first ``number`` drawn vectors, shape ``(number, dim)``, with a squared norm above 0 and below the limit."""
    accepted = [np.empty((0, dim))]
    missing = number
    while missing:
        vectors = draw((min(2 * missing + 64, _MAX_NUMBERS // dim + 1), dim))
        square = np.einsum("nd,nd->n", vectors, vectors)
        accepted.append(vectors[(square > 0.0) & (square < max_square)][:missing])
        missing -= len(accepted[-1])
    return np.concatenate(accepted)


def _marsaglia(dim: int, number: int, generator: np.random.Generator) -> np.ndarray:
    def in_disc() -> tuple[np.ndarray, np.ndarray]:
        v = _accepted(lambda shape: generator.uniform(-1.0, 1.0, shape), 2, number, 1.0)
        return v, np.einsum("nd,nd->n", v, v)[:, None]

    v, s = in_disc()
    if dim == 3:
        return np.concatenate([2.0 * v * np.sqrt(1.0 - s), 1.0 - 2.0 * s], axis=1)
    w, s_w = in_disc()
    return np.concatenate([v, w * np.sqrt((1.0 - s) / s_w)], axis=1)
