"""Interquartile means, probability of improvement and shares of successes, by hand and against references."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
import torch

from metaroll.errors import ShapeError, UnknownNameError
from metaroll.functional.robust_statistics import (
    interquartile_mean,
    interval_of_improvement,
    interval_of_iqm,
    probability_of_improvement,
    wilson_interval,
)


def test_interquartile_mean_by_hand_and_against_scipy():
    assert interquartile_mean([100.0, 3.0, 1.0, -50.0]) == 2.0
    assert interquartile_mean([[5.0, 1.0], [2.0, 3.0], [9.0, 4.0]]) == 3.5  # 2, 3, 4, 5 of six
    assert interquartile_mean([1.0, 2.0, 9.0]) == 4.0  # nothing to leave out
    for shape in [(1, 1), (3, 5), (10, 7), (4, 4)]:
        scores = np.random.default_rng(0).normal(size=shape)
        assert interquartile_mean(scores) == pytest.approx(scipy.stats.trim_mean(scores, 0.25, axis=None), rel=1e-12)


def test_iqm_resamples_runs_within_each_task():
    # Two runs, three tasks far apart, equal runs in two of them: only the middle task matters, and its two runs can be
    # drawn as (0, 0), (0, 1), (1, 0), (1, 1). n = 6 leaves out one score at either end: mean of (-9, a, b, 9).
    scores = np.array([[-9.0, 0.0, 9.0], [-9.0, 1.0, 9.0]])
    low, high = interval_of_iqm(scores, generator=0)
    assert (low, high) == (0.0, 0.5)
    assert interval_of_iqm(scores, confidence=0.6, generator=0) == (0.0, 0.5)
    low, high = interval_of_iqm(scores, confidence=0.2, generator=0)  # quantiles 0.4 and 0.6 of 0, 1/4, 1/4, 1/2
    assert (low, high) == (0.25, 0.25)


def test_iqm_interval_against_enumeration():
    # All (3^3)^2 stratified resamples of three runs in two tasks are equally likely.
    scores = np.array([[1.0, 10.0], [2.0, 14.0], [4.0, 11.0]])
    draws = list(itertools.product(range(3), repeat=3))
    every = [interquartile_mean([scores[list(a), 0], scores[list(b), 1]]) for a in draws for b in draws]
    interval = interval_of_iqm(scores, confidence=0.8, num_reps=40_000, generator=1)
    np.testing.assert_allclose(interval, np.quantile(every, [0.1, 0.9]), atol=0.02)
    basic = interval_of_iqm(scores, confidence=0.8, num_reps=40_000, method="basic", generator=1)
    estimate = interquartile_mean(scores)
    np.testing.assert_allclose(basic, [2 * estimate - interval.high, 2 * estimate - interval.low])


def test_intervals_shrink_and_repeat():
    generator = np.random.default_rng(2)
    few, many = generator.normal(size=(5, 8)), generator.normal(size=(80, 8))
    wide, narrow = interval_of_iqm(few, generator=3), interval_of_iqm(many, generator=3)
    assert wide.low < interquartile_mean(few) < wide.high
    assert narrow.high - narrow.low < 0.5 * (wide.high - wide.low)
    assert interval_of_iqm(few, generator=3) == wide != interval_of_iqm(few, generator=4)
    assert interval_of_iqm(few, generator=np.random.default_rng(3)) == wide
    assert all(map(math.isnan, interval_of_iqm([[1.0, 2.0]])))
    assert all(map(math.isnan, interval_of_improvement([1.0], [2.0, 3.0])))


def test_probability_of_improvement_by_hand():
    # Task 1: 3 beats 1 and 2, 2 beats 1 and ties with 2: (2 + 1.5) / 4. Task 2: X always loses.
    x, y = [[3.0, 0.0], [2.0, 0.0]], [[1.0, 5.0], [2.0, 6.0]]
    assert probability_of_improvement(x, y) == (3.5 / 4 + 0.0) / 2
    assert probability_of_improvement(y, x) == 1 - 3.5 / 8
    assert probability_of_improvement([2.0, 2.0], [2.0]) == 0.5


def test_probability_of_improvement_is_the_statistic_of_mann_and_whitney():
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 6, (7, 4)).astype(float), generator.integers(0, 5, (9, 4)).astype(float)
    statistics = [scipy.stats.mannwhitneyu(x[:, i], y[:, i]).statistic / 63 for i in range(4)]
    assert probability_of_improvement(x, y) == pytest.approx(np.mean(statistics))
    interval = interval_of_improvement(x, y, generator=0)
    assert interval.low < probability_of_improvement(x, y) < interval.high


def test_improvement_resamples_both_sides():
    # X of 0 and 2 against Y of 1 and 3: each resample counts the X that are 2 and the Y that are 1.
    x, y = [0.0, 2.0], [1.0, 3.0]
    every = [np.mean(a) * np.mean(b) for a in itertools.product((0, 1), repeat=2) for b in
             itertools.product((0, 1), repeat=2)]  # fmt: skip
    interval = interval_of_improvement(x, y, confidence=0.7, num_reps=20_000, generator=0)
    np.testing.assert_allclose(interval, np.quantile(every, [0.15, 0.85]), atol=1e-12)
    assert interval_of_improvement([5.0, 6.0], [1.0, 2.0, 3.0]) == (1.0, 1.0)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_wilson_interval_is_that_of_scipy(confidence):
    successes, trials = np.array([0, 1, 5, 9, 10, 49, 0, 1]), np.array([10, 10, 10, 10, 10, 50, 1, 1])
    low, high = wilson_interval(successes, trials, confidence=confidence)
    for k, n, *bounds in zip(successes, trials, low, high, strict=True):
        expected = scipy.stats.binomtest(int(k), int(n)).proportion_ci(confidence, method="wilson")
        np.testing.assert_allclose(bounds, [expected.low, expected.high], rtol=1e-12, atol=1e-12)


def test_wilson_interval_of_numbers_and_of_nothing():
    # k = n/2: the middle is 1/2, the half width z / (2 sqrt(n + z^2)); n = 4 with z = 1.959964: 0.349961.
    low, high = wilson_interval(2, 4)
    assert (low, high) == (pytest.approx(0.5 - 0.349961, abs=1e-6), pytest.approx(0.5 + 0.349961, abs=1e-6))
    assert isinstance(low, float)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(20, 20)[1] == 1.0 and wilson_interval(0, 20)[0] == 0.0
    low, high = wilson_interval([[0], [3]], [5, 10])
    assert low.shape == high.shape == (2, 2) and (low < high).all()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: interquartile_mean([]), ShapeError, "at least one score"),
        (lambda: interquartile_mean([1.0, math.nan]), ValueError, "scores must be finite, got nan"),
        (lambda: interval_of_iqm(np.zeros((2, 2, 2))), ShapeError, r"\(runs, tasks\).*got \(2, 2, 2\)"),
        (
            lambda: interval_of_iqm([[1.0, 2.0], [3.0]]),
            TypeError,
            "scores must be numbers, in rows that are equally long",
        ),
        (lambda: interval_of_iqm([1.0, 2.0], method="bca"), UnknownNameError, "basic, percentile"),
        (lambda: interval_of_iqm([1.0, 2.0], confidence=95), ValueError, r"confidence must lie in \(0, 1\), got 95"),
        (lambda: interval_of_iqm([1.0, 2.0], num_reps=0), ValueError, "num_reps"),
        (lambda: probability_of_improvement([[1.0, 2.0]], [[1.0]]), ShapeError, "same tasks"),
        (lambda: wilson_interval(5, 4), ValueError, "got 5 successes in 4 trials"),
        (lambda: wilson_interval(-1, 4), ValueError, "got -1 successes"),
        (lambda: wilson_interval(0.5, 4), ValueError, "got 0.5 successes"),
    ],
)
def test_bad_arguments(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_scores_may_be_tensors_of_any_kind() -> None:
    scores = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16, requires_grad=True)
    assert interquartile_mean(scores) == 2.5
