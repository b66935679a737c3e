"""Environment steps per second of batched MuJoCo with a 64x64 policy, beside bare physics and other libraries.

    python benchmarks/mujoco_throughput.py
    python benchmarks/mujoco_throughput.py --envs HalfCheetah-v5 --slots 64 --repeats 7 --seconds 4
    python benchmarks/mujoco_throughput.py --check      HalfCheetah in processes, status 1 if a bar is missed

Ours are whole calls of ``RolloutEngine.run``, which include recording ``StepSequence`` objects, in two variants:
``threads`` steps all slots in this process with two threads, ``processes`` divides them between two worker processes.
``peer=floor`` is bare physics: two threads that only call ``mj_step`` (and ``mj_rnePostConstraint``, where the
environment reads contact forces) on their own data, along the steps of our rollouts. All contestants have the same
number of environments, and are warmed up first. Windows of ours and of a peer alternate; a ratio is that of two
neighboring windows, and reported is the median over the repetitions with its range. ``peer=none`` compares ours with
ours: one model per slot with one for all, and the time of setting the tasks of 40 slots with that of steps.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from _reporting import report, report_missing, versions
from _throughput_envs import make_env, make_policy
from _vector_loops import PEER_POLICIES, PEERS

NAME = "mujoco_throughput"
UNIT = "environment steps/s"
ENVS = ("HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
WORKERS = 2
SB3_SLOTS = 64
BARS = {
    ("floor", 64): 0.85,
    ("envpool", 64): 1.25,
    ("stable-baselines3", 64): 6.0,
    ("none", 64): 0.85,
    ("envpool", 16): 1.5,
    ("envpool", 8): 1.7,
}
"""(Peer, slots) -> demanded ratio for HalfCheetah-v5 in processes."""
TASK_BAR = 0.01
TASK_SLOTS, TASK_STEPS = 40, 200
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium", "mujoco", "stable-baselines3", "envpool")

Rate = Callable[[float], float]
"""Takes the seconds of a window, returns the steps per second in it."""


# -- contestants -------------------------------------------------------------------------------------------------------


def ours(env: str, slots: int, pool: Any, args: argparse.Namespace, own_models: bool = False) -> tuple[Rate, Any]:
    """Rate of calls of the engine with ``slots`` environments in all, and the engine."""
    from metaroll.rollouts.engine.engine import RolloutEngine
    from metaroll.tasks.domain_params import DomainParamUpdate
    from metaroll.types import RolloutPlan

    each = slots if pool is None else max(1, slots // WORKERS)
    engine = RolloutEngine(env, make_policy(env), pool=pool, slots_per_unit=each)
    calls = itertools.count()
    drawn = np.random.default_rng(0).uniform(0.9, 1.1, slots)
    updates = [DomainParamUpdate({"body_mass:*": value}) if own_models else None for value in drawn]

    def rate(seconds: float) -> float:
        begin, steps = time.perf_counter(), 0
        while not steps or time.perf_counter() - begin < seconds:
            call = next(calls)
            plans = [
                RolloutPlan(i, (0, call, i), updates[i % slots], max_steps=args.max_steps) for i in range(4 * slots)
            ]
            steps += sum(map(len, engine.run(plans)))
        return steps / (time.perf_counter() - begin)

    return rate, engine


def recorded(env: str, slots: int, args: argparse.Namespace) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Initial positions and velocities, and actions ``(T, A)``, of our rollouts."""
    from metaroll.rollouts.engine.engine import RolloutEngine
    from metaroll.tasks.plan_table import plan_env_seed
    from metaroll.types import RolloutPlan

    plans = [RolloutPlan(i, (1, 0, i), max_steps=args.max_steps) for i in range(slots)]
    with RolloutEngine(env, make_policy(env)) as engine:
        rollouts = engine.run(plans)
    recordings = []
    with contextlib.closing(make_env(env)) as wrapped:
        inner: Any = wrapped.unwrapped
        for i, rollout in enumerate(rollouts):
            wrapped.reset(seed=plan_env_seed((1, 0, i)))
            recordings.append((inner.data.qpos.copy(), inner.data.qvel.copy(), rollout.actions.astype(np.float64)))
    return recordings


