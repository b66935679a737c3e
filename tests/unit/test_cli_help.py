"""Help needs no environment and no extra: of every command and algorithm, and where an environment cannot be made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from metaroll.lab.cli.main import _COMMANDS, main
from metaroll.training.algorithms.registry import ALGORITHM_NAMES, purpose

EXTRAS = [
    *("mujoco", "metaworld", "sbi", "ray", "matplotlib", "PIL", "pandas", "pyarrow", "imageio", "imageio_ffmpeg"),
    *("numba", "tensorboard", "wandb", "minari", "onnx", "onnxruntime", "onnxscript", "envpool", "pygame", "h5py"),
]
BROKEN = "import sys\nprint('hello')\nraise RuntimeError('the robot is off')\n"


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return " ".join(out.replace("│", " ").split())


@pytest.fixture
def no_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in EXTRAS:
        monkeypatch.setitem(sys.modules, name, None)


def test_help_of_train_names_all_algorithms_and_what_every_run_has(capsys, no_extras):
    shown = help_of(capsys, "train")
    assert shown.startswith("usage: metaroll train ALGO ENV ")
    assert all(f"{name} {purpose(name)}" in shown for name in ALGORITHM_NAMES)
    for option in ("--seed INT", "--num-workers INT", "--out DIR", "--json", "metaroll train ALGO --help"):
        assert option in shown
    assert "(default: that of ALGO in ENV)" in shown.partition(" --epochs ")[2][:100]
    assert "pearl in ant-dir" not in shown and "--latent-dim" not in shown


@pytest.mark.parametrize("algo", ALGORITHM_NAMES)
def test_help_of_an_algorithm_makes_no_environment(capsys, no_extras, monkeypatch, algo):
    monkeypatch.setattr("gymnasium.make", None)
    shown = help_of(capsys, "train", algo)
    assert f" those of {algo};" in shown and "(required)" not in shown
    assert f"metaroll train {algo} ENV --help" in shown
    assert main(["train", "--help", algo]) == 0 and " ".join(capsys.readouterr().out.replace("│", " ").split()) == shown


def test_help_of_an_algorithm_has_its_defaults_and_leaves_open_what_the_environment_says(capsys):
    shown = help_of(capsys, "train", "ddpg")
    assert "(default: that of ENV)" in shown.partition("--max-steps INT")[2][:250]
    assert "(default: 10)" in shown.partition("--gradient-steps INT")[2][:200]  # of presets.yaml: sizes, small


def test_help_in_an_environment_that_is_unknown_says_so(capsys):
    shown = help_of(capsys, "train", "ppo", "HalfCheta-v5")
    assert re.search("those of ppo; those of HalfCheta-v5 are unknown: .*'HalfCheta-v5'.*'HalfCheetah-v5'", shown)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (BROKEN, "the robot is off"),
        ("import sys\nsys.exit(3)\n", "3"),
        ("make = 3\n", "broken_here"),
        ("import no_such_package\n", "no_such_package"),
    ],
)
def test_help_in_a_broken_environment(capsys, monkeypatch, code, why):
    Path("broken_here.py").write_text(code)
    monkeypatch.syspath_prepend(".")
    monkeypatch.delitem(sys.modules, "broken_here", raising=False)
    assert main(["train", "ppo", "broken_here:make", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "those of broken_here:make are unknown: " in shown
    assert why in shown.partition(" are unknown: ")[2].partition("╭")[0]
    assert "--steps-per-epoch" in shown


def test_help_with_other_options_that_are_wrong(capsys):
    assert "are unknown: --size needs" not in help_of(capsys, "train", "ppo", "Pendulum-v1")
    for wrong in (["--config", "none.yaml"], ["--size", "huge"], ["--tasks", "nowhere"]):
        shown = help_of(capsys, "train", "ppo", "Pendulum-v1", *wrong)
        assert " are unknown: " in shown and "--steps-per-epoch" in shown


def test_help_in_an_environment_has_its_values(capsys):
    shown = help_of(capsys, "train", "ppo", "Pendulum-v1")
    assert "those of ppo in Pendulum-v1." in shown
    assert "(default: 200)" in shown.partition("--max-steps INT")[2][:250]


def test_names_that_do_not_exist_are_errors_with_help_too(capsys):
    assert main(["train", "pp0", "--help"]) == 2
    assert re.search("'pp0'.*'ppo'", capsys.readouterr().err)


COMMANDS = [usage.split()[0] for usage in _COMMANDS]
LIGHT = ["demo", "resume", "evaluate", "watch", "report", "robustness", "compare", "plot", "check", "list", "doctor"]
LIGHT.append("import-log")
"""Commands whose help does not wait for torch."""


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in LIGHT])
def test_help_of_a_command_needs_no_extras(capsys, no_extras, command):
    assert help_of(capsys, command).startswith(f"usage: metaroll {command} ")


def test_help_needs_no_extras_and_no_torch():
    """In a fresh interpreter, in which nothing has been loaded before."""
    code = f"""
import contextlib, io, json, sys
for name in {EXTRAS}:
    sys.modules[name] = None
from metaroll.lab.cli.main import main
helps = {{}}
for name in {LIGHT}:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        helps[name] = [main([name, "--help"]), shown.getvalue().strip(), "torch" in sys.modules]
print(json.dumps(helps))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    helps = json.loads(done.stdout)
    assert set(LIGHT) < set(COMMANDS) and helps.keys() == set(LIGHT)
    for name, (status, shown, waits_for_torch) in helps.items():
        assert status == 0 and shown.startswith(f"usage: metaroll {name}") and not waits_for_torch, name


def test_help_in_an_environment_whose_package_is_missing_has_its_preset(capsys, no_extras, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    shown = help_of(capsys, "train", "ppo", "HalfCheetah-v5")
    assert "(default: 500)" in shown.partition(" --epochs ")[2][:100]
    assert "those of the preset of HalfCheetah-v5; those of HalfCheetah-v5 are unknown:" in shown
    assert "mujoco" in shown.partition(" are unknown: ")[2].partition("╭")[0].lower()
