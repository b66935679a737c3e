"""Names that an encoding, or UTF-8, cannot write: consoles, JSON and pages spell them out and raise nothing."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from metaroll.data.doors.yaml_files import read_yaml
from metaroll.data.folders.atomic_files import write_text
from metaroll.lab.cli.main import _escape_unencodable_output, main
from metaroll.lab.display import consoles
from metaroll.training.store.files import write_json
from metaroll.training.store.yaml_files import write_yaml

NAMES = ["a r\N{SNOWMAN}n's \N{PILE OF POO}", os.fsdecode(b"r\xffn")]
TINY = {"epochs": 1, "steps_per_epoch": 40, "num_passes": 1, "batch_size": 40, "hidden_sizes": [4]}
TINY |= {"max_path_length": 20, "num_episodes": 1}


@pytest.fixture(scope="module")
def runs() -> Path:
    folder = Path("runs").absolute()
    Path("tiny.yaml").write_text(yaml.safe_dump(TINY))
    for name in NAMES:
        out = str(folder / name)
        assert main(["train", "ppo", "Pendulum-v1", "--config", "tiny.yaml", "--out", out, "--quiet"]) == 0
    other = ["--learning-rate", "0.1", "--out", str(folder / "other")]
    assert main(["train", "ppo", "Pendulum-v1", "--config", "tiny.yaml", *other, "--quiet"]) == 0
    return folder


@pytest.mark.usefixtures("empty_charts")
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_command_line_in_ascii(runs, name, monkeypatch):
    run = str(runs / name)
    commands = [
        ["list", "runs", "--runs", str(runs)],
        ["report", run, "--no-pictures"],
        ["evaluate", run],
        ["resume", run],
        ["compare", run, str(runs / "other")],
        ["plot", run, "--out", str(runs / f"{name}.png")],
        ["evaluate", run + "x"],
        ["train", "ppo", "Pendulum-v1", "--out", run],
        ["train", "ppo", name],
        ["train", "ppo", name, "--help"],
        ["import-log", run + ".csv", "--out", run],
    ]
    out, err = in_ascii(monkeypatch)
    found = [main([*command, *more]) for command in commands for more in ([], ["--json"])]
    told = err.buffer.getvalue().decode("ascii")
    assert "UnicodeEncodeError" not in told and "internal error" not in told
    assert found == [0] * 12 + [2] * 6 + [0] * 2 + [2] * 2, told
    assert out.buffer.getvalue().decode("ascii")


def in_ascii(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Standard output and error of a program whose encoding is ASCII, as ``main`` sets them up."""
    streams = [
        io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors=errors, write_through=True)
        for errors in ("strict", "backslashreplace")
    ]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    _escape_unencodable_output()
    return streams


def test_a_program_in_ascii(runs):
    shell = [sys.executable, "-P", "-m", "metaroll", "list", "runs", "--runs", str(runs)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = subprocess.run(shell, capture_output=True, timeout=100, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"r\\u2603n's \\U0001f4a9" in done.stdout and b"r\\udcffn" in done.stdout


@pytest.mark.usefixtures("empty_charts")
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_paths_in_json_are_those_of_the_files(runs, name, capsys):
    assert main(["report", str(runs / name), "--json"]) == 0
    page = Path(json.loads(capsys.readouterr().out)["file"])
    assert page == runs / name / "report.html"
    page.read_text(encoding="utf-8")


def test_consoles_spell_out_what_a_stream_cannot_take(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    consoles.make_console().print("a \N{RIGHTWARDS ARROW} b \udcff")
    assert stream.buffer.getvalue() == b"a \\u2192 b \\udcff\n"  # type: ignore[attr-defined]


def test_files_keep_half_characters():
    value = {"text": "\udcff \N{SNOWMAN} \\udcff"}
    write_json(Path("a.json"), value)
    assert json.loads(Path("a.json").read_text(encoding="utf-8")) == value
    write_yaml(Path("a.yaml"), value)
    assert read_yaml(Path("a.yaml")) == value
    write_text("a.txt", "\udcff")
    assert Path("a.txt").read_bytes() == b"\\udcff"
