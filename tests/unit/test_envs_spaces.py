"""Flat rows out of environments, actions in their own form into them."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from metaroll.envs.spaces import flat_dim, flatten_observations, to_env_action
from metaroll.errors import ShapeError

MATRIX = Box(-1.0, 1.0, (2, 3), np.float32)
CHOICE = Discrete(3, start=5)


def test_flat_dim() -> None:
    assert flat_dim(MATRIX) == 6
    assert flat_dim(CHOICE) == 3
    with pytest.raises(TypeError, match="must be a Box or Discrete space"):
        flat_dim(Dict({"a": MATRIX}))


def test_box_observations_are_reshaped_without_a_copy() -> None:
    batch = np.arange(12.0, dtype=np.float32).reshape(2, 2, 3)
    flat = flatten_observations(MATRIX, batch)
    np.testing.assert_array_equal(flat, [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]])
    assert np.shares_memory(flat, batch)


def test_discrete_observations_are_one_hot() -> None:
    flat = flatten_observations(CHOICE, np.array([5, 7]))
    np.testing.assert_array_equal(flat, [[1, 0, 0], [0, 0, 1]])
    assert flat.dtype == np.float32
    with pytest.raises(ValueError, match="from 5 to 7"):
        flatten_observations(CHOICE, np.array([4]))


def test_wrong_batch_shape_is_told() -> None:
    with pytest.raises(ShapeError, match=r"shape \(N, 2, 3\), got \(2, 6\)"):
        flatten_observations(MATRIX, np.zeros((2, 6)))


def test_box_action_is_an_own_copy_in_shape_and_dtype() -> None:
    row = np.arange(6.0)
    action = to_env_action(MATRIX, row)
    assert isinstance(action, np.ndarray)
    assert (action.shape, action.dtype) == ((2, 3), np.float32)
    action[:] = 0
    assert row[5] == 5
    with pytest.raises(ShapeError, match="6 entries"):
        to_env_action(MATRIX, np.zeros(5))


def test_discrete_action_is_a_python_int_counted_from_start() -> None:
    action = to_env_action(CHOICE, np.int64(2))
    assert (action, type(action)) == (7, int)
    with pytest.raises(ValueError, match="index from 0 to 2, got 3"):
        to_env_action(CHOICE, 3)
