"""Rows of replay memories in snapshots: blocks in their own files, which the next snapshot shares."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, final

import numpy as np

from metaroll.data.doors.plain_files import check_plain_name, damage, open_plain, size_of
from metaroll.data.replay.ring_rows import History, RingRows
from metaroll.errors import DamagedFileError, SnapshotError

__all__ = ["RowFiles", "load_rows"]

_BLOCK = 1 << 22
"""Approximate bytes of a block; smaller arrays are written with everything else."""


class _Known(NamedTuple):
    """Record of a written array: its past, rows that had come in, rows of a block, and the entry of each file."""

    history: History | None
    num_written: int
    block: int
    files: list[dict[str, Any]]


@final
class RowFiles:
    """Writes the arrays of one snapshot that are rows of rings, and links the blocks that have not changed.

    Args:
        folder: Folder of the snapshot; set again when it gets its final name.
        before: The row files of the previous snapshot, in the same process; ``None``: everything is written.
    """

    def __init__(self, folder: Path, before: RowFiles | None = None) -> None:
        self.folder = folder
        self._known: dict[str, _Known] = {}
        self._before = None if before is None else (before.folder, before._known)

    def settle(self, folder: Path) -> None:
        """The snapshot is whole, and has its final name."""
        self.folder, self._before = folder, None

    def takes(self, array: np.ndarray) -> TypeGuard[RingRows]:
        """Whether an array goes into separate files."""
        return isinstance(array, RingRows) and array.history is not None and array.nbytes > _BLOCK

    def write(self, path: str, stem: str, rows: RingRows) -> dict[str, Any]:
        """Write an array.

        Args:
            path: Its place in the tree.
            stem: Beginning of the names of its files.
            rows: The array.

        Returns:
            Its entry for ``load_rows``.
        """
        block = max(1, _BLOCK // max(1, rows[:1].nbytes))
        changed = self._changed(path, rows, block)
        files = []
        for number, begin in enumerate(range(0, len(rows), block)):
            name = f"{stem}-{number}.rows"
            entry = None if changed is None or changed[number] else self._link(path, number, name)
            files.append(entry or self._write_block(name, rows[begin : begin + block]))
        self._known[path] = _Known(rows.history, rows.num_written, block, files)
        return {"dtype": rows.dtype.str, "shape": list(rows.shape), "files": files}

    def _changed(self, path: str, rows: RingRows, block: int) -> np.ndarray | None:
        """Which blocks have changed since the snapshot before; ``None`` if unknown."""
        known = self._before[1].get(path) if self._before is not None else None
        if known is None or known.history is not rows.history or known.block != block:
            return None
        blocks = np.ones(-(-len(rows) // block), dtype=bool)
        since = rows.num_written - max(known.num_written - 1, 0)
        if since < len(rows):
            blocks[:] = False
            blocks[(np.arange(rows.num_written - since, rows.num_written) % len(rows)) // block] = True
        blocks[len(known.files) :] = True
        return blocks

    def _link(self, path: str, number: int, name: str) -> dict[str, Any] | None:
        assert self._before is not None
        folder, known = self._before
        entry = known[path].files[number]
        source = folder / entry["name"]
        try:
            if source.stat().st_size != entry["size"]:
                return None
            os.link(source, self.folder / name)
        except OSError:  # the snapshot is gone, or the file system knows no links
            return None
        return {**entry, "name": name}

    def _write_block(self, name: str, rows: np.ndarray) -> dict[str, Any]:
        data = np.ascontiguousarray(rows).view(np.ndarray).reshape(-1).view(np.uint8)
        with open(self.folder / name, "wb") as file:
            file.write(data.data)
            file.flush()
            os.fsync(file.fileno())
        return {"name": name, "size": data.nbytes, "crc32": zlib.crc32(data.data)}


def load_rows(folder: Path, entry: Mapping[str, Any], hint: str) -> np.ndarray:
    """The array of which ``RowFiles.write`` returned the entry.

    Raises:
        SnapshotError: A file is missing or damaged; ends with ``hint``.
    """
    try:
        dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
        files = [(check_plain_name(file["name"]), file["size"], file["crc32"]) for file in entry["files"]]
        whole = [*shape, *(number for _, *numbers in files for number in numbers)]
        if dtype.hasobject or any(type(number) is not int or number < 0 for number in whole):
            raise ValueError(f"numbers of {dtype}, {shape}")
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"{folder} holds rows whose description is damaged ({error}); {hint}", folder) from error
    total = math.prod(shape) * dtype.itemsize
    if sum(size for _, size, _ in files) != total:
        raise SnapshotError(
            f"{folder} holds {sum(size for _, size, _ in files)} bytes of rows instead of {total}; {hint}"
        )
    paths = [folder / name for name, _, _ in files]
    for path, (_, size, _) in zip(paths, files, strict=True):  # all of them, before memory is taken
        if not os.path.lexists(path):
            raise SnapshotError(f"{path} is missing: the snapshot is incomplete; {hint}")
        with damage(path, SnapshotError, hint), open_plain(path) as file:
            if size_of(file) != size:
                raise DamagedFileError(f"it is damaged ({size_of(file)} bytes instead of {size})")
    with damage(folder, SnapshotError, hint):
        array = np.empty(shape, dtype)
    data, begin = array.reshape(-1).view(np.uint8), 0
    for path, (_, size, crc32) in zip(paths, files, strict=True):
        with damage(path, SnapshotError, hint), open_plain(path) as file:
            part = data[begin : begin + size]
            if file.readinto(part.data) != size or zlib.crc32(part.data) != crc32:  # pyright: ignore[reportAttributeAccessIssue]
                raise DamagedFileError("it is damaged (checksum mismatch)")
        begin += size
    return array
