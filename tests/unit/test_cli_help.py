"""Help needs no environment and no extra: of every command and algorithm, and where an environment cannot be made."""

from __future__ import annotations

import json
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
    assert "Number of epochs. (default: that of ALGO in ENV)" in shown and "Seed of everything" in shown
    assert "pearl in ant-dir" not in shown and "--latent-dim" not in shown


@pytest.mark.parametrize("algo", ALGORITHM_NAMES)
def test_help_of_an_algorithm_makes_no_environment(capsys, no_extras, monkeypatch, algo):
    monkeypatch.setattr("gymnasium.make", None)
    shown = help_of(capsys, "train", algo)
    assert f"The defaults shown are those of {algo};" in shown and "(required)" not in shown
    assert f"metaroll train {algo} ENV --help" in shown
    assert main(["train", "--help", algo]) == 0 and " ".join(capsys.readouterr().out.replace("│", " ").split()) == shown


def test_help_of_an_algorithm_has_its_defaults_and_leaves_open_what_the_environment_says(capsys):
    shown = help_of(capsys, "train", "ddpg")
    assert "(default: that of ENV)" in shown.partition("--max-steps INT")[2][:250]
    assert "(default: 10)" in shown.partition("--gradient-steps INT")[2][:200]  # of presets.yaml: sizes, small


def test_help_in_an_environment_that_is_unknown_says_so(capsys):
    shown = help_of(capsys, "train", "ppo", "HalfCheta-v5")
    assert "those of ppo; those of HalfCheta-v5 are unknown: unknown environment 'HalfCheta-v5'; did" in shown


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
    assert "The defaults shown are those of ppo in Pendulum-v1." in shown
    assert "(default: 200)" in shown.partition("--max-steps INT")[2][:250]


def test_names_that_do_not_exist_are_errors_with_help_too(capsys):
    assert main(["train", "pp0", "--help"]) == 2
    assert "did you mean 'ppo'" in capsys.readouterr().err


_LIGHT = ("demo", "resume", "evaluate", "watch", "report", "robustness", "compare", "plot", "check", "list", "doctor")


def test_every_help_without_extras_and_most_without_torch():
    """In a fresh interpreter, in which nothing has been loaded before."""
    names = [usage.split()[0] for usage in _COMMANDS]
    light = [name for name in names if name in _LIGHT or name == "import-log"]
    assert len(light) == len(_LIGHT) + 1
    code = f"""
import contextlib, io, json, sys
for name in {EXTRAS}:
    sys.modules[name] = None
from metaroll.lab.cli.main import main
found = {{}}
with contextlib.redirect_stdout(io.StringIO()):
    for name in {[*light, *(name for name in names if name not in light)]}:
        found[name] = [main([name, "--help"]), "torch" in sys.modules]
with contextlib.redirect_stdout(io.StringIO()) as shown:
    status = main(["train", "ppo", "HalfCheetah-v5", "--help"])
print(json.dumps([found, status, shown.getvalue()]))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found, status, shown = json.loads(done.stdout)
    assert found.keys() == set(names) and all(status == 0 for status, _ in found.values())
    assert [name for name in light if found[name][1]] == []
    shown = " ".join(shown.replace("│", " ").split())
    assert status == 0 and "Number of epochs. (default: 500)" in shown
    assert "those of the preset of HalfCheetah-v5; those of HalfCheetah-v5 are unknown:" in shown
    assert "mujoco" in shown.partition(" are unknown: ")[2].partition("╭")[0].lower()
