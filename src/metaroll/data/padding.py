"""Makes a rollout longer, in place, with steps that never happened; a mask tells which."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from metaroll.checks import check_whole
from metaroll.data.data_format import Array, map_leaves, to_format
from metaroll.data.step_storage import FLAGS
from metaroll.errors import ShapeError

if TYPE_CHECKING:
    from metaroll.data.step_sequence import StepSequence

__all__ = ["pad_steps"]

_MASK = "padded"


def pad_steps(
    rollout: StepSequence, length: int, pad_value: float = 0, mode: Literal["constant", "edge"] = "constant"
) -> None:
    """Steps appended to one rollout, in place; see ``StepSequence.pad``."""
    length = check_whole("len_to_pad_to", length)
    if isinstance(pad_value, bool | np.bool_) or not isinstance(pad_value, numbers.Real):
        raise TypeError(f"pad_value must be an int or a float, got {pad_value!r}")
    if mode not in ("constant", "edge"):
        raise ValueError(f"mode must be 'constant' or 'edge', got {mode!r}")
    if rollout.rollout_count != 1:  # raises ValueError for a loose batch
        raise ShapeError(f"one rollout can be padded, this is {rollout.rollout_count}; pad each of iterate_rollouts()")
    missing = length - len(rollout)
    mask = _mask(rollout)
    if missing <= 0:
        if _MASK not in rollout.data_names:
            rollout.add_data(_MASK, mask)
        return

    def longer(leaf: Array, path: tuple[Any, ...]) -> Array:
        return _extend(leaf, missing, float(pad_value) if mode == "constant" else None, path)

    # All new data first: if one field cannot be padded, nothing has changed. The final entries are put in place, so
    # that they stay right behind the true steps.
    whole = rollout.get_rollout(0)
    fields = {name: map_leaves(longer, getattr(whole, name), (name,)) for name in rollout.data_names}
    fields[_MASK] = to_format(np.concatenate([mask, np.ones(missing, dtype=bool)]), rollout.data_format)
    bounds = np.array([0, length])
    padded = rollout._assemble(fields, {}, _flags(rollout, missing), bounds, rollout.rollout_info, rollout.data_format)
    rollout.__dict__.update(padded.__dict__)


def _flags(rollout: StepSequence, count: int) -> dict[str, np.ndarray]:
    """The ends, moved to the last padded step; an unfinished rollout is cut off there."""
    flags = {name: np.concatenate([getattr(rollout, name), np.zeros(count, dtype=bool)]) for name in FLAGS}
    last = len(rollout) - 1
    for array in flags.values():
        array[-1], array[last] = array[last], False
    flags["truncated"][-1] |= not flags["done"][-1]
    flags["done"][-1] = True
    return flags


def _mask(rollout: StepSequence) -> np.ndarray:
    """Which steps are padding already, ``(N,)``."""
    if _MASK not in rollout.data_names:
        return np.zeros(len(rollout), dtype=bool)
    mask = getattr(rollout, _MASK)
    array = mask.cpu().numpy() if isinstance(mask, torch.Tensor) else np.asarray(mask)
    if array.shape != (len(rollout),) or array.dtype != bool:
        raise ValueError(
            f"the field {_MASK!r} is meant for the mask of padded steps, a bool ({len(rollout)},); this rollout has "
            f"something else in it: {array.dtype} {array.shape}. Rename it"
        )
    return array


def _extend(leaf: Array, count: int, value: float | None, path: tuple[Any, ...]) -> Array:
    """``leaf`` and ``count`` more entries: its last one for ``value=None``, else what stands for ``value``."""
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
    """What stands for the pad value in an array of a kind: a whole number among integers, False among bools."""
    if kind == "f":
        return value
    if kind == "b" or not value.is_integer():  # NaN and infinities are no whole numbers either
        return 0
    if not limits.min <= value <= limits.max:
        name = ".".join(map(str, path))
        raise ValueError(f"pad_value {value:g} does not fit into field {name!r}, which holds {limits.dtype}")
    return int(value)
