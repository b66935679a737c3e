"""Gymnasium spaces and batches of their elements: arrays, or dicts and tuples of arrays for Dict and Tuple spaces.

A batch holds N elements of a space: a Box ``(N, *shape)``, a Discrete space ``(N,)``, MultiDiscrete and MultiBinary
spaces ``(N, *shape)``, all in the dtype of the space; Dict and Tuple spaces dicts and tuples of such; any other space
(Text, Sequence, Graph, ...) an object array ``(N,)``. Its entries keep their form, and are copied as numbers are: what
an environment or a policy keeps changing does not reach what was recorded.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from metaroll.checks import described
from metaroll.data.data_format import iterate_leaves, map_leaves, own_copy
from metaroll.errors import ShapeError
from metaroll.types import flat_dim

__all__ = [
    "action_element",
    "action_row",
    "check_elements",
    "check_given",
    "empty_batch",
    "env_actions",
    "flat_actions",
    "flat_dim",
    "flatten_batch",
    "is_structured",
    "same_kind",
    "stack_elements",
    "take_rows",
    "to_box_type",
    "write_element",
]

spaces = gymnasium.spaces
_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_NESTED = (spaces.Dict, spaces.Tuple)


def is_structured(space: gymnasium.Space[Any]) -> bool:
    """Whether a batch of the space is anything else than one array of numbers."""
    return not isinstance(space, _ARRAYS)


def empty_batch(space: gymnasium.Space[Any], size: int) -> Any:
    """Room for ``size`` elements: zeros, and ``None`` where elements are objects."""
    if isinstance(space, _ARRAYS):
        return np.zeros((size, *(space.shape or ())), dtype=space.dtype)
    if isinstance(space, _NESTED):
        return _map_parts(space, lambda key, part: empty_batch(part, size))
    return np.full(size, None, dtype=object)


def write_element(space: gymnasium.Space[Any], batch: Any, row: int, element: Any, name: str = "observation") -> None:
    """Copy one element into row ``row`` of a batch.

    Raises:
        ShapeError: It has another shape or other parts than the space; names the part.
        ValueError: Its numbers do not fit into the type of the space (a fraction, or 300 in uint8), or it holds text.
    """
    if isinstance(batch, dict | tuple):
        for key, part in _matching_parts(space, element, name).items():
            write_element(part, batch[key], row, element[key], f"{name}[{key!r}]")
    elif batch.dtype.hasobject:
        batch[row] = own_copy(element)
    else:
        array = element if element.__class__ is np.ndarray else np.asarray(element)
        if array.shape != batch.shape[1:]:
            raise ShapeError(
                f"{name} must have shape {batch.shape[1:]}, as its space {space} declares, got {array.shape}"
            )
        if array.dtype.kind in "biuf":
            batch[row] = array
            fits = array.dtype == batch.dtype or batch.dtype.kind not in "biu" or not (batch[row] != array).any()
        else:
            fits = _write_odd(batch, row, array)
        if not fits:
            raise ValueError(
                f"{name} must hold values of {batch.dtype}, as its space {space} declares, got {array.dtype} "
                f"{np.array2string(array, threshold=8)}"
            )


def _write_odd(batch: np.ndarray, row: int, array: np.ndarray) -> bool:
    """Write objects that are numbers, or complex numbers into complex ones; false for anything else."""
    if array.dtype.kind == "c":
        if batch.dtype.kind == "c":
            batch[row] = array
        return batch.dtype.kind == "c"
    if array.dtype.kind != "O" or any(value is None or isinstance(value, str | bytes) for value in array.flat):
        return False
    try:
        batch[row] = array
    except (TypeError, ValueError):
        return False
    return batch.dtype.kind not in "biu" or not (batch[row] != array).any()


def stack_elements(space: gymnasium.Space[Any], elements: Sequence[Any], name: str = "observation") -> Any:
    """A batch of the given elements."""
    batch = empty_batch(space, len(elements))
    for row, element in enumerate(elements):
        write_element(space, batch, row, element, name)
    return batch


def take_rows(batch: Any, rows: Any) -> Any:
    """Rows of a batch, as copies.

    Args:
        batch: N elements.
        rows: Indices, a mask or a slice; one integer gives that element as an environment would give it.
    """
    if batch.__class__ is np.ndarray:
        return own_copy(batch[rows])
    return map_leaves(lambda leaf, path: own_copy(leaf[rows]), batch)


def same_kind(a: gymnasium.Space[Any], b: gymnasium.Space[Any]) -> bool:
    """Whether elements of both spaces fit into one batch (bounds may differ)."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, _NESTED):
        left, right = _parts(a), _parts(b)
        return left.keys() == right.keys() and all(same_kind(left[key], right[key]) for key in left)
    if isinstance(a, spaces.Box | spaces.MultiBinary):
        return a.shape == b.shape and a.dtype == b.dtype
    return True if not isinstance(a, _ARRAYS) else a == b


