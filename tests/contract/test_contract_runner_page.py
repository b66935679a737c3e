"""The commands and the Python code of docs/runner.md run as they are; names in its tables exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from doc_pages import page, python_blocks, run_command, run_script

import metaroll
from metaroll.lab.cli.main import main
from metaroll.training.store.snapshots import SnapshotMode, load_snapshot, snapshots_of


def test_the_commands_run(tmp_path: Path) -> None:
    lines = "".join(re.findall(r"```sh\n(.*?)```", page("runner.md"), re.DOTALL)).splitlines()
    train, evaluate, resume = (line.removeprefix("metaroll ") for line in lines)
    run_command(tmp_path, train)
    best = load_snapshot(tmp_path / "pole", "best").iteration
    assert set(snapshots_of(tmp_path / "pole")) == {best, 4, 5, 6}
    assert f"after {best} epochs" in run_command(tmp_path, evaluate)
    run_command(tmp_path, resume)
    assert max(snapshots_of(tmp_path / "pole")) in (7, 8)


def test_the_python_runs(tmp_path: Path) -> None:
    shown = run_script(tmp_path, "\n".join(python_blocks(page("runner.md"))))
    assert "best: {'iteration': " in shown
    assert "trained with 4 200 up to epoch 4" in shown
    assert re.search(r"ended after \d epochs: ", shown)


def test_names_on_the_page_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text = page("runner.md")
    assert set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE)) == set(get_args(SnapshotMode))
    for name in re.findall(r"metaroll\.([A-Z]\w+)", text):
        assert name in metaroll.__all__
    assert main(["resume", "--help"]) == 0
    options = capsys.readouterr().out
    row = next(line for line in text.splitlines() if line.startswith("| `metaroll resume RUN`"))
    for flag in re.findall(r"--[a-z-]+", row):
        assert flag in options, flag
