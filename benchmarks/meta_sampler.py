"""Steps per second of ``MetaSampler``, beside ProMP's design: one process per task, one message per step.

python benchmarks/meta_sampler.py            measures, and appends to results/meta_sampler.jsonl
python benchmarks/meta_sampler.py --quick    the same with fewer and shorter paths, appending nothing
python benchmarks/meta_sampler.py --check    --quick, and status 1 if a bar is missed

40 tasks, one 64x64 policy for all. The peer "loop" rebuilds ProMP's ``MetaParallelEnvExecutor`` and sampling loop: one
process per task steps its environments. At every step this process evaluates the policy for all tasks at once, sends
the actions, and waits for all answers. Processes are forked and reset before the clock starts. Windows alternate;
reported is the median of the ratios of neighboring ones.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from _reporting import report, versions
from _throughput_envs import HIDDEN_SIZES

NAME = "meta_sampler"
TASKS = 40
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium", "mujoco")


class Case(NamedTuple):
    """An environment, paths per task, steps per path, and the demanded ratio of speeds."""

    env: str
    paths: int
    steps: int
    bar: float


CASES = (Case("cheetah-dir", 20, 100, 2.0), Case("point-navigation", 20, 100, 5.0))
QUICK = (Case("cheetah-dir", 5, 50, 2.0), Case("point-navigation", 20, 50, 5.0))


def policy_for(env: str) -> Any:
    from metaroll.envs.lookup.source import EnvSource
    from metaroll.policies.gaussian import GaussianMLPPolicy
    from metaroll.seeding import torch_generator

    return GaussianMLPPolicy(EnvSource.of(env).spec, hidden_sizes=HIDDEN_SIZES, generator=torch_generator(0))


# -- one process per task ----------------------------------------------------------------------------------------------


def serve(pipe: Any, env: str, count: int, max_steps: int, task: Any, number: int) -> None:
    """Step ``count`` environments with the actions received, and reset those that end."""
    from metaroll.envs.lookup.source import make_env

    envs = [make_env(env) for _ in range(count)]
    ages = [0] * count
    for one in envs:
        one.unwrapped.set_task(task)
    while (message := pipe.recv()) is not None:
        if isinstance(message, str):  # "reset"
            ages = [0] * count
            pipe.send([one.reset(seed=number * count + i)[0] for i, one in enumerate(envs)])
            continue
        results = []
        for i, (one, action) in enumerate(zip(envs, message, strict=True)):
            observation, reward, terminated, truncated, info = one.step(action)
            ages[i] += 1
            done = terminated or truncated or ages[i] >= max_steps
            if done:
                observation, ages[i] = one.reset()[0], 0
            results.append((observation, reward, done, info))
        pipe.send(list(zip(*results, strict=True)))
    pipe.close()


class ProcessPerTask:
    """ProMP's parallel executor and the loop of its ``MetaSampler``."""

    def __init__(self, case: Case, policy: Any, tasks: list[Any]) -> None:
        self._case, self._policy, self._noise = case, policy, np.random.default_rng(0)
        context = multiprocessing.get_context("fork")
        self._pipes, self._processes = [], []
        for number, task in enumerate(tasks):
            mine, theirs = context.Pipe()
            arguments = (theirs, case.env, case.paths, case.steps, task, number)
            self._processes.append(context.Process(target=serve, args=arguments, daemon=True))
            self._processes[-1].start()
            theirs.close()
            self._pipes.append(mine)

    def obtain_samples(self) -> tuple[list[list[dict[str, Any]]], int]:
        """Paths of each task, and their total number of steps."""
        case, count = self._case, TASKS * self._case.paths
        for pipe in self._pipes:
            pipe.send("reset")
        observations = [row for pipe in self._pipes for row in pipe.recv()]
        running: list[list[Any]] = [[] for _ in range(count)]
        paths: list[list[dict[str, Any]]] = [[] for _ in range(TASKS)]
        steps = 0
        while steps < count * case.steps:
            rows = np.asarray(observations)
            noise = self._noise.standard_normal((count, self._policy.info.noise_dim), dtype=np.float32)
            actions, _, agent_infos = self._policy.act(rows, {}, noise)
            for m, pipe in enumerate(self._pipes):
                pipe.send(actions[m * case.paths : (m + 1) * case.paths])
            answers = [pipe.recv() for pipe in self._pipes]
            following, rewards, dones, infos = (
                [x for part in column for x in part] for column in zip(*answers, strict=True)
            )
            for i, steps_of_path in enumerate(running):
                agent_info = {name: values[i] for name, values in agent_infos.items()}
                steps_of_path.append((observations[i], actions[i], rewards[i], infos[i], agent_info))
                if dones[i]:
                    paths[i // case.paths].append(stacked(steps_of_path))
                    steps += len(steps_of_path)
                    running[i] = []
            observations = following
        return paths, steps

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()


def stacked(steps: list[Any]) -> dict[str, Any]:
    observations, actions, rewards, env_infos, agent_infos = zip(*steps, strict=True)
    return {
        "observations": np.asarray(observations),
        "actions": np.asarray(actions),
        "rewards": np.asarray(rewards),
        "env_infos": {name: np.asarray([info[name] for info in env_infos]) for name in env_infos[0]},
        "agent_infos": {name: np.asarray([info[name] for info in agent_infos]) for name in agent_infos[0]},
    }


# -- measuring ---------------------------------------------------------------------------------------------------------


def speed_of_peer(peer: ProcessPerTask) -> float:
    begin = time.perf_counter()
    _, steps = peer.obtain_samples()
    return steps / (time.perf_counter() - begin)


def speed_of_ours(sampler: Any) -> float:
    before, begin = sampler.total_timesteps_sampled, time.perf_counter()
    sampler.obtain_samples()
    return (sampler.total_timesteps_sampled - before) / (time.perf_counter() - begin)


def measure(case: Case, args: argparse.Namespace) -> Iterator[bool]:
    """Measure both designs in turn, ours in this process and in workers; yields whether the faster holds the bar."""
    from metaroll.rollouts.samplers.meta_sampler import MetaSampler

    policy = policy_for(case.env)
    arguments = (case.env, policy, case.paths, TASKS, case.steps)
    with MetaSampler(*arguments, seed=0) as here, MetaSampler(*arguments, parallel=True, seed=0) as there:
        for sampler in (here, there):
            sampler.update_tasks()
            sampler.obtain_samples()
        peer = ProcessPerTask(case, policy, list(here.tasks or []))
        peer.obtain_samples()
        rows = [(speed_of_ours(here), speed_of_ours(there), speed_of_peer(peer)) for _ in range(args.repetitions)]
        peer.close()
    speeds = np.array(rows)
    for column, parallel in enumerate((False, True)):
        ratio = float(np.median(speeds[:, column] / speeds[:, 2]))
        config = {"env": case.env, "tasks": TASKS, "paths": case.paths, "steps": case.steps, "parallel": parallel}
        report(
            NAME,
            unsaved(args),
            peer="loop",
            metric=f"{case.env}, {'workers' if parallel else 'this process'}",
            value=round(float(np.median(speeds[:, column])), 1),
            unit="environment steps/s",
            ratio=round(ratio, 4),
            config=config | {"repetitions": args.repetitions},
            versions=versions(*PACKAGES),
            peer_value=round(float(np.median(speeds[:, 2])), 1),
            bar=case.bar,
            load_average=round(os.getloadavg()[0], 2),
        )
    yield float(np.median(speeds[:, :2].max(axis=1) / speeds[:, 2])) >= case.bar


def unsaved(args: argparse.Namespace) -> bool:
    return args.quick or args.check


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5, help="windows per measurement")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed; appends nothing")
    args = parser.parse_args()
    args.repetitions = min(args.repetitions, 3) if unsaved(args) else args.repetitions
    import torch

    torch.set_num_threads(1)
    held = [holds for case in (QUICK if unsaved(args) else CASES) for holds in measure(case, args)]
    if args.check and not all(held):
        print(f"{held.count(False)} of {len(held)} measurements miss their bar", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
