"""Returns, advantages and random numbers in NumPy and in numba, as multiples of one ``np.cumsum`` of equal length.

python benchmarks/kernels.py            measures, and appends to results/kernels.jsonl
python benchmarks/kernels.py --quick    the same with fewer repetitions, appending nothing
python benchmarks/kernels.py --check    --quick, and status 1 where a bar of the README is missed
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from _reporting import report, report_missing, versions

from metaroll.functional import kernels
from metaroll.functional.advantages import gae
from metaroll.functional.philox import normals_block, stream_keys
from metaroll.functional.returns import discounted_reverse_cumsum_ragged

NUM_ROLLOUTS, LENGTHS = 40 * 20, (100, 301)  # tasks x rollouts of 200 steps on average
ROWS, STEPS = 1024, 16
BARS = {
    ("returns", "numpy"): 8.0,
    ("returns", "numba"): 2.0,
    ("gae", "numpy"): 12.0,
    ("gae", "numba"): 3.0,
    ("normals", "numpy"): 30.0,
    ("normals", "numba"): 20.0,
}
"""Multiples of np.cumsum; for normals, nanoseconds per number (10 more where rows start at different ages)."""


class Case(NamedTuple):
    """One measurement: its name, the function to call, and how many numbers a call computes."""

    what: str
    run: Callable[[], np.ndarray]
    numbers: int
    config: dict


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    bounds = np.concatenate([[0], np.cumsum(rng.integers(*LENGTHS, NUM_ROLLOUTS))])
    rewards, values = rng.normal(size=(2, bounds[-1]))
    terminated = np.zeros(len(rewards), dtype=bool)
    terminated[bounds[1:] - 1] = rng.random(NUM_ROLLOUTS) < 0.5
    final = rng.normal(size=NUM_ROLLOUTS)
    ragged = {"rollouts": NUM_ROLLOUTS, "steps": len(rewards)}
    yield Case("returns", lambda: discounted_reverse_cumsum_ragged(rewards, bounds, 0.99), len(rewards), ragged)
    yield Case(
        "gae",
        lambda: gae(rewards, values, terminated=terminated, bounds=bounds, final_values=final),
        len(rewards),
        ragged,
    )
    keys, ages = stream_keys([(3, i, 0) for i in range(ROWS)]), rng.integers(0, 200, ROWS)
    for dim in (1, 2, 3, 6):
        for name, start in (("equal", np.zeros(ROWS, dtype=int)), ("mixed", ages)):
            yield Case(
                "normals",
                lambda start=start, dim=dim: normals_block(keys, 2, start, STEPS, dim),
                ROWS * STEPS * dim,
                {"rows": ROWS, "steps": STEPS, "dim": dim, "ages": name},
            )


def seconds(functions: Sequence[Callable[[], object]], repetitions: int) -> list[float]:
    """Median CPU time of a call of each function, in alternating windows."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repetitions):
        for function, taken in zip(functions, times, strict=True):
            calls, start = 0, time.process_time()
            while (spent := time.process_time() - start) < 0.01:
                function()
                calls += 1
            taken.append(spent / calls)
    return [float(np.median(taken)) for taken in times]


def measure(case: Case, implementation: str, repetitions: int, quick: bool) -> bool:
    """Report one case; returns whether it holds its bar."""
    numbers = np.random.default_rng(1).normal(size=case.numbers)
    ours, cumsum = seconds([case.run, lambda: np.cumsum(numbers)], repetitions)
    per_number = 1e9 * ours / case.numbers
    times = ours / cumsum
    value, unit = (per_number, "ns per number") if case.what == "normals" else (times, "times of np.cumsum")
    bar = BARS[case.what, implementation] + (10.0 if case.config.get("ages") == "mixed" else 0.0)
    report(
        "kernels",
        quick,
        peer="numpy",
        metric=f"{case.what} ({implementation})",
        value=round(value, 3),
        unit=unit,
        config=case.config,
        versions=versions("numpy", "numba"),
        bar=bar,
        ns_per_number=round(per_number, 2),
        cumsum_ns_per_number=round(1e9 * cumsum / case.numbers, 3),
    )
    return value <= bar


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=100, help="windows of 10 ms per measurement")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail where a bar is missed; appends nothing")
    args = parser.parse_args()
    quick = args.quick or args.check
    repetitions = min(args.repetitions, 15) if quick else args.repetitions
    all_cases = list(cases())
    expected = [case.run() for case in all_cases]
    held = [measure(case, "numpy", repetitions, quick) for case in all_cases]
    if kernels.compile_all():
        for case, result in zip(all_cases, expected, strict=True):
            if not np.array_equal(case.run(), result):
                raise SystemExit(f"{case.what}: numba's bits are not NumPy's ({case.config})")
            held.append(measure(case, "numba", repetitions, quick))
    else:
        known = {"metric": "numba", "unit": "times of np.cumsum", "config": {}, "versions": versions("numpy")}
        report_missing("kernels", quick, peer="numpy", reason="numba is not installed", **known)
    if args.check and not all(held):
        print(f"{held.count(False)} of {len(held)} measurements miss their bar", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
