"""State trees of any shape come back bitwise; any changed or missing byte of the arrays is noticed."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from metaroll.errors import SnapshotError
from metaroll.training.store.files import load_tree, save_tree

ARRAYS = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.float16, np.int8, np.int64, np.uint8, np.uint32, np.uint64, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
LEAVES = st.one_of(
    ARRAYS,
    ARRAYS.filter(lambda a: a.dtype not in (np.uint32, np.uint64)).map(lambda a: torch.from_numpy(a.copy())),
    st.integers(),
    st.floats(),
    st.text(),
    st.booleans(),
    st.none(),
)
KEYS = st.one_of(st.text(max_size=5), st.integers(-5, 5), st.sampled_from(["$array", "$dict", "a/b", "a"]))
TREES = st.recursive(
    LEAVES,
    lambda child: st.one_of(
        st.dictionaries(KEYS, child, max_size=4),
        st.lists(child, max_size=3),
        st.lists(child, max_size=3).map(tuple),
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Equal in type, structure and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and same(a.numpy(), b.numpy())
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):  # not the payload of a NaN
        return (a != a and b != b) or np.float64(a).tobytes() == np.float64(b).tobytes()
    return a == b


@settings(max_examples=40)
@given(TREES)
def test_trees_come_back_bit_for_bit(tree: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_tree(folder, "tree", tree)
        assert same(load_tree(folder, "tree"), tree)


@settings(max_examples=25)
@given(st.data())
def test_every_changed_byte_is_noticed(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_tree(folder, "tree", {"w": np.arange(5, dtype=np.float32), "n": 3})
        path = f"{folder}/tree.safetensors"
        with open(path, "rb") as file:
            content = bytearray(file.read())
        position = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[position] ^= data.draw(st.integers(1, 255))
        else:
            del content[position:]
        with open(path, "wb") as file:
            file.write(content)
        with pytest.raises(SnapshotError):
            load_tree(folder, "tree")
