"""What docs/off_policy.md says works when it is pasted, and at the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from doc_pages import page, python_blocks, run_command

from metaroll.lab.cli.main import main


def test_a_learner_of_your_own(capsys: pytest.CaptureFixture[str]) -> None:
    config, block = python_blocks(page("off_policy.md"))
    exec(compile(config, "off_policy.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.split() == ["0.98", "500"]
    exec(compile(block, "off_policy.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.split()[-2:] == ["400", "True"]


SMALL = "--epochs 1 --cycles-per-epoch 3 --gradient-steps 20 --warmup-steps 20 --batch-size 8 --hidden-sizes 8"
SMALL += " --num-episodes 1 --torch-threads 1 --update-to-data 1"
TRAINED = re.findall(r"^(?:\$|   ) metaroll (train .*)$", page("off_policy.md"), flags=re.MULTILINE)
DONE = re.findall(r"^\$ metaroll ((?!train).*)$", page("off_policy.md"), flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("algo", "env", "more"),
    [
        ("td3", "Pendulum-v1", ["--random-steps", "10", "--randomize-param", "g=9:11", "--num-test-tasks", "2"]),
        ("dqn", "CartPole-v1", ["--priority-exponent", "0.6", "--dueling"]),
        ("sac", "CartPole-v1", ["--rollout-batch-size", "1", "--priority-exponent", "0.6", "--n-step", "2"]),
        ("tqc", "Pendulum-v1", ["--num-critics", "2", "--num-atoms", "5", "--n-step", "2"]),
        (
            "rsac",
            "Pendulum-v1",
            ["--segment-length", "4", "--burn-in", "2", "--randomize-param", "m=0.5:1.5", "--num-test-tasks", "2"],
        ),
        ("sac", "point-robot", ["--random-steps", "10", "--num-train-tasks", "3", "--num-test-tasks", "2"]),
    ],
)
def test_by_name(algo: str, env: str, more: list[str], tmp_path: Path, capfd: Any) -> None:
    assert main(["train", algo, env, *SMALL.split(), *more, "--out", str(tmp_path / "run")]) == 0
    assert "60 environment steps" in capfd.readouterr().out.replace("\n", " ")


def test_the_commands_run(tmp_path: Path) -> None:
    """With small numbers."""
    assert len(TRAINED) == 8 and [command.split()[0] for command in DONE] == [
        "watch",
        "evaluate",
        "report",
        "compare",
        "resume",
    ]
    for command in TRAINED:
        more = " --segment-length 4 --burn-in 2" if "rsac" in command else ""
        more += " --num-test-tasks 2" if re.search("--(randomize|num-train-tasks)", command) else ""
        assert "60 environment steps" in run_command(tmp_path, f"{command} {SMALL}{more}").replace("\n", " ")
    for command in DONE:
        run_command(tmp_path, command.replace("--epochs 30", "--epochs 2"))
    done = tmp_path / "runs"
    assert (done / "sac-point-robot-0" / "report.html").stat().st_size > 10_000
    assert list((done / "sac-point-robot-0").glob("watch.*"))
