"""Features of series and dynamic time warping, against numbers worked by hand."""

from __future__ import annotations

import types

import numpy as np
import pytest
import torch

from metaroll.errors import ShapeError, UnknownNameError
from metaroll.functional.series.dtw import dtw_distances
from metaroll.functional.series.features import (
    bayes_sim_features,
    constant_features,
    feature_scale,
    kept_steps,
    series_of_changes,
)
from metaroll.functional.series.step_patterns import Move, rabiner_juang, step_pattern_of
from metaroll.inference.standardization import FeatureStandardizer


# ------------------------------------------------------------------------------------------------ features
def test_kept_steps_are_those_of_a_slice() -> None:
    for num_steps in range(1, 12):
        for factor in range(1, 14):
            assert kept_steps(num_steps, factor) == len(range(num_steps)[::factor])


def test_bayes_sim_features_by_hand() -> None:
    states = torch.tensor([[0.0, 1.0], [2.0, 1.0], [3.0, 5.0]])  # changes (2, 0) and (1, 4)
    actions = torch.tensor([[1.0], [-2.0], [99.0]])  # the last one changes nothing
    # 1 * (2, 0) - 2 * (1, 4) = (0, -8); means (1.5, 2); variances (0.25, 4)
    expected = torch.tensor([0.0, -8.0, 1.5, 2.0, 0.25, 4.0])
    assert torch.equal(bayes_sim_features(states, actions), expected)
    assert torch.equal(bayes_sim_features(states.expand(2, 3, 3, 2), actions.expand(2, 3, 3, 1))[1, 2], expected)
    with pytest.raises(ShapeError, match="two steps"):
        series_of_changes(states[:1])


def test_bayes_sim_features_of_changes_over_two_steps_by_hand() -> None:
    states = torch.tensor([[0.0], [2.0], [3.0], [7.0]])  # over two steps 3 and 5
    actions = torch.tensor([[1.0], [-3.0], [5.0], [99.0]])  # means -1 and 1
    # -1 * 3 + 1 * 5 = 2; mean 4; variance 1
    assert torch.equal(bayes_sim_features(states, actions, 2), torch.tensor([2.0, 4.0, 1.0]))
    # By a loop, of two series at once.
    drawn = np.random.default_rng(0)
    states, actions = (torch.from_numpy(drawn.normal(size=(2, 30, width))) for width in (3, 2))
    found = bayes_sim_features(states, actions, 4)
    for row in range(2):
        x, u = states[row].numpy(), actions[row].numpy()
        tau = np.array([x[t + 4] - x[t] for t in range(26)])
        held = np.array([u[t : t + 4].mean(axis=0) for t in range(26)])
        expected = np.concatenate([(held.T @ tau).reshape(-1), tau.mean(axis=0), tau.var(axis=0)])
        np.testing.assert_allclose(found[row].numpy(), expected, atol=1e-12)
    with pytest.raises(ShapeError, match="over 30 steps"):
        bayes_sim_features(states, actions, 30)


def test_constant_features_are_found_and_keep_scale_one() -> None:
    """specs/sampling.md 19.4: a constant feature must not get a scale of next to nothing."""
    features = torch.tensor([[1.0, 0.0, 1000.0, 5.0], [3.0, 0.0, 1000.0001, 5.0], [torch.nan, 7.0, 7.0, 7.0]])
    assert constant_features(features).tolist() == [False, True, True, True]
    shift, scale = feature_scale(features)
    assert shift[:2].tolist() == [2.0, 0.0] and scale.tolist() == [1.0, 1.0, 1.0, 1.0]
    assert feature_scale(torch.tensor([[0.0], [6.0]]))[1].tolist() == [3.0]
    standardizer = FeatureStandardizer(torch.tensor([[0.0, 4.0], [6.0, 4.0]]))
    assert standardizer(torch.tensor([[3.0, 4.0], [9.0, 6.0]])).tolist() == [[0.0, 0.0], [2.0, 2.0]]
    assert standardizer.constant.tolist() == [False, True]
    assert constant_features(torch.ones(1, 2)).all()
    with pytest.raises(ValueError, match="without NaN"):
        feature_scale(features[2:])
    with pytest.raises(ShapeError, match="table"):
        constant_features(torch.ones(3))


# ------------------------------------------------------------------------------------------------ warping
X, Y = np.array([[0.0], [2.0], [2.0]]), np.array([[0.0], [0.0], [1.0], [3.0]])
"""Distances: rows (0, 0, 1, 3), (2, 2, 1, 1), (2, 2, 1, 1)."""


