"""CPU time of the rollout engine in short episodes, and of its floor: bare batched steps and forward passes.

python benchmarks/short_episodes.py             measure, append to results/short_episodes.jsonl
python benchmarks/short_episodes.py --quick     fewer repetitions, append nothing
python benchmarks/short_episodes.py --check     as --quick, and status 1 if a bar is missed
python benchmarks/short_episodes.py --memory    only the peak memory of 100,000 rollouts
python benchmarks/short_episodes.py --device cuda  only the engine on a device against NumPy, in wall-clock time

Ours are whole calls of ``RolloutEngine.run`` with prepared plans, up to the columns. The floor is ``Slots.step`` and
``Policy.act`` on 1,024 rows with noise from one NumPy generator, without resets, records or checks, for as many steps
as the rollouts of the engine have. Times are CPU times (``time.process_time``), which other processes hardly affect.
Calls alternate in one process; the median of the ratios of neighbors is reported.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from _reporting import report, report_missing, versions
from _throughput_envs import HIDDEN_SIZES, ShortPointEnv
from _vector_loops import envpool_loop, gymnasium_loop, pufferlib_loop
from gymnasium.spaces import Box, Discrete

NAME = "short_episodes"
ROWS = 1024
LIST_ENVS = 64
MEMORY_ROLLOUTS = 100_000
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium", "envpool", "pufferlib")


class Case(NamedTuple):
    """Rollouts to measure: environment, time limit, number per call, and the least ratio of floor to engine."""

    name: str
    env: str
    max_steps: int
    plans: int
    bar: float
    touched_bar: float | None = None
    """Least ratio if every ``StepSequence`` is accessed."""
    states: bool = False


CASES = (
    Case("point-robot", "point-robot", 20, 8192, 0.50, touched_bar=0.20),
    Case("bandit", "bandit-10", 10, 8192, 0.45, touched_bar=0.20),
    Case("cart-pole, untrained", "CartPole-v1", 500, 8192, 0.30),
    Case("pendulum", "metaroll/Pendulum-v0", 400, 1024, 0.40),
    Case("pendulum with states", "metaroll/Pendulum-v0", 400, 1024, 0.40, states=True),
)
LIST_BAR, SCALING_BAR, PROCESS_BAR, PARENT_BAR = 0.75, 1.15, 1.5, 0.20


def policy_for(env: str | type) -> Any:
    """A 64x64 tanh policy. For the pendulum one that plays back actions, so that the bare steps dominate."""
    from metaroll.envs.lookup.source import EnvSource
    from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
    from metaroll.policies.playback import PlaybackPolicy
    from metaroll.seeding import torch_generator

    spec = EnvSource.of(env).spec
    if env == "metaroll/Pendulum-v0":
        draw = np.random.default_rng(0)
        return PlaybackPolicy(spec, [draw.normal(size=(400, spec.act_dim))])
    kind = CategoricalMLPPolicy if isinstance(spec.action_space, Discrete) else GaussianMLPPolicy
    return kind(spec, hidden_sizes=HIDDEN_SIZES, generator=torch_generator(0))


def plans_of(count: int, max_steps: int | None) -> list[Any]:
    from metaroll.types import RolloutPlan

    return [RolloutPlan(index=i, seed=(1, 0, i), max_steps=max_steps) for i in range(count)]


# -- the floor ---------------------------------------------------------------------------------------------------------


class Floor:
    """Bare steps of ``ROWS`` rows."""

    def __init__(self, case: Case) -> None:
        from metaroll.envs.lookup.source import make_slots
        from metaroll.tasks.plan_table import PlanTable

        self._policy = policy_for(case.env)
        self._plans, self._num_steps = PlanTable(plans_of(ROWS, case.max_steps)), min(case.max_steps, 100)
        self._slots = make_slots(case.env, ROWS, plans=self._plans)
        self._slots.attach(beat=None, record_states=case.states)
        self._rng = np.random.default_rng(0)

    def seconds_per_step(self) -> float:
        """CPU seconds per row and step."""
        from metaroll.data.space_batches import flatten_batch

        slots, policy, rng = self._slots, self._policy, self._rng
        space, active, shape = (
            slots.env_spec.observation_space,
            np.ones(ROWS, dtype=bool),
            (ROWS, policy.info.noise_dim),
        )
        draw = rng.random if policy.info.noise_kind == "uniform" else rng.standard_normal
        obs = slots.reset(list(range(ROWS)), self._plans)
        state = policy.initial_state([None] * ROWS, [rng] * ROWS, None)
        parameters = policy.acting_parameters()
        start = time.process_time()
        for _ in range(self._num_steps):
            flat = obs if isinstance(space, Box) else flatten_batch(space, obs)
            noise = draw(shape, dtype=np.float32)
            actions, state, _ = policy.act(flat, state, noise, False, parameters)
            obs = slots.step(actions, active).observations  # the floor is a bare loop
        return (time.process_time() - start) / (ROWS * self._num_steps)


# -- ours --------------------------------------------------------------------------------------------------------------


class Ours:
    """Whole calls of ``RolloutEngine.run`` with the same plans."""

    def __init__(self, env: Any, plans: Sequence[Any], pool: Any = None, **options: Any) -> None:
        from metaroll.rollouts.engine.engine import RolloutEngine

        self.engine = RolloutEngine(env, policy_for(env), pool=pool, **options)
        self.plans = plans
        self.steps = int(self.engine.run(plans).lengths.sum())

    def seconds(self, touch: bool = False) -> float:
        """CPU seconds of a call in this process. With ``touch`` every rollout is accessed, too."""
        start = time.process_time()
        rollouts = self.engine.run(self.plans)
        if touch:
            for rollout in rollouts:
                _ = rollout.rewards  # a StepSequence is filled when it is first accessed
        else:
            _ = rollouts.lengths
        return time.process_time() - start

    def close(self) -> None:
        self.engine.close()

    def worker_seconds(self) -> float:
        """CPU seconds of all workers so far."""
        return sum(self.engine.pool.invoke_all(lambda G: time.process_time()))


def measure_case(case: Case, args: argparse.Namespace) -> Iterator[bool]:
    """Measure the ratio of floor to engine, also with access to every rollout; yields whether each bar is met."""
    floor = Floor(case)
    with contextlib.closing(Ours(case.env, plans_of(case.plans, case.max_steps), record_extras=case.states)) as ours:
        floor.seconds_per_step()
        pairs: dict[str, list[tuple[float, float]]] = {"columns": [], "touched": []}
        for _ in range(args.repetitions):
            per_step = floor.seconds_per_step()
            pairs["columns"].append((per_step * ours.steps, ours.seconds()))
            if case.touched_bar is not None:
                pairs["touched"].append((per_step * ours.steps, ours.seconds(touch=True)))
    for access, bar in (("columns", case.bar), ("touched", case.touched_bar)):
        if bar is None:
            continue
        floors, engines = np.array(pairs[access]).T
        value = 1e6 * float(np.median(engines)) / case.plans
        config = {"env": case.env, "max_steps": case.max_steps, "plans": case.plans, "rows_of_floor": ROWS}
        yield report_measurement(
            args,
            f"{case.name} ({access})",
            value,
            "microseconds of CPU per rollout",
            ratio=(floors / engines, bar),
            config=config | {"steps": ours.steps, "states": case.states, "policy": type(ours.engine.policy).__name__},
            peer_value=round(1e6 * float(np.median(floors)) / case.plans, 3),
        )


def report_measurement(
    args: argparse.Namespace,
    metric: str,
    value: float,
    unit: str,
    *,
    config: dict[str, Any],
    peer: str = "floor",
    ratio: tuple[np.ndarray, float | None] | None = None,
    most: float | None = None,
    **more: Any,
) -> bool:
    """Report a measurement; returns whether it meets its bar (a least ratio, or a largest value)."""
    median = None
    if ratio is not None:
        median = float(np.median(ratio[0]))
        more |= {"ratio_range": [round(float(bound), 4) for bound in (ratio[0].min(), ratio[0].max())]}
    bar = most if ratio is None else ratio[1]
    config = {**config, "repetitions": args.repetitions}
    report(
        NAME,
        unsaved(args),
        peer=peer,
        metric=metric,
        value=round(value, 4),
        unit=unit,
        ratio=None if median is None else round(median, 4),
        config=config,
        versions=versions(*PACKAGES),
        bar=bar,
        load_average=round(os.getloadavg()[0], 2),
        **more,
    )
    if bar is None:
        return True
    return value <= bar if median is None else median >= bar


def measure_device(case: Case, args: argparse.Namespace) -> Iterator[bool]:
    """Measure the same plans on a device and in NumPy, in wall-clock time; there is no bar."""

    def seconds(ours: Ours) -> float:
        begin = time.perf_counter()
        _ = ours.engine.run(ours.plans).lengths
        return time.perf_counter() - begin

    plans = plans_of(case.plans, case.max_steps)
    with (
        contextlib.closing(Ours(case.env, plans, device=args.device)) as ours,
        contextlib.closing(Ours(case.env, plans)) as numpys,
    ):
        pairs = [(seconds(numpys), seconds(ours)) for _ in range(args.repetitions)]
    theirs, engines = np.array(pairs).T
    yield report_measurement(
        args,
        f"{case.name} (device)",
        1e6 * float(np.median(engines)) / case.plans,
        "microseconds per rollout",
        peer="numpy",
        ratio=(theirs / engines, None),
        config={"env": case.env, "max_steps": case.max_steps, "plans": case.plans, "device": args.device},
        peer_value=round(1e6 * float(np.median(theirs)) / case.plans, 3),
    )


# -- loops of other libraries ------------------------------------------------------------------------------------------


def loop_seconds(loop: Any, lock_steps: int) -> float:
    """CPU seconds of ``lock_steps`` steps of all environments of a loop."""
    start = time.process_time()
    loop.take(lock_steps)
    return time.process_time() - start


def measure_list(args: argparse.Namespace) -> Iterator[bool]:
    """Measure a Python environment of 20 steps as a list of slots, and in a ``SyncVectorEnv`` without recording."""
    count, horizon = 1024, ShortPointEnv.horizon
    with (
        contextlib.closing(Ours(ShortPointEnv, plans_of(count, None))) as ours,
        contextlib.closing(gymnasium_loop("short-point", LIST_ENVS, "numpy")) as loop,
    ):
        lock_steps = count * (horizon + 1) // LIST_ENVS  # in SyncVectorEnv a reset takes a step
        loop_seconds(loop, lock_steps)
        pairs = [(loop_seconds(loop, lock_steps), ours.seconds()) for _ in range(args.repetitions)]
    theirs, engines = np.array(pairs).T
    yield report_measurement(
        args,
        "Python list",
        1e6 * float(np.median(engines)) / count,
        "microseconds of CPU per rollout",
        peer="gymnasium",
        ratio=(theirs / engines, LIST_BAR),
        config={"env": "a point with 20 steps", "plans": count, "peer": f"SyncVectorEnv of {LIST_ENVS}"},
        peer_value=round(1e6 * float(np.median(theirs)) / count, 3),
    )


def measure_peers(args: argparse.Namespace) -> Iterator[bool]:
    """Measure cart-poles of other libraries that are installed, with the same policy; there is no bar."""
    for peer, make in (("envpool", envpool_loop), ("pufferlib", pufferlib_loop)):
        known = {"peer": peer, "metric": "cart-pole, untrained (steps)", "unit": "microseconds of CPU per step"}
        try:
            loop = make("CartPole-v1", ROWS, "numpy")
        except (ImportError, LookupError, AttributeError, TypeError) as error:  # not installed, or another API
            report_missing(NAME, unsaved(args), reason=str(error), config={}, versions=versions(*PACKAGES), **known)
            continue
        with contextlib.closing(loop), contextlib.closing(Ours("CartPole-v1", plans_of(8192, 500))) as ours:
            loop_seconds(loop, 20)
            pairs = [
                (loop_seconds(loop, 100) / (100 * ROWS), ours.seconds() / ours.steps) for _ in range(args.repetitions)
            ]
        theirs, engines = np.array(pairs).T
        yield report_measurement(
            args,
            known["metric"],
            1e6 * float(np.median(engines)),
            known["unit"],
            peer=peer,
            ratio=(theirs / engines, None),
            config={"env": "CartPole-v1", "peer": f"{ROWS} environments, nothing recorded"},
            peer_value=round(1e6 * float(np.median(theirs)), 4),
        )


# -- processes and memory ----------------------------------------------------------------------------------------------


def process_seconds(ours: Ours) -> tuple[float, float]:
    """CPU seconds of a call: of this process, and of all workers."""
    before = ours.worker_seconds()
    here = ours.seconds()
    return here, ours.worker_seconds() - before


def measure_processes(args: argparse.Namespace) -> Iterator[bool]:
    """Measure the CPU time of all processes with two workers, one and none, and the parent's share."""
    from metaroll.rollouts.workers.pool import SamplerPool

    plans = plans_of(8192, 20)
    with (
        SamplerPool(1, transport="process") as one,
        SamplerPool(2, transport="process") as two,
        contextlib.closing(Ours("point-robot", plans)) as serial,
        contextlib.closing(Ours("point-robot", plans, one)) as ours_1,
        contextlib.closing(Ours("point-robot", plans, two)) as ours_2,
    ):
        rows = [(serial.seconds(), *process_seconds(ours_1), *process_seconds(ours_2)) for _ in range(args.repetitions)]
    here, parent_1, workers_1, parent_2, workers_2 = np.array(rows).T
    all_1, all_2 = parent_1 + workers_1, parent_2 + workers_2
    config = {"env": "point-robot", "max_steps": 20, "plans": len(plans)}
    for metric, shares, most in (
        ("all CPU, 2 workers / 1 worker", all_2 / all_1, SCALING_BAR),
        ("all CPU, 1 worker / serial", all_1 / here, PROCESS_BAR),
        ("parent's share of all CPU, 2 workers", parent_2 / all_2, PARENT_BAR),
    ):
        value = float(np.median(shares))
        yield report_measurement(args, metric, value, "ratio", peer="process", most=most, config=config)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def run_many() -> None:
    """Print the peak memory of this process before and after many rollouts, in MiB; see ``measure_memory``."""
    ours = Ours("point-robot", plans_of(ROWS, 20))
    before = peak_mib()
    rollouts = ours.engine.run(plans_of(MEMORY_ROLLOUTS, 20))
    assert len(rollouts) == MEMORY_ROLLOUTS
    print(before, peak_mib())


