"""Whether a search recommends parameters as good as the best mean that any of its runs ended with.

Usage: python benchmarks/recommendations.py [--problem cartpole] [--subject cmaes-ipop] [--seeds 20] [--check]

At any moment, the current run of a search with restarts may have just begun. The subjects are CMA-ES with restarts
(ipop, bipop, with three starts, with averaged means), CEM and ARS, each with 20 seeds, on a quadratic of 10 parameters
whose returns have noise of deviation 1, and on CartPole-v1 in random initial states. Reported is by how much the
recommendation after the last epoch falls short of the best end of a run (CEM and ARS have one run, whose mean is the
recommendation). Both are judged by returns without noise: those of the quadratic itself, and those of CartPole over 200
episodes that are used for nothing else.

Bar: the shortfall is at most the noise of the comparison (the deviation of the difference of two means of 5
generations) on average over seeds, and at most three times that for each seed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from _reporting import report, versions

from metaroll.functional.search.reviewing import Reviewed
from metaroll.training.session.experiments import build, resolve

NAME = "recommendations"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium")
REVIEWS = Reviewed.__dataclass_fields__["reviews"].default
NOISE, EPOCHS, EPISODES = 1.0, {"quadratic": 1500, "cartpole": 250}, 200
SUBJECTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "cmaes-ipop": ("cmaes", {"restarts": "ipop"}),
    "cmaes-bipop": ("cmaes", {"restarts": "bipop"}),
    "cmaes-ipop-starts": ("cmaes", {"restarts": "ipop", "starts": 3}),
    "cmaes-ipop-averaged": ("cmaes", {"restarts": "ipop", "mean_epochs": 10}),
    "cem": ("cem", {}),
    "ars": ("ars", {}),
}
"""Subject -> algorithm, and options in addition to its preset of CartPole."""


def ends_in(tree: Any) -> Iterator[np.ndarray]:
    """Means at which runs have ended, from the state of a search in a snapshot."""
    if not isinstance(tree, Mapping):
        return
    if "incumbent" in tree:
        if tree["ends"]:
            yield from (tree["incumbent"], *tree["contenders"])
        return
    for part in tree.values():
        yield from ends_in(part)


def measure(problem: str, subject: str, seed: int, quick: bool, saves: bool) -> float:
    """Search once and report the shortfall; returns it in deviations of the comparison's noise."""
    name, options = SUBJECTS[subject]
    begun, epochs = time.perf_counter(), EPOCHS[problem] // (20 if quick else 1)
    fixed = {"seed": seed, "evaluate_every": 0, "torch_threads": 1, "normalize_observations": False, **options}
    config = resolve(name, "CartPole-v1", [("the benchmark", fixed)])
    experiment = build(config)
    ends: dict[bytes, np.ndarray] = {}
    with contextlib.closing(experiment.runner):
        algo, runner = experiment.algo, experiment.runner
        searched, seen = algo.cur_mean, np.zeros((1, 4))
        generator = np.random.default_rng(seed)
        optimum = generator.normal(size=searched.shape)

        def worth(rows: np.ndarray) -> np.ndarray:
            return -np.square(rows - optimum).sum(axis=1)

        for _ in range(epochs):
            if algo.converged:
                break
            if problem == "quadratic":
                values = worth(np.array(algo.ask(), dtype=np.float64)[:, algo._places])
                noisy = values + NOISE * generator.normal(size=len(values))
                algo.tell([[{"rewards": np.array([value]), "observations": seen}] for value in noisy])
            else:
                algo.update(algo.collect(runner))
            ends |= {end.tobytes(): end for end in ends_in(algo.state_dict()["search"])}
        recommended = algo.policy.acting_parameters()
        sets = (
            np.concatenate([recommended[None], algo._sets(np.array(list(ends.values())))])
            if ends
            else recommended[None]
        )
        if problem == "quadratic":
            scores, noise = worth(sets[:, algo._places].astype(np.float64)), NOISE
        else:
            groups = runner.sample_parameters(sets, num_init_states_per_domain=EPISODES, deterministic=True)
            returns = np.array([[rollout.undiscounted_return() for rollout in group] for group in groups])
            scores, rollouts = returns.mean(axis=1), algo.trials.rollouts_per_candidate
            noise = max(float(returns.std(axis=1).max()) / np.sqrt(rollouts), 1e-9)
    shortfall, deviation = float(scores.max() - scores[0]), noise * np.sqrt(2.0 / REVIEWS)
    report(
        NAME,
        not saves,
        peer="none",
        metric="falls_short",
        value=shortfall,
        unit="return below that of the best end of a run",
        config={"problem": problem, "subject": subject, "seed": seed},
        ends=len(ends),
        left=round(float(scores[0]), 4),
        best=round(float(scores.max()), 4),
        noise_of_comparison=round(float(deviation), 4),
        seconds=round(time.perf_counter() - begun, 1),
        versions=versions(*PACKAGES),
    )
    return shortfall / deviation


def main() -> int:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", nargs="+", choices=list(EPOCHS), default=list(EPOCHS))
    parser.add_argument("--subject", nargs="+", choices=list(SUBJECTS), default=list(SUBJECTS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--check", action="store_true", help="one seed, nothing appended; status 1 if it fails")
    parser.add_argument("--quick", action="store_true", help="the same with few epochs")
    args = parser.parse_args()
    torch.set_num_threads(1)
    good, short_run = True, args.check or args.quick
    seeds = 1 if short_run else args.seeds
    for problem in args.problem:
        for subject in args.subject:
            shortfalls = [measure(problem, subject, seed, args.quick, not short_run) for seed in range(seeds)]
            mean, largest = float(np.mean(shortfalls)), max(shortfalls)
            passed = bool(mean <= 1.0 and largest <= 3.0)
            good &= passed
            text = f"{mean:.2f} of the noise on average, {largest:.2f} at most"
            print(f"{problem} {subject}: {text}: {'ok' if passed else 'FAILS'}", file=sys.stderr)
    return int(not good)


if __name__ == "__main__":
    # BLAS reads this when NumPy is first imported.
    if os.environ.get("OMP_NUM_THREADS") != "1":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})
    sys.exit(main())
