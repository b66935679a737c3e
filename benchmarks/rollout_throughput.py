"""Environment steps per second of the rollout engine, compared with bare environments and other libraries.

    python benchmarks/rollout_throughput.py
    python benchmarks/rollout_throughput.py --envs HalfCheetah-v5 --slots 16 --repeats 5 --seconds 5

Ours are whole calls of ``RolloutEngine.run`` with 2 workers, up to the recorded ``StepSequence`` objects in the parent.
Everything is warmed up first. Then short time windows of ours and of each peer alternate, since machines are noisy.
Each pair of neighboring windows gives a ratio; the median and range over the repetitions are reported.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from _reporting import report, report_missing, versions
from _throughput_envs import PointEnv, Rate, make_env, make_policy
from _vector_loops import PEER_POLICIES, PEERS
from gymnasium.spaces import Discrete

NAME = "rollout_throughput"
WORKERS = 2
SB3_ENVS = 16
UNIT = "environment steps/s"
ACTIONS = "standard normal actions (Box) or uniform ones (Discrete), drawn beforehand"
OUR_POLICY = "our 64x64 tanh policy, acting through NumPy, noise drawn in blocks"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium", "mujoco", "stable-baselines3", "envpool")


@dataclass(frozen=True)
class Setting:
    """Rollouts per call of the engine in an environment, and whether Stable-Baselines3 is measured, too."""

    plans: int
    sb3: bool = False


# Enough rollouts that a call takes at least some tenths of a second, as in training.
SETTINGS = {
    "HalfCheetah-v5": Setting(128, sb3=True),
    "Pendulum-v1": Setting(512),
    "CartPole-v1": Setting(4096),
    "point": Setting(1024),
}
QUICK_ENVS = ("HalfCheetah-v5", "point")


# -- the physical floor ------------------------------------------------------------------------------------------------


def step_alone(pipe: Any, name: str, seed: int) -> None:
    """Step one environment in the windows ``(begin, end)`` that a pipe gives, until it gives ``None``."""
    env, generator = make_env(name), np.random.default_rng(seed)
    count, space = 1 << 13, env.action_space
    draws = (
        generator.integers(space.n, size=count)
        if isinstance(space, Discrete)
        else generator.normal(size=(count, *(space.shape or ())))
    )
    actions = itertools.cycle(list(draws.astype(space.dtype)))
    env.reset(seed=seed)
    pipe.send("ready")
    while (window := pipe.recv()) is not None:
        begin, end = window
        while time.monotonic() < begin:
            pass
        steps, cpu = 0, time.process_time()
        while not steps or time.monotonic() < end:
            for action in itertools.islice(actions, 64):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            steps += 64
        pipe.send((steps, time.monotonic() - begin, time.process_time() - cpu))


class Bare:
    """Processes that only step one environment each, in parallel during a common time window."""

    def __init__(self, name: str) -> None:
        context = multiprocessing.get_context("forkserver")
        self._pipes, self._processes = [], []
        for seed in range(WORKERS):
            ours, theirs = context.Pipe()
            process = context.Process(target=step_alone, args=(theirs, name, seed), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def rate(self, seconds: float, processes: int = WORKERS) -> Rate:
        begin = time.monotonic() + 0.02
        for pipe in self._pipes[:processes]:
            pipe.send((begin, begin + seconds))
        done = [pipe.recv() for pipe in self._pipes[:processes]]
        steps = sum(count for count, _, _ in done)
        return Rate(sum(count / taken for count, taken, _ in done), 1e6 * sum(cpu for _, _, cpu in done) / steps)

    def close(self) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(None)
            process.join()


# -- ours --------------------------------------------------------------------------------------------------------------


class Ours:
    """Whole calls of ``RolloutEngine.run``."""

    def __init__(self, name: str, pool: Any, slots: int, num_plans: int, max_steps: int | None) -> None:
        from metaroll.rollouts.engine.engine import RolloutEngine

        source = PointEnv if name == "point" else name
        self._engine = RolloutEngine(source, make_policy(name), pool=pool, slots_per_unit=slots)
        self._num_plans, self._max_steps, self._calls = num_plans, max_steps, itertools.count()

    def _cpu(self) -> float:
        return time.process_time() + sum(self._engine.pool.invoke_all(lambda G: time.process_time()))

    def rate(self, seconds: float) -> Rate:
        from metaroll.types import RolloutPlan

        cpu, begin, steps = self._cpu(), time.perf_counter(), 0
        while not steps or time.perf_counter() - begin < seconds:
            call = next(self._calls)
            plans = [RolloutPlan(i, (0, call, i), max_steps=self._max_steps) for i in range(self._num_plans)]
            steps += sum(map(len, self._engine.run(plans)))
        taken = time.perf_counter() - begin
        return Rate(steps / taken, 1e6 * (self._cpu() - cpu) / steps)

    def close(self) -> None:
        self._engine.close()


# -- measuring ---------------------------------------------------------------------------------------------------------


class Windows:
    """Rates in alternating time windows of ours and of one peer."""

    def __init__(self) -> None:
        self.ours: list[Rate] = []
        self.theirs: list[Rate] = []

    def ratios(self) -> list[float]:
        return [a.steps / b.steps for a, b in zip(self.ours, self.theirs, strict=True)]

    def report(self, unsaved: bool, peer: str, slots: int, config: dict[str, Any]) -> None:
        ratios = self.ratios()
        report(
            NAME,
            unsaved,
            peer=peer,
            metric="env_steps_per_second",
            value=round(statistics.median(rate.steps for rate in self.ours), 1),
            unit=UNIT,
            ratio=round(statistics.median(ratios), 4),
            ratio_range=[round(min(ratios), 4), round(max(ratios), 4)],
            peer_value=round(statistics.median(rate.steps for rate in self.theirs), 1),
            cpu_us_per_step=median_cpu(self.ours),
            peer_cpu_us_per_step=median_cpu(self.theirs),
            slots=slots,
            config=config,
            load_average=round(os.getloadavg()[0], 2),
            versions=versions(*PACKAGES),
        )


def median_cpu(rates: Sequence[Rate]) -> float | None:
    known = [rate.cpu_us for rate in rates if rate.cpu_us is not None]
    return round(statistics.median(known), 2) if known else None


@contextlib.contextmanager
def contestants(name: str, args: argparse.Namespace, pools: Sequence[Any]) -> Iterator[dict[Any, Any]]:
    """All contestants in one environment, warmed up; for a missing peer the reason, a string."""
    setting = SETTINGS[name]
    by_key: dict[Any, Any] = {}
    with contextlib.ExitStack() as stack:

        def add(key: Any, contestant: Any) -> None:
            stack.callback(contestant.close)
            contestant.rate(0.2 * args.seconds)
            by_key[key] = contestant

        add("floor", Bare(name))
        for slots in args.slots:
            for workers, pool in enumerate(pools, start=1):
                if workers == WORKERS or slots == scaling_slots(args):
                    add(("ours", workers, slots), Ours(name, pool, slots, plans_of(name, args), args.max_steps))
            for peer, (make, _) in PEERS.items():
                if peer == "stable-baselines3" and (not setting.sb3 or slots != args.slots[0]):
                    continue
                key = peer if peer == "stable-baselines3" else (peer, slots)
                try:
                    add(key, make(name, envs_of(peer, slots, args), args.peer_policy))
                except (ImportError, LookupError) as error:
                    by_key[key] = str(error)
        yield by_key


def unsaved(args: argparse.Namespace) -> bool:
    return args.quick or args.no_save


def plans_of(name: str, args: argparse.Namespace) -> int:
    return 128 if args.quick else SETTINGS[name].plans


def envs_of(peer: str, slots: int, args: argparse.Namespace) -> int:
    if peer == "stable-baselines3":
        return 4 if args.quick else SB3_ENVS
    return WORKERS * slots


def scaling_slots(args: argparse.Namespace) -> int:
    return 16 if 16 in args.slots else args.slots[-1]


def measure(name: str, args: argparse.Namespace, pools: Sequence[Any]) -> None:
    """Measure and report one environment."""
    windows: dict[tuple[str, int], Windows] = {}
    scaling: list[dict[str, float]] = []
    with contestants(name, args, pools) as by_key:
        for _ in range(args.repeats):
            for slots in args.slots:
                for peer in ("floor", *PEERS):
                    other = by_key.get(peer, by_key.get((peer, slots)))
                    if other is not None and not isinstance(other, str):
                        pair = windows.setdefault((peer, slots), Windows())
                        pair.theirs.append(other.rate(args.seconds))
                        pair.ours.append(by_key["ours", WORKERS, slots].rate(args.seconds))
            scaling.append(scaling_of(by_key, scaling_slots(args), args.seconds))
        missing = {key: reason for key, reason in by_key.items() if isinstance(reason, str)}
    common = {"env": name, "workers": WORKERS, "policy": OUR_POLICY, "plans_per_call": plans_of(name, args)}
    common |= {"max_steps": args.max_steps, "repeats": args.repeats, "seconds": args.seconds}
    acting = PEER_POLICIES[args.peer_policy]
    for (peer, slots), pair in windows.items():
        if peer == "floor":
            detail = {"floor": f"{WORKERS} bare processes, one environment each; {ACTIONS}"}
        else:
            detail = {"peer": f"{PEERS[peer][1]}; {envs_of(peer, slots, args)} environments", "peer_policy": acting}
        pair.report(unsaved(args), peer, slots, {**common, **detail})
    for key, reason in missing.items():
        peer, slots = key if isinstance(key, tuple) else (key, None)
        known = {"metric": "env_steps_per_second", "unit": UNIT, "slots": slots, "config": common}
        report_missing(NAME, unsaved(args), peer=peer, reason=reason, versions=versions(*PACKAGES), **known)
    report_scaling(scaling, args, common)


def scaling_of(by_key: dict[Any, Any], slots: int, seconds: float) -> dict[str, float]:
    """Rates of one and of two bare processes and workers, measured one after another."""
    bare, one, two = by_key["floor"], by_key["ours", 1, slots], by_key["ours", WORKERS, slots]
    return {
        "bare_1": bare.rate(seconds, 1).steps,
        "ours_1": one.rate(seconds).steps,
        "bare_2": bare.rate(seconds).steps,
        "ours_2": two.rate(seconds).steps,
    }


def report_scaling(repetitions: Sequence[dict[str, float]], args: argparse.Namespace, common: dict[str, Any]) -> None:
    ours = [rates["ours_2"] / rates["ours_1"] for rates in repetitions]
    bare = [rates["bare_2"] / rates["bare_1"] for rates in repetitions]
    ratios = [a / b for a, b in zip(ours, bare, strict=True)]
    report(
        NAME,
        unsaved(args),
        peer="floor",
        metric="scaling",
        value=round(statistics.median(ours), 4),
        unit="rate of 2 workers / rate of 1 worker process",
        ratio=round(statistics.median(ratios), 4),
        ratio_range=[round(min(ratios), 4), round(max(ratios), 4)],
        peer_value=round(statistics.median(bare), 4),
        rates={name: round(statistics.median(rates[name] for rates in repetitions), 1) for name in repetitions[0]},
        slots=scaling_slots(args),
        config={**common, "floor": f"2 bare processes / 1 bare process; {ACTIONS}"},
        load_average=round(os.getloadavg()[0], 2),
        versions=versions(*PACKAGES),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--envs", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--slots", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a window")
    parser.add_argument("--peer-policy", choices=list(PEER_POLICIES), default="numpy", help="policy of other loops")
    parser.add_argument("--no-save", action="store_true", help="append nothing to the results")
    parser.add_argument("--quick", action="store_true", help="two environments, short windows, nothing appended")
    args = parser.parse_args()
    args.max_steps = None
    if args.quick:
        args.envs = [name for name in args.envs if name in QUICK_ENVS] or args.envs[:1]
        args.slots, args.repeats, args.seconds, args.max_steps = args.slots[:1], 1, 0.05, 10
    import torch

    from metaroll.rollouts.workers.pool import SamplerPool

    torch.set_num_threads(1)
    with SamplerPool(1, transport="process") as one, SamplerPool(WORKERS, transport="process") as two:
        for name in args.envs:
            measure(name, args, (one, two))


if __name__ == "__main__":
    main()
