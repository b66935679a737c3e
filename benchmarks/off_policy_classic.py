"""Off-policy learners on small classical problems, with the settings of their presets.

    python benchmarks/off_policy_classic.py                                            # all cases, five seeds each
    python benchmarks/off_policy_classic.py --algorithms sac --envs Pendulum-v1 --seeds 3    # a part, appended
    python benchmarks/off_policy_classic.py --summary                                  # of the stored results
    python benchmarks/off_policy_classic.py --check                                    # SAC, 4,000 steps of Pendulum-v1

The return is the mean over 100 episodes without noise, whose starts are the same for all. One thread each.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from _reporting import read_results, report, versions

import metaroll as m
from metaroll.training.session.experiments import build, resolve

NAME = "off_policy_classic"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium", "mujoco")
EPISODES, SEEDS = 100, (0, 1, 2, 3, 4)
CHECK_EPOCHS, CHECK_BAR = 4, -600.0


class Case(NamedTuple):
    """A requirement: the mean return of five seeds, or the return of ``seeds`` of them, is at least ``bar``."""

    algorithm: str
    env: str
    env_steps: int
    bar: float
    seeds: int | None = None


CASES = [
    Case("dqn", "CartPole-v1", 50_000, 475.0, 4),
    Case("sac", "CartPole-v1", 49_000, 475.0, 0),
    Case("dqn", "Acrobot-v1", 100_000, -90.0, 4),
    Case("dqn", "MountainCar-v0", 120_000, -125.0, 4),
    *(Case(algorithm, "Pendulum-v1", 20_000, -175.0) for algorithm in ("ddpg", "td3", "sac", "tqc")),
    *(Case(algorithm, "InvertedPendulum-v5", 50_000, 1000.0, 4) for algorithm in ("td3", "sac")),
    Case("ddpg", "InvertedPendulum-v5", 50_000, 1000.0, 0),
]


def train(case: Case, seed: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Train with the preset, and evaluate the policy."""
    fixed = {"seed": seed, "evaluate_every": 0, "torch_threads": 1}
    config = resolve(case.algorithm, case.env, [("the benchmark", {**fixed, **changes})])
    experiment = build(config)
    with contextlib.closing(experiment.runner):
        begun = time.process_time()
        experiment.runner.train(config["run"]["epochs"])
        seconds = time.process_time() - begun
        env_steps = experiment.runner.total_env_steps
    plans = [m.RolloutPlan(index=i, seed=(1_000_000, 0, i), deterministic=True) for i in range(EPISODES)]
    with m.RolloutEngine(case.env, experiment.algo.policy) as engine:
        returns = engine.run(plans).returns
    return {"return": float(returns.mean()), "env_steps": env_steps, "seconds": seconds}


def measure(case: Case, seed: int, epochs: int | None = None) -> float:
    """Train once and report the return; a training of fewer ``epochs`` is not appended to the results."""
    result = train(case, seed, {} if epochs is None else {"epochs": epochs})
    report(
        NAME,
        epochs is not None,
        peer="none",
        metric="return",
        value=result["return"],
        unit="return without noise",
        config={
            "algorithm": case.algorithm,
            "env": case.env,
            "seed": seed,
            "env_steps": result["env_steps"],
            "episodes": EPISODES,
        },
        cpu_seconds=round(result["seconds"], 1),
        versions=versions(*PACKAGES),
    )
    return result["return"]


def summarize(case: Case) -> bool:
    """Print the newest result of each seed; returns whether the bar holds."""
    newest = {
        line["config"]["seed"]: line["value"]
        for line in read_results(NAME)
        if (line["config"]["algorithm"], line["config"]["env"]) == (case.algorithm, case.env)
        and line["config"]["env_steps"] >= case.env_steps
    }
    values = np.array([newest[seed] for seed in SEEDS if seed in newest])
    if not len(values):
        print(f"{case.algorithm} {case.env}: no results")
        return False
    reached = int((values >= case.bar).sum())
    held = values.mean() >= case.bar if case.seeds is None else reached >= case.seeds
    demand = f"mean {case.bar:g}" if case.seeds is None else f"{case.bar:g} on {case.seeds} of {len(SEEDS)}"
    print(
        f"{case.algorithm} {case.env} after {case.env_steps} steps: mean {values.mean():.1f}, {reached} of "
        f"{len(values)} seeds reach {case.bar:g} ({', '.join(f'{v:.1f}' for v in values)}); required: {demand}: "
        f"{'held' if held and len(values) == len(SEEDS) else 'not shown'}"
    )
    return bool(held) and len(values) == len(SEEDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--algorithms", nargs="+", default=sorted({case.algorithm for case in CASES}))
    parser.add_argument("--envs", nargs="+", default=sorted({case.env for case in CASES}))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--check", action="store_true", help="SAC on Pendulum-v1 for fewer steps, appending nothing")
    parser.add_argument("--quick", action="store_true", help="one epoch of one algorithm, to see that it runs")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check or args.quick:
        case = next(case for case in CASES if (case.algorithm, case.env) == ("sac", "Pendulum-v1"))
        value = measure(case, 0, 1 if args.quick else CHECK_EPOCHS)
        sys.exit(0 if args.quick or value > CHECK_BAR else 1)
    chosen = [case for case in CASES if case.algorithm in args.algorithms and case.env in args.envs]
    if not args.summary:
        for seed in args.seeds:
            for case in chosen:
                measure(case, seed)
    for case in chosen:
        summarize(case)


if __name__ == "__main__":
    main()
