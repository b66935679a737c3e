"""Draws of a standard normal within a region that is defined by a density and its border (NumPy)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["truncated_normal_chains"]

_WIDTH = 8.0
"""Width of the first bracket in deviations of the region, which covers nearly all of a normal one."""
_MOST_TRIES = 200
"""After this many shrinkages a bracket is only its own point, and the chain stays there."""


def truncated_normal_chains(
    starts: np.ndarray,
    log_density: Callable[[np.ndarray], np.ndarray],
    border: float,
    scale: np.ndarray,
    num_moves: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """The last points of Markov chains whose distribution is the standard normal within a region, ``(n, d)``.

    The region is ``{x: log_density(x) >= border}``, of any shape. Each move is slice sampling along a random line
    through the point (hit-and-run; Neal 2003, sections 4.1 and 5). On a line, the slice of a standard normal is an
    interval that is known exactly. Within it, a bracket at a random position around the point shrinks towards the point
    until a candidate lies in the region, as in Neal's figure 5, which needs no convex region. Every move leaves the
    standard normal within the region invariant, however small that is.

    All chains make the same number of moves, but not in step: a call of ``log_density`` has a candidate of every
    unfinished chain.

    Args:
        starts: A point of the region for each chain, ``(n, d)``.
        log_density: ``(k, d) -> (k,)``; NaN lies outside.
        border: Minimum log density within the region.
        scale: Lower triangular ``(d, d)``, about the root of the region's covariance. Directions are multiplied by it,
            so that narrow valleys are followed.
        num_moves: Number of moves of every chain.
        generator: Source of randomness.
    """
    points = np.array(starts, dtype=np.float64)
    count, dim = points.shape
    left = np.full(count, num_moves)
    directions, low, high = np.zeros((count, dim)), np.zeros(count), np.zeros(count)
    tries = np.full(count, -1)  # -1: a new move begins
    while (left > 0).any():
        begin = np.flatnonzero((left > 0) & (tries < 0))
        directions[begin] = _directions(len(begin), dim, generator) @ scale.T
        low[begin], high[begin] = _brackets(points[begin], directions[begin], generator)
        tries[begin] = 0
        active = np.flatnonzero(left > 0)
        steps = low[active] + (high[active] - low[active]) * generator.random(len(active))
        candidates = points[active] + steps[:, None] * directions[active]
        inside = log_density(candidates) >= border
        points[active[inside]] = candidates[inside]
        outside, away = active[~inside], steps[~inside]
        low[outside] = np.where(away < 0.0, away, low[outside])
        high[outside] = np.where(away < 0.0, high[outside], away)
        tries[active] += 1
        over = active[inside | (tries[active] >= _MOST_TRIES)]
        tries[over] = -1
        left[over] -= 1
    return points


def _directions(count: int, dim: int, generator: np.random.Generator) -> np.ndarray:
    """Unit vectors of any direction, ``(count, dim)``."""
    drawn = generator.standard_normal((count, dim))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def _brackets(
    points: np.ndarray, directions: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the first bracket of each line ``x + t u``, ``t`` around 0.

    Neal's slice is where the density is above a height drawn uniformly below that at the point: ``|x + t u|^2 <=
    |x|^2 + 2 e`` with a standard exponential e, whose ends solve a quadratic equation.
    """
    squares, across = np.square(directions).sum(axis=1), (points * directions).sum(axis=1)
    root = np.sqrt(np.square(across) + 2.0 * squares * generator.standard_exponential(len(points)))
    position = generator.random(len(points))
    return (
        np.maximum((-across - root) / squares, -_WIDTH * position),
        np.minimum((-across + root) / squares, _WIDTH * (1.0 - position)),
    )