def floor(env: str, slots: int, args: argparse.Namespace) -> Rate:
    """Rate of two threads of ``mj_step``, where each environment repeats one of our rollouts on its own data."""
    import mujoco

    with contextlib.closing(make_env(env)) as wrapped:
        inner: Any = wrapped.unwrapped
        model, frames, contacts = inner.model, inner.frame_skip, env in ("Ant-v5", "Humanoid-v5")
    datas = [mujoco.MjData(model) for _ in range(slots)]
    jobs = list(zip(datas, [data.ctrl for data in datas], recorded(env, slots, args), strict=True))

    def work(share: Sequence[Any], seconds: float, begin: float, counts: list[int]) -> None:
        step, rne, steps = mujoco.mj_step, mujoco.mj_rnePostConstraint, 0
        while not steps or time.perf_counter() - begin < seconds:
            for t in range(args.max_steps):
                for data, ctrl, (qpos, qvel, actions) in share:
                    row = t % len(actions)
                    if row == 0:
                        mujoco.mj_resetData(model, data)
                        data.qpos[:], data.qvel[:] = qpos, qvel
                        mujoco.mj_forward(model, data)
                    ctrl[:] = actions[row]
                    step(model, data, frames)
                    if contacts:
                        rne(model, data)
            steps += args.max_steps * len(share)
        counts.append(steps)

    def rate(seconds: float) -> float:
        counts: list[int] = []
        begin = time.perf_counter()
        threads = [
            threading.Thread(target=work, args=(jobs[part::WORKERS], seconds, begin, counts)) for part in range(WORKERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.perf_counter() - begin)

    return rate


# -- measuring ---------------------------------------------------------------------------------------------------------


def report_ratio(args: argparse.Namespace, pairs: Sequence[tuple[float, float]], **known: Any) -> float:
    """Report the median ratio of neighboring windows, and return it."""
    ratios = [a / b for a, b in pairs]
    line = report(
        NAME,
        args.quick or args.no_save,
        metric="env_steps_per_second",
        value=round(statistics.median(a for a, _ in pairs), 1),
        unit=UNIT,
        ratio=round(statistics.median(ratios), 4),
        ratio_range=[round(min(ratios), 4), round(max(ratios), 4)],
        peer_value=round(statistics.median(b for _, b in pairs), 1),
        load_average=round(os.getloadavg()[0], 2),
        versions=versions(*PACKAGES),
        **known,
    )
    return float(line["ratio"])


@contextlib.contextmanager
def peers_of(env: str, slots: int, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Peer -> its rate, or the reason why it is missing."""
    rates: dict[str, Any] = {"floor": floor(env, slots, args)}
    with contextlib.ExitStack() as stack:
        for peer in ("envpool", "stable-baselines3"):
            if peer == "stable-baselines3" and (slots != SB3_SLOTS or env != ENVS[0]) and not args.quick:
                continue
            try:
                loop = PEERS[peer][0](env, slots, args.peer_policy)
            except (ImportError, LookupError) as error:
                rates[peer] = str(error)
                continue
            stack.callback(loop.close)
            rates[peer] = lambda seconds, loop=loop: loop.rate(seconds).steps
        yield rates


def measure(env: str, slots: int, pool: Any, args: argparse.Namespace) -> bool:
    """Compare ours with every peer, and one model per slot with one for all; returns whether the bars hold."""
    common = {"env": env, "policy": "64x64 tanh, acting through NumPy", "max_steps": args.max_steps}
    common |= {"repeats": args.repeats, "seconds": args.seconds}
    variants = {"processes": pool} if args.check else {"threads": None, "processes": pool}
    held = True
    with contextlib.ExitStack() as stack:
        rates: dict[tuple[str, bool], Rate] = {}
        for variant, own_models in itertools.product(variants, (False, True)):
            rates[variant, own_models], engine = ours(env, slots, variants[variant], args, own_models)
            stack.callback(engine.close)
        peers = stack.enter_context(peers_of(env, slots, args))
        for rate in (*rates.values(), *(peer for peer in peers.values() if not isinstance(peer, str))):
            rate(0.2 * args.seconds)
        pairs: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for _ in range(args.repeats):
            for variant, (peer, theirs) in itertools.product(variants, peers.items()):
                if not isinstance(theirs, str):
                    pair = (rates[variant, False](args.seconds), theirs(args.seconds))
                    pairs.setdefault((peer, variant), []).append(pair)
            for variant in variants:
                pair = (rates[variant, True](args.seconds), rates[variant, False](args.seconds))
                pairs.setdefault(("none", variant), []).append(pair)
    for (peer, variant), measured in pairs.items():
        config = {**common, "way": variant}
        if peer == "none":
            config |= {"ours_is": "a model for every slot", "peer_is": "one model for all"}
        elif peer == "floor":
            config["peer_is"] = f"{WORKERS} threads of mj_step on data of their own, no policy"
        else:
            config |= {"peer_is": PEERS[peer][1], "peer_policy": PEER_POLICIES[args.peer_policy]}
        ratio = report_ratio(args, measured, peer=peer, slots=slots, config=config)
        held &= variant == "threads" or env != ENVS[0] or ratio >= BARS.get((peer, slots), 0.0)
    for peer, reason in peers.items():
        if isinstance(reason, str):
            known = {"metric": "env_steps_per_second", "unit": UNIT, "slots": slots, "config": common}
            report_missing(
                NAME, args.quick or args.no_save, peer=peer, reason=reason, versions=versions(*PACKAGES), **known
            )
    return held


def measure_tasks(args: argparse.Namespace) -> bool:
    """Report the time of setting the tasks of 40 slots as a share of that of 200 steps; returns if the bar holds."""
    from metaroll.envs.lookup.source import make_slots
    from metaroll.envs.mujoco.cheetah_vel import CheetahVelEnv
    from metaroll.tasks.updates import SetTaskUpdate
    from metaroll.types import RolloutPlan

    slots: Any = make_slots(CheetahVelEnv, TASK_SLOTS)
    tasks = [SetTaskUpdate(CheetahVelEnv, task) for task in CheetahVelEnv.sample_tasks(TASK_SLOTS, 0)]
    rows, active = list(range(TASK_SLOTS)), np.ones(TASK_SLOTS, dtype=bool)
    actions = np.random.default_rng(0).uniform(-1, 1, (TASK_STEPS, TASK_SLOTS, 6)).astype(np.float32)
    plain = [RolloutPlan(i, (0, 0, i)) for i in rows]
    with_task = [plan.with_(env_update=task) for plan, task in zip(plain, tasks, strict=True)]

    def seconds(work: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    def run() -> None:
        for row in actions:
            slots.step(row, active)

    resets = [[seconds(lambda p=p: slots.reset(rows, p)) for p in (with_task, plain)] for _ in range(20 * args.repeats)]
    steps = statistics.median(seconds(run) for _ in range(args.repeats))
    extra = statistics.median(a for a, _ in resets) - statistics.median(b for _, b in resets)
    slots.close()
    line = report(
        NAME,
        args.quick or args.no_save,
        peer="none",
        metric="task_setting_share",
        value=round(max(extra, 0.0) / steps, 6),
        unit=f"seconds to set {TASK_SLOTS} tasks / seconds of {TASK_SLOTS} x {TASK_STEPS} steps",
        slots=TASK_SLOTS,
        config={"env": "cheetah-vel", "whole_reset_share": round(statistics.median(a for a, _ in resets) / steps, 6)},
        load_average=round(os.getloadavg()[0], 2),
        versions=versions(*PACKAGES),
    )
    return float(line["value"]) < TASK_BAR


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--envs", nargs="+", choices=list(ENVS), default=list(ENVS))
    parser.add_argument("--slots", type=int, nargs="+", default=[8, 16, 64])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds per window")
    parser.add_argument("--max-steps", type=int, default=200, help="steps per rollout")
    parser.add_argument("--peer-policy", choices=list(PEER_POLICIES), default="numpy", help="how peers compute actions")
    parser.add_argument("--no-save", action="store_true", help="append nothing to the results")
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed; appends nothing")
    parser.add_argument("--quick", action="store_true", help="one environment, short windows, nothing appended")
    args = parser.parse_args()
    if args.check:
        args.envs, args.repeats, args.seconds, args.no_save = args.envs[:1], 7, 1.0, True
    if args.quick:
        args.envs, args.slots, args.repeats, args.seconds, args.max_steps = args.envs[:1], [4], 1, 0.05, 20
    import torch

    from metaroll.rollouts.workers.pool import SamplerPool

    torch.set_num_threads(1)
    with SamplerPool(WORKERS, transport="process") as pool:
        held = [measure(env, slots, pool, args) for env, slots in itertools.product(args.envs, args.slots)]
    held.append(measure_tasks(args))
    if args.check and not all(held):
        sys.exit("a bar was missed")


if __name__ == "__main__":
    main()
