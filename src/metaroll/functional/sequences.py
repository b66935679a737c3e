"""Mathematical sequences that grow from a first element, such as numbers of rollouts or domains per iteration.

The values are those that Pyrado computes, where row 0 is ``x_0``: row i of ``sequence_add_init`` is ``x_0 * (i + 1)``
(its documentation counts from 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from metaroll.checks import check_whole, described
from metaroll.errors import ShapeError

__all__ = [
    "sequence",
    "sequence_add_init",
    "sequence_const",
    "sequence_nlog2",
    "sequence_plus_one",
    "sequence_rec_double",
    "sequence_rec_sqrt",
    "sequence_sqrt",
]

Start = int | float | np.ndarray
Element = int | float | np.ndarray
Rule = Callable[[np.ndarray, int, np.ndarray], Any]


def sequence(x_init: Start, iterations: int, iterator_function: Rule, dtype: type = int) -> tuple[Element, np.ndarray]:
    """Last element, and all elements, of the sequence that ``iterator_function`` makes.

    Args:
        x_init: First element: a number, or shape ``(d,)`` for d sequences side by side.
        iterations: Number n of elements after the first one, at least 0.
        iterator_function: ``iterator_function(x_seq, i, x_init)`` gives row i, shape ``(d,)``, from the rows before it
            in ``x_seq (n+1, d)`` and from the first one, ``x_init (d,)``.
        dtype: ``int`` or ``float``. All is computed in float; ``int`` cuts the decimals off at the end.

    Returns:
        The last element, a number if d is 1, else shape ``(d,)``; and all of them, shape ``(n+1, d)``.

    Raises:
        TypeError: ``iterator_function`` is not a function, or ``x_init`` is not a number.
        ShapeError: A row has another shape than ``x_init``.
        ValueError: An element does not fit into ``dtype``.
    """
    if not callable(iterator_function):
        raise TypeError(f"iterator_function must be callable as f(x_seq, i, x_init), got {iterator_function!r}")
    return _sequence(x_init, check_whole("iterations", iterations, low=0), iterator_function, dtype)


def sequence_const(x_init: Start, iter: int, dtype: type = int) -> tuple[Element, np.ndarray]:
    """``x_i = x_0``: 2, 2, 2, 2, 2.

    Args:
        x_init: First element, a number or shape ``(d,)``.
        iter: Number of elements after the first one.
        dtype: ``int`` or ``float``.

    Returns:
        The last element, and all of them, shape ``(iter+1, d)``, as in ``sequence``.

    Raises:
        TypeError: ``x_init`` is not a number, or ``iter`` is not an integer.
        ValueError: An element does not fit into ``dtype``, or ``iter`` is negative.
    """
    return _numbered(x_init, iter, lambda x_seq, i, x_0: x_0, dtype)


def sequence_plus_one(x_init: Start, iter: int, dtype: type = int) -> tuple[Element, np.ndarray]:
    """``x_i = x_0 + i``: 2, 3, 4, 5, 6; otherwise as ``sequence_const``."""
    return _numbered(x_init, iter, lambda x_seq, i, x_0: x_0 + i, dtype)


def sequence_add_init(x_init: Start, iter: int, dtype: type = int) -> tuple[Element, np.ndarray]:
    """``x_i = x_0 (i + 1)``: 2, 4, 6, 8, 10; otherwise as ``sequence_const``."""
    return _numbered(x_init, iter, lambda x_seq, i, x_0: x_0 * (i + 1), dtype)


def sequence_rec_double(x_init: Start, iter: int, dtype: type = int) -> tuple[Element, np.ndarray]:
    """``x_i = 2 x_{i-1}``: 2, 4, 8, 16, 32; otherwise as ``sequence_const``."""
    return _numbered(x_init, iter, lambda x_seq, i, x_0: x_seq[i - 1] * 2.0, dtype)


def sequence_sqrt(x_init: Start, iter: int, dtype: type = int) -> tuple[Element, np.ndarray]:
    """``x_i = x_0 sqrt(i + 1)``: 2, 2.83, 3.46, 4, 4.47; otherwise as ``sequence_const``."""
    return _numbered(x_init, iter, lambda x_seq, i, x_0: x_0 * math.sqrt(i + 1), dtype)


def sequence_rec_sqrt(x_init: Start, iter: int, dtype: type = int) -> tuple[Element, np.ndarray]:
    """``x_i = x_{i-1} sqrt(i + 1)``: 2, 2.83, 4.90, 9.80, 21.91; otherwise as ``sequence_const``."""
    return _numbered(x_init, iter, lambda x_seq, i, x_0: x_seq[i - 1] * math.sqrt(i + 1), dtype)


def sequence_nlog2(x_init: Start, iter: int, dtype: type = int) -> tuple[Element, np.ndarray]:
    """``x_i = x_0 i log2(i + 2)`` after ``x_0``: 2, 3.17, 8, 13.93, 20.68; otherwise as ``sequence_const``."""
    return _numbered(x_init, iter, lambda x_seq, i, x_0: x_0 * i * math.log2(i + 2), dtype)


def _numbered(x_init: Start, iter: int, rule: Rule, dtype: type) -> tuple[Element, np.ndarray]:
    return _sequence(x_init, check_whole("iter", iter, low=0), rule, dtype)


def _sequence(x_init: Start, iterations: int, rule: Rule, dtype: type) -> tuple[Element, np.ndarray]:
    if dtype is not int and dtype is not float:
        raise ValueError(f"dtype must be int or float, got {dtype!r}")
    first = _first(x_init)
    rows = np.empty((iterations + 1, len(first)))
    rows[0] = first
    for i in range(1, iterations + 1):
        row = np.asarray(rule(rows, i, first))
        if row.shape not in ((), first.shape):
            raise ShapeError(
                f"iterator_function must give row {i} in the shape {first.shape} of x_init, got {row.shape}"
            )
        rows[i] = row
    if dtype is int:
        rows = _to_int(rows)
    last = rows[-1].copy()  # not a view: changing it must not change the sequence
    return (last.item() if len(last) == 1 else last), rows


def _first(x_init: Start) -> np.ndarray:
    array = np.asarray(x_init)
    if array.dtype.kind not in "uif":
        raise TypeError(f"x_init must be a number or an array of numbers, got {described(x_init)}")
    if array.ndim > 1 or not array.size:
        raise ShapeError(f"x_init must be a number or have shape (d,), got {array.shape}")
    return array.astype(np.float64).reshape(-1)


def _to_int(rows: np.ndarray) -> np.ndarray:
    fits = np.isfinite(rows) & (np.abs(rows) < 2.0**63)
    if not fits.all():
        i, column = np.argwhere(~fits)[0]
        raise ValueError(f"element {i} of the sequence is {rows[i, column]}, no 64-bit integer; take dtype=float")
    return rows.astype(np.int64)
