"""MAML's point in the plane: returns on held-out tasks before adaptation and after one, two and three gradient steps.

    python benchmarks/maml_point_mass.py                                       # ProMP, E-MAML, TRPO-MAML, DICE; 3 seeds
    python benchmarks/maml_point_mass.py --algorithm promp --seeds 0           # a part, appended to the results
    python benchmarks/maml_point_mass.py --algorithm trpo --epochs 40          # another budget
    python benchmarks/maml_point_mass.py --summary                             # over the lines that are there
    python benchmarks/maml_point_mass.py --check                               # E-MAML, one seed; status 1 if it fails

The task is that of Finn et al. 2017 (arXiv:1703.03400, table 4): goals in the unit square around the start, moves of at
most 0.1 along each axis, minus the squared distance as reward, 100 steps or until 0.01 from the goal. Published
are -40.41 before adaptation, and -11.68, -3.33, -3.23 after one to three steps (best of 500 iterates). A policy
that does not adapt has at best -16.67, which is that of staying where it is.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from _reporting import newest_of, report, versions

from metaroll.seeding import derive_seed
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.session.experiments import build, resolve, torch_threads

NAME = "maml_point_mass"
PACKAGES = ("metaroll", "numpy", "torch")
ENV = "point-navigation"
UNIT = "return on held-out tasks"
PUBLISHED = (-40.41, -11.68, -3.33, -3.23)
STAYING = -16.67
SEEDS = (0, 1, 2)
STEPS = 3

COMMON: dict[str, Any] = {
    "size": "small",
    "meta_batch_size": 20,
    "rollouts_per_task": 20,
    "num_train_tasks": 2000,
    "num_test_tasks": 40,
    "hidden_sizes": (64, 64),
    "inner_lr": 0.1,  # both as published
    "later_inner_lr": 0.05,
    "evaluate_every": 0,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "promp": {"algo": "promp", "epochs": 60, **COMMON},
    "emaml": {"algo": "maml", "outer": "emaml", "learning_rate": 3e-3, "epochs": 150, **COMMON},
    "trpo": {"algo": "maml", "outer": "trpo", "epochs": 12, **COMMON},
    "dice": {"algo": "dice", "outer": "dice", "learning_rate": 3e-3, "epochs": 100, **COMMON},
}
DEMANDED = {
    "promp": (-5.0, -3.0, -2.5),
    "emaml": (-5.0, -3.0, -2.5),
    "trpo": (-14.0, -6.0, -5.0),
    "dice": (-14.0, -6.0, -5.0),
}
QUICK: dict[str, Any] = {"epochs": 2, "meta_batch_size": 4, "rollouts_per_task": 5, "num_test_tasks": 4}
EPISODES, QUICK_EPISODES = 20, 4


def config_of(name: str, seed: int, setting: Mapping[str, Any], episodes: int) -> dict[str, Any]:
    """What the results say of a training."""
    return {"name": name, "seed": seed, "episodes": episodes, **setting, "hidden_sizes": [64, 64]}


def measure(name: str, seed: int, epochs: int | None, threads: int, quick: bool, unsaved: bool) -> bool:
    """Train once, and report the returns of the held-out tasks; whether they are those that are demanded."""
    setting = {**SETTINGS[name], **(QUICK if quick else {}), **({} if epochs is None else {"epochs": epochs})}
    episodes = QUICK_EPISODES if quick else EPISODES
    options = {key: value for key, value in setting.items() if key != "algo"}
    config = resolve(setting["algo"], ENV, [("the benchmark", {**options, "seed": seed, "torch_threads": threads})])
    built = build(config)
    with contextlib.closing(built.runner), torch_threads(config["run"]["torch_threads"]):
        begun = time.perf_counter()
        built.runner.train(setting["epochs"])
        seconds = time.perf_counter() - begun
        env_steps = built.runner.total_env_steps
    evaluator = MetaEvaluator(
        test_task_sampler=built.algo.test_env_sampler,
        adaptation_rounds=STEPS,
        episodes_per_round=episodes,
        adapt_from="last",
        num_episodes=episodes,
        deterministic=False,
        seed=derive_seed("evaluation", 0),
    )
    found = evaluator.evaluate(built.algo).returns[:, 0]  # (tasks, episodes of all rounds)
    per_task = found.reshape(len(found), STEPS + 1, episodes).mean(axis=2)
    means = per_task.mean(axis=0)
    gains = per_task[:, 1] - per_task[:, 0]
    report(
        NAME,
        unsaved,
        peer="published",
        metric="return_after_1",
        value=float(means[1]),
        unit=UNIT,
        ratio=PUBLISHED[1] / float(means[1]),
        config=config_of(name, seed, setting, episodes),
        versions=versions(*PACKAGES),
        returns=[round(float(value), 3) for value in means],
        published=list(PUBLISHED),
        demanded=list(DEMANDED[name]),
        best_without_adapting=STAYING,
        share_worse=float((gains < 0).mean()),
        env_steps=env_steps,
        seconds=round(seconds, 1),
        threads=threads,
    )
    text = " / ".join(f"{value:.2f}" for value in means)
    print(f"{name} seed {seed}: {text} after 0 to {STEPS} steps, {seconds:.0f} s", file=sys.stderr, flush=True)
    return bool((means[1:] >= DEMANDED[name]).all())


def summarize(name: str) -> None:
    """Means and ranges over the seeds in the results, of the settings above alone."""
    configs = {seed: config_of(name, seed, SETTINGS[name], EPISODES) for seed in SEEDS}
    newest = {seed: newest_of(NAME, "return_after_1", config) for seed, config in configs.items()}
    lines = {seed: line for seed, line in newest.items() if line is not None}
    if len(lines) < 2:
        print(f"{name}: the results hold {len(lines)} seeds with the present settings", file=sys.stderr)
        return
    returns = np.array([line["returns"] for line in lines.values()])
    report(
        NAME,
        False,
        peer="published",
        metric="worst_return_after_1",
        value=float(returns[:, 1].min()),
        unit=UNIT,
        config={"name": name, "seeds": sorted(lines)},
        versions=versions(*PACKAGES),
        mean=returns.mean(axis=0).tolist(),
        worst=returns.min(axis=0).tolist(),
        published=list(PUBLISHED),
        demanded=list(DEMANDED[name]),
        holds=bool((returns[:, 1:].min(axis=0) >= DEMANDED[name]).all()),
        most_seconds=max(float(line["seconds"]) for line in lines.values()),
    )


def main() -> int:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithm", nargs="+", choices=sorted(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--epochs", type=int, default=None, help="another number of iterations for all")
    parser.add_argument("--threads", type=int, default=1, help="threads that gradients are computed on")
    parser.add_argument("--summary", action="store_true", help="train nothing: only the summary of the results")
    parser.add_argument("--quick", action="store_true", help="two small iterations of one seed, nothing appended")
    parser.add_argument("--check", action="store_true", help="E-MAML, one seed, nothing appended; status 1 if it fails")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        if measure("emaml", SEEDS[0], None, args.threads, False, True):
            return 0
        print(f"demanded after 1 to {STEPS} steps are {DEMANDED['emaml']}", file=sys.stderr)
        return 1
    for name in args.algorithm:
        if args.summary:
            summarize(name)
            continue
        for seed in args.seeds[:1] if args.quick else args.seeds:
            measure(name, seed, args.epochs, args.threads, args.quick, args.quick)
    return 0


if __name__ == "__main__":
    # BLAS reads this when NumPy is first imported; several threads do not pay off for small networks.
    if os.environ.get("OMP_NUM_THREADS") != "1":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})
    sys.exit(main())
