"""Moves generic data (arrays, or dicts, tuples and lists of them) between NumPy and torch; stacks and concatenates it.

A *tree* is an array, or a dict or tuple of trees. Dicts and tuples are structures; lists are sequences of steps.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from metaroll.errors import DataError, ShapeError

__all__ = [
    "Array",
    "array_to_tensor",
    "cast_floats",
    "cat_arrays",
    "cat_to_format",
    "check_data_format",
    "infer_format",
    "iterate_leaves",
    "map_leaves",
    "new_tuple",
    "own_copy",
    "refuse_gradients",
    "stack_to_format",
    "tensor_to_array",
    "to_format",
    "to_tree",
]

Array = np.ndarray | torch.Tensor
_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SCALARS = (bool, int, float, complex, str, bytes, np.generic)
_FREQUENT = frozenset((float, bool, int, str, type(None), np.float64, np.float32, np.bool_))


def check_data_format(data_format: str) -> str:
    """``data_format`` itself, if it is "numpy" or "torch".

    Raises:
        ValueError: It is something else.
    """
    if not isinstance(data_format, str) or data_format not in ("numpy", "torch"):
        raise ValueError(f"data_format must be 'numpy' or 'torch', got {data_format!r}")
    return data_format


def new_tuple(nt_type: type, values: Iterable[Any]) -> Any:
    """A tuple of type ``nt_type`` (a plain tuple or a named one) with these values."""
    return tuple(values) if nt_type is tuple else nt_type(*values)


def to_format(data: Any, data_format: str, data_type: Any = None) -> Array:
    """``data`` as an array of the given format; memory is shared and the same object returned wherever possible.

    Args:
        data: Array, tensor, number or (nested) list, of any shape ``(...)``, which stays.
        data_format: "numpy" or "torch".
        data_type: NumPy or torch dtype to cast to; ``None`` keeps it (Python floats get torch's default dtype).

    Raises:
        TypeError: The data cannot be of that format.
    """
    if check_data_format(data_format) == "numpy":
        return _to_numpy(data, data_type)
    return _to_torch(data, data_type)


def _to_numpy(data: Any, data_type: Any) -> np.ndarray:
    if isinstance(data_type, torch.dtype):
        raise TypeError(f"data_type must be a NumPy dtype for data_format 'numpy', got {data_type}")
    if isinstance(data, torch.Tensor):
        try:
            array = data.detach().cpu().resolve_conj().resolve_neg().numpy()
        except (TypeError, RuntimeError) as error:
            raise TypeError(
                f"a tensor of {data.dtype} and layout {data.layout} cannot become a NumPy array ({error}); "
                "convert it first, for example with .float() or .to_dense()"
            ) from error
    else:
        array = np.asanyarray(data)
    return array if data_type is None else array.astype(data_type, copy=False)


def _to_torch(data: Any, data_type: Any) -> torch.Tensor:
    if data_type is not None and not isinstance(data_type, torch.dtype):
        raise TypeError(f"data_type must be a torch dtype for data_format 'torch', got {data_type!r}")
    if isinstance(data, torch.Tensor):
        tensor = data
    elif isinstance(data, np.ndarray | np.generic):
        array = np.asarray(data)
        if not array.dtype.isnative:  # torch supports only the native byte order
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.writeable or any(stride < 0 for stride in array.strides):
            array = array.copy()  # torch can represent neither
        try:
            tensor = torch.from_numpy(array)
        except TypeError as error:
            raise TypeError(
                f"an array of dtype {array.dtype} cannot become a torch tensor; keep it in format 'numpy'"
            ) from error
    else:
        if isinstance(data, list | tuple) and data and isinstance(data[0], np.ndarray):
            return _to_torch(_stack(list(data), "numpy"), data_type)  # torch warns that it is slow at that
        try:
            tensor = torch.tensor(data)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"{type(data).__name__} cannot become a torch tensor: {error}") from error
    return tensor if data_type is None else tensor.to(data_type)


def tensor_to_array(tensor: torch.Tensor) -> np.ndarray:
    """The numbers ``(...)`` of a tensor; those of a dtype that NumPy lacks (bfloat16) as integers of the same bits."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    try:
        return tensor.numpy()
    except TypeError:
        return tensor.view(_SAME_SIZE[tensor.element_size()]).numpy()


def array_to_tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    """The tensor ``(...)``, of the dtype with this name, that ``tensor_to_array`` made ``array (...)`` of.

    Raises:
        ValueError: torch has no such dtype.
    """
    wanted = getattr(torch, dtype, None)
    if not isinstance(wanted, torch.dtype):
        raise ValueError(f"torch has no dtype {dtype!r}")
    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))
    return tensor if tensor.dtype == wanted else tensor.view(wanted)


