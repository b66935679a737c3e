"""Speed of two checkouts of metaroll, in alternating windows of a few seconds.

    git worktree add ../before COMMIT
    python benchmarks/before_after.py ../before
    python benchmarks/before_after.py ../before --cases pendulum ppo --windows 20

Each checkout runs in its own process, with the contestants of its own ``rollout_throughput.py``,
``mujoco_throughput.py``, ``sim_throughput.py``, ``ppo_control.py``, ``update_rate.py`` and ``maml_update.py``. A ratio
is the rate of this checkout over that of the other in two neighboring windows; which one goes first alternates.
Reported is the median over the windows with its distribution-free interval of at least 95 %, from order statistics.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NAME = "before_after"
UNITS = {"update": "gradient steps/s", "maml": "meta-gradients/s"}
"""Kind of case -> unit of its rate; that of all others is environment steps/s."""
ROLLOUTS = {"HalfCheetah-v5": 128, "Pendulum-v1": 512, "CartPole-v1": 4096, "point": 1024}
"""Environment -> rollouts per call, with 2 workers of 16 slots."""
MUJOCO = ("HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
MUJOCO_SLOTS, MUJOCO_STEPS = 64, 200
SIMS = {"pendulum": "PendulumEnv", "qube": "QQubeSwingUpEnv", "cart-pole": "QCartPoleSwingUpEnv"}
SIM_SLOTS = 1024
PPO_EPOCHS = 3
MAML_SIZES = (40, 20, 100)  # tasks, rollouts, steps
CASES = (
    *(f"rollouts {env}" for env in ROLLOUTS),
    *(f"mujoco {env}" for env in MUJOCO),
    *(f"{kind} {sim}" for sim in SIMS for kind in ("batch", "middle", "whole")),
    "ppo Pendulum-v1",
    "ppo HalfCheetah-v5",
    "update SAC",
    "update TD3",
    "maml second-order",
    "maml first-order",
)

Rate = Callable[[float], float]
"""Takes the seconds of a window, returns the steps (or gradients) per second in it."""


# -- in the process of a checkout --------------------------------------------------------------------------------------


def sim_rate(kind: str, sim: str) -> Rate:
    """Rate of the batch alone, or of the slot loop with a policy, within episodes or over whole ones."""
    import sim_throughput

    from metaroll.envs.sims import catalog

    env = getattr(catalog, SIMS[sim])()
    if kind == "batch":
        step_batch = sim_throughput.batched(env, SIM_SLOTS)
        return lambda seconds: sim_throughput.rate(lambda: step_batch, seconds)
    _, middle, whole = sim_throughput.engine_and_policy(env, SIM_SLOTS)
    return lambda seconds: sim_throughput.rate(middle if kind == "middle" else whole, seconds)


def ppo_rate(env: str) -> Rate:
    """Rate of short trainings; each is one window, however many seconds are asked for."""
    import ppo_control

    seeds = itertools.count()

    def rate(seconds: float) -> float:
        result = ppo_control.train_ours(env, {**ppo_control.SETTINGS[env], "epochs": PPO_EPOCHS}, next(seeds), 1)
        return result["env_steps"] / result["seconds"]

    return rate


def update_rate(kind: str) -> Rate:
    """Rate of gradient steps of an off-policy learner."""
    import update_rate

    run = update_rate.our_steps(kind)
    return repeated(lambda: run(update_rate.TOGETHER), update_rate.TOGETHER)


def maml_rate(order: str) -> Rate:
    """Rate of meta-gradients on the same samples."""
    import maml_update

    learner, steps = maml_update.make_ours(*MAML_SIZES, order == "second-order")
    meta, state = learner._meta_parameters(), learner._state
    return repeated(lambda: maml_update.BatchedTasks(learner._problem, learner.outer, steps).gradient(meta, state), 1)


def repeated(work: Callable[[], Any], count: int) -> Rate:
    """Rate of calling ``work`` again and again, where each call counts as ``count``."""

    def rate(seconds: float) -> float:
        begin, calls = time.perf_counter(), 0
        while (spent := time.perf_counter() - begin) < seconds or not calls:
            work()
            calls += 1
        return calls * count / spent

    return rate


def make_rate(case: str) -> Rate:
    """The contestant of a case, from the benchmarks of the checkout whose library is imported."""
    kind, name = case.split()
    if kind == "rollouts":
        from rollout_throughput import Ours

        import metaroll

        library: Any = metaroll  # untyped, since names differ between checkouts
        engine = Ours(name, library.SamplerPool(2, transport="process"), 16, ROLLOUTS[name], None)
        return lambda seconds: engine.rate(seconds).steps
    if kind == "mujoco":
        from mujoco_throughput import ours

        return ours(name, MUJOCO_SLOTS, None, argparse.Namespace(max_steps=MUJOCO_STEPS))[0]
    learners = {"ppo": ppo_rate, "update": update_rate, "maml": maml_rate}
    return learners[kind](name) if kind in learners else sim_rate(kind, name)


def serve(case: str) -> None:
    """Measure one window for each line of the input, which holds its seconds."""
    import torch

    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the library must not mix with the answers
    rate = make_rate(case)
    for line in sys.stdin:
        answers.write(f"{rate(float(line))}\n")
        answers.flush()


# -- measuring ---------------------------------------------------------------------------------------------------------


class Checkout:
    """A process that measures a case with the library and the benchmarks of one folder."""

    def __init__(self, folder: Path, case: str) -> None:
        path = os.pathsep.join([str(folder / "src"), str(folder / "benchmarks")])
        command = [sys.executable, "-P", "-c", SERVER, str(HERE), case]
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def rate(self, seconds: float) -> float:
        pipes = self._process
        if pipes.stdin is None or pipes.stdout is None:
            raise RuntimeError("the process has no pipes")
        pipes.stdin.write(f"{seconds}\n")
        pipes.stdin.flush()
        answer = pipes.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process ended with status {pipes.wait()}; its error is printed above")
        return float(answer)

    def close(self) -> None:
        self._process.communicate()


SERVER = """import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("before_after", os.path.join(sys.argv[1], "before_after.py"))
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.serve(sys.argv[2])
"""


def interval_of_median(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Order statistics that enclose the median with at least this probability; the extremes of too few values."""
    ordered, n = sorted(values), len(values)
    tail, cut = 0.5**n, 0
    while 2 * tail <= 1 - level:
        cut += 1
        tail += math.comb(n, cut) * 0.5**n
    cut = max(cut - 1, 0)
    return ordered[cut], ordered[n - 1 - cut]


