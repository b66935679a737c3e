"""Regressions on features: against ridge regressions that are made one by one, and their test against chance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from metaroll.functional.posteriors.smoothers import Smoothers

GENERATOR = np.random.default_rng(4)
ROWS = GENERATOR.standard_normal((40, 3))
THERE = np.array([0.3, -0.2, 1.0])


def by_hand(rows, values, there, kind, ridge):
    """What a ridge regression with an intercept, which is made of a centered kernel, says at one place."""
    both = np.concatenate([rows, there[None]])
    width = np.median(pdist(ROWS))
    kernel = both @ rows.T if kind == "linear" else np.exp(-0.5 * np.square(cdist(both, rows) / width))
    turn = np.eye(len(rows)) - 1.0 / len(rows)
    own = turn @ kernel[:-1] @ turn
    at = (kernel[-1] - kernel[:-1].mean(axis=0)) @ turn
    weights = np.linalg.solve(own + ridge * np.eye(len(rows)), values - values.mean())
    return values.mean() + at @ weights


@pytest.mark.parametrize("shape", ["linear", "curved"])
def test_the_best_regression_is_that_of_the_least_error_of_those_left_out(shape):
    values = ROWS @ [1.0, 2.0, 0.0] if shape == "linear" else np.cos(2.0 * ROWS[:, 0]) + ROWS[:, 1]
    values = values + 0.3 * GENERATOR.standard_normal(40)
    turn = np.eye(40) - 1.0 / 40
    gaussian = np.exp(-0.5 * np.square(cdist(ROWS, ROWS) / np.median(pdist(ROWS))))
    found = []
    for kind, kernel in (("linear", ROWS @ ROWS.T), ("gaussian", gaussian)):
        centered = turn @ kernel @ turn
        for share in (1e-4, 1e-3, 1e-2, 1e-1):
            ridge = share * np.trace(centered)
            hat = centered @ np.linalg.inv(centered + ridge * np.eye(40)) + 1.0 / 40
            errors = (values - hat @ values) / (1.0 - np.diag(hat))
            found.append((np.square(errors).sum(), kind, ridge))
    least, kind, ridge = min(found)
    told = Smoothers(ROWS, THERE).predicted(values)
    alone = [values[i] - np.delete(values, i).mean() for i in range(40)]
    assert told.share == pytest.approx(1.0 - least / np.square(alone).sum(), abs=1e-6) and told.share > 0.5
    assert told.rest == pytest.approx(np.sqrt(least / 40), rel=1e-6)
    assert told.there == pytest.approx(by_hand(ROWS, values, THERE, kind, ridge), abs=1e-6)


def test_the_error_of_one_left_out_of_a_linear_regression():
    # By the kernel's own ridge, the leverages are those of the ridge regression on centered features.
    centered = ROWS - ROWS.mean(axis=0)
    ridge = 1e-2 * np.square(centered).sum()
    hat = centered @ np.linalg.solve(centered.T @ centered + ridge * np.eye(3), centered.T)
    kernel = centered @ centered.T
    np.testing.assert_allclose(kernel @ np.linalg.inv(kernel + ridge * np.eye(40)), hat, atol=1e-9)


def test_numbers_that_features_do_not_tell():
    smoothers, generator = Smoothers(ROWS, THERE), np.random.default_rng(1)
    values = generator.standard_normal((40, 200, 60))
    found = np.array([smoothers.p_value(values[:, :, i]) for i in range(60)])
    assert 0.3 < found.mean() < 0.7 and (found < 0.05).mean() < 0.15
    noise = generator.standard_normal(40)
    assert smoothers.predicted(noise).share < 0.3
    told = values[:, :, 0].copy()
    told[:, 0] += 2.0 * np.square(ROWS[:, 0])  # not linear
    assert smoothers.p_value(told) < 0.01
    constant = smoothers.predicted(np.full(40, 3.0))
    assert constant.share == 0.0 and constant.there == pytest.approx(3.0)
