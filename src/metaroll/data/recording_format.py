"""Contents of a recording, in every kind of file: a header (JSON) that describes the rollout, and arrays by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from metaroll.data.data_format import array_to_tensor, iterate_leaves, map_leaves, tensor_to_array
from metaroll.data.doors.budget import Budget
from metaroll.data.doors.json_files import parse_json
from metaroll.data.final_entries import FinalEntries
from metaroll.data.plain_data import decode, encode, to_json
from metaroll.data.step_sequence import StepSequence
from metaroll.data.step_storage import FLAGS
from metaroll.errors import RecordingError
from metaroll.functional.returns import check_bounds

__all__ = ["FINAL", "from_recording", "header_text", "iterate_specs", "read_header", "to_recording"]

FINAL = "/final"
"""Added to the name of an array: the final entries ``(R, ...)`` of the sub-rollouts that it does not hold itself."""

_FORMAT = "metaroll rollout"
_VERSION = 2
_ENTRIES = {
    *("format", "version", "length", "data_format", "continuous", "rollout_bounds", "fields", "rollout_info"),
}


def to_recording(rollout: StepSequence) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a rollout, nothing copied.

    Returns:
        The header, and arrays by name. ``fields`` of the header are the trees of the fields, with a list of one dict
        (``name``, ``dtype``, ``item_shape``, ``entries``, ``torch``, ``finals``) instead of each array: a list, since
        those who walk through trees take it for a leaf.

    Raises:
        RecordingError: Something cannot be recorded; names it.
    """
    arrays: dict[str, np.ndarray] = {name: getattr(rollout, name) for name in FLAGS}

    def describe(leaf: Any, path: tuple[Any, ...]) -> list[dict[str, Any]]:
        array, name = _to_array(leaf, path), _unused(_label(path), arrays)
        arrays[name] = array
        finals = rollout._finals.get(path)
        if finals is not None:
            arrays[name + FINAL] = _to_array(finals.values, path)
        spec = {"name": name, "dtype": array.dtype.str, "item_shape": list(array.shape[1:]), "entries": len(array)}
        spec["torch"] = str(leaf.dtype).removeprefix("torch.") if isinstance(leaf, torch.Tensor) else None
        spec["finals"] = None if finals is None else finals.present.tolist()
        return [spec]

    fields = {name: map_leaves(describe, getattr(rollout, name), (name,)) for name in rollout.data_names}
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "length": len(rollout),
        "data_format": rollout.data_format,
        "continuous": rollout.continuous,
        "rollout_bounds": rollout.rollout_bounds.tolist() if rollout.continuous else None,
        "fields": fields,
        "rollout_info": rollout.rollout_info,
    }
    return header, arrays


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


def header_text(header: Mapping[str, Any]) -> str:
    """The header as JSON.

    Raises:
        RecordingError: Something in it cannot be recorded; names its place.
    """
    return to_json({name: encode(value, name) for name, value in header.items()})


def read_header(text: str | bytes, budget: Budget) -> dict[str, Any]:
    """The header that ``header_text`` wrote.

    Args:
        text: JSON.
        budget: Memory that it may take.

    Raises:
        DamagedFileError: It is not JSON, none that this version can read, or takes too much.
        ValueError: Its rollout bounds do not fit its length.
    """
    header = parse_json(text, budget.beside())
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise RecordingError("it is not a rollout recorded by metaroll")
    version = header.get("version")
    if version != _VERSION:
        hint = ": use a newer metaroll" if type(version) is int and version > _VERSION else ""
        raise RecordingError(f"it has version {version!r} of the format, this metaroll reads {_VERSION}{hint}")
    odd = sorted(header.keys() ^ _ENTRIES)
    if odd:
        raise RecordingError(f"its header {'has an unknown' if odd[0] in header else 'lacks the'} entry {odd[0]!r}")
    if header["rollout_bounds"] is not None:
        check_bounds(header["rollout_bounds"], header["length"])
    return {name: decode(value, budget=budget) for name, value in header.items()}


def iterate_specs(header: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The header's entry for each array, in order (see ``to_recording``)."""
    return (spec for _, [spec] in iterate_leaves(header["fields"]))


def from_recording(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> StepSequence:
    """The rollout of a header and its arrays, which must be exactly those that the header names.

    Args:
        header: From ``read_header``.
        arrays: Arrays by name.

    Raises:
        RecordingError: They do not fit together.
    """
    named: set[str] = set(FLAGS)
    finals: dict[tuple[Any, ...], FinalEntries] = {}
    num_rollouts = len(header["rollout_bounds"] or ()) - 1

    def take(name: str, spec: Mapping[str, Any], num_rows: int) -> Any:
        named.add(name)
        shape = (num_rows, *spec["item_shape"])
        array = arrays.get(name)
        if array is None:
            raise RecordingError(f"the array {name!r}, which its header names, is missing")
        if array.shape != shape or array.dtype.str != spec["dtype"]:
            raise RecordingError(
                f"the array {name!r} must be {spec['dtype']} {shape}, it is {array.dtype.str} {array.shape}"
            )
        return array if spec["torch"] is None else array_to_tensor(array, spec["torch"])

    def restore(leaf: list[dict[str, Any]], path: tuple[Any, ...]) -> Any:
        [spec] = leaf
        present = spec["finals"]
        if present is not None:
            if len(present) != num_rollouts or any(type(flag) is not bool for flag in present):
                raise RecordingError(f"the final entries of {spec['name']!r} do not fit the rollouts")
            finals[path] = FinalEntries(take(spec["name"] + FINAL, spec, num_rollouts), np.array(present, dtype=bool))
        return take(spec["name"], spec, spec["entries"])

    fields = map_leaves(restore, header["fields"])
    foreign = sorted(arrays.keys() - named)
    if foreign:
        raise RecordingError(f"it holds {foreign[0]!r}, which its header does not name")
    first: dict[str, Any] = {name: fields.pop(name) for name in ("rewards", "observations", "actions")}
    first |= {name: arrays[name] for name in FLAGS}
    rollout = StepSequence(
        **first,
        continuous=header["continuous"],
        rollout_bounds=header["rollout_bounds"],
        data_format=header["data_format"],
        rollout_info=header["rollout_info"],
    )
    if len(rollout) != header["length"]:
        raise RecordingError(f"its header declares {header['length']} steps, but it has {len(rollout)} rewards")
    for name, value in fields.items():
        rollout.add_data(name, value)
    rollout._finals = finals
    return rollout
