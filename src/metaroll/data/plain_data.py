"""The one encoder of trees: nested data as JSON and back, for recordings and snapshots; nothing is unpickled.

Numbers, text, arrays, tensors, tuples, spaces and the like come back bitwise. What JSON lacks is written as
``{"$": kind, ...}``. Arrays are part of the JSON, or go to a separate file. Enum members come back as their values,
dataclasses as dicts.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import struct
from collections import namedtuple
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch

from metaroll.data.data_format import array_to_tensor, tensor_to_array
from metaroll.data.doors.budget import Budget
from metaroll.errors import LARGEST_SEED, DamagedFileError, RecordingError
from metaroll.types import EnvSpec

__all__ = ["decode", "encode", "is_named_tuple", "named_tuple_type", "to_json"]

spaces = gymnasium.spaces


def to_json(value: Any) -> str:
    """Compact JSON text of encoded data."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def is_named_tuple(value: Any) -> bool:
    """Whether ``value`` is a tuple with named fields."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


@lru_cache(maxsize=256)
def named_tuple_type(name: str, fields: tuple[str, ...]) -> type:
    """A named tuple type of this name and these fields; its instances can be pickled though no module holds it.

    Raises:
        RecordingError: A field cannot have such a name.
    """
    # rename=True, since such a type has fields called _0, _1...; it must not change any other name.
    base = namedtuple("Renamed", fields, rename=True)  # pyright: ignore[reportUntypedNamedTuple]
    if base._fields != fields:
        raise RecordingError(f"the named tuple {name!r} has fields with invalid names, {fields}")

    def reduce(self: Any) -> tuple[Any, ...]:
        return _make_named_tuple, (name, fields, tuple(self))

    return type(name, (base,), {"__slots__": (), "__reduce__": reduce})


def _make_named_tuple(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return named_tuple_type(name, fields)(*values)


# ---- to JSON ---------------------------------------------------------------------------------------------------------

_Path = tuple[Any, ...]
_Arrays = dict[str, np.ndarray] | None


def encode(value: Any, where: str, arrays: dict[str, np.ndarray] | None = None) -> Any:
    """``value`` as JSON types.

    Args:
        value: Numbers, text, ``None``, arrays, tensors, spaces, and lists, tuples, sets and dicts of such.
        where: Its name in errors.
        arrays: Takes arrays of bools, integers and floats instead of the JSON, by their path (``where/key/0``). Then
            data that would come back as something else (Enum members, dataclasses) is refused.

    Raises:
        RecordingError: Something cannot be written; the message names its place (``where['key'][0]``).
    """
    try:
        return _encode(value, (where,), arrays)
    except RecursionError as error:
        raise RecordingError(f"{where} cannot be written: it is nested too deeply, or contains itself") from error


def _place(path: _Path) -> str:
    return str(path[0]) + "".join(f"[{key!r}]" for key in path[1:])


def _encode(value: Any, path: _Path, arrays: _Arrays) -> Any:
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int:
        # Longer ones are refused in the JSON of files.
        return value if abs(value) <= LARGEST_SEED else {"$": "int", "hex": hex(value)}
    if type(value) is float:
        # The bits, since there are several NaNs.
        return value if math.isfinite(value) else {"$": "float", "bits": struct.pack(">d", value).hex()}
    if type(value) is list:
        return _encode_items(value, path, arrays)
    if isinstance(value, Mapping) and not isinstance(value, gymnasium.Space):  # Dict spaces are mappings, too
        return _encode_mapping(value, path, arrays)
    if arrays is None and isinstance(value, Enum):
        return _encode(value.value, path, arrays)
    for kind, encoder in _ENCODERS:
        if isinstance(value, kind) and not isinstance(value, Enum):
            return encoder(value, path, arrays)
    if arrays is None and dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encode(_attributes(value), path, arrays)
    raise RecordingError(
        f"{_place(path)} cannot be written: expected numbers, text, None, arrays, tensors, or lists, tuples, sets and "
        f"dicts of those, got {type(value).__name__}; replace it by such data, or take it out"
    )


def _attributes(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _encode_items(value: Any, path: _Path, arrays: _Arrays) -> list[Any]:
    return [_encode(item, (*path, i), arrays) for i, item in enumerate(value)]


def _encode_mapping(value: Mapping[Any, Any], path: _Path, arrays: _Arrays) -> Any:
    items = [(key, _encode(item, (*path, key), arrays)) for key, item in value.items()]
    if all(type(key) is str for key in value) and "$" not in value:
        return dict(items)
    return {"$": "dict", "items": [[encode(key, f"the key {key!r} of {_place(path)}"), item] for key, item in items]}


def _encode_tuple(value: tuple[Any, ...], path: _Path, arrays: _Arrays) -> Any:
    items = _encode_items(value, path, arrays)
    if is_named_tuple(value):
        return {"$": "namedtuple", "name": type(value).__name__, "fields": list(type(value)._fields), "items": items}  # pyright: ignore[reportAttributeAccessIssue]
    return {"$": "tuple", "items": items}


def _encode_array(value: np.ndarray, path: _Path, arrays: _Arrays) -> Any:
    if value.dtype.kind == "O":
        items = _encode_items(value.ravel().tolist(), path, arrays)
        return {"$": "objects", "shape": list(value.shape), "items": items}
    if value.dtype.kind not in "biufcUSmM" or isinstance(value, np.ma.MaskedArray):
        raise RecordingError(f"{_place(path)} cannot be written: it is a {type(value).__name__} of dtype {value.dtype}")
    if arrays is not None and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        name, count = "/".join(map(str, path)), 2
        while name in arrays:  # the keys "a/b" and "a" -> "b" give the same path
            name, count = f"{'/'.join(map(str, path))}~{count}", count + 1
        as_it_is = value.flags.c_contiguous and value.dtype.isnative
        arrays[name] = value if as_it_is else np.require(value, value.dtype.newbyteorder("="), "C")
        return {"$": "stored", "name": name}
    data = base64.b64encode(value.tobytes()).decode("ascii")
    return {"$": "array", "dtype": value.dtype.str, "shape": list(value.shape), "data": data}


def _encode_tensor(value: torch.Tensor, path: _Path, arrays: _Arrays) -> Any:
    try:
        array = tensor_to_array(value)
    except (RuntimeError, TypeError, KeyError) as error:
        raise RecordingError(f"{_place(path)} cannot be written: {error}") from error
    dtype = str(value.dtype).removeprefix("torch.")
    return {"$": "tensor", "dtype": dtype, "array": _encode_array(array, path, arrays)}


def _encode_space(value: gymnasium.Space, path: _Path, arrays: _Arrays) -> Any:
    for kind, (cls, describe, _) in _SPACES.items():
        if isinstance(value, cls):
            return {"$": "space", "plain": _encode({"kind": kind, **describe(value)}, path, arrays)}
    name = type(value).__name__
    raise RecordingError(f"{_place(path)} cannot be written: {name} is not a Gymnasium space; take it out")


def _bytes_text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


_ENCODERS: tuple[tuple[Any, Callable[[Any, _Path, _Arrays], Any]], ...] = (
    (np.ndarray, _encode_array),
    (torch.Tensor, _encode_tensor),
    (np.generic, lambda v, path, _: {"$": "scalar", "array": _encode_array(np.asarray(v), path, None)}),
    (tuple, _encode_tuple),
    (complex, lambda v, path, _: {"$": "complex", "parts": _encode_items((v.real, v.imag), path, None)}),
    (bytes, lambda v, path, _: {"$": "bytes", "data": _bytes_text(v)}),
    (set, lambda v, path, arrays: {"$": "set", "items": _encode_items(v, path, arrays)}),
    (frozenset, lambda v, path, arrays: {"$": "frozenset", "items": _encode_items(v, path, arrays)}),
    (gymnasium.Space, _encode_space),
    (EnvSpec, lambda v, path, arrays: {"$": "env_spec", "plain": _encode(_attributes(v), path, arrays)}),
    (PurePath, lambda v, path, _: {"$": "path", "text": str(v)}),
)


# ---- from JSON -------------------------------------------------------------------------------------------------------


class _Source(NamedTuple):
    """Resources of decoding: arrays by name, and memory."""

    arrays: Mapping[str, np.ndarray]
    budget: Budget


def decode(value: Any, arrays: Mapping[str, np.ndarray] | None = None, budget: Budget | None = None) -> Any:
    """The data that ``encode`` made JSON of.

    Args:
        value: The JSON.
        arrays: Arrays that were not written into it, by name.
        budget: Memory that it may take beyond the size of the JSON; ``None`` means 1 GiB.

    Raises:
        DamagedFileError: There is something of an unknown kind, impossible, or too large.
    """
    try:
        return _decode(value, _Source({} if arrays is None else arrays, Budget() if budget is None else budget))
    except RecursionError as error:
        raise RecordingError("it is nested too deeply") from error


def _decode(value: Any, source: _Source) -> Any:
    if isinstance(value, list):
        return [_decode(item, source) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: _decode(item, source) for key, item in value.items()}
    kind = value["$"]
    if not isinstance(kind, str) or kind not in _DECODERS:
        raise RecordingError(f"it holds a value of unknown kind {str(kind)[:100]!r}")
    try:
        return _DECODERS[kind](value, source)
    except (DamagedFileError, MemoryError, RecursionError):
        raise
    except Exception as error:  # nonsense can raise anything
        raise RecordingError(
            f"it holds an invalid value of kind {kind!r} ({type(error).__name__}: {str(error)[:200]})"
        ) from error


def _items(node: dict[str, Any], source: _Source) -> list[Any]:
    return [_decode(item, source) for item in node["items"]]


def _decode_array(node: dict[str, Any], source: _Source) -> np.ndarray:
    if node["$"] == "stored":
        return source.arrays[node["name"]]
    dtype, shape = np.dtype(node["dtype"]), _sizes(node["shape"])
    source.budget.spend(len(node["data"]), "an array in its text")
    data = bytearray(base64.b64decode(node["data"], validate=True))
    if math.prod(shape) * dtype.itemsize != len(data):
        raise RecordingError(f"an array {shape} of {dtype} has {len(data)} bytes")
    return np.ndarray(shape, dtype, buffer=data)


def _sizes(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in shape):
        raise RecordingError(f"an array has the invalid shape {str(shape)[:100]}")
    return tuple(shape)


def _decode_objects(node: dict[str, Any], source: _Source) -> np.ndarray:
    items = _items(node, source)
    flat = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):  # a single assignment would unpack lists
        flat[i] = item
    return flat.reshape(_sizes(node["shape"]))


def _decode_space(node: dict[str, Any], source: _Source) -> gymnasium.Space:
    arguments = _decode(node["plain"], source)
    kind = arguments.pop("kind")
    if kind == "box":
        # The bounds, with their dtype, and the flags of each.
        entry = 4 * np.dtype(arguments["dtype"]).itemsize + 2
        source.budget.spend(math.prod(_sizes(arguments["shape"])) * entry, "a Box space")
    if kind == "multi_binary":
        source.budget.spend(math.prod(_sizes(arguments["n"])), "a MultiBinary space")
    return _SPACES[kind][2](**arguments)


_DECODERS: dict[str, Callable[[dict[str, Any], _Source], Any]] = {
    "float": lambda node, _: struct.unpack(">d", bytes.fromhex(node["bits"]))[0],
    "int": lambda node, _: int(node["hex"], 16),
    "dict": lambda node, source: {_decode(key, source): _decode(item, source) for key, item in node["items"]},
    "tuple": lambda node, source: tuple(_items(node, source)),
    "namedtuple": lambda node, source: named_tuple_type(node["name"], tuple(node["fields"]))(*_items(node, source)),
    "array": _decode_array,
    "stored": _decode_array,
    "objects": _decode_objects,
    "tensor": lambda node, source: array_to_tensor(_decode_array(node["array"], source), node["dtype"]),
    "scalar": lambda node, source: _decode_array(node["array"], source)[()],
    "complex": lambda node, source: complex(*(_decode(part, source) for part in node["parts"])),
    "bytes": lambda node, _: base64.b64decode(node["data"], validate=True),
    "set": lambda node, source: set(_items(node, source)),
    "frozenset": lambda node, source: frozenset(_items(node, source)),
    "space": _decode_space,
    "env_spec": lambda node, source: EnvSpec(**_decode(node["plain"], source)),
    "path": lambda node, _: Path(node["text"]),
}


# ---- spaces ----------------------------------------------------------------------------------------------------------


def _describe_box(space: spaces.Box) -> dict[str, Any]:
    return {
        "low": _shorten(space.low),
        "high": _shorten(space.high),
        "shape": list(space.shape),
        "dtype": np.dtype(space.dtype).str,
    }


def _shorten(bound: np.ndarray) -> np.ndarray:
    """One number if all are the same: the bounds of images are large and dull."""
    return bound.reshape(-1)[0] if bound.size and (bound == bound.reshape(-1)[0]).all() else bound


def _make_box(low: Any, high: Any, shape: list[int], dtype: str) -> spaces.Box:
    kind = np.dtype(dtype)
    bounds = [np.full(shape, bound, kind) if np.ndim(bound) == 0 else bound for bound in (low, high)]
    return spaces.Box(bounds[0], bounds[1], dtype=kind.type)


_SPACES: dict[str, tuple[type, Callable[[Any], dict[str, Any]], Callable[..., gymnasium.Space]]] = {
    "box": (spaces.Box, _describe_box, _make_box),
    "discrete": (spaces.Discrete, lambda s: {"n": int(s.n), "start": int(s.start)}, spaces.Discrete),
    "multi_discrete": (
        spaces.MultiDiscrete,
        lambda s: {"nvec": s.nvec, "dtype": np.dtype(s.dtype).str, "start": s.start},
        spaces.MultiDiscrete,
    ),
    "multi_binary": (
        spaces.MultiBinary,
        lambda s: {"n": list(s.shape)},
        lambda n: spaces.MultiBinary(n if len(n) != 1 else n[0]),
    ),
    "text": (
        spaces.Text,
        lambda s: {"max_length": s.max_length, "min_length": s.min_length, "charset": "".join(s.character_list)},
        spaces.Text,
    ),
    "dict": (
        spaces.Dict,
        lambda s: {"parts": [list(item) for item in s.spaces.items()]},
        lambda parts: spaces.Dict([(key, space) for key, space in parts]),  # of a dict it would sort the keys
    ),
    "tuple": (spaces.Tuple, lambda s: {"spaces": list(s.spaces)}, spaces.Tuple),
    "one_of": (spaces.OneOf, lambda s: {"spaces": list(s.spaces)}, spaces.OneOf),
    "sequence": (spaces.Sequence, lambda s: {"space": s.feature_space, "stack": s.stack}, spaces.Sequence),
    "graph": (
        spaces.Graph,
        lambda s: {"node_space": s.node_space, "edge_space": s.edge_space},
        spaces.Graph,
    ),
}
