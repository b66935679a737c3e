"""The loop from a robot's log to a policy, on hidden robots: is the posterior right, and is it worth training on?

    python benchmarks/sim2real.py                        # ten robots, one line each as they are done
    python benchmarks/sim2real.py --robots 3 4           # these alone; what is done is not done again
    python benchmarks/sim2real.py --baselines simopt adr # two further ways to randomize, trained once per robot
    python benchmarks/sim2real.py --summary              # over the lines that are there
    python benchmarks/sim2real.py --check                # one robot, minutes; status 1 if it fails

A Qube with five unknown parameters, uniform on half to one and a half times of the data sheet, plays the robot
(``metaroll sim2real demo``). Five rollouts are logged, 3,000 simulations give the posterior, and PPO is trained on the
nominal parameters, on the whole prior, on the posterior, and on the true parameters. The score is the share of the way
from nominal training to the oracle, in returns on the robot.

``simopt`` fits a normal distribution to the log, with as many simulations (SimOpt, Chebotar et al. 2019); ``adr`` looks
at no log: ranges grow where the policy copes with their ends (automatic domain randomization, Akkaya et al. 2019).
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
    """Nominal and uniform training do not know the robot: once for all."""
    prior = unknown_prior()
    ranges = [f"{name}={low}:{high}" for name, low, high in zip(prior.names, prior.low, prior.high, strict=True)]
    usual: dict[str, Any] = {"epochs": options.epochs, "seed": 0}
    runs = {"nominal": folder / "nominal", "uniform": folder / "uniform"}
    for name, more in (("nominal", {}), ("uniform", {"randomize_param": ranges})):
        if not (runs[name] / "summary.json").is_file():
            shutil.rmtree(runs[name], ignore_errors=True)
            train_policy(Training(name=name, options={**usual, **more}, trainings=options.trainings), folder)
    return runs


def measure(
    robot: int, options: LoopOptions, baselines: Sequence[str], folder: Path, shared: dict[str, Path], quick: bool
) -> dict[str, Any]:
    """One robot: the posterior against the truth, and the policies on it."""
    begun, truth = time.process_time(), draw_robot(robot)
    shutil.rmtree(folder, ignore_errors=True)
    rollouts = log_robot(truth, options.rollouts, robot)
    found = infer(ENV, rollouts, unknown_prior(), folder / "inference", inference_options(options, robot, False))
    posterior = found.posterior
    values = np.array([truth[name] for name in posterior.names])
    own, drawn = posterior.log_prob(values[None]), posterior.log_prob(posterior.draws[:2000])
    inside = bool(float(np.ravel(own)[0]) >= np.quantile(drawn, 1.0 - LEVEL))
    usual: dict[str, Any] = {"epochs": options.epochs, "seed": 0}
    tasks = {"posterior": found.folder, "oracle": oracle_tasks(truth, folder / "oracle-tasks", robot)}
    if "simopt" in baselines:
        tasks["simopt"] = sim_opt_tasks(rollouts, found, folder / "simopt-tasks")
    runs = {
        **shared,
        **{
            name: train_policy(
                Training(name=name, options=usual, tasks=str(drawn_from), trainings=options.trainings), folder
            )
            for name, drawn_from in tasks.items()
        },
    }
    if "adr" in baselines:
        runs["adr"] = train_adr(found.nominal, posterior.prior, options, folder / "adr", robot)
    means = {name: float(returns.mean()) for name, returns in judge(runs, truth, options).items()}
    way = means["oracle"] - means["nominal"]
    line = {
        "truth": truth,
        "inside": inside,
        "shares_of_prior_std": {row["name"]: row["share_of_prior_std"] for row in found.rows()},
        "prediction_errors": found.errors(),
        "returns": means,
        **{f"score_{name}": (means[name] - means["nominal"]) / way for name in ("uniform", *baselines)},
        "cpu_seconds": round(time.process_time() - begun, 1),
    }
    report(
        NAME,
        quick,
        peer="none",
        metric="score",
        value=(means["posterior"] - means["nominal"]) / way,
        unit="share of the way from nominal training to the oracle",
        config={"robot": robot, **settings_of(options, baselines)},
        versions=versions(*PACKAGES),
        **line,
    )
    print(
        f"robot {robot}: truth {'in' if inside else 'out'}side, returns "
        + ", ".join(f"{name} {value:.1f}" for name, value in means.items()),
        file=sys.stderr,
        flush=True,
    )
    return line


def settings_of(options: LoopOptions, baselines: Sequence[str]) -> dict[str, Any]:
    """What a line depends on."""
    sizes = {name: getattr(options, name) for name in ("rollouts", "simulations", "epochs", "trainings", "episodes")}
    return {**sizes, "baselines": list(baselines)} if baselines else sizes


def lines_of(options: LoopOptions, baselines: Sequence[str]) -> list[dict[str, Any]]:
    """The results' lines of robots with these settings."""
    lines = [line for line in read_results(NAME) if line["metric"] == "score"]
    settings = settings_of(options, baselines)
    return [line for line in lines if {k: v for k, v in line["config"].items() if k != "robot"} == settings]


def summarize(options: LoopOptions, baselines: Sequence[str]) -> bool:
    """Over the robots in the results; whether all that is demanded holds."""
    lines = {line["config"]["robot"]: line for line in lines_of(options, baselines)}
    if len(lines) < 2:
        print(f"the results hold {len(lines)} robots", file=sys.stderr)
        return False
    gain = np.array([line["returns"]["posterior"] - line["returns"]["uniform"] for line in lines.values()])
    mean, low, high = (float(np.ravel(v)[0]) for v in bootstrap_ci(gain, np.mean, 10_000, 0.05, 2, seed=0))
    inside = sum(line["inside"] for line in lines.values())
    widths = [share for line in lines.values() for share in line["shares_of_prior_std"].values()]
    means = {
        name: float(np.mean([line["returns"][name] for line in lines.values()]))
        for name in ("nominal", "uniform", "posterior", "oracle", *baselines)
    }
    way = means["oracle"] - means["nominal"]
    holds = inside >= INSIDE * len(lines) / ROBOTS and max(widths) < WIDTH and low > 0.0
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
        score=(means["posterior"] - means["nominal"]) / way,
        **{f"score_{name}": (means[name] - means["nominal"]) / way for name in ("uniform", *baselines)},
        holds=holds,
    )
    return holds


def main() -> int:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robots", type=int, nargs="+", default=list(range(ROBOTS)))
    parser.add_argument("--baselines", nargs="+", choices=("simopt", "adr"), default=[], help="further policies")
    parser.add_argument("--runs", type=Path, help="folder of the runs; by default one that is removed afterwards")
    parser.add_argument("--summary", action="store_true", help="measure nothing: only the summary of the results")
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
        once = args.quick or args.check
        done = {line["config"]["robot"] for line in lines_of(options, baselines)} if not once else set()
        shared = shared_policies(options, folder / "shared")
        for robot in args.robots[:1] if once else args.robots:
            if robot not in done:
                line = measure(robot, options, baselines, folder / f"robot-{robot}", shared, once)
        if args.check:
            returns = line["returns"]
            good = line["inside"] and max(line["shares_of_prior_std"].values()) < WIDTH
            return 0 if good and returns["posterior"] > returns["uniform"] else 1
    return 0 if once or summarize(options, baselines) else 1


if __name__ == "__main__":
    raise SystemExit(main())
