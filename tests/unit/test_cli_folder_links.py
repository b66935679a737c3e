"""Nothing is written through a link in the folder of a run: every command, every name, with files outside."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

import metaroll
from metaroll.data.folders.contents import foreign_in
from metaroll.data.folders.kinds import RUN
from metaroll.data.posteriors.folder import Draws, write_folder
from metaroll.errors import LinkError, RecordingError
from metaroll.lab.cli.main import main
from metaroll.lab.report.report import write_report
from metaroll.training.session.run_config import SeedGroup
from metaroll.training.store.metrics_log import MetricsLog
from metaroll.training.store.run_folder import read_config
from metaroll.training.store.run_store import RunStore
from metaroll.training.store.snapshots import Snapshotter

PPO = {"hidden_sizes": [8], "steps_per_epoch": 60, "batch_size": 30, "epochs": 1, "num_episodes": 2}
COMMANDS = {
    "resume": ["--epochs", "2"],
    "evaluate": [],
    "report": [],
    "watch": [],
    "robustness": ["--param", "pole_mass=0.1"],
}
FILES = [
    *("metrics.jsonl", "summary.json", "config.yaml", "evaluation.json", "task_split.json", "wandb.json"),
    *("learning_curve.png", "adaptation_curve.png", "evaluation.png", "k_shot_curve.png", "robustness-pole_mass.png"),
    *("watch.mp4", "watch.gif", "report.html", ".output.log", ".metaroll", "snapshots/000001/manifest.json"),
]
FOLDERS = ["snapshots", "tensorboard", "wandb", "snapshots/000001", "snapshots/.tmp-000002", "snapshots/.000002.old"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The run of one epoch."""
    place = tmp_path_factory.mktemp("trained")
    (place / "ppo.yaml").write_text(yaml.safe_dump({**PPO, "max_path_length": 10}))
    arguments = ["--config", str(place / "ppo.yaml"), "--out", str(place / "r"), "--quiet"]
    assert main(["train", "ppo", "qcp-st", *arguments]) == 0
    return place / "r"


def state_of(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def linked(trained: Path, place: Path, name: str, is_folder: bool) -> Path:
    """A copy of the run in which ``name`` is a link to what lies outside; the run."""
    run, outside = place / "r", place / "outside" / "precious"
    shutil.copytree(trained, run)
    outside.parent.mkdir()
    path = run / name
    if path.exists():
        path.rename(outside)
    elif is_folder:
        outside.mkdir()
        (outside / "thesis.tex").write_text("mine")
    else:
        outside.write_text("mine")
    path.symlink_to(outside)
    return run


@pytest.mark.usefixtures("empty_charts")
def test_all_that_commands_write_is_known_by_name(trained, tmp_path, pictures) -> None:
    """What is not would never be removed, could be a link, and would be missing in saved agents."""
    shutil.copytree(trained, tmp_path / "r")
    for command, options in COMMANDS.items():
        assert main([command, str(tmp_path / "r"), *options, "--quiet"]) == 0
    written = {path.name for path in (tmp_path / "r").iterdir()}
    assert written >= {"evaluation.json", "report.html", "robustness-pole_mass.csv", "learning_curve.png"}
    assert foreign_in(tmp_path / "r", RUN.layout) == []


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_no_command_writes_through_a_link(trained, tmp_path, capsys, name) -> None:
    run = linked(trained, tmp_path, name, name in FOLDERS)
    before = state_of(tmp_path)
    for command, options in COMMANDS.items():
        assert main([command, str(run), *options]) == 2, command
        err = "".join(capsys.readouterr().err.split())
        # What is read first is named by the reader.
        assert f"{name}isalink,andnothingiswrittenthroughlinks" in err or f"{name}:itisalinkto" in err, command
        assert state_of(tmp_path) == before, command
    assert os.path.islink(run / name)


@pytest.mark.parametrize("name", [*FILES[:3], "snapshots", "tensorboard", ".output.log", "report.html"])
def test_no_command_makes_what_a_link_points_to(trained, tmp_path, capsys, name) -> None:
    shutil.copytree(trained, tmp_path / "r")
    path = tmp_path / "r" / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "new")
    for command, options in COMMANDS.items():
        assert main([command, str(tmp_path / "r"), *options]) == 2
        assert not (tmp_path / "new").exists()
    assert "internal error" not in capsys.readouterr().err


