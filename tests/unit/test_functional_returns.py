from __future__ import annotations

import numpy as np
import pytest
import torch

from metaroll.errors import ShapeError
from metaroll.functional.arrays import to_flags
from metaroll.functional.returns import (
    discounted_reverse_cumsum,
    discounted_reverse_cumsum_ragged,
    discounted_sum,
    n_step_sums,
    reverse_scan,
)


def test_reverse_cumsum_of_rewards() -> None:
    """specs/sampling.md 7.7"""
    # -50 + 0.9 * (-25 + 0.9 * -17.5) = -50 - 0.9 * 40.75 = -86.675
    values = discounted_reverse_cumsum([-200.0, -100.0, -50.0, -25.0, -17.5], 0.9)
    assert values[2] == pytest.approx(-86.675)
    assert values[4] == -17.5


def test_integers_and_columns() -> None:
    # 3; 2 + 3/2 = 3.5; 1 + 3.5/2 = 2.75
    values = discounted_reverse_cumsum([1, 2, 3], 0.5)
    assert values.dtype == np.float64
    assert values.tolist() == [2.75, 3.5, 3.0]
    columns = discounted_reverse_cumsum(np.array([[1, 0], [2, 1], [3, 0]]), 0.5)
    assert columns.tolist() == [[2.75, 0.5], [3.5, 1.0], [3.0, 0.0]]
    assert discounted_reverse_cumsum(np.ones(2, dtype=np.float32), 1).dtype == np.float32
    assert isinstance(discounted_reverse_cumsum(torch.ones(2), 1.0), np.ndarray)


def test_gamma_zero_and_one() -> None:
    assert discounted_reverse_cumsum([1.0, 2.0, 4.0], 0).tolist() == [1.0, 2.0, 4.0]
    assert discounted_reverse_cumsum([1.0, 2.0, 4.0], 1).tolist() == [7.0, 6.0, 4.0]
    assert discounted_sum([3.0, 5.0], 0) == 3.0


def test_ragged_and_dense_restart() -> None:
    # rollouts (1, 2) and (3, 4, 5): 1 + 2/2; 2; 3 + 4/2 + 5/4; 4 + 5/2; 5
    expected = [2.0, 2.0, 6.25, 6.5, 5.0]
    assert discounted_reverse_cumsum_ragged([1, 2, 3, 4, 5], [0, 2, 5], 0.5).tolist() == expected
    tensor = discounted_reverse_cumsum_ragged(torch.tensor([1.0, 2, 3, 4, 5]), [0, 2, 5], 0.5)
    assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32 and tensor.tolist() == expected
    dense = reverse_scan(np.array([[1, 2, 0], [3, 4, 5]]).T, 0.5)
    assert dense.T.tolist() == [[2.0, 2.0, 0.0], [6.25, 6.5, 5.0]]
    ends = np.array([[False, True, False, False, True]])
    assert reverse_scan(np.array([[1, 2, 3, 4, 5]]).T, 0.5, ends.T).T.tolist() == [expected]


def test_infinite_reward_stays_in_its_rollout() -> None:
    assert discounted_reverse_cumsum_ragged([1.0, np.inf], [0, 1, 2], 0.5).tolist() == [1.0, np.inf]
    assert reverse_scan(np.array([[1.0], [np.inf]]), 0.5, np.ones((2, 1), dtype=bool)).tolist() == [[1.0], [np.inf]]


def test_discounted_sum_kinds() -> None:
    # 1 + 0.5 * 2 + 0.25 * 4 = 3
    assert discounted_sum([1, 2, 4], 0.5) == 3.0
    tensor = discounted_sum(torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64), 1)
    assert tensor.dtype == torch.float64 and tensor.item() == 7.0
    assert discounted_sum(np.array([[1.0, 1.0], [2.0, 0.0]], dtype=np.float32), 0.5).tolist() == [2.0, 1.0]


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan")])
def test_gamma_outside_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match=r"gamma must lie in \[0, 1\]"):
        discounted_reverse_cumsum([1.0], gamma)


