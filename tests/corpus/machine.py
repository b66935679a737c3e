"""What the last bits of a training depend on, beside the source."""

from __future__ import annotations

import platform
import re
from importlib import metadata
from pathlib import Path

import numpy as np  # noqa: F401 (see below)
import scipy.linalg  # noqa: F401 (it has a library of its own, which counts whoever has loaded it)
import torch
from threadpoolctl import threadpool_info

_PACKAGES = ("numpy", "scipy", "torch", "gymnasium", "mujoco", "sbi")


def machine() -> dict[str, str]:
    """The processor, the kernels that libraries of linear algebra choose for it, and the versions of packages.

    Where all of this is equal, the same source computes the same bits; where it is not, it may not.
    """
    try:
        named = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        named = None
    pools = sorted(
        f"{pool['internal_api']} {pool['version']} ({pool.get('architecture', 'unknown')})"
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    )
    found = {
        "processor": named[1] if named else platform.processor() or platform.machine(),
        "blas": ", ".join(pools),
        "torch kernels": torch.backends.cpu.get_cpu_capability(),
        "python": ".".join(platform.python_version_tuple()[:2]),
    }
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
