"""Grids of rows: the robust line, rows that were lost, noise of stamps, ratios of steps."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from metaroll.errors import ShapeError
from metaroll.lab.logs.series.row_times import fit_rows, median_line, whole_ratio


def test_the_median_line_by_hand():
    # Pairs two apart: (9 - 1) / 2, (7 - 3) / 2, (9 - 9) / 2: their median is 2; y - 2 x = 1, 1, 5, 1, 1.
    assert median_line([0, 1, 2, 3, 4], [1, 3, 9, 7, 9]) == (2.0, 1.0)
    assert median_line([0, 2], [1, 5]) == (2.0, 1.0)
    for x, y in (([0], [1]), ([0, 1], [1, 2, 3]), ([[0, 1]], [[0, 1]])):
        with pytest.raises(ShapeError, match="N >= 2"):
            median_line(x, y)


def test_the_median_line_agrees_with_theil_and_sen_and_has_its_error():
    generator = np.random.default_rng(0)
    x, slopes = np.arange(200.0), []
    for _ in range(300):
        y = 3.0 + 0.5 * x + generator.normal(size=200)
        slopes.append(median_line(x, y)[0])
    full = scipy.stats.theilslopes(y, x)
    assert abs(slopes[-1] - full.slope) < 4 * 5.0 / 200**1.5 and abs(np.mean(slopes) - 0.5) < 1e-3
    assert np.std(slopes) == pytest.approx(5.0 / 200**1.5, rel=0.15)
    y = 3.0 + 0.5 * x
    y[generator.permutation(200)[:40]] += 1e3  # a fifth of the points
    assert median_line(x, y) == pytest.approx((0.5, 3.0))


def test_noise_and_an_offset_of_the_first_stamp_shift_no_row():
    generator = np.random.default_rng(1)
    times = 5.0 + 0.02 * np.arange(500) + 1e-3 * generator.normal(size=500)
    times[0] -= 5e-5
    fit = fit_rows(times)
    assert fit.places.tolist() == list(range(500))
    assert abs(fit.step - 0.02) < 4 * fit.error and fit.error == pytest.approx(5e-3 / 500**1.5, rel=0.2)
    np.testing.assert_allclose(fit.residuals, times - 5.0 - 0.02 * np.arange(500), atol=4e-4)


def test_rows_that_were_lost_are_counted():
    kept = [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
    fit = fit_rows(0.02 * np.array(kept))
    assert fit.places.tolist() == kept and fit.step == pytest.approx(0.02)
    # After a pause of 90 ms, 4.5 steps, rows lie half a step beside the grid, and beside each other as before.
    fit = fit_rows(np.append(0.02 * np.arange(10), 0.27 + 0.02 * np.arange(10)))
    np.testing.assert_allclose(fit.places, np.append(np.arange(10.0), 13.5 + np.arange(10.0)))
    assert np.abs(fit.residuals).max() < 1e-9


def test_uneven_rows_lie_on_no_grid():
    generator = np.random.default_rng(2)
    assert fit_rows(np.cumsum(generator.exponential(size=200))) is None
    assert fit_rows(np.cumsum(generator.uniform(0.8, 1.2, size=400))) is None  # the sum drifts away
    with pytest.raises(ShapeError, match="N >= 2"):
        fit_rows([1.0])


def test_stamps_of_a_fast_log_may_be_off_by_a_part_of_the_longer_step():
    generator = np.random.default_rng(3)
    times = 0.002 * np.arange(1000) + generator.uniform(-9e-4, 9e-4, size=1000)
    assert fit_rows(times) is None
    fit = fit_rows(times, 0.02)
    assert fit.places[-1] == 999 and abs(fit.step - 0.002) < 1e-7
    lost = np.delete(times, slice(500, 502))  # seen by the level of the rows that follow
    assert fit_rows(lost, 0.02) is None


def test_whole_ratios():
    assert [whole_ratio(long, 1.0) for long in (1.0, 1.009, 0.991, 1.02, 0.5, 10.05, 10.2, 100.05, 100.2, 1.5)] == [
        1, 1, 1, None, None, 10, None, 100, None, None
    ]  # fmt: skip
