"""How often ``check_posterior`` rejects a posterior that is exactly right, and how often it passes a wrong one.

Usage: python benchmarks/posterior_checks.py [--runs 200] [--dims 1 3 5] [--rounds 1 2] [--kinds right blind ...]
       python benchmarks/posterior_checks.py --check

Simulators are linear with Gaussian noise, so the posterior is known: 1, 3 or 5 parameters, after one round or two.
After two rounds, the prior is restricted to a region, as if the posterior had been learned from simulations there: the
region that a first posterior, 1.3 times as wide as the right one, leaves of the prior. Each run has its own truth,
noise and seed of the checks, at the sizes that ``metaroll infer`` uses, with one held-out rollout. Wrong posteriors are
the right one made narrow (0.6), wide (1.8) or shifted (the first parameter by half a standard deviation), blind for the
first parameter (which keeps its prior, whatever is observed), or the prior itself.

A right posterior should be rejected in at most 5 % of all runs. Wrong ones may pass in at most 5 % of all runs, and in
8 % of the runs of each cell. A verdict of "wider than the data allows" counts as rejected. Twenty runs make one line of
the results; lines that exist for the same code are not measured again. ``--check`` prints the shares, and fails if one
is too large.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from _reporting import read_results, report, versions

import metaroll
from metaroll.inference.checks import check_posterior
from metaroll.inference.posterior import Posterior
from metaroll.inference.priors import as_prior
from metaroll.inference.regions import Region, find_region
from metaroll.seeding import derive_seed

KINDS = ("right", "narrow", "wide", "shifted", "blind", "prior")
DIMS, ROUNDS = (1, 3, 5), (1, 2)
PART = 20
NOISE, EARLIER = 0.5, 1.3
"""Standard deviation of the noise, and width of the posterior of the first round relative to the right one."""
TRIES = 64
MOST_REJECTED, MOST_PASSED, MOST_PASSED_IN_CELL = 0.05, 0.05, 0.08


class LinearGaussian:
    """A simulator of ``2 d + 2`` features, linear in standard normal parameters, with noise; and its posterior.

    Args:
        dim: d, the number of parameters.
        kind: ``right``, or what is wrong with the posterior.
        seed: Seed of the noise.
    """

    region: Region | None = None
    """Region to which the prior is restricted."""

    def __init__(self, dim: int, kind: str, seed: int) -> None:
        self.slopes = np.random.default_rng(dim).standard_normal((dim, 2 * dim + 2)) / np.sqrt(dim)
        self.covariance = np.linalg.inv(np.eye(dim) + self.slopes @ self.slopes.T / NOISE**2)
        self.gain = self.slopes.T @ self.covariance / NOISE**2  # (F, d)
        self.shift = np.zeros(dim)
        root = np.linalg.cholesky(self.covariance)
        if kind == "narrow":
            root *= 0.6
        elif kind == "wide":
            root *= 1.8
        elif kind == "shifted":
            self.shift[0] = 0.5 * np.sqrt(self.covariance[0, 0])
        elif kind == "blind":
            self.gain[:, 0] = 0.0
            root = np.eye(dim)
            root[1:, 1:] = np.linalg.cholesky(self.covariance[1:, 1:])
        elif kind == "prior":
            self.gain[:] = 0.0
            root = np.eye(dim)
        self.root = root
        self.event_shape = (2 * dim + 2,)
        self.generator = np.random.default_rng(derive_seed("noise", seed))

    def simulate(self, thetas: np.ndarray) -> np.ndarray:
        return thetas @ self.slopes + NOISE * self.generator.standard_normal((len(thetas), *self.event_shape))

    def sample(self, num: int, features: np.ndarray, seed: int) -> np.ndarray:
        generator, means = np.random.default_rng(seed), (features @ self.gain + self.shift)[:, None]
        draws = means + generator.standard_normal((len(features), num, len(self.root))) @ self.root.T
        for _ in range(TRIES if self.region is not None else 0):
            rows, columns = np.nonzero(~self.region.holds(draws.reshape(-1, len(self.root))).reshape(draws.shape[:2]))
            if not len(rows):
                break
            draws[rows, columns] = means[rows, 0] + generator.standard_normal((len(rows), len(self.root))) @ self.root.T
        return draws

    def log_prob(self, normals: np.ndarray, features: np.ndarray) -> np.ndarray:
        points = np.broadcast_to(normals, (len(features), *normals.shape[-2:]))
        points = points - (features @ self.gain + self.shift)[:, None]
        scaled = points.reshape(-1, len(self.root)) @ np.linalg.inv(self.root).T
        logs = -0.5 * np.square(scaled).sum(axis=1) - np.log(np.diag(self.root)).sum()
        return (logs - 0.5 * len(self.root) * np.log(2.0 * np.pi)).reshape(points.shape[:2])

    def weights(self) -> dict:
        return {}

    def to_plain(self) -> dict:
        return {}


def verdict_of(dim: int, rounds: int, kind: str, number: int):
    """The verdict on one posterior. Truths, noise and seeds are the same for all kinds."""
    seed = derive_seed("posterior checks", dim, rounds, number)
    prior = as_prior({f"p{i}": ("normal", 0.0, 1.0) for i in range(dim)})
    model = LinearGaussian(dim, kind, seed)
    truth = prior.sample(1, derive_seed("truth", seed))
    observed, held_out = model.simulate(truth)[0], model.simulate(truth)
    if rounds > 1:
        earlier = LinearGaussian(dim, "right", seed)
        earlier.root = EARLIER * earlier.root
        model.region = find_region(earlier, dim, observed, derive_seed("region", seed))
    description = {"rounds": rounds, "num_simulations": [2000 // rounds] * rounds}
    posterior = Posterior(
        prior, observed, estimator=model, description=description, seed=seed % 2**31, region=model.region
    )
    return check_posterior(posterior, model.simulate, seed=derive_seed("checks", seed), held_out=held_out)


class WithoutTexts(ast.NodeTransformer):
    """Empties strings that contain a space: texts, which do not change a verdict."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("") if isinstance(node.value, str) and " " in node.value.strip() else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        return ast.Constant("")


