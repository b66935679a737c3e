"""Bit-exact comparison of rollouts and of nested data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from metaroll.checks import entry_text
from metaroll.data.data_format import tensor_to_array
from metaroll.data.step_storage import FLAGS, StepStorage

__all__ = ["first_difference", "rollouts_equal", "trees_equal"]


def trees_equal(a: Any, b: Any) -> bool:
    """Whether nested data (dicts, tuples, lists, arrays, anything else by ``==``) agrees, arrays bitwise.

    Arrays must agree in dtype and shape; NaN equals a NaN of the same bits, and 0.0 differs from -0.0. Named tuples
    agree in type if their names and fields do.
    """
    if a is b:
        return True
    if isinstance(a, np.ndarray | np.generic | torch.Tensor):
        return type(a) is type(b) and _arrays_equal(a, b)
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
        return f"rollout_bounds: {a.rollout_bounds} and {b.rollout_bounds}"
    for name in (*a.data_names, *FLAGS):
        if not trees_equal(getattr(a, name), getattr(b, name)):
            return f"{name}: {_describe(getattr(a, name), getattr(b, name))}"
    if not _finals_equal(a, b):
        return "final entries of the sub-rollouts"
    if compare_info and not trees_equal(a.rollout_info, b.rollout_info):
        return _info_difference(a.rollout_info, b.rollout_info)
    return None


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


def _info_difference(a: Any, b: Any, path: str = "") -> str:
    if isinstance(a, Mapping) and isinstance(b, Mapping) and a.keys() == b.keys():
        key = next(key for key in a if not trees_equal(a[key], b[key]))
        return _info_difference(a[key], b[key], f"{path}[{key!r}]")
    return f"rollout_info{path}: {entry_text(a)} and {entry_text(b)}"


def _describe(a: Any, b: Any) -> str:
    if type(a) is not type(b) or not isinstance(a, np.ndarray):
        return "values or structure differ"
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype} {a.shape} and {b.dtype} {b.shape}"
    if a.dtype.hasobject:
        return "objects differ"
    rows = [i for i in range(len(a)) if a[i].tobytes() != b[i].tobytes()]
    first, second = entry_text(a[rows[0]]), entry_text(b[rows[0]])
    return f"first at entry {rows[0]}: {first} and {second} ({len(rows)} of {len(a)} entries differ)"