def flatten_batch(space: gymnasium.Space[Any], batch: Any) -> np.ndarray:
    """Rows ``(N, obs_dim)`` for a policy, in the order of ``gymnasium.spaces.flatten``.

    A Box is reshaped (a view where possible), Discrete and MultiDiscrete spaces become one-hot in float32, structures
    the concatenation of their parts (float32 at least). Text and other parts without numbers are left out.

    Raises:
        ShapeError: The batch is not one of this space.
        ValueError: A choice lies outside of its space.
    """
    if isinstance(space, spaces.Box) and batch.__class__ is np.ndarray:
        if batch.shape[1:] != space.shape:
            raise ShapeError(f"batch must have shape (N, {', '.join(map(str, space.shape))}), got {batch.shape}")
        return batch.reshape(batch.shape[0], -1) if space.shape else batch.reshape(-1, 1)
    if isinstance(space, _NESTED):
        rows = [flatten_batch(part, batch[key]) for key, part in _parts(space).items() if flat_dim(part)]
        if not rows:
            count = len(next(leaf for _, leaf in iterate_leaves(batch)))
            return np.zeros((count, 0), dtype=np.float32)
        return np.concatenate(rows, axis=1, dtype=np.result_type(np.float32, *(row.dtype for row in rows)))
    batch = np.asarray(batch)
    if batch.shape[1:] != (space.shape or ()):
        raise ShapeError(f"batch must have shape (N, {', '.join(map(str, space.shape or ()))}), got {batch.shape}")
    if isinstance(space, spaces.Discrete):
        return _one_hot(batch, int(space.start), int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        columns = batch.reshape(len(batch), -1).T
        sizes, starts = space.nvec.reshape(-1), np.broadcast_to(space.start, space.nvec.shape).reshape(-1)
        rows = [_one_hot(c, int(start), int(n)) for c, start, n in zip(columns, starts, sizes, strict=True)]
        return np.concatenate(rows, axis=1)
    if isinstance(space, spaces.MultiBinary | spaces.Box):
        return batch.reshape(len(batch), -1)
    return np.zeros((len(batch), 0), dtype=np.float32)


# -- actions -----------------------------------------------------------------------------------------------------------
# Policies speak of choices by index, from 0; environments count them from the space's start. A Box action at the top is
# a flat row of numbers.


def action_element(space: gymnasium.Space[Any], batch: Any, row: int, name: str = "action") -> Any:
    """The action that an environment gets for row ``row`` of a batch of actions, in its own memory.

    Raises:
        ValueError: An index is not one of a choice.
    """
    if isinstance(space, _NESTED):
        return _map_parts(space, lambda key, part: action_element(part, batch[key], row, f"{name}[{key!r}]"))
    if isinstance(space, spaces.Discrete):
        index = np.asarray(batch[row]).item()
        if not float(index).is_integer() or not 0 <= index < space.n:
            raise ValueError(f"{name} must be an index from 0 to {int(space.n) - 1}, got {index!r}")
        return int(index) + int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        values = np.asarray(batch[row]).reshape(space.nvec.shape)
        whole = values.astype(np.int64)
        if (whole != values).any() or (whole < 0).any() or (whole >= space.nvec).any():
            raise ValueError(f"{name} must hold indices from 0 to {(space.nvec - 1).tolist()}, got {values.tolist()}")
        return (whole + space.start).astype(space.dtype)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        action = np.array(batch[row])
        if action.size != flat_dim(space):
            raise ShapeError(f"{name} must have {flat_dim(space)} entries for {space}, got shape {action.shape}")
        return to_box_type(space, action.reshape(space.shape))
    return own_copy(batch[row])


def to_box_type(space: gymnasium.Space[Any], values: np.ndarray) -> np.ndarray:
    """Numbers ``(..., *shape)`` in the type of a Box, rounded and clipped to its bounds if that is one of integers.

    What is the nearest number to a bound in a narrower type of floats becomes that bound: a policy acts in float32, and
    0.2 of float32 lies beyond the 0.2 of a space in float64.
    """
    if not isinstance(space, spaces.Box):
        return values.astype(space.dtype, copy=False)
    dtype = np.dtype(space.dtype)
    if dtype.kind in "iu":
        values = np.clip(np.rint(values), space.low, space.high)  # a cast alone would let 256 wrap around to 0
    converted = values.astype(dtype, copy=False)
    if dtype.kind == values.dtype.kind == "f" and values.dtype.itemsize < dtype.itemsize:
        with np.errstate(over="ignore"):  # the bound of a space without one may be the largest float64
            for bound in (space.low, space.high):
                converted = np.where(values == bound.astype(values.dtype), bound, converted)
    return converted


def action_row(space: gymnasium.Space[Any], action: Any, name: str = "action") -> Any:
    """One action in an environment's own form as a policy gives it: flat for a Box, indices for choices.

    Raises:
        ShapeError: It has other parts or another shape.
        ValueError: A choice is not a whole number.
    """
    if isinstance(space, _NESTED):
        _matching_parts(space, action, name)
        return _map_parts(space, lambda key, part: action_row(part, action[key], f"{name}[{key!r}]"))
    if not isinstance(space, _ARRAYS):
        return own_copy(action)
    size = math.prod(space.shape or ())
    values = np.asarray(action).reshape(-1)
    if values.size != size:
        raise ShapeError(f"{name} must be one action of {space}, got shape {np.shape(action)}")
    if isinstance(space, spaces.Box):
        return values
    if values.dtype.kind not in "biuf" or not np.isfinite(values).all() or (values != np.rint(values)).any():
        raise ValueError(f"{name} must be of whole numbers for {space}, got {action!r}")
    if not isinstance(space, spaces.MultiBinary):
        values = values.reshape(space.shape)
        low, high = space.start, space.start + (space.n if isinstance(space, spaces.Discrete) else space.nvec) - 1
        if (values < low).any() or (values > high).any():
            raise ValueError(f"{name} must lie from {low} to {high} for {space}, got {action!r}")
        return np.asarray(values - space.start, dtype=np.int64)
    return values.reshape(space.shape).astype(space.dtype)


def env_actions(space: gymnasium.Space[Any], batch: Any) -> Any:
    """A batch of actions with choices as the environment counts them, from its space's start (a copy)."""
    if isinstance(space, _NESTED):
        return _map_parts(space, lambda key, part: env_actions(part, batch[key]))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return np.asarray(batch) + space.start
    return own_copy(np.asarray(batch))


def flat_actions(space: gymnasium.Space[Any], rows: Sequence[Any]) -> Any:
    """A batch of actions from rows as ``action_row`` gives them."""
    if isinstance(space, _NESTED):
        return _map_parts(space, lambda key, part: flat_actions(part, [row[key] for row in rows]))
    if isinstance(space, _ARRAYS):
        return np.stack(rows)
    batch = np.full(len(rows), None, dtype=object)
    for i, row in enumerate(rows):
        batch[i] = row
    return batch


def check_elements(name: str, space: gymnasium.Space[Any], batch: Any, size: int) -> Any:
    """``batch`` as a batch of ``size`` actions of ``space``.

    Raises:
        ShapeError: It has other parts or another shape; names the part.
    """
    if batch.__class__ is np.ndarray and isinstance(space, spaces.Box) and batch.shape[:1] == (size,):
        if batch.size == size * math.prod(space.shape):  # the usual case, at every step
            return batch
    elif isinstance(space, _NESTED):
        _matching_parts(space, batch, name)
        return _map_parts(space, lambda key, part: check_elements(f"{name}[{key!r}]", part, batch[key], size))
    try:
        array = batch if batch.__class__ is np.ndarray else np.asarray(batch)
    except ValueError as error:
        raise ShapeError(
            f"{name} must have one row per slot ({size}) for {space}, got {described(batch)} of unequal lengths"
        ) from error
    if array.dtype.hasobject and not isinstance(space, _ARRAYS):
        entries, wanted = len(array), size
    else:
        shape = space.shape or ()
        entries, wanted = array.size, size * math.prod(shape)
    if array.shape[:1] != (size,) or entries != wanted:
        raise ShapeError(
            f"{name} must have one row per slot ({size}) with {wanted // size} entries for {space}, "
            f"got {'None' if batch is None else f'shape {array.shape}'}"
        )
    return array


def check_given(name: str, space: gymnasium.Space[Any], batch: Any, size: int, *, finite: bool = True) -> Any:
    """``batch`` from a user as a batch of ``size`` elements of ``space``: arrays of numbers, or of objects.

    Raises:
        ValueError: It is ragged, holds no real numbers, or NaN or Inf (with ``finite``); names the part.
        ShapeError: It has other parts or another shape.
    """
    if isinstance(space, _NESTED):
        _matching_parts(space, batch, name)
        return _map_parts(space, lambda key, p: check_given(f"{name}[{key!r}]", p, batch[key], size, finite=finite))
    if not isinstance(space, _ARRAYS):
        return check_elements(name, space, batch, size)
    wanted = f"{name} must have one row per slot ({size}, ...)"
    try:
        array = np.asarray(batch)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ShapeError(f"{wanted}, all of one shape, got {described(batch)} of unequal lengths") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers for {space}, got dtype {array.dtype}: {reprlib.repr(batch)}")
    if array.shape[:1] != (size,):
        raise ShapeError(f"{wanted}, got shape {array.shape}")
    array = check_elements(name, space, array, size)
    if finite and not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array.reshape(size, -1)).all(axis=1))[0])
        raise ValueError(f"{name} must be finite, got {array[row]} in row {row}")
    return array


