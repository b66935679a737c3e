"""New data for the fields of a sequence: a function applied rollout by rollout, and padding behind the last step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from metaroll.data.data_format import Array, iterate_leaves, map_leaves, refuse_gradients, to_format
from metaroll.data.final_entries import FinalEntries, concat_leaves, select_range
from metaroll.errors import ShapeError

__all__ = ["PADDED", "pad_flags", "pad_leaf", "padding_mask", "process_fields"]

PADDED = "padded"
"""Name of the field that marks steps that are padding."""

Path = tuple[Any, ...]


def process_fields(
    fields: Mapping[str, Any],
    finals: Mapping[Path, FinalEntries],
    bounds: np.ndarray,
    data_format: str,
    function: Callable[[Array], Any],
    types: type | tuple[type, ...],
) -> tuple[dict[str, Any], dict[Path, FinalEntries]]:
    """Fields and final entries after ``function`` has been applied to each rollout (final entry included) of each leaf.

    Args:
        fields: Name -> tree of leaves ``(N, ...)`` or ``(N+1, ...)``.
        finals: Final entries by path of their leaf, also of other fields.
        bounds: First step of every rollout, then N, ``(R+1,)``.
        data_format: "numpy" or "torch".
        function: Takes one array ``(T, ...)`` and returns one with as many entries.
        types: Types of leaves that are processed; the rest stays unchanged.

    Raises:
        TypeError: No leaf is of these types.
        ShapeError: The function changed the number of entries.
    """
    leaves = [leaf for tree in fields.values() for _, leaf in iterate_leaves(tree)]
    if leaves and not any(isinstance(leaf, types) for leaf in leaves):
        raise TypeError(
            f"fcn_arg_types {types!r} fits no field of a rollout in format {data_format!r}: pass "
            f"fcn_arg_types={type(leaves[0]).__name__}, or convert the rollout"
        )
    changed = dict(finals)
    pairs = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    ends = [np.array([0, stop - start]) for start, stop in pairs]

    def process(leaf: Array, path: Path) -> Array:
        if not isinstance(leaf, types):
            return leaf
        parts = [select_range(leaf, finals.get(path), bounds, *pair, append_final=True)[0] for pair in pairs]
        done = [_apply(function, part, data_format, ".".join(map(str, path))) for part in parts]
        # The last final entry keeps its place: behind the rows of the leaf, or separate.
        apart = len(leaf) == bounds[-1]
        rows, rest = concat_leaves(done, [None] * len(done), ends, data_format, truncate_last=apart)
        changed.pop(path, None)
        if rest is not None:
            changed[path] = rest
        return rows

    return {name: map_leaves(process, tree, (name,)) for name, tree in fields.items()}, changed


def _apply(function: Callable[[Array], Any], data: Array, data_format: str, where: str) -> Array:
    # A copy: in-place functions must not change the original.
    data = data.clone() if isinstance(data, torch.Tensor) else data.copy()
    try:
        result = to_format(function(data), data_format)
    except Exception as error:
        error.add_note(f"while processing field {where!r} of a StepSequence; leave it out with exclude_fields")
        raise
    refuse_gradients(where, result)
    if result.ndim == 0 or len(result) != len(data):
        raise ShapeError(
            f"fcn must keep the number of entries, but made shape {tuple(result.shape)} of the "
            f"{tuple(data.shape)} of field {where!r}"
        )
    return result


# ---- padding ---------------------------------------------------------------------------------------------------------


def pad_flags(flags: Mapping[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    """The flags ``(N + count,)``: the ends move to the last padded step; an unfinished rollout is cut off there."""
    padded = {name: np.concatenate([array, np.zeros(count, dtype=bool)]) for name, array in flags.items()}
    for array in padded.values():
        array[-1], array[-1 - count] = array[-1 - count], False
    padded["truncated"][-1] |= not padded["done"][-1]
    padded["done"][-1] = True
    return padded


def padding_mask(field: Array | None, length: int) -> np.ndarray:
    """Which steps are padding already, bool ``(length,)``, from the field of that name, if there is one.

    Raises:
        ValueError: The field holds something else.
    """
    if field is None:
        return np.zeros(length, dtype=bool)
    array = field.cpu().numpy() if isinstance(field, torch.Tensor) else np.asarray(field)
    if array.shape != (length,) or array.dtype != bool:
        raise ValueError(
            f"the field {PADDED!r} is meant for the mask of padded steps, a bool ({length},); this rollout has "
            f"something else in it: {array.dtype} {array.shape}. Rename it"
        )
    return array


def pad_leaf(leaf: Array, count: int, value: float | None, path: tuple[Any, ...]) -> Array:
    """``leaf (N, ...)`` and ``count`` more entries: its last one for ``value=None``, else the pad value for ``value``.

    Raises:
        ValueError: ``value`` does not fit into the integers of the leaf.
    """
    if count == 0:
        return leaf
    if isinstance(leaf, torch.Tensor):
        if value is None:
            return torch.cat([leaf, leaf[-1:].expand(count, *leaf.shape[1:])])
        kind = (
            "f" if leaf.dtype.is_floating_point or leaf.dtype.is_complex else "b" if leaf.dtype == torch.bool else "i"
        )
        limits = torch.iinfo(leaf.dtype) if kind == "i" else None
        return torch.cat([leaf, leaf.new_full((count, *leaf.shape[1:]), _fill(kind, limits, value, path))])
    if value is None:
        return np.concatenate([leaf, np.repeat(leaf[-1:], count, axis=0)])
    kind = leaf.dtype.kind
    rows = np.zeros((count, *leaf.shape[1:]), dtype=leaf.dtype)  # empty text for text
    if kind == "O":
        rows.fill(None)
    elif kind in "biufc":
        rows.fill(_fill("f" if kind == "c" else kind, np.iinfo(leaf.dtype) if kind in "iu" else None, value, path))
    return np.concatenate([leaf, rows])


def _fill(kind: str, limits: Any, value: float, path: tuple[Any, ...]) -> Any:
    """The pad value in an array of a kind: a whole number among integers, False among bools."""
    if kind == "f":
        return value
    if kind == "b" or not value.is_integer():  # NaN and infinities are not whole numbers either
        return 0
    if not limits.min <= value <= limits.max:
        name = ".".join(map(str, path))
        raise ValueError(f"pad_value {value:g} does not fit into field {name!r}, which holds {limits.dtype}")
    return int(value)
