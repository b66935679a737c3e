"""docs/runner.md: its commands and its Python run as they stand, in one process; its tables name what there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
from doc_pages import page, python_blocks

import metaroll
from metaroll.cli.main import main
from metaroll.training.store.snapshots import SnapshotMode, load_snapshot, snapshots_of


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_commands_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaroll.training.session.sessions.draw_pictures", lambda *arguments, **more: [])
    commands = [
        shlex.split(line)
        for block in re.findall(r"```sh\n(.*?)```", page("runner.md"), re.DOTALL)
        for line in block.splitlines()
    ]
    assert [command[1] for command in commands] == ["train", "evaluate", "resume"]
    for command in commands:
        assert main([*command[1:], "--quiet"]) == 0
        if command[1] == "train":
            best = load_snapshot("pole", "best").iteration
            assert set(snapshots_of("pole")) == {best, 4, 5, 6}
    assert max(snapshots_of("pole")) in (7, 8)


def test_the_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in python_blocks(page("runner.md")):
        exec(compile(block, "docs/runner.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "best: {'iteration': " in shown
    assert "trained with 4 200 up to epoch 4" in shown
    assert re.search(r"ended after \d epochs: ", shown)


def test_the_page_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = page("runner.md")
    assert set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE)) >= set(get_args(SnapshotMode)) - {"last"}
    for name in re.findall(r"metaroll\.([A-Z]\w+)", text):
        assert name in metaroll.__all__
    assert main(["resume", "--help"]) == 0
    options = capsys.readouterr().out
    row = next(line for line in text.splitlines() if line.startswith("| `metaroll resume RUN`"))
    for flag in re.findall(r"--[a-z-]+", row):
        assert flag in options, flag
