"""Means and majorities over steps of a signal that is held between rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate

from metaroll.errors import ShapeError
from metaroll.lab.logs.series.held_signals import held_majority, held_mean


def test_means_by_hand():
    # 1 until 0.5, 3 until 1.5, 5 from then on: (0.5 * 1 + 0.5 * 3), (0.5 * 3 + 0.5 * 5), 5.
    assert held_mean([1, 3, 5], [0, 0.5, 1.5], [0, 1, 2, 3]).tolist() == [2, 4, 5]
    assert held_mean([1, 3], [0, 1], [0, 0.25, 1, 2]).tolist() == [1, 1, 3]


def test_one_row_in_a_step_keeps_its_bits():
    values = np.random.default_rng(0).normal(size=100)
    np.testing.assert_array_equal(held_mean(values, 0.02 * np.arange(100), 0.02 * np.arange(101)), values)
    late = 0.02 * np.arange(100) + 1e-12  # rounding, which is no sliver of the row before
    late[0] = 0.0
    np.testing.assert_array_equal(held_mean(values, late, 0.02 * np.arange(101)), values)
    assert held_mean([0.1] * 7, np.arange(7) / 7, [0, 1]).tolist() == [0.1]


def test_means_are_integrals():
    generator = np.random.default_rng(1)
    times = np.append(0.0, np.cumsum(generator.exponential(0.1, size=60)))
    values, edges = generator.normal(size=61), np.arange(0.0, 6.0, 0.13)
    found = held_mean(values, times, edges)

    def signal(t):
        return values[np.searchsorted(times, t, side="right") - 1]

    for k in range(len(found)):
        inner = times[(times > edges[k]) & (times < edges[k + 1])]
        exact = scipy.integrate.quad(signal, edges[k], edges[k + 1], points=inner if inner.size else None)[0]
        assert found[k] == pytest.approx(exact / 0.13, abs=1e-7)


def test_majorities_by_hand_and_by_counting():
    assert held_majority([1, 0, 2], [0, 0.4, 1.7], [0, 1, 2]).tolist() == [0, 0]
    # 1 holds twice, for 0.6 s together; two that hold equally long: the earlier one.
    assert held_majority([1, 0, 1], [0, 0.3, 0.7], [0, 1]).tolist() == [1]
    assert held_majority([2, 0], [0, 0.5], [0, 1]).tolist() == [2]
    assert held_majority([0, 2, 1], [0, 0.4, 0.8], [0, 0.6, 1.2]).tolist() == [0, 1]
    generator = np.random.default_rng(2)
    values, times = generator.integers(0, 4, size=300), np.arange(300) * 0.003
    found = held_majority(values, times, np.arange(0.0, 0.9, 0.021))
    for k, choice in enumerate(found):  # seven rows in a step
        counts = np.bincount(values[7 * k : 7 * k + 7], minlength=4)
        assert counts[choice] == counts.max()


def test_what_does_not_fit_is_refused():
    for values, times, edges in (([1], [0, 1], [0, 1]), ([1], [0], [0]), ([], [], [0, 1])):
        with pytest.raises(ShapeError, match=r"values and times must have one shape"):
            held_mean(values, times, edges)
    with pytest.raises(ValueError, match="edges must not begin before the first row at 1 s, got 0 s"):
        held_mean([1], [1.0], [0.0, 1.0])
