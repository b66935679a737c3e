"""specs/sampling.md 7.7."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from metaroll.data.rollout_values import check_act_equal, discounted_value, discounted_values, gae_returns
from metaroll.data.step_sequence import StepSequence
from metaroll.errors import DataError, ShapeError

REWARDS = [-200.0, -100.0, -50.0, -25.0, -17.5]


def make(rewards: Any = REWARDS, **data: Any) -> StepSequence:
    length = len(rewards)
    return StepSequence(
        **{"rewards": rewards, "observations": np.zeros((length + 1, 1)), "actions": np.zeros((length, 1)), **data}
    )


def test_discounted_value_of_one_rollout() -> None:
    """specs/sampling.md 7.7"""
    values = discounted_value(make(), 0.9)
    assert values[4] == -17.5 and values[3] == pytest.approx(-25 - 0.9 * 17.5)
    assert values[2] == pytest.approx(-86.675)  # -50 - 22.5 - 14.175
    assert values[0] == pytest.approx(make().discounted_return(0.9))
    both = StepSequence.concat([make([1.0, 2.0]), make([4.0])])
    assert discounted_value(both, 0.5).tolist() == [2, 2, 4]
    assert isinstance(discounted_value(make(data_format="torch"), 0.9), torch.Tensor)
    assert discounted_value(make([[1.0], [2.0]]), 0.5).tolist() == [2, 2]
    with pytest.raises(ValueError, match="loose batch"):
        discounted_value(make()[[0, 1]], 0.9)
    with pytest.raises(ValueError, match=r"gamma must lie in \[0, 1\]"):
        discounted_value(make(), 1.1)
    with pytest.raises(TypeError, match="rollout must be a StepSequence"):
        discounted_value([1.0], 0.9)  # pyright: ignore[reportArgumentType]


def test_discounted_values_of_several_rollouts() -> None:
    """specs/sampling.md 7.7"""
    rollouts = [make([1.0, 2.0]), make([4.0])]
    values = discounted_values(rollouts, 0.5)
    assert isinstance(values, torch.Tensor) and values.dtype == torch.float32 and values.tolist() == [2, 2, 4]
    for data_format in ("numpy", None):
        values = discounted_values(rollouts, 0.5, data_format)
        assert isinstance(values, np.ndarray) and values.dtype == np.float64 and values.tolist() == [2, 2, 4]
    with pytest.raises(ValueError, match="at least one StepSequence"):
        discounted_values([], 0.5)
    with pytest.raises(ValueError, match="data_format must be"):
        discounted_values(rollouts, 0.5, "jax")


@pytest.mark.parametrize("data_format", ["numpy", "torch"])
def test_gae_restarts_and_bootstraps_at_every_end(data_format: str) -> None:
    """specs/sampling.md 7.7, RULE"""
    first = make([1.0, 2.0], values=[0.5, 1.0, 100.0], terminated=[False, True])
    second = make([3.0], values=[2.0, 4.0], truncated=[True])
    both = StepSequence.concat([first, second], data_format=data_format)
    advantages = gae_returns(both, gamma=0.5, lamb=0.5)
    # delta = 1 + 0.5 * 1 - 0.5 = 1; 2 - 1 = 1 (terminated: the value 100 does not count); 3 + 0.5 * 4 - 2 = 3
    assert advantages.tolist() == [1 + 0.25, 1, 3]
    assert isinstance(advantages, torch.Tensor if data_format == "torch" else np.ndarray)
    assert gae_returns(make([3.0], values=[[2.0], [4.0]], truncated=[True]), 0.5, 0.5).tolist() == [3]


def test_gae_of_one_rollout_is_the_recursion() -> None:
    rng = np.random.default_rng(1)
    rewards, values = rng.normal(size=10), rng.normal(size=11)
    expected, following = np.zeros(10), 0.0
    for t in range(9, -1, -1):
        following = rewards[t] + 0.99 * values[t + 1] - values[t] + 0.99 * 0.95 * following
        expected[t] = following
    advantages = gae_returns(make(rewards, values=values, truncated=np.arange(10) == 9))
    np.testing.assert_allclose(advantages, expected, rtol=1e-12)
    assert gae_returns(make(rewards, values=values[:10])).shape == (10,)  # terminated: no final value is needed


def test_gae_names_what_is_missing() -> None:
    with pytest.raises(DataError, match="needs the values of the states"):
        gae_returns(make())
    parts = [make([1.0], values=[0.5]), make([1.0], values=[0.5], truncated=[True])]
    with pytest.raises(ValueError, match="rollout 1 does not end with a terminated step"):
        gae_returns(StepSequence.concat(parts))
    with pytest.raises(ValueError, match="values must be numbers, one per step, got a dict"):
        gae_returns(make(values={"a": np.zeros(5)}))
    with pytest.raises(ValueError, match="loose batch"):
        gae_returns(make(values=np.zeros(5))[[0, 1]])


def test_check_act_equal_of_rollouts_and_lists() -> None:
    """specs/sampling.md 7.7, RULE"""
    actions = np.arange(5.0)[:, None]
    a, near, far = make(actions=actions), make(actions=actions + 1e-9), make(actions=actions + 1)
    assert check_act_equal(a, near) is True and check_act_equal(a, far) is False
    short = a[:3]
    assert check_act_equal(a, short) and check_act_equal(short, near)
    assert check_act_equal([a, far], [near, far]) and not check_act_equal([a, a], [near, far])
    assert not check_act_equal(a, make(actions=np.arange(5.0)))
    nested = make(actions={"x": actions, "y": np.array(["go"] * 5, dtype=object)})
    assert check_act_equal(nested, nested) and not check_act_equal(nested, a)
    assert check_act_equal(a, make(actions=actions, data_format="torch"))
    applied = make(actions=actions, actions_applied=actions / 2)
    assert check_act_equal(applied, applied, check_applied=True)
    with pytest.raises(DataError, match="no field 'actions_applied'"):
        check_act_equal(a, applied, check_applied=True)
    with pytest.raises(ShapeError, match="same number of rollouts, got 1 and 2"):
        check_act_equal([a], [a, a])
    with pytest.raises(TypeError, match="a rollout with a rollout"):
        check_act_equal(a, [a])
