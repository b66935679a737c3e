"""Ends whole trees of processes; as a program: the guard, which does so when the process that it guards is gone.

The guard is started as a file, ``python -I -S guard.py``, within some milliseconds. So this module imports next to
nothing, and nothing of this package.

What belongs to a tree is known by three marks, each of which survives what another does not: a variable of the
environment (survives the end of parents, ``setsid`` and ``exec``), an odd limit of a resource (an empty environment,
too; there is none where the system bounds that resource), and parents (no mark needed). A process that is stopped
starts no others, so all are stopped before any is killed.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Collection, Sequence

__all__ = ["FAMILIES", "FIRST_LIMIT", "GUARDED_LIMITS", "GUARD_VARIABLE", "MARK_VARIABLE", "end_trees", "main"]

MARK_VARIABLE = "METAROLL_LINEAGE"
"""Names of the children of ours that a process descends from."""

GUARD_VARIABLE = "METAROLL_GUARD"
"""Marks guards, which are never ended with a tree: each exits when it has done its work."""

FIRST_LIMIT = 1 << 62
"""Limits from here on mark children: of microseconds without a pause at real-time priority, 146,000 years."""

GUARDED_LIMITS = 1 << 24
"""After this many children of a process, less one, their limits are used again; the last one is that of a program."""

FAMILIES = 1 << 37
"""Of this many blocks of limits each process takes one at random: no two programs on a machine have the same."""

_PASSES = 100
"""How often new members of a tree are searched for; only one that keeps starting processes needs many."""

_PROC = "/proc"
_LIMIT_LINE = b"Max realtime timeout"


def end_trees(names: Sequence[str], limits: Collection[int], roots: Sequence[int], groups: Sequence[int] = ()) -> None:
    """Kill ``roots`` and everything that descends from them, or is marked; once for all, since the search takes time.

    Args:
        names: Parts of ``MARK_VARIABLE``.
        limits: The limits that mark them.
        roots: Children of this process that were not waited for.
        groups: Leaders of groups, which are all that is known where the system has no ``/proc``.
    """
    if not os.path.isdir(f"{_PROC}/self"):
        for group in groups:
            _send(-group, signal.SIGKILL)
        return
    marks = [name.encode() for name in names]
    known: dict[int, bool | None] = {}
    new = stopped = set(roots)
    for _ in range(_PASSES):
        for pid in new:
            _send(pid, signal.SIGSTOP)
        new = _family(marks, limits, stopped, known) - stopped
        stopped = stopped | new
        if not new:
            break
    for pid in stopped:
        _send(pid, signal.SIGKILL)


def _family(marks: list[bytes], limits: Collection[int], roots: set[int], known: dict[int, bool | None]) -> set[int]:
    """Living processes that are marked or descend from ``roots``; ``known``: those that were checked before."""
    children: dict[int, list[int]] = {}
    members = []
    for name in os.listdir(_PROC):
        if not name.isdigit():
            continue
        pid = int(name)
        state, parent = _state(name)
        if state in ("Z", "X", ""):
            continue
        if pid not in known:
            known[pid] = _is_marked(name, marks, limits)
        if known[pid] is None:  # a guard
            continue
        children.setdefault(parent, []).append(pid)
        if known[pid] or pid in roots:
            members.append(pid)
    family: set[int] = set()
    members += [child for root in roots for child in children.get(root, ())]
    while members:
        pid = members.pop()
        if pid not in family:
            family.add(pid)
            members += children.get(pid, ())
    return family - {os.getpid()}


def _state(name: str) -> tuple[str, int]:
    """State and parent of a process; an empty state: it is gone."""
    fields = _read(f"{_PROC}/{name}/stat").rpartition(b")")[2].split()
    return (fields[0].decode(), int(fields[1])) if len(fields) > 1 else ("", 0)


def _is_marked(name: str, marks: list[bytes], limits: Collection[int]) -> bool | None:
    """Whether a process is marked; ``None``: it is a guard."""
    environment = _read(f"{_PROC}/{name}/environ")
    if b"\0" + GUARD_VARIABLE.encode() + b"=" in b"\0" + environment:
        return None
    lineage = _lineage(environment)
    if lineage:
        return any(mark in lineage for mark in marks)
    text = _read(f"{_PROC}/{name}/limits") if limits else b""
    words = text.partition(_LIMIT_LINE)[2].split(maxsplit=1)
    return bool(words) and words[0].isdigit() and int(words[0]) in limits


def _lineage(environment: bytes) -> bytes:
    """Names of the children of ours that a process descends from."""
    return (b"\0" + environment).partition(b"\0" + MARK_VARIABLE.encode() + b"=")[2].partition(b"\0")[0]


def _read(path: str) -> bytes:
    """Content of a small file; empty where it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    parts = []
    try:
        while part := os.read(file, 1 << 16):
            parts.append(part)
    except OSError:
        return b""
    finally:
        os.close(file)
    return b"".join(parts)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # it is gone, or not ours
        return


# ------------------------------------------------------------------------------------------------------------ the guard


def main(life: int, parent: int, token: str, first_limit: int, grace: float) -> None:
    """Wait until ``parent`` is gone, and end its children: some at once, the rest after ``grace`` seconds.

    Args:
        life: Descriptor of a pipe, of which children that are to end at once hold the other end. The kernel kills them
            when it closes: they do not outlive this process, either.
        parent: Whom to guard.
        token: How the names of its children begin; those behind ``-k-`` end at once.
        first_limit: The first of ``GUARDED_LIMITS`` marks of children without an environment.
        grace: Seconds for the others to end in order.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    _wait_for_end(parent)
    end_trees([f"{token}-k-"], (), ())
    os.close(life)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and _any_lives(f"{token}-o-".encode()):
        time.sleep(0.2)
    end_trees([token], range(first_limit, first_limit + GUARDED_LIMITS), ())


def _any_lives(name: bytes) -> bool:
    """Whether a child with such a name is alive, rather than only its leftovers."""
    for pid in filter(str.isdigit, os.listdir(_PROC) if os.path.isdir(_PROC) else ()):
        lineage = _lineage(_read(f"{_PROC}/{pid}/environ"))
        last = lineage.rstrip(b";").rpartition(b";")[2]
        if last.startswith(name) and b"processes.child_main" in _read(f"{_PROC}/{pid}/cmdline"):
            return True
    return False


def _wait_for_end(parent: int) -> None:
    waiting = select.poll()
    try:
        waiting.register(os.pidfd_open(parent), select.POLLIN)
        patience = 5.0
    except (AttributeError, OSError):  # not Linux, or gone already
        patience = 0.2
    while os.getppid() == parent:
        waiting.poll(int(1000 * patience))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
    os._exit(0)
