"""Folders as archives whose bytes depend on their files alone, and back."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
LARGEST = 64 * 2**20
"""Bytes that an archive may unpack to."""
_SUFFIX = ".tar.xz"


def pack(folder: Path, archive: Path) -> dict[str, Any]:
    """Write the files of ``folder``, sorted, without times and owners; the entry for the manifest."""
    with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as tar:
        for path in sorted(folder.rglob("*")):
            entry = tar.gettarinfo(path, str(path.relative_to(folder)))
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
            entry.mode = 0o755 if path.is_dir() else 0o644
            if path.is_dir():
                tar.addfile(entry)
            else:
                with path.open("rb") as file:
                    tar.addfile(entry, file)
    content = archive.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def unpack(archive: Path, folder: Path) -> Path:
    """Write what is in the archive into ``folder``: plain files and folders below it, nothing else.

    Raises:
        ValueError: It holds more than ``LARGEST`` bytes.
        tarfile.FilterError: An entry is a link or a device, or lies outside.
    """
    with tarfile.open(archive, "r:xz") as tar:
        if (size := sum(entry.size for entry in tar.getmembers())) > LARGEST:
            raise ValueError(f"{archive} must unpack to at most {LARGEST} bytes, got {size}")
        if odd := [entry.name for entry in tar.getmembers() if not (entry.isfile() or entry.isdir())]:
            raise ValueError(f"{archive} must hold plain files and folders alone, got {odd}")
        tar.extractall(folder, filter="data")
    return folder


def archive_path(corpus: Path, name: str) -> Path:
    return corpus / f"{name}{_SUFFIX}"


def read_manifest(corpus: Path) -> dict[str, Any]:
    """What a corpus holds."""
    return json.loads((corpus / MANIFEST).read_text())


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")
