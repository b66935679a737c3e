"""Snapshots of a run: folders that are whole or not there, under ``<run>/snapshots/<iteration>/``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from metaroll.checks import check_path
from metaroll.config import options_of
from metaroll.configs.run import RunConfig
from metaroll.configs.table import current_names
from metaroll.data.doors.plain_files import check_plain_name, damage, file_sum, open_plain, size_of
from metaroll.data.folders.atomic_files import flush_folder
from metaroll.data.folders.contents import free_name, move_folder, remove_folder
from metaroll.data.folders.kinds import CONFIG_FILE, SNAPSHOT, SNAPSHOTS, SUMMARY_FILE
from metaroll.data.folders.links import refuse_link, remove_file
from metaroll.errors import DamagedFileError, SnapshotError, command_text, counted, for_reader, option_name, option_text
from metaroll.training.store.files import load_tree, read_json, save_tree, to_plain, write_json
from metaroll.training.store.metrics_log import FILE_NAME as METRICS_FILE
from metaroll.training.store.row_files import RowFiles
from metaroll.training.store.run_folder import package_versions

__all__ = [
    "BUFFERS",
    "Snapshot",
    "SnapshotConfig",
    "Snapshotter",
    "latest",
    "load_snapshot",
    "same_newest",
    "snapshots_of",
]

_REPLACING = ("last", "gap_overwrite", "gap_and_last")
BUFFERS = "buffers"
"""Name of the tree that only the newest snapshot keeps."""

_FORMAT = 1
_FOLDER = SNAPSHOTS
_MANIFEST = "manifest.json"
_CHECKSUM = "crc32"
_FINISHED = re.compile(r"(\d{6,})")
_REPLACED = re.compile(r"\.(\d{6,})\.old")
_TEMPORARY = re.compile(r"\.tmp-(\d{6,})")


class _SnapshotFields(NamedTuple):
    snapshot_dir: str | Path | None
    snapshot_mode: str
    snapshot_gap: int
    keep_last: int


class SnapshotConfig(_SnapshotFields):
    """The folder in which a runner writes snapshots, and those that it keeps (see ``Snapshotter``).

    Args:
        snapshot_dir: Folder of the run; ``None`` writes nothing.
        snapshot_mode, snapshot_gap, keep_last: See ``Snapshotter``.

    Raises:
        TypeError: A value is of another type.
        ValueError: There is no such mode, a number is too small, or it does not go with the mode.
    """

    __slots__ = ()

    def __new__(
        cls, snapshot_dir: str | Path | None, snapshot_mode: str = "last", snapshot_gap: int = 1, keep_last: int = 1
    ) -> Self:
        if snapshot_dir is not None:
            check_path("snapshot_dir", snapshot_dir)
        given = {"snapshot_mode": snapshot_mode, "snapshot_gap": snapshot_gap, "keep_last": keep_last}
        for option in options_of(RunConfig):
            if option.name in given:
                option.checked(given[option.name])
        if snapshot_mode == "last" and snapshot_gap != 1:
            one = option_text("snapshot_gap", 1)
            raise ValueError(
                f"{option_name('snapshot_mode')} 'last' needs {one}, got {snapshot_gap}; use 'gap_overwrite'"
            )
        if snapshot_mode == "gap_overwrite" and snapshot_gap == 1:
            mode, gap = option_name("snapshot_mode"), option_name("snapshot_gap")
            raise ValueError(f"{mode} 'gap_overwrite' needs {gap} above 1, got 1; use 'last'")
        if keep_last > 1 and snapshot_mode not in _REPLACING:
            what = "writes none" if snapshot_mode == "none" else "keeps all that it writes"
            raise ValueError(
                f"{option_name('keep_last')} is for {option_name('snapshot_mode')} "
                f"{' or '.join(map(repr, _REPLACING))}, got {keep_last} with {snapshot_mode!r}, which {what}"
            )
        return super().__new__(cls, snapshot_dir, snapshot_mode, snapshot_gap, keep_last)


def snapshots_of(run_dir: str | Path) -> dict[int, Path]:
    """Finished snapshots of a run, oldest first: iteration (number of finished epochs) -> folder."""
    folder = Path(run_dir) / _FOLDER
    if not folder.is_dir():
        return {}
    present: dict[int, Path] = {}
    replaced: dict[int, Path] = {}
    for path in folder.iterdir():
        if match := _FINISHED.fullmatch(path.name):
            present[int(match[1])] = path
        elif match := _REPLACED.fullmatch(path.name):
            replaced[int(match[1])] = path
    # Killed between the two renames of a replacement: the old snapshot still is the valid one.
    return dict(sorted({**replaced, **present}.items()))


def latest(run_dir: str | Path) -> int | None:
    """Iteration of the newest snapshot, ``None`` without one."""
    return max(snapshots_of(run_dir), default=None)


@dataclass(frozen=True)
class Snapshot:
    """A snapshot on disk. ``iteration`` epochs were finished when it was written."""

    iteration: int
    path: Path
    manifest: Mapping[str, Any]
    hint: str

    def tree(self, name: str) -> Any:
        """The state tree called ``name``; ``SnapshotError`` if it is damaged."""
        try:
            return load_tree(self.path, name, self.hint)
        except SnapshotError as error:
            raise SnapshotError(f"snapshot {self.iteration} cannot be used: {error}") from error

    @property
    def buffers(self) -> Any:
        """The replay buffers; ``None`` where they were not kept."""
        return self.tree(BUFFERS) if self.has_buffers else None

    @property
    def has_buffers(self) -> bool:
        """Whether the replay buffers were kept."""
        return _has_buffers(self.path, self.manifest)


def same_newest(folder: Path, other: Path) -> bool:
    """Whether the newest snapshots of two runs are one and the same, or copies of each other."""
    newest = [(run, latest(run)) for run in (folder, other)]
    try:
        documents = [_read_manifest(snapshots_of(run)[k], k) for run, k in newest if k is not None]
    except (DamagedFileError, OSError, KeyError):
        return False
    return len(documents) == 2 and documents[0] == documents[1]


def load_snapshot(run_dir: str | Path, iteration: int | str = "last") -> Snapshot:
    """The snapshot of a run that was written after ``iteration`` epochs, checked.

    Args:
        run_dir: Folder of the run.
        iteration: ``"last"``, ``"first"``, ``"best"`` (see ``KeepBest``), or a number of finished epochs (also as
            digits).
    """
    snapshots = snapshots_of(run_dir)
    if not snapshots:
        raise SnapshotError(f"{Path(run_dir) / _FOLDER} holds no snapshot: {_why_none(Path(run_dir))}")
    chosen = _choose(snapshots, iteration, run_dir)
    older, newer = [i for i in snapshots if i < chosen], [i for i in snapshots if i > chosen]
    hint = f"there is no other snapshot; restore this one from a copy, or train again with {option_text('run_dir')}"
    if older or newer:
        which, other = ("an older", older[-1]) if older else ("another", newer[0])
        known = ", ".join(map(str, snapshots))
        hint = f"choose {which} one with {option_text('from_epoch', other)} (there are: {known})"
    path = snapshots[chosen]
    try:
        manifest = _read_manifest(path, chosen)
        _check_files(path, manifest, is_newest=not newer)
    except SnapshotError as error:
        raise SnapshotError(f"snapshot {chosen} cannot be used: {error}; {hint}") from error
    if isinstance(config := manifest.get("config"), dict):
        manifest["config"] = current_names(config)
    return Snapshot(chosen, path, manifest, hint)


def _why_none(run_dir: Path) -> str:
    """The reason why a run has no snapshot, judged by its folder, and a hint."""
    left = [name for name in (METRICS_FILE, SUMMARY_FILE) if (run_dir / name).is_file()]
    if left:
        return (
            f"{left[0]} beside it reports finished epochs, so they were lost, or none was to be kept yet "
            "(snapshot_mode, snapshot_gap); restore the folder from a copy, or train again with "
            + option_text("run_dir")
        )
    if (run_dir / CONFIG_FILE).is_file():
        resume = command_text("resume", run_dir)
        return f"the run was stopped before its first one; if `metaroll train` began it, `{resume}` does"
    return "this is not a run folder; name one that `metaroll train` or a LocalRunner has written"


def _choose(snapshots: Mapping[int, Path], iteration: int | str, run_dir: str | Path) -> int:
    if iteration == "last":
        return max(snapshots)
    if iteration == "first":
        return min(snapshots)
    if iteration == "best":
        return _best_of(snapshots, run_dir)
    digits = isinstance(iteration, str) and iteration.isdecimal()
    if isinstance(iteration, bool) or not (digits or isinstance(iteration, int)):
        raise ValueError(
            f"{option_name('from_epoch')} must be 'last', 'first' or a number of finished epochs, or 'best' "
            f"where that is kept, got {iteration!r}"
        )
    if int(iteration) not in snapshots:
        raise SnapshotError(
            f"{run_dir} has no snapshot after {counted(int(iteration), 'epoch')}; choose one of "
            f"{', '.join(map(str, snapshots))}"
        )
    return int(iteration)


def _best_of(snapshots: Mapping[int, Path], run_dir: str | Path) -> int:
    """The best snapshot, of which the newest one knows."""
    newest = max(snapshots)
    best = _read_manifest(snapshots[newest], newest).get("best")
    if not isinstance(best, dict) or not isinstance(best.get("iteration"), int):
        how = for_reader("callbacks=[metaroll.KeepBest()] or keep_best='return'", "--keep-best return")
        raise SnapshotError(f"{run_dir} keeps no best snapshot (yet): train or resume it with {how}")
    if best["iteration"] not in snapshots:
        raise SnapshotError(
            f"the best snapshot of {run_dir}, after {counted(best['iteration'], 'epoch')}, is gone; choose one of "
            f"{', '.join(map(str, snapshots))}"
        )
    return best["iteration"]


def _read_manifest(folder: Path, iteration: int) -> dict[str, Any]:
    path = folder / _MANIFEST
    if not os.path.lexists(path):
        raise SnapshotError(f"{path} is missing")
    manifest = read_json(path, "")
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise SnapshotError(f"{path} is not the manifest of a snapshot")
    if manifest["format"] != _FORMAT:
        writer = manifest.get("metaroll", "of an unknown version")
        raise SnapshotError(
            f"{folder} has snapshot format {manifest['format']!r}, and this metaroll reads format {_FORMAT}: use the "
            f"version that wrote it, metaroll {writer}"
        )
    missing = [key for key in ("iteration", "files", "buffers", "metrics_offset") if key not in manifest]
    if missing:
        raise SnapshotError(f"{path} lacks {', '.join(missing)}")
    if _CHECKSUM in manifest and manifest[_CHECKSUM] != _checksum_of(manifest):
        raise SnapshotError(f"{path} is damaged (checksum mismatch)")
    wanted = {"iteration": int, "files": dict, "buffers": dict, "metrics_offset": int}
    odd = next((key for key, kind in wanted.items() if type(manifest[key]) is not kind), None)
    if odd is not None or manifest["metrics_offset"] < 0:
        raise SnapshotError(f"{path} is damaged ({odd or 'metrics_offset'} is invalid)")
    if manifest["iteration"] != iteration:
        raise SnapshotError(f"{path} belongs to snapshot {manifest['iteration']}: its folder was renamed or copied")
    return manifest


def _has_buffers(folder: Path, manifest: Mapping[str, Any]) -> bool:
    # The JSON goes first when buffers are removed, so a lone arrays file is a removal that was interrupted.
    return bool(manifest["buffers"]) and (folder / f"{BUFFERS}.json").is_file()


def _check_files(folder: Path, manifest: Mapping[str, Any], is_newest: bool) -> None:
    """Error unless all files are there with the right size, the small ones intact (``load_tree`` checks the rest)."""
    # An older snapshot may be losing its buffers just now; half of them is damage in the newest.
    half_gone = is_newest and bool(manifest["buffers"]) and (folder / f"{BUFFERS}.safetensors").exists()
    kept = manifest["buffers"] if half_gone or _has_buffers(folder, manifest) else {}
    for name, expected in {**manifest["files"], **kept}.items():
        with damage(folder / _MANIFEST, SnapshotError):
            path = folder / check_plain_name(name)
            if not isinstance(expected, dict) or expected.keys() != {"size", "crc32"}:
                raise DamagedFileError(f"it is damaged (no checksum of {name})")
        if not os.path.lexists(path):
            raise SnapshotError(f"{path} is missing")
        with damage(path, SnapshotError), open_plain(path) as file:
            if size_of(file) != expected["size"]:
                raise DamagedFileError(f"it has {size_of(file)} bytes instead of {expected['size']}")
            if path.suffix == ".json" and file_sum(file) != expected:
                raise DamagedFileError("it is damaged (checksum mismatch)")


def _checksum_of(manifest: Mapping[str, Any]) -> int:
    """Checksum of the content of a manifest, however it is laid out."""
    content = {key: value for key, value in manifest.items() if key != _CHECKSUM}
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _drop(folder: Path) -> None:
    """Remove a snapshot that counts no more; training does not end where that fails."""
    with contextlib.suppress(OSError):
        remove_folder(folder, SNAPSHOT)


class Snapshotter:
    """Writes the snapshots of a run and keeps those that its mode asks for.

    Modes (k is the number of finished epochs): ``all`` keeps every one; ``last`` the newest; ``gap`` one every
    ``snapshot_gap`` epochs; ``gap_overwrite`` the newest of those; ``gap_and_last`` those of ``gap`` and the newest;
    ``none`` writes nothing. Replay buffers are kept in the newest snapshot only; of large ones, each snapshot writes
    what is new, and links the files of the one before for all else (in blocks of 4 MiB). Old snapshots are removed only
    when the new one is on disk, so that a kill at any moment leaves as many as are to be kept.

    Args:
        snapshot_dir: Folder of the run.
        snapshot_mode: One of the modes above.
        snapshot_gap: Epochs between snapshots in the gap modes.
        keep_last: How many newest ones are kept where the mode keeps the newest: of ``last``, ``gap_overwrite`` and
            ``gap_and_last``.

    Attributes:
        pinned: Number of epochs after which a snapshot is written, and kept in every mode; ``None`` for none.
    """

    def __init__(
        self, snapshot_dir: str | Path, snapshot_mode: str = "last", snapshot_gap: int = 1, keep_last: int = 1
    ) -> None:
        SnapshotConfig(snapshot_dir, snapshot_mode, snapshot_gap, keep_last)  # which checks them
        self.snapshot_dir = check_path("snapshot_dir", snapshot_dir)
        self.snapshot_mode = snapshot_mode
        self.snapshot_gap = snapshot_gap
        self.keep_last = keep_last
        self.pinned: int | None = None
        self._rows: RowFiles | None = None

    def wants(self, iteration: int) -> bool:
        """Whether there is to be a snapshot after ``iteration`` epochs."""
        if self.snapshot_mode == "none":
            return False
        return iteration == self.pinned or self._mode_wants(iteration)

    def _mode_wants(self, iteration: int) -> bool:
        return self.snapshot_mode in ("all", "last", "gap_and_last") or iteration % self.snapshot_gap == 0

    def save(self, iteration: int, trees: Mapping[str, Any], manifest: Mapping[str, Any]) -> Path | None:
        """Write a snapshot and remove those (and the buffers) that are no longer kept; its folder, or ``None``.

        Args:
            iteration: Number of finished epochs.
            trees: Name -> state tree; the one called ``"buffers"`` is kept in the newest snapshot only.
            manifest: More entries for ``manifest.json`` (``algorithm``, ``fingerprint``, ``metrics_offset``).
        """
        if not self.wants(iteration):
            return None
        root = self.snapshot_dir / _FOLDER
        refuse_link(root)
        root.mkdir(parents=True, exist_ok=True)
        temporary = root / f".tmp-{iteration:06d}"
        free_name(temporary, SNAPSHOT)
        temporary.mkdir()
        rows = RowFiles(temporary, self._rows)
        try:
            self._write(temporary, iteration, trees, manifest, rows)
        except BaseException:
            _drop(temporary)
            raise
        target = root / f"{iteration:06d}"
        if target.exists():
            replaced = root / f".{iteration:06d}.old"
            free_name(replaced, SNAPSHOT)
            move_folder(target, replaced)
        move_folder(temporary, target)
        rows.settle(target)
        self._rows = rows
        flush_folder(root)
        self._tidy(iteration)
        return target

    @staticmethod
    def _write(
        folder: Path, iteration: int, trees: Mapping[str, Any], manifest: Mapping[str, Any], rows: RowFiles
    ) -> None:
        files: dict[str, Any] = {}
        buffers: dict[str, Any] = {}
        for name, tree in trees.items():
            if tree is not None:
                is_buffer = name == BUFFERS
                (buffers if is_buffer else files).update(save_tree(folder, name, tree, rows if is_buffer else None))
        versions = dict(package_versions())
        document = {
            "format": _FORMAT,
            "metaroll": versions.pop("metaroll"),
            "packages": versions,
            "iteration": iteration,
            **manifest,
            "files": files,
            "buffers": buffers,
        }
        document = to_plain(document)
        # Last: a folder with a manifest is complete.
        write_json(folder / _MANIFEST, {**document, _CHECKSUM: _checksum_of(document)})
        flush_folder(folder)

    def _tidy(self, newest: int) -> None:
        snapshots = snapshots_of(self.snapshot_dir)
        kept = {newest, self.pinned, *self._kept([iteration for iteration in snapshots if iteration <= newest])}
        for iteration, path in snapshots.items():
            if iteration >= newest:
                continue
            if iteration not in kept:
                # Renamed first: a removal that is interrupted leaves no folder with the name of a snapshot.
                doomed = path.with_name(f".tmp-{iteration:06d}")
                free_name(doomed, SNAPSHOT)
                move_folder(path, doomed)
                _drop(doomed)
            else:
                remove_file(path / f"{BUFFERS}.json")
                remove_file(path / f"{BUFFERS}.safetensors")
                for rows in path.glob(f"{BUFFERS}-*.rows"):
                    remove_file(rows)
        self._remove_replaced()

    def _kept(self, present: Sequence[int]) -> list[int]:
        """The snapshots of ``present``, oldest first, that the mode keeps."""
        wanted = [iteration for iteration in present if self._mode_wants(iteration)]
        if self.snapshot_mode not in _REPLACING:
            return wanted
        lasting = [i for i in wanted if self.snapshot_mode == "gap_and_last" and i % self.snapshot_gap == 0]
        return lasting + wanted[-self.keep_last :]

    def _remove_replaced(self) -> None:
        valid = set(snapshots_of(self.snapshot_dir).values())
        for path in (self.snapshot_dir / _FOLDER).glob(".*.old"):
            if _REPLACED.fullmatch(path.name) and path not in valid:
                _drop(path)

    def clean(self) -> None:
        """Remove incomplete files of a killed process. Only the run that trains in this folder may call it."""
        root = self.snapshot_dir / _FOLDER
        if not root.is_dir():
            return
        for path in root.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                _drop(path)
            elif (match := _REPLACED.fullmatch(path.name)) and not (root / match[1]).exists():
                move_folder(path, root / match[1])
        self._remove_replaced()

    def set_aside_after(self, iteration: int) -> None:
        """Rename snapshots newer than ``iteration`` to ``<iteration>.abandoned``: training continues from an older."""
        for newer, path in sorted(snapshots_of(self.snapshot_dir).items(), reverse=True):
            if newer > iteration:
                abandoned = path.with_name(f"{newer:06d}.abandoned")
                free_name(abandoned, SNAPSHOT)
                move_folder(path, abandoned)

    def load(self, iteration: int | str = "last") -> Snapshot:
        """``load_snapshot`` of this run."""
        return load_snapshot(self.snapshot_dir, iteration)
