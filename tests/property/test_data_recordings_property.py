"""Saving then loading gives the same rollout, bitwise identical, for every dtype and nesting (design.md 5)."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from metaroll.data.compare import first_difference, trees_equal
from metaroll.data.recordings import load_rollout, save_rollout
from metaroll.data.step_sequence import StepSequence


class Hidden(NamedTuple):
    h: Any
    c: Any


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
NUMBERS = (
    hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.floating_dtypes(sizes=(16, 32, 64)) | hnp.complex_number_dtypes()
)
OTHERS = hnp.unicode_string_dtypes(max_len=4) | hnp.byte_string_dtypes(max_len=4) | hnp.datetime64_dtypes()
TORCH_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool)


@functools.cache
def object_arrays(length: int) -> st.SearchStrategy[np.ndarray]:
    def fill(items: list[Any]) -> np.ndarray:
        array = np.empty(length, dtype=object)
        for i, item in enumerate(items):
            array[i] = item
        return array

    return st.lists(PLAIN, min_size=length, max_size=length).map(fill)


@functools.cache
def leaves(length: int) -> st.SearchStrategy[np.ndarray]:
    shapes = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=2).map(lambda shape: (length, *shape))
    return hnp.arrays(NUMBERS | OTHERS, shapes) | object_arrays(length)


@functools.cache  # Hypothesis examines a new strategy for longer than it draws from it
def trees(length: int) -> st.SearchStrategy[Any]:
    either = leaves(length) | leaves(length + 1)
    return st.recursive(
        either,
        lambda inner: st.one_of(
            st.dictionaries(st.text(max_size=4), inner, min_size=1, max_size=3),
            st.tuples(inner, inner),
            st.builds(Hidden, inner, inner),
        ),
        max_leaves=4,
    )


@st.composite
def rollouts(draw: st.DrawFn, field: Callable[[int], st.SearchStrategy[Any]] = trees) -> StepSequence:
    length = draw(st.integers(1, 4))
    ends = np.arange(length) == length - 1
    return StepSequence(
        rewards=draw(hnp.arrays(np.float64, length)),
        observations=draw(field(length)),
        actions=draw(field(length)),
        extra=draw(field(length)),
        terminated=ends & draw(st.booleans()),
        rollout_info=draw(PLAIN),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


def again(rollout: StepSequence, folder: Path, suffix: str) -> StepSequence:
    save_rollout(rollout, folder / f"rollout{suffix}", overwrite=True)
    return load_rollout(folder / f"rollout{suffix}")


@settings(max_examples=25)
@given(rollout=rollouts())
def test_npz_gives_every_rollout_back(folder: Path, rollout: StepSequence) -> None:
    assert first_difference(again(rollout, folder, ".npz"), rollout) is None


@settings(max_examples=25)
@given(rollout=rollouts())
def test_parquet_gives_every_rollout_back(folder: Path, rollout: StepSequence) -> None:
    assert first_difference(again(rollout, folder, ".parquet"), rollout) is None


def one_nan(tree: Any) -> Any:
    """The tree with every NaN replaced by the usual one: CSV files know only that."""
    if isinstance(tree, dict):
        return {key: one_nan(value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        values = [one_nan(value) for value in tree]
        return tuple(values) if type(tree) is tuple else type(tree)(*values)
    if tree.dtype.kind == "c":
        parts = one_nan(tree.real), one_nan(tree.imag)
        result = np.zeros_like(tree)
        result.real, result.imag = parts
        return result
    return np.where(np.isnan(tree), np.array(np.nan, tree.dtype), tree) if tree.dtype.kind == "f" else tree


@settings(max_examples=25)
@given(rollout=rollouts())
def test_csv_gives_every_rollout_back_but_for_the_bits_of_nan(folder: Path, rollout: StepSequence) -> None:
    back = again(rollout, folder, ".csv")
    assert trees_equal(back.rollout_info, rollout.rollout_info)
    for name in (*rollout.data_names, "done", "terminated", "truncated"):
        assert trees_equal(one_nan(getattr(back, name)), one_nan(getattr(rollout, name))), name


@st.composite
def tensors(draw: st.DrawFn, length: int) -> torch.Tensor:
    numbers = draw(hnp.arrays(np.float64, (length, 2), elements=st.floats(-9, 9)))
    return torch.from_numpy(numbers).to(draw(st.sampled_from(TORCH_TYPES)))


@settings(max_examples=15)
@given(data=st.data())
@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_tensors_concatenations_and_loose_batches_come_back(folder: Path, suffix: str, data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    dtype = data.draw(st.sampled_from(TORCH_TYPES))
    parts = [
        StepSequence(
            rewards=torch.arange(n, dtype=torch.float64),
            observations={"image": torch.ones(n + data.draw(st.integers(0, 1)), 2).to(dtype)},
            actions=torch.arange(n * 2).reshape(n, 2).to(dtype),
            hidden=Hidden(torch.ones(n + 1, 1), torch.zeros(n, dtype=torch.bool)),
            complete=data.draw(st.booleans()),
            rollout_info={"task": torch.ones(2, dtype=torch.bfloat16)},
        )
        for n in lengths
    ]
    both = StepSequence.concat(parts, truncate_last=data.draw(st.booleans()))
    assert first_difference(again(both, folder, suffix), both) is None
    loose = both[data.draw(st.lists(st.integers(0, len(both) - 1), min_size=1, max_size=4))]
    assert first_difference(again(loose, folder, suffix), loose) is None


@settings(max_examples=15)
@given(rollout=rollouts(), noise=st.binary(min_size=1, max_size=40), where=st.floats(0, 1))
@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_a_damaged_file_is_the_same_rollout_or_a_clear_error(
    folder: Path, suffix: str, rollout: StepSequence, noise: bytes, where: float
) -> None:
    path = folder / f"damaged{suffix}"
    save_rollout(rollout, path, overwrite=True)
    data = io.BytesIO(path.read_bytes())
    data.seek(int(where * (path.stat().st_size - 1)))
    data.write(noise)
    path.write_bytes(data.getvalue())
    try:
        load_rollout(path)
    except ValueError as error:
        assert str(path) in str(error)
