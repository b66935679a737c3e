"""What this machine has and can do: processors and memory, GPUs and pictures; all within the limits of containers.

What a driver could crash or hang is tried in a process of its own, with a time limit.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from metaroll.data.doors.json_files import parse_json
from metaroll.lab.checking.report import one_line
from metaroll.processes.children import PIPE, ChildProcess

__all__ = [
    "BACKENDS",
    "MUJOCO_ENV",
    "MUJOCO_GL",
    "Memory",
    "Probe",
    "Processors",
    "memory",
    "picture_problem",
    "probe_backend",
    "processors",
    "without_screen",
]

MUJOCO_ENV = "HalfCheetah-v5"
"""What is drawn to find out whether MuJoCo draws."""

MUJOCO_GL = "MUJOCO_GL"
"""The variable that says what MuJoCo draws with."""

BACKENDS = {"egl": "libegl1", "osmesa": "libosmesa6"}
"""What MuJoCo can draw with where there is no screen (OSMesa without a GPU, too) -> package of Debian that has it."""

_ROOT = Path("/")
# The first version of cgroups writes a number near 2^63 where there is no limit.
_NO_LIMIT = 2**60


# ------------------------------------------------------------------------------------------------ processors and memory
class Processors(NamedTuple):
    """``allowed`` processors of the machine's ``installed`` ones; ``quota`` is how many may be busy on average."""

    installed: int
    allowed: int
    quota: float | None

    @property
    def usable(self) -> int:
        """How many threads can be busy at once, at least one."""
        return self.allowed if self.quota is None else max(1, min(self.allowed, math.floor(self.quota)))


class Memory(NamedTuple):
    """Bytes that this process could use at most, and those of them that are free now."""

    total: int
    available: int


def processors(root: Path = _ROOT) -> Processors:
    """Processors of this process. ``root`` is where ``proc`` and ``sys`` lie."""
    installed = os.cpu_count() or 1
    affinity = getattr(os, "sched_getaffinity", None)  # Linux
    allowed = installed if affinity is None else len(affinity(0))
    return Processors(installed, allowed, min(_quotas(root), default=None))


def _quotas(root: Path) -> Iterator[float]:
    for folder in _cgroups(root, ""):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)
    for folder in _cgroups(root, "cpu"):
        quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)


def memory(root: Path = _ROOT) -> Memory:
    """Memory of this process. ``root`` is where ``proc`` and ``sys`` lie."""
    entries = _numbers(root / "proc" / "meminfo")
    if "MemTotal" in entries:
        total = entries["MemTotal"] * 1024
        available = entries.get("MemAvailable", entries["MemTotal"]) * 1024
    else:  # not Linux
        total = available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit, free in _memory_limits(root):
        total, available = min(total, limit), min(available, free)
    return Memory(total, available)


