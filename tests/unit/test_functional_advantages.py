"""Generalized advantage estimation (specs/sampling.md 7.7), by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metaroll.errors import ShapeError
from metaroll.functional.advantages import gae

# discount 0.5, lambda 0.5: the factor of the recursion is 0.25.
# rewards (1, 2), values (4, 2), terminated at the end:
#   delta_1 = 2 - 2 = 0;   delta_0 = 1 + 0.5 * 2 - 4 = -2;   A = (-2 + 0.25 * 0, 0)
TERMINATED = [-2.0, 0.0]
# cut off instead, with value 8 of the last observation:
#   delta_1 = 2 + 0.5 * 8 - 2 = 4;   A = (-2 + 0.25 * 4, 4)
CUT_OFF = [-1.0, 4.0]


def half(*args: object, **kwargs: object) -> object:
    return gae(*args, discount=0.5, gae_lambda=0.5, **kwargs)


def test_one_rollout() -> None:
    assert half([1, 2], [4, 2], terminated=[False, True]).tolist() == TERMINATED
    assert half([1, 2], [4, 2, 8]).tolist() == CUT_OFF
    assert half([1, 2], [4, 2], final_values=[8]).tolist() == CUT_OFF
    # what stands behind a true ending is not read
    assert half([1, 2], [4, 2, np.nan], terminated=[False, True]).tolist() == TERMINATED


def test_concatenation_restarts_at_every_end() -> None:
    result = half(
        [1.0, 2.0, 1.0, 2.0],
        [4.0, 2.0, 4.0, 2.0],
        terminated=[False, True, False, False],
        bounds=[0, 2, 4],
        final_values=[np.nan, 8.0],
    )
    assert result.tolist() == TERMINATED + CUT_OFF
    # the value of the last observation of the last rollout may stand behind the values
    result = half([1, 2, 1, 2], [4, 2, 4, 2, 8], terminated=[False, True, False, False], bounds=[0, 2, 4])
    assert result.tolist() == TERMINATED + CUT_OFF


def test_rows() -> None:
    rewards, values = [[1, 2], [1, 2]], [[4, 2], [4, 2]]
    terminated = [[False, True], [False, False]]
    assert half(rewards, values, terminated=terminated, final_values=[0, 8]).tolist() == [TERMINATED, CUT_OFF]
    with_last = [[4, 2, 5], [4, 2, 8]]
    assert half(rewards, with_last, terminated=terminated).tolist() == [TERMINATED, CUT_OFF]


def test_padding_of_rows_counts_for_nothing() -> None:
    rewards = [[1, 2, 99, 99], [1, 2, 99, 99]]
    values = [[4, 2, 8, 99, 99], [4, 2, 99, 99, 99]]
    terminated = [[False] * 4, [False, True, False, False]]
    result = half(rewards, values, terminated=terminated, lengths=[2, 2])
    assert result.tolist() == [[*CUT_OFF, 0, 0], [*TERMINATED, 0, 0]]


def test_terminated_step_inside_a_row_restarts() -> None:
    rewards, values = [[1, 2, 1, 2]], [[4, 2, 4, 2, 8]]
    result = half(rewards, values, terminated=[[False, True, False, False]])
    assert result.tolist() == [TERMINATED + CUT_OFF]


def test_kind_and_dtype_are_those_of_the_input() -> None:
    result = half(torch.tensor([1.0, 2.0]), torch.tensor([4.0, 2.0, 8.0], requires_grad=True))
    assert isinstance(result, torch.Tensor) and result.dtype == torch.float32 and not result.requires_grad
    assert result.tolist() == CUT_OFF
    single = np.array([1, 2], dtype=np.float32)
    assert half(single, np.array([4, 2, 8], dtype=np.float32)).dtype == np.float32
    assert half([1, 2], [4, 2, 8]).dtype == np.float64


def test_unknown_bootstrap_is_an_error() -> None:
    with pytest.raises(ValueError, match="rollout 0 does not end with a terminated step"):
        gae([1.0, 2.0], [4.0, 2.0])
    with pytest.raises(ValueError, match="rollout 1 does not end"):
        gae([1.0, 2.0], [4.0, 2.0], terminated=[True, False], bounds=[0, 1, 2])
    with pytest.raises(ValueError, match="rollout 0 does not end"):
        gae([1.0, 2.0], [4.0, 2.0, 8.0], bounds=[0, 1, 2])


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="gae_lambda must lie in"):
        gae([1.0], [1.0, 1.0], gae_lambda=2)
    with pytest.raises(ShapeError, match=r"values must have shape \(2,\) or \(3,\)"):
        gae([1.0, 2.0], [1.0])
    with pytest.raises(ShapeError, match="terminated must have the shape"):
        gae([1.0, 2.0], [1.0, 1.0, 1.0], terminated=[True])
    with pytest.raises(ShapeError, match="final_values must have shape"):
        gae([1.0, 2.0], [1.0, 1.0], final_values=[1.0, 1.0])
    with pytest.raises(ValueError, match="lengths must be 1 integers from 1 to 2"):
        gae([[1.0, 2.0]], [[1.0, 1.0, 1.0]], lengths=[3])
    with pytest.raises(ValueError, match="give lengths"):
        gae([[1.0, 2.0]], [[1.0, 1.0, 1.0]], bounds=[0, 1, 2])
    with pytest.raises(ValueError, match="give bounds"):
        gae([1.0, 2.0], [1.0, 1.0, 1.0], lengths=[2])
    with pytest.raises(ShapeError, match="at least one step"):
        gae([], [])


@pytest.mark.parametrize(
    ("terminated", "error"),
    [
        (["False", "False"], TypeError),
        ([0.0, float("nan")], ValueError),
        ([0, 2], ValueError),
        ([None, True], TypeError),
    ],
)
def test_terminated_is_true_or_false(terminated, error) -> None:
    with pytest.raises(error, match="terminated"):
        gae([1.0, 1.0], [0.0, 0.0], terminated=terminated, final_values=[5.0])
    numbers = gae([1.0, 1.0], [0.0, 0.0], terminated=[0.0, 1.0])
    np.testing.assert_array_equal(numbers, gae([1.0, 1.0], [0.0, 0.0], terminated=[False, True]))


@pytest.mark.parametrize("rows", [False, True])
def test_discount_zero_sees_nothing_that_follows(rows: bool) -> None:
    rewards, values, final = np.array([1.0, np.inf, 3.0]), np.array([0.5, 0.5, 0.5]), np.array([np.inf])
    if rows:
        rewards, values = rewards[None], values[None]
    advantages = gae(rewards, values, final_values=final, discount=0.0)
    np.testing.assert_array_equal(np.ravel(advantages), [0.5, np.inf, 2.5])


def test_bfloat16_comes_back_as_such() -> None:
    rewards, values = torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)
    for result in (
        gae(rewards, values, terminated=[False, True], discount=0.5, gae_lambda=1.0),
        gae(rewards[None], values[None], terminated=[[False, True]], discount=0.5, gae_lambda=1.0)[0],
    ):
        assert isinstance(result, torch.Tensor) and result.dtype == torch.bfloat16
        assert result.tolist() == [1.5, 1.0]
