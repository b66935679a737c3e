"""What the README says works when it is pasted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


EXPECTED = ["action: [", "20 rollouts, returns [-", "[{'m': 1.0}, {'m': 1.5}, {'m': 1.0}, {'m': 1.5}]"]
"""What each block prints, besides that the bits are the same."""


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize(("number", "how"), [(0, "stdin"), (1, "file"), (1, "-c"), (1, "stdin"), (2, "file")])
def test_the_lines_of_python_work_however_they_are_run(number: int, how: str, tmp_path: Path) -> None:
    """Workers start although the script has no __main__ guard, and where there is no script at all (a notebook)."""
    assert len(blocks()) == len(EXPECTED)
    code = blocks()[number]
    script = tmp_path / "script.py"
    script.write_text(code)
    arguments = {"file": [str(script)], "-c": ["-c", code], "stdin": ["-"]}[how]
    result = subprocess.run(
        [sys.executable, *arguments],
        input=code if how == "stdin" else None,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert EXPECTED[number] in result.stdout
    assert number == 0 or "bitwise identical: True" in result.stdout


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
