"""specs/sampling.md 6."""

from __future__ import annotations

import numpy as np
import pytest

from metaroll.errors import ShapeError
from metaroll.functional.sequences import (
    sequence,
    sequence_add_init,
    sequence_const,
    sequence_nlog2,
    sequence_plus_one,
    sequence_rec_double,
    sequence_rec_sqrt,
    sequence_sqrt,
)

EXPECTED = {
    sequence_const: [2, 2, 2, 2, 2],
    sequence_plus_one: [2, 3, 4, 5, 6],
    sequence_add_init: [2, 4, 6, 8, 10],
    sequence_rec_double: [2, 4, 8, 16, 32],
    sequence_sqrt: [2, 2.82843, 3.46410, 4, 4.47214],
    sequence_rec_sqrt: [2, 2.82843, 4.89898, 9.79796, 21.90890],
    sequence_nlog2: [2, 3.16993, 8, 13.93157, 20.67970],
}


@pytest.mark.parametrize(("function", "expected"), EXPECTED.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_values(function, expected):
    """specs/sampling.md 6"""
    last, rows = function(2, 4, float)
    np.testing.assert_allclose(rows[:, 0], expected, atol=1e-5)
    assert rows.shape == (5, 1) and type(last) is float and last == rows[-1, 0]
    # Integers are cut off at the end only: the recursions go on in floating point.
    last, rows = function(2, 4)
    assert rows[:, 0].tolist() == [int(value) for value in expected]
    assert rows.dtype == np.int64 and type(last) is int and last == rows[-1, 0]
    # Side by side, each column is a sequence of its own.
    start = np.array([2.0, 1.0, -0.5])
    last, rows = function(start, 4, dtype=float)
    np.testing.assert_allclose(rows, np.outer(rows[:, 1], start) if function is not sequence_plus_one else
                               np.arange(5)[:, None] + start)  # fmt: skip
    assert rows.shape == (5, 3) and last.shape == (3,)
    np.testing.assert_array_equal(last, rows[-1])
    assert start.tolist() == [2.0, 1.0, -0.5]


@pytest.mark.parametrize("function", EXPECTED, ids=lambda value: value.__name__)
def test_no_iteration_gives_the_first_element_as_a_row(function):
    last, rows = function(2.7, 0)
    assert last == 2 and type(last) is int and rows.tolist() == [[2]]
    last, rows = function(np.array([1.5, 2.5]), iter=0, dtype=float)
    assert last.tolist() == [1.5, 2.5] and rows.tolist() == [[1.5, 2.5]]


def test_sequence_of_a_rule_of_ones_own():
    """specs/sampling.md 6"""

    def fibonacci(x_seq, i, x_init):
        return x_seq[i - 1] + (x_seq[i - 2] if i > 1 else 0 * x_init)

    assert sequence(1, 6, fibonacci)[1][:, 0].tolist() == [1, 1, 2, 3, 5, 8, 13]
    last, rows = sequence(np.array([1]), iterations=3, iterator_function=lambda x_seq, i, x_init: 10 * i + x_init)
    assert last == 31 and rows.tolist() == [[1], [11], [21], [31]]
    last, rows = sequence(np.array([1.0, 2.0]), 1, fibonacci, float)
    last[0] = 7.0
    assert rows.tolist() == [[1.0, 2.0], [1.0, 2.0]]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: sequence_const(1, -1), ValueError, "iter must be an integer of at least 0, got -1"),
        (lambda: sequence(1, 1.5, max), TypeError, "iterations must be an integer"),
        (lambda: sequence(1, 1, "double"), TypeError, "iterator_function must be callable"),
        (lambda: sequence(1, 2, lambda x_seq, i, x_init: [1, 2]), ShapeError, r"row 1 in the shape \(1,\)"),
        (lambda: sequence_const(1, 1, np.float32), ValueError, "dtype must be int or float"),
        (lambda: sequence_const("1", 1), TypeError, "x_init must be a number"),
        (lambda: sequence_const([[1]], 1), ShapeError, r"shape \(d,\), got \(1, 1\)"),
        (lambda: sequence_rec_double(1, 64), ValueError, "element 63 of the sequence is .* take dtype=float"),
        (lambda: sequence_const(float("nan"), 2), ValueError, "element 0 of the sequence is nan"),
    ],
)
def test_bad_arguments(call, error, text):
    with pytest.raises(error, match=text):
        call()
