"""What docs/off_policy.md says works when it is pasted, and at the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_pages import page, python_blocks, run_command


def test_a_learner_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = python_blocks(page("off_policy.md"))
    exec(compile(block, "off_policy.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.split()[-2:] == ["400", "True"]


SMALL = "--epochs 1 --steps-per-epoch 3 --n-train-steps 20 --min-buffer-size 20 --buffer-batch-size 8 --hidden-sizes 8"
SMALL += " --num-episodes 1 --torch-threads 1 --update-to-data 1"
TRAINED = re.findall(r"^(?:\$|   ) metaroll (train .*)$", page("off_policy.md"), flags=re.MULTILINE)
DONE = re.findall(r"^\$ metaroll ((?!train).*)$", page("off_policy.md"), flags=re.MULTILINE)


@pytest.mark.usefixtures("no_pictures")
def test_the_commands_run(tmp_path: Path) -> None:
    """With small numbers."""
    assert len(TRAINED) == 7 and [command.split()[0] for command in DONE] == [
        "watch",
        "evaluate",
        "report",
        "compare",
        "resume",
    ]
    for command in TRAINED:
        assert "60 environment steps" in run_command(tmp_path, f"{command} {SMALL}").replace("\n", " ")
    for command in DONE:
        run_command(tmp_path, command.replace("--epochs 30", "--epochs 2"))
    done = tmp_path / "runs"
    assert (done / "sac-point-robot-0" / "report.html").stat().st_size > 10_000
    assert list((done / "sac-point-robot-0").glob("watch.*"))
