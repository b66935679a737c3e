"""Files that are whole or not there: JSON, and state trees as safetensors + JSON. Nothing is ever unpickled."""

from __future__ import annotations

import contextlib
import json
import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from metaroll.data.atomic_files import temporary_path, write_atomic
from metaroll.errors import SnapshotError

__all__ = [
    "checksum",
    "flush_folder",
    "is_tree",
    "load_tree",
    "number_of",
    "read_json",
    "save_tree",
    "to_plain",
    "tree_structure",
    "write_atomic",
    "write_json",
]

_FORMAT = 1
_CHUNK = 1 << 22
_CURE = "choose another snapshot with from_epoch=..., or restore the file from a copy"
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def flush_folder(folder: str | Path) -> None:
    """Make renames inside ``folder`` survive a loss of power (where the system can open folders)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with contextlib.suppress(OSError):  # some file systems cannot
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def to_plain(value: Any) -> Any:
    """``value`` as JSON types: arrays become lists, NaN ``None``, infinities ``"Infinity"`` and ``"-Infinity"``."""
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset | range):
        return [to_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"only numbers, texts, arrays, and lists and dicts of them can be written, got {value!r}")


def number_of(value: Any) -> float:
    """A number that ``to_plain`` has made; NaN for what is none."""
    if isinstance(value, str):
        return {"Infinity": math.inf, "-Infinity": -math.inf}.get(value, math.nan)
    return float(value) if isinstance(value, int | float) else math.nan


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` as readable JSON in one piece; see ``to_plain`` for arrays and non-finite numbers."""
    text = json.dumps(to_plain(value), indent=2, allow_nan=False, ensure_ascii=False)
    write_atomic(path, (text + "\n").encode())


def read_json(path: str | Path, hint: str = "restore it from a copy, or write it anew") -> Any:
    """Content of a JSON file; ``SnapshotError`` with ``hint`` if it is damaged."""
    data = Path(path).read_bytes()
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise SnapshotError(f"{path} is damaged ({error}); {hint}") from error


def checksum(path: str | Path) -> dict[str, int]:
    """``{"size": bytes, "crc32": checksum}`` of a file, read in pieces."""
    size = crc = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            crc = zlib.crc32(chunk, crc)
    return {"size": size, "crc32": crc}


def save_tree(folder: str | Path, name: str, tree: Any) -> dict[str, dict[str, int]]:
    """Write a state tree as ``<name>.safetensors`` (arrays) and ``<name>.json`` (all else); file name -> checksum.

    The JSON comes last and holds the checksum of the arrays, so that a half-written pair is recognized.

    Args:
        folder: Existing folder.
        name: Name of the tree.
        tree: Nested dicts (keys texts or integers), lists and tuples of tensors, arrays, ints, floats, texts, bools
            and ``None``. Tensors come back on the CPU.
    """
    folder = Path(folder)
    arrays: dict[str, np.ndarray] = {}
    structure = _encode(tree, name, arrays)
    arrays_path = folder / f"{name}.safetensors"
    temporary = temporary_path(arrays_path)
    try:
        with open(temporary, "xb") as file:
            mode = os.fstat(file.fileno()).st_mode  # that of the other files of a run; safetensors has one of its own
        save_file(arrays, temporary)
        os.chmod(temporary, mode & 0o777)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        sums = {arrays_path.name: checksum(temporary)}
        os.replace(temporary, arrays_path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, SafetensorError):  # it hides the error of the operating system, such as a full disk
            raise OSError(f"{arrays_path} cannot be written: {error}") from error
        raise
    document = {"format": _FORMAT, "arrays": sums[arrays_path.name], "tree": structure}
    json_path = folder / f"{name}.json"
    data = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
    write_atomic(json_path, data)
    sums[json_path.name] = {"size": len(data), "crc32": zlib.crc32(data)}
    return sums


def load_tree(folder: str | Path, name: str, hint: str = _CURE) -> Any:
    """The tree that ``save_tree`` wrote, bit for bit; ``SnapshotError`` with ``hint`` if it is damaged."""
    arrays_path, json_path = Path(folder) / f"{name}.safetensors", Path(folder) / f"{name}.json"
    for path in (json_path, arrays_path):
        if not path.is_file():
            raise SnapshotError(f"{path} is missing: the snapshot is incomplete; {hint}")
    document = read_json(json_path, hint)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        found = document.get("format") if isinstance(document, dict) else document
        raise SnapshotError(f"{json_path} must have format {_FORMAT}, got {found!r}: use the metaroll that wrote it")
    expected, found = document.get("arrays"), checksum(arrays_path)
    if not isinstance(expected, dict) or expected.keys() != found.keys() or "tree" not in document:
        raise SnapshotError(f"{json_path} must hold a tree and the checksum of {arrays_path.name}; {hint}")
    if found != expected:
        raise SnapshotError(f"{arrays_path} is damaged ({_difference(expected, found)}); {hint}")
    try:
        return _decode(document["tree"], load_file(arrays_path))
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise SnapshotError(f"{json_path} does not fit {arrays_path.name} ({error!r}); {hint}") from error


