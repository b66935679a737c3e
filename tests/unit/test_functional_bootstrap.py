"""specs/sampling.md 1."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from metaroll.errors import ShapeError, UnknownNameError
from metaroll.functional import bootstrap
from metaroll.functional.bootstrap import bootstrap_ci, interval_bounds, resamples


def own_mean(x, axis):
    return np.mean(x, axis=axis)


def data_of(n, d=1, seed=0):
    return np.random.default_rng(seed).lognormal(size=(n, d))


@pytest.mark.parametrize("statistic", [np.mean, np.std, np.median])
@pytest.mark.parametrize(("sides", "alternatives"), [(2, ["two-sided", "two-sided"]), (1, ["greater", "less"])])
def test_basic_interval_is_that_of_scipy_for_the_same_resamples(statistic, sides, alternatives):
    """specs/sampling.md 1 (7)"""
    data = data_of(12, 3)
    stat, low, high = bootstrap_ci(data, statistic, 2000, 0.1, sides, seed=7)
    lower, upper = (
        scipy.stats.bootstrap(
            (data,),
            statistic,
            n_resamples=2000,
            confidence_level=0.9,
            alternative=alternative,
            method="basic",
            rng=np.random.default_rng(7),
        ).confidence_interval
        for alternative in alternatives
    )
    np.testing.assert_allclose(stat, statistic(data, axis=0), rtol=1e-14)
    np.testing.assert_allclose(low, lower.low, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(high, upper.high, rtol=1e-12, atol=1e-12)
    percentile = np.quantile([statistic(x, axis=0) for b in resamples(data, 2000, 7) for x in b], 0.1 / sides, axis=0)
    assert (np.abs(low - percentile) > 1e-3).all()  # basic, not percentile


def test_by_hand_with_given_resamples(monkeypatch):
    # Data 0, 0, 3, mean 1; resamples with means 0, 1, 2, 3, so stat* - stat is -1, 0, 1, 2. The quantiles at 0.25 and
    # 0.75 of four values lie three quarters between the first two, and a quarter between the last two: -0.25, 1.25.
    drawn = np.array([0.0, 0, 0, 0, 0, 3, 0, 3, 3, 3, 3, 3]).reshape(4, 3, 1)
    monkeypatch.setattr(bootstrap, "resamples", lambda data, num_reps, seed: iter([drawn[:3], drawn[3:]]))
    data = np.array([0.0, 0, 3])
    assert bootstrap_ci(data, np.mean, 4, 0.5, 2) == ([1.0], [1 - 1.25], [1 + 0.25])
    assert bootstrap_ci(data, np.mean, 4, 0.25, 1) == ([1.0], [1 - 1.25], [1 + 0.25])
    # Bias corrected: 2 * 1 - mean(0, 1, 2, 3) = 0.5; the interval stays.
    assert bootstrap_ci(data, np.mean, 4, 0.5, 2, bias_correction=True) == ([0.5], [-0.25], [1.25])
    # Studentized: all standard errors are 1 (ddof 1: sqrt(3) / sqrt(3)), but 0 for the first and the last resample, so
    # t = -inf, 0, 1, inf; a quarter or less from the ends, the bounds are infinite, else 1 - t.
    assert bootstrap_ci(data, np.mean, 4, 0.5, 2, studentized=True) == ([1.0], [-math.inf], [math.inf])
    _, low, high = bootstrap_ci(data, np.mean, 4, 0.8, 2, studentized=True)  # quantiles 0.4, 0.6 -> 0.2, 0.8
    np.testing.assert_allclose([low[0], high[0]], [0.2, 0.8])


def test_documented_use():
    """specs/sampling.md 1 (e)"""
    data = np.random.default_rng(1).normal([1.0, 7.0, 13.0], 2.0, size=(40, 3))
    for sides in (1, 2):
        for studentized in (False, True):
            stat, low, high = bootstrap_ci(data, np.mean, 500, 0.05, sides, studentized=studentized, seed=0)
            assert stat.shape == low.shape == high.shape == (3,)
            assert (low < stat).all() and (stat < high).all()
            np.testing.assert_allclose(stat, data.mean(axis=0))
    corrected, *_ = bootstrap_ci(data, np.mean, 500, 0.05, 2, bias_correction=True, seed=0)
    assert (corrected != stat).all()
    np.testing.assert_allclose(corrected, stat, atol=0.2)  # of its own column, not of all of them
    two_sided, one_sided = (bootstrap_ci(data, np.mean, 500, 0.05, sides, seed=0) for sides in (2, 1))
    assert (two_sided[1] < one_sided[1]).all() and (one_sided[2] < two_sided[2]).all()
    single = bootstrap_ci(data[:, 1], np.mean, 500, 0.05, 2, seed=0)
    assert [bound.shape for bound in single] == [(1,)] * 3
    np.testing.assert_allclose(np.ravel(single), [column[1] for column in two_sided])


def test_bias_correction_removes_most_of_the_bias_of_the_variance():
    data = np.random.default_rng(3).normal(size=(10, 400))  # np.var divides by n: its mean is 0.9
    plain, *_ = bootstrap_ci(data, np.var, 400, 0.05, 2, seed=0)
    corrected, *_ = bootstrap_ci(data, np.var, 400, 0.05, 2, bias_correction=True, seed=0)
    assert plain.mean() == pytest.approx(0.9, abs=0.04)
    assert corrected.mean() == pytest.approx(0.99, abs=0.04)


def test_jackknife_of_the_mean_is_its_closed_form():
    data = data_of(8, 2)
    closed = bootstrap_ci(data, np.mean, 1000, 0.05, 2, studentized=True, seed=4)
    np.testing.assert_allclose(bootstrap_ci(data, own_mean, 1000, 0.05, 2, studentized=True, seed=4), closed)


def test_studentized_interval_of_any_statistic_covers_better_than_the_basic_one():
    # 1,000 columns are 1,000 data sets; the resamples that they share make their errors depend on each other a little.
    data = np.random.default_rng(0).normal(size=(15, 1000))
    covered = {}
    for studentized in (False, True):
        _, low, high = bootstrap_ci(data, np.var, 600, 0.1, 2, studentized=studentized, seed=1)
        truth = 14 / 15  # what np.var of 15 samples estimates
        covered[studentized] = np.mean((low < truth) & (truth < high))
    assert covered[False] < 0.83
    assert 0.86 < covered[True] < 0.94


def test_coverage_of_the_mean_of_normal_data():
    """specs/sampling.md 22 no. 14, 23: about 90 % at n = 10, as with SciPy"""
    data = np.random.default_rng(5).normal(size=(10, 2000))
    _, low, high = bootstrap_ci(data, np.mean, 1000, 0.05, 2, seed=2)
    assert np.mean((low < 0) & (high > 0)) == pytest.approx(0.90, abs=0.025)


def test_degenerate_columns_have_infinite_bounds_of_their_own():
    data = np.stack([np.full(20, 0.1), np.arange(20.0), np.full(20, -1e6)], axis=1)
    for statistic in (np.mean, own_mean):
        stat, low, high = bootstrap_ci(data, statistic, 300, 0.05, 2, studentized=True, seed=0)
        np.testing.assert_allclose(stat, [0.1, 9.5, -1e6])
        assert low[[0, 2]].tolist() == [-math.inf, -math.inf] and high[[0, 2]].tolist() == [math.inf, math.inf]
        assert -math.inf < low[1] < 9.5 < high[1] < math.inf
    for studentized in (False, True):
        one_sample = bootstrap_ci(np.array([[1.0, 2.0]]), np.mean, 10, 0.05, 2, studentized=studentized)
        np.testing.assert_array_equal(one_sample, [[1, 2], [-math.inf] * 2, [math.inf] * 2])
    # Basic: a constant column is known exactly, as for SciPy.
    assert [bound[0] for bound in bootstrap_ci(np.full(5, 2.0), np.mean, 10, 0.05, 2)] == [2, 2, 2]


def test_few_samples_of_which_some_resamples_are_all_alike():
    # One resample in 256 of four samples holds one of them four times: its standard error is 0.
    data = np.array([1.0, 2.0, 4.0, 7.0])
    _, low, high = bootstrap_ci(data, np.mean, 20_000, 0.1, 2, studentized=True, seed=0)
    assert -math.inf < low[0] < 3.5 < high[0] < math.inf


def test_nan_is_named_unless_the_statistic_leaves_it_out():
    data = np.arange(12.0).reshape(6, 2)
    data[2, 1] = math.nan
    for studentized in (False, True):
        with pytest.raises(ValueError, match=r"data\[2, 1\] is NaN.*np.nanmean"):
            bootstrap_ci(data, np.mean, 50, 0.05, 2, studentized=studentized, seed=0)
    with pytest.raises(ValueError, match=r"data\[2\] is NaN"):
        bootstrap_ci(data[:, 1], np.mean, 50, 0.05, 2, seed=0)
    assert np.isfinite(bootstrap_ci(data, np.nanmean, 50, 0.05, 2, seed=0)).all()


@pytest.mark.parametrize("studentized", [False, True])
def test_resamples_of_nothing_but_nan_do_not_count(studentized):
    """One resample in 27 holds NaN alone."""
    data = np.array([[1.0, 1.0], [math.nan, 2.0], [2.0, 4.0]])
    stat, low, high = bootstrap_ci(data, np.nanmean, 500, 0.1, 2, bias_correction=True, studentized=studentized, seed=0)
    assert not np.isnan([stat, low, high]).any()
    assert (low <= high).all()
    if not studentized:
        assert (low[0], high[0]) == (1.0, 2.0)  # 1.5 - 0.5 and 1.5 + 0.5
    clean = bootstrap_ci(data[:, 1:], np.nanmean, 500, 0.1, 2, bias_correction=True, studentized=studentized, seed=0)
    np.testing.assert_allclose(
        [stat[1], low[1], high[1]], np.ravel(clean), rtol=1e-12
    )  # other columns are as they were
    alone = np.array([math.nan, 3.0, math.nan])
    _, low, high = bootstrap_ci(alone, np.nanmean, 200, 0.1, 2, studentized=studentized, seed=0)
    assert (low[0], high[0]) == (-math.inf, math.inf)


@pytest.mark.parametrize("studentized", [False, True])
def test_result_does_not_depend_on_how_many_resamples_are_held_at_once(monkeypatch, studentized):
    data = data_of(7, 2)
    whole = bootstrap_ci(data, np.std, 501, 0.1, 2, True, studentized, seed=3)
    monkeypatch.setattr(bootstrap, "_BLOCK_NUMBERS", 100)
    np.testing.assert_allclose(bootstrap_ci(data, np.std, 501, 0.1, 2, True, studentized, seed=3), whole, rtol=1e-13)


def test_seed_alone_decides():
    data = data_of(9)
    before = data.copy()
    first, again, other = (bootstrap_ci(data, np.mean, 100, 0.05, 2, seed=seed) for seed in (1, 1, 2))
    assert first == again and first[1:] != other[1:] and first[0] == other[0]
    assert bootstrap_ci(data, np.mean, 100, 0.05, 2, seed=np.random.default_rng(1)) == first
    assert bootstrap_ci(data, np.mean, 100, 0.05, 2) != bootstrap_ci(data, np.mean, 100, 0.05, 2)
    assert bootstrap_ci(data.astype(np.float32), np.mean, 100, 0.05, 2)[1].dtype == np.float64
    np.testing.assert_array_equal(data, before)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"data": [1.0, 2.0]}, TypeError, "data must be a NumPy array, got list"),
        ({"data": np.array(["a"])}, TypeError, "real numbers"),
        ({"data": np.zeros((2, 2, 2))}, ShapeError, r"\(n,\) or \(n, d\).*got \(2, 2, 2\)"),
        ({"data": np.zeros((0, 3))}, ShapeError, "at least one sample"),
        ({"data": np.array([1.0, math.inf])}, ValueError, "infinite"),
        ({"stat_fcn": "mean"}, TypeError, "stat_fcn must be callable"),
        ({"stat_fcn": lambda x: x.mean()}, TypeError, r"callable as f\(x, axis=0\), like np.mean.*does not take these"),
        ({"stat_fcn": max}, TypeError, r"f\(x, axis=0\)|axis"),
        ({"stat_fcn": lambda x, axis: x}, ShapeError, r"stat_fcn\(x, axis=0\) must give shape \(1, 1\)"),
        ({"num_reps": 0}, ValueError, "num_reps must be an integer of at least 1, got 0"),
        ({"num_reps": -5}, ValueError, "num_reps"),
        ({"alpha": "0.05"}, TypeError, "alpha must be a number"),
        ({"alpha": 0}, ValueError, r"alpha must lie in \(0, 1\), got 0"),
        ({"alpha": 1.0}, ValueError, "alpha"),
        ({"alpha": math.nan}, ValueError, "alpha"),
        ({"ci_sides": 3}, ValueError, "ci_sides must be 1 or 2, got 3"),
        ({"ci_sides": True}, ValueError, "ci_sides"),
        ({"ci_sides": np.array([1, 2])}, ValueError, "ci_sides must be 1 or 2, got ndarray"),
        ({"num_reps": np.array([9, 9])}, TypeError, "num_reps"),
        ({"alpha": np.array([0.1, 0.2])}, TypeError, "alpha"),
        ({"ci_sides": "two"}, ValueError, "ci_sides"),
        ({"seed": -1}, ValueError, "seed must be a whole number of at least 0"),
        ({"seed": "a"}, TypeError, "seed must be a whole number"),
    ],
)
def test_bad_arguments(change, error, text):
    arguments = {"data": np.arange(5.0), "stat_fcn": np.mean, "num_reps": 10, "alpha": 0.05, "ci_sides": 2}
    with pytest.raises(error, match=text):
        bootstrap_ci(**{**arguments, **change})


def test_unknown_method_of_interval():
    with pytest.raises(UnknownNameError, match="did you mean 'percentile'"):
        interval_bounds(0.0, np.zeros(3), 0.1, "percentil")
