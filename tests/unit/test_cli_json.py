"""``--json`` is one JSON document on standard output, whatever environments, libraries and workers print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from metaroll.lab.cli import main as command_line
from metaroll.lab.cli.main import main
from metaroll.lab.display.json_output import only_json, print_json

LOUD = """
import ctypes, os, sys
import gymnasium, numpy as np
print("at import")
os.write(1, b"descriptor at import\\n")
C = ctypes.CDLL(None)

class Loud(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("reset")
        sys.__stdout__.write("object of before\\n")
        os.system("echo from a child")
        C.printf(b"from C\\n")
        C.fflush(None)  # not into what another test captures
        return np.zeros(1, np.float32), {}

    def step(self, action):
        os.write(1, b"step in " + str(os.getpid()).encode() + b"\\n")
        return np.zeros(1, np.float32), 0.0, False, False, {}
"""
TINY = [
    *("--max-steps", "5", "--epochs", "1", "--steps-per-epoch", "10", "--batch-size", "10"),
    *("--hidden-sizes", "4", "--num-workers", "2"),
]


def test_what_an_environment_and_its_workers_print_goes_to_standard_error(monkeypatch, capfd):
    Path("loud.py").write_text(LOUD)
    monkeypatch.syspath_prepend(os.getcwd())
    assert main(["train", "ppo", "loud:Loud", *TINY, "--out", "r", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["epochs"] == 1
    for text in ("at import", "descriptor at import", "reset", "object of before", "from a child", "from C"):
        assert text in err
    assert len({line for line in err.splitlines() if line.startswith("step in ")}) >= 2


def test_after_an_error_there_is_nothing_on_standard_output(monkeypatch, capfd):
    Path("broken.py").write_text(LOUD.replace('print("reset")', "raise ValueError('no robot')"))
    monkeypatch.syspath_prepend(os.getcwd())
    assert main(["train", "ppo", "broken:Loud", "--max-steps", "5", "--out", "r", "--json"]) == 2
    out, err = capfd.readouterr()
    assert out == "" and "metaroll: error: " in err and "no robot" in err


PROGRAM = """
import atexit, ctypes, os, signal, sys
from metaroll.lab.cli import main
from metaroll.lab.display.json_output import print_json

def loud(arguments):
    atexit.register(print, "at exit")
    atexit.register(sys.__stdout__.write, "object of before at exit\\n")
    print("printed")
    os.write(1, b"written\\n")
    ctypes.CDLL(None).printf(b"from C\\n")
    os.system("echo from a child")
    print_json({"a": 1})
    if arguments[0] == "broken":
        raise ValueError("no robot")
    if arguments[0] == "interrupted":
        os.kill(os.getpid(), signal.SIGINT)
    return 0

main._dispatch = loud
sys.exit(main.main())
"""


@pytest.mark.parametrize(("command", "status"), [("whole", 0), ("broken", 1), ("interrupted", 130)])
def test_a_program_that_ends_has_no_other_output(command, status):
    """What is printed at exit included."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, command, "--json"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == status, done.stderr
    assert (done.stdout == "") if status else (json.loads(done.stdout) == {"a": 1})
    for text in ("printed", "written", "from C", "from a child", "at exit", "object of before at exit"):
        assert text in done.stderr.splitlines()
    assert ("no robot" in done.stderr) == (status == 1)
    assert ("Traceback" in done.stderr) == (status == 1)


def loud(arguments: Any) -> int:
    print("printed")
    os.write(1, b"written\n")
    print_json({"a": 1, "name": "\udcff \N{SNOWMAN}"})
    print("afterwards")
    return 3


@pytest.fixture
def loud_command(monkeypatch):
    monkeypatch.setattr(command_line, "_dispatch", loud)


def test_in_a_process_that_goes_on_all_is_as_before(loud_command, capsys):
    before = sys.stdout, os.fstat(1)
    assert main(["list", "--json"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out) == {"a": 1, "name": "\udcff \N{SNOWMAN}"}
    assert err == "printed\nafterwards\n"
    assert (sys.stdout, os.fstat(1)) == before


def test_descriptors_are_as_before_too(loud_command, capfd):
    opened = len(os.listdir("/dev/fd"))
    assert main(["list", "--json"]) == 3
    out, err = capfd.readouterr()
    assert json.loads(out)["a"] == 1
    assert sorted(err.split()) == ["afterwards", "printed", "written"]
    print("again")
    os.write(1, b"and again\n")
    assert sorted(capfd.readouterr().out.splitlines()) == ["again", "and again"]
    assert len(os.listdir("/dev/fd")) == opened


def test_without_json_nothing_is_moved(loud_command, capsys):
    assert main(["list"]) == 3
    assert capsys.readouterr().out.startswith("printed\n{")


def test_help_with_json_is_help(capsys):
    assert main(["compare", "--json", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: metaroll compare")


def test_a_document_is_written_once_and_not_after_an_error(capsys):
    with only_json(for_good=False):
        print_json({"part": 1})
        print_json({"part": 2})
    assert json.loads(capsys.readouterr().out) == {"part": 2}
    with pytest.raises(ValueError, match="late"), only_json(for_good=False):
        print_json({})
        raise ValueError("late")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("where", "status"),
    [(">&-", 1), *(pytest.param(*one, marks=pytest.mark.slow) for one in (("2>&-", 0), (">/dev/full", 1)))],
)
def test_streams_that_are_closed_or_full(where, status):
    shell = f"'{sys.executable}' -P -m metaroll list runs --json {where}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == status
    if status:
        assert done.stdout == "" and done.stderr.startswith("metaroll: error: ")
    else:
        assert json.loads(done.stdout) == {"runs": []}
