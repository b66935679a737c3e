"""One process at a time writes into a folder; a lock never outlives its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from metaroll.data.folders import locks
from metaroll.data.folders.kinds import LOCK_FILE
from metaroll.data.folders.locks import FolderLock, is_locked
from metaroll.errors import RunExistsError

_HOLD = "import sys, time; from metaroll.data.folders.locks import FolderLock; lock = FolderLock(sys.argv[1]); "


def hold(folder: Path, then: str) -> subprocess.Popen[str]:
    """A process that has the lock once it has printed a line."""
    command = [sys.executable, "-c", _HOLD + then, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_told_who_holds_it_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    process = hold(tmp_path, "print('held', flush=True); time.sleep(60)")
    with pytest.raises(RunExistsError, match=rf"is in use by process {process.pid}: wait .* choose another folder"):
        FolderLock(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / LOCK_FILE).read_text() == f"{process.pid}\n"  # stale, and of no account
    with FolderLock(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()}\n"  # and not the name of the machine


def test_released_is_free(tmp_path: Path) -> None:
    process = hold(tmp_path, "lock.release(); print('held', flush=True); time.sleep(60)")
    try:
        FolderLock(tmp_path).release()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("content", "holder"), [(b"\xff\xfe", "another process"), (b"", "another process"), (b"17 lab-pc\n", "process 17")]
)
def test_a_lock_file_names_its_process_also_one_of_earlier_versions(
    tmp_path: Path, content: bytes, holder: str
) -> None:
    (tmp_path / LOCK_FILE).write_bytes(content)
    descriptor = os.open(tmp_path / LOCK_FILE, os.O_RDWR)
    try:
        assert locks._holder(descriptor) == holder
    finally:
        os.close(descriptor)


def test_a_file_system_without_locks_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(locks.fcntl, "lockf", unsupported)
    with FolderLock(tmp_path):
        pass


@pytest.mark.parametrize("times", [1, 1000])
def test_a_lock_file_that_was_removed_while_it_was_taken_is_no_lock(
    tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its former holder removes it in the moment before it lets go: others would take the next one."""
    lockf, removed = locks.fcntl.lockf, []

    def take(descriptor: int, operation: int) -> None:
        lockf(descriptor, operation)
        if len(removed) < times:
            removed.append(descriptor)
            (tmp_path / LOCK_FILE).unlink()

    monkeypatch.setattr(locks.fcntl, "lockf", take)
    if times > 1:
        with pytest.raises(RunExistsError, match="is made and removed again and again: choose another folder"):
            FolderLock(tmp_path)
    else:
        with FolderLock(tmp_path):
            assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()}\n"


def test_the_first_release_in_a_process_frees_nothing(tmp_path: Path) -> None:
    """The command line and the runner lock one folder; POSIX would free it when either lets go."""
    first, second = FolderLock(tmp_path), FolderLock(tmp_path)
    first.release()
    code = "import sys; from metaroll.data.folders.locks import FolderLock; FolderLock(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert not is_locked(tmp_path)  # by another; and asking frees nothing either
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"in use by process {os.getpid()}" in refused.stderr
    second.release()
    subprocess.run(command, check=True)


def test_a_lock_that_is_a_link_is_refused_and_its_target_kept(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    (run / LOCK_FILE).symlink_to(precious)
    with pytest.raises(RunExistsError, match=r"\.lock must be a plain file"):
        FolderLock(run)
    assert precious.read_text() == "mine"
    assert not is_locked(run)


def test_a_lock_that_is_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK_FILE)
    with pytest.raises(RunExistsError, match="plain file"):
        FolderLock(tmp_path)
    assert not is_locked(tmp_path)
