"""Distance of neural posteriors from an exact one: ours and those of sbi, with defaults and the same simulations.

    python benchmarks/sbi_oscillator.py                                   # all that is not in the results
    python benchmarks/sbi_oscillator.py --subjects npdr sbi-maf --trainings 0 1
    python benchmarks/sbi_oscillator.py --summary                         # summary of the results

A damped oscillator starts at 1 without speed: ``x(t) = exp(-c t) (cos(w t) + (c / w) sin(w t))``. It is observed at
twelve times with Gaussian noise of 0.05. The angular frequency w and the damping c are unknown, with a uniform prior in
a box. The exact posterior is the likelihood on a fine grid over the box. The reported value is the divergence of the
learned from the exact posterior, KL(exact || learned), in nats: the mean over ten observations, for each training.
Every training has its own simulations, which all subjects share. Posteriors of sbi are renormalized within the box, as
their ``log_prob`` does.
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
    """Positions without noise, ``(n, 2) -> (n, 12)``."""
    frequency, damping = thetas[:, :1], thetas[:, 1:]
    swing = np.cos(frequency * TIMES) + damping / frequency * np.sin(frequency * TIMES)
    return np.exp(-damping * TIMES) * swing


def simulator(seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """A function that simulates noisy observations, ``(n, 2) -> (n, 12)``."""
    return lambda thetas: (
        positions(thetas) + NOISE * np.random.default_rng([20, seed]).standard_normal((len(thetas), len(TIMES)))
    )


def grid() -> np.ndarray:
    """Centers of cells over the box, ``(CELLS ** 2, 2)``."""
    axes = [low + (high - low) * (np.arange(CELLS) + 0.5) / CELLS for low, high in zip(LOW, HIGH, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


def exact_log_density(points: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Normalized log densities ``(n,)`` of the exact posterior in the cells of ``grid``."""
    logs = -0.5 * np.square((observed - positions(points)) / NOISE).sum(axis=1)
    area = np.prod((HIGH - LOW) / CELLS)
    return logs - logs.max() - np.log(np.exp(logs - logs.max()).sum() * area)


def divergence(learned: LogProb, points: np.ndarray, observed: np.ndarray) -> float:
    """KL(exact || learned) in nats, without cells whose density is less than 1e-9 of the largest."""
    exact = exact_log_density(points, observed)
    kept = exact > exact.max() - 20.7
    weights = np.exp(exact[kept])
    weights /= weights.sum()
    return float(weights @ (exact[kept] - learned(points[kept], observed)))


# -- subjects ----------------------------------------------------------------------------------------------------------


def prior() -> dict[str, tuple[float, float]]:
    return dict(zip(NAMES, zip(LOW.tolist(), HIGH.tolist(), strict=True), strict=True))


def ours(learner: str, seed: int, count: int, infer_defaults: bool = False) -> LogProb:
    """Train NPDR or BayesSim with their own defaults, or with those of ``metaroll infer``."""
    import metaroll
    from metaroll.configs.inference import InferenceOptions
    from metaroll.lab.inferring.inferring import infer_config

    config = {"config": infer_config(InferenceOptions())} if infer_defaults else {}
    algo = getattr(metaroll, learner)(prior(), seed=seed, batch_size=count, **config)
    posterior = algo.infer(simulator(seed), None, count)
    return lambda points, observed: posterior.log_prob(points, observed=observed)


def shared(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The simulations on which ours are trained: parameters ``(count, 2)`` and observations ``(count, 12)``."""
    import metaroll

    requested: list[np.ndarray] = []

    def simulate(thetas: np.ndarray) -> np.ndarray:
        requested.append(thetas)
        raise StopIteration

    with contextlib.suppress(StopIteration):
        metaroll.NPDR(prior(), seed=seed, batch_size=count).infer(simulate, None, count)
    return requested[0], simulator(seed)(requested[0])


def peer(model: Any, seed: int, count: int) -> LogProb:
    """Train NPE of sbi with its defaults."""
    import torch
    from sbi.inference import NPE
    from sbi.utils import BoxUniform

    thetas, observations = (torch.as_tensor(part, dtype=torch.float32) for part in shared(seed, count))
    torch.manual_seed(seed)
    low, high = (torch.as_tensor(bound, dtype=torch.float32) for bound in (LOW, HIGH))
    learner: Any = NPE(BoxUniform(low, high), model, show_progress_bars=False)
    learner.append_simulations(thetas, observations).train()
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


def config_of(subject: str, training: int, args: argparse.Namespace) -> dict[str, Any]:
    """Settings of a training as the results state them."""
    return {
        "posterior": subject,
        "training": training,
        "simulations": args.simulations,
        "observations": args.observations,
    }


def measure(subject: str, training: int, args: argparse.Namespace) -> None:
    """Train one posterior, unless it is in the results, and report its mean divergence over the observations."""
    config = config_of(subject, training, args)
    if not args.check and newest_of(NAME, "kl", config) is not None and not args.again:
        return
    begun = time.perf_counter()
    learned = SUBJECTS[subject](training, args.simulations)
    seconds, points = time.perf_counter() - begun, grid()
    divergences = []
    for number in range(args.observations):
        truth = np.random.default_rng([21, number]).uniform(LOW, HIGH, (1, 2))
        observed = simulator(1000 + number)(truth)[0]
        divergences.append(divergence(learned, points, observed))
    report(
        NAME,
        args.check,
        peer="sbi",
        metric="kl",
        value=round(float(np.mean(divergences)), 4),
        unit="nats",
        config=config,
        each=[round(one, 4) for one in divergences],
        training_seconds=round(seconds, 1),
        versions=versions("metaroll", "sbi", "zuko", "nflows", "torch", "numpy"),
    )


def summarize(args: argparse.Namespace) -> None:
    """Print means over trainings with intervals (Student's t), also of paired differences to the default of sbi."""
    from scipy.stats import t

    results = {}
    for subject in SUBJECTS:
        lines = [newest_of(NAME, "kl", config_of(subject, number, args)) for number in args.trainings]
        results[subject] = np.array([np.nan if line is None else line["value"] for line in lines])
    for subject, values in results.items():
        for name, row in ((subject, values), (f"  minus {PEER_DEFAULT}", values - results[PEER_DEFAULT])):
            known = row[np.isfinite(row)]
            if len(known) > 1:
                half = t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
                print(f"{name:24} {known.mean():7.3f} +- {half:.3f} nats, {len(known)} trainings")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subjects", nargs="+", default=list(SUBJECTS), choices=list(SUBJECTS))
    parser.add_argument("--trainings", nargs="+", type=int, default=list(range(TRAININGS)))
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    parser.add_argument("--observations", type=int, default=OBSERVATIONS)
    parser.add_argument("--again", action="store_true", help="repeat trainings that are in the results")
    parser.add_argument("--summary", action="store_true", help="do not train, only summarize the results")
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
