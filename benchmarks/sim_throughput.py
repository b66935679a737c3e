"""Environment steps per second of our simulators, compared with a scalar loop, Gymnasium and a policy's forward pass.

    OMP_NUM_THREADS=1 python benchmarks/sim_throughput.py
    OMP_NUM_THREADS=1 python benchmarks/sim_throughput.py --envs metaroll/Pendulum-v0 --repeats 7
    OMP_NUM_THREADS=1 python benchmarks/sim_throughput.py --device cuda

Everything runs in float32, and every slot has its own domain parameters. ``peer=loop`` steps the same formulas one
simulation at a time in plain Python floats; ``peer=gymnasium`` is Pendulum-v1 in a SyncVectorEnv. Both and ours reset
episodes that end. ``peer=policy`` is the forward pass of a 64x64 policy alone; ours is then the rollout engine with
that policy, including recording: in the middle of episodes, and in whole episodes from plans to ``StepSequence``.
``--device`` measures torch alone: the batch, and (``peer=numpy``) whole episodes of ``RolloutEngine(device=)`` up to
their columns, compared with the same engine and policy in NumPy, both in wall-clock time.
Everything is warmed up first. Time windows of ours and of the peer alternate. Each pair of neighbors gives a ratio; the
median and range over the repetitions are reported. Rates are per CPU second of this process, so set
``OMP_NUM_THREADS=1``; on CUDA they are per second of wall-clock time.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from _reporting import report, report_missing, versions

NAME = "sim_throughput"
UNIT = "environment steps/s"
ENVS = ("metaroll/Pendulum-v0", "metaroll/QQubeSwingUp-v0", "metaroll/QCartPoleSwingUp-v0")
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium")
SPREAD = 0.1  # half width of the uniform distribution of every domain parameter, as a share of its nominal value
GYMNASIUM_ENVS = 64
DEVICE_ENVS = {"cuda": 1 << 20, "cpu": 1 << 12}
DEVICE_ROLLOUTS = {"cuda": 1 << 14, "cpu": 1 << 10}
EPISODE = 400  # steps of a whole episode
MIDDLE = 1 << 20  # time limit when windows lie in the middle of episodes
MIDDLE_STEPS = 256


def drawn_params(env: Any, num: int) -> dict[str, np.ndarray]:
    """Domain parameters of ``num`` slots around the nominal ones, within their ranges."""
    generator, params = np.random.default_rng(0), {}
    for name, value in env.get_nominal_domain_param().items():
        low, high = env.model.params[name].allowed
        params[name] = np.clip(value * generator.uniform(1 - SPREAD, 1 + SPREAD, num), low, high)
    return params


def drawn_actions(env: Any, num: int, steps: int = 64) -> np.ndarray:
    """Actions ``(steps, num, A)``, uniform in the action space."""
    space = env.act_space
    return np.random.default_rng(1).uniform(space.low, space.high, (steps, num, *space.shape)).astype(np.float32)


Contestant = Callable[[], int]
"""Takes some steps and returns how many."""


# -- contestants -------------------------------------------------------------------------------------------------------


def batched(env: Any, num: int, device: str | None = None) -> Callable[[], int]:
    """Ours: one batch, which resets episodes that end."""
    from metaroll.envs.sims.batch import SimBatch

    batch = SimBatch(env, num, params=drawn_params(env, num), dtype="float32", device=device, generator=0)
    batch.reset()
    actions = drawn_actions(env, num, 64 if device is None else 4)
    sequence = list(actions if device is None else torch.from_numpy(actions).to(device))

    def go() -> int:
        for action in sequence:
            ended = batch.step(action)[2]
            ended = ended | (batch.steps >= env.max_steps)
            if device is not None or ended.any():
                batch.reset(mask=ended)
        if device is not None and device.startswith("cuda"):
            torch.cuda.synchronize()
        return len(sequence) * num

    return go


def scalar_loop(env: Any) -> Callable[[], int]:
    """The same formulas in plain Python floats, one simulation at a time."""
    from metaroll.envs.sims.model import SCALARS
    from metaroll.envs.sims.simulator import DerivedConstants, SimState, first_state, step_columns

    config, model = env.config, env.model
    params = {name: float(values[0]) for name, values in drawn_params(env, 1).items()}
    derived = DerivedConstants.of(model, config.task, params, SCALARS)
    generator = np.random.default_rng(2)
    actions = [tuple(row.tolist()) for row in drawn_actions(env, 1, 512)[:, 0]]

    def start() -> SimState:
        values = model.initial_state(tuple(generator.random(model.num_uniforms).tolist()), derived.constants, SCALARS)
        return first_state(config, values, derived, 0.0, SCALARS)

    now = start()

    def go() -> int:
        nonlocal now
        for action in actions:
            outcome = step_columns(config, derived, now, action, SCALARS)
            model.observe(outcome.state.values, SCALARS)
            now = start() if outcome.terminated or outcome.truncated else outcome.state
        return len(actions)

    return go


def gymnasium_loop() -> Callable[[], int]:
    """Gymnasium's pendulum in its vector environment."""
    env = gymnasium.make_vec("Pendulum-v1", num_envs=GYMNASIUM_ENVS, vectorization_mode="sync")
    env.reset(seed=0)
    actions = np.random.default_rng(1).uniform(-2, 2, (32, GYMNASIUM_ENVS, 1)).astype(np.float32)

    def go() -> int:
        for action in actions:
            env.step(action)
        return actions.shape[0] * GYMNASIUM_ENVS

    return go


