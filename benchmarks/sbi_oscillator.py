"""How far neural posteriors are from an exact one: ours at their defaults beside sbi's, with the same simulations.

    python benchmarks/sbi_oscillator.py                                   # all; what is in the results is left out
    python benchmarks/sbi_oscillator.py --subjects npdr sbi-maf --trainings 0 1
    python benchmarks/sbi_oscillator.py --summary                         # over the lines that are there

A damped oscillator swings from 1 without speed: ``x(t) = exp(-c t) (cos(w t) + (c / w) sin(w t))``, seen at twelve
times with Gaussian noise of 0.05. Unknown are the angular frequency w and the damping c, uniform in a box. The exact
posterior is the likelihood on a fine grid over the box. Reported is the divergence of the learned from the exact
posterior, KL(exact || learned), in nats: the mean over ten observations, of each training. Every training has
simulations of its own, which all subjects share. What sbi's posteriors leave outside the box is normalized away, as its
own ``log_prob`` does.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from _reporting import newest_of, report, versions

NAME = "sbi_oscillator"
LOW, HIGH = np.array([1.0, 0.05]), np.array([4.0, 1.0])
NAMES = ("frequency", "damping")
TIMES = np.linspace(0.25, 3.0, 12)
NOISE = 0.05
OBSERVATIONS, TRAININGS, SIMULATIONS = 10, 5, 1000
CELLS = 400

LogProb = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""``thetas (n, 2), observed (12,) -> log densities (n,)``."""


def positions(thetas: np.ndarray) -> np.ndarray:
    """Without noise, ``(n, 2) -> (n, 12)``."""
    frequency, damping = thetas[:, :1], thetas[:, 1:]
    swing = np.cos(frequency * TIMES) + damping / frequency * np.sin(frequency * TIMES)
    return np.exp(-damping * TIMES) * swing


