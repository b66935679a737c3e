"""Every example script runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
FAMILIES = {"two_link_arm": ("family", "slow_family")}
"""Those that are no scripts, and their families of tasks."""


@pytest.mark.parametrize(("module", "name"), [(m, name) for m, names in FAMILIES.items() for name in names])
def test_example_families_are_well_made(module: str, name: str) -> None:
    command = [sys.executable, "-m", "metaroll", "check", f"{module}:{name}", "--quick", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER, timeout=110)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["ok"], report


@pytest.mark.parametrize("script", [p for p in EXAMPLES if p.stem not in FAMILIES], ids=lambda path: path.stem)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=110)
    assert result.returncode == 0, result.stderr
    assert "return on tasks it never saw -" in result.stdout
