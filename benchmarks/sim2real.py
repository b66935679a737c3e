"""The loop from a robot's log to a policy, on hidden robots: is the posterior right, and is it worth training on?

    python benchmarks/sim2real.py                        # ten robots, one line each
    python benchmarks/sim2real.py --robots 3 4           # only these; robots in the results are skipped
    python benchmarks/sim2real.py --baselines simopt adr # two other ways to randomize, trained once per robot
    python benchmarks/sim2real.py --summary              # summary of the results
    python benchmarks/sim2real.py --check                # one robot, minutes; status 1 if it fails

The robot is a simulated Qube with five unknown parameters, uniform between 0.5 and 1.5 times the data sheet (as in
``metaroll sim2real demo``). Five rollouts are logged, 3,000 simulations give the posterior, and PPO is trained on the
nominal parameters, on the whole prior, on the posterior, and on the true parameters. The score is the return on the
robot, scaled so that training on the nominal parameters scores 0 and the oracle 1.

``simopt`` fits a normal distribution to the log, with as many simulations (SimOpt, Chebotar et al. 2019). ``adr`` uses
no log: ranges grow where the policy copes with their ends (automatic domain randomization, Akkaya et al. 2019).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _randomization_baselines import sim_opt_tasks, train_adr
from _reporting import read_results, report, versions

from metaroll.configs.inference import LoopOptions
from metaroll.functional.bootstrap import bootstrap_ci
from metaroll.lab import infer
from metaroll.lab.inferring.sim2real import (
    ENV,
    Training,
    draw_robot,
    inference_options,
    judge,
    log_robot,
    oracle_tasks,
    train_policy,
    unknown_prior,
)

NAME = "sim2real"
PACKAGES = ("metaroll", "numpy", "torch", "sbi")
ROBOTS, INSIDE, WIDTH = 10, 8, 0.25
LEVEL = 0.9


def shared_policies(options: LoopOptions, folder: Path) -> dict[str, Path]:
    """Train the policies that do not depend on the robot, on nominal parameters and on the prior; folders by name."""
    prior = unknown_prior()
    ranges = [f"{name}={low}:{high}" for name, low, high in zip(prior.names, prior.low, prior.high, strict=True)]
    common: dict[str, Any] = {"epochs": options.epochs, "seed": 0}
    runs = {"nominal": folder / "nominal", "uniform": folder / "uniform"}
    for name, more in (("nominal", {}), ("uniform", {"randomize_param": ranges})):
        if not (runs[name] / "summary.json").is_file():
            shutil.rmtree(runs[name], ignore_errors=True)
            train_policy(Training(name=name, options={**common, **more}, trainings=options.trainings), folder)
    return runs


def measure(
    robot: int, options: LoopOptions, baselines: Sequence[str], folder: Path, shared: dict[str, Path], quick: bool
) -> dict[str, Any]:
    """Infer the parameters of one robot, train and judge the policies, and report; returns entries of the line."""
    begun, truth = time.process_time(), draw_robot(robot)
    shutil.rmtree(folder, ignore_errors=True)
    rollouts = log_robot(truth, options.rollouts, robot)
    inference = infer(ENV, rollouts, unknown_prior(), folder / "inference", inference_options(options, robot, False))
    posterior = inference.posterior
    values = np.array([truth[name] for name in posterior.names])
    of_truth, of_draws = posterior.log_prob(values[None]), posterior.log_prob(posterior.draws[:2000])
    # Whether the truth lies in the region of highest density that holds LEVEL of the posterior.
    inside = bool(float(np.ravel(of_truth)[0]) >= np.quantile(of_draws, 1.0 - LEVEL))
    common: dict[str, Any] = {"epochs": options.epochs, "seed": 0}
    tasks = {"posterior": inference.folder, "oracle": oracle_tasks(truth, folder / "oracle-tasks", robot)}
    if "simopt" in baselines:
        tasks["simopt"] = sim_opt_tasks(rollouts, inference, folder / "simopt-tasks")
    runs = {
        **shared,
        **{
            name: train_policy(
                Training(name=name, options=common, tasks=str(source), trainings=options.trainings), folder
            )
            for name, source in tasks.items()
        },
    }
    if "adr" in baselines:
        runs["adr"] = train_adr(inference.nominal, posterior.prior, options, folder / "adr", robot)
    means = {name: float(returns.mean()) for name, returns in judge(runs, truth, options).items()}
    span = means["oracle"] - means["nominal"]
    line = {
        "truth": truth,
        "inside": inside,
        "shares_of_prior_std": {row["name"]: row["share_of_prior_std"] for row in inference.rows()},
        "prediction_errors": inference.errors(),
        "returns": means,
        **{f"score_{name}": (means[name] - means["nominal"]) / span for name in ("uniform", *baselines)},
        "cpu_seconds": round(time.process_time() - begun, 1),
    }
    report(
        NAME,
        quick,
        peer="none",
        metric="score",
        value=(means["posterior"] - means["nominal"]) / span,
        unit="share of the way from nominal training to the oracle",
        config={"robot": robot, **settings_of(options, baselines)},
        versions=versions(*PACKAGES),
        **line,
    )
    print(
        f"robot {robot}: truth {'inside' if inside else 'outside'}, returns "
        + ", ".join(f"{name} {value:.1f}" for name, value in means.items()),
        file=sys.stderr,
        flush=True,
    )
    return line


def settings_of(options: LoopOptions, baselines: Sequence[str]) -> dict[str, Any]:
    """Settings on which the values of a line depend."""
    sizes = {name: getattr(options, name) for name in ("rollouts", "simulations", "epochs", "trainings", "episodes")}
    return {**sizes, "baselines": list(baselines)} if baselines else sizes


def lines_of(options: LoopOptions, baselines: Sequence[str]) -> list[dict[str, Any]]:
    """Lines of the results, one per robot, with these settings."""
    lines = [line for line in read_results(NAME) if line["metric"] == "score"]
    settings = settings_of(options, baselines)
    return [line for line in lines if {k: v for k, v in line["config"].items() if k != "robot"} == settings]


def summarize(options: LoopOptions, baselines: Sequence[str]) -> bool:
    """Report the mean over the robots of the results; returns whether it meets all demands."""
    lines = {line["config"]["robot"]: line for line in lines_of(options, baselines)}
    if len(lines) < 2:
        print(f"a summary needs 2 robots with these settings, the results have {len(lines)}", file=sys.stderr)
        return False
    gain = np.array([line["returns"]["posterior"] - line["returns"]["uniform"] for line in lines.values()])
    mean, low, high = (float(np.ravel(v)[0]) for v in bootstrap_ci(gain, np.mean, 10_000, 0.05, 2, seed=0))
    inside = sum(line["inside"] for line in lines.values())
    widths = [share for line in lines.values() for share in line["shares_of_prior_std"].values()]
    means = {
        name: float(np.mean([line["returns"][name] for line in lines.values()]))
        for name in ("nominal", "uniform", "posterior", "oracle", *baselines)
    }
    span = means["oracle"] - means["nominal"]
    passed = inside >= INSIDE * len(lines) / ROBOTS and max(widths) < WIDTH and low > 0.0
    report(
        NAME,
        False,
        peer="none",
        metric="gain_on_uniform",
        value=mean,
        unit="return",
        config={"robots": sorted(lines), **settings_of(options, baselines)},
        versions=versions(*PACKAGES),
        ci_low=low,
        ci_high=high,
        inside=inside,
        widest_share_of_prior_std=max(widths),
        returns=means,
        score=(means["posterior"] - means["nominal"]) / span,
        **{f"score_{name}": (means[name] - means["nominal"]) / span for name in ("uniform", *baselines)},
        holds=passed,
    )
    return passed


def main() -> int:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robots", type=int, nargs="+", default=list(range(ROBOTS)))
    parser.add_argument("--baselines", nargs="+", choices=("simopt", "adr"), default=[], help="other policies to train")
    parser.add_argument("--runs", type=Path, help="folder of the runs; default: a temporary folder")
    parser.add_argument("--summary", action="store_true", help="measure nothing, only summarize the results")
    parser.add_argument("--quick", action="store_true", help="one robot, tiny numbers, nothing appended")
    parser.add_argument("--check", action="store_true", help="one robot, nothing appended; status 1 if it fails")
    args = parser.parse_args()
    baselines = sorted(set(args.baselines))
    torch.set_num_threads(1)
    options = LoopOptions(jobs=1)
    if args.quick:
        options = LoopOptions(simulations=100, epochs=1, trainings=1, episodes=2, jobs=1)
    if args.check:
        options = LoopOptions(epochs=100, jobs=1)
    if args.summary:
        return 0 if summarize(options, baselines) else 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.runs or Path(temporary)
        unsaved = args.quick or args.check
        done = set() if unsaved else {line["config"]["robot"] for line in lines_of(options, baselines)}
        shared = shared_policies(options, folder / "shared")
        for robot in args.robots[:1] if unsaved else args.robots:
            if robot not in done:
                line = measure(robot, options, baselines, folder / f"robot-{robot}", shared, unsaved)
        if args.check:
            returns = line["returns"]
            right = line["inside"] and max(line["shares_of_prior_std"].values()) < WIDTH
            return 0 if right and returns["posterior"] > returns["uniform"] else 1
    return 0 if unsaved or summarize(options, baselines) else 1


if __name__ == "__main__":
    raise SystemExit(main())
