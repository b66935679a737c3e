"""One process at a time writes into a run folder; a lock never outlives its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from metaroll.errors import RunExistsError
from metaroll.training.store import run_lock
from metaroll.training.store.run_lock import LOCK_FILE, RunLock

_HOLD = "import sys, time; from metaroll.training.store.run_lock import RunLock; lock = RunLock(sys.argv[1]); "


def hold(folder: Path, then: str) -> subprocess.Popen[str]:
    """A process that has the lock once it has printed a line."""
    command = [sys.executable, "-c", _HOLD + then, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_told_who_holds_it_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    process = hold(tmp_path, "print('held', flush=True); time.sleep(60)")
    with pytest.raises(RunExistsError, match=rf"is in use by process {process.pid}: wait .* --out"):
        RunLock(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / LOCK_FILE).read_text().startswith(f"{process.pid} ")  # stale, and of no account
    with RunLock(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text().startswith(f"{os.getpid()} ")


def test_released_is_free(tmp_path: Path) -> None:
    process = hold(tmp_path, "lock.release(); print('held', flush=True); time.sleep(60)")
    try:
        RunLock(tmp_path).release()
    finally:
        process.kill()
        process.communicate()


def test_an_unreadable_lock_file_names_nobody(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_bytes(b"\xff\xfe")
    descriptor = os.open(tmp_path / LOCK_FILE, os.O_RDWR)
    try:
        assert run_lock._holder(descriptor) == "another process"
    finally:
        os.close(descriptor)


def test_a_file_system_without_locks_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(run_lock.fcntl, "lockf", unsupported)
    with RunLock(tmp_path):
        pass
