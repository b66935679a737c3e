"""Each test runs in a folder and a home of its own, and leaves nothing in the checkout (conftest.py)."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUILTY = """
from pathlib import Path

def test_that_leaves_a_file():
    folder = Path(__file__).parents[1] / "runs" / "left"
    folder.mkdir(parents=True)
    (folder / "here.txt").touch()
"""


@pytest.fixture(scope="module")
def left_by_the_module() -> Path:
    Path("left.txt").touch()
    return Path("left.txt").absolute()


@pytest.mark.parametrize("turn", [1, 2])
def test_every_test_has_an_empty_folder_of_its_own(left_by_the_module, turn):
    here = Path.cwd()
    assert os.listdir() == [] and not here.is_relative_to(ROOT)
    assert left_by_the_module.parent == here.parent and not (here / "runs").exists()
    Path("runs").mkdir()


def test_files_in_the_home_of_the_user_have_no_effect():
    assert Path.home() != Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert Path(os.environ["XDG_CONFIG_HOME"]).is_relative_to(Path.home())


@pytest.mark.slow
def test_a_session_that_leaves_files_in_the_checkout_fails(tmp_path):
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("conftest.py", "worker_pools.py"):
        shutil.copy(ROOT / "tests" / name, tests)
    (tests / "test_guilty.py").write_text(GUILTY)
    (tmp_path / "runs").mkdir()
    os.mkfifo(tmp_path / "runs" / "pipe")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tests)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert f"made or removed in {tmp_path}: runs/left, runs/left/here.txt" in done.stdout