def code() -> str:
    """Hash of the source that judges posteriors, without comments and texts; eight hex digits."""
    root = Path(metaroll.__file__).parent
    files = [*sorted((root / "functional" / "posteriors").glob("*.py"))]
    files += [root / "inference" / f"{name}.py" for name in ("calibration", "checks", "informed", "regions")]
    trees = [ast.unparse(WithoutTexts().visit(ast.parse(file.read_text()))) for file in files]
    return hashlib.sha256("".join(trees).encode()).hexdigest()[:8]


def measure(dim: int, rounds: int, kind: str, first: int, quick: bool) -> None:
    """Judge the posteriors of one part of a cell, from run number ``first``, and report how many were rejected."""
    start, rejected, failed, num = time.perf_counter(), 0, Counter(), 2 if quick else PART
    for number in range(first, first + num):
        verdict = verdict_of(dim, rounds, kind, number)
        rejected += not verdict.passed
        failed.update(verdict.failed)
    report(
        "posterior_checks",
        quick,
        peer="none",
        metric="rejected",
        value=rejected,
        unit="posteriors",
        config={"dim": dim, "rounds": rounds, "kind": kind, "first": first, "runs": num, "code": code()},
        failed=dict(failed),
        seconds=round(time.perf_counter() - start, 2),
        versions=versions("metaroll", "numpy", "scipy", "torch"),
    )


def newest_lines() -> list[dict]:
    """Lines of the results that have the code of the last line."""
    lines = read_results("posterior_checks")
    return [line for line in lines if line["config"]["code"] == lines[-1]["config"]["code"]]


def check() -> int:
    """Print the shares of all cells; returns 1 if one is too large."""
    runs, rejected = Counter(), Counter()
    for line in newest_lines():
        cell = tuple(line["config"][key] for key in ("kind", "dim", "rounds"))
        runs[cell] += line["config"]["runs"]
        rejected[cell] += line["value"]
    failed = False
    for cell in sorted(runs):
        share = rejected[cell] / runs[cell]
        bad = cell[0] != "right" and 1.0 - share > MOST_PASSED_IN_CELL
        failed |= bad
        print(f"{cell[0]:8} d={cell[1]} rounds={cell[2]}: {rejected[cell]} of {runs[cell]} rejected{' !' * bad}")
    for is_right, most in ((True, MOST_REJECTED), (False, MOST_PASSED)):
        cells = [cell for cell in runs if (cell[0] == "right") == is_right]
        total = sum(runs[cell] for cell in cells)
        bad = sum(rejected[cell] if is_right else runs[cell] - rejected[cell] for cell in cells)
        share = bad / max(total, 1)
        failed |= share > most or not total
        name = "right posteriors rejected" if is_right else "wrong posteriors passed"
        print(f"{name}: {bad} of {total} ({share:.1%}, at most {most:.0%})")
    return int(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dims", nargs="+", type=int, default=DIMS, choices=DIMS)
    parser.add_argument("--rounds", nargs="+", type=int, default=ROUNDS, choices=ROUNDS)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--runs", type=int, default=200, help=f"runs per cell, in parts of {PART}")
    parser.add_argument("--quick", action="store_true", help="two runs per cell, to see that it runs")
    parser.add_argument("--check", action="store_true", help="check the results, measure nothing")
    args = parser.parse_args()
    if args.check:
        return check()
    known = [line["config"] for line in read_results("posterior_checks")]
    for first in range(0, 1 if args.quick else args.runs, PART):
        for dim in args.dims:
            for rounds in args.rounds:
                for kind in args.kinds:
                    config = {"dim": dim, "rounds": rounds, "kind": kind, "first": first, "runs": PART, "code": code()}
                    if args.quick or config not in known:
                        measure(dim, rounds, kind, first, args.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
