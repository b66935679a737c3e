"""VariBAD, an example plug-in, on ten-armed bandits and on point-robot, compared with RL2 after as many steps.

    python benchmarks/varibad_adapts.py                              # both setups, both learners, five seeds
    python benchmarks/varibad_adapts.py --setups bandit-10 --seeds 1 # some of these runs
    python benchmarks/varibad_adapts.py --subjects varibad --setups point-robot
    python benchmarks/varibad_adapts.py --summary                    # summary of the results
    python benchmarks/varibad_adapts.py --check                      # status 1 if it learns or adapts too little

The gain on bandits is the mean total reward of ten pulls without noise in new bandits, the same for both learners,
minus 5, which any choice earns that ignores the rewards. Whether an agent adapts from its own data is the verdict of
its evaluation on held-out tasks (docs/evaluation.md), after all episodes of a trial but the last.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from _reporting import newest_of, report, versions
from rl2_tabular import play_policy

import metaroll as m

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "plugins"))
import varibad  # pyright: ignore[reportMissingImports]

NAME = "varibad_adapts"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium")
SEEDS = (0, 1, 2, 3, 4)
SUBJECTS = {"varibad": varibad.VARIBAD, "rl2": "rl2"}
ARMS, PULLS, BANDITS = 10, 10, 50_000
BY_CHANCE = 5.0
DEMANDED = 0.9
"""Least share of RL2's gain on bandits."""


class Setup(NamedTuple):
    """Options of both learners, options of single learners, and arguments of the evaluation."""

    shared: dict[str, Any]
    own: dict[str, dict[str, Any]]
    evaluation: dict[str, Any]


SETUPS = {
    "bandit-10": Setup(
        {
            "trials_per_epoch": 500,
            "epochs": 60,
            "episodes_per_trial": PULLS,
            "num_adaptation_episodes": PULLS - 1,
            "num_passes": 5,
            "batch_size": 250,
            "learning_rate": 2e-3,
            "lr_decay_epochs": None,
            "discount": 1.0,
            "gae_lambda": 0.95,
        },
        {
            "varibad": {
                "latent_size": 10,
                "elbo_lr": 3e-3,
                "elbo_steps": 30,
                "elbo_trials": 64,
                "elbo_terms": 5,
                "kl_weight": 0.05,
            }
        },
        {"num_tasks": 100, "repetitions": 4},
    ),
    "point-robot": Setup(
        {
            "trials_per_epoch": 40,
            "epochs": 240,
            "episodes_per_trial": 3,
            "num_adaptation_episodes": 2,
            "num_passes": 8,
            "batch_size": 200,
            "learning_rate": 1e-3,
            "lr_decay_epochs": None,
            "discount": 0.95,
            "gae_lambda": 0.9,
        },
        {"varibad": {"elbo_steps": 12}},
        {"num_tasks": 40, "repetitions": 4},
    ),
}
CHECKED, CHECK_EPOCHS, CHECK_GAIN = "bandit-10", 50, 0.6


def bandit_reward(policy: Any, seed: int, count: int = BANDITS) -> float:
    """Mean total reward of ten pulls in new bandits, without noise."""
    generator = np.random.default_rng(1_000_003 + seed)
    probabilities, numbers = generator.random((count, ARMS)), generator.random((count, PULLS))
    return float(play_policy(policy, probabilities, numbers).mean())


def options_of(setup: str, subject: str, **more: Any) -> dict[str, Any]:
    """Options for ``metaroll.agent``."""
    options = SETUPS[setup]
    return {**options.shared, **options.own.get(subject, {}), "evaluate_every": 0, "torch_threads": 1, **more}


