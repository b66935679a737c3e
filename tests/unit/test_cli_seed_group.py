"""Runs of several seeds in processes: what they write where, and that they end with their parent."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from metaroll.data.folders.locks import FolderLock
from metaroll.errors import RunExistsError, SnapshotError
from metaroll.lab.cli.main import main
from metaroll.training.session.machine import processors
from metaroll.training.session.run_config import read_group

SMALL = ["--steps-per-epoch", "40", "--max-steps", "20", "--evaluate-every", "0", "--num-episodes", "1"]
SMALL += ["--hidden-sizes", "4", "--num-passes", "1"]
GROUP = ["--seeds", "2", "--jobs", "2", "--out", "many"]
NOISY = """
import sys
import gymnasium as gym
from metaroll.lab.display import view
view.draw_pictures = lambda *arguments, **options: []
sys.stderr.write("a warning of a driver\\n" * 10_000)
def make():
    if "seed-1" in " ".join(sys.argv):
        raise ValueError("no second one of these")
    return gym.make("Pendulum-v1")
"""


def in_folder(folder: Path, monkeypatch) -> None:
    """As the program does: modules of the current folder are found behind all others."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("seeds", "[-1, 1]", "seeds must be an integer of at least 0, got -1"),
        ("seeds", "[1, 1]", "seeds must be a list of distinct seeds"),
        ("seeds", "[true]", "seeds must be an integer"),
        ("seeds", "[0x1" + "0" * 5000 + "]", "has more than 128 bits"),
        ("jobs", "0", "jobs must be an integer of at least 1, got 0"),
        ("epochs", "[1, 2]", "epochs must be an integer of at least 1, got [1, 2]"),
        ("epochs", "1" + "0" * 30, "epochs must be at most"),
    ],
)
def test_a_damaged_group_is_one_error_that_names_file_and_entry(tmp_path, name, value, words):
    """Negative seeds began a run, lists of epochs and long numbers were internal errors."""
    entries = {"metaroll_run": 1, "algo": "ppo", "env": "e", "seeds": "[0, 1]", "jobs": "1"}
    document = {**entries, "algorithm": "{}", "evaluation": "{}", "run": "{epochs: %s}"}
    text = "".join(f"{key}: {value if key == name else known}\n" for key, known in document.items())
    (tmp_path / "group.yaml").write_text(text % (value if name == "epochs" else 2))
    with pytest.raises(SnapshotError, match=r"group\.yaml: (line 4: )?") as caught:
        read_group(tmp_path)
    assert words in str(caught.value) and "restore the file from a copy" in str(caught.value)


def test_missing_runs_of_an_older_group_hold_out_tasks_as_the_others_did(tmp_path):
    """In processes they held them out as runs of now do."""
    kept = "metaroll_run: 1\nalgo: ppo\nenv: e\nseeds: [0]\nalgorithm: {}\nevaluation: {}\nrun: {epochs: 2%s}\n"
    for more, held_out in (("", "after_training"), (", held_out: independent", "independent")):
        (tmp_path / "group.yaml").write_text(kept % more)
        assert read_group(tmp_path).config["run"]["held_out"] == held_out


def test_runs_that_say_much_share_the_processors_and_one_that_fails_says_why(tmp_path, monkeypatch, capsys):
    in_folder(tmp_path, monkeypatch)
    (tmp_path / "noisy.py").write_text(NOISY)
    (tmp_path / "json.py").write_text("raise RuntimeError('this is not the standard library')")
    before = set(Path(tempfile.gettempdir()).glob("metaroll-*"))
    assert main(["train", "ppo", "noisy:make", *SMALL, "--epochs", "2", *GROUP]) == 2
    captured = capsys.readouterr()
    assert re.search(r"^seed-0: epoch 1/2  sampling 0/40$", captured.out, re.MULTILINE)  # at once
    assert re.search(r"^seed-0: epoch 1/2  40 env steps ", captured.out, re.MULTILINE)
    assert re.search(r"^seed-0: epoch 2/2 ", captured.out, re.MULTILINE)
    assert re.search(r"^many/seed-0 done, return -?[\d.]+$", captured.out, re.MULTILINE)  # of the final evaluation
    assert "no second one of these" in captured.out.partition("many/seed-1 failed")[2]
    assert "1 of 2 runs failed: many/seed-1" in " ".join(captured.err.split())
    options = yaml.safe_load((tmp_path / "many" / "seed-0" / "config.yaml").read_text())["run"]
    assert options["torch_threads"] == max(1, processors().usable // 2)
    assert (tmp_path / "many" / "seed-0" / ".output.log").stat().st_size > 2**16  # more than a pipe holds
    assert set(Path(tempfile.gettempdir()).glob("metaroll-*")) <= before


@pytest.mark.slow
def test_runs_end_with_a_parent_that_is_killed_and_can_go_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "metaroll.lab.cli.main", "train", "ppo", "Pendulum-v1", *SMALL]
    command += ["--epochs", "1000000", *GROUP, "--quiet"]
    parent = subprocess.Popen(command, env=os.environ)
    runs = [tmp_path / "many" / f"seed-{seed}" for seed in (0, 1)]
    try:
        _wait(lambda: all(any((run / "snapshots").glob("[0-9]*")) for run in runs), 90)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    _wait(lambda: all(_is_free(run) for run in runs), 30)
    assert "terminated; continue with: metaroll resume many/seed-0" in (runs[0] / ".output.log").read_text()


def _is_free(run: Path) -> bool:
    try:
        FolderLock(run).release()
    except RunExistsError:
        return False
    return True


def _wait(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s")
        time.sleep(0.05)
