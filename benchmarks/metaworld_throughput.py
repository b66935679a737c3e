"""Meta-World: environment steps per second beside its own vector environment, cost of tasks, success of its experts.

    python benchmarks/metaworld_throughput.py
    python benchmarks/metaworld_throughput.py --parts throughput --repeats 5

``throughput``: whole calls of ``RolloutEngine.run`` with 2 workers and a 64x64 policy over the ten classes of MT10,
resets included, in turn with Meta-World's own ``make_mt_envs("MT10", vector_strategy="async")``, which gets actions
drawn in advance and so runs no policy. ``tasks``: time of setting the tasks of 40 slots relative to that of the 500
steps that follow. ``experts``: success rate of Meta-World's scripted policies in the training classes of ML10.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from typing import Any

import numpy as np
from _reporting import report, report_missing, versions

NAME = "metaworld_throughput"
WORKERS = 2
CLASSES = 10
SLOTS = 40
HORIZON = 500
PACKAGES = ("metaroll", "metaworld", "mujoco", "gymnasium", "numpy", "scipy", "torch")
PARTS = ("throughput", "tasks", "experts")


class Ours:
    """Whole calls of ``RolloutEngine.run``, with new tasks at every call."""

    def __init__(self, benchmark: Any, pool: Any, num_plans: int, steps: int) -> None:
        from metaroll.envs.metaworld.goal_sampler import MetaWorldTaskSampler
        from metaroll.policies.gaussian import GaussianMLPPolicy
        from metaroll.rollouts.engine.engine import RolloutEngine
        from metaroll.seeding import torch_generator
        from metaroll.types import EnvSpec

        self._sampler = MetaWorldTaskSampler(benchmark, "train", horizon=steps, generator=0)
        (source, *_) = self._sampler.sample(CLASSES)
        env = source()
        policy = GaussianMLPPolicy(EnvSpec.from_env(env), hidden_sizes=(64, 64), generator=torch_generator(0))
        env.close()
        self._engine = RolloutEngine(source, policy, pool=pool)
        self._num_plans, self._calls = num_plans, 0

    def rate(self) -> float:
        from metaroll.types import RolloutPlan

        self._calls += 1
        updates = self._sampler.sample(self._num_plans)
        plans = [RolloutPlan(i, (0, self._calls, i), update) for i, update in enumerate(updates)]
        begin = time.perf_counter()
        steps = sum(map(len, self._engine.run(plans)))
        return steps / (time.perf_counter() - begin)

    def close(self) -> None:
        self._engine.close()


class Async:
    """Meta-World's own vector environment, one process for each of the ten classes."""

    def __init__(self, steps: int) -> None:
        import metaworld

        self._envs: Any = metaworld.make_mt_envs("MT10", seed=1, vector_strategy="async", max_episode_steps=steps)
        self._actions = np.random.default_rng(0).normal(size=(steps, CLASSES, 4)).astype(np.float32)
        self._envs.reset()

    def rate(self) -> float:
        begin = time.perf_counter()
        for actions in self._actions:
            self._envs.step(actions)
        return self._actions.shape[0] * CLASSES / (time.perf_counter() - begin)

    def close(self) -> None:
        self._envs.close()


def measure_throughput(args: argparse.Namespace, benchmark: Any) -> None:
    from metaroll.rollouts.workers.pool import SamplerPool

    steps, num_plans = (50, 20) if args.quick else (HORIZON, SLOTS)
    with SamplerPool(WORKERS, transport="process") as pool:
        ours, theirs = Ours(benchmark, pool, num_plans, steps), Async(steps)
        for _ in range(4):  # until both workers have an environment of every class
            ours.rate()
        theirs.rate()
        pairs = [(ours.rate(), theirs.rate()) for _ in range(args.repeats)]
        ours.close()
        theirs.close()
    ratios = [a / b for a, b in pairs]
    report(
        NAME,
        args.quick,
        peer="metaworld",
        metric="env_steps_per_second",
        value=round(statistics.median(a for a, _ in pairs), 1),
        unit="environment steps/s",
        ratio=round(statistics.median(ratios), 4),
        ratio_range=[round(min(ratios), 4), round(max(ratios), 4)],
        peer_value=round(statistics.median(b for _, b in pairs), 1),
        config={
            "env": "MT10",
            "workers": WORKERS,
            "rollouts_per_call": num_plans,
            "horizon": steps,
            "repeats": args.repeats,
            "peer": "make_mt_envs, asynchronous, 10 processes, actions drawn beforehand",
        },
        load_average=round(os.getloadavg()[0], 2),
        versions=versions(*PACKAGES),
    )


