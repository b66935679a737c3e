"""specs/sampling.md 3."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from metaroll.data.data_format import cat_to_format, new_tuple, stack_to_format, to_format
from metaroll.errors import DataError, ShapeError


class Pair(NamedTuple):
    a: object
    b: object


def test_new_tuple() -> None:
    """specs/sampling.md 3"""
    assert new_tuple(tuple, [1, 2]) == (1, 2)
    assert new_tuple(Pair, [1, 2]) == Pair(1, 2)


def test_to_format_shares_memory_and_keeps_dtypes() -> None:
    """specs/sampling.md 3"""
    array = np.arange(3.0)
    assert to_format(array, "numpy") is array
    tensor = to_format(array, "torch")
    assert tensor.dtype == torch.float64
    array[0] = 7
    assert tensor[0] == 7
    assert to_format(tensor, "torch") is tensor
    assert to_format(np.array([True]), "torch").dtype == torch.bool
    assert to_format(np.array([1]), "torch").dtype == torch.int64
    assert to_format(torch.ones(2, requires_grad=True), "numpy").dtype == np.float32
    assert to_format([1.0], "torch").dtype == torch.float32
    assert to_format([1], "torch").dtype == torch.int64


def test_to_format_honors_data_type() -> None:
    assert to_format(np.ones(2), "torch", torch.float32).dtype == torch.float32
    assert to_format([1, 2], "numpy", np.float32).dtype == np.float32
    assert to_format([1, 2], "torch", torch.float64).dtype == torch.float64
    with pytest.raises(TypeError, match="torch dtype"):
        to_format([1], "torch", np.float32)
    with pytest.raises(TypeError, match="NumPy dtype"):
        to_format([1], "numpy", torch.float32)


def test_to_format_copies_what_torch_cannot_hold() -> None:
    assert to_format(np.arange(3.0)[::-1], "torch").tolist() == [2, 1, 0]
    frozen = np.arange(2.0)
    frozen.flags.writeable = False
    tensor = to_format(frozen, "torch")
    tensor[0] = 5
    assert frozen[0] == 0


def test_to_format_refuses_with_a_reason() -> None:
    with pytest.raises(ValueError, match="'numpy' or 'torch', got 'jax'"):
        to_format([1], "jax")
    for data in (np.array(["a"]), np.array([None]), "text"):
        with pytest.raises(TypeError, match="cannot become a torch tensor"):
            to_format(data, "torch")


def test_stack() -> None:
    """specs/sampling.md 3"""
    assert stack_to_format([np.zeros(2), np.ones(2)], "numpy").tolist() == [[0, 0], [1, 1]]
    assert stack_to_format([torch.zeros(2), torch.ones(2)], "numpy").dtype == np.float32
    assert stack_to_format([1.0, 2.0], "torch").dtype == torch.float32
    assert stack_to_format([1, 2], "torch").dtype == torch.int64
    stacked = stack_to_format(
        [{"x": np.zeros(2), "p": Pair(1, {"y": 2})}, {"x": np.ones(2), "p": Pair(3, {"y": 4})}], "numpy"
    )
    assert stacked["x"].shape == (2, 2)
    assert isinstance(stacked["p"], Pair)
    assert stacked["p"].a.tolist() == [1, 3] and stacked["p"].b["y"].tolist() == [2, 4]
    # a tuple is a structure, not a sequence of steps
    first, second = stack_to_format(([1, 2], [3, 4]), "numpy")
    assert first.tolist() == [1, 2] and second.tolist() == [3, 4]


def test_cat() -> None:
    """specs/sampling.md 3"""
    assert cat_to_format([np.zeros(1), np.ones(2)], "numpy").tolist() == [0, 1, 1]
    assert cat_to_format([torch.zeros(1), torch.ones(2)], "torch").tolist() == [0, 1, 1]
    assert cat_to_format([[1.0, 2.0], [3.0]], "torch").tolist() == [1, 2, 3]
    assert cat_to_format([{"x": [1]}, {"x": [2, 3]}], "numpy")["x"].tolist() == [1, 2, 3]


def test_bad_lists_are_named() -> None:
    with pytest.raises(ShapeError, match="empty list"):
        stack_to_format([], "numpy")
    with pytest.raises(DataError, match="'y' is missing in entry 1"):
        stack_to_format([{"x": 1, "y": 2}, {"x": 1}], "numpy")
    with pytest.raises(DataError, match="'y' is missing in entry 0"):
        stack_to_format([{"x": 1}, {"x": 1, "y": 2}], "numpy")
    with pytest.raises(ShapeError, match="entry 1 must be a tuple of 2"):
        stack_to_format([(1, 2), (1, 2, 3)], "numpy")
    with pytest.raises(ShapeError, match="different shapes"):
        stack_to_format([np.zeros(2), np.zeros(3)], "numpy")
    with pytest.raises(ShapeError, match="cannot concatenate"):
        cat_to_format([np.zeros((1, 2)), np.zeros((1, 3))], "numpy")


def test_tensors_and_arrays_of_unusual_memory() -> None:
    """specs/sampling.md 3"""
    # Torch knows neither big-endian numbers nor (without a warning) lists of arrays; NumPy knows no lazy conjugation.
    assert to_format(np.array([1.5, 2.5], dtype=">f8"), "torch").tolist() == [1.5, 2.5]
    assert to_format([np.zeros(2), np.ones(2)], "torch").tolist() == [[0, 0], [1, 1]]
    conjugate = torch.tensor([1 + 2j]).conj()
    assert to_format(conjugate, "numpy").tolist() == [1 - 2j]
    assert to_format(conjugate.imag, "numpy").tolist() == [-2]
    with pytest.raises(TypeError, match=r"a tensor of torch.bfloat16 .* convert it first"):
        to_format(torch.zeros(2, dtype=torch.bfloat16), "numpy")
    with pytest.raises(TypeError, match="StringDType"):
        to_format(np.array(["a"], dtype=np.dtypes.StringDType()), "torch")