def measure_memory(args: argparse.Namespace) -> None:
    """Measure the peak resident memory of a process that runs 100,000 rollouts in one call."""
    child = subprocess.run([sys.executable, __file__, "--many"], check=True, capture_output=True, text=True)
    before, peak = map(float, child.stdout.split())
    config = {"env": "point-robot", "max_steps": 20, "plans": MEMORY_ROLLOUTS}
    report_measurement(args, "peak memory", peak, "MiB", peer="none", config=config, before=round(before, 1))


def unsaved(args: argparse.Namespace) -> bool:
    return args.quick or args.check


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=15, help="calls per measurement")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed; append nothing")
    parser.add_argument("--memory", action="store_true", help="only the peak memory of 100,000 rollouts")
    parser.add_argument("--device", help="only the engine on this torch device ('cuda', 'cpu') against NumPy")
    parser.add_argument("--many", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.repetitions = min(args.repetitions, 5) if unsaved(args) else args.repetitions
    import torch

    torch.set_num_threads(1)
    if args.many:
        run_many()
        return 0
    if args.memory:
        measure_memory(args)
        return 0
    if args.device is not None:
        for case in CASES[:3]:
            list(measure_device(case, args))
        return 0
    measures: list[Callable[[], Iterator[bool]]] = [lambda case=case: measure_case(case, args) for case in CASES]
    measures += [lambda: measure_list(args), lambda: measure_processes(args), lambda: measure_peers(args)]
    passed = [met for measure in measures for met in measure()]
    measure_memory(args)
    if args.check and not all(passed):
        print(f"{passed.count(False)} of {len(passed)} measurements miss their bar", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if os.environ.get("OMP_NUM_THREADS") != "1":  # idle BLAS threads would count as CPU time, too
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})
    sys.exit(main())
