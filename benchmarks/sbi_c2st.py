"""C2ST of neural posteriors on two tasks of sbibm, compared with what Lueckmann et al. 2021 published for NPE.

Usage: python benchmarks/sbi_c2st.py [--tasks two_moons gaussian_linear] [--simulations 1000 10000] [--samples 10000]

Both tasks have exact posteriors, from which this script draws. C2ST is as in sbibm: the accuracy of a network of two
layers of 10 d units in 5-fold cross-validation on equal numbers of draws of both posteriors, standardized by the exact
draws (0.5: the classifier finds no difference; 1: it separates all draws). Classifiers stop early, by a tenth of their
draws that is held out. With ``--long`` they train until the training loss stops falling, as in sbibm; this overfits,
takes ten times as long, and finds less (0.618 instead of 0.696 in one case). The mean over 10 observations should be at
most the upper end of the published interval plus 0.02.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from typing import NamedTuple

import numpy as np
from _reporting import report, versions

from metaroll.inference.configs import EstimatorConfig
from metaroll.inference.neural import NPDR

OBSERVATIONS = 10
MARGIN = 0.02


class Task(NamedTuple):
    """A task of sbibm."""

    prior: dict
    simulate: object
    exact: object
    published: dict
    """Simulations -> upper end of the 95 % interval of NPE published by Lueckmann et al. (arXiv:2101.04653)."""
    settings: dict


def simulate_linear(thetas: np.ndarray) -> np.ndarray:
    return thetas + math.sqrt(0.1) * noise(thetas).standard_normal(thetas.shape)


def exact_linear(observed: np.ndarray, num: int, generator: np.random.Generator) -> np.ndarray:
    return 0.5 * observed + math.sqrt(0.05) * generator.standard_normal((num, observed.size))


def moons(num: int, generator: np.random.Generator) -> np.ndarray:
    angle = generator.uniform(-0.5 * math.pi, 0.5 * math.pi, num)
    radius = generator.normal(0.1, 0.01, num)
    return np.stack([radius * np.cos(angle) + 0.25, radius * np.sin(angle)], axis=1)


def simulate_moons(thetas: np.ndarray) -> np.ndarray:
    total, difference = thetas.sum(axis=1), thetas[:, 1] - thetas[:, 0]
    return moons(len(thetas), noise(thetas)) + np.stack([-np.abs(total), difference], axis=1) / math.sqrt(2.0)


def exact_moons(observed: np.ndarray, num: int, generator: np.random.Generator) -> np.ndarray:
    """Draws ``(num, 2)`` from the exact posterior.

    The simulator is solved for the parameters, given a point of the crescent; both signs of their sum are possible,
    and the prior is uniform.
    """
    rows, count = [], 0
    while count < num:
        shift = (observed - moons(num, generator)) * math.sqrt(2.0)
        total = -shift[:, 0] * generator.choice([-1.0, 1.0], num)
        thetas = 0.5 * np.stack([total - shift[:, 1], total + shift[:, 1]], axis=1)
        kept = thetas[(shift[:, 0] <= 0.0) & (np.abs(thetas) <= 1.0).all(axis=1)]
        rows.append(kept)
        count += len(kept)
    return np.concatenate(rows)[:num]


def noise(thetas: np.ndarray) -> np.random.Generator:
    """A generator that is the same for the same parameters."""
    return np.random.default_rng(np.ascontiguousarray(thetas).view(np.uint64).ravel()[:64].tolist())


TASKS = {
    "two_moons": Task(
        {"a": (-1.0, 1.0), "b": (-1.0, 1.0)},
        simulate_moons,
        exact_moons,
        {1000: 0.752, 10_000: 0.630},
        {"model": "autoregressive_nsf", "num_transforms": 5},
    ),
    "gaussian_linear": Task(
        {f"theta{i}": ("normal", 0.0, math.sqrt(0.1)) for i in range(10)},
        simulate_linear,
        exact_linear,
        {1000: 0.722, 10_000: 0.571},
        {"model": "maf", "num_transforms": 3},
    ),
}


def c2st(exact: np.ndarray, draws: np.ndarray, long: bool, seed: int = 1) -> float:
    """Accuracy on held-out draws of a classifier of ``exact`` and ``draws``; both are standardized by ``exact``."""
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neural_network import MLPClassifier

    rows = (np.concatenate([exact, draws]) - exact.mean(axis=0)) / exact.std(axis=0)
    labels = np.concatenate([np.zeros(len(exact)), np.ones(len(draws))])
    units = 10 * exact.shape[1]
    network = MLPClassifier((units, units), max_iter=1000, early_stopping=not long, random_state=seed)
    folds = KFold(n_splits=5, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(cross_val_score(network, rows.astype(np.float32), labels, cv=folds, scoring="accuracy").mean())


def measure(name: str, simulations: int, samples: int, observations: int, args: argparse.Namespace) -> None:
    """Train a posterior of one task, and report the mean C2ST of its draws over observations."""
    task, settings = TASKS[name], dict(TASKS[name].settings)
    settings.update(batch_size=50 if simulations <= 2000 else 200, ensemble=args.ensemble, max_epochs=args.max_epochs)
    settings.update(learning_rate=5e-4 if simulations <= 2000 else 1e-3)
    start = time.perf_counter()
    learner = NPDR(task.prior, EstimatorConfig(**settings), seed=args.seed)
    posterior = learner.infer(task.simulate, None, simulations)
    training = time.perf_counter() - start
    print(
        f"{name}, {simulations} simulations: trained in {training:.0f} s, {posterior.description['epochs']}", flush=True
    )
    scores = []
    for number in range(observations):
        truth = learner.prior.sample(1, 1000 + number)
        observed = task.simulate(truth)[0]
        exact = task.exact(observed, samples, np.random.default_rng(2000 + number))
        scores.append(c2st(exact, posterior.sample(samples, number, observed), args.long))
        print(f"  observation {number + 1}: {scores[-1]:.3f} ({time.perf_counter() - start:.0f} s)", flush=True)
    bound = task.published[simulations]
    mean = float(np.mean(scores))
    report(
        "sbi_c2st",
        args.quick,
        peer="published",
        metric="c2st",
        value=mean,
        unit="accuracy",
        ratio=(bound + MARGIN) / mean,
        config={
            "task": name,
            "simulations": simulations,
            "samples": samples,
            "early_stopping": not args.long,
            "observations": observations,
            "scores": [round(score, 4) for score in scores],
            "published_upper": bound,
            "allowed": bound + MARGIN,
            "passed": mean <= bound + MARGIN,
            "training_seconds": round(training, 1),
            "seed": args.seed,
            "epochs": posterior.description["epochs"],
            **settings,
        },
        versions=versions("metaroll", "sbi", "torch", "scikit-learn", "numpy"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--simulations", nargs="+", type=int, default=[1000, 10_000], choices=[1000, 10_000])
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--observations", type=int, default=OBSERVATIONS)
    parser.add_argument("--ensemble", type=int, default=1)
    parser.add_argument("--max-epochs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--long", action="store_true", help="train classifiers until their training loss stops falling")
    parser.add_argument("--quick", action="store_true", help="one observation, 500 samples, to see that it runs")
    args = parser.parse_args()
    for simulations in args.simulations:
        for name in args.tasks:
            samples, observations = (500, 1) if args.quick else (args.samples, args.observations)
            measure(name, simulations, samples, observations, args)


if __name__ == "__main__":
    main()
