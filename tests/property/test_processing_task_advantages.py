"""Advantages of many tasks on columns, against direct double loops: any lengths, any lambda."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaroll.processing.baselines import LinearFeatureBaseline, LinearTimeBaseline, ZeroBaseline
from metaroll.processing.task_advantages import dice_tasks, task_advantages
from processing_paths import make_paths, slow_gae, slow_returns

LENGTHS = st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=4), min_size=1, max_size=3)


def groups_of(lengths: list[list[int]]) -> list[list[dict]]:
    return [make_paths(own, seed) for seed, own in enumerate(lengths)]


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.sampled_from([0.0, 0.9, 1.0]), st.sampled_from([0.0, 0.9, 1.0]))
def test_against_double_loops(lengths: list[list[int]], lam: float, discount: float) -> None:
    groups = groups_of(lengths)
    found = task_advantages(groups, LinearTimeBaseline(), discount=discount, gae_lambda=lam)
    columns, n = found.columns, 0
    for group in groups:
        baseline = LinearTimeBaseline()
        paths = [{**path, "returns": np.array(slow_returns(path["rewards"], discount))} for path in group]
        baseline.fit(paths)
        for path in paths:
            rows = slice(*columns.bounds[n : n + 2])
            values = baseline.predict(path)
            np.testing.assert_allclose(found.returns[rows], path["returns"], rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(found.values[rows], values, rtol=1e-5, atol=1e-6)
            expected = slow_gae(path["rewards"], found.values[rows], 0.0, discount, lam)
            np.testing.assert_allclose(found.advantages[rows], expected, rtol=1e-9, atol=1e-12)
            n += 1


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.booleans(), st.booleans())
def test_padding_never_changes_a_statistic(lengths: list[list[int]], normalize: bool, positive: bool) -> None:
    groups = groups_of(lengths)
    options = {"normalize_adv": normalize, "positive_adv": positive}
    short, long = (
        dice_tasks(groups, ZeroBaseline(), length, return_baseline=ZeroBaseline(), **options) for length in (8, 13)
    )
    for name in ("mask", "adjusted_rewards", "advantages", "adj_avg_rewards"):
        a, b = getattr(short, name), getattr(long, name)
        np.testing.assert_array_equal(a, b[:, :8])
        assert not b[long.mask == 0].any()
    ragged = task_advantages(groups, ZeroBaseline(), **options)
    assert long.advantages is not None
    np.testing.assert_allclose(long.advantages[long.mask == 1], ragged.advantages, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(long.adj_avg_rewards[long.mask == 1], ragged.adj_avg_rewards, rtol=1e-9, atol=1e-12)


def test_normalized_within_each_task_then_shifted() -> None:
    groups = groups_of([[9, 4], [20]])
    plain = task_advantages(groups, ZeroBaseline())
    normal = task_advantages(groups, ZeroBaseline(), normalize_adv=True)
    shifted = task_advantages(groups, ZeroBaseline(), normalize_adv=True, positive_adv=True)
    for raw, found, moved in zip(*(x.by_task(x.advantages) for x in (plain, normal, shifted)), strict=True):
        expected = (raw - raw.mean()) / (raw.std() + 1e-8)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(moved, expected - expected.min() + 1e-8, rtol=1e-12, atol=1e-13)
        assert moved.min() == pytest.approx(1e-8)
    rewards = np.concatenate([path["rewards"] for group in groups for path in group])
    np.testing.assert_allclose(plain.adj_avg_rewards, (rewards - rewards.mean()) / (rewards.std() + 1e-8), rtol=1e-12)


def test_discounted_rewards_count_from_the_first_step() -> None:
    paths = make_paths([5])
    paths[0]["rewards"] = np.full(5, -1.0)
    found = dice_tasks([paths], ZeroBaseline(), 6, normalize_adv=False, discount=0.99)
    np.testing.assert_allclose(found.adjusted_rewards, [[-1, -0.99, -(0.99**2), -(0.99**3), -(0.99**4), 0]])
    no_discount = dice_tasks([paths], ZeroBaseline(), 5, normalize_adv=False, discount=0.0)
    assert no_discount.adjusted_rewards.tolist() == [[-1, 0, 0, 0, 0]]


def test_bootstrap_of_paths_that_were_cut_off() -> None:
    paths = make_paths([4, 6, 3])
    for path, ended in zip(paths, (True, False, False), strict=True):
        path["terminated"] = np.zeros(len(path["rewards"]), dtype=bool)
        path["terminated"][-1] = ended
        path["final_observation"] = np.ones(2)
    baseline = LinearFeatureBaseline()
    found = task_advantages([paths], baseline, discount=0.9, gae_lambda=0.8, bootstrap_truncated=True)
    for n, path in enumerate(paths):
        rows = slice(*found.columns.bounds[n : n + 2])
        longer = {"observations": np.concatenate([path["observations"], np.ones((1, 2))])}
        final = 0.0 if n == 0 else baseline.predict(longer)[-1]
        expected = slow_gae(path["rewards"], found.values[rows], final, 0.9, 0.8)
        np.testing.assert_allclose(found.advantages[rows], expected, rtol=1e-8, atol=1e-10)
    del paths[2]["final_observation"]
    with pytest.raises(ValueError, match="final_observation"):
        task_advantages([paths], baseline, bootstrap_truncated=True)
