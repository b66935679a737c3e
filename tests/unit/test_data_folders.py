"""Folders are taken in one way: options first, no links, mark, lock; what others have put there is never touched."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import metaroll
from metaroll.data.folders import contents
from metaroll.data.folders.atomic_files import write_atomic
from metaroll.data.folders.contents import (
    clear,
    copy_folder,
    foreign_in,
    free_name,
    remove_folder,
    replace_folder,
    set_aside,
    standing,
)
from metaroll.data.folders.kinds import AGENT, GROUP, INFER, KINDS, LOCK_FILE, MARK_FILE, POSTERIOR, RUN, SIM2REAL
from metaroll.data.folders.links import append_to, truncate_to
from metaroll.data.folders.taking import is_empty, kind_of, refuse_foreign, take, take_new
from metaroll.data.posteriors.folder import Draws, read_draws, write_folder
from metaroll.data.recordings import save_rollouts
from metaroll.errors import LinkError, RecordingError, RunExistsError

PART = "simulations/round-1-from-0000000-0123456789ab.npz"


def put(folder: Path, *names: str) -> Path:
    """The folder, with files of these names."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("metaroll_run: 1\n" if path.suffix == ".yaml" else f"{name}\n")
    return folder


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# -- what it is --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (RUN, ["config.yaml", "metrics.jsonl"]),
        (AGENT, [".saved", "config.yaml"]),
        (GROUP, ["group.yaml", "seed-0/config.yaml"]),
        (POSTERIOR, ["posterior.json", "draws.npz"]),
        (INFER, ["inference.json", "posterior/posterior.json", PART, "report.html"]),
        (INFER, [PART]),  # killed while it simulated
        (SIM2REAL, ["log/rollout_0000.npz", f"inference/{PART}"]),
        (SIM2REAL, ["sim2real.json", "log/rollout_0000.npz", "policies/nominal/config.yaml"]),
        (None, ["config.yml", "log/thesis.tex", "report.html", "inference.json"]),
        (None, ["log/rollout_0000.npz"]),
        (None, ["posterior/thesis.tex"]),
    ],
)
def test_folders_of_earlier_versions_have_no_mark_and_are_known_by_what_is_in_them(tmp_path, kind, names) -> None:
    put(tmp_path / "f", *names)
    assert kind_of(tmp_path / "f") is kind
    if kind is not None and kind is not AGENT:
        with take(tmp_path / "f", kind):
            assert json.loads((tmp_path / "f" / MARK_FILE).read_text()) == {"kind": kind.name, "format": 1}
        assert set(files(tmp_path / "f")) == {*names, MARK_FILE, LOCK_FILE}


def test_a_configuration_of_another_program_is_no_sign(tmp_path) -> None:
    (tmp_path / "config.yaml").write_text("model: x\nnot_metaroll_run: 1\n")
    assert kind_of(tmp_path) is None


@pytest.mark.parametrize("name", list(KINDS))
def test_a_new_folder_is_of_its_kind_from_then_on(tmp_path, name) -> None:
    folder = tmp_path / "deep" / "new"
    take(folder, KINDS[name]).release()
    assert kind_of(folder) is KINDS[name]
    assert is_empty(folder)  # so far
    assert foreign_in(folder, KINDS[name].layout) == []


@pytest.mark.parametrize(
    "mark", [b"{", b"[]", b'{"kind": "dish", "format": 1}', b'{"kind": "run", "format": 9}', b"\xff"]
)
def test_a_mark_of_a_later_version_is_an_error(tmp_path, mark) -> None:
    (tmp_path / MARK_FILE).write_bytes(mark)
    (tmp_path / "config.yaml").write_text("metaroll_run: 1\n")
    with pytest.raises(RunExistsError, match=r"\.metaroll (is damaged|has format 9).*another folder"):
        take(tmp_path, RUN)


def test_what_others_have_written_is_refused_by_name_and_left(tmp_path) -> None:
    put(tmp_path, "thesis.tex", "log/a", "b", "c", "d")
    for kind in KINDS.values():
        with pytest.raises(RunExistsError, match=r"is not an? .*: it holds b, c, d.*choose another folder$"):
            take(tmp_path, kind)
        with pytest.raises(RunExistsError):
            take_new(tmp_path, kind)
    assert files(tmp_path) == ["b", "c", "d", "log/a", "thesis.tex"]