def simulator(seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """What is seen of parameters, ``(n, 2) -> (n, 12)``, with the noise of a seed."""
    return lambda thetas: (
        positions(thetas) + NOISE * np.random.default_rng([20, seed]).standard_normal((len(thetas), len(TIMES)))
    )


def grid() -> np.ndarray:
    """Centers of cells over the box, ``(CELLS ** 2, 2)``."""
    axes = [low + (high - low) * (np.arange(CELLS) + 0.5) / CELLS for low, high in zip(LOW, HIGH, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


def exact_log_density(points: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Of the cells of ``grid``, normalized."""
    logs = -0.5 * np.square((observed - positions(points)) / NOISE).sum(axis=1)
    area = np.prod((HIGH - LOW) / CELLS)
    return logs - logs.max() - np.log(np.exp(logs - logs.max()).sum() * area)


def divergence(learned: LogProb, points: np.ndarray, observed: np.ndarray) -> float:
    """KL(exact || learned) in nats; cells that hold less than 1e-9 of the largest density tell nothing."""
    exact = exact_log_density(points, observed)
    kept = exact > exact.max() - 20.7
    weights = np.exp(exact[kept])
    weights /= weights.sum()
    return float(weights @ (exact[kept] - learned(points[kept], observed)))


# -- subjects ----------------------------------------------------------------------------------------------------------


def prior() -> dict[str, tuple[float, float]]:
    return dict(zip(NAMES, zip(LOW.tolist(), HIGH.tolist(), strict=True), strict=True))


def ours(learner: str, seed: int, count: int, infer_defaults: bool = False) -> LogProb:
    """NPDR or BayesSim with their own defaults, or with those of ``metaroll infer``."""
    import metaroll
    from metaroll.configs.inference import InferenceOptions
    from metaroll.lab.inferring.inferring import infer_config

    config = {"config": infer_config(InferenceOptions())} if infer_defaults else {}
    made = getattr(metaroll, learner)(prior(), seed=seed, batch_size=count, **config)
    posterior = made.infer(simulator(seed), None, count)
    return lambda points, observed: posterior.log_prob(points, observed=observed)


def shared(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The simulations on which ours are trained."""
    import metaroll

    asked: list[np.ndarray] = []

    def simulate(thetas: np.ndarray) -> np.ndarray:
        asked.append(thetas)
        raise StopIteration

    with contextlib.suppress(StopIteration):
        metaroll.NPDR(prior(), seed=seed, batch_size=count).infer(simulate, None, count)
    return asked[0], simulator(seed)(asked[0])


def peer(model: Any, seed: int, count: int) -> LogProb:
    """NPE of sbi with its defaults."""
    import torch
    from sbi.inference import NPE
    from sbi.utils import BoxUniform

    thetas, seen = (torch.as_tensor(part, dtype=torch.float32) for part in shared(seed, count))
    torch.manual_seed(seed)
    low, high = (torch.as_tensor(bound, dtype=torch.float32) for bound in (LOW, HIGH))
    learner: Any = NPE(BoxUniform(low, high), model, show_progress_bars=False)
    learner.append_simulations(thetas, seen).train()
    posterior = learner.build_posterior()

    def log_prob(points: np.ndarray, observed: np.ndarray) -> np.ndarray:
        rows, row = (torch.as_tensor(part, dtype=torch.float32) for part in (points, observed))
        return posterior.log_prob(rows, x=row[None]).double().numpy()

    return log_prob


SUBJECTS: Mapping[str, Callable[[int, int], LogProb]] = {
    "npdr": lambda seed, count: ours("NPDR", seed, count),
    "npdr-of-infer": lambda seed, count: ours("NPDR", seed, count, True),
    "bayessim": lambda seed, count: ours("BayesSim", seed, count),
    "sbi-maf": lambda seed, count: peer("maf", seed, count),
    "sbi-nsf": lambda seed, count: peer("nsf", seed, count),
    "sbi-zuko-maf": lambda seed, count: peer("zuko_maf", seed, count),
}
PEER_DEFAULT = "sbi-maf"


# -- measuring ---------------------------------------------------------------------------------------------------------


def described(subject: str, training: int, args: argparse.Namespace) -> dict[str, Any]:
    return {
        "posterior": subject,
        "training": training,
        "simulations": args.simulations,
        "observations": args.observations,
    }


def measure(subject: str, training: int, args: argparse.Namespace) -> None:
    config = described(subject, training, args)
    if not args.check and newest_of(NAME, "kl", config) is not None and not args.again:
        return
    begun = time.perf_counter()
    learned = SUBJECTS[subject](training, args.simulations)
    seconds, points = time.perf_counter() - begun, grid()
    found = []
    for number in range(args.observations):
        truth = np.random.default_rng([21, number]).uniform(LOW, HIGH, (1, 2))
        observed = simulator(1000 + number)(truth)[0]
        found.append(divergence(learned, points, observed))
    report(
        NAME,
        args.check,
        peer="sbi",
        metric="kl",
        value=round(float(np.mean(found)), 4),
        unit="nats",
        config=config,
        each=[round(one, 4) for one in found],
        training_seconds=round(seconds, 1),
        versions=versions("metaroll", "sbi", "zuko", "nflows", "torch", "numpy"),
    )


def summarize(args: argparse.Namespace) -> None:
    """Means over trainings, their intervals (t), and of each difference to sbi's default, training by training."""
    from scipy.stats import t

    found = {}
    for subject in SUBJECTS:
        lines = [newest_of(NAME, "kl", described(subject, number, args)) for number in args.trainings]
        found[subject] = np.array([np.nan if line is None else line["value"] for line in lines])
    for subject, values in found.items():
        for what, shown in ((subject, values), (f"  less {PEER_DEFAULT}", values - found[PEER_DEFAULT])):
            known = shown[np.isfinite(shown)]
            if len(known) > 1:
                half = t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
                print(f"{what:24} {known.mean():7.3f} +- {half:.3f} nats, {len(known)} trainings")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subjects", nargs="+", default=list(SUBJECTS), choices=list(SUBJECTS))
    parser.add_argument("--trainings", nargs="+", type=int, default=list(range(TRAININGS)))
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    parser.add_argument("--observations", type=int, default=OBSERVATIONS)
    parser.add_argument("--again", action="store_true", help="also what is in the results")
    parser.add_argument("--summary", action="store_true", help="only say what is in the results")
    parser.add_argument("--check", "--quick", action="store_true", help="one training, nothing appended")
    args = parser.parse_args()
    if args.check:
        args.trainings, args.simulations, args.observations = [0], 200, 2
    warnings.simplefilter("ignore")
    if not args.summary:
        for training in args.trainings:
            for subject in args.subjects:
                measure(subject, training, args)
    summarize(args)


if __name__ == "__main__":
    main()
