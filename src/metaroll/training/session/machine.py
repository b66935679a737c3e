"""Processors and memory that this process may use, within the limits of containers."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Memory", "Processors", "memory", "processors"]

_ROOT = Path("/")
# The first version of cgroups writes a number near 2^63 if there is no limit.
_NO_LIMIT = 2**60


class Processors(NamedTuple):
    """``allowed`` of the machine's ``installed`` processors; ``quota`` is how many may be busy on average."""

    installed: int
    allowed: int
    quota: float | None

    @property
    def usable(self) -> int:
        """Number of threads that can be busy at once, at least one."""
        return self.allowed if self.quota is None else max(1, min(self.allowed, math.floor(self.quota)))


class Memory(NamedTuple):
    """Bytes that this process can use at most, and how many of them are free now."""

    total: int
    available: int


def processors(root: Path = _ROOT) -> Processors:
    """Processors of this process. ``root`` is where ``proc`` and ``sys`` lie."""
    installed = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if sys.platform == "linux" else installed
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
    """Each limit and its free part; file pages that the kernel can reclaim count as free."""
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
        _, _, fields = line.partition(":")
        names, _, path = fields.partition(":")
        if controller in names.split(","):
            mounted = root / "sys" / "fs" / "cgroup"
            base = mounted / names if controller else mounted
            base = base if base.is_dir() else mounted / controller
            inner = base / path.lstrip("/")
            yield from [folder for folder in (inner, *inner.parents) if folder == base or base in folder.parents]


def _text(path: Path) -> str:
    """Content of a small file; empty if it does not exist."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _numbers(path: Path) -> dict[str, int]:
    """``name: number`` or ``name number`` per line."""
    rows = [line.replace(":", " ").split() for line in _text(path).splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}
