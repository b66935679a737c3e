"""What docs/own_environment.md says works when it is pasted."""

from __future__ import annotations

import re

import pytest
from doc_pages import page, python_blocks, run_command, run_script

PAGE = page("own_environment.md")
BLOCKS = python_blocks(PAGE)
REPORT = re.search(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_env.py").write_text(BLOCKS[0])
    return tmp_path


def test_the_blocks_of_python_run(folder):
    assert len(BLOCKS) == 5
    assert run_script(folder, BLOCKS[1]).splitlines() == ["Reach 40 10 20", "Pendulum-v1 40 10 200"]
    out = run_script(folder, BLOCKS[2])
    assert "none has moved: True" in out
    assert "80 training and 20 held-out tasks, disjoint; the nearest training task is" in out
    gravity = "print(moon().unwrapped.model.opt.gravity[2])"
    assert run_script(folder, f"{BLOCKS[3]}\n{gravity}").split() == ["-1.62"]
    trials, returns = run_script(folder, BLOCKS[4]).splitlines()
    assert trials.split() == ["100", "30", "(8,)", "[0", "1", "2]"]
    assert returns.startswith("returns of the episodes: [")


def test_the_report_is_the_one_that_is_shown(folder):
    """Line by line; long lines are cut off on the page."""
    assert REPORT
    shown = REPORT.group(1).splitlines()
    code = "from metaroll.lab import check_task_env; from my_env import family; print(check_task_env(family))"
    out = run_script(folder, code)
    for line, found in zip(shown, out.splitlines(), strict=False):
        assert found.startswith(line)
    assert out.splitlines()[len(shown) + 1] == "Cart is ready as a family of tasks"


def test_the_commands_run(folder):
    commands = re.findall(r"^\$ metaroll (.*)$", PAGE, flags=re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["check", "train", "evaluate"]
    assert "my_env:family is ready as a family of tasks" in run_command(folder, f"{commands[0]} --quick")
    small = "--epochs 1 --num-train-tasks 3 --num-test-tasks 2 --meta-batch-size 2 --batch-size 16 --num-tasks-sample 2"
    small += " --num-initial-steps 50 --num-steps-prior 50 --num-extra-rl-steps-posterior 50 --num-steps-per-epoch 2"
    small += " --hidden-sizes 16 16 --encoder-hidden-sizes 16 --quiet"
    run_command(folder, f"{commands[1].partition(' #')[0]} {small}")
    assert (folder / "runs" / "pearl-my_env-family-0" / "summary.json").exists()
    run_command(folder, f"{commands[2]} --num-tasks 2 --quiet")