def _parts(space: gymnasium.Space[Any]) -> dict[Any, gymnasium.Space[Any]]:
    return space.spaces if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))  # type: ignore[attr-defined]


def _matching_parts(space: gymnasium.Space[Any], value: Any, name: str) -> dict[Any, gymnasium.Space[Any]]:
    """Parts of a Dict or Tuple space, which ``value`` must have, too."""
    parts = _parts(space)
    if isinstance(space, spaces.Dict):
        fits = isinstance(value, Mapping) and value.keys() == parts.keys()
    else:
        fits = isinstance(value, Sequence) and len(value) == len(parts)
    if not fits:
        kind = "dict" if isinstance(space, spaces.Dict) else "tuple"
        raise ShapeError(f"{name} must be a {kind} with the parts {list(parts)}, got {reprlib.repr(value)}")
    return parts


def _map_parts(space: gymnasium.Space[Any], function: Callable[[Any, gymnasium.Space[Any]], Any]) -> Any:
    """``function(key, part)`` of all parts of a Dict or Tuple space, as a dict or tuple."""
    built = {key: function(key, part) for key, part in _parts(space).items()}
    return built if isinstance(space, spaces.Dict) else tuple(built.values())


def _one_hot(values: np.ndarray, start: int, n: int) -> np.ndarray:
    index = values.astype(np.int64) - start
    if index.size and (index.min() < 0 or index.max() >= n):
        raise ValueError(f"observations must lie from {start} to {start + n - 1}, got {values.min()} to {values.max()}")
    rows = np.zeros((len(index), n), dtype=np.float32)
    rows[np.arange(len(index)), index] = 1.0
    return rows