def test_bad_input_is_named() -> None:
    with pytest.raises(TypeError, match="gamma must be a number"):
        discounted_sum([1.0], "much")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="real numbers"):
        discounted_reverse_cumsum(["a"], 0.5)
    with pytest.raises(ShapeError, match="time axis"):
        discounted_reverse_cumsum(3.0, 0.5)
    with pytest.raises(ValueError, match="increase strictly from 0"):
        discounted_reverse_cumsum_ragged([1.0, 2.0], [0, 1], 0.5)


def test_one_series_gives_a_single_number() -> None:
    total = discounted_sum(torch.ones(3), 0.5)
    assert total.shape == () and total.item() == 1.75
    stacked = torch.stack([discounted_sum(torch.ones(n), 0.5) for n in (1, 2, 3)])
    assert (stacked - torch.zeros(3)).shape == (3,)
    assert np.shape(discounted_sum(np.ones(3), 0.5)) == ()


def test_discount_zero_is_the_first_entry_whatever_follows() -> None:
    for infinite in (np.inf, -np.inf, np.nan):
        data = [1.0, infinite, 2.0]
        np.testing.assert_array_equal(discounted_reverse_cumsum(data, 0), data)
        np.testing.assert_array_equal(discounted_reverse_cumsum(np.transpose([data]), 0)[:, 0], data)
        np.testing.assert_array_equal(discounted_reverse_cumsum_ragged(data, [0, 3], 0.0), data)
        np.testing.assert_array_equal(reverse_scan(np.array(data)[:, None], 0.0)[:, 0], data)
        assert discounted_sum(data, 0) == 1.0
    assert discounted_sum([0.0] * 2000 + [np.inf], 0.5) == np.inf  # 0.5**2000 rounds to 0


def test_the_result_is_never_the_data_itself() -> None:
    data = np.ones(3)
    for gamma in (0.0, 0.5):
        discounted_reverse_cumsum(data, gamma)[:] = 7.0
        discounted_reverse_cumsum_ragged(data, [0, 3], gamma)[:] = 7.0
        reverse_scan(data[:, None], gamma)[:] = 7.0
    assert data.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_floats(dtype: torch.dtype) -> None:
    data = torch.tensor([1.0, 2.0, 4.0], dtype=dtype, requires_grad=True)
    ragged = discounted_reverse_cumsum_ragged(data, [0, 3], 0.5)
    assert isinstance(ragged, torch.Tensor) and ragged.dtype == dtype and ragged.tolist() == [3.0, 4.0, 4.0]
    assert discounted_sum(data, 0.5).dtype == dtype
    assert discounted_reverse_cumsum(data, 0.5).tolist() == [3.0, 4.0, 4.0]


@pytest.mark.parametrize(
    ("ends", "error"),
    [([["False", "True"]], TypeError), ([[0, 2]], ValueError), ([[0.0, float("nan")]], ValueError)],
)
def test_ends_are_true_or_false(ends, error) -> None:
    assert to_flags("ends", [[1, 0]]).tolist() == [[True, False]]
    with pytest.raises(error, match="ends"):
        to_flags("ends", ends)


def test_n_step_sums_by_hand() -> None:
    # Discount 1/2, three rewards 4, 2, 8: all of them; a termination with the second; a cut after the first.
    rewards = np.array([[4.0, 2.0, 8.0]] * 3)
    terminated = np.array([[False] * 3, [False, True, False], [False] * 3])
    goes_on = np.array([[True] * 3, [True, False, True], [False, True, True]])
    sums, counts, discounts = n_step_sums(rewards, terminated, goes_on, 0.5)
    assert sums.tolist() == [4 + 1 + 2, 4 + 1, 4] and counts.tolist() == [3, 2, 1]
    assert discounts.tolist() == [0.125, 0.0, 0.5]
