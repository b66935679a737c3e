"""All that a runner has on disk: the run folder with its metrics and snapshots; without a folder nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from metaroll.data.doors.json_files import read_json_dict
from metaroll.data.doors.plain_files import damage, open_plain, size_of
from metaroll.data.folders.contents import move_file, refuse_links, set_aside
from metaroll.data.folders.kinds import (
    AGENT,
    CONFIG_FILE,
    EVALUATION_FILE,
    RUN,
    SNAPSHOTS,
    SUMMARY_FILE,
    TASK_SPLIT_FILE,
)
from metaroll.data.folders.taking import HeldFolder, kind_of, refuse_foreign, take
from metaroll.errors import DamagedFileError, RunExistsError, SnapshotError, other_folder
from metaroll.training.store.files import number_of, read_json, to_plain, write_atomic
from metaroll.training.store.loggers import MetricLogger
from metaroll.training.store.metrics_log import FILE_NAME, MetricsLog
from metaroll.training.store.snapshots import Snapshot, Snapshotter, same_newest, snapshots_of
from metaroll.training.store.yaml_files import write_yaml

__all__ = ["RunStore", "check_metrics", "check_results_folder", "results_after"]

_BEFORE_THE_RUN = (CONFIG_FILE, TASK_SPLIT_FILE)
_LINE_BYTES = 4096
_OURS = (SUMMARY_FILE, FILE_NAME, SNAPSHOTS)
_MOST_EPOCHS = 10**18
_EPOCHS_IN = {SUMMARY_FILE: "epochs", EVALUATION_FILE: "epoch"}
"""Files of results, and the entry with the number of finished epochs at which they were measured."""


class RunStore:
    """The folder of one run.

    Args:
        run_dir: Folder of the run; ``None`` writes nothing.
        mode: See ``Snapshotter``.
        gap: See ``Snapshotter``.
        keep_last: See ``Snapshotter``.
        loggers: Further receivers of the numbers of the run.
    """

    def __init__(
        self,
        run_dir: str | Path | None,
        mode: str = "last",
        gap: int = 1,
        loggers: Sequence[MetricLogger] = (),
        *,
        keep_last: int = 1,
    ) -> None:
        self.run_dir = None if run_dir is None else Path(run_dir)
        self.snapshotter = None if run_dir is None else Snapshotter(run_dir, mode, gap, keep_last)
        self.metrics = MetricsLog(run_dir, loggers)
        self._held: HeldFolder | None = None

    @property
    def saves(self) -> bool:
        """Whether any snapshot is ever written."""
        return self.snapshotter is not None and self.snapshotter.snapshot_mode != "none"

    @property
    def snapshots(self) -> list[int]:
        """Numbers of finished epochs of the snapshots that there are."""
        return [] if self.run_dir is None else list(snapshots_of(self.run_dir))

    def begin(self, exist_ok: bool, config: Mapping[str, Any] | None) -> None:
        """Make the folder of a new run.

        Args:
            exist_ok: Remove the metrics, summary and snapshots of an earlier run, and set its evaluation aside;
                otherwise they are an error.
            config: Written to ``config.yaml``, unless there is one.

        Raises:
            RunExistsError: There is a run already, or something else.
        """
        if self.run_dir is None:
            return
        _refuse_others(self.run_dir)
        content = _content(self.run_dir)
        if content and not exist_ok:
            raise RunExistsError(
                f"{self.run_dir} exists and holds {', '.join(sorted(content)[:4])}: continue that run with "
                f"runner.restore(...) and runner.resume(), replace it with exist_ok=True, or {other_folder()}"
            )
        folder = self._take(self.run_dir)
        results = results_after(self.run_dir, -1, (EVALUATION_FILE,))
        folder.clear(_OURS)
        for left in snapshots_of(self.run_dir).values():  # others have put files there
            set_aside(left)
        _set_results_aside(results)
        if config is not None and not (self.run_dir / CONFIG_FILE).exists():
            write_yaml(self.run_dir / CONFIG_FILE, to_plain(config))

    def _take(self, run_dir: Path) -> HeldFolder:
        """Take the folder with all that is in it: a program allows this by ``exist_ok``."""
        if self._held is None:
            self._held = take(run_dir, RUN, lambda: None)
        return self._held

    def continue_from(
        self, snapshot: Snapshot, from_dir: Path, exist_ok: bool, config: Mapping[str, Any] | None
    ) -> bool:
        """Bring the folder to where ``snapshot`` was written; whether it is another folder than ``from_dir``."""
        if self.run_dir is None or self.snapshotter is None:
            return False
        offset = snapshot.manifest["metrics_offset"]
        if self.run_dir.resolve() == from_dir.resolve():
            self._take(self.run_dir)
            check_metrics(self.run_dir, snapshot)
            results = results_after(self.run_dir, snapshot.iteration)
            # A kill in between leaves whole snapshots, each of which records where its metrics end.
            self.snapshotter.clean()
            self.snapshotter.set_aside_after(snapshot.iteration)
            self.metrics.truncate(offset)
            _set_results_aside(results)
            return False
        self.begin(exist_ok, config)
        source = from_dir / FILE_NAME
        if source.is_file():
            with damage(source, SnapshotError), open_plain(source) as file:
                write_atomic(self.run_dir / FILE_NAME, file.read(offset))
        return True

    def save(self, iteration: int, trees: Mapping[str, Any], manifest: Mapping[str, Any]) -> Path | None:
        """Write metrics, then a snapshot if the mode asks for one."""
        offset = self.metrics.flush()
        if self.snapshotter is None:
            return None
        return self.snapshotter.save(iteration, trees, {**manifest, "metrics_offset": offset})


def check_results_folder(folder: Path, run: Path | None = None) -> None:
    """Error if an evaluation may not be written into ``folder``, which need not be a run, nor exist.

    Args:
        folder: Where to.
        run: Folder of the run that is evaluated, if it has one.

    Raises:
        LinkError: A name in it that is written to is a link.
        NotADirectoryError: It, or one that it lies in, is a file.
        RunExistsError: It belongs to another agent, is a folder of another kind of ours, or holds an
            ``evaluation.json`` that none of ours has written.
    """
    standing_part = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not standing_part.is_dir():
        raise NotADirectoryError(f"{folder} cannot hold results, since {standing_part} is a file: {other_folder()}")
    refuse_links(folder, RUN.layout)
    path, kind = folder / EVALUATION_FILE, kind_of(folder)
    if kind in (RUN, AGENT) and (run is None or (folder.resolve() != run.resolve() and not same_newest(folder, run))):
        raise RunExistsError(
            f"{folder} holds another agent, and lists and comparisons would take this evaluation for that of it: "
            f"{other_folder()}"
        )
    if kind is not None and kind not in (RUN, AGENT):
        raise RunExistsError(f"{folder} is {kind.what}, and no place for the evaluation of a run: {other_folder()}")
    if kind is not None or not path.exists():
        return
    try:
        ours = {"algo", "env"} <= read_json_dict(path).keys()
    except (DamagedFileError, OSError):
        ours = False
    if not ours:
        raise RunExistsError(f"{path} exists and was not written by metaroll: move it away, or {other_folder()}")


def check_metrics(run_dir: Path, snapshot: Snapshot) -> None:
    """Raise an error if metrics from before the snapshot are missing: later ones would continue a torn line."""
    path, offset = run_dir / FILE_NAME, snapshot.manifest["metrics_offset"]
    if not os.path.lexists(path):
        return  # taken away on purpose
    with damage(path, SnapshotError, "move away what is there now"), open_plain(path) as file:
        size = size_of(file)
        file.seek(max(0, offset - 1))
        whole = size >= offset and (offset == 0 or file.read(1) == b"\n")
    if not whole:
        raise SnapshotError(
            f"{path} was changed after snapshot {snapshot.iteration} was written (a line must end at byte {offset}, "
            f"the file has {size} bytes): restore it from a copy, or move it away to go on without the earlier numbers"
        )


def results_after(run_dir: Path, iteration: int, names: Iterable[str] = tuple(_EPOCHS_IN)) -> dict[Path, int]:
    """Files with results measured after more than ``iteration`` epochs, and after how many.

    A damaged one is none of them: reports name it, and take no numbers from it.

    Args:
        run_dir: Folder of the run.
        iteration: Number of finished epochs.
        names: Names of the files.

    Raises:
        OSError: One cannot be read now; it could count again later.
    """
    found = {}
    for name in names:
        try:
            content = read_json(run_dir / name)
        except (FileNotFoundError, SnapshotError):
            continue
        epochs = number_of(content.get(_EPOCHS_IN[name])) if isinstance(content, Mapping) else 0
        if iteration < epochs < _MOST_EPOCHS:
            found[run_dir / name] = int(epochs)
    return found


def _set_results_aside(results: Mapping[Path, int]) -> None:
    """Rename files to ``<name>-<epochs>.abandoned``.

    Otherwise they would count as the newest ones again once this training reaches the same number of epochs.
    """
    for path, epochs in results.items():
        move_file(path, path.with_name(f"{path.stem}-{epochs:06d}.abandoned"))


def _refuse_others(run_dir: Path) -> None:
    """Error if there is something that is no run: a file, or a folder with files of others alone."""
    unmarked = run_dir.is_dir() and kind_of(run_dir) is None
    # Runs of earlier versions have no mark, and those of a LocalRunner may have no config.yaml.
    if unmarked and (snapshots_of(run_dir) or _has_our_metrics(run_dir) or not _content(run_dir)):
        return
    refuse_foreign(run_dir, RUN)


def _has_our_metrics(run_dir: Path) -> bool:
    """Whether the first line of metrics is one of ours; others use the name of the file, too."""
    path = run_dir / FILE_NAME
    if path.is_symlink() or not path.is_file():
        return path.is_symlink()  # of a link the writer complains
    with open_plain(path) as file:
        line = file.readline(_LINE_BYTES)
    return not line or (b'"phase"' in line and b'"metric"' in line)


def _content(run_dir: Path) -> set[str]:
    """Names in a folder, without the leftovers of a run that was killed before its first snapshot."""
    if not run_dir.exists():
        return set()
    names = {name for name in os.listdir(run_dir) if not name.startswith(".") and name not in _BEFORE_THE_RUN}
    return names if snapshots_of(run_dir) else names - {"snapshots"}
