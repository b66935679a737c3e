"""specs/meta.md 5.3 in the layout of design.md 5: modes, choice, damage, and kills at any moment."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metaroll.errors import SnapshotError
from metaroll.training.store.snapshots import Snapshotter, latest, load_snapshot, snapshots_of

MANIFEST = {"algorithm": "Toy", "fingerprint": "x", "metrics_offset": 0}


def write(snapshotter: Snapshotter, iteration: int) -> Path | None:
    trees = {"algorithm": {"epochs": iteration, "w": np.full(3, iteration)}, "buffers": {"data": np.arange(iteration)}}
    return snapshotter.save(iteration, trees, MANIFEST)


@pytest.mark.parametrize(
    ("mode", "gap", "kept"),
    [
        ("all", 1, [0, 1, 2, 3, 4, 5]),
        ("last", 1, [5]),
        ("gap", 2, [0, 2, 4]),
        ("gap_overwrite", 2, [4]),
        ("gap_and_last", 2, [0, 2, 4, 5]),
        ("none", 1, []),
    ],
)
def test_modes_keep_what_they_say(tmp_path: Path, mode: str, gap: int, kept: list[int]) -> None:
    """specs/meta.md 5.3"""
    snapshotter = Snapshotter(tmp_path, mode, gap)
    written = [write(snapshotter, k) for k in range(6)]
    assert list(snapshots_of(tmp_path)) == kept
    assert latest(tmp_path) == (kept[-1] if kept else None)
    assert [path is not None for path in written] == [snapshotter.wants(k) for k in range(6)]
    for k in kept:
        snapshot = load_snapshot(tmp_path, k)
        assert snapshot.tree("algorithm")["epochs"] == k
        # Only the newest keeps its buffers.
        assert (snapshot.buffers is not None) == (k == kept[-1])
        assert ("buffers.safetensors" in os.listdir(snapshot.path)) == (k == kept[-1])


@pytest.mark.parametrize(
    ("mode", "gap", "message"),
    [
        ("sometimes", 1, "must be one of all, last"),
        ("last", 2, "'last' needs snapshot_gap=1"),
        ("gap_overwrite", 1, "above 1"),
        ("gap", 0, "at least 1"),
        ("all", 1.5, "at least 1"),
    ],
)
def test_modes_are_validated(tmp_path: Path, mode: str, gap: Any, message: str) -> None:
    """specs/meta.md 5.3"""
    with pytest.raises((TypeError, ValueError), match=message):
        Snapshotter(tmp_path, mode, gap)


@pytest.mark.parametrize(
    ("mode", "gap", "keep_last", "kept"),
    [
        ("last", 1, 3, [3, 4, 5]),
        ("last", 1, 9, [0, 1, 2, 3, 4, 5]),
        ("gap_overwrite", 2, 2, [2, 4]),
        ("gap_and_last", 3, 2, [0, 3, 4, 5]),
    ],
)
def test_the_newest_k_are_kept(tmp_path: Path, mode: str, gap: int, keep_last: int, kept: list[int]) -> None:
    snapshotter = Snapshotter(tmp_path, mode, gap, keep_last)
    for k in range(6):
        write(snapshotter, k)
    assert list(snapshots_of(tmp_path)) == kept
    for k in kept:
        assert load_snapshot(tmp_path, k).tree("algorithm")["epochs"] == k


@pytest.mark.parametrize(("mode", "gap"), [("all", 1), ("gap", 2), ("none", 1)])
def test_keep_last_is_refused_where_nothing_is_replaced(tmp_path: Path, mode: str, gap: int) -> None:
    with pytest.raises(ValueError, match=f"keep_last is for snapshot_mode 'last' or .*got 2 with '{mode}'"):
        Snapshotter(tmp_path, mode, gap, 2)
    with pytest.raises(ValueError, match="keep_last must be an integer of at least 1"):
        Snapshotter(tmp_path, keep_last=0)


def test_a_kill_at_any_file_operation_leaves_the_newest_k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished, count = False, 0
    while not finished:
        run = tmp_path / str(count)
        for k in (1, 2, 3):
            write(Snapshotter(run, keep_last=3), k)
        with monkeypatch.context() as patch:
            die_after(patch, count)
            try:
                write(Snapshotter(run, keep_last=3), 4)
                write(Snapshotter(run, keep_last=3), 5)
                finished = True
            except Killed:
                pass
        found = list(snapshots_of(run))
        assert len(found) >= 3, (count, found)
        assert [load_snapshot(run, k).tree("algorithm")["epochs"] for k in found] == found
        count += 1
    assert found == [3, 4, 5]
    assert count > 10


def test_choice_is_numeric_and_first_is_first(tmp_path: Path) -> None:
    """specs/meta.md 5.3 (80 before 120), Q-43"""
    snapshotter = Snapshotter(tmp_path, "all")
    for k in (80, 120, 9):
        write(snapshotter, k)
    (tmp_path / "snapshots" / "notes.txt").write_text("foreign names are nobody's business")
    assert snapshotter.load().iteration == 120
    assert snapshotter.load("first").iteration == 9
    assert snapshotter.load(80).iteration == snapshotter.load("80").iteration == 80
    with pytest.raises(SnapshotError, match="no snapshot after 81 epochs; choose one of 9, 80, 120"):
        snapshotter.load(81)
    for wrong in ("latest", 1.0, True, "-3"):
        with pytest.raises(ValueError, match="from_epoch must be 'last', 'first' or a number"):
            snapshotter.load(wrong)  # type: ignore[arg-type]


def test_a_folder_without_snapshots_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="holds no snapshot: this is not a run folder"):
        load_snapshot(tmp_path)
    (tmp_path / "config.yaml").write_text("algo: pearl\n")
    with pytest.raises(SnapshotError, match=r"stopped before its first one; .*`metaroll resume .*` does"):
        load_snapshot(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(SnapshotError, match=r"finished epochs.* restore the folder .*, or train anew with run_dir="):
        load_snapshot(tmp_path)


def test_damage_names_the_snapshot_and_an_older_one(tmp_path: Path) -> None:
    snapshotter = Snapshotter(tmp_path, "all")
    for k in range(3):
        write(snapshotter, k)
    folder = tmp_path / "snapshots" / "000002"
    keep = tmp_path / "keep"
    shutil.copytree(folder, keep)

    def damaged(name: str, content: bytes | None) -> str:
        shutil.rmtree(folder)
        shutil.copytree(keep, folder)
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)
        with pytest.raises(SnapshotError) as error:
            snapshot = load_snapshot(tmp_path)
            _ = snapshot.tree("algorithm"), snapshot.buffers
        return str(error.value)

    whole = (keep / "algorithm.safetensors").read_bytes()
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])
    text = (keep / "algorithm.json").read_bytes()
    for name, content in [
        ("manifest.json", None),
        ("manifest.json", b"{"),
        ("manifest.json", b'{"format": 1}'),
        ("algorithm.json", None),
        ("algorithm.json", text.replace(b"2", b"3")),
        ("algorithm.safetensors", None),
        ("algorithm.safetensors", whole[:-1]),
        ("algorithm.safetensors", flipped),
        ("buffers.safetensors", None),
    ]:
        message = damaged(name, content)
        assert "000002" in message
        assert "from_epoch=1" in message, (name, message)
    assert load_snapshot(tmp_path, 1).tree("algorithm")["epochs"] == 1
    only = tmp_path / "only"
    write(Snapshotter(only), 0)
    (only / "snapshots" / "000000" / "algorithm.json").unlink()
    with pytest.raises(SnapshotError, match="there is no other snapshot"):
        load_snapshot(only)


def test_another_format_names_its_writer(tmp_path: Path) -> None:
    path = write(Snapshotter(tmp_path), 0)
    assert path is not None
    manifest = json.loads((path / "manifest.json").read_text())
    assert {"metaroll", "packages", "iteration", "files", *MANIFEST} <= set(manifest)
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": 7, "metaroll": "9.9"}))
    with pytest.raises(SnapshotError, match=r"format 7, this metaroll reads 1: it was written by metaroll 9\.9"):
        load_snapshot(tmp_path)


def test_writing_that_fails_loses_nothing(tmp_path: Path) -> None:
    snapshotter = Snapshotter(tmp_path)
    write(snapshotter, 1)
    with pytest.raises(TypeError, match="cannot be saved"):
        snapshotter.save(2, {"algorithm": {"w": np.zeros(2), "bad": object()}}, MANIFEST)
    assert os.listdir(tmp_path / "snapshots") == ["000001"]
    assert load_snapshot(tmp_path).tree("algorithm")["epochs"] == 1


def test_rewinding_sets_newer_snapshots_aside(tmp_path: Path) -> None:
    snapshotter = Snapshotter(tmp_path, "all")
    for k in range(4):
        write(snapshotter, k)
    snapshotter.set_aside_after(1)
    assert list(snapshots_of(tmp_path)) == [0, 1]
    assert sorted(os.listdir(tmp_path / "snapshots"))[2:] == ["000002.abandoned", "000003.abandoned"]


class Killed(BaseException):
    """Stands for SIGKILL: from here on no file is touched any more."""


def die_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let ``count`` changes of the file system happen, then none."""
    left = [count]

    def guarded(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return function(*args, **kwargs)

        return call

    for name in ("replace", "unlink", "mkdir", "rmdir", "truncate"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name)))
    monkeypatch.setattr(shutil, "rmtree", guarded(shutil.rmtree))
    monkeypatch.setattr(Path, "unlink", guarded(Path.unlink))
    monkeypatch.setattr(Path, "mkdir", guarded(Path.mkdir))


