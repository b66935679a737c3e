"""Returns and advantages against scipy's filter and against slow double loops (specs/sampling.md 7.7)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.signal import lfilter

from metaroll.functional.advantages import gae
from metaroll.functional.returns import (
    discounted_reverse_cumsum,
    discounted_reverse_cumsum_ragged,
    discounted_sum,
    reverse_scan,
)


@pytest.mark.parametrize("shape", [(1,), (7,), (200,), (9, 3), (5, 2, 2)])
@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.99, 1.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_reverse_cumsum_equals_scipy(shape: tuple[int, ...], gamma: float, dtype: type) -> None:
    data = (10 * np.random.default_rng(0).normal(size=shape)).astype(dtype)
    expected = lfilter([1.0], [1.0, -gamma], data[::-1].astype(np.float64), axis=0)[::-1]
    tolerance = 1e-6 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(discounted_reverse_cumsum(data, gamma), expected, rtol=tolerance, atol=10 * tolerance)
    np.testing.assert_allclose(discounted_sum(data, gamma), expected[0], rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_ragged_equals_one_by_one(gamma: float) -> None:
    rng = np.random.default_rng(1)
    bounds = np.array([0, 1, 5, 6, 20])
    data = rng.normal(size=20)
    expected = [discounted_reverse_cumsum(data[a:b], gamma) for a, b in pairwise(bounds)]
    np.testing.assert_array_equal(discounted_reverse_cumsum_ragged(data, bounds, gamma), np.concatenate(expected))
    rows = rng.normal(size=(4, 6))
    np.testing.assert_array_equal(
        reverse_scan(rows.T, gamma).T, [discounted_reverse_cumsum(row, gamma) for row in rows]
    )


def slow_gae(
    rewards: np.ndarray, values: np.ndarray, terminated: np.ndarray, final: float, discount: float, lam: float
) -> list[float]:
    """The definition for one rollout: for each t, the sum over all later TD errors until the first true ending."""
    following = [*values[1:], final]
    result = []
    for t in range(len(rewards)):
        total = 0.0
        for k in range(t, len(rewards)):
            bootstrap = 0.0 if terminated[k] else discount * following[k]
            total += (discount * lam) ** (k - t) * (rewards[k] + bootstrap - values[k])
            if terminated[k]:
                break
        result.append(total)
    return result


@pytest.mark.parametrize("lam", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("discount", [0.0, 0.95, 1.0])
def test_gae_equals_double_loop(discount: float, lam: float) -> None:
    rng = np.random.default_rng(2)
    lengths = np.array([1, 7, 3, 12])
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    rewards, values = rng.normal(size=(2, bounds[-1]))
    final = rng.normal(size=4)
    terminated = rng.random(bounds[-1]) < 0.15  # some inside, some at the ends
    expected = [
        slow_gae(rewards[a:b], values[a:b], terminated[a:b], final[i], discount, lam)
        for i, (a, b) in enumerate(pairwise(bounds))
    ]
    ragged = gae(
        rewards,
        values,
        terminated=terminated,
        bounds=bounds,
        final_values=final,
        discount=discount,
        gae_lambda=lam,
    )
    np.testing.assert_allclose(ragged, np.concatenate(expected), rtol=1e-12, atol=1e-12)

    rows_r, rows_v, rows_t = np.full((4, 12), 7.0), np.full((4, 12), 7.0), np.ones((4, 12), dtype=bool)
    for i, (a, b) in enumerate(pairwise(bounds)):
        rows_r[i, : b - a], rows_v[i, : b - a], rows_t[i, : b - a] = rewards[a:b], values[a:b], terminated[a:b]
    dense = gae(
        rows_r,
        rows_v,
        terminated=rows_t,
        lengths=lengths,
        final_values=final,
        discount=discount,
        gae_lambda=lam,
    )
    for i, row in enumerate(expected):
        np.testing.assert_allclose(dense[i, : lengths[i]], row, rtol=1e-12, atol=1e-12)
        assert not dense[i, lengths[i] :].any()


def test_gae_identities() -> None:
    rng = np.random.default_rng(3)
    rewards, values = rng.normal(size=8), rng.normal(size=9)
    # lambda 1: discounted return (bootstrapped) minus value; lambda 0: the TD error
    returns = discounted_reverse_cumsum(np.append(rewards, values[-1]), 0.9)[:-1]
    np.testing.assert_allclose(gae(rewards, values, discount=0.9, gae_lambda=1.0), returns - values[:-1])
    td_errors = rewards + 0.9 * values[1:] - values[:-1]
    np.testing.assert_allclose(gae(rewards, values, discount=0.9, gae_lambda=0.0), td_errors)