def measure(case: str, before: Path, args: argparse.Namespace) -> None:
    from _reporting import report, versions

    sides = {"after": Checkout(HERE.parent, case), "before": Checkout(before, case)}
    rates: dict[str, list[float]] = {side: [] for side in sides}
    try:
        for side in sides.values():  # the first window warms up
            side.rate(args.seconds)
        for window in range(args.windows):
            for name in sorted(sides, reverse=bool(window % 2)):
                rates[name].append(sides[name].rate(args.seconds))
    finally:
        for side in sides.values():
            side.close()
    ratios = [after / before for after, before in zip(rates["after"], rates["before"], strict=True)]
    low, high = interval_of_median(ratios)
    report(
        NAME,
        args.no_save or args.check,
        peer="metaroll",
        metric="updates_per_second" if case.split()[0] in UNITS else "env_steps_per_second",
        value=round(statistics.median(rates["after"]), 1),
        unit=UNITS.get(case.split()[0], "environment steps/s"),
        ratio=round(statistics.median(ratios), 4),
        ratio_interval=[round(low, 4), round(high, 4)],
        peer_value=round(statistics.median(rates["before"]), 1),
        config={"case": case, "before": args.name, "windows": args.windows, "seconds": args.seconds},
        load_average=round(os.getloadavg()[0], 2),
        versions=versions("metaroll", "numpy", "torch", "gymnasium", "mujoco"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path, nargs="?", default=HERE.parent, help="folder of the other checkout")
    parser.add_argument("--cases", nargs="+", default=[""], help="only cases whose names contain one of these")
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds per window")
    parser.add_argument("--no-save", action="store_true", help="append nothing to the results")
    parser.add_argument("--check", "--quick", action="store_true", help="some cases in short windows, nothing appended")
    args = parser.parse_args()
    if args.check:
        args.windows, args.seconds, args.cases = 3, 0.3, ["point", "batch"]
    described = subprocess.run(["git", "-C", str(args.before), "rev-parse", "--short", "HEAD"], capture_output=True)
    args.name = described.stdout.decode().strip() or "unknown"
    begun = time.monotonic()
    for case in CASES:
        if any(text in case for text in args.cases):
            measure(case, args.before.resolve(), args)
    sys.stderr.write(f"{time.monotonic() - begun:.0f} s\n")


if __name__ == "__main__":
    main()