@pytest.mark.parametrize("mode", ["last", "all"])
def test_a_kill_at_any_file_operation_leaves_a_whole_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    finished = False
    for count in range(200):
        run = tmp_path / str(count)
        write(Snapshotter(run, mode), 1)
        with monkeypatch.context() as patch:
            die_after(patch, count)
            try:
                write(Snapshotter(run, mode), 2)
                write(Snapshotter(run, mode), 2)  # once more: an old folder of the same name is replaced
                finished = True
            except Killed:
                pass
        snapshot = load_snapshot(run)
        assert snapshot.iteration in (1, 2)
        assert snapshot.tree("algorithm")["epochs"] == snapshot.iteration
        assert snapshot.buffers is not None  # the newest one always has them
        Snapshotter(run, mode).clean()
        assert load_snapshot(run).tree("algorithm")["epochs"] == snapshot.iteration
        write(Snapshotter(run, mode), 3)
        assert list(snapshots_of(run))[-1] == 3
        hidden = [name for name in os.listdir(run / "snapshots") if name.startswith(".")]
        assert hidden == [], (count, hidden)
        if finished:
            break
    assert finished
    assert count > 15


def test_a_manifest_that_was_changed_or_moved_is_refused(tmp_path: Path) -> None:
    path = write(Snapshotter(tmp_path), 3)
    assert path is not None
    manifest = path / "manifest.json"
    whole = manifest.read_text()
    manifest.write_text(whole.replace('"metrics_offset": 0', '"metrics_offset": 1'))
    with pytest.raises(SnapshotError, match=r"manifest.json is damaged \(its checksum differs"):
        load_snapshot(tmp_path)
    manifest.write_text(json.dumps(json.loads(whole)))  # another layout says the same
    assert load_snapshot(tmp_path).iteration == 3
    path.rename(path.with_name("000005"))
    with pytest.raises(SnapshotError, match="belongs to snapshot 3: its folder was renamed or copied"):
        load_snapshot(tmp_path)


def test_half_of_the_newest_buffers_is_damage_and_none_of_them_is_not(tmp_path: Path) -> None:
    path = write(Snapshotter(tmp_path), 3)
    assert path is not None
    (path / "buffers.json").unlink()
    with pytest.raises(SnapshotError, match=r"buffers.json is missing"):
        load_snapshot(tmp_path)
    (path / "buffers.safetensors").unlink()
    assert load_snapshot(tmp_path).buffers is None
