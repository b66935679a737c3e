"""Damaged files of every format give the whole value or one of our errors, within 1 GiB and 10 s, never a wrong value.

Inputs are made and read in a separate process (``fuzz_child.py``), which measures its memory and has a limit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fuzz_kinds as kinds
import pytest

HERE = Path(__file__).parent
READERS = [name for name in kinds.KINDS if name not in kinds.COMMANDS]
QUICK = 1


def failures(folder: Path, count: int, *names: str, seed: int = 1) -> tuple[int, list[str]]:
    """Number of inputs, and those that failed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(HERE / "fuzz_child.py"), str(folder), str(count), str(seed), *names]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    *failed, last = map(json.loads, done.stdout.splitlines())
    return last["inputs"], [f"{one['kind']}: {one['damage']}: {one['wrong']}" for one in failed]


@pytest.mark.timeout(600)
def test_some_damaged_files_of_every_format(tmp_path: Path) -> None:
    number, failed = failures(tmp_path, QUICK, *READERS, "names")
    assert not failed
    assert number >= 75


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", kinds.KINDS)
def test_many_damaged_files(tmp_path: Path, name: str) -> None:
    number, failed = failures(tmp_path, 0, name, seed=2)
    assert not failed
    assert number >= 90
