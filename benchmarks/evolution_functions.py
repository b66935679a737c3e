"""CMA-ES on sphere, ellipsoid and Rosenbrock beside pycma: evaluations to the optimum, and time per generation.

python benchmarks/evolution_functions.py            measures, and appends to results/evolution_functions.jsonl
python benchmarks/evolution_functions.py --quick    fewer seeds and generations, appending nothing
python benchmarks/evolution_functions.py --check    the full form without appending, and status 1 where a bar is missed
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # idle BLAS threads would add to the CPU time

import numpy as np
from _reporting import report, report_missing, versions

from metaroll.functional.search.cma import CMA
from metaroll.seeding import isolated_rng

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about optional packages of cma
        import cma
except ImportError:
    cma = None

WHAT = "evolution_functions"
DIM, POPULATION, SIGMA, TARGET, LIMIT = 10, 10, 0.5, 1e-8, 100_000
EVALUATIONS_WITHIN, SOLVED_LEAST, TIME_AT_MOST = 0.15, 13, 0.7


def sphere(rows: np.ndarray) -> np.ndarray:
    return np.square(rows).sum(axis=1)


def ellipsoid(rows: np.ndarray) -> np.ndarray:
    return np.square(rows) @ 10.0 ** (6.0 * np.arange(rows.shape[1]) / (rows.shape[1] - 1))


def rosenbrock(rows: np.ndarray) -> np.ndarray:
    return (100.0 * np.square(rows[:, 1:] - np.square(rows[:, :-1])) + np.square(1.0 - rows[:, :-1])).sum(axis=1)


FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "sphere": (sphere, 1.0),
    "ellipsoid": (ellipsoid, 1.0),
    "rosenbrock": (rosenbrock, 0.0),
}
"""Functions to minimize, and the value of each entry of the initial mean."""


def ours(function: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, seed: int) -> tuple[int, bool]:
    """Evaluations of a run, and whether it reached the target."""
    search = CMA(sigma=SIGMA, population=POPULATION, target=-TARGET, max_evaluations=LIMIT)
    state, generator = search.start(mean), np.random.default_rng(seed)
    while not search.stop(state):
        candidates = search.ask(state, generator)
        state = search.tell(state, candidates, -function(candidates))
    return state.evaluations, state.best_fitness >= -TARGET


def theirs(function: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, seed: int) -> tuple[int, bool]:
    options = {"verbose": -9, "seed": seed + 1, "popsize": POPULATION, "ftarget": TARGET, "maxfevals": LIMIT}
    with isolated_rng(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        es = cma.CMAEvolutionStrategy(mean, SIGMA, options)
        while not es.stop():
            candidates = es.ask()
            es.tell(candidates, function(np.array(candidates)))
    return es.countevals, es.result.fbest <= TARGET


def evaluations(seeds: int, quick: bool) -> bool:
    """Report how many evaluations each function takes; returns whether the bars hold."""
    holds = True
    for name, (function, start) in FUNCTIONS.items():
        mean = np.full(DIM, start)
        runs = [ours(function, mean, seed) for seed in range(seeds)]
        config = {
            "function": name,
            "dim": DIM,
            "population": POPULATION,
            "sigma": SIGMA,
            "target": TARGET,
            "seeds": seeds,
        }
        value, solved = _median(runs)
        known: dict[str, Any] = {"config": config, "metric": "evaluations", "unit": "evaluations"}
        known |= {"solved": solved, "versions": versions("numpy", "scipy", "cma")}
        holds &= name != "rosenbrock" or solved >= SOLVED_LEAST * seeds / 15
        if cma is None:
            report(WHAT, quick, peer="none", value=value, **known)
            report_missing(WHAT, quick, peer="cma", reason="cma is not installed", **known)
            continue
        peer, peer_solved = _median([theirs(function, mean, seed) for seed in range(seeds)])
        report(
            WHAT, quick, peer="cma", value=value, ratio=value / peer, peer_value=peer, peer_solved=peer_solved, **known
        )
        holds &= abs(value / peer - 1.0) <= EVALUATIONS_WITHIN
    return holds


def _median(runs: list[tuple[int, bool]]) -> tuple[float, int]:
    """Median evaluations of the runs that reached the target, and the number of these runs."""
    solved = [count for count, reached in runs if reached]
    return float(np.median(solved)) if solved else float(LIMIT), len(solved)


def our_generations(dim: int, separable: bool) -> Iterator[float]:
    """CPU seconds of each generation (ask and tell, without the function)."""
    search = CMA(sigma=SIGMA, separable=separable)
    state, generator = search.start(np.ones(dim)), np.random.default_rng(0)
    while True:
        begin = time.process_time()
        candidates = search.ask(state, generator)
        ask_seconds = time.process_time() - begin
        fitness = -ellipsoid(candidates)
        begin = time.process_time()
        state = search.tell(state, candidates, fitness)
        yield ask_seconds + time.process_time() - begin


def their_generations(dim: int, separable: bool) -> Iterator[float]:
    options: dict[str, Any] = {"verbose": -9, "seed": 1}
    if separable:
        options["CMA_diagonal"] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        es = cma.CMAEvolutionStrategy(np.ones(dim), SIGMA, options)
    while True:
        begin = time.process_time()
        candidates = es.ask()
        ask_seconds = time.process_time() - begin
        values = ellipsoid(np.array(candidates))
        begin = time.process_time()
        es.tell(candidates, values)
        yield ask_seconds + time.process_time() - begin


def generation_times(generations: int, quick: bool) -> bool:
    """Report CPU seconds per generation, both alternating; returns whether the bar holds.

    Values are means, since only some generations include the eigendecomposition.
    """
    holds = True
    for dim, separable in ((100, False), (5000, True)):
        our_times = our_generations(dim, separable)
        known: dict[str, Any] = {"metric": "seconds_per_generation", "unit": "s"}
        known |= {"config": {"dim": dim, "separable": separable, "generations": generations}}
        known |= {"versions": versions("numpy", "scipy", "cma")}
        if cma is None:
            seconds = float(np.mean([next(our_times) for _ in range(generations)]))
            report(WHAT, quick, peer="none", value=seconds, **known)
            report_missing(WHAT, quick, peer="cma", reason="cma is not installed", **known)
            continue
        with isolated_rng(0):
            their_times = their_generations(dim, separable)
            next(our_times), next(their_times)  # warm up
            times = np.array([(next(our_times), next(their_times)) for _ in range(generations)])
        seconds, peer = times.mean(axis=0)
        report(WHAT, quick, peer="cma", value=seconds, ratio=peer / seconds, peer_value=peer, **known)
        holds &= seconds <= TIME_AT_MOST * peer
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    quiet = args.quick or args.check
    holds = evaluations(3 if args.quick else 15, quiet)
    holds &= generation_times(50 if args.quick else 400, quiet)
    return int(args.check and not holds)


if __name__ == "__main__":
    sys.exit(main())