def plans_of(env: Any, num: int, call: int) -> list[Any]:
    """Plans of rollouts, each with its own domain parameters."""
    from metaroll.tasks.domain_params import DomainParamUpdate
    from metaroll.types import RolloutPlan

    params = drawn_params(env, num)
    updates = [DomainParamUpdate({name: values[i] for name, values in params.items()}) for i in range(num)]
    return [RolloutPlan(i, (0, call, i), update, stop_on_done=False) for i, update in enumerate(updates)]


def engine_and_policy(env: Any, num: int) -> tuple[Callable[[], Contestant], ...]:
    """Makers of three contestants: forward passes alone, the slot loop amid episodes, and in whole episodes."""
    from metaroll.envs.sims.simulator import SimSlots
    from metaroll.policies.gaussian import GaussianMLPPolicy
    from metaroll.rollouts.engine.slot_loop import SlotLoop

    generator = torch.Generator().manual_seed(0)
    policy = GaussianMLPPolicy(env.env_spec, hidden_sizes=(64, 64), generator=generator)
    parameters = policy.acting_parameters()
    env.max_steps = MIDDLE
    slots = SimSlots(num, env, dtype="float32")
    observations = slots.reset(range(num), plans_of(env, num, 0))
    noise = np.zeros((num, policy.noise_dim), dtype=np.float32)
    calls = itertools.count(1)

    def loop(max_steps: int) -> Any:
        plans = [plan.with_(max_steps=max_steps) for plan in plans_of(env, num, next(calls))]
        return SlotLoop(slots, policy, plans, parameters=parameters)

    def forward() -> int:
        for _ in range(16):
            policy.act(observations, {}, noise, False, parameters)
        return 16 * num

    def middle() -> Contestant:
        endless = loop(MIDDLE)

        def advance() -> int:
            endless.advance(MIDDLE_STEPS)
            return MIDDLE_STEPS * num

        return advance

    def whole() -> int:
        return sum(map(len, loop(EPISODE).advance()))

    return lambda: forward, middle, lambda: whole


# -- measuring ---------------------------------------------------------------------------------------------------------


def rate(make: Callable[[], Contestant], seconds: float) -> float:
    """Steps per CPU second of this process; calls of ``make`` are not timed."""
    begin, steps, taken = time.perf_counter(), 0, 0.0
    while not steps or time.perf_counter() - begin < seconds:
        go = make()
        before = time.process_time()
        steps += go()
        taken += time.process_time() - before
    return steps / max(taken, 1e-9)


def compare(
    args: argparse.Namespace,
    env: str,
    peer: str,
    ours: Callable[[], Contestant],
    theirs: Callable[[], Contestant],
    **config: Any,
) -> None:
    """Alternate windows of both, and report the ratio."""
    ours()()
    theirs()()
    pairs = [(rate(ours, args.seconds), rate(theirs, args.seconds)) for _ in range(args.repeats)]
    ratios = [a / b for a, b in pairs]
    report(
        NAME,
        args.quick or args.no_save,
        peer=peer,
        metric="env_steps_per_second",
        value=round(statistics.median(a for a, _ in pairs), 1),
        unit=UNIT,
        ratio=round(statistics.median(ratios), 4),
        ratio_range=[round(min(ratios), 4), round(max(ratios), 4)],
        peer_value=round(statistics.median(b for _, b in pairs), 1),
        slots=args.slots,
        config={"env": env, "dtype": "float32", "repeats": args.repeats, "seconds": args.seconds, **config},
        load_average=round(os.getloadavg()[0], 2),
        versions=versions(*PACKAGES),
    )


