"""Bit-exact comparison of rollouts and of nested data."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import torch

from metaroll.checks import described, entry_text
from metaroll.data.data_format import tensor_to_array
from metaroll.data.step_storage import FLAGS, StepStorage

__all__ = ["first_difference", "rollouts_equal", "tree_difference", "trees_equal"]

_CONTEXT, _SHOWN = 10, 40
"""Characters before the first differing one of two long texts, and all that are shown of each."""


def trees_equal(a: Any, b: Any) -> bool:
    """Whether nested data (dicts, tuples, lists, arrays, rollouts, anything else by ``==``) agrees, arrays bitwise.

    Arrays must agree in dtype and shape; NaN equals a NaN of the same bits, and 0.0 differs from -0.0. Named tuples
    agree in type if their names and fields do.
    """
    if a is b:
        return True
    if isinstance(a, np.ndarray | np.generic | torch.Tensor):
        return type(a) is type(b) and _arrays_equal(a, b)
    if isinstance(a, StepStorage):
        return type(a) is type(b) and rollouts_equal(a, b)
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and a.keys() == b.keys() and all(trees_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return _same_kind(a, b) and len(a) == len(b) and all(map(trees_equal, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return np.float64(a).tobytes() == np.float64(b).tobytes()
    if type(a) is not type(b):
        return False
    try:
        return bool(a == b)
    except (TypeError, ValueError, RuntimeError):  # == gave an array or a tensor, or met one inside
        names = [f.name for f in dataclasses.fields(a)] if dataclasses.is_dataclass(a) else []
        return bool(names) and all(trees_equal(getattr(a, name), getattr(b, name)) for name in names)


def _same_kind(a: Any, b: Any) -> bool:
    if type(a) is type(b):
        return True
    fields = getattr(a, "_fields", None)
    return fields is not None and fields == getattr(b, "_fields", None) and type(a).__name__ == type(b).__name__


def _arrays_equal(a: Any, b: Any) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if isinstance(a, torch.Tensor):
        return tensor_to_array(a).tobytes() == tensor_to_array(b).tobytes()
    if a.dtype.hasobject:
        return all(map(trees_equal, np.ravel(a).tolist(), np.ravel(b).tolist()))
    return a.tobytes() == b.tobytes()


def first_difference(a: StepStorage, b: StepStorage, compare_info: bool = True) -> str | None:
    """The difference between two rollouts, in words (the name of the field first), or ``None`` if there is none."""
    if a.data_names != b.data_names:
        return f"data_names: {a.data_names} and {b.data_names}"
    if (len(a), a.continuous, a.data_format) != (len(b), b.continuous, b.data_format):
        return (
            f"length, continuous, data_format: {(len(a), a.continuous, a.data_format)} "
            f"and {(len(b), b.continuous, b.data_format)}"
        )
    if a.continuous and not np.array_equal(a.rollout_bounds, b.rollout_bounds):
        return tree_difference(a.rollout_bounds, b.rollout_bounds, "rollout_bounds")
    for name in (*a.data_names, *FLAGS):
        difference = tree_difference(getattr(a, name), getattr(b, name), name)
        if difference is not None:
            return difference
    if not _finals_equal(a, b):
        return "final entries of the sub-rollouts"
    return tree_difference(a.rollout_info, b.rollout_info, "rollout_info") if compare_info else None


def rollouts_equal(a: StepStorage, b: StepStorage, compare_info: bool = True) -> bool:
    """Whether two rollouts agree bitwise: names and order of fields, dtypes, values, ends, and ``rollout_info``."""
    return first_difference(a, b, compare_info) is None


def _finals_equal(a: StepStorage, b: StepStorage) -> bool:
    if a._finals.keys() != b._finals.keys():
        return False
    for path, left in a._finals.items():
        right = b._finals[path]
        if not np.array_equal(left.present, right.present):
            return False
        rows = np.flatnonzero(left.present)  # the other rows hold no values
        if not trees_equal(left.values[rows], right.values[rows]):
            return False
    return True


def tree_difference(a: Any, b: Any, path: str = "", exact: bool = True) -> str | None:
    """The first difference between nested data, in words (its place first), or ``None`` if there is none.

    The two values in the text never read the same.

    Args:
        a, b: Nested data, which may contain rollouts.
        path: How the text calls them.
        exact: Compare as ``trees_equal`` does; otherwise a list agrees with a tuple of the same entries.
    """
    if trees_equal(a, b):
        return None
    if isinstance(a, StepStorage) and isinstance(b, StepStorage):
        difference = first_difference(a, b)
        return None if difference is None else _at(path, difference)
    difference = None
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            return _at(path, f"has entries in one case only: {entry_text(sorted(a.keys() ^ b.keys(), key=repr))}")
        difference = _first(((f"{path}[{key!r}]", a[key], b[key]) for key in a), exact)
    elif _is_sequence(a) and _is_sequence(b):
        if len(a) != len(b):
            return _at(path, f"{len(a)} entries and {len(b)} entries")
        difference = _first(((f"{path}[{place}]", a[place], b[place]) for place in range(len(a))), exact)
    else:
        return _leaf_difference(a, b, path)
    if difference is None and exact:  # the entries agree, in a list and a tuple, or in tuples of other names
        first, second = described(a), described(b)
        if first == second:
            first, second = (str(getattr(value, "_fields", type(value))) for value in (a, b))
        return _at(path, f"{first} and {second}")
    return difference


def _first(entries: Iterable[tuple[str, Any, Any]], exact: bool) -> str | None:
    differences = (tree_difference(one, two, path, exact) for path, one, two in entries)
    return next((difference for difference in differences if difference is not None), None)


def _is_sequence(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _at(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text


def _leaf_difference(a: Any, b: Any, path: str) -> str:
    if type(a) is not type(b):
        return _at(path, f"{described(a)} and {described(b)}")
    if isinstance(a, np.ndarray | torch.Tensor):
        return _array_difference(a, b, path)
    if dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            one, two = getattr(a, field.name), getattr(b, field.name)
            if not trees_equal(one, two):
                return str(tree_difference(one, two, f"{path}.{field.name}"))
    return _at(path, _two_texts(a, b))


def _array_difference(a: Any, b: Any, path: str) -> str:
    """Of arrays of any one shape: the first entry that differs, with its place."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return _at(path, f"{a.dtype} {tuple(a.shape)} and {b.dtype} {tuple(b.shape)}")
    if isinstance(a, torch.Tensor):
        a, b = tensor_to_array(a), tensor_to_array(b)
    one, two = np.ascontiguousarray(a).reshape(-1), np.ascontiguousarray(b).reshape(-1)
    if a.dtype.hasobject:
        differ = np.flatnonzero([not trees_equal(x, y) for x, y in zip(one, two, strict=True)])
    else:
        bits = [flat.view(np.uint8).reshape(flat.size, -1) for flat in (one, two)]
        differ = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
    first = int(differ[0])
    place = [int(index) for index in np.unravel_index(first, a.shape)]
    if a.dtype.hasobject:
        return str(tree_difference(one[first], two[first], f"{path}{place}"))
    texts = _two_texts(one[first], two[first])
    if not place:
        return _at(path, texts)
    where = f"first at entry {place[0] if len(place) == 1 else place}"
    return _at(path, f"{where}: {texts} ({len(differ)} of {one.size} values differ)")


def _two_texts(a: Any, b: Any) -> str:
    """Two values of one type that differ, in texts that differ."""
    first, second = entry_text(a), entry_text(b)
    if first != second:
        return f"{first} and {second}"
    plain = [value.tolist() if isinstance(value, np.generic) else value for value in (a, b)]
    whole = [
        value if isinstance(value, str | bytes) else hex(value) if isinstance(value, int) else repr(value)
        for value in plain
    ]
    if whole[0] == whole[1]:
        how = "of other bits" if isinstance(plain[0], float | complex) else "not equal, but with the same text"
        return f"{first} and {second}, {how}"
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*whole, strict=False)))
    begin = max(0, same - _CONTEXT)
    parts = [repr(text[begin : begin + _SHOWN]) for text in whole]
    return f"{parts[0]} and {parts[1]}, from character {begin} of their texts"