def is_tree(value: Any) -> bool:
    """Whether ``save_tree`` can write ``value``."""
    try:
        _encode(value, "value", {})
    except TypeError:
        return False
    return True


def _difference(expected: Mapping[str, int], found: Mapping[str, int]) -> str:
    if expected["size"] != found["size"]:
        return f"{found['size']} bytes instead of {expected['size']}"
    return "its checksum differs from the one that was written down"


def _encode(node: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(node, torch.Tensor):
        return _encode_tensor(node, path, arrays)
    if isinstance(node, np.ndarray):
        return {"$array": _store(node, path, arrays)}
    if isinstance(node, np.generic):
        return {"$scalar": _store(np.asarray(node), path, arrays)}
    if isinstance(node, Mapping):
        return _encode_mapping(node, path, arrays)
    if isinstance(node, list | tuple):
        items = [_encode(child, f"{path}/{i}", arrays) for i, child in enumerate(node)]
        return items if isinstance(node, list) else {"$tuple": items}
    if isinstance(node, float) and not math.isfinite(node):
        return {"$float": "nan" if math.isnan(node) else ("inf" if node > 0 else "-inf")}
    if node is None or type(node) in (bool, int, float, str):
        return node
    raise TypeError(
        f"{path} cannot be saved: expected a tensor, array, number, text, bool, None, or a dict or list of those, "
        f"got {type(node).__name__}"
    )


def _encode_mapping(node: Mapping[Any, Any], path: str, arrays: dict[str, np.ndarray]) -> Any:
    for key in node:
        if type(key) not in (str, int):
            raise TypeError(f"keys of {path} must be texts or integers, got {key!r}")
    items = [(key, _encode(child, f"{path}/{key}", arrays)) for key, child in node.items()]
    if all(isinstance(key, str) and not key.startswith("$") for key in node):
        return dict(items)
    return {"$dict": [list(item) for item in items]}  # optimizer states have integer keys


def _encode_tensor(tensor: torch.Tensor, path: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    tensor = tensor.detach().cpu().contiguous()
    try:
        return {"$tensor": _store(tensor.numpy(), path, arrays)}
    except TypeError:  # dtypes that NumPy lacks, such as bfloat16
        data = tensor.reshape(-1).view(torch.uint8).numpy()
        dtype = str(tensor.dtype).removeprefix("torch.")
        return {"$bytes": _store(data, path, arrays), "dtype": dtype, "shape": list(tensor.shape)}


def _store(array: np.ndarray, path: str, arrays: dict[str, np.ndarray]) -> str:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"{path} cannot be saved: arrays must hold bools, integers or floats, got dtype {array.dtype}")
    key, count = path, 2
    while key in arrays:  # the keys "a/b" and "a" -> "b" give the same path
        key, count = f"{path}~{count}", count + 1
    arrays[key] = np.require(array, array.dtype.newbyteorder("="), "C")
    return key


def _decode(node: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(node, list):
        return [_decode(child, arrays) for child in node]
    if not isinstance(node, dict):
        return node
    kind = next(iter(node), "")
    if not kind.startswith("$"):
        return {key: _decode(child, arrays) for key, child in node.items()}
    value = node[kind]
    if kind == "$dict":
        return {key: _decode(child, arrays) for key, child in value}
    if kind == "$tuple":
        return tuple(_decode(child, arrays) for child in value)
    if kind == "$float":
        return _NONFINITE[value]
    array = arrays[value]
    if kind == "$array":
        return array
    if kind == "$scalar":
        return array[()]
    if kind == "$tensor":
        return torch.from_numpy(array)
    if kind == "$bytes":
        return torch.from_numpy(array).view(getattr(torch, node["dtype"])).reshape(node["shape"])
    raise ValueError(f"unknown node {kind}")


def tree_structure(tree: Any) -> Any:
    """Names, shapes and dtypes of a state tree, without its values: equal for algorithms that are built alike."""
    if isinstance(tree, Mapping):
        return {str(key): tree_structure(child) for key, child in tree.items()}
    if isinstance(tree, list | tuple):
        return [tree_structure(child) for child in tree]
    if isinstance(tree, torch.Tensor | np.ndarray):
        return f"{str(tree.dtype).removeprefix('torch.')}{list(tree.shape)}"
    return type(tree).__name__
