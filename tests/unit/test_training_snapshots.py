"""specs/meta.md 5.3 in the layout of design.md 5: modes, choice, damage, and kills at any moment."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metaroll.data.replay.ring_rows import History, RingRows
from metaroll.errors import SnapshotError
from metaroll.training.store.run_store import RunStore
from metaroll.training.store.snapshots import SnapshotConfig, Snapshotter, latest, load_snapshot, snapshots_of

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
        ("lst", 1, "snapshot_mode .*did you mean 'last'"),
        ("last", 2, "'last' needs snapshot_gap=1"),
        ("gap_overwrite", 1, "above 1"),
        ("gap", 0, "at least 1"),
        ("all", 1.5, "at least 1"),
    ],
)
def test_modes_are_validated(tmp_path: Path, mode: str, gap: Any, message: str) -> None:
    """specs/meta.md 5.3"""
    for made in (SnapshotConfig, Snapshotter):
        with pytest.raises((TypeError, ValueError), match=message):
            made(tmp_path, mode, gap)


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
        SnapshotConfig(tmp_path, mode, gap, 2)
    with pytest.raises(ValueError, match="keep_last"):
        SnapshotConfig(tmp_path, keep_last=0)
    with pytest.raises(TypeError, match="snapshot_dir"):
        SnapshotConfig(3)  # pyright: ignore[reportArgumentType]


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
        with pytest.raises(ValueError, match="from_epoch"):
            snapshotter.load(wrong)  # type: ignore[arg-type]


def test_a_folder_without_snapshots_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="holds no snapshot: this is not a run folder"):
        load_snapshot(tmp_path)
    (tmp_path / "config.yaml").write_text("algo: pearl\n")
    with pytest.raises(SnapshotError, match=r"stopped before its first one; .*`metaroll resume .*` does"):
        load_snapshot(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(SnapshotError, match=r"finished epochs.* restore the folder .*, or train again with run_dir="):
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
    with pytest.raises(SnapshotError, match=r"format 7, .* reads format 1: .*metaroll 9\.9"):
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

    for name in ("replace", "rename", "unlink", "mkdir", "rmdir", "ftruncate", "link"):
        monkeypatch.setattr(os, name, guarded(getattr(os, name)))
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
    with pytest.raises(SnapshotError, match=r"manifest.json is damaged \(checksum mismatch"):
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


# ---- rows of replay memories -----------------------------------------------------------------------------------------


def ring_of(count: int, history: History, size: int = 40) -> RingRows:
    """A ring of rows of 1 KiB each, after ``count`` of them came in."""
    memory = np.zeros((size, 1024), dtype=np.uint8)
    for number in range(count):
        memory[number % size] = number % 251
    return RingRows.of(memory[: min(count, size)], count, history)


def write_ring(snapshotter: Snapshotter, iteration: int, rows: RingRows) -> Path:
    path = snapshotter.save(iteration, {"algorithm": {}, "buffers": {"data": rows, "n": iteration}}, MANIFEST)
    assert path is not None
    return path


def written_anew(path: Path) -> set[int]:
    """Blocks that only this snapshot holds."""
    files = path.glob("buffers-0-*.rows")
    return {int(file.stem.rpartition("-")[2]) for file in files if file.stat().st_nlink == 1}


def test_snapshots_write_only_the_rows_that_are_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaroll.training.store.row_files._BLOCK", 4096)  # 4 rows
    snapshotter, history = Snapshotter(tmp_path, "last"), History()
    first = write_ring(snapshotter, 1, ring_of(18, history))
    assert written_anew(first) == {0, 1, 2, 3, 4}
    kept = tmp_path / "kept"  # as "last" removes the snapshot before
    for iteration, count, new in (
        (2, 18, {4}),  # the newest row may have got its action since
        (3, 26, {4, 5, 6}),
        (4, 40, {6, 7, 8, 9}),
        (5, 45, {9, 0, 1}),  # the ring begins anew
        (6, 200, set(range(10))),
    ):
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(tmp_path / "snapshots" / f"{iteration - 1:06d}", kept, copy_function=os.link)
        path = write_ring(snapshotter, iteration, ring_of(count, history))
        assert written_anew(path) == new
        buffers = load_snapshot(tmp_path).buffers
        assert buffers["n"] == iteration and type(buffers["data"]) is np.ndarray
        assert (buffers["data"] == np.asarray(ring_of(count, history))).all()
    # Another past, a new process, and a snapshot that somebody took away: everything is written.
    assert written_anew(write_ring(snapshotter, 7, ring_of(200, History()))) == set(range(10))
    other = Snapshotter(tmp_path, "last")
    assert written_anew(write_ring(other, 8, ring_of(200, history))) == set(range(10))
    shutil.rmtree(tmp_path / "snapshots" / "000008")
    assert written_anew(write_ring(other, 9, ring_of(201, history))) == set(range(10))
    assert (load_snapshot(tmp_path).buffers["data"] == np.asarray(ring_of(201, history))).all()


def test_older_snapshots_give_their_rows_up_and_damage_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metaroll.training.store.row_files._BLOCK", 4096)
    snapshotter, history = Snapshotter(tmp_path, "all"), History()
    first = write_ring(snapshotter, 1, ring_of(18, history))
    second = write_ring(snapshotter, 2, ring_of(20, history))
    assert not list(first.glob("buffers*")) and load_snapshot(tmp_path, 1).buffers is None
    block = second / "buffers-0-2.rows"
    whole = block.read_bytes()
    block.write_bytes(whole[:-1] + b"x")
    with pytest.raises(SnapshotError, match=r"buffers-0-2.rows: it is damaged \(checksum mismatch"):
        _ = load_snapshot(tmp_path).buffers
    block.write_bytes(whole[:-1])
    with pytest.raises(SnapshotError, match="has 4095 bytes instead of 4096"):
        load_snapshot(tmp_path)
    block.unlink()
    with pytest.raises(SnapshotError, match=r"buffers-0-2.rows is missing"):
        load_snapshot(tmp_path)


def test_a_kill_while_rows_are_written_leaves_a_whole_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaroll.training.store.row_files._BLOCK", 4096)
    for count in range(200):
        run, history = tmp_path / str(count), History()
        snapshotter = Snapshotter(run, "all")
        write_ring(snapshotter, 1, ring_of(18, history))
        with monkeypatch.context() as patch:
            die_after(patch, count)
            try:
                write_ring(snapshotter, 2, ring_of(26, history))
                finished = True
            except Killed:
                finished = False
        snapshot = load_snapshot(run)
        rows = ring_of({1: 18, 2: 26}[snapshot.iteration], history)
        assert (snapshot.buffers["data"] == np.asarray(rows)).all()
        if finished:
            return
    raise AssertionError("it never came to its end")


def test_files_of_others_in_snapshots_outlive_them(tmp_path: Path) -> None:
    """They were removed with the folder in which they lay."""
    snapshotter = Snapshotter(tmp_path)
    for k in (1, 2, 3, 2, 3):  # 2 and 3 again, as after a resume from an older one
        path = write(snapshotter, k)
        assert path is not None
        (path / f"notes-{k}.txt").write_text("mine")
        if k == 3:
            snapshotter.set_aside_after(1)
    write(snapshotter, 4)
    assert list(snapshots_of(tmp_path)) == [4] and load_snapshot(tmp_path).tree("algorithm")["epochs"] == 4
    kept = sorted(path.name for path in tmp_path.rglob("notes-*"))
    assert kept == ["notes-1.txt", "notes-2.txt", "notes-2.txt", "notes-3.txt", "notes-3.txt"]


@pytest.mark.parametrize("name", ["summary.json", "evaluation.json"])
def test_a_result_that_cannot_be_read_now_ends_a_resume_before_it_changes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It could be of training that is left, and count again later."""
    snapshotter = Snapshotter(tmp_path, "all")
    for k in (1, 2):
        write(snapshotter, k)
    RunStore(tmp_path, "all").continue_from(load_snapshot(tmp_path), tmp_path, False, None)  # as runs do
    (tmp_path / name).write_text('{"epochs": 2, "epoch": 2}')
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    opened = os.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> int:
        if os.fspath(path) == str(tmp_path / name):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return opened(path, *arguments, **options)

    store = RunStore(tmp_path, "all")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(PermissionError, match=name):
            store.continue_from(load_snapshot(tmp_path, 1), tmp_path, False, None)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    store.continue_from(load_snapshot(tmp_path, 1), tmp_path, False, None)
    assert (tmp_path / f"{name[:-5]}-000002.abandoned").exists() and not (tmp_path / name).exists()


def test_a_run_that_is_overwritten_loses_what_we_wrote_and_nothing_else(tmp_path: Path) -> None:
    write(Snapshotter(tmp_path), 1)
    notes = tmp_path / "snapshots" / "000001" / "notes.txt"
    for path in (notes, tmp_path / "snapshots" / "best.txt", tmp_path / "thesis.tex", tmp_path / "summary.json"):
        path.write_text("mine")
    (tmp_path / "evaluation.json").write_text('{"epoch": 1}')  # of a snapshot that goes
    RunStore(tmp_path).begin(True, None)
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert left.pop(2) == "evaluation-000001.abandoned"
    assert left == [".lock", ".metaroll", "snapshots/000001-2/notes.txt", "snapshots/best.txt", "thesis.tex"]
    assert latest(tmp_path) is None
