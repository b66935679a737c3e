"""Intervals and tests of paired differences by sign flips: by hand, by enumeration, and SciPy's permutation test."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import permutation_test

from metaroll.errors import ShapeError
from metaroll.functional.robust_statistics import fewest_differences, sign_flip_interval, sign_flip_p_value


def test_by_hand() -> None:
    # Of 63 subsets the one with the least mean is the least difference alone: 1 of 64 below it.
    assert sign_flip_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0)
    assert sign_flip_p_value([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == 1 / 64
    assert sign_flip_p_value([-1.0]) == 1.0 and sign_flip_p_value([1.0]) == 0.5
    # -1, 3: subsets -1, 3 and 1; one of them is not above 0.
    assert sign_flip_p_value([-1.0, 3.0]) == 0.5
    assert fewest_differences() == 6 and fewest_differences(0.05) == 5 and fewest_differences(0.5) == 1
    assert all(math.isnan(bound) for bound in sign_flip_interval(np.ones(5)))
    assert sign_flip_interval(np.full(6, 2.0)) == (2.0, 2.0)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=9))
@settings(max_examples=50, deadline=None)
def test_the_p_value_is_the_share_of_sign_patterns_with_at_least_that_mean(values: list[int]) -> None:
    differences = np.array(values, dtype=np.float64)
    signs = np.array(list(itertools.product([-1, 1], repeat=len(values))))
    assert sign_flip_p_value(differences) == np.mean(signs @ differences >= differences.sum())


def test_scipys_permutation_test_agrees() -> None:
    differences = np.random.default_rng(0).normal(0.4, 1.0, 11)
    zeros = np.zeros_like(differences)
    reference = permutation_test(
        (differences, zeros),
        lambda x, y, axis: (x - y).mean(axis=axis),
        permutation_type="samples",
        alternative="greater",
        n_resamples=np.inf,
    )
    assert sign_flip_p_value(differences) == pytest.approx(reference.pvalue, abs=1e-12)


@given(st.integers(6, 40), st.floats(-1.0, 2.0), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_the_interval_lies_above_0_where_the_test_rejects(count: int, shift: float, seed: int) -> None:
    differences = np.random.default_rng(seed).normal(shift, 1.0, count)
    assert (sign_flip_interval(differences).low > 0.0) == (sign_flip_p_value(differences) <= 0.025)
    low, high = sign_flip_interval(differences)
    assert differences.min() <= low <= high <= differences.max()
    mirrored = sign_flip_interval(-differences)
    assert mirrored == pytest.approx((-high, -low))
    assert sign_flip_interval(differences) == (low, high)  # the same subsets


@pytest.mark.parametrize("draw", ["normal", "standard_cauchy", "laplace"])
@pytest.mark.parametrize("count", [6, 10, 30])
def test_symmetric_noise_lies_in_it_as_often_as_it_says(draw: str, count: int) -> None:
    generator = np.random.default_rng(3)
    found = [sign_flip_interval(getattr(generator, draw)(size=count)) for _ in range(400)]
    held = np.mean([low <= 0.0 <= high for low, high in found])
    assert held > 0.95 - 3.0 * math.sqrt(0.05 * 0.95 / 400)


def test_bad_input() -> None:
    for wrong in ([], 1.0, [[1.0, 2.0]]):
        with pytest.raises(ShapeError, match=r"differences must have shape \(M,\) with M >= 1"):
            sign_flip_interval(wrong)
