"""What the README says works when it is pasted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import run_script

README = Path(__file__).parents[2] / "README.md"


EXPECTED = ["action: [", "20 rollouts, returns [-", "[{'m': 1.0}, {'m': 1.5}, {'m': 1.0}, {'m': 1.5}]"]
"""What each block prints, besides that the bits are the same."""


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def check_output(number: int, shown: str) -> None:
    assert len(blocks()) == len(EXPECTED)
    assert EXPECTED[number] in shown
    assert number == 0 or "bitwise identical: True" in shown


@pytest.mark.usefixtures("lent_pools")
@pytest.mark.parametrize("number", [0, 2])
def test_the_lines_of_python_work(number: int, tmp_path: Path) -> None:
    check_output(number, run_script(tmp_path, blocks()[number]))


@pytest.mark.parametrize("how", ["stdin", pytest.param("file", marks=pytest.mark.slow)])
def test_workers_start_however_python_is_started(how: str, tmp_path: Path) -> None:
    """Also if the script has no __main__ guard, or there is no script (a notebook)."""
    code = blocks()[1]
    script = tmp_path / "script.py"
    script.write_text(code)
    arguments = {"file": [str(script)], "stdin": ["-"]}[how]
    result = subprocess.run(
        [sys.executable, *arguments],
        input=code if how == "stdin" else None,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    check_output(1, result.stdout)


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