def test_a_folder_of_another_kind_is_refused(tmp_path) -> None:
    put(tmp_path, "config.yaml")
    with pytest.raises(RunExistsError, match="is a run, not an inference"):
        refuse_foreign(tmp_path, INFER)
    take(tmp_path, RUN).release()
    with pytest.raises(RunExistsError, match="is a run, not a saved agent"):
        take(tmp_path, AGENT)


def test_a_saved_agent_that_is_trained_further_is_a_run(tmp_path) -> None:
    put(tmp_path, ".saved", "config.yaml")
    take(tmp_path, RUN).release()
    assert kind_of(tmp_path) is RUN


# -- links -------------------------------------------------------------------------------------------------------------


def test_a_folder_may_be_a_link_and_nothing_in_it(tmp_path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    take(tmp_path / "run", RUN).release()
    assert kind_of(tmp_path / "disk") is RUN
    for name in ("metrics.jsonl", "snapshots", MARK_FILE, "tensorboard", "wandb", ".output.log"):
        run = put(tmp_path / f"with-{name}", "config.yaml")
        (run / name).symlink_to(tmp_path / "disk")
        with pytest.raises(LinkError, match=f"{name} is a link"):
            take(run, RUN)
    run = put(tmp_path / "deep", "config.yaml", "snapshots/000001/manifest.json")
    (run / "snapshots" / ".tmp-000002").symlink_to(tmp_path / "disk")
    with pytest.raises(LinkError, match=r"\.tmp-000002 is a link"):
        take(run, RUN)
    run = put(tmp_path / "full", "config.yaml")
    (run / "summary.json").mkdir()  # noticed after training, when results were written
    with pytest.raises(LinkError, match=r"summary\.json must be a plain file"):
        take(run, RUN)
    run = put(tmp_path / "saving", "config.yaml")
    (run / ".kept.4711-0a1b2c3d.tmp").mkdir()  # of an agent that is saved into it now, or was when it was killed
    take(run, RUN).release()
    (put(tmp_path / "notes", "config.yaml") / "notes.txt").symlink_to(tmp_path / "disk")
    take(tmp_path / "notes", RUN).release()  # no name of ours


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_plain_files_are_appended_to_cut_and_replaced(tmp_path, kind) -> None:
    precious = put(tmp_path, "precious") / "precious"
    path = tmp_path / "metrics.jsonl"
    path.symlink_to(precious) if kind == "link" else os.mkfifo(path) if kind == "pipe" else path.mkdir()
    for write in (lambda: append_to(path), lambda: truncate_to(path, 0)):
        with pytest.raises(OSError, match=r"metrics\.jsonl"):
            write()
    if kind == "link":
        with pytest.raises(LinkError, match=r"metrics\.jsonl is a link"):
            write_atomic(path, b"x")
    assert precious.read_text() == "precious\n"


def test_what_is_appended_comes_behind_what_is_there(tmp_path) -> None:
    for text in (b"one\n", b"two\n"):
        with append_to(tmp_path / "log") as file:
            file.write(text)
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"
    truncate_to(tmp_path / "log", 4)
    assert (tmp_path / "log").read_bytes() == b"one\n"


def test_recordings_are_written_through_no_link(tmp_path) -> None:
    rollout = metaroll.rollout("CartPole-v1", lambda obs: 0, max_steps=3)
    (tmp_path / "log").mkdir()
    precious = put(tmp_path, "precious") / "precious"
    (tmp_path / "log" / "rollout_0001.npz").symlink_to(precious)
    with pytest.raises(RecordingError, match=r"rollout_0001\.npz is a link"):
        save_rollouts([rollout, rollout], tmp_path / "log", overwrite=True)
    assert files(tmp_path) == ["log/rollout_0001.npz", "precious"] and precious.read_text() == "precious\n"
    save_rollouts([rollout], tmp_path / "log", overwrite=True)  # the link is no recording of this one
    assert files(tmp_path) == ["log/rollout_0000.npz", "precious"] and precious.read_text() == "precious\n"


# -- removal -----------------------------------------------------------------------------------------------------------

WRITTEN = [
    *("config.yaml", "metrics.jsonl", "summary.json", "report.html", "watch.mp4", "robustness-mass.png", "wandb.json"),
    *("snapshots/000012/manifest.json", "snapshots/000012/algorithm.json", "snapshots/000012/buffers-0-1.rows"),
    *("snapshots/.tmp-000013/algorithm.safetensors", "snapshots/000014.abandoned/manifest.json"),
    *("snapshots/.000012.old/manifest.json", "tensorboard/events.out.tfevents.17.x", ".summary.json.5-0a1b2c3d.tmp"),
    "evaluation-000014.abandoned",
]
FOREIGN = ["notes.txt", "snapshots/000012/notes.txt", "snapshots/best/manifest.json", "tensorboard/x", "wandb/run/log"]


def test_what_we_wrote_is_removed_by_name_and_nothing_else(tmp_path) -> None:
    put(tmp_path / "run", *WRITTEN, *FOREIGN)
    assert foreign_in(tmp_path / "run", RUN.layout) == sorted(
        {*FOREIGN[:2], "snapshots/best", "tensorboard/x", "wandb/run"}
    )
    assert not remove_folder(tmp_path / "run", RUN.layout)
    assert files(tmp_path / "run") == sorted(FOREIGN)
    put(tmp_path / "pure", *WRITTEN, LOCK_FILE, MARK_FILE)
    assert remove_folder(tmp_path / "pure", RUN.layout)
    assert not (tmp_path / "pure").exists()
    assert remove_folder(tmp_path / "pure", RUN.layout)  # again


def test_a_removal_that_was_interrupted_can_be_repeated(tmp_path, monkeypatch) -> None:
    for most in range(len(WRITTEN)):
        run = put(tmp_path / str(most), *WRITTEN)
        removed: list[str] = []

        def dies(path: str, removed: list[str] = removed, most: int = most) -> None:
            if len(removed) == most:
                raise KeyboardInterrupt
            removed.append(path)
            Path(path).unlink(missing_ok=True)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(contents, "remove_file", dies)
            remove_folder(run, RUN.layout)
        assert kind_of(run) is RUN  # known by what goes last
        assert remove_folder(run, RUN.layout)


def test_only_some_names_may_be_removed(tmp_path) -> None:
    put(tmp_path, *WRITTEN, "snapshots/000012/notes.txt")
    clear(tmp_path, RUN.layout, ("metrics.jsonl", "snapshots"))
    left = files(tmp_path)
    assert "summary.json" in left and "metrics.jsonl" not in left
    assert [name for name in left if name.startswith("snapshots")] == ["snapshots/000012/notes.txt"]


def test_nothing_is_removed_through_a_link(tmp_path) -> None:
    put(tmp_path / "other", "manifest.json")
    (put(tmp_path / "run", "config.yaml", "snapshots/a") / "snapshots" / "000001").symlink_to(tmp_path / "other")
    for remove in (remove_folder, clear):
        with pytest.raises(LinkError, match="000001 is a link"):
            remove(tmp_path / "run", RUN.layout)
    with pytest.raises(LinkError, match="000001 is a link"):
        remove_folder(tmp_path / "run" / "snapshots" / "000001", RUN.layout)
    assert files(tmp_path / "other") == ["manifest.json"]


def test_a_name_is_made_free_and_what_others_put_there_is_kept(tmp_path) -> None:
    put(tmp_path / "run", "config.yaml", "notes.txt")
    free_name(tmp_path / "run", RUN.layout)
    assert files(tmp_path) == ["run-2/notes.txt"]


def test_a_copy_holds_what_we_wrote_without_lock_and_mark(tmp_path) -> None:
    put(tmp_path / "run", *WRITTEN, *FOREIGN, LOCK_FILE, MARK_FILE, ".saved")
    copy_folder(tmp_path / "run", tmp_path / "copy", RUN.layout)
    assert files(tmp_path / "copy") == sorted(WRITTEN)
    put(tmp_path / "precious", "key")
    (tmp_path / "run" / "evaluation.json").symlink_to(tmp_path / "precious" / "key")
    with pytest.raises(LinkError, match=r"evaluation\.json is a link"):
        copy_folder(tmp_path / "run", tmp_path / "second", RUN.layout)


# -- other names -------------------------------------------------------------------------------------------------------


def test_an_earlier_one_is_kept_beside_the_new_one(tmp_path) -> None:
    for number in (None, 2, 3):
        held, kept = take_new(tmp_path / "demo", RUN)
        assert kept == (None if number is None else tmp_path / f"demo-{number}")
        put(tmp_path / "demo", "config.yaml", "summary.json")
        held.release()
    assert [kind_of(tmp_path / name) for name in ("demo", "demo-2", "demo-3")] == [RUN] * 3


def test_the_current_folder_is_not_renamed(tmp_path, monkeypatch) -> None:
    (put(tmp_path / "run", "config.yaml") / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "run" / "deep")
    for folder in (tmp_path / "run", Path("..")):
        with pytest.raises(RunExistsError, match="the current folder lies in it"):
            set_aside(folder)


def test_a_replacement_that_was_interrupted_leaves_the_old_or_the_new_one(tmp_path, monkeypatch) -> None:
    rename, calls = os.rename, []

    def dies(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise KeyboardInterrupt
        rename(source, target)

    old, new = put(tmp_path / "p", "posterior.json", "draws.npz"), put(tmp_path / ".p.1-00000000.tmp", "posterior.json")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(contents.os, "rename", dies)
        replace_folder(new, old, POSTERIOR.layout)
    assert not old.exists()
    assert files(standing(old)) == ["draws.npz", "posterior.json"]
    replace_folder(new, old, POSTERIOR.layout)
    assert standing(old) == old and files(tmp_path) == ["p/posterior.json"]


def test_a_posterior_whose_replacement_was_killed_is_read_and_restored(tmp_path) -> None:
    """Row 31: it lay in ``.p.PROCESS-RANDOM.old`` for ever."""
    draws = Draws(("mass",), np.array([[1.0], [2.0]]))
    write_folder(tmp_path / "run" / "posterior", draws, {})
    os.rename(tmp_path / "run" / "posterior", tmp_path / "run" / ".posterior.4711-0a1b2c3d.old")
    for place in (tmp_path / "run", tmp_path / "run" / "posterior"):
        assert read_draws(place).values.tolist() == draws.values.tolist()
    write_folder(tmp_path / "run" / "posterior", Draws(("mass",), np.array([[3.0]])), {})
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["posterior"]
    assert read_draws(tmp_path / "run").values.tolist() == [[3.0]]


def test_a_posterior_does_not_take_files_of_others_with_it(tmp_path) -> None:
    """It did: the whole folder was removed."""
    draws = Draws(("mass",), np.array([[1.0]]))
    write_folder(tmp_path / "p", draws, {})
    put(tmp_path / "p", "thesis.tex")
    with pytest.raises(FileExistsError, match=r"p holds thesis\.tex beside a posterior"):
        write_folder(tmp_path / "p", draws, {})
    assert "thesis.tex" in files(tmp_path / "p")


def test_a_posterior_in_a_folder_that_is_a_link_goes_where_that_points(tmp_path) -> None:
    draws = Draws(("mass",), np.array([[1.0]]))
    (tmp_path / "disk" / "p").mkdir(parents=True)
    (tmp_path / "p").symlink_to(tmp_path / "disk" / "p")
    write_folder(tmp_path / "p", draws, {})
    assert (tmp_path / "p").is_symlink() and read_draws(tmp_path / "disk" / "p").values.tolist() == [[1.0]]
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["p"]


def test_a_folder_in_the_place_of_the_mark_is_no_mark(tmp_path) -> None:
    (tmp_path / "f" / ".metaroll").mkdir(parents=True)
    assert kind_of(tmp_path / "f") is None
    with pytest.raises((RunExistsError, OSError), match=r"/f"):
        take(tmp_path / "f", RUN)
