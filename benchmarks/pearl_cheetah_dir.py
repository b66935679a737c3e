"""PEARL on cheetah-dir as published, iteration by iteration, each direction by itself, beside a published curve.

    python benchmarks/pearl_cheetah_dir.py --iterations 3                  # starts, or continues for 3 iterations
    python benchmarks/pearl_cheetah_dir.py --minutes 20 --device cuda      # as many iterations as fit
    python benchmarks/pearl_cheetah_dir.py --run runs/mine --report-only   # all snapshots of an existing run
    python benchmarks/pearl_cheetah_dir.py --num-workers 2                 # further options apply to a new run

Trains through the command line, one process per iteration, each from the snapshot of the one before.
Each is then evaluated here, with more repetitions than the run itself has. An agent that always runs forward has a mean
return near 0 over both directions, so each direction is reported, too. The family has only these two tasks, for
training and for testing, so intervals are over the repetitions. Lines that are in the results already are not
reported again.
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

from metaroll.training.evaluation.evaluation_metrics import intervals_of_means
from metaroll.training.evaluation.evaluation_result import EvaluationResult
from metaroll.training.session.experiments import build_evaluator, split_tasks
from metaroll.training.session.sessions import restored_run
from metaroll.training.store.run_folder import read_config
from metaroll.training.store.snapshots import snapshots_of

NAME = "pearl_cheetah_dir"
# Return after adaptation, mean of both directions, at environment steps; README.md names the source.
PUBLISHED = {
    100e3: 601.0,
    205e3: 717.0,
    250e3: 587.0,
    300e3: 931.0,
    400e3: 965.0,
    500e3: 1056.0,
    700e3: 1364.0,
    1e6: 1502.0,
    1.44e6: 1664.0,
}
PUBLISHED_BY = (
    "github.com/x35f/meta_rl, cheetah-dir, 1 seed, meta-batch 16: mean of 5 deterministic episodes after 2 exploration "
    "episodes, over both directions, read from its event files, interpolated at the same environment steps"
)
REPETITIONS = 20
INTERVALS = f"95 % bootstrap over {REPETITIONS} repetitions of the same task"
DIRECTIONS = {1.0: "forward", -1.0: "backward"}
QUICK = (
    "--num-steps-per-epoch 2 --hidden-sizes 16 --num-initial-steps 200 --num-steps-prior 200 "
    "--num-extra-rl-steps-posterior 200 --repetitions 1"
)


def evaluable(folder: Path) -> set[int]:
    """Iterations that have a snapshot."""
    return snapshots_of(folder).keys() & numbers_of(folder).keys()


def evaluate(folder: Path, iteration: int) -> EvaluationResult:
    """Evaluate the agent of one snapshot by many repetitions of the published protocol."""
    with restored_run(read_config(folder), folder, iteration) as (config, experiment, _):
        held_out = split_tasks(config, experiment.source)[1]
        evaluator = build_evaluator(config, experiment.source, held_out, repetitions=REPETITIONS)
        try:
            return evaluator.evaluate(experiment.algo)
        finally:
            evaluator.close()


def summary_of(returns: np.ndarray, num_exploration: int) -> dict[str, Any]:
    """Numbers of ``returns (repetitions, episodes)``, with intervals over the repetitions."""
    before, after = returns[:, 0], returns[:, num_exploration:].mean(axis=1)
    columns = np.stack([after, before, after - before], axis=1)
    bounds = np.stack(intervals_of_means(columns), axis=1).tolist()
    value, return_before, gain = columns.mean(axis=0).tolist()
    return {
        "value": value,
        "return_after_interval": bounds[0],
        "return_before": return_before,
        "return_before_interval": bounds[1],
        "gain": gain,
        "gain_interval": bounds[2],
        "return_of_all_episodes": float(returns.mean()),
    }


def lines_of(folder: Path, iteration: int, memory: int | None) -> Iterator[dict[str, Any]]:
    """Measurements of one snapshot: both directions together, and each by itself."""
    config, numbers = read_config(folder), numbers_of(folder)[iteration]
    result = evaluate(folder, iteration)
    common = {
        "unit": "return after 2 exploration episodes",
        "iteration": iteration,
        "env_steps": int(numbers["env_steps"]),
        **costs_of(config, iteration, numbers, memory),
        "config": {
            **about_run(folder, config),
            "repetitions": REPETITIONS,
            "intervals": INTERVALS,
            "published": PUBLISHED_BY,
        },
        "versions": config["versions"],
    }
    # One repetition of each direction makes one repetition of both.
    together = summary_of(result.returns.mean(axis=0), result.num_exploration)
    published = published_at(PUBLISHED, numbers["env_steps"])
    yield {"peer": "published", "metric": "return_both", "published_value": published, **together, **common}
    for task, returns in zip(result.tasks, result.returns, strict=True):
        metric = f"return_{DIRECTIONS[float(task['direction'])]}"
        yield {"peer": "none", "metric": metric, **summary_of(returns, result.num_exploration), **common}


CHAIN = Chain(NAME, "cheetah-dir", QUICK, evaluable, lines_of)


def main() -> None:
    parser = chain_parser(CHAIN, __doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes in a scratch folder, nothing appended")
    args, options = parser.parse_known_args()
    for line in measurements(CHAIN, args, options):
        report(NAME, args.quick, **line)


if __name__ == "__main__":
    main()
