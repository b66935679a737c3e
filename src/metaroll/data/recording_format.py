"""What a recording holds, whatever the kind of file: a header (JSON) that describes the rollout, and arrays by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from metaroll.data.data_format import array_to_tensor, iterate_leaves, tensor_to_array
from metaroll.data.final_entries import FinalEntries
from metaroll.data.plain_data import Budget, decode, encode, is_named_tuple, named_tuple_type
from metaroll.data.step_sequence import StepSequence
from metaroll.data.step_storage import FLAGS
from metaroll.errors import RecordingError
from metaroll.functional.returns import check_bounds

__all__ = ["FINAL", "from_recording", "iterate_specs", "read_header", "to_recording"]

FINAL = "/final"
"""Added to the name of an array: the final entries ``(R, ...)`` of the sub-rollouts that it does not hold itself."""

_FORMAT = "metaroll rollout"
_VERSION = 1


def to_recording(rollout: StepSequence) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a rollout, nothing copied; ``RecordingError`` naming what cannot be recorded."""
    arrays: dict[str, np.ndarray] = {name: getattr(rollout, name) for name in FLAGS}
    fields = {name: _describe(getattr(rollout, name), (name,), rollout._finals, arrays) for name in rollout.data_names}
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "length": len(rollout),
        "data_format": rollout.data_format,
        "continuous": rollout.continuous,
        "rollout_bounds": rollout.rollout_bounds.tolist() if rollout.continuous else None,
        "fields": fields,
        "rollout_info": encode(rollout.rollout_info, "rollout_info"),
    }
    return header, arrays


def _describe(
    tree: Any, path: tuple[Any, ...], finals: Mapping[Any, FinalEntries], arrays: dict[str, np.ndarray]
) -> dict[str, Any]:
    """The node of the header for a tree; its arrays join ``arrays``."""
    if isinstance(tree, dict):
        items = [(encode(key, f"the key {key!r} of {_label(path)}"), child) for key, child in tree.items()]
        children = [_describe(child, (*path, key), finals, arrays) for key, child in tree.items()]
        return {"kind": "dict", "keys": [key for key, _ in items], "children": children}
    if isinstance(tree, tuple):
        node = {"kind": "tuple", "children": [_describe(t, (*path, i), finals, arrays) for i, t in enumerate(tree)]}
        if is_named_tuple(tree):
            node |= {"kind": "namedtuple", "name": type(tree).__name__, "names": list(type(tree)._fields)}  # pyright: ignore[reportAttributeAccessIssue]
        return node
    array = _to_array(tree, path)
    name = _unused(_label(path), arrays)
    arrays[name] = array
    node = {"kind": "array", "name": name, "dtype": array.dtype.str, "item_shape": list(array.shape[1:])}
    node |= {"entries": len(array), "torch": None, "finals": None}
    if isinstance(tree, torch.Tensor):
        node["torch"] = str(tree.dtype).removeprefix("torch.")
    if path in finals:
        node["finals"] = finals[path].present.tolist()
        arrays[name + FINAL] = _to_array(finals[path].values, path)
    return node


def _to_array(leaf: Any, path: tuple[Any, ...]) -> np.ndarray:
    try:
        array = tensor_to_array(leaf) if isinstance(leaf, torch.Tensor) else np.asanyarray(leaf)
    except (RuntimeError, TypeError, KeyError) as error:  # sparse or quantized tensors
        raise RecordingError(f"field {_label(path)!r} cannot be written: {error}") from error
    if array.dtype.kind not in "biufcUSmMOV" or isinstance(array, np.ma.MaskedArray):
        raise RecordingError(
            f"field {_label(path)!r} cannot be written: it is a {type(array).__name__} of dtype {array.dtype}; "
            "convert it to an array of numbers, text or objects"
        )
    if array.dtype.kind == "V" and array.dtype.hasobject:
        raise RecordingError(f"field {_label(path)!r} cannot be written: its dtype {array.dtype} holds objects")
    return np.asarray(array)


