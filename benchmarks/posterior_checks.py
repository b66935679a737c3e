"""How often ``check_posterior`` rejects a posterior that is exactly right, and how often one passes that is wrong.

Usage: python benchmarks/posterior_checks.py [--runs 200] [--dims 1 3 5] [--rounds 1 2] [--kinds right blind ...]
       python benchmarks/posterior_checks.py --check

Simulators are linear with Gaussian noise, so that the posterior is known: 1, 3 or 5 parameters, after one round or
after two (the posterior is then that of the prior within a region, as if it had learned from simulations there: what a
posterior 1.3 times as wide as the right one has left of the prior). Each run has another truth, other
noise and another seed of the checks, at the sizes that ``metaroll infer`` uses, with one held-out rollout. Wrong
posteriors are the right one made narrow (0.6), wide (1.8) or shifted (the first parameter by half a deviation), blind
for the first parameter (that has its prior, whatever was observed), or the prior itself.

A right posterior should be rejected in at most 5 % of all runs, wrong ones pass in at most 5 % of all and 8 % of each
cell. A verdict of "wider than the data allows" counts as rejected. Every twenty runs are a line of the results; those
that are there for the same code are not made again. ``--check`` tells the shares, and fails where one is too large.
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
"""Deviation of the noise, and how much wider than the right one the posterior of the first round is."""
TRIES = 64
MOST_REJECTED, MOST_PASSED, MOST_PASSED_IN_CELL = 0.05, 0.05, 0.08


class LinearGaussian:
    """``2 d + 2`` features, linear in parameters whose prior is standard normal, with noise; and posteriors of them.

    Args:
        dim: d, the number of parameters.
        kind: The right posterior, or what is wrong with it.
        seed: Of the noise.
    """

    region: Region | None = None
    """Within which the prior is meant."""

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
        drawn = means + generator.standard_normal((len(features), num, len(self.root))) @ self.root.T
        for _ in range(TRIES if self.region is not None else 0):
            rows, columns = np.nonzero(~self.region.holds(drawn.reshape(-1, len(self.root))).reshape(drawn.shape[:2]))
            if not len(rows):
                break
            drawn[rows, columns] = means[rows, 0] + generator.standard_normal((len(rows), len(self.root))) @ self.root.T
        return drawn

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
    """The verdict on one posterior; the same truths, noise and seeds for all kinds."""
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


class Wordless(ast.NodeTransformer):
    """Leaves out sentences, which judge nothing: strings with a blank."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("") if isinstance(node.value, str) and " " in node.value.strip() else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        return ast.Constant("")


def code() -> str:
    """Eight digits of the source that judges, without comments and sentences."""
    root = Path(metaroll.__file__).parent
    files = [*sorted((root / "functional" / "posteriors").glob("*.py"))]
    files += [root / "inference" / f"{name}.py" for name in ("calibration", "checks", "informed", "regions")]
    trees = [ast.unparse(Wordless().visit(ast.parse(file.read_text()))) for file in files]
    return hashlib.sha256("".join(trees).encode()).hexdigest()[:8]


def measure(dim: int, rounds: int, kind: str, first: int, quick: bool) -> None:
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


def done() -> list[dict]:
    """Lines of the code that judged last."""
    lines = read_results("posterior_checks")
    return [line for line in lines if line["config"]["code"] == lines[-1]["config"]["code"]]


def check() -> int:
    """Tell the shares of all cells; 1 where one is too large."""
    runs, rejected = Counter(), Counter()
    for line in done():
        cell = tuple(line["config"][key] for key in ("kind", "dim", "rounds"))
        runs[cell] += line["config"]["runs"]
        rejected[cell] += line["value"]
    wrong = False
    for cell in sorted(runs):
        share = rejected[cell] / runs[cell]
        bad = cell[0] != "right" and 1.0 - share > MOST_PASSED_IN_CELL
        wrong |= bad
        print(f"{cell[0]:8} d={cell[1]} rounds={cell[2]}: {rejected[cell]} of {runs[cell]} rejected{' !' * bad}")
    for is_right, most in ((True, MOST_REJECTED), (False, MOST_PASSED)):
        cells = [cell for cell in runs if (cell[0] == "right") == is_right]
        total = sum(runs[cell] for cell in cells)
        bad = sum(rejected[cell] if is_right else runs[cell] - rejected[cell] for cell in cells)
        share = bad / max(total, 1)
        wrong |= share > most or not total
        said = "right posteriors rejected" if is_right else "wrong posteriors passed"
        print(f"{said}: {bad} of {total} ({share:.1%}, at most {most:.0%})")
    return int(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dims", nargs="+", type=int, default=DIMS, choices=DIMS)
    parser.add_argument("--rounds", nargs="+", type=int, default=ROUNDS, choices=ROUNDS)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--runs", type=int, default=200, help=f"of each cell, in parts of {PART}")
    parser.add_argument("--quick", action="store_true", help="two runs of each cell: only that it runs")
    parser.add_argument("--check", action="store_true", help="judge the results that are there")
    args = parser.parse_args()
    if args.check:
        return check()
    made = [line["config"] for line in read_results("posterior_checks")]
    for first in range(0, 1 if args.quick else args.runs, PART):
        for dim in args.dims:
            for rounds in args.rounds:
                for kind in args.kinds:
                    asked = {"dim": dim, "rounds": rounds, "kind": kind, "first": first, "runs": PART, "code": code()}
                    if args.quick or asked not in made:
                        measure(dim, rounds, kind, first, args.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
