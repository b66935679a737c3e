"""Writes a corpus: small files of every kind that this version of metaroll writes, for later versions to read.

    PYTHONPATH=OLD/src:tests OMP_NUM_THREADS=1 python -m corpus.write OUT [NAME ...]

``OLD`` is a checkout of the version that writes, without changes. ``OUT`` then holds an archive for each part, and
``manifest.json``. With names, only those parts are written anew.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import metaroll
from corpus import configurations, files, runs
from corpus.archives import MANIFEST, archive_path, pack, read_manifest, write_json
from corpus.machine import machine
from metaroll.training.algorithms.registry import ALGORITHM_NAMES

_NOT_READ = ("*.png",)
"""Pictures in the folders of runs, which nothing reads, and which would be most of the corpus."""
_LOCK, _ELSEWHERE = ".lock", "1 elsewhere"
"""Holds the process and the machine that have trained in a folder, which are nobody's business."""


def parts() -> Mapping[str, tuple[dict[str, Any], Callable[[], None]]]:
    """Name -> entry for the manifest, and what writes it into the current folder."""
    found: dict[str, tuple[dict[str, Any], Callable[[], None]]] = {}
    for name, (algo, env, _) in runs.RUNS.items():
        found[name] = ({"kind": "run", "algo": algo, "env": env}, functools.partial(runs.write_run, name))
    for module in (runs, files, configurations):
        for name, (kind, write) in module.PARTS.items():
            found[name] = ({"kind": kind, "about": re.sub(r"\s+", " ", write.__doc__ or "").strip()}, write)
    return found


def write_part(name: str, write: Callable[[], None], out: Path) -> dict[str, Any]:
    """Write a part, pack it, and return what the manifest says of the archive."""
    with tempfile.TemporaryDirectory() as place:
        with contextlib.chdir(place):
            write()
        folder = Path(place)
        for pattern in _NOT_READ:
            for path in folder.rglob(pattern):
                path.unlink()
        for path in folder.rglob(_LOCK):
            path.write_text(_ELSEWHERE)
        _refuse_traces(folder)
        return pack(folder, archive_path(out, name))


def _refuse_traces(folder: Path) -> None:
    """Error if a file names the folder in which it was written: it has been packed to be read elsewhere."""
    for path in folder.rglob("*"):
        if path.is_file() and str(folder).encode() in path.read_bytes():
            raise RuntimeError(f"{path} names the folder {folder}, which is temporary")


def clean_commit() -> str:
    """The commit of the checkout that is imported.

    Raises:
        RuntimeError: Its source was changed since.
    """
    place = Path(metaroll.__file__).parent
    if changes := _git(place, "status", "--porcelain", "--", "."):
        raise RuntimeError(f"{place} must be as it was committed, got changes:\n{changes}")
    return _git(place, "rev-parse", "HEAD")


def _git(place: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=place, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a corpus with the version of metaroll that is imported.")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="parts to write anew; all of them by default")
    given = parser.parse_args()
    known, commit = parts(), clean_commit()
    given.out.mkdir(parents=True, exist_ok=True)
    old = read_manifest(given.out)["archives"] if given.names else {}
    archives = {name: entry for name, entry in old.items() if name in known}
    for name in given.names or known:
        entry, write = known[name]
        print(name, flush=True)
        archives[name] = {**entry, **write_part(name, write, given.out.resolve())}
    about: dict[str, Any] = {"version": metaroll.__version__, "commit": commit, "machine": machine()}
    about["algorithms"] = list(ALGORITHM_NAMES)
    write_json(given.out / MANIFEST, {**about, "archives": archives})


if __name__ == "__main__":
    main()
