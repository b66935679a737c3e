"""The fixtures of tests/conftest.py detect the faults that they are meant to detect (design.md 7)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parent.parent / "conftest.py"

CULPRITS = {
    "the state of Python's random": "random.random()",
    "the state of numpy.random": "np.random.rand()",
    "the state of torch's generator": "torch.rand(1)",
    "torch's default dtype": "torch.set_default_dtype(torch.float64)",
    "torch's number of threads": "torch.set_num_threads(torch.get_num_threads() + 1)",
    "torch's gradient mode": "torch.set_grad_enabled(False)",
    "torch's deterministic mode": "torch.use_deterministic_algorithms(True)",
    "NumPy's floating-point error handling": "np.seterr(all='ignore')",
    "multiprocessing's start method": "multiprocessing.set_start_method('spawn', force=True)",
    "left processes behind": "kept.append(subprocess.Popen(['sleep', '60']))",
}


def test_each_culprit_fails_and_the_test_after_it_passes(pytester: pytest.Pytester) -> None:
    lines = ["import multiprocessing, random, subprocess", "import numpy as np, torch", "kept = []"]
    for number, body in enumerate(CULPRITS.values()):
        lines += [f"def test_culprit_{number}():\n    {body}", f"def test_innocent_{number}():\n    pass"]
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8").replace("GRACE_SECONDS = 5.0", "GRACE_SECONDS = 0.2"))
    pytester.makepyfile(
        "\n".join(lines), worker_pools=(CONFTEST.parent / "worker_pools.py").read_text(encoding="utf-8")
    )

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-v", timeout=100)

    result.assert_outcomes(passed=2 * len(CULPRITS), errors=len(CULPRITS))
    for number, what in enumerate(CULPRITS):
        result.stdout.fnmatch_lines([f"*::test_culprit_{number} ERROR*"])
        result.stdout.fnmatch_lines([f"*this test *{what}*"])
