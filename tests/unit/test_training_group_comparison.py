"""Groups of runs over their seeds: values by hand, pairs, and what a single run cannot say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from metaroll.errors import ShapeError
from metaroll.lab.figures.plots import plot_groups
from metaroll.lab.results.group_comparison import compare_groups, summarize_group

X = np.array([[1.0, 4.0], [2.0, 6.0], [3.0, 8.0]])


def test_a_group_by_hand() -> None:
    summary = summarize_group(X)
    assert summary.mean == 4.0
    assert summary.iqm == pytest.approx((2 + 3 + 4 + 6) / 4)  # of six scores one is left out at either end
    assert summary.mean_interval.low < 4.0 < summary.mean_interval.high
    assert np.isnan(summarize_group(X[:1]).mean_interval).all()


def test_pairs_see_what_the_spread_over_seeds_hides() -> None:
    # Seeds differ by much, X is better by 0.1 in every pair.
    y = X - 0.1
    paired, apart = compare_groups(X, y, paired=True), compare_groups(X, y, paired=False)
    assert paired.difference == apart.difference == pytest.approx(0.1)
    assert paired.difference_interval == pytest.approx((0.1, 0.1))
    assert paired.improvement == 1.0
    # Not paired: of 9 pairs of runs X wins 6 (3 with itself less 0.1, and 3 above the diagonal), in both tasks.
    assert apart.improvement == pytest.approx(6 / 9)
    assert apart.difference_interval.low < 0 < apart.difference_interval.high


@pytest.mark.parametrize("paired", [True, False])
def test_a_run_without_a_score_is_neither_won_nor_lost(paired: bool) -> None:
    with pytest.raises(ValueError, match="scores must"):
        compare_groups([[1.0], [np.nan], [3.0]], [[0.0], [0.0], [0.0]], paired=paired)


def test_intervals_stay_where_few_runs_lie() -> None:
    found = compare_groups([[1], [1], [1], [1], [-1]], np.zeros((5, 1)), paired=True)
    # Of 5 pairs one is lost: the number of lost ones among 5 drawn is Binomial(5, 0.2), whose 97.5 % quantile is 3.
    assert (found.improvement, found.improvement_interval) == (0.8, pytest.approx((0.4, 1.0)))
    assert found.difference_interval == pytest.approx((-0.2, 1.0))
    for runs in ([-5.0, -4.0, -90.0], [1.0, 1.5, 30.0]):
        low, high = summarize_group(runs).mean_interval
        assert min(runs) <= low < np.mean(runs) < high <= max(runs)
        apart = compare_groups(runs, [0.0, 0.0], paired=False).difference_interval
        assert min(runs) <= apart.low < apart.high <= max(runs)


def test_the_band_of_the_picture_lies_among_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bands = []
    monkeypatch.setattr(Axes, "fill_between", lambda _, *given, **options: bands.append(given))
    returns = [-5.0, -4.0, -90.0]
    plot_groups({"a": [np.array([[100.0, value], [200.0, value + 1]]) for value in returns]}, tmp_path / "a.png")
    ((_, low, high),) = bands
    assert (low >= np.array([-90.0, -89.0])).all() and (high <= np.array([-4.0, -3.0])).all()


def test_single_runs_have_no_intervals_and_shapes_must_fit() -> None:
    found = compare_groups([1.0], [0.5, 2.0], paired=False)
    assert (found.difference, found.improvement) == (-0.25, 0.5)
    assert np.isnan(found.difference_interval).all()
    for paired in (True, False):  # of one run each nothing is known of others, in however many tasks
        found = compare_groups([[1.0, 2.0]], [[0.5, 1.0]], paired=paired)
        assert found.difference == 0.75 and np.isnan(found.improvement)
    with pytest.raises(ShapeError, match="pairs of runs"):
        compare_groups([1.0], [0.5, 2.0], paired=True)
    with pytest.raises(ShapeError, match="same tasks"):
        compare_groups(X, [1.0], paired=False)


def test_the_picture_of_groups(tmp_path: Path) -> None:
    steps = np.arange(1, 6) * 1000.0
    curves = {
        "a": [np.stack([steps, -20 + steps / 500 + seed], axis=1) for seed in range(3)],
        "b": [np.stack([steps[:3], -20 + steps[:3] / 1000], axis=1)],
    }
    path = plot_groups(curves, tmp_path / "groups.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="at least one group"):
        plot_groups({}, path)
