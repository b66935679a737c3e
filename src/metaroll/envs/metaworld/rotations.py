"""Quaternions of single rotation matrices, by SciPy's arithmetic without its overhead.

Meta-World asks SciPy for the orientation of every object at every step, which costs as much as the physics.
"""

from __future__ import annotations

import functools
import math
import types
from typing import Any

import numpy as np

__all__ = ["quaternion_of", "with_fast_rotations"]


def quaternion_of(matrix: np.ndarray) -> np.ndarray:
    """Quaternion ``(x, y, z, w)`` of an orthonormal ``matrix (3, 3)``, to the last bit SciPy's (Markley's method)."""
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    trace = a + e + i
    largest = max(a, e, i, trace)
    if a == largest:
        x, y, z, w = 1.0 - trace + 2.0 * a, d + b, g + c, h - f
    elif e == largest:
        x, y, z, w = b + d, 1.0 - trace + 2.0 * e, h + f, c - g
    elif i == largest:
        x, y, z, w = c + g, f + h, 1.0 - trace + 2.0 * i, d - b
    else:
        x, y, z, w = h - f, c - g, d - b, 1.0 + trace
    norm = math.sqrt(x * x + y * y + z * z + w * w)
    return np.array((x / norm, y / norm, z / norm, w / norm))


class _MatrixOnly:
    """Replaces SciPy's class in ``Rotation.from_matrix(matrix).as_quat()``."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix

    @classmethod
    def from_matrix(cls, matrix: np.ndarray) -> _MatrixOnly:
        return cls(matrix)

    def as_quat(self) -> np.ndarray:
        return quaternion_of(self._matrix)


def with_fast_rotations(function: Any) -> Any:
    """A copy of ``function`` that uses ``quaternion_of`` where it uses SciPy's ``Rotation``; ``function`` stays itself.

    It is returned unchanged where it does not use it, or where SciPy here does not agree to the last bit.
    """
    from scipy.spatial.transform import Rotation  # loads slowly, and every lookup of an environment imports this module

    names = getattr(function, "__globals__", {})
    if names.get("Rotation") is not Rotation or not _agrees_with_scipy():
        return function
    return types.FunctionType(
        function.__code__,
        {**names, "Rotation": _MatrixOnly},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


@functools.cache
def _agrees_with_scipy() -> bool:
    from scipy.spatial.transform import Rotation

    draw = np.random.default_rng(0)
    quaternions = [*draw.normal(size=(40, 4)), *np.eye(4), *(draw.normal(size=(8, 4)) * (1.0, 1.0, 1.0, 1e-3))]
    matrices = [Rotation.from_quat(quaternion).as_matrix() for quaternion in quaternions]
    return all(np.array_equal(quaternion_of(m), Rotation.from_matrix(m).as_quat()) for m in matrices)