def test_a_lock_that_is_a_link_ends_what_would_need_it(trained, tmp_path, capsys) -> None:
    run = linked(trained, tmp_path, ".lock", is_folder=False)
    before = state_of(tmp_path / "outside")
    assert main(["resume", str(run), "--epochs", "2"]) == 2
    assert "must be a plain file" in " ".join(capsys.readouterr().err.split())
    assert state_of(tmp_path / "outside") == before


@pytest.mark.usefixtures("empty_charts")
def test_the_folder_that_is_named_may_be_a_link(trained, tmp_path) -> None:
    shutil.copytree(trained, tmp_path / "disk")
    (tmp_path / "r").symlink_to(tmp_path / "disk")
    assert main(["resume", str(tmp_path / "r"), "--epochs", "2", "--quiet"]) == 0
    assert main(["report", str(tmp_path / "r"), "--no-pictures", "--quiet"]) == 0
    assert (tmp_path / "disk" / "report.html").is_file()


@pytest.mark.parametrize("command", ["evaluate", "plot", "report", "watch"])
def test_what_out_names_is_no_link_either(trained, tmp_path, capsys, command) -> None:
    (tmp_path / "precious").write_text("mine")
    name = {"evaluate": "evaluation.json", "plot": "a.png", "report": "a.html", "watch": "a.gif"}[command]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "precious")
    out = tmp_path / "out" if command == "evaluate" else tmp_path / "out" / name
    assert main([command, str(trained), "--out", str(out)]) == 2
    assert f"{name}isalink" in "".join(capsys.readouterr().err.split())
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("name", ["seed-0", "seed-1/.output.log", "group.yaml", ".metaroll"])
def test_a_group_does_not_go_on_where_a_name_is_a_link(trained, tmp_path, capsys, name) -> None:
    group = SeedGroup(tmp_path / "g", read_config(trained), (0, 1), jobs=2)
    group.write()
    (tmp_path / "g" / "seed-1").mkdir()
    if (tmp_path / "g" / name).exists():
        (tmp_path / "g" / name).rename(tmp_path / "precious")
    (tmp_path / "g" / name).symlink_to(tmp_path / "precious")
    before = state_of(tmp_path)
    assert main(["resume", str(group.folder)]) == 2
    err = "".join(capsys.readouterr().err.split())
    assert f"{name}isalink" in err or f"{name}:itisalinkto" in err
    assert state_of(tmp_path) == before


@pytest.mark.usefixtures("empty_charts")
def test_python_writes_through_no_link(trained, tmp_path) -> None:
    agent = metaroll.load(trained)
    (tmp_path / "precious").write_text("mine")
    agent.save(tmp_path / "saved")
    (tmp_path / "saved" / "metrics.jsonl").unlink()
    (tmp_path / "saved" / "metrics.jsonl").symlink_to(tmp_path / "precious")
    write_folder(tmp_path / "p", Draws(("a",), np.ones((2, 1))), {})
    (tmp_path / "p" / "draws.npz").unlink()
    (tmp_path / "p" / "draws.npz").symlink_to(tmp_path / "precious")
    (tmp_path / "run").mkdir()
    rollout = metaroll.StepSequence(rewards=np.ones(2), observations=np.zeros((3, 1)), actions=np.zeros((2, 1)))
    for name in ("metrics.jsonl", "report.html", "snapshots", "evaluation.json", "r.npz"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
    log = MetricsLog(tmp_path / "run")
    log.append(0, 1, "train", {"return": 1.0})
    for write in (
        lambda: agent.save(tmp_path / "saved"),
        lambda: agent.evaluate(out=tmp_path / "run", progress=False),
        lambda: write_folder(tmp_path / "p", Draws(("a",), np.ones((2, 1))), {}),
        log.flush,
        lambda: log.truncate(0),
        lambda: write_report(trained, tmp_path / "run" / "report.html"),
        lambda: Snapshotter(tmp_path / "run").save(1, {}, {}),
        lambda: RunStore(tmp_path / "run").begin(True, None),
        lambda: metaroll.save_rollout(rollout, tmp_path / "run" / "r.npz", overwrite=True),
    ):
        with pytest.raises((LinkError, RecordingError), match=r"is a link, .* choose another place($|;)"):
            write()
    assert (tmp_path / "precious").read_text() == "mine"
