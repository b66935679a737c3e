"""How often bootstrap intervals of a mean contain the true mean: ours beside SciPy's, on the same data.

python benchmarks/bootstrap_coverage.py
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import scipy.stats
from _reporting import report, versions

from metaroll.functional.bootstrap import bootstrap_ci

SIZES = (5, 10, 30)
MEANS = {"normal": 0.0, "lognormal": math.exp(0.5)}
ALPHA = 0.05
COMPARED = {"basic": "basic", "studentized": "BCa"}
"""Our method -> SciPy's. The first pair should agree; the second is the better method of each library."""


def draw(distribution: str, n: int, repetition: int) -> np.ndarray:
    generator = np.random.default_rng([list(MEANS).index(distribution), n, repetition])
    return generator.normal(size=n) if distribution == "normal" else generator.lognormal(size=n)


def our_interval(data: np.ndarray, method: str, num_reps: int, generator: np.random.Generator) -> tuple[float, float]:
    studentized = method == "studentized"
    _, low, high = bootstrap_ci(data, np.mean, num_reps, ALPHA, 2, studentized=studentized, seed=generator)
    return float(low[0]), float(high[0])


def scipy_interval(data: np.ndarray, method: str, num_reps: int, generator: np.random.Generator) -> tuple[float, float]:
    result = scipy.stats.bootstrap(
        (data,), np.mean, n_resamples=num_reps, confidence_level=1.0 - ALPHA, method=method, rng=generator
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def measure(interval, method: str, distribution: str, n: int, repetitions: int, num_reps: int, stream: int):
    """Whether each interval contains the true mean, their median width, and the seconds taken."""
    covered, widths = np.zeros(repetitions, dtype=bool), np.zeros(repetitions)
    generator = np.random.default_rng([stream, n])  # resamples of its own for each method
    start = time.perf_counter()
    for i in range(repetitions):
        low, high = interval(draw(distribution, n, i), method, num_reps, generator)
        covered[i] = low <= MEANS[distribution] <= high
        widths[i] = high - low
    return covered, float(np.median(widths)), time.perf_counter() - start


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def compare(distribution: str, n: int, ours: str, args: argparse.Namespace, repetitions: int) -> None:
    theirs = COMPARED[ours]
    stream = 2 * list(COMPARED).index(ours)
    sizes = (distribution, n, repetitions, args.num_reps)
    covered, width, seconds = measure(our_interval, ours, *sizes, stream)
    peer_covered, peer_width, peer_seconds = measure(scipy_interval, theirs, *sizes, stream + 1)
    difference = covered.astype(float) - peer_covered  # paired, since both use the same data
    report(
        "bootstrap_coverage",
        args.quick,
        peer="scipy",
        metric="coverage",
        value=float(covered.mean()),
        unit="share of intervals that hold the true mean",
        ratio=float(covered.mean() / peer_covered.mean()),
        config={
            "distribution": distribution,
            "n": n,
            "method": ours,
            "peer_method": theirs,
            "alpha": ALPHA,
            "repetitions": repetitions,
            "num_reps": args.num_reps,
        },
        standard_error=standard_error(covered),
        peer_value=float(peer_covered.mean()),
        peer_standard_error=standard_error(peer_covered),
        difference=float(difference.mean()),
        difference_standard_error=standard_error(difference),
        median_width=width,
        peer_median_width=peer_width,
        seconds=round(seconds, 2),
        peer_seconds=round(peer_seconds, 2),
        versions=versions("numpy", "scipy"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=2000, help="data sets per size and distribution")
    parser.add_argument("--num-reps", type=int, default=1000, help="resamples per interval")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    for distribution in MEANS:
        for n in SIZES:
            for method in COMPARED:
                compare(distribution, n, method, args, min(args.repetitions, 50) if args.quick else args.repetitions)


if __name__ == "__main__":
    main()
