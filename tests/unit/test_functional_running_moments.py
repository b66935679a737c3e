"""Running moments equal those of all rows at once, however the rows come."""

from __future__ import annotations

import numpy as np
import pytest

from metaroll.errors import ShapeError
from metaroll.functional.running_moments import Moments, add_rows, no_moments
from metaroll.state import restored, tree_of


def test_two_parts_by_hand():
    moments = add_rows(add_rows(no_moments(1), np.array([[1.0], [3.0]])), np.array([[8.0]]))
    assert moments.num_rows == 3
    assert moments.mean == pytest.approx([4.0])
    assert moments.variance == pytest.approx([(9 + 1 + 16) / 3])


@pytest.mark.parametrize("cuts", [[1], [7, 8, 50], list(range(1, 100))])
def test_parts_give_the_moments_of_the_whole(cuts):
    rows = np.random.default_rng(0).normal(1e6, [1e-2, 1.0], size=(100, 2))  # a mean that is large beside the spread
    moments = no_moments(2)
    for part in np.split(rows, cuts):
        moments = add_rows(moments, part)
    assert moments.mean == pytest.approx(rows.mean(axis=0), rel=1e-12)
    assert moments.std == pytest.approx(rows.std(axis=0), rel=1e-6)


def test_without_rows_the_variance_is_one_and_nothing_is_added():
    empty = no_moments(2)
    assert empty.variance.tolist() == [1.0, 1.0]
    assert add_rows(empty, np.zeros((0, 2))) is empty


def test_a_snapshot_brings_them_back():
    moments = add_rows(no_moments(2), np.arange(6.0).reshape(3, 2))
    again = restored(no_moments(2), tree_of(moments))
    assert isinstance(again, Moments) and again.num_rows == 3
    assert np.array_equal(again.mean, moments.mean)
    assert np.array_equal(again.squares, moments.squares)


def test_rows_of_another_width_are_refused():
    with pytest.raises(ShapeError, match=r"\(N, 2\)"):
        add_rows(no_moments(2), np.zeros((4, 3)))
