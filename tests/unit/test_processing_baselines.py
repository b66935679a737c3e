"""Baselines: fits of one task and of many, parameters, what another library's baseline gets."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from metaroll.data.paths import to_path
from metaroll.data.rollouts import RolloutColumns, Rollouts
from metaroll.errors import DataError, ShapeError
from metaroll.functional.regression import explained_variance, ridge, state_features, time_features
from metaroll.processing.baselines import (
    LinearFeatureBaseline,
    LinearTimeBaseline,
    MLPBaseline,
    TaskBaseline,
    ZeroBaseline,
    fit_to_tasks,
)
from metaroll.processing.path_columns import PathColumns
from processing_paths import MeanBaseline, make_paths

FITTED = (LinearFeatureBaseline, LinearTimeBaseline, MLPBaseline)


def with_targets(lengths: Any, seed: int = 0) -> list[dict[str, Any]]:
    """Paths whose ``returns`` follow from the state and the time."""
    paths = make_paths(lengths, seed)
    for path in paths:
        x, t = path["observations"], np.arange(len(path["rewards"])) / 100
        path["returns"] = 3 * x[:, 0] - x[:, 1] ** 2 + 20 * t + 1
    return paths


@pytest.mark.parametrize("kind", FITTED)
def test_a_fit_explains_what_it_was_fitted_to(kind: type[TaskBaseline]) -> None:
    paths, baseline = with_targets([40, 7, 60, 25]), kind()
    targets = np.concatenate([path["returns"] for path in paths])
    before = np.concatenate([baseline.predict(path) for path in paths])
    assert not before.any()
    baseline.fit(paths)
    after = np.concatenate([baseline.predict(path) for path in paths])
    assert np.square(after - targets).sum() < 0.9 * np.square(before - targets).sum()
    least = {LinearFeatureBaseline: 0.999, LinearTimeBaseline: 0.1, MLPBaseline: 0.9}[kind]
    assert explained_variance(after, targets) > least


def test_linear_fits_are_ridge_regressions_on_their_features() -> None:
    paths = with_targets([5, 30])
    targets = np.concatenate([path["returns"] for path in paths])
    times = np.concatenate([np.arange(5), np.arange(30)])
    rows = {
        LinearTimeBaseline: time_features(times),
        LinearFeatureBaseline: state_features(np.concatenate([path["observations"] for path in paths]), times),
    }
    for kind, features in rows.items():
        baseline = kind(reg_coeff=0.1)
        baseline.fit(paths)
        found = baseline.get_param_values()
        assert found is not None
        np.testing.assert_allclose(found, ridge(features, targets, 0.1), rtol=1e-9, atol=1e-12)


def test_another_target_is_fitted() -> None:
    paths = with_targets([20, 20])
    for path in paths:
        path["discounted_rewards"] = np.full(20, 4.0)
    baseline = LinearTimeBaseline()
    baseline.fit(paths, target_key="discounted_rewards")
    np.testing.assert_allclose(baseline.predict(paths[0]), 4.0, atol=1e-4)


@pytest.mark.parametrize("kind", FITTED)
def test_many_tasks_at_once_are_fits_of_each_alone(kind: type[TaskBaseline]) -> None:
    groups = [with_targets([12, 30], 1), with_targets([50], 2), with_targets([3, 9, 20], 3)]
    columns = PathColumns.of(groups)
    targets = np.concatenate([path["returns"] for group in groups for path in group])
    baseline = kind()
    values, _ = baseline.fit_tasks(columns, targets)
    for group, found in zip(groups, columns.by_task(values), strict=True):
        alone = kind()
        alone.fit(group)
        expected = np.concatenate([alone.predict(path) for path in group])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    # afterwards it is the baseline of the last task
    np.testing.assert_allclose(baseline.predict(groups[-1][0]), alone.predict(groups[-1][0]), rtol=1e-4, atol=1e-4)


def rollouts_of_tasks(seed: int = 0) -> list[Rollouts]:
    """Of 7 tasks, which share columns and hold the observation after each path."""
    rng, paths = np.random.default_rng(seed), [3, 1, 5, 2, 1, 4, 2]
    lengths = rng.integers(1, 40, sum(paths))
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    fields = {
        "observations": rng.normal(size=(bounds[-1] + len(lengths), 3)) * 6,  # some are clipped
        "actions": rng.normal(size=(bounds[-1], 1)),
        "rewards": rng.normal(size=bounds[-1]),
    }
    ends, known = np.zeros(bounds[-1], dtype=bool), np.ones(len(lengths), dtype=bool)
    rollouts = Rollouts([RolloutColumns(fields, ends, ends, bounds, known, [{}] * len(lengths))])
    edges = np.concatenate([[0], np.cumsum(paths)]).tolist()
    return [rollouts[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize("kind", [LinearFeatureBaseline, LinearTimeBaseline])
def test_no_bit_depends_on_threads_or_on_tasks_beside(
    kind: type[TaskBaseline], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = rollouts_of_tasks()
    columns = PathColumns.of(groups)
    found = []
    for threads, at_once in [(1, 600_000), (1, 1), (3, 2000), (2, 1)]:
        monkeypatch.setattr("metaroll.processing.baselines._WORTH_THREADS", 0)
        monkeypatch.setattr("metaroll.processing.baselines._NUMBERS_AT_ONCE", at_once)
        monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
        baseline = kind()
        values, last_values = baseline.fit_tasks(columns, columns.rewards, finals=True)
        found.append((values, last_values, baseline.get_param_values()))
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    values, last_values, _ = found[0]
    for m, group in enumerate(groups):  # what a task's own paths give
        alone = kind()
        alone.fit([to_path(rollout) for rollout in group], target_key="rewards")
        for rollout, row, last in zip(
            group, columns.by_path(values, m), np.split(last_values, columns.tasks[1:-1])[m], strict=True
        ):
            path = to_path(rollout)
            longer = {**path, "observations": np.asarray(rollout.observations)}
            np.testing.assert_allclose(row, alone.predict(path), rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(last, alone.predict(longer)[-1], rtol=1e-8, atol=1e-8)


def test_a_task_that_cannot_be_fitted_is_named() -> None:
    groups = [with_targets([4, 4]) for _ in range(3)]
    groups[1][0]["observations"][2] = np.nan
    with pytest.raises(ValueError, match=r"task 1: .*finite"):
        fit_to_tasks(LinearFeatureBaseline(), PathColumns.of(groups), np.zeros(24))


@pytest.mark.parametrize("kind", [*FITTED, ZeroBaseline])
def test_parameters_go_from_one_baseline_to_another(kind: type[TaskBaseline]) -> None:
    paths, first = with_targets([15, 20]), kind()
    first.fit(paths)
    expected = first.predict(paths[0])
    others = [kind(), kind(), kind(), pickle.loads(pickle.dumps(first))]
    others[0].set_params(first.get_param_values())
    others[1].set_param_values(first.get_param_values())
    others[2].load_state_dict(first.state_dict())
    for other in others:
        np.testing.assert_array_equal(other.predict(paths[0]), expected)
    params = first.get_param_values()
    if params is not None:
        params[:] = 99.0  # a copy
        np.testing.assert_array_equal(first.predict(paths[0]), expected)
        other = kind()
        other.set_params(None)
        assert not other.predict(paths[0]).any()


def test_zero_baseline_gives_floats_for_whole_rewards() -> None:
    paths = [{"observations": np.zeros((3, 2)), "actions": np.zeros((3, 1)), "rewards": np.array([1, 2, 3])}]
    baseline = ZeroBaseline()
    assert baseline.predict(paths[0]).dtype == np.float64
    assert baseline.predict(paths[0]).tolist() == [0, 0, 0]


def test_foreign_baselines_see_each_task_by_itself() -> None:
    groups = [with_targets([4, 5], 1), with_targets([6], 2)]
    columns = PathColumns.of(groups)
    targets = np.concatenate([path["returns"] for group in groups for path in group])
    baseline = MeanBaseline()
    values, _ = fit_to_tasks(baseline, columns, targets)
    assert baseline.seen == [2, 1]
    means = [np.mean(targets[:9]), np.mean(targets[9:])]
    expected = np.concatenate(
        [m * path["observations"][:, 0] for m, g in zip(means, groups, strict=True) for path in g]
    )
    np.testing.assert_allclose(values, expected)


def test_what_cannot_be_fitted() -> None:
    paths = make_paths([4, 4])
    with pytest.raises(DataError, match="returns"):
        LinearTimeBaseline().fit(paths)
    paths = with_targets([4, 4])
    paths[1]["returns"] = np.zeros(3)
    with pytest.raises(ShapeError, match="one entry per step"):
        LinearTimeBaseline().fit(paths)
    paths = with_targets([4, 4])
    paths[0]["observations"][2] = np.nan
    with pytest.raises(ValueError, match="task 0"):
        LinearFeatureBaseline().fit(paths)
    fitted = LinearFeatureBaseline()
    fitted.fit(with_targets([9]))
    with pytest.raises(ShapeError, match="fitted"):
        fitted.predict(make_paths([4], obs_dim=5)[0])
    with pytest.raises(ValueError, match="reg_coeff"):
        LinearTimeBaseline(reg_coeff=-1)


def test_time_alone_explains_paths_whose_observations_are_structures() -> None:
    """Those after paths that were cut off, too, which lie elsewhere in path dicts."""
    rows, path = np.zeros((6, 2)), {"actions": np.zeros((6, 1)), "rewards": np.arange(6.0)}
    nested = {"position": rows, "parts": (rows[:, 0], rows)}
    last = {"position": rows[0], "parts": (rows[0, 0], rows[0])}
    groups = [[{**path, "observations": nested, "final_observation": last}] * 2] * 2
    plain = [[{**path, "observations": rows, "final_observation": rows[0]}] * 2] * 2
    targets = np.tile(np.arange(6.0), 4)
    found, expected = (
        LinearTimeBaseline().fit_tasks(PathColumns.of(each), targets, finals=True) for each in (groups, plain)
    )
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, two)
    baseline = LinearTimeBaseline()
    baseline.fit(groups[0], target_key="rewards")
    np.testing.assert_allclose(baseline.predict(groups[0][0]), path["rewards"], atol=0.02)
