"""Recurrent SAC and SAC on Pendulum-v1 without the velocity, and SAC with it; also in random domains.

    python benchmarks/off_policy_memory.py                               # all cases, three seeds each
    python benchmarks/off_policy_memory.py --cases hidden --seeds 0      # a part, appended
    python benchmarks/off_policy_memory.py --summary                     # of the stored results
    python benchmarks/off_policy_memory.py --check                       # recurrent SAC, 12,000 steps; appends nothing

The return is the mean over 100 episodes without noise, whose starts (and masses and lengths, in random domains) are the
same for all. One thread each.
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
from metaroll.tasks.domain_randomizer import as_randomizer
from metaroll.training.session.experiments import build, resolve

NAME = "off_policy_memory"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium")
EPISODES, SEEDS, ENV_STEPS = 100, (0, 1, 2), 20_000
HIDDEN, SHOWN = "_memory_envs:pendulum_without_velocity", "Pendulum-v1"
RANGES = {"m": (0.5, 1.5), "l": (0.7, 1.3)}
CHECK_STEPS, CHECK_BAR = 12_000, -700.0
MARGIN = 0.5
"""Recurrent SAC must close at least this share of the gap between SAC without and with the velocity."""

RATES = {"policy_lr": 1e-3, "qf_lr": 1e-3, "temperature_lr": 1e-3}
SETTINGS: dict[str, dict[str, Any]] = {
    "rsac": {"hidden_sizes": (64,), **RATES},
    "sac": {"hidden_sizes": (64, 64), **RATES},
}
"""In addition to the presets; epochs have 1,000 environment steps."""


class Case(NamedTuple):
    """An algorithm and the environment it learns."""

    algorithm: str
    env: str
    randomized: bool

    @property
    def name(self) -> str:
        """Short description, for messages."""
        shown = "velocity shown" if self.env == SHOWN else "velocity hidden"
        return f"{self.algorithm}, {shown}{', random m and l' if self.randomized else ''}"


TRIPLE = (("rsac", HIDDEN), ("sac", HIDDEN), ("sac", SHOWN))
CASES = {
    "hidden": [Case(*kind, False) for kind in TRIPLE],
    "hidden-random": [Case(*kind, True) for kind in TRIPLE],
}


def train(case: Case, seed: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Train, and evaluate the policy."""
    fixed: dict[str, Any] = {"seed": seed, "evaluate_every": 0, "torch_threads": 1, "epochs": ENV_STEPS // 1000}
    updates: list[Any] = [None] * EPISODES
    if case.randomized:
        fixed["randomize_param"] = tuple(f"{name}={low}:{high}" for name, (low, high) in RANGES.items())
        updates = as_randomizer(RANGES).sample(EPISODES, generator=1_000_000)
    options = {**SETTINGS[case.algorithm], **fixed, **changes}
    experiment = build(resolve(case.algorithm, case.env, [("the benchmark", options)]))
    with contextlib.closing(experiment.runner):
        begun = time.process_time()
        experiment.runner.train(options["epochs"])
        seconds = time.process_time() - begun
        env_steps = experiment.runner.total_env_steps
    plans = [
        m.RolloutPlan(index=i, seed=(1_000_000, 0, i), env_update=update, deterministic=True)
        for i, update in enumerate(updates)
    ]
    with m.RolloutEngine(case.env, experiment.algo.policy) as engine:
        returns = engine.run(plans).returns
    return {"return": float(returns.mean()), "env_steps": env_steps, "seconds": seconds}


def measure(case: Case, seed: int, env_steps: int | None = None) -> float:
    """Train once and report the return; a training of fewer ``env_steps`` is not appended to the results."""
    result = train(case, seed, {} if env_steps is None else {"epochs": env_steps // 1000})
    report(
        NAME,
        env_steps is not None,
        peer="none",
        metric="return",
        value=result["return"],
        unit="return without noise",
        config={
            "algorithm": case.algorithm,
            "env": case.env,
            "randomized": case.randomized,
            "seed": seed,
            "env_steps": result["env_steps"],
            "episodes": EPISODES,
        },
        cpu_seconds=round(result["seconds"], 1),
        versions=versions(*PACKAGES),
    )
    return result["return"]


def values_of(case: Case) -> np.ndarray:
    """The newest return of each seed."""
    kind = (case.algorithm, case.env, case.randomized)
    newest = {
        line["config"]["seed"]: line["value"]
        for line in read_results(NAME)
        if tuple(line["config"][key] for key in ("algorithm", "env", "randomized")) == kind
        and line["config"]["env_steps"] >= ENV_STEPS
    }
    return np.array([newest[seed] for seed in SEEDS if seed in newest])


def summarize(name: str) -> bool:
    """Print the means of a group of cases; returns whether the memory closes enough of the gap."""
    means = []
    for case in CASES[name]:
        values = values_of(case)
        if len(values) < len(SEEDS):
            print(f"{case.name}: results of {len(values)} of {len(SEEDS)} seeds")
            return False
        means.append(values.mean())
        print(f"{case.name}: mean {means[-1]:.1f} ({', '.join(f'{value:.1f}' for value in values)})")
    recurrent, blind, full = means
    share = (recurrent - blind) / (full - blind)
    held = full > blind and share >= MARGIN
    print(f"{name}: the memory closes {100 * share:.0f} % of the gap; required: {100 * MARGIN:.0f} %, held: {held}")
    return bool(held)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--algorithms", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--check", action="store_true", help="recurrent SAC for fewer steps, appending nothing")
    parser.add_argument("--quick", action="store_true", help="2,000 steps of recurrent SAC, to see that it runs")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check or args.quick:
        value = measure(CASES["hidden"][0], 0, 2000 if args.quick else CHECK_STEPS)
        sys.exit(0 if args.quick or value > CHECK_BAR else 1)
    if not args.summary:
        for seed in args.seeds:
            for case in (case for name in args.cases for case in CASES[name]):
                if case.algorithm in args.algorithms:
                    measure(case, seed)
    held = [summarize(name) for name in args.cases]
    sys.exit(not all(held))


if __name__ == "__main__":
    main()
