"""Trainings as children: what is read of their messages, how they end, and several at a time."""

from __future__ import annotations

import os
import signal
import time
import tracemalloc

import pytest
from test_processes_children import eventually, gone

from metaroll.processes.child import Child, run_children
from metaroll.processes.log_lines import LogLines, open_log

SAY = "process_programs:say"


@pytest.fixture
def log(tmp_path):
    """A file, what is written into it, and what reads it."""
    path = tmp_path / "log"
    descriptor = open_log(path)
    lines = LogLines(descriptor, ("epoch ",))
    with open(path, "ab", buffering=0) as file:
        yield file, lines
    os.close(descriptor)


def test_lines_are_read_once_and_in_pieces(log):
    file, lines = log
    file.write(b"hello\nepoch 1")
    assert lines.new() == []
    assert lines.words() == "hello\nepoch 1"
    file.write(b"/2\nwarning\r\nnot \xff utf\nepoch 2/2\nlast")
    assert lines.new() == ["epoch 1/2", "epoch 2/2"]
    assert lines.new() == []
    assert lines.words() == "last"


def test_bars_of_progress_are_lines_that_follow_each_other_in_one_place(log):
    file, lines = log
    file.write(b"before\r\n" + b"".join(b"\r %d%% of 100" % i for i in range(100)) + b"\rdone\nafter\r\nend\n")
    assert lines.words() == "before\ndone\nafter\nend"


def test_a_line_that_never_ends_costs_no_memory_and_is_not_read_again(log):
    file, lines = log
    tracemalloc.start()
    begun = time.process_time()
    for _ in range(40):
        file.write(b"x" * 2**20)
        assert lines.new() == []
    seconds, (_, peak) = time.process_time() - begun, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20 and seconds < 2.0
    file.write(b"\nepoch 1\n" + b"noise\n" * 10**5 + b"epoch 2\n" * 2000)
    assert len(lines.new()) == 1000
    file.write(b"end" * 10**5)
    assert len(lines.words()) == 4096


def test_messages_never_go_through_a_link_or_into_a_pipe(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError):
            Child(SAY, ["0"], tmp_path / name)
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_child_that_was_killed_says_so(tmp_path):
    child = Child("process_programs:killed", [], tmp_path / "log", ("epoch ",))
    assert eventually(lambda: child.returncode is not None)
    assert child.new_lines() == ["epoch 1/2"]
    for _ in range(2):
        assert child.last_words() == (
            "last line\nhalf a li\nit was killed by SIGKILL. "
            "If memory ran out (see the system's log, dmesg), run fewer at a time."
        )
        child.close()


def test_children_run_some_at_a_time_and_those_that_fail_are_named(tmp_path):
    running, most, words = set(), [], {}

    def begun(name):
        running.add(name)
        most.append(len(running))

    def ended(name, child):
        running.discard(name)
        words[name] = child.last_words()

    begin = {name: (lambda name=name: Child(SAY, [name, "words of " + name])) for name in ("0", "3", "00")}
    said = {name: [] for name in begin}
    told = lambda name, lines: said[name].extend(lines)  # noqa: E731
    assert run_children(begin, 2, begun=begun, reported=told, ended=ended) == ["3"]
    assert max(most) == 2 and said["00"] == ["00", "words of 00"] and words["3"] == "3\nwords of 3"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_error_meanwhile_ends_all_in_order(error, tmp_path):
    children = []

    def begin(path):
        children.append(Child("process_programs:in_order", [], path))
        return children[-1]

    def told(name, lines):
        if eventually(lambda: all(path.exists() and "ready" in path.read_text() for path in paths)):
            raise error

    paths = [tmp_path / name for name in "ab"]
    with pytest.raises(error):
        run_children({path.name: (lambda path=path: begin(path)) for path in paths}, 2, reported=told)
    assert [child.last_words() for child in children] == ["ready\ntold to end"] * 2
    assert all(gone(child.pid) for child in children)


def test_one_that_does_not_end_in_order_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("metaroll.processes.child.GRACE_SECONDS", 0.5)
    child = Child("process_programs:with_daemons", [str(tmp_path / "pids"), "deaf"])
    assert eventually(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 4)
    time.sleep(0.1)
    child.terminate()
    child.close()
    assert child.returncode == -signal.SIGKILL
    assert eventually(lambda: all(gone(int(pid)) for pid in (tmp_path / "pids").read_text().split()), 2.0)