def measure_tasks(args: argparse.Namespace, benchmark: Any) -> None:
    """Report median times of setting new tasks and of whole resets, each as a share of the time of the steps."""
    from metaroll.envs.metaworld.goal_sampler import MetaWorldTaskSampler
    from metaroll.envs.slots.gym_slots import GymSlots
    from metaroll.types import RolloutPlan

    slots_count, steps = (CLASSES, 20) if args.quick else (SLOTS, HORIZON)
    sampler = MetaWorldTaskSampler(benchmark, "train", generator=0)
    updates = sampler.sample(slots_count)
    slots, active = GymSlots(updates[0], slots_count), np.ones(slots_count, dtype=bool)
    actions = np.random.default_rng(0).normal(size=(steps, slots_count, 4)).astype(np.float32)
    shares: dict[str, list[float]] = {"task_setting_share": [], "reset_share": []}
    for repetition in range(args.repeats + 1):
        updates = sampler.sample(slots_count)
        plans = [RolloutPlan(i, (0, repetition, i), update) for i, update in enumerate(updates)]
        begin = time.perf_counter()
        slots.reset(range(slots_count), plans)
        resetting = time.perf_counter() - begin
        begin = time.perf_counter()
        for row in actions:
            slots.step(row, active)
        stepping = (time.perf_counter() - begin) * HORIZON / steps
        new_tasks, envs = sampler.sample(slots_count), slots.environments()
        begin = time.perf_counter()
        for env, update in zip(envs, new_tasks, strict=True):
            update(env)
        setting = time.perf_counter() - begin
        if repetition:  # the first one builds the environments
            shares["task_setting_share"].append(setting / stepping)
            shares["reset_share"].append(resetting / stepping)
    slots.close()
    for metric, values in shares.items():
        report(
            NAME,
            args.quick,
            peer="none",
            metric=metric,
            value=round(statistics.median(values), 5),
            value_range=[round(min(values), 5), round(max(values), 5)],
            unit=f"time per time of {HORIZON} steps of all slots",
            slots=slots_count,
            config={"env": "MT10", "steps_measured": steps, "repeats": args.repeats},
            load_average=round(os.getloadavg()[0], 2),
            versions=versions(*PACKAGES),
        )


def measure_experts(args: argparse.Namespace) -> None:
    from metaworld.env_dict import ML10_V3
    from metaworld.policies import ENV_POLICY_MAP

    from metaroll.envs.metaworld.benchmarks import make_metaworld_benchmark
    from metaroll.envs.metaworld.goal_sampler import MetaWorldTaskSampler

    names = list(ML10_V3["train"])[: 2 if args.quick else None]
    tasks = 2 if args.quick else args.expert_tasks
    benchmark = make_metaworld_benchmark("custom-MT", train=names, seed=1)  # experts need to observe the goal
    rates = dict.fromkeys(names, 0.0)
    env = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of experts: constants above 1, clipped here; of metaroll: another class
        for update in MetaWorldTaskSampler(benchmark, "train", generator=1).sample(tasks * len(names)):
            name = update.task.env_name
            env, expert = update(env), ENV_POLICY_MAP[name]()
            observation, _ = env.reset()
            truncated, info = False, {}
            while not truncated and not info.get("success"):
                action = np.clip(expert.get_action(observation), -1.0, 1.0).astype(np.float32)
                observation, _, _, truncated, info = env.step(action)
            rates[name] += float(info["success"]) / tasks
    report(
        NAME,
        args.quick,
        peer="none",
        metric="expert_success_rate",
        value=round(statistics.mean(rates.values()), 4),
        unit="share of episodes with success at any step",
        per_class={name: round(rate, 3) for name, rate in rates.items()},
        config={"env": "training classes of ML10, goals visible", "tasks_per_class": tasks, "horizon": HORIZON},
        versions=versions(*PACKAGES),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--expert-tasks", type=int, default=50, help="tasks per class, at most 50")
    parser.add_argument("--quick", action="store_true", help="short episodes, two classes of experts, nothing appended")
    args = parser.parse_args()
    args.repeats = 1 if args.quick else args.repeats
    import torch

    from metaroll.envs.metaworld.benchmarks import make_metaworld_benchmark

    torch.set_num_threads(1)
    try:
        benchmark = make_metaworld_benchmark("MT10", seed=1)
    except ImportError as error:
        known = {"metric": "env_steps_per_second", "unit": "environment steps/s", "config": {"env": "MT10"}}
        report_missing(NAME, args.quick, peer="metaworld", reason=str(error), versions=versions(*PACKAGES), **known)
        return
    if "throughput" in args.parts:
        measure_throughput(args, benchmark)
    if "tasks" in args.parts:
        measure_tasks(args, benchmark)
    if "experts" in args.parts:
        measure_experts(args)


if __name__ == "__main__":
    main()
