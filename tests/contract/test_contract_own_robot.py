"""What docs/own_robot.md says works when it is pasted."""

from __future__ import annotations

import re

import pytest
from doc_pages import page, python_blocks, run_command, run_script

PAGE = page("own_robot.md")
BLOCKS = python_blocks(PAGE)
SMALL = "--epochs 1 --num-train-tasks 3 --num-test-tasks 2 --meta-batch-size 2 --batch-size 16 --num-tasks-sample 2"
SMALL += " --num-initial-steps 50 --num-steps-prior 50 --num-extra-rl-steps-posterior 50 --num-steps-per-epoch 2"
SMALL += " --hidden-sizes 16 16 --encoder-hidden-sizes 16 --quiet"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_robot.py").write_text(BLOCKS[0])
    return tmp_path


def test_the_blocks_of_python_run(folder):
    assert len(BLOCKS) == 2
    lines = run_script(folder, BLOCKS[1]).splitlines()
    assert len(lines) == 8 and all(re.fullmatch(r"cart of \d\.\d\d kg: return -\d+\.\d", line) for line in lines)


def test_the_commands_run(folder):
    """All except `watch`, which needs a graphics library that not every machine has."""
    *checks, train, watch = re.findall(r"^\$ metaroll (.*)$", PAGE, flags=re.MULTILINE)
    for check in checks:
        name = check.removeprefix("check ")
        assert f"{name} is ready as a family of tasks" in run_command(folder, f"{check} --quick")
    run_command(folder, f"{train.replace('--epochs 20', '')} {SMALL}")
    assert (folder / watch.removeprefix("watch ") / "summary.json").exists()