def cast_floats(leaf: Array, data_type: Any) -> Array:
    """``leaf (...)`` in another dtype if it holds floating-point numbers; bools, integers and objects keep theirs."""
    if isinstance(leaf, torch.Tensor):
        return to_format(leaf, "torch", data_type) if leaf.dtype.is_floating_point else leaf
    return to_format(leaf, "numpy", data_type) if leaf.dtype.kind == "f" else leaf


def stack_to_format(data: Any, data_format: str) -> Any:
    """A list of steps stacked along a new first axis; structures (dicts, tuples) element by element.

    A list of dicts becomes a dict of stacks, a list of tuples a tuple (of the same type) of stacks.

    Raises:
        ShapeError: There are no steps, or steps of different shapes.
        DataError: Dicts have different keys.
    """
    return _merge(data, check_data_format(data_format), _stack, "stack")


def cat_to_format(data: Any, data_format: str) -> Any:
    """A list of pieces concatenated along the first axis; structures (dicts, tuples) element by element.

    A list of dicts becomes a dict of concatenations, a list of tuples a tuple (of the same type) of them.

    Raises:
        ShapeError: There are no pieces, or they do not fit together.
        DataError: Dicts have different keys.
    """
    return _merge(data, check_data_format(data_format), cat_arrays, "concatenate")


def _merge(data: Any, data_format: str, merge: Callable[[list[Any], str], Array], verb: str) -> Any:
    if isinstance(data, Mapping):
        return {key: _merge(value, data_format, merge, verb) for key, value in data.items()}
    if isinstance(data, tuple):
        return new_tuple(type(data), [_merge(value, data_format, merge, verb) for value in data])
    if not isinstance(data, Sequence) or isinstance(data, str | bytes):
        return to_format(data, data_format)
    items = list(data)
    if not items:
        raise ShapeError(f"cannot {verb} an empty list")
    first = items[0]
    if isinstance(first, Mapping):
        _check_keys(items)
        return {key: _merge([item[key] for item in items], data_format, merge, verb) for key in first}
    if isinstance(first, tuple):
        for i, item in enumerate(items):
            if not isinstance(item, tuple) or len(item) != len(first):
                raise ShapeError(f"entry {i} must be a tuple of {len(first)} elements like entry 0, got {item!r}")
        columns = zip(*items, strict=True)
        return new_tuple(type(first), [_merge(list(column), data_format, merge, verb) for column in columns])
    return merge(items, data_format)


def _check_keys(items: list[Any]) -> None:
    expected = set(items[0])
    for i, item in enumerate(items):
        keys = set(item) if isinstance(item, Mapping) else None
        if keys == expected:
            continue
        if keys is None:
            raise DataError(f"entry {i} must be a dict like entry 0, got {type(item).__name__}")
        key = sorted(map(str, expected ^ keys))[0]
        raise DataError(f"all dicts must have the same keys: {key!r} is missing in entry {i if key not in keys else 0}")


def _stack(items: list[Any], data_format: str) -> Array:
    try:
        if isinstance(items[0], torch.Tensor):
            stacked: Any = torch.stack([_to_torch(item, None) for item in items])
        elif isinstance(items[0], np.ndarray):
            stacked = np.stack([to_format(item, "numpy") for item in items])
        else:
            # A list of Python numbers gets torch's default dtype, so it must not take the way through NumPy.
            stacked = items if data_format == "torch" else np.asarray(items)
        return to_format(stacked, data_format)
    except (ValueError, RuntimeError) as error:
        raise ShapeError(f"cannot stack {len(items)} entries of different shapes: {error}") from error


def cat_arrays(items: Sequence[Any], data_format: str) -> Array:
    """Arrays (or nested lists) ``(N_i, ...)`` one after the other, ``(sum N_i, ...)``, in the given format.

    Raises:
        ShapeError: They do not fit together.
    """
    arrays: list[Any] = [to_format(item, data_format) for item in items]
    try:
        return torch.cat(arrays) if data_format == "torch" else np.concatenate(arrays)
    except (ValueError, RuntimeError) as error:
        shapes = [tuple(array.shape) for array in arrays[:5]]
        raise ShapeError(f"cannot concatenate pieces of shapes {shapes}: {error}") from error