@pytest.mark.parametrize(
    ("pattern", "distance", "open_distance"),
    [
        # symmetric2: rows of least costs (0 0 1 4), (2 2 2 3), (4 4 3 4); ends / (3 + j): 1, 0.8, 0.5, 0.57
        ("symmetric2", 4.0, 3.0),
        # asymmetric: (0 - - -), (2 2 1 -), (4 4 2 2); by N = 3
        ("asymmetric", 2.0, 2.0),
        # symmetric1: (0 0 1 4), (2 2 1 2), (4 4 2 2); there is no open end
        ("symmetric1", 2.0, None),
    ],
)
def test_distances_by_hand(pattern: str, distance: float, open_distance: float | None) -> None:
    assert dtw_distances(X, Y, pattern) == distance
    if open_distance is None:
        with pytest.raises(ValueError, match="no open end"):
            dtw_distances(X, Y, pattern, open_end=True)
    else:
        assert dtw_distances(X, Y, pattern, open_end=True) == open_distance


def test_moves_of_patterns_by_hand() -> None:
    # Type II d (Rabiner and Juang 1993, table 4.5): (1,1)(1,0) weighs 2 and 1; (1,1) 2; (1,1)(0,1) 2 and 1.
    assert rabiner_juang(2, "d").moves == (
        Move(2, 1, ((1, 0, 2.0), (0, 0, 1.0))),
        Move(1, 1, ((0, 0, 2.0),)),
        Move(1, 2, ((0, 1, 2.0), (0, 0, 1.0))),
    )
    assert rabiner_juang(2, "c", True).moves[2] == Move(1, 2, ((0, 1, 0.5), (0, 0, 0.5)))
    assert [rabiner_juang(1, w).norm for w in "abcd"] == ["none", "none", "N", "N+M"]


def test_shapes_types_and_leading_axes() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3, 9, 2)), rng.normal(size=(3, 8, 2))
    found = dtw_distances(x, y)
    assert found.shape == (2, 3) and found.dtype == np.float64
    assert found[1, 2] == dtw_distances(x[1, 2], y[2])
    tensor = dtw_distances(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
    assert tensor.dtype == torch.float32
    np.testing.assert_allclose(tensor, found, rtol=1e-5)
    assert dtw_distances(x[:0], y).shape == (0, 3)
    for wrong in ((x[..., 0], y[..., :1]), (x, y[:2]), (x[0, 0, :0], y), (x[0, 0, 0, 0], y)):
        with pytest.raises(ShapeError):
            dtw_distances(*wrong)


def test_pairs_with_gaps_are_nan_and_the_others_are_not() -> None:
    x, y = np.zeros((3, 4, 1)), np.ones((3, 4, 1))
    x[0, 1], y[1, 2] = np.nan, np.inf
    assert np.isnan(dtw_distances(x, y)).tolist() == [True, True, False]


def test_no_path_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no warping path .*asymmetric.* of 3 and 9 steps"):
        dtw_distances(X, np.zeros((9, 1)), "asymmetric")
    assert dtw_distances(X, np.zeros((9, 1)), "asymmetric", open_end=True) == 4.0
    with pytest.raises(ValueError, match="no warping path"):
        dtw_distances(np.zeros((9, 1)), X, "symmetricP1", open_end=True)


class _Foreign(types.SimpleNamespace):
    """What dtw-python's StepPattern shows."""


@pytest.mark.parametrize(
    ("pattern", "error", "message"),
    [
        ("symetric2", UnknownNameError, "symmetric2"),
        (3, TypeError, "step_pattern"),
        (_Foreign(mx=[[1, 1, 1]], hint="N"), ValueError, "four numbers"),
        (_Foreign(mx=[[1, 1.5, 1, -1]], hint="N"), ValueError, "whole"),
        (_Foreign(mx=[[1, 0, 0, -1], [1, 0, 0, 1]], hint="N"), ValueError, "before"),
        (_Foreign(mx=[[1, 1, 1, -1], [1, 2, 0, 1]], hint="N"), ValueError, "between"),
        (_Foreign(mx=[[1, 1, 1, 2]], hint="N"), ValueError, "start"),
        (_Foreign(mx=[[1, 1, 1, -1]], hint="K"), ValueError, "hint"),
    ],
)
def test_patterns_that_are_none(pattern, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        step_pattern_of(pattern)
    with pytest.raises(ValueError, match="type from 1 to 7"):
        rabiner_juang(8, "c")