def measure(setup: str, subject: str, seed: int, folder: Path, dry: bool = False, **more: Any) -> tuple[float, bool]:
    """Train, evaluate and report; returns the gain on bandits (elsewhere the return), and whether it adapts."""
    options = options_of(setup, subject, **more)
    epochs = options.pop("epochs")
    cpu = time.process_time()
    agent = m.agent(SUBJECTS[subject], setup, seed=seed, run_dir=folder / f"{setup}-{subject}-{seed}", **options)
    agent.learn(epochs=epochs, progress=False)
    seconds = time.process_time() - cpu
    values = agent.config["algorithm"]
    steps = epochs * values["trials_per_epoch"] * values["episodes_per_trial"] * values["max_steps"]
    config = {"setup": setup, "policy": subject, "seed": seed, "env_steps": steps, **more}
    known: dict[str, Any] = {"peer": "none", "config": config, "versions": versions(*PACKAGES)}
    result = agent.evaluate(**SETUPS[setup].evaluation, progress=False)
    value = bandit_reward(agent.algo.policy, seed) - BY_CHANCE if setup == "bandit-10" else result.return_after
    if setup == "bandit-10":
        report(NAME, dry, metric="gain", value=value, unit="reward of ten pulls", cpu_seconds=round(seconds), **known)
    else:
        report(NAME, dry, metric="return_after", value=value, unit="return", cpu_seconds=round(seconds), **known)
    verdict = result.verdict.to_dict()
    details = {
        name: verdict.get(name) for name in ("text", "gain", "gain_ci_low", "own_data_gain", "own_data_gain_ci_low")
    }
    adapts = bool(result.verdict.adapts and result.verdict.own_data)
    report(NAME, dry, metric="adapts_by_its_own_data", value=float(adapts), unit="1: it does", **known, **details)
    return value, adapts


def summarize() -> None:
    """Print the mean over seeds, from the newest lines with the settings above."""
    for setup in SETUPS:
        gains: dict[str, float] = {}
        for subject in SUBJECTS:
            by_seed: dict[str, dict[int, float]] = {}
            for metric in ("gain", "return_after", "adapts_by_its_own_data"):
                lines = {seed: newest_of(NAME, metric, config_of(setup, subject, seed)) for seed in SEEDS}
                by_seed[metric] = {seed: line["value"] for seed, line in lines.items() if line is not None}
            values = np.array(list((by_seed["gain"] or by_seed["return_after"]).values()))
            if not len(values):
                print(f"{setup}, {subject}: no results")
                continue
            adapting = int(sum(by_seed["adapts_by_its_own_data"].values()))
            gains[subject] = float(values.mean())
            print(
                f"{setup}, {subject}: mean {values.mean():.3f} of {len(values)} seeds {values.round(3).tolist()}; "
                f"{adapting} adapt by their own data"
            )
        if setup == "bandit-10" and len(gains) == len(SUBJECTS):
            print(f"{setup}: {gains['varibad'] / gains['rl2']:.1%} of RL2's gain, demanded {DEMANDED:.0%}")


def config_of(setup: str, subject: str, seed: int) -> dict[str, Any]:
    """``config`` of the lines of a training with the settings above."""
    shared = SETUPS[setup].shared
    steps = shared["epochs"] * shared["trials_per_epoch"] * shared["episodes_per_trial"]
    steps *= m.get_family(setup).horizon or 1
    return {"setup": setup, "policy": subject, "seed": seed, "env_steps": steps}


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--setups", nargs="+", default=list(SETUPS), choices=list(SETUPS))
    parser.add_argument("--subjects", nargs="+", default=list(SUBJECTS), choices=list(SUBJECTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--folder", type=Path, default=Path("runs/varibad_adapts"), help="folder of the runs")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one epoch, to see that it runs")
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if args.check or args.quick:
        epochs = CHECK_EPOCHS if args.check else 1
        with tempfile.TemporaryDirectory() as folder:
            gain, adapts = measure(CHECKED, "varibad", 0, Path(folder), dry=True, epochs=epochs)
        sys.exit(0 if args.quick or (adapts and gain > CHECK_GAIN) else 1)
    if not args.summary:
        for seed in args.seeds:
            for setup in args.setups:
                for subject in args.subjects:
                    measure(setup, subject, seed, args.folder)
    summarize()


if __name__ == "__main__":
    main()