def own_copy(value: Any, *, keep_objects: bool = False) -> Any:
    """``value`` in its own memory: arrays, tensors and containers are copied with all that they hold.

    Objects that cannot be copied are kept unchanged; so are all that are no containers, with ``keep_objects``.
    """
    if type(value) in _FREQUENT:
        return value
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.copy()
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) is dict:
        return {key: own_copy(item, keep_objects=keep_objects) for key, item in value.items()}
    if type(value) is list:
        return [own_copy(item, keep_objects=keep_objects) for item in value]
    if isinstance(value, tuple) and (type(value) is tuple or hasattr(value, "_fields")):
        return new_tuple(type(value), [own_copy(item, keep_objects=keep_objects) for item in value])
    if type(value) is np.ndarray:
        copied = np.empty(value.shape, dtype=object) if value.dtype == object else value.copy()
        for index in np.ndindex(value.shape) if value.dtype == object else ():
            copied[index] = own_copy(value[index])
        return copied
    if keep_objects and not isinstance(value, np.ndarray | Mapping | list | set | bytearray | deque):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


def infer_format(values: Iterable[Any]) -> str:
    """Format "torch" if any of the values is, holds, or is a list that starts with a tensor, else "numpy"."""
    return "torch" if any(_has_tensor(value) for value in values) else "numpy"


def _has_tensor(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return False
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, Mapping):
        return any(_has_tensor(item) for item in value.values())
    if isinstance(value, tuple):
        return any(_has_tensor(item) for item in value)
    return isinstance(value, list) and bool(value) and _has_tensor(value[0])


def refuse_gradients(name: str, value: Any) -> None:
    """Raise if ``value`` holds a tensor that traces gradients: stored, it would keep its whole graph alive.

    Raises:
        ValueError: It does; names the field.
    """
    if isinstance(value, np.ndarray):
        return
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            raise ValueError(f"field {name!r} must not require gradients; pass a detached tensor (.detach())")
    elif isinstance(value, Mapping):
        for item in value.values():
            refuse_gradients(name, item)
    elif isinstance(value, list | tuple):
        for item in value:
            if not isinstance(item, _SCALARS):
                refuse_gradients(name, item)


def to_tree(value: Any, data_format: str, length: int) -> Any:
    """One field of step data as a tree of arrays.

    Arrays are used directly (converted if necessary), lists are stacked, structures go element by element. Scalars in
    a dict are repeated ``length`` times. A plain tuple of scalars is a sequence of steps, any other tuple a structure.
    """
    if type(value) is np.ndarray and data_format == "numpy":
        return value
    if isinstance(value, Mapping):
        return {key: _to_entry(item, data_format, length) for key, item in value.items()}
    if isinstance(value, tuple):
        if type(value) is tuple and value and all(isinstance(item, _SCALARS) for item in value):
            return stack_to_format(list(value), data_format)
        return new_tuple(type(value), [to_tree(item, data_format, length) for item in value])
    if isinstance(value, list):
        return stack_to_format(value, data_format)
    return to_format(value, data_format)


def _to_entry(item: Any, data_format: str, length: int) -> Any:
    if type(item) is np.ndarray and item.ndim and data_format == "numpy":
        return item
    if isinstance(item, torch.Tensor) and item.ndim == 0:
        return to_format(item.repeat(length), data_format)
    if isinstance(item, _SCALARS) or (isinstance(item, np.ndarray) and item.ndim == 0):
        return to_format(np.full(length, item), data_format)
    return to_tree(item, data_format, length)


def map_leaves(function: Callable[[Any, tuple[Any, ...]], Any], tree: Any, path: tuple[Any, ...] = ()) -> Any:
    """The tree of ``function(leaf, path)``; a path is the keys and positions that lead to the leaf."""
    if type(tree) is np.ndarray:
        return function(tree, path)
    if isinstance(tree, dict):
        return {key: map_leaves(function, value, (*path, key)) for key, value in tree.items()}
    if isinstance(tree, tuple):
        values = [map_leaves(function, value, (*path, i)) for i, value in enumerate(tree)]
        return new_tuple(type(tree), values)
    return function(tree, path)


def iterate_leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterable[tuple[tuple[Any, ...], Any]]:
    """Pairs ``(path, leaf)`` of a tree, in order."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from iterate_leaves(value, (*path, key))
    elif isinstance(tree, tuple):
        for i, value in enumerate(tree):
            yield from iterate_leaves(value, (*path, i))
    else:
        yield path, tree
