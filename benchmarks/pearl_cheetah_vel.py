"""PEARL on cheetah-vel as published, iteration by iteration, beside a published curve.

    python benchmarks/pearl_cheetah_vel.py --iterations 3                  # starts, or continues for 3 iterations
    python benchmarks/pearl_cheetah_vel.py --minutes 20 --device cuda      # as many iterations as fit
    python benchmarks/pearl_cheetah_vel.py --run runs/mine --report-only   # what an existing run has written
    python benchmarks/pearl_cheetah_vel.py --num-workers 2                 # further options apply to a new run

Trains through the command line, one process per iteration, each from the snapshot of the one before. Numbers
come from the run's ``metrics.jsonl``; iterations that are in the results already are not reported again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _reporting import report
from _snapshot_chain import (
    Chain,
    about_run,
    chain_parser,
    costs_of,
    measurements,
    numbers_of,
    published_at,
)

from metaroll.training.store.run_folder import read_config

NAME = "pearl_cheetah_vel"
# Held-out return after adaptation at environment steps; README.md names the source.
PUBLISHED = {205e3: -281.0, 250e3: -101.0, 300e3: -57.0, 400e3: -39.0, 500e3: -37.0, 700e3: -40.0}
PUBLISHED_BY = (
    "github.com/x35f/meta_rl, cheetah-vel, 1 seed: mean of 5 deterministic episodes after 2 exploration episodes in "
    "held-out tasks, read from its event files, interpolated at the same environment steps"
)
QUICK = "--num-steps-per-epoch 2 --hidden-sizes 16 --num-train-tasks 4 --num-test-tasks 2 --num-initial-steps 200"


def evaluated(folder: Path) -> list[int]:
    """Iterations that the run has evaluated."""
    return [iteration for iteration, numbers in numbers_of(folder).items() if "return_after" in numbers]


def lines_of(folder: Path, iteration: int, memory: int | None) -> Iterator[dict[str, Any]]:
    """The measurement of one iteration."""
    config, numbers = read_config(folder), numbers_of(folder)[iteration]
    episodes = [value for name, value in numbers.items() if name.startswith("return_episode_")]
    change = "change" if "change" in numbers else "gain"  # the name in older runs
    yield {
        "peer": "published",
        "metric": "held_out_return",
        "value": numbers["return_after"],
        "unit": "return after 2 exploration episodes",
        "iteration": iteration,
        "env_steps": int(numbers["env_steps"]),
        "published_value": published_at(PUBLISHED, numbers["env_steps"]),
        "return_after_interval": [numbers["return_after_ci_low"], numbers["return_after_ci_high"]],
        "return_before": numbers["return_before"],
        "return_before_interval": [numbers["return_before_ci_low"], numbers["return_before_ci_high"]],
        "gain": numbers[change],
        "gain_interval": [numbers[f"{change}_ci_low"], numbers[f"{change}_ci_high"]],
        "return_of_all_episodes": float(np.mean(episodes)),
        **costs_of(config, iteration, numbers, memory),
        "config": {**about_run(folder, config), "published": PUBLISHED_BY},
        "versions": config["versions"],
    }


CHAIN = Chain(NAME, "cheetah-vel", QUICK, evaluated, lines_of)


def main() -> None:
    parser = chain_parser(CHAIN, __doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes in a scratch folder, nothing appended")
    args, options = parser.parse_known_args()
    for line in measurements(CHAIN, args, options):
        report(NAME, args.quick, **line)


if __name__ == "__main__":
    main()
