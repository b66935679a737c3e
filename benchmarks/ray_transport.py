"""Environment steps per second with Ray actors as workers, beside worker processes in the same run.

    python benchmarks/ray_transport.py
    python benchmarks/ray_transport.py --repeats 8 --seconds 5

Both are whole calls of ``RolloutEngine.run`` with the same plans, 2 workers and 16 slots, up to the recorded
``StepSequence`` objects in the parent; Ray runs on this machine alone. Both are warmed up; then short windows of
the two alternate, and so does which one begins. A ratio compares two neighboring windows; its median over the
repetitions is reported, with its range. The rollouts of both are compared bitwise.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from typing import Any

from _reporting import report, report_missing, versions
from _throughput_envs import make_policy

from metaroll.data.compare import rollouts_equal
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.types import RolloutPlan

NAME = "ray_transport"
ENV = "HalfCheetah-v5"
WORKERS, SLOTS = 2, 16
UNIT = "environment steps/s"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium", "mujoco", "ray")


class Contestant:
    """Whole calls of one engine."""

    def __init__(self, transport: str, args: argparse.Namespace) -> None:
        begin = time.perf_counter()
        self._pool = SamplerPool(WORKERS, transport=transport)
        self._engine = RolloutEngine(ENV, make_policy(ENV), pool=self._pool, slots_per_unit=SLOTS)
        self._args, self._calls = args, itertools.count()
        self.first = self.run()
        self.start_s = time.perf_counter() - begin

    def run(self) -> list[Any]:
        call = next(self._calls)
        plans = [RolloutPlan(i, (0, call, i), max_steps=self._args.max_steps) for i in range(self._args.plans)]
        return self._engine.run(plans)

    def rate(self) -> float:
        begin, steps = time.perf_counter(), 0
        while not steps or time.perf_counter() - begin < self._args.seconds:
            steps += sum(map(len, self.run()))
        return steps / (time.perf_counter() - begin)

    def close(self) -> None:
        self._engine.close()
        self._pool.stop()


def measure(args: argparse.Namespace) -> None:
    config = {
        "env": ENV,
        "workers": WORKERS,
        "plans_per_call": args.plans,
        "max_steps": args.max_steps,
        "repeats": args.repeats,
        "seconds": args.seconds,
        "peer": "the same engine with transport='process'",
    }
    unsaved = args.quick or args.no_save
    known = {"metric": "env_steps_per_second", "unit": UNIT, "slots": SLOTS, "config": config}
    try:
        ours = Contestant("ray", args)
    except ImportError as error:
        report_missing(NAME, unsaved, peer="process", reason=str(error), versions=versions(*PACKAGES), **known)
        return
    theirs = Contestant("process", args)
    try:
        equal = all(rollouts_equal(a, b) for a, b in zip(ours.first, theirs.first, strict=True))
        rates: dict[Contestant, list[float]] = {ours: [], theirs: []}
        for repetition in range(args.repeats):
            for one in (ours, theirs) if repetition % 2 else (theirs, ours):
                rates[one].append(one.rate())
    finally:
        ours.close()
        theirs.close()
    ratios = [a / b for a, b in zip(rates[ours], rates[theirs], strict=True)]
    report(
        NAME,
        unsaved,
        peer="process",
        value=round(statistics.median(rates[ours]), 1),
        ratio=round(statistics.median(ratios), 4),
        ratio_range=[round(min(ratios), 4), round(max(ratios), 4)],
        peer_value=round(statistics.median(rates[theirs]), 1),
        start_seconds=round(ours.start_s, 1),
        peer_start_seconds=round(theirs.start_s, 1),
        same_bits=equal,
        load_average=round(os.getloadavg()[0], 2),
        versions=versions(*PACKAGES),
        **known,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a window")
    parser.add_argument("--plans", type=int, default=128, help="rollouts per call")
    parser.add_argument("--no-save", action="store_true", help="append nothing to the results")
    parser.add_argument("--quick", action="store_true", help="short windows, nothing appended")
    args = parser.parse_args()
    args.max_steps = None
    if args.quick:
        args.repeats, args.seconds, args.plans, args.max_steps = 1, 0.05, 32, 20
    measure(args)


if __name__ == "__main__":
    main()
