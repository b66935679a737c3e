"""ProMP's sample processors: documented keys, logs, statistics, and errors."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from metaroll.data.paths import Paths, from_path
from metaroll.data.rollouts import Rollouts
from metaroll.errors import DataError, ShapeError
from metaroll.processing.baselines import LinearFeatureBaseline, LinearTimeBaseline, ZeroBaseline
from metaroll.processing.sample_processor import (
    DiceMetaSampleProcessor,
    DiceSampleProcessor,
    MetaSampleProcessor,
    SampleProcessor,
)
from processing_paths import MeanBaseline, make_paths, slow_gae, slow_returns

KEYS = {"observations", "actions", "rewards", "returns", "advantages", "env_infos", "agent_infos"}
DICE_KEYS = {"mask", "observations", "actions", "rewards", "adjusted_rewards", "env_infos", "agent_infos"}
ALL_LOGS = {
    "AverageDiscountedReturn",
    "AverageReturn",
    "NumTrajs",
    "StdReturn",
    "MaxReturn",
    "MinReturn",
    "ExplainedVariance",
}


def assert_same(a: Any, b: Any) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        if isinstance(value, dict):
            assert_same(value, b[name])
        else:
            np.testing.assert_array_equal(value, b[name])


def test_documented_keys_shapes_and_values() -> None:
    """specs/meta.md 1.3: returns, advantages, stacked data."""
    paths = make_paths([3, 5, 1])
    found = SampleProcessor(ZeroBaseline(), discount=0.9, gae_lambda=0.8).process_samples(paths)
    assert found.keys() == KEYS
    assert found["observations"].shape == (9, 2)
    assert found["env_infos"]["speed"].shape == (9,)
    assert found["agent_infos"]["mean"].shape == (9, 1)
    np.testing.assert_allclose(found["returns"], np.concatenate([slow_returns(p["rewards"], 0.9) for p in paths]))
    expected = [slow_gae(p["rewards"], np.zeros(len(p["rewards"])), 0.0, 0.9, 0.8) for p in paths]
    np.testing.assert_allclose(found["advantages"], np.concatenate(expected))


def test_inputs_are_left_as_they_are() -> None:
    paths = make_paths([3, 5])
    before = copy.deepcopy(paths)
    SampleProcessor(LinearFeatureBaseline(), normalize_adv=True).process_samples(paths)
    DiceSampleProcessor(LinearTimeBaseline(), 6, return_baseline=LinearFeatureBaseline()).process_samples(paths)
    for path, old in zip(paths, before, strict=True):
        assert_same(path, old)


def test_lists_of_dicts_rollouts_and_columns_give_the_same() -> None:
    paths = make_paths([4, 2, 6])
    rollouts = [from_path({**path, "final_observation": np.zeros(2)}) for path in paths]
    results = [
        SampleProcessor(LinearFeatureBaseline(), gae_lambda=0.9, normalize_adv=True).process_samples(given)
        for given in (paths, rollouts, Rollouts.of(rollouts), Paths(rollouts), list(Paths(rollouts)))
    ]
    for other in results[1:]:
        assert_same(results[0], other)


def test_undiscounted_advantages_without_baseline_are_sums_of_adjusted_rewards() -> None:
    paths = make_paths([5, 5])
    plain = SampleProcessor(ZeroBaseline(), discount=1.0).process_samples(paths)
    dice = DiceSampleProcessor(ZeroBaseline(), 5, discount=1.0, normalize_adv=False).process_samples(paths)
    sums = np.cumsum(dice["adjusted_rewards"][:, ::-1], axis=1)[:, ::-1]
    np.testing.assert_allclose(plain["advantages"], sums.ravel())


def test_dice_pads_with_zeros_and_counts_true_steps_only() -> None:
    """specs/meta.md 1.4 and Q-07: padding stays 0, and statistics are masked."""
    paths = make_paths([2, 5, 4])
    paths[0]["env_infos"]["deep"] = np.ones((2, 3, 2))
    for path in paths[1:]:
        path["env_infos"]["deep"] = np.ones((len(path["rewards"]), 3, 2))
    processor = DiceSampleProcessor(LinearTimeBaseline(), 6, return_baseline=LinearFeatureBaseline())
    found = processor.process_samples(paths)
    assert found.keys() == DICE_KEYS | {"advantages"}
    assert found["observations"].shape == (3, 6, 2)
    assert found["env_infos"]["deep"].shape == (3, 6, 3, 2)
    mask = found["mask"]
    assert mask.dtype == np.float64
    assert mask.sum(axis=1).tolist() == [2, 5, 4]
    assert mask[0].tolist() == [1, 1, 0, 0, 0, 0]
    for name in ("rewards", "adjusted_rewards", "advantages"):
        assert not found[name][mask == 0].any()
    for name in ("adjusted_rewards", "advantages"):
        true = found[name][mask == 1]
        assert true.mean() == pytest.approx(0.0, abs=1e-12)
        assert true.std() == pytest.approx(1.0, abs=1e-6)
    plain = SampleProcessor(LinearFeatureBaseline(), normalize_adv=True).process_samples(paths)
    np.testing.assert_allclose(found["advantages"][mask == 1], plain["advantages"], rtol=1e-9, atol=1e-12)
    without = DiceSampleProcessor(LinearTimeBaseline(), 6).process_samples(paths)
    assert without.keys() == DICE_KEYS


def test_meta_processor_fits_each_task_and_pools_rewards() -> None:
    """specs/meta.md 1.5: each task by itself, then ``adj_avg_rewards`` over all."""
    batch = {7: make_paths([4, 6], 1), 3: make_paths([5], 2)}
    baseline = LinearTimeBaseline()
    found = MetaSampleProcessor(baseline, gae_lambda=0.9, normalize_adv=True).process_samples(batch)
    rewards = np.concatenate([path["rewards"] for group in batch.values() for path in group])
    pooled = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
    np.testing.assert_allclose(np.concatenate([task["adj_avg_rewards"] for task in found]), pooled, rtol=1e-12)
    for task, group in zip(found, batch.values(), strict=True):
        assert task.keys() == KEYS | {"adj_avg_rewards"}
        alone = SampleProcessor(LinearTimeBaseline(), gae_lambda=0.9, normalize_adv=True).process_samples(group)
        assert_same(alone, {name: task[name] for name in KEYS})
    alone = LinearTimeBaseline()
    SampleProcessor(alone).process_samples(batch[3])
    np.testing.assert_array_equal(baseline.get_param_values(), alone.get_param_values())


def test_dice_meta_processor_leaves_padding_out_of_pooled_rewards() -> None:
    batch = {0: make_paths([2, 6], 1), 1: make_paths([3], 2)}
    found = DiceMetaSampleProcessor(LinearTimeBaseline(), 8).process_samples(batch)
    rewards = np.concatenate([path["rewards"] for group in batch.values() for path in group])
    for task, group in zip(found, batch.values(), strict=True):
        assert task.keys() == DICE_KEYS | {"adj_avg_rewards"}
        expected = np.concatenate([path["rewards"] for path in group])
        expected = (expected - rewards.mean()) / (rewards.std() + 1e-8)
        np.testing.assert_allclose(task["adj_avg_rewards"][task["mask"] == 1], expected, rtol=1e-12)
        assert not task["adj_avg_rewards"][task["mask"] == 0].any()


@pytest.mark.parametrize("meta", [False, True])
@pytest.mark.parametrize("dice", [False, True])
def test_logs_with_their_prefix(meta: bool, dice: bool) -> None:
    told: list[dict[str, float]] = []
    kinds: Any = {
        (False, False): SampleProcessor,
        (False, True): DiceSampleProcessor,
        (True, False): MetaSampleProcessor,
        (True, True): DiceMetaSampleProcessor,
    }
    arguments = (LinearTimeBaseline(), 6) if dice else (LinearTimeBaseline(),)
    processor = kinds[meta, dice](*arguments, discount=0.5, log_to=told.append)
    paths = make_paths([3, 6])
    given: Any = {0: paths[:1], 1: paths[1:]} if meta else paths
    processor.process_samples(given)
    assert not told
    assert not processor.logged
    processor.process_samples(given, log="reward", log_prefix="Step_0-")
    assert told[-1].keys() == {"Step_0-AverageReturn"}
    for log in (True, "all"):
        processor.process_samples(given, log=log, log_prefix="Step_1-")
        assert told[-1].keys() == {f"Step_1-{name}" for name in ALL_LOGS}
        assert processor.logged == told[-1]
    returns = [path["rewards"].sum() for path in paths]
    first = [slow_returns(path["rewards"], 0.5)[0] for path in paths]
    expected = {
        "AverageReturn": np.mean(returns),
        "StdReturn": np.std(returns),
        "NumTrajs": 2,
        "MinReturn": min(returns),
    }
    expected |= {"MaxReturn": max(returns), "AverageDiscountedReturn": np.mean(first)}
    for name, value in expected.items():
        assert told[-1][f"Step_1-{name}"] == pytest.approx(value)
    with pytest.raises(ValueError, match="log must"):
        processor.process_samples(given, log="rewards")


def test_baselines_of_others() -> None:
    baseline = MeanBaseline()
    found = MetaSampleProcessor(baseline).process_samples({0: make_paths([3, 4]), 1: make_paths([5], 1)})
    assert baseline.seen == [2, 1]
    for task in found:
        values = task["returns"] - task["advantages"]
        np.testing.assert_allclose(values, task["returns"].mean() * task["observations"][:, 0], rtol=1e-9, atol=1e-12)


def test_whole_rewards_become_floats() -> None:
    paths = make_paths([3])
    paths[0]["rewards"] = np.array([1, 2, 3])
    found = SampleProcessor(ZeroBaseline(), discount=1.0).process_samples(paths)
    assert found["rewards"].dtype == np.float64
    assert found["returns"].tolist() == [6, 5, 3]


def test_what_some_paths_do_not_tell_is_nan_or_none() -> None:
    paths = make_paths([2, 3])
    paths[1]["env_infos"] |= {
        "success": np.array([False, False, True]),
        "word": np.array(["a", "b", "c"], dtype=object),
    }
    infos = SampleProcessor(ZeroBaseline()).process_samples(paths)["env_infos"]
    np.testing.assert_array_equal(infos["success"], [np.nan, np.nan, 0, 0, 1])
    assert infos["word"].tolist() == [None, None, "a", "b", "c"]


@pytest.mark.parametrize("name", ["discount", "gae_lambda"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_factors_outside_of_their_range(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        SampleProcessor(ZeroBaseline(), **{name: value})
    with pytest.raises(ValueError, match=name):
        DiceSampleProcessor(ZeroBaseline(), 5, **{name: value})


def test_bad_paths_are_named() -> None:
    processor = MetaSampleProcessor(ZeroBaseline())
    with pytest.raises(TypeError, match="paths_meta_batch"):
        processor.process_samples([make_paths([3])])
    with pytest.raises(ValueError, match="at least one"):
        processor.process_samples({0: make_paths([3]), 1: []})
    with pytest.raises(ValueError, match="at least one task"):
        processor.process_samples({})
    batch = {0: make_paths([3]), 1: make_paths([3, 4])}
    batch[1][1]["rewards"][2] = np.nan
    with pytest.raises(ValueError, match=r"path 1 of task 1 .* nan at step 2"):
        processor.process_samples(batch)
    batch[1][1] = make_paths([0])[0]
    with pytest.raises(ShapeError, match="path 1 of task 1 must have at least one step"):
        processor.process_samples(batch)
    del batch[1][1]["actions"]
    with pytest.raises(DataError, match="path 1 of task 1 has no 'actions'"):
        processor.process_samples(batch)
    batch[1][1] = make_paths([4])[0]
    batch[1][1]["env_infos"]["speed"] = np.zeros(3)
    with pytest.raises(ShapeError, match="path 1 of task 1 must have one entry per step"):
        processor.process_samples(batch)
    batch[1][1] = make_paths([4], obs_dim=3)[0]
    with pytest.raises(ShapeError, match=r"observations of path 1 of task 1 must have shape \(2,\) .* got \(3,\)"):
        processor.process_samples(batch)
    batch[1][1] = make_paths([4])[0]
    for path, width in zip((batch[0][0], *batch[1]), (2, 2, 5), strict=True):
        path["agent_infos"]["mean"] = np.zeros((len(path["rewards"]), width))
    with pytest.raises(ShapeError, match=r"agent_infos\['mean'\] of path 1 of task 1 must have shape .* got \(5,\)"):
        processor.process_samples(batch)
    batch[1][1] = make_paths([4])[0]
    batch[1][1]["env_infos"]["contacts"] = [[1], [1, 2], [], [3]]
    with pytest.raises(ShapeError, match="'contacts' in env_infos of path 1 of task 1 must have one shape"):
        processor.process_samples(batch)


def test_bad_arguments() -> None:
    with pytest.raises(ShapeError, match="max_path_length=4 steps, but path 1 has 5"):
        DiceSampleProcessor(ZeroBaseline(), 4).process_samples(make_paths([4, 5]))
    with pytest.raises(ValueError, match="max_path_length"):
        DiceSampleProcessor(ZeroBaseline(), 0)
    with pytest.raises(TypeError, match="baseline"):
        SampleProcessor(ZeroBaseline)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="return_baseline"):
        DiceSampleProcessor(ZeroBaseline(), 4, return_baseline=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="log_to"):
        SampleProcessor(ZeroBaseline(), log_to="stdout")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="MetaSampleProcessor"):
        SampleProcessor(ZeroBaseline()).process_samples({0: make_paths([3])})
    with pytest.raises(ValueError, match="at least one path"):
        SampleProcessor(ZeroBaseline()).process_samples([])
