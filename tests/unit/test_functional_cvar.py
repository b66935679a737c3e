"""specs/sampling.md 2."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from metaroll.errors import ShapeError
from metaroll.functional.cvar import conditional_value_at_risk, cvar_count, least_count, worst_indices

SHARES = [Fraction(i, 20) for i in range(1, 21)]


@pytest.mark.parametrize("share", SHARES, ids=float)
def test_counts_are_those_of_exact_arithmetic(share):
    """specs/sampling.md 2.1, 22 no. 5"""
    for number in range(1, 61):
        kept, asked = cvar_count(number, float(share)), least_count(number, float(share))
        assert kept == math.ceil(number * share) >= 1
        assert asked == math.ceil(number / share)
        assert cvar_count(asked, float(share)) >= number


def test_counts_by_hand():
    # round() would give 2, 0 and 2: half to even.
    assert [cvar_count(10, 0.25), cvar_count(2, 0.25), cvar_count(30, 0.05)] == [3, 1, 2]
    assert cvar_count(10, 0.3) == 3  # 10 * 0.3 is a little more than 3 in floating point
    assert cvar_count(7, 1) == 7 and cvar_count(3, 1e-6) == 1
    assert least_count(3, 0.6) == 5 and least_count(3, 0.1) == 30 and least_count(4, 1.0) == 4


@pytest.mark.parametrize("number", [10, 20])
@pytest.mark.parametrize("epsilon", [1.0, 0.5, 0.1])
def test_mean_of_the_worst(number, epsilon):
    """specs/sampling.md 2.1 (e)"""
    returns = np.random.default_rng(0).permutation(number).astype(float)
    kept = returns[worst_indices(returns, epsilon)]
    assert kept.tolist() == list(range(int(number * epsilon)))
    assert conditional_value_at_risk(returns, epsilon) == np.mean(range(int(number * epsilon)))


def test_order_is_stable_and_nothing_is_changed():
    returns = [2.0, 1.0, 2.0, 1.0, 0.0]
    assert worst_indices(returns, 0.8).tolist() == [4, 1, 3, 0]
    assert returns == [2.0, 1.0, 2.0, 1.0, 0.0]
    assert worst_indices(torch.tensor(returns), 0.2).tolist() == [4]
    assert worst_indices([-math.inf, 3.0], 0.5).tolist() == [0]


def test_cvar_of_a_normal_distribution():
    # E[X | X below its 10 % quantile] = -phi(z_0.1) / 0.1 = -1.755
    returns = np.random.default_rng(0).normal(size=200_000)
    assert conditional_value_at_risk(returns, 0.1) == pytest.approx(-1.755, abs=0.02)
    values = [conditional_value_at_risk(returns[:50], epsilon) for epsilon in (0.1, 0.3, 0.6, 1.0)]
    assert values == sorted(values) and values[-1] == pytest.approx(returns[:50].mean())


@pytest.mark.parametrize("function", [cvar_count, least_count])
def test_bad_counts(function):
    with pytest.raises(ValueError, match="must be an integer of at least 1, got 0"):
        function(0, 0.5)
    for epsilon in (0.0, -0.1, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"epsilon must lie in \(0, 1\]"):
            function(3, epsilon)
    with pytest.raises(TypeError, match="epsilon must be a number"):
        function(3, None)
    for epsilon in ("0.5", True):
        with pytest.raises(TypeError, match="epsilon must be a number"):
            function(3, epsilon)


def test_bad_returns():
    for returns in ([], [[1.0, 2.0]], 3.0):
        with pytest.raises(ShapeError, match=r"shape \(N,\) with at least one return"):
            worst_indices(returns, 0.5)
    with pytest.raises(ValueError, match=r"NaN at \[1\]"):
        conditional_value_at_risk([1.0, math.nan], 0.5)


def test_bfloat16_returns() -> None:
    assert conditional_value_at_risk(torch.tensor([4.0, 1.0, 2.0], dtype=torch.bfloat16), 0.5) == 1.5
