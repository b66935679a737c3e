"""Ridge regression, features of linear baselines, explained variance: by hand, and against direct solves."""

from __future__ import annotations

import numpy as np
import pytest

from metaroll.errors import ShapeError
from metaroll.functional.regression import (
    cross_fitted_ridge,
    explained_variance,
    grams_of_blocks,
    ridge,
    solve_ridge,
    state_features,
    time_features,
)


def test_ridge_by_hand() -> None:
    # one feature (1, 2), targets (2, 6): w = (1*2 + 2*6) / (1 + 4 + c) = 14 / (5 + c)
    assert ridge([[1.0], [2.0]], [2.0, 6.0], 0.0).tolist() == pytest.approx([14 / 5])
    assert ridge([[1.0], [2.0]], [2.0, 6.0], 2.0).tolist() == pytest.approx([2.0])


def test_many_problems_at_once_are_those_of_numpy_one_by_one() -> None:
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(5, 30, 4)), rng.normal(size=(5, 30))
    found = ridge(features, targets, 0.3)
    for m in range(5):
        # the same as plain least squares with rows sqrt(c) I and targets 0 below
        rows = np.concatenate([features[m], np.sqrt(0.3) * np.eye(4)])
        expected = np.linalg.lstsq(rows, np.concatenate([targets[m], np.zeros(4)]), rcond=None)[0]
        np.testing.assert_allclose(found[m], expected, rtol=1e-10)
        np.testing.assert_allclose(ridge(features[m], targets[m], 0.3), expected, rtol=1e-10)


def test_a_singular_system_is_solved_with_a_raised_coefficient() -> None:
    features = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    targets = np.array([2.0, 4.0, 6.0])
    alone = ridge(features, targets, 0.0)
    np.testing.assert_allclose(features @ alone, targets, atol=1e-6)
    # one that cannot be solved does not change the others
    good = np.random.default_rng(0).normal(size=(3, 2))
    both = ridge(np.stack([features, good]), np.stack([targets, targets]), 0.0)
    np.testing.assert_array_equal(both[0], alone)
    np.testing.assert_allclose(both[1], np.linalg.lstsq(good, targets, rcond=None)[0], rtol=1e-9)
    # not positive definite at all: least squares
    weird = solve_ridge(np.array([[-1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 1.0]), 0.0)
    np.testing.assert_allclose(weird, [-1.0, 1.0], rtol=1e-9)


def test_a_cross_fitted_regression_by_hand() -> None:
    # Slope 2 of (0, 1, 2) without noise. Left out, a row is told by the line through the other two.
    rows, each = np.array([[0.0], [1.0], [2.0]]), np.arange(3)
    fit = cross_fitted_ridge(rows, np.array([[1.0], [3.0], [5.0]]), each)
    np.testing.assert_allclose([fit.weights[0, 0], fit.offset[0]], [2.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(fit.left_out, [[1.0], [3.0], [5.0]], atol=1e-6)
    # (0, 1, 0) of the same: the lines through two others are 2 - x, 0 and x, and their errors 2, 1 and 2. The means of
    # two others, 1/2, 0 and 1/2, are nearer: a regression tells nothing.
    nothing = cross_fitted_ridge(rows, np.array([[0.0], [1.0], [0.0]]), each)
    np.testing.assert_allclose(nothing.weights, 0.0, atol=0.0)
    np.testing.assert_allclose([nothing.offset[0], *nothing.left_out[:, 0]], 1 / 3)


@pytest.mark.parametrize("width", [6, 90])
def test_a_cross_fitted_regression_is_that_of_scikit_learn(width) -> None:
    from sklearn.linear_model import Ridge

    generator = np.random.default_rng(0)
    rows = generator.normal(size=(60, width))
    targets = rows @ generator.normal(size=(width, 2)) * [1.0, 0.5] + generator.normal(size=(60, 2))
    folds = generator.permutation(60) % 7
    found = cross_fitted_ridge(rows, targets, folds)
    for column in range(2):
        fits = []
        for share in (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1):

            def fitted(kept, share=share, column=column):
                total = np.square(rows[kept] - rows[kept].mean(axis=0)).sum()
                return Ridge(share * total, solver="svd").fit(rows[kept], targets[kept, column])

            left_out = np.empty(60)
            for fold in range(7):
                left_out[folds == fold] = fitted(folds != fold).predict(rows[folds == fold])
            fits.append((np.square(left_out - targets[:, column]).sum(), left_out, fitted(np.full(60, True))))
        _, left_out, best = min(fits, key=lambda fit: fit[0])
        np.testing.assert_allclose(found.left_out[:, column], left_out, atol=1e-5)
        np.testing.assert_allclose(found.weights[:, column], best.coef_, atol=1e-5)
        np.testing.assert_allclose(found.offset[column], best.intercept_, atol=1e-5)


def test_ridge_refuses_what_it_cannot_fit() -> None:
    with pytest.raises(ValueError, match="finite"):
        ridge([[1.0], [np.nan]], [1.0, 2.0])
    with pytest.raises(ShapeError, match=r"\(T, F\)"):
        ridge([[1.0], [2.0]], [1.0])
    with pytest.raises(ValueError, match="coefficient"):
        ridge([[1.0]], [1.0], -1.0)


@pytest.mark.parametrize(("width", "at_once"), [(1, 1), (2, 1), (8, 1), (9, 2**20), (45, 2**20), (45, 1)])
def test_grams_of_blocks(monkeypatch: pytest.MonkeyPatch, width: int, at_once: int) -> None:
    monkeypatch.setattr("metaroll.functional.regression._PRODUCTS_AT_A_TIME", at_once)  # 16 blocks at least
    blocks = np.random.default_rng(0).normal(size=(40, 7, width))
    firsts = np.array([0, 3, 4, 16, 17])  # tables end where a batch of blocks does, and go on in the next ones
    found = grams_of_blocks(blocks, firsts)
    for gram, table in zip(found, np.split(blocks, firsts[1:]), strict=True):
        rows = table.reshape(-1, width)
        np.testing.assert_allclose(gram, rows.T @ rows, rtol=1e-12, atol=1e-12)


def test_features_by_hand() -> None:
    np.testing.assert_allclose(time_features([0, 50, 200]), [[0, 0, 0, 1], [0.5, 0.25, 0.125, 1], [2, 4, 8, 1]])
    found = state_features(np.array([[3.0, -20.0]], np.float32), [50])
    np.testing.assert_allclose(found, [[3, -10, 9, 100, 0.5, 0.25, 0.125, 1]])


def test_explained_variance_by_hand() -> None:
    # targets 0, 2, 4: variance 8/3; what is left after predicting 0, 2, 2: 0, 0, 2 with variance 8/9
    assert explained_variance([0, 2, 2], [0, 2, 4]) == pytest.approx(1 - 1 / 3)
    assert explained_variance([0, 2, 4], [0, 2, 4]) == 1.0
    assert explained_variance([7, 7, 7], [0, 2, 4]) == 0.0
    assert explained_variance([1, 1], [5, 5]) == 1.0
    assert explained_variance([1, 2], [5, 5]) == 0.0
    with pytest.raises(ShapeError):
        explained_variance([1, 2], [5])
