"""Held-out tasks that occur in training are found, and distances measured."""

from __future__ import annotations

import re

import numpy as np
import pytest
from task_envs import Line

from metaroll import SetTaskUpdate, TaskFamily, check_split
from metaroll.errors import TaskOverlapError


def test_distances_by_hand():
    """All values 0, 2, 4, 6 and 1: mean 2.6, variance (6.76 + 0.36 + 1.96 + 11.56 + 2.56) / 5 = 4.64."""
    report = check_split([{"x": 0}, {"x": 2}, {"x": 4}, {"x": 6}], [{"x": 1.0}])
    assert (report.num_train, report.num_test, report.overlaps, report.near) == (4, 1, (), ())
    assert report.nearest == report.median == pytest.approx(1 / np.sqrt(4.64))
    assert report.median_in_training == pytest.approx(2 / np.sqrt(4.64))
    assert re.search("4 training and 1 held-out .*disjoint; .* 0.46 ", str(report))


def test_equal_tasks_are_refused_or_warned_of():
    train = [SetTaskUpdate(Line, {"place": p}) for p in (0.1, 0.2)]
    test = [{"place": 0.3}, {"place": np.float64(0.2)}]
    pair = "1 held-out task of 2 .*held-out task 1 .*training task 1"
    with pytest.raises(TaskOverlapError, match=pair):
        check_split(train, test)
    with pytest.warns(UserWarning, match=pair):
        report = check_split(train, test, overlap="warn")
    assert report.overlaps == ((1, 1),)
    assert check_split(train, test, overlap="accept") == report  # without a warning: warnings are errors here
    with pytest.raises(ValueError, match=r"overlap must .*'ignore'"):
        check_split(train, test, overlap="ignore")  # type: ignore[arg-type]


def test_tasks_that_differ_by_rounding_are_warned_of():
    train = [{"goal": [0.1, 0.5]}, {"goal": [0.7, 0.9]}]
    with pytest.warns(UserWarning, match=r"1 held-out task of 1 .*rounding.*held-out task 0 .*training task 0"):
        report = check_split(train, [{"goal": [float(np.float32(0.1)), 0.5]}])
    assert report.near == ((0, 0),)
    assert report.to_dict()["near"] == ((0, 0),)


def test_empty_lists_and_nan_are_refused():
    with pytest.raises(ValueError, match="train_tasks must"):
        check_split([], [{"x": 1.0}])
    with pytest.raises(ValueError, match="test_tasks must"):
        check_split([{"x": 1.0}], [])
    with pytest.raises(ValueError, match=r"test_tasks\[1\] must .*goal\[1\]"):
        check_split([{"goal": [1, 2]}], [{"goal": [1, 3]}, {"goal": [1, np.nan]}])


def test_tasks_without_numbers_have_no_distance():
    report = check_split(["open-door", "reach"], ["push"])
    assert np.isnan(report.median)
    assert str(report).endswith("disjoint")


def test_a_hashed_split_is_fair():
    family = TaskFamily.from_params(Line, {"place": (-1, 1)}, horizon=10)
    report = check_split(*family.split(200, 100))
    assert report.median == pytest.approx(report.median_in_training, rel=0.5)