def measure(env_id: str, args: argparse.Namespace) -> None:
    """Measure one environment against each peer."""
    from metaroll.envs.lookup.source import make_env

    env = make_env(env_id)
    ours, loop = batched(env, args.slots), scalar_loop(env)
    compare(args, env_id, "loop", lambda: ours, lambda: loop, peer_is="the same formulas, Python floats")
    if env_id == ENVS[0]:
        peer, peer_is = gymnasium_loop(), f"Pendulum-v1, SyncVectorEnv of {GYMNASIUM_ENVS}"
        compare(args, env_id, "gymnasium", lambda: ours, lambda: peer, peer_is=peer_is)
    forward, middle, whole = engine_and_policy(make_env(env_id), args.slots)
    peer_is = "forward pass of a 64x64 policy on as many rows"
    compare(args, env_id, "policy", middle, forward, peer_is=peer_is, ours_is="the middle of episodes")
    compare(args, env_id, "policy", whole, forward, peer_is=peer_is, ours_is=f"whole episodes of {EPISODE} steps")


def clock_rate(go: Contestant, seconds: float) -> float:
    """Steps per second of wall-clock time."""
    begin, steps = time.perf_counter(), 0
    while not steps or time.perf_counter() - begin < seconds:
        steps += go()
    return steps / (time.perf_counter() - begin)


def measure_device(env_id: str, device: str, args: argparse.Namespace) -> None:
    """Measure torch on a device: the batch alone."""
    from metaroll.envs.lookup.source import make_env

    num_envs = DEVICE_ENVS[device]
    known = {"metric": "env_steps_per_second", "unit": UNIT, "slots": num_envs, "versions": versions(*PACKAGES)}
    config = {"env": env_id, "dtype": "float32", "backend": "torch, eager", "device": device}
    unsaved = args.quick or args.no_save
    if device == "cuda" and not torch.cuda.is_available():
        report_missing(NAME, unsaved, peer="none", reason="no CUDA device", config=config, **known)
        return
    go = batched(make_env(env_id), num_envs, device)
    go()
    rates = [clock_rate(go, args.seconds) for _ in range(args.repeats)]
    config["device"] = torch.cuda.get_device_name() if device == "cuda" else device
    report(NAME, unsaved, peer="none", value=round(statistics.median(rates), 1), config=config, **known)


def measure_device_engine(env_id: str, device: str, args: argparse.Namespace) -> None:
    """Measure torch on a device: whole episodes with a policy, compared with NumPy."""
    from metaroll.envs.lookup.source import make_env
    from metaroll.policies.gaussian import GaussianMLPPolicy
    from metaroll.rollouts.engine.engine import RolloutEngine

    num = 64 if args.quick else DEVICE_ROLLOUTS[device]
    known = {"metric": "engine_steps_per_second", "unit": UNIT, "slots": num, "versions": versions(*PACKAGES)}
    config = {"env": env_id, "policy": "64x64", "episode": EPISODE, "device": device}
    unsaved = args.quick or args.no_save
    if device == "cuda" and not torch.cuda.is_available():
        report_missing(NAME, unsaved, peer="numpy", reason="no CUDA device", config=config, **known)
        return
    env = make_env(env_id)
    policy = GaussianMLPPolicy(env.env_spec, hidden_sizes=(64, 64), generator=torch.Generator().manual_seed(0))
    plans = [plan.with_(max_steps=EPISODE) for plan in plans_of(env, num, 0)]
    with RolloutEngine(env_id, policy, device=device) as ours, RolloutEngine(env_id, policy) as theirs:
        contestants = [lambda engine=engine: int(engine.run(plans).lengths.sum()) for engine in (ours, theirs)]
        for go in contestants:
            go()
        pairs = [tuple(clock_rate(go, args.seconds) for go in contestants) for _ in range(args.repeats)]
    ratios = [a / b for a, b in pairs]
    config["device"] = torch.cuda.get_device_name() if device == "cuda" else device
    report(
        NAME,
        unsaved,
        peer="numpy",
        value=round(statistics.median(a for a, _ in pairs), 1),
        ratio=round(statistics.median(ratios), 4),
        ratio_range=[round(min(ratios), 4), round(max(ratios), 4)],
        peer_value=round(statistics.median(b for _, b in pairs), 1),
        config=config,
        **known,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--envs", nargs="+", choices=list(ENVS), default=list(ENVS))
    parser.add_argument("--slots", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a window")
    parser.add_argument("--device", choices=sorted(DEVICE_ENVS), help="measure only torch on this device")
    parser.add_argument("--no-save", action="store_true", help="append nothing to the results")
    parser.add_argument("--quick", action="store_true", help="one environment, short windows, nothing appended")
    args = parser.parse_args()
    if args.quick:
        args.envs, args.slots, args.repeats, args.seconds = args.envs[:1], 256, 1, 0.05
    torch.set_num_threads(1)
    for env_id in args.envs:
        if args.device is None:
            measure(env_id, args)
        measure_device(env_id, args.device or "cuda", args)
        if args.device is not None:
            measure_device_engine(env_id, args.device, args)


if __name__ == "__main__":
    main()
