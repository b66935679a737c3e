"""Recordings as ``.npz``: every array as it is, readable with ``numpy.load``, never pickled.

The entry "header" is the header as JSON text (bytes); arrays of objects are JSON text, too.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from metaroll.data.plain_data import decode, encode, to_json
from metaroll.data.recording_format import FINAL, iterate_specs, read_header
from metaroll.errors import RecordingError

__all__ = ["prepare_npz", "read_npz"]

_HEADER = "header"


def prepare_npz(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Callable[[BinaryIO], None]:
    """A function that writes the recording into an open file; whatever cannot be written is an error now."""
    entries = {_HEADER: _from_text(to_json(header))}
    for name, array in arrays.items():
        is_plain = array.dtype.kind != "O"
        entries[name] = array if is_plain else _from_text(to_json(encode(array, f"field {name!r}")))

    def write(file: BinaryIO) -> None:
        # The archive by hand: numpy.savez would pickle what it cannot write, and puts the time of day in.
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in entries.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)

    return write


def _from_text(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def read_npz(file: BinaryIO) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a recording."""
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise RecordingError("it is no .npz file, or was cut off") from error
    with archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        if _HEADER not in names:
            raise RecordingError("it is not a rollout recorded by metaroll: it has no header")
        header = read_header(json.loads(_read(archive, _HEADER).tobytes()))
        arrays = {name: _read(archive, name) for name in names if name != _HEADER}
    for spec in iterate_specs(header):
        for name in (spec["name"], spec["name"] + FINAL):
            if spec["dtype"] == "|O" and name in arrays:
                arrays[name] = decode(json.loads(arrays[name].tobytes()))
    return header, arrays


def _read(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as entry:
        array = np.lib.format.read_array(entry, allow_pickle=False)  # pyright: ignore[reportArgumentType]
        if entry.read(1):
            raise RecordingError(f"the array {name!r} is longer than it says")
    return array
