"""What the README says works when it is pasted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def code() -> str:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 1
    return blocks[0]


@pytest.mark.parametrize("how", ["file", "-c", "stdin"])
def test_the_lines_of_python_work_however_they_are_run(how: str, tmp_path: Path) -> None:
    """Workers start although the script has no __main__ guard, and where there is no script at all (a notebook)."""
    script = tmp_path / "script.py"
    script.write_text(code())
    arguments = {"file": [str(script)], "-c": ["-c", code()], "stdin": ["-"]}[how]
    result = subprocess.run(
        [sys.executable, *arguments],
        input=code() if how == "stdin" else None,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert "20 rollouts, returns [-" in result.stdout
    assert "bit for bit the same: True" in result.stdout


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
