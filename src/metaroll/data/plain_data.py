"""Nested data as JSON and back: arrays, tensors, tuples, numbers of any type, spaces. Nothing is imported or unpickled.

What JSON lacks is written as ``{"$": kind, ...}``. Enum members come back as their values, dataclasses as dicts.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import struct
from collections import namedtuple
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

import gymnasium
import numpy as np
import torch

from metaroll.data.space_codes import space_from_plain, space_to_plain
from metaroll.errors import RecordingError
from metaroll.types import EnvSpec

__all__ = ["array_to_tensor", "decode", "encode", "is_named_tuple", "named_tuple_type", "tensor_to_array", "to_json"]

_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def to_json(value: Any) -> str:
    """Compact JSON text of encoded data."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def tensor_to_array(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor; those of a dtype that NumPy lacks (bfloat16) as integers of the same bits."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    try:
        return tensor.numpy()
    except TypeError:
        return tensor.view(_SAME_SIZE[tensor.element_size()]).numpy()


def array_to_tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    """The tensor, of the dtype with this name, that ``tensor_to_array`` made ``array`` of."""
    wanted = getattr(torch, dtype, None)
    if not isinstance(wanted, torch.dtype):
        raise RecordingError(f"torch has no dtype {dtype!r}")
    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))
    return tensor if tensor.dtype == wanted else tensor.view(wanted)


def is_named_tuple(value: Any) -> bool:
    """Whether ``value`` is a tuple with named fields."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


@lru_cache(maxsize=256)
def named_tuple_type(name: str, fields: tuple[str, ...]) -> type:
    """A named tuple type of this name and these fields; its instances can be pickled though no module holds it."""
    # rename=True, since the fields of a type made so are called _0, _1...; no other name may change by it.
    base = namedtuple("Renamed", fields, rename=True)  # pyright: ignore[reportUntypedNamedTuple]
    if base._fields != fields:
        raise RecordingError(f"the named tuple {name!r} has fields of impossible names, {fields}")

    def reduce(self: Any) -> tuple[Any, ...]:
        return _make_named_tuple, (name, fields, tuple(self))

    return type(name, (base,), {"__slots__": (), "__reduce__": reduce})


def _make_named_tuple(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return named_tuple_type(name, fields)(*values)


# ---- to JSON ---------------------------------------------------------------------------------------------------------


def encode(value: Any, where: str) -> Any:
    """``value`` as JSON types; a ``RecordingError`` names the place (``where['key'][0]``) if that is not possible."""
    try:
        return _encode(value, where)
    except RecursionError as error:
        raise RecordingError(f"{where} cannot be written: it is nested too deeply, or holds itself") from error


def _encode(value: Any, where: str) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        # The bits, since there are several NaNs.
        return value if np.isfinite(value) else {"$": "float", "bits": struct.pack(">d", value).hex()}
    if type(value) is list:
        return [_encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping) and not isinstance(value, gymnasium.Space):  # Dict spaces are mappings, too
        return _encode_mapping(value, where)
    for kind, encoder in _ENCODERS:
        if isinstance(value, kind):
            return encoder(value, where)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encode({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, where)
    raise RecordingError(
        f"{where} cannot be written: expected numbers, text, None, arrays, tensors, or lists, tuples, sets and dicts "
        f"of those, got {type(value).__name__}; replace it by such data, or take it out"
    )


def _encode_mapping(value: Mapping[Any, Any], where: str) -> Any:
    items = [(key, _encode(item, f"{where}[{key!r}]")) for key, item in value.items()]
    if all(type(key) is str for key in value) and "$" not in value:
        return dict(items)
    return {"$": "dict", "items": [[_encode(key, f"the key {key!r} of {where}"), item] for key, item in items]}


def _encode_tuple(value: tuple[Any, ...], where: str) -> Any:
    items = [_encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if is_named_tuple(value):
        return {"$": "namedtuple", "name": type(value).__name__, "fields": list(type(value)._fields), "items": items}  # pyright: ignore[reportAttributeAccessIssue]
    return {"$": "tuple", "items": items}


def _encode_array(value: np.ndarray, where: str) -> Any:
    if value.dtype.kind == "O":
        items = [_encode(item, f"{where}, entry {i}") for i, item in enumerate(value.ravel().tolist())]
        return {"$": "objects", "shape": list(value.shape), "items": items}
    if value.dtype.kind not in "biufcUSmM" or isinstance(value, np.ma.MaskedArray):
        raise RecordingError(f"{where} cannot be written: it is a {type(value).__name__} of dtype {value.dtype}")
    data = base64.b64encode(value.tobytes()).decode("ascii")
    return {"$": "array", "dtype": value.dtype.str, "shape": list(value.shape), "data": data}


def _encode_tensor(value: torch.Tensor, where: str) -> Any:
    try:
        array = tensor_to_array(value)
    except (RuntimeError, TypeError, KeyError) as error:
        raise RecordingError(f"{where} cannot be written: {error}") from error
    dtype = str(value.dtype).removeprefix("torch.")
    return {"$": "tensor", "dtype": dtype, "array": _encode_array(array, where)}


def _encode_space(value: gymnasium.Space, where: str) -> Any:
    plain = space_to_plain(value)
    if plain is None:
        raise RecordingError(f"{where} cannot be written: {type(value).__name__} is no space of Gymnasium; take it out")
    return {"$": "space", "plain": _encode(plain, where)}


def _encode_env_spec(value: EnvSpec, where: str) -> Any:
    return {
        "$": "env_spec",
        "plain": _encode({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, where),
    }


_ENCODERS: tuple[tuple[Any, Callable[[Any, str], Any]], ...] = (
    (Enum, lambda v, where: _encode(v.value, where)),
    (np.ndarray, _encode_array),
    (torch.Tensor, _encode_tensor),
    (np.generic, lambda v, where: {"$": "scalar", "array": _encode_array(np.asarray(v), where)}),
    (tuple, _encode_tuple),
    (complex, lambda v, where: {"$": "complex", "parts": [_encode(v.real, where), _encode(v.imag, where)]}),
    (bytes, lambda v, where: {"$": "bytes", "data": base64.b64encode(v).decode("ascii")}),
    (set, lambda v, where: {"$": "set", "items": [_encode(item, where) for item in v]}),
    (frozenset, lambda v, where: {"$": "frozenset", "items": [_encode(item, where) for item in v]}),
    (gymnasium.Space, _encode_space),
    (EnvSpec, _encode_env_spec),
    (PurePath, lambda v, where: {"$": "path", "text": str(v)}),
)


# ---- from JSON -------------------------------------------------------------------------------------------------------


def decode(value: Any) -> Any:
    """The data that ``encode`` made JSON of."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: decode(item) for key, item in value.items()}
    kind = value["$"]
    if kind not in _DECODERS:
        raise RecordingError(f"it holds a value of unknown kind {kind!r}")
    return _DECODERS[kind](value)


