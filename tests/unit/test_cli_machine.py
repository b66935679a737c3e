"""Processors and memory with the limits of containers, on made-up /proc and /sys (both versions of cgroups)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from metaroll.training.session.machine import Processors, memory, processors

GIB = 2**30


def make(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        # the tightest limit on the way up counts, whichever it is
        (
            {
                "proc/self/cgroup": "0::/user/job\n",
                "sys/fs/cgroup/user/job/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/user/cpu.max": "200000 100000\n",
            },
            2.0,
        ),
        # inside a container the path is often that of the outside, and only the mount itself is there
        ({"proc/self/cgroup": "0::/docker/1f\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/x\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
            },
            3.0,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        ({"proc/self/cgroup": "nonsense\n::\n0::/\n", "sys/fs/cgroup/cpu.max": "many of them\n"}, None),
    ],
)
def test_the_quota_of_a_container_is_found(tmp_path, files, quota):
    found = processors(make(tmp_path, files))
    assert found.quota == quota
    assert 1 <= found.allowed <= found.installed == os.cpu_count()


def test_threads_that_can_be_busy_at_once():
    assert Processors(16, 8, None).usable == 8
    assert Processors(16, 8, 2.9).usable == 2
    assert Processors(16, 8, 0.5).usable == 1
    assert Processors(16, 8, 12.0).usable == 8


def test_memory_is_that_of_the_machine_without_a_limit(tmp_path):
    kibibytes = 8 * GIB // 1024
    root = make(
        tmp_path, {"proc/meminfo": f"MemTotal: {kibibytes} kB\nMemFree: 1 kB\nMemAvailable: {kibibytes // 2} kB\n"}
    )
    assert memory(root) == (8 * GIB, 4 * GIB)


@pytest.mark.parametrize(
    ("cgroup", "folder", "names"),
    [
        ("0::/job\n", "sys/fs/cgroup/job", ("memory.max", "memory.current", "inactive_file")),
        (
            "4:memory:/job\n",
            "sys/fs/cgroup/memory/job",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
)
def test_memory_of_a_container_counts_cached_files_as_free(tmp_path, cgroup, folder, names):
    kibibytes = 8 * GIB // 1024
    root = make(
        tmp_path,
        {
            "proc/meminfo": f"MemTotal: {kibibytes} kB\nMemAvailable: {kibibytes} kB\n",
            "proc/self/cgroup": cgroup,
            f"{folder}/{names[0]}": str(4 * GIB),
            f"{folder}/{names[1]}": str(3 * GIB),
            f"{folder}/memory.stat": f"anon 5\n{names[2]} {GIB}\n",
        },
    )
    assert memory(root) == (4 * GIB, 2 * GIB)  # 4 - (3 - 1)


def test_a_limit_that_is_none_does_not_count(tmp_path):
    root = make(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 1024 kB\n",
            "proc/self/cgroup": "4:memory:/\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory.max": "max",
        },
    )
    assert memory(root) == (2**20, 2**20)


def test_without_proc_the_operating_system_is_asked(tmp_path):
    assert memory(tmp_path).total > 0
