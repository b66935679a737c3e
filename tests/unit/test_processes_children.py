"""Processes that this one starts: however it ends, nobody is left, whatever they have started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from metaroll.processes.children import ChildProcess, end_all, guard_pid

PROGRAM = "process_programs:with_daemons"


def eventually(condition, seconds=8.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ignored(pid):
    """Mask of the signals that a process ignores."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("SigIgn:")[2].split()[0], 16)


def pids_in(path: Path, count: int) -> list[int]:
    assert eventually(lambda: path.exists() and len(path.read_text().splitlines()) == count)
    return [int(line) for line in path.read_text().splitlines()]


@pytest.fixture(autouse=True)
def ended(monkeypatch):
    """Ends children of a test that fails."""
    made = []

    class Recorded(ChildProcess):  # type: ignore[misc]
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setitem(globals(), "ChildProcess", Recorded)
    yield
    end_all(made)


@pytest.mark.parametrize("how", ["wait", "stop", "die"])
def test_with_a_child_ends_all_that_it_has_started(how, tmp_path):
    """Also in sessions of their own, with an empty environment, and after the child has died by itself."""
    path = tmp_path / "pids"
    child = ChildProcess(PROGRAM, [str(path), how])
    pids = pids_in(path, 4)
    if how == "die":
        assert child.wait(5.0) == -signal.SIGKILL
        assert not any(gone(pid) for pid in pids if pid != child.pid)
    child.end()
    assert eventually(lambda: all(map(gone, pids)), 2.0)
    assert child.returncode == -signal.SIGKILL
    child.end()  # a second time nothing happens


def test_one_child_ends_and_the_others_go_on(tmp_path):
    paths = [tmp_path / name for name in "ab"]
    children = [ChildProcess(PROGRAM, [str(path), "wait"]) for path in paths]
    first, second = (pids_in(path, 4) for path in paths)
    children[0].end()
    assert eventually(lambda: all(map(gone, first)), 2.0)
    assert not any(map(gone, second))
    end_all(children)
    assert eventually(lambda: all(map(gone, second)), 2.0)


@pytest.mark.parametrize(
    ("at_once", "how", "seconds"),
    [
        ("at once", "wait", 2.0),
        ("at once", "stop", 2.0),
        ("at once", "lock", 2.0),
        ("in order", "wait", 3.0),
        ("in order", "deaf", 4.0),
        ("in order", "stop", 4.0),
    ],
)
def test_nobody_outlives_a_parent_that_is_killed(at_once, how, seconds, tmp_path):
    path = tmp_path / "pids"
    arguments = [sys.executable, str(Path(__file__).with_name("process_programs.py")), "parent", str(path), how]
    with subprocess.Popen([*arguments, at_once]) as program:
        pids = pids_in(path, 6)
        begun = time.monotonic()
        program.kill()
    try:
        assert eventually(lambda: all(map(gone, pids)), seconds), time.monotonic() - begun
    finally:
        for pid in pids:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)


def test_the_guard_is_there_as_long_as_children_are(tmp_path):
    before = guard_pid()
    children = [ChildProcess(PROGRAM, [str(tmp_path / "pids"), "wait"]) for _ in range(2)]
    guard = guard_pid()
    assert guard is not None and before in (None, guard)
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGTSTP)
    mask = sum(1 << number - 1 for number in numbers)
    assert eventually(lambda: ignored(guard) & mask == mask)
    for number in numbers:
        os.kill(guard, number)
    children[0].end()
    assert guard_pid() == guard
    children[1].end()
    assert guard_pid() == before


def test_children_of_a_guard_that_is_killed_end_and_the_next_gets_another():
    code = """
import os, signal, time
from metaroll.processes.children import ChildProcess, end_all, guard_pid
first = ChildProcess("process_programs:in_order")
time.sleep(0.3)
os.kill(guard_pid(), signal.SIGKILL)
assert first.wait(3.0) == -signal.SIGKILL, first.returncode
second = ChildProcess("process_programs:in_order")
time.sleep(0.3)
assert second.returncode is None
end_all([first, second])
assert guard_pid() is None
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, timeout=30)
    assert found.returncode == 0, found.stderr


def test_a_fork_leaves_children_and_guard_alone(tmp_path):
    path = tmp_path / "pids"
    child = ChildProcess(PROGRAM, [str(path), "wait"])
    pids, guard = pids_in(path, 4), guard_pid()
    fork = os.fork()
    if fork == 0:
        child.end()
        os._exit(0 if guard_pid() is None else 1)
    assert os.waitpid(fork, 0)[1] == 0
    assert not any(map(gone, [*pids, guard]))
    child.end()


def test_what_cannot_be_started_leaves_nothing_open(tmp_path):
    before = len(os.listdir("/proc/self/fd")), guard_pid()
    for at_once in (True, False):
        with pytest.raises(OSError):
            ChildProcess(PROGRAM, folder=str(tmp_path / "no such folder"), at_once=at_once)
    assert (len(os.listdir("/proc/self/fd")), guard_pid()) == before


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)", "pass"])
@pytest.mark.parametrize("how", ["start_new_session=True", "env={'DISPLAY': ':1'}", "env={}, start_new_session=True"])
def test_what_a_program_of_ours_starts_by_itself_ends_with_it(how, end) -> None:
    """Environments in the main process may start processes in sessions, and with variables, of their own."""
    code = f"""
import os, subprocess, sys
from metaroll.processes.children import guard_program
guard_program()
helper = subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(60)"], {how})
print(helper.pid, flush=True)
{end}
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False, timeout=30)
    pid, deadline = int(done.stdout), time.monotonic() + 8.0
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_end_of_a_program_leaves_other_programs_alone() -> None:
    """Also those whose marks are the next ones: some trainings on one machine are usual."""
    code = """
import os, sys
os.urandom = lambda count: int(sys.argv[1]).to_bytes(count, "big")
from metaroll.processes.children import guard_program
guard_program()
print("ready", flush=True)
sys.stdin.read()
"""
    with contextlib.ExitStack() as ends:
        programs = [
            ends.enter_context(
                subprocess.Popen([sys.executable, "-c", code, str(mark)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for mark in (1, 0, 2)
        ]
        assert [program.stdout.readline() for program in programs] == 3 * [b"ready\n"]
        limits = [psutil.Process(program.pid).rlimit(psutil.RLIMIT_RTTIME)[0] for program in programs]
        assert len(set(limits)) == 3 and min(limits) >= 1 << 62  # no such time ever passes
        (guard,) = psutil.Process(programs[0].pid).children()
        programs[0].communicate()
        assert eventually(lambda: gone(guard.pid))
        assert [program.poll() for program in programs] == [0, None, None]
        for program in programs[1:]:
            program.communicate()
            assert program.returncode == 0