def _items(node: dict[str, Any]) -> list[Any]:
    return [decode(item) for item in node["items"]]


def _decode_array(node: dict[str, Any]) -> np.ndarray:
    dtype = np.dtype(node["dtype"])
    return np.ndarray(node["shape"], dtype, buffer=bytearray(base64.b64decode(node["data"], validate=True)))


def _decode_objects(node: dict[str, Any]) -> np.ndarray:
    items = _items(node)
    flat = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):  # an assignment in one go would take lists apart
        flat[i] = item
    return flat.reshape(node["shape"])


_DECODERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "float": lambda node: struct.unpack(">d", bytes.fromhex(node["bits"]))[0],
    "dict": lambda node: {decode(key): decode(item) for key, item in node["items"]},
    "tuple": lambda node: tuple(_items(node)),
    "namedtuple": lambda node: named_tuple_type(node["name"], tuple(node["fields"]))(*_items(node)),
    "array": _decode_array,
    "objects": _decode_objects,
    "tensor": lambda node: array_to_tensor(_decode_array(node["array"]), node["dtype"]),
    "scalar": lambda node: _decode_array(node["array"])[()],
    "complex": lambda node: complex(*map(decode, node["parts"])),
    "bytes": lambda node: base64.b64decode(node["data"], validate=True),
    "set": lambda node: set(_items(node)),
    "frozenset": lambda node: frozenset(_items(node)),
    "space": lambda node: space_from_plain(decode(node["plain"])),
    "env_spec": lambda node: EnvSpec(**decode(node["plain"])),
    "path": lambda node: Path(node["text"]),
}