def _label(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def _unused(label: str, arrays: Mapping[str, Any]) -> str:
    """A name for an array that any kind of file can carry, and that no other array has."""
    base = label if len(label) <= 200 and label.isprintable() and "/" not in label else "field"
    name, count = base, 2
    while name in arrays or name == "header":
        name, count = f"{base}#{count}", count + 1
    return name


# ---- from a file -----------------------------------------------------------------------------------------------------


def read_header(header: Any) -> dict[str, Any]:
    """``header`` itself, if it is one that this version can read.

    Raises:
        RecordingError: It is none.
        ValueError: Its rollout bounds do not fit its length.
    """
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise RecordingError("it is not a rollout recorded by metaroll")
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise RecordingError(f"its version is {version!r}, expected {_VERSION}")
    if version > _VERSION:
        raise RecordingError(
            f"it has version {version} of the format, this metaroll reads up to {_VERSION}: use a newer metaroll"
        )
    if header["rollout_bounds"] is not None:
        check_bounds(header["rollout_bounds"], header["length"])
    return header


def iterate_specs(header: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of all arrays of the header, in order (``name``, ``dtype``, ``item_shape``, ``entries``, ...)."""
    for node in header["fields"].values():
        yield from _array_nodes(node)


def _array_nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if node["kind"] == "array":
        yield node
        return
    for child in node["children"]:
        yield from _array_nodes(child)


def from_recording(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], budget: Budget) -> StepSequence:
    """The rollout of a header and its arrays, which must be exactly those that the header names.

    Args:
        header: What ``read_header`` has accepted.
        arrays: Arrays by name.
        budget: Memory that ``rollout_info`` may take.

    Raises:
        RecordingError: They do not fit together.
    """
    specs = list(iterate_specs(header))
    expected = [*FLAGS, *(spec["name"] for spec in specs)]
    expected += [spec["name"] + FINAL for spec in specs if spec["finals"] is not None]
    for name in expected:
        if name not in arrays:
            raise RecordingError(f"the array {name!r}, which its header names, is missing")
    foreign = sorted(set(arrays) - set(expected))
    if foreign:
        raise RecordingError(f"it holds {foreign[0]!r}, which its header does not name")
    for spec in specs:
        _check_array(spec, arrays[spec["name"]], spec["entries"])
    fields = {name: _build(node, lambda s: _restore(s, arrays[s["name"]])) for name, node in header["fields"].items()}
    first: dict[str, Any] = {name: fields.pop(name) for name in ("rewards", "observations", "actions")}
    first |= {name: arrays[name] for name in FLAGS}
    rollout = StepSequence(
        **first,
        continuous=header["continuous"],
        rollout_bounds=header["rollout_bounds"],
        data_format=header["data_format"],
        rollout_info=decode(header["rollout_info"], budget=budget),
    )
    if len(rollout) != header["length"]:
        raise RecordingError(f"its header speaks of {header['length']} steps, its rewards are {len(rollout)}")
    for name, value in fields.items():
        rollout.add_data(name, value)
    rollout._finals = dict(_finals(header, arrays, rollout))
    return rollout


def _check_array(spec: Mapping[str, Any], array: np.ndarray, length: int) -> None:
    shape = (length, *spec["item_shape"])
    if array.shape != shape or array.dtype.str != spec["dtype"]:
        raise RecordingError(
            f"the array {spec['name']!r} must be {spec['dtype']} {shape}, it is {array.dtype.str} {array.shape}"
        )


def _build(node: dict[str, Any], make_leaf: Callable[[dict[str, Any]], Any]) -> Any:
    """The tree that a node describes."""
    kind = node["kind"]
    if kind == "array":
        return make_leaf(node)
    children = [_build(child, make_leaf) for child in node["children"]]
    if kind == "dict":
        return dict(zip(map(decode, node["keys"]), children, strict=True))
    if kind == "namedtuple":
        return named_tuple_type(node["name"], tuple(node["names"]))(*children)
    if kind == "tuple":
        return tuple(children)
    raise RecordingError(f"its header holds a node of unknown kind {kind!r}")


def _restore(spec: Mapping[str, Any], array: np.ndarray) -> Any:
    return array if spec["torch"] is None else array_to_tensor(array, spec["torch"])


def _finals(
    header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], rollout: StepSequence
) -> Iterator[tuple[tuple[Any, ...], FinalEntries]]:
    for field, node in header["fields"].items():
        for path, spec in iterate_leaves(_build(node, _Leaf)):
            if spec.node["finals"] is None:
                continue
            values, present = arrays[spec.node["name"] + FINAL], spec.node["finals"]
            _check_array(spec.node, values, rollout.rollout_count)
            if len(present) != len(values) or any(type(flag) is not bool for flag in present):
                raise RecordingError(f"the final entries of {spec.node['name']!r} do not fit the rollouts")
            yield (field, *path), FinalEntries(_restore(spec.node, values), np.array(present, dtype=bool))


class _Leaf:
    """Hides the node of an array, a dict, from those who walk through trees."""

    def __init__(self, node: dict[str, Any]) -> None:
        self.node = node
