"""Half cheetah that runs forward or backward: returns after gradient steps, for each direction separately.

    python benchmarks/maml_cheetah_dir.py                    # ProMP for an hour of CPU time, 30 minutes of two cores
    python benchmarks/maml_cheetah_dir.py --cpu-minutes 240 --algorithm maml
    python benchmarks/maml_cheetah_dir.py --minutes 30       # by the clock, regardless of other load
    python benchmarks/maml_cheetah_dir.py --quick
    python benchmarks/maml_cheetah_dir.py --check                    # 2 minutes; status 1 if a direction gains nothing

Published for MAML with a trust region (Finn et al. 2017, arXiv:1703.03400, table 5; 200 steps, 160 million of them in
training): -50.69 before adaptation, and 293.19, 313.48 and 315.65 after one to three gradient steps.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from _reporting import report, versions

from metaroll.seeding import derive_seed
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.session.experiments import build, resolve, torch_threads

NAME = "maml_cheetah_dir"
PACKAGES = ("metaroll", "numpy", "torch", "mujoco")
ENV = "cheetah-dir"
PUBLISHED = (-50.69, 293.19, 313.48, 315.65)
STEPS, EPISODES, QUICK_EPISODES = 3, 20, 2
CPU_MINUTES = 60.0
ENDLESS = 10**9
"""More epochs than any budget allows, so that only the budget ends a training."""
SETTINGS: dict[str, Any] = {"hidden_sizes": (64, 64), "max_path_length": 200, "evaluate_every": 0}
QUICK: dict[str, Any] = {"meta_batch_size": 2, "rollouts_per_task": 2, "max_path_length": 10}


def cpu_seconds() -> float:
    """CPU time of this process and its descendants, such as rollout workers; without /proc, of this process alone."""
    tick, parents, used = os.sysconf("SC_CLK_TCK"), {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # the process has ended
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            number = int(entry.name)
            # Time of the process and of its children that have ended: utime, stime, cutime, cstime of proc(5).
            parents[number], used[number] = int(fields[1]), sum(map(int, fields[11:15])) / tick
    own = os.getpid()
    if own not in used:
        return time.process_time()
    ours, newest = {own}, {own}
    while newest:
        newest = {number for number, parent in parents.items() if parent in newest} - ours
        ours |= newest
    return sum(used[number] for number in ours)


class Budget:
    """Ends a training when its time is up: seconds of the clock, or CPU seconds of all its processes.

    ``None`` means no limit.
    """

    def __init__(self, seconds: float | None, cpu: float | None) -> None:
        self._begun, self._seconds = time.perf_counter(), seconds
        self._cpu_begun, self._cpu = cpu_seconds(), cpu
        self.epochs = 0

    @property
    def cpu_used(self) -> float:
        """CPU seconds used so far."""
        return cpu_seconds() - self._cpu_begun

    @property
    def is_over(self) -> bool:
        """Whether one of the times is up."""
        by_clock = self._seconds is not None and time.perf_counter() - self._begun >= self._seconds
        return by_clock or (self._cpu is not None and self.cpu_used >= self._cpu)

    def on_epoch_end(self, runner: Any, epoch: int, metrics: Any) -> None:
        self.epochs = epoch + 1
        shown = " / ".join(f"{float(metrics[name]):.1f}" for name in ("return_before", "return_after"))
        print(f"iteration {self.epochs}: {shown}", file=sys.stderr, flush=True)
        if self.is_over:
            raise TimeoutError


def main() -> int:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithm", choices=("promp", "maml", "dice"), default="promp")
    parser.add_argument("--minutes", type=float, help="end the training after this many minutes by the clock")
    cpu_help = f"end it after this much CPU time, workers included (default without --minutes: {CPU_MINUTES:g})"
    parser.add_argument("--cpu-minutes", type=float, help=cpu_help)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one tiny iteration, nothing appended")
    parser.add_argument("--check", action="store_true", help="two minutes, nothing appended; status 1 if it fails")
    args = parser.parse_args()
    if args.check:
        args.minutes = 2.0
    if args.minutes is None and args.cpu_minutes is None:
        args.cpu_minutes = CPU_MINUTES
    setting = {**SETTINGS, **(QUICK if args.quick else {})}
    options = {
        **setting,
        "epochs": ENDLESS,
        "seed": args.seed,
        "torch_threads": args.threads,
        "num_workers": args.workers,
    }
    config = resolve(args.algorithm, ENV, [("the benchmark", options)])
    limits = [None if given is None else 60.0 * given for given in (args.minutes, args.cpu_minutes)]
    budget = Budget(*([0.0, None] if args.quick else limits))
    experiment = build(config, callbacks=(budget,))
    begun = time.perf_counter()
    with contextlib.closing(experiment.runner), torch_threads(config["run"]["torch_threads"]):
        with contextlib.suppress(TimeoutError):
            experiment.runner.train(config["run"]["epochs"])
        env_steps, cpu_used = experiment.runner.total_env_steps, budget.cpu_used
    seconds = time.perf_counter() - begun
    episodes = QUICK_EPISODES if args.quick else EPISODES
    evaluator = MetaEvaluator(
        test_task_sampler=experiment.algo.test_env_sampler,
        adaptation_rounds=STEPS,
        episodes_per_round=episodes,
        adapt_from="last",
        num_episodes=episodes,
        deterministic=False,
        allow_overlap=True,  # there are only two directions, and both are trained on, as published
        seed=derive_seed("evaluation", 0),
    )
    result = evaluator.evaluate(experiment.algo)
    returns = result.returns[:, 0].reshape(len(result.tasks), STEPS + 1, episodes).mean(axis=2)  # (directions, moments)
    minutes = {"minutes": args.minutes, "cpu_minutes": args.cpu_minutes}
    report(
        NAME,
        args.quick or args.check,
        peer="published",
        metric="return_after_1",
        value=float(returns[:, 1].mean()),
        unit="return, mean of both directions",
        config={"algorithm": args.algorithm, "seed": args.seed, **minutes, **setting},
        versions=versions(*PACKAGES),
        returns=returns.mean(axis=0).round(2).tolist(),
        by_direction={str(task): row.round(2).tolist() for task, row in zip(result.tasks, returns, strict=True)},
        published=list(PUBLISHED),
        published_env_steps=160_000_000,
        iterations=budget.epochs,
        env_steps=env_steps,
        seconds=round(seconds, 1),
        cpu_seconds=round(cpu_used, 1),
    )
    if args.check and not (returns[:, 1] > returns[:, 0]).all():
        print(f"a direction gains nothing by the first gradient step: {returns.round(2).tolist()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # BLAS reads this when NumPy is first imported; several threads do not pay off for small networks.
    if os.environ.get("OMP_NUM_THREADS") != "1":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})
    torch.set_num_threads(1)
    sys.exit(main())