def _memory_limits(root: Path) -> Iterator[tuple[int, int]]:
    """Limit, and what is left of it; pages of files that the kernel would give back count as free."""
    names = {
        "": ("memory.max", "memory.current", "inactive_file"),
        "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    }
    for controller, (limit_file, usage_file, reclaimable) in names.items():
        for folder in _cgroups(root, controller):
            limit, usage = _text(folder / limit_file), _text(folder / usage_file)
            if limit.isdecimal() and int(limit) < _NO_LIMIT:
                used = int(usage) - _numbers(folder / "memory.stat").get(reclaimable, 0) if usage.isdecimal() else 0
                yield int(limit), max(0, int(limit) - used)


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the cgroup of this process and of those around it; ``""`` means the unified hierarchy."""
    for line in _text(root / "proc" / "self" / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            mounted = root / "sys" / "fs" / "cgroup"
            base = mounted / names if controller else mounted
            base = base if base.is_dir() else mounted / controller
            inner = base / path.lstrip("/")
            yield from [folder for folder in (inner, *inner.parents) if folder == base or base in folder.parents]


def _text(path: Path) -> str:
    """Content of a small file; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _numbers(path: Path) -> dict[str, int]:
    """``name: number`` or ``name number`` per line."""
    rows = [line.replace(":", " ").split() for line in _text(path).splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


# ---------------------------------------------------------------------------------------------------- GPUs and pictures


class Probe(contextlib.AbstractContextManager["Probe"]):
    """A process that runs one function of this module and answers with a dictionary; a context manager.

    Args:
        name: ``"gpu"`` or ``"picture"``.
        arguments: Arguments of the function.
        seconds: When it is given up.
        environment: Variables to set (``None``: to remove).
    """

    def __init__(
        self, name: str, *arguments: str, seconds: float, environment: Mapping[str, str | None] | None = None
    ) -> None:
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._process = ChildProcess(
            "metaroll.training.session.machine:main",
            [name, str(seconds), *arguments],
            environment=environment,
            stdout=PIPE,
            stderr=PIPE,
        )

    def answer(self) -> dict[str, Any]:
        """What the function found; ``{"error": ...}`` if it raised, crashed, or took too long."""
        said = self._process.communicate(max(0.0, self._deadline - time.monotonic()))
        code = self._process.returncode
        if said is None or code is None:
            return {"error": f"no answer within {self._seconds:g} s"}
        output, complaints = said
        with contextlib.suppress(ValueError, IndexError):
            found = parse_json(output.decode(errors="replace").splitlines()[-1])
            if isinstance(found, dict):
                return found
        if code == -signal.SIGALRM:
            return {"error": f"no answer within {self._seconds:g} s"}
        with contextlib.suppress(ValueError):
            code = signal.Signals(-code).name if code < 0 else f"status {code}"
        lines = complaints.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return {"error": f"its process ended with {code}{': ' + last if last else ''}"}

    def __exit__(self, *error: object) -> None:
        """End the process, and what it has started."""
        self._process.end()


def probe_backend(backend: str | None, seconds: float) -> Probe:
    """Draws a picture by MuJoCo with one of ``BACKENDS``, or with what it chooses itself."""
    return Probe("picture", MUJOCO_ENV, seconds=seconds, environment={MUJOCO_GL: backend})


def picture_problem(answer: Mapping[str, Any]) -> str:
    """Why the answer of a probe ``picture`` is no picture; empty if it is one."""
    return str(answer.get("error") or ("the picture is blank" if answer.get("blank") else ""))


@contextlib.contextmanager
def without_screen(seconds: float = 20.0) -> Iterator[str | None]:
    """For the time of the block MuJoCo draws with the first of ``BACKENDS`` that works here, which is returned.

    ``None``, and all is left as it is, where MuJoCo is not in use, MUJOCO_GL says what to take, there is a screen, or
    none of them works (drawing then says what is wrong).
    """
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if "mujoco" not in sys.modules or os.environ.get(MUJOCO_GL) or screen or not sys.platform.startswith("linux"):
        yield None
        return
    for backend in BACKENDS:
        with probe_backend(backend, seconds) as probe:
            if not picture_problem(probe.answer()):
                break
    else:
        yield None
        return
    os.environ[MUJOCO_GL] = backend
    try:
        yield backend
    finally:
        del os.environ[MUJOCO_GL]


def _probe_gpu() -> dict[str, Any]:
    """GPUs that torch can compute on: ``{"devices": [{"name", "total", "free"}]}``."""
    import torch

    torch.cuda.init()
    devices = []
    for index in range(torch.cuda.device_count()):
        torch.ones(2, device=f"cuda:{index}").sum().item()  # the driver may be there, and torch not made for this GPU
        free, total = torch.cuda.mem_get_info(index)
        devices.append({"name": torch.cuda.get_device_name(index), "total": total, "free": free})
    return {"devices": devices}


def _probe_picture(env_id: str) -> dict[str, Any]:
    """Draws a picture of an environment without a window: ``{"shape", "blank", "backend"}``."""
    import gymnasium

    environment = gymnasium.make(env_id, render_mode="rgb_array")
    environment.reset(seed=0)
    picture: Any = environment.render()
    viewer = getattr(getattr(environment.unwrapped, "mujoco_renderer", None), "viewer", None)
    return {
        "shape": list(picture.shape),
        "blank": bool(picture.min() == picture.max()),
        "backend": getattr(viewer, "backend", None),
    }


_PROBES: dict[str, Callable[..., dict[str, Any]]] = {"gpu": _probe_gpu, "picture": _probe_picture}


def main() -> None:
    """Run a probe in this process, print its answer as one line of JSON, and leave."""
    _, name, seconds, *arguments = sys.argv
    signal.setitimer(signal.ITIMER_REAL, float(seconds))  # ends this process, should nobody be left to do it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = _PROBES[name](*arguments)
        except Exception as error:
            found = {"error": one_line(error)}
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)  # drivers crash and hang when an interpreter cleans up
