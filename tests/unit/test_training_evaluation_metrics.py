"""specs/meta.md 5.5: statistics of episodes under their usual names; bootstrap intervals over tasks."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import scipy.stats

from metaroll.data.paths import TrajectoryBatch
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import ShapeError
from metaroll.training.evaluation.evaluation_metrics import (
    episode_returns,
    interval_method,
    interval_of_mean,
    interval_of_normalized_score,
    intervals_of_means,
    log_multitask_performance,
    log_performance,
    normalized_score,
)
from metaroll.training.evaluation.evaluation_result import PolicyEvaluation
from metaroll.types import EnvSpec

SPEC = EnvSpec(gymnasium.spaces.Box(-1, 1, (1,), np.float32), gymnasium.spaces.Box(-1, 1, (1,), np.float32))


def rollout(rewards: list[float], terminated: bool, **env_infos: Any) -> StepSequence:
    length = len(rewards)
    last = np.arange(length) == length - 1
    return StepSequence(
        rewards=np.array(rewards),
        observations=np.zeros((length + 1, 1), np.float32),
        actions=np.zeros((length, 1), np.float32),
        terminated=last & terminated,
        truncated=last & (not terminated),
        env_infos={name: np.array(values) for name, values in env_infos.items()},
        policy_infos={},
    )


ROLLOUTS = [
    rollout([1.0, 2.0], True, success=[False, True], task_id=[3, 3]),
    rollout([4.0, 0.0, 8.0], False, success=[False, False, False], task_id=[5, 5, 5]),
]


@pytest.mark.parametrize("as_batch", [False, True])
def test_log_performance_by_hand(as_batch: bool) -> None:
    """specs/meta.md 5.5, Q-52"""
    batch = TrajectoryBatch.from_rollouts(SPEC, ROLLOUTS) if as_batch else ROLLOUTS
    # Returns 3 and 12; with discount 1/2: 1 + 1 = 2 and 4 + 0 + 2 = 6.
    assert log_performance(7, batch, 0.5, prefix="Test") == {
        "Test/Iteration": 7,
        "Test/NumTrajs": 2,
        "Test/AverageDiscountedReturn": 4.0,
        "Test/AverageReturn": 7.5,
        "Test/StdReturn": 4.5,
        "Test/MaxReturn": 12.0,
        "Test/MinReturn": 3.0,
        "Test/CompletionRate": 0.5,
        "Test/SuccessRate": 0.5,
        "Test/SuccessAtEndRate": 0.5,
        "Test/StepsToSuccess": 2.0,
    }
    np.testing.assert_array_equal(episode_returns(batch), [3.0, 12.0])


def test_three_ways_of_counting_success() -> None:
    """At any step, at the end, and how soon; an episode may lose what it had"""
    flags = [[0.0, 1.0, 0.0], [False, False, True], [0.0, 0.0, 0.0]]
    metrics = log_performance(0, [rollout([0.0] * 3, False, success=flag) for flag in flags], 1.0)
    assert metrics["Evaluation/SuccessRate"] == pytest.approx(2 / 3)
    assert metrics["Evaluation/SuccessAtEndRate"] == pytest.approx(1 / 3)
    assert metrics["Evaluation/StepsToSuccess"] == 2.5
    never = log_performance(0, [rollout([0.0], False, success=[False])], 1.0)
    assert never["Evaluation/SuccessRate"] == 0.0
    assert np.isnan(never["Evaluation/StepsToSuccess"])


def test_returns_of_another_reward() -> None:
    rollouts = [rollout([1.0, 1.0], False, sparse=[0.0, 5.0])]
    np.testing.assert_array_equal(episode_returns(rollouts, "sparse"), [5.0])
    with pytest.raises(ValueError, match=r"'spars' is not among the env_infos of the rollouts \(they have: sparse\)"):
        episode_returns(rollouts, "spars")


def test_multitask_groups_by_task_id_and_reports_missing_names() -> None:
    """specs/meta.md 5.5"""
    metrics = log_multitask_performance(0, ROLLOUTS, 1.0, {3: "push", 4: "reach"})
    assert metrics["push/AverageReturn"] == 3.0
    assert metrics["Task #5/AverageReturn"] == 12.0
    assert metrics["reach/NumTrajs"] == 0
    assert math.isnan(metrics["reach/AverageReturn"])
    assert metrics["Average/NumTrajs"] == 2
    assert metrics["Average/AverageReturn"] == 7.5


def test_multitask_prefers_task_names_and_has_a_name_for_the_rest() -> None:
    """specs/meta.md 5.5"""
    named = rollout([1.0], False, task_name=["door"], task_id=[3])
    metrics = log_multitask_performance(0, [named, rollout([2.0], False)], 1.0, {3: "push"}, prefix="MetaTest")
    assert metrics["MetaTest/door/AverageReturn"] == 1.0
    assert metrics["MetaTest/__unnamed_task__/AverageReturn"] == 2.0


def test_interval_of_mean_covers_and_shrinks() -> None:
    generator = np.random.default_rng(3)
    few, many = generator.normal(5, 1, 20), generator.normal(5, 1, 500)
    wide, narrow = interval_of_mean(few), interval_of_mean(many)
    assert wide.low < few.mean() < wide.high
    assert narrow.low < 5 < narrow.high
    # 95 % of the mean of 500 numbers with deviation 1: +- 1.96 / sqrt(500) = +- 0.0877.
    assert narrow.high - narrow.low == pytest.approx(2 * 0.0877, rel=0.1)
    assert interval_of_mean(few) == wide  # the same resamples every time
    assert interval_of_mean(few, confidence=0.5).high < wide.high


def test_intervals_stay_in_the_range_of_skewed_returns() -> None:
    """None of 20 returns is above 0, so no bound is; the basic bootstrap gives one."""
    returns = np.concatenate([np.full(17, -0.5), [-40.0, -60.0, -130.0]])
    assert interval_of_mean(returns, method="basic").high > 0.0
    for few in (returns, returns[-8:]):
        low, high = interval_of_mean(few)
        assert few.min() <= low < few.mean() < high <= few.max()
    assert (interval_method(20), interval_method(8)) == ("bca", "percentile")
    assert interval_of_mean(returns[-8:]) == interval_of_mean(returns[-8:], method="percentile")
    result = PolicyEvaluation(returns=returns[:, None], tasks=list(range(20)), task_names=["t"] * 20)
    assert result.return_interval.high <= 0.0
    assert result.to_dict()["interval_method"] == "bca"


def test_bca_is_that_of_scipy() -> None:
    values = np.random.default_rng(1).exponential(size=25)
    peer = scipy.stats.bootstrap((values,), np.mean, n_resamples=10_000, method="BCa", rng=np.random.default_rng(0))
    assert tuple(interval_of_mean(values)) == pytest.approx(tuple(peer.confidence_interval), rel=1e-9)


def test_columns_share_the_resamples() -> None:
    values = np.random.default_rng(0).normal(size=(30, 2))
    low, high = intervals_of_means(np.stack([values[:, 0], values[:, 0], values[:, 1]], axis=1))
    assert low[0] == low[1]
    assert high[0] == high[1]
    assert low[2] != low[0]


def test_degenerate_data_give_no_warning() -> None:
    assert interval_of_mean([2.0, 2.0, 2.0]) == (2.0, 2.0)
    assert all(math.isnan(bound) for bound in interval_of_mean([2.0]))
    assert interval_of_normalized_score([2.0, 3.0], [0.0, 0.0], [4.0, 6.0]) == pytest.approx((0.5, 0.5))
    assert all(math.isnan(bound) for bound in interval_of_normalized_score([1.0], [0.0], [2.0]))
    assert math.isnan(normalized_score([1.0, 2.0], [3.0, 3.0], [3.0, 3.0]))
    assert all(math.isnan(bound) for bound in interval_of_normalized_score([1.0, 2.0], [3.0, 3.0], [3.0, 3.0]))
    with pytest.raises(ShapeError, match=r"one return per task, shape \(M,\) each"):
        normalized_score([1.0, 2.0], [1.0], [3.0, 3.0])
    with pytest.raises(ShapeError, match="at least one task"):
        interval_of_mean([])


def test_normalized_score_by_hand() -> None:
    # (mean(-8, -6) - mean(-10, -20)) / (mean(-4, -6) - mean(-10, -20)) = (-7 + 15) / (-5 + 15) = 0.8
    assert normalized_score([-8.0, -6.0], [-10.0, -20.0], [-4.0, -6.0]) == 0.8


def test_the_three_returns_of_a_task_are_resampled_together() -> None:
    # Tasks differ a lot, but in each the score is 0.6: resampled together, the interval is a point.
    floor = np.linspace(-40.0, -10.0, 25)
    oracle = floor + np.linspace(1.0, 9.0, 25)
    interval = interval_of_normalized_score(floor + 0.6 * (oracle - floor), floor, oracle)
    assert interval == pytest.approx((0.6, 0.6))
