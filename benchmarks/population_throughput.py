"""Environment steps per second of evaluating a population of linear policies in whole episodes.

    OMP_NUM_THREADS=1 python benchmarks/population_throughput.py
    OMP_NUM_THREADS=1 python benchmarks/population_throughput.py --envs Pendulum-v1 --no-save
    OMP_NUM_THREADS=1 python benchmarks/population_throughput.py --evosax /path/to/python
    OMP_NUM_THREADS=1 python benchmarks/population_throughput.py --check

Ours are all rollouts of ``LocalRunner.sample_parameters`` with one worker and the mean return of each candidate, as
searches use them. ``peer=loop`` runs one candidate and one episode after the other: the same physics in Python
floats, the policy as NumPy on one row, rewards added up. ``peer=floor`` (Swimmer) is bare MuJoCo with random controls.
``peer=evosax`` is ``GymnaxProblem.eval`` of evosax on the task of gymnax, compiled and warm, on one core. JAX needs a
Python environment of its own, whose interpreter ``--evosax`` names. evosax steps every episode to the time limit, but
only the steps before the end of the episode count. Time windows of ours and of the peer alternate. Each pair of
neighbors gives a ratio, and the median and range are reported. Rates are per CPU second of a process with one thread.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from _reporting import report, report_missing, versions

from metaroll.data.rollouts import Rollouts
from metaroll.functional.kernels import compile_all
from metaroll.learners.evolution import CEM
from metaroll.learners.trials import Trials, searched_places
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.seeding import torch_generator
from metaroll.training.run.runner import LocalRunner
from metaroll.types import EnvSpec

NAME = "population_throughput"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium", "mujoco")
TIMES_THE_LOOP, TIMES_EVOSAX = 20.0, 1.0

CENTERS: Mapping[str, tuple[float, ...]] = {
    "CartPole-v1": (-0.05, -0.3, -1.0, -1.0, 0.05, 0.3, 1.0, 1.0, 0.0, 0.0),
    "Pendulum-v1": (0.0, 0.0, 0.0, 0.0),
    "MountainCarContinuous-v0": (0.0, 0.0, 0.0),
    "Swimmer-v5": (0.0,) * 18,
}
"""Weights and biases around which a population is drawn. Those of the cart-pole give episodes of about 160 steps."""
DEVIATION = 0.5

Physics = Callable[[tuple[float, ...], Any], tuple[tuple[float, ...], float, bool]]


# -- one rollout after another -----------------------------------------------------------------------------------------


def step_cart_pole(state: tuple[float, ...], action: np.ndarray) -> tuple[tuple[float, ...], float, bool]:
    x, x_dot, theta, theta_dot = state
    force = 10.0 if action[1] > action[0] else -10.0
    cosine, sine = math.cos(theta), math.sin(theta)
    temp = (force + 0.05 * theta_dot * theta_dot * sine) / 1.1
    acceleration = (9.8 * sine - cosine * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1))
    x_acceleration = temp - 0.05 * acceleration * cosine / 1.1
    x, theta = x + 0.02 * x_dot, theta + 0.02 * theta_dot
    state = (x, x_dot + 0.02 * x_acceleration, theta, theta_dot + 0.02 * acceleration)
    return state, 1.0, abs(x) > 2.4 or abs(theta) > 12 * math.pi / 180


def step_pendulum(state: tuple[float, ...], action: np.ndarray) -> tuple[tuple[float, ...], float, bool]:
    angle, speed = state
    torque = min(2.0, max(-2.0, 2.0 * float(action[0])))
    off = (angle + math.pi) % (2.0 * math.pi) - math.pi
    cost = off * off + 0.1 * speed * speed + 0.001 * torque * torque
    speed = min(8.0, max(-8.0, speed + (15.0 * math.sin(angle) + 3.0 * torque) * 0.05))
    return (angle + speed * 0.05, speed), -cost, False


def step_mountain_car(state: tuple[float, ...], action: np.ndarray) -> tuple[tuple[float, ...], float, bool]:
    position, velocity = state
    force = min(1.0, max(-1.0, float(action[0])))
    velocity = min(0.07, max(-0.07, velocity + force * 0.0015 - 0.0025 * math.cos(3.0 * position)))
    position = min(0.6, max(-1.2, position + velocity))
    if position == -1.2 and velocity < 0.0:
        velocity = 0.0
    done = position >= 0.45 and velocity >= 0.0
    return (position, velocity), 100.0 * done - 0.1 * force * force, done


def observe_state(state: tuple[float, ...]) -> tuple[float, ...]:
    return state


def observe_pendulum(state: tuple[float, ...]) -> tuple[float, ...]:
    return math.cos(state[0]), math.sin(state[0]), state[1]


LOOPS: Mapping[str, tuple[Physics, Callable[[tuple[float, ...]], tuple[float, ...]], np.ndarray, int]] = {
    "CartPole-v1": (step_cart_pole, observe_state, np.array([[-0.05, 0.05]] * 4), 2),
    "Pendulum-v1": (step_pendulum, observe_pendulum, np.array([[-math.pi, math.pi], [-1.0, 1.0]]), 1),
    "MountainCarContinuous-v0": (step_mountain_car, observe_state, np.array([[-0.6, -0.4], [0.0, 0.0]]), 1),
}
"""Physics, observation of a state, bounds of the first state, and number of outputs of the policy."""


def loop_of(env: str, sets: np.ndarray, each: int) -> Callable[[], int]:
    """A function that runs about 16 candidates of the population, one episode after another, and returns the steps."""
    physics, observe, bounds, outputs = LOOPS[env]
    limit = gymnasium.spec(env).max_episode_steps or 0
    generator, chosen = np.random.default_rng(0), sets[:: max(1, len(sets) // 16)]

    def go() -> int:
        steps, fitness = 0, []
        for row in chosen:
            split = len(row) - outputs
            weights, bias = row[:split].reshape(outputs, -1), row[split:]
            total = 0.0
            for _ in range(each):
                state: tuple[float, ...] = tuple(generator.uniform(bounds[:, 0], bounds[:, 1]).tolist())
                for _ in range(limit):
                    action = weights @ np.array(observe(state), dtype=np.float32) + bias
                    state, reward, done = physics(state, action)
                    total += reward
                    steps += 1
                    if done:
                        break
            fitness.append(total / each)
        return steps

    return go


# -- ours, and the floor -----------------------------------------------------------------------------------------------


def learner_of(env: str) -> CEM:
    """A search over a linear policy."""
    spec = EnvSpec.from_env(gymnasium.make(env))
    kind = CategoricalMLPPolicy if isinstance(spec.action_space, gymnasium.spaces.Discrete) else GaussianMLPPolicy
    more = {} if kind is CategoricalMLPPolicy else {"learn_std": False}
    policy = kind(spec, (), generator=torch_generator(0), **more)
    trials = Trials(rollouts_per_candidate=1)
    return CEM(spec, policy=policy, population=10, best_frac=0.5, max_steps=None, trials=trials, seed=0)


def population(env: str, size: int) -> np.ndarray:
    """Weights and biases ``(size, P)``, float32."""
    center = np.array(CENTERS[env])
    return (center + DEVIATION * np.random.default_rng(0).normal(size=(size, len(center)))).astype(np.float32)


def full_sets(learner: CEM, rows: np.ndarray) -> np.ndarray:
    """Flat parameters of the policy ``(size, N)``; it may have others besides the weights and biases ``rows``."""
    sets = np.repeat(learner.policy.acting_parameters()[None], len(rows), axis=0)
    sets[:, searched_places(learner.policy)] = rows
    return sets


def ours_of(runner: LocalRunner, sets: np.ndarray, each: int) -> Callable[[], int]:
    """A function that computes the returns of all candidates, and returns the steps they took."""

    def go() -> int:
        before = runner.total_env_steps
        groups = runner.sample_parameters(sets, num_init_states_per_domain=each, fields=("rewards",))
        fitness = [float(Rollouts.of(group).returns.mean()) for group in groups]
        assert len(fitness) == len(sets)
        return runner.total_env_steps - before

    return go


def floor_of(env: str) -> Callable[[], int]:
    """A function that steps the bare physics with random controls."""
    import mujoco

    inner: Any = gymnasium.make(env).unwrapped
    model, data, skip = inner.model, inner.data, inner.frame_skip
    controls = np.random.default_rng(0).uniform(-1.0, 1.0, (1000, model.nu))

    def go() -> int:
        for control in controls:
            data.ctrl[:] = control
            mujoco.mj_step(model, data, skip)
        return len(controls)

    return go


# -- evosax ------------------------------------------------------------------------------------------------------------

_EVOSAX = """
import json, sys, time
import jax, jax.numpy as jnp, numpy as np
from flax import linen as nn
from evosax.problems.rl.gymnax import GymnaxProblem

env, each, rows, seconds = json.loads(sys.stdin.readline())
discrete, rows = env == "CartPole-v1", np.array(rows, dtype=np.float32)
outputs = 2 if discrete else 1

class Linear(nn.Module):
    @nn.compact
    def __call__(self, x, key=None):
        y = nn.Dense(outputs)(x)
        scale = 2.0 if env == "Pendulum-v1" else 1.0
        return y.argmax(-1) if discrete else scale * jnp.clip(y, -1.0, 1.0)

problem = GymnaxProblem(env, Linear(), num_rollouts=each, use_normalize_obs=False)
key = jax.random.key(0)
state, split = problem.init(key), rows.shape[1] - outputs
kernels = jnp.array(rows[:, :split].reshape(len(rows), outputs, -1).transpose(0, 2, 1))
sets = {"params": {"Dense_0": {"kernel": kernels, "bias": jnp.array(rows[:, split:])}}}
run = jax.jit(lambda key: problem.eval(key, sets, state)[0])
jax.block_until_ready(run(key))
print("ready", problem.episode_length, flush=True)
for _ in sys.stdin:
    begin, calls = time.process_time(), 0
    while not calls or time.process_time() - begin < seconds:
        jax.block_until_ready(run(jax.random.key(calls)))
        calls += 1
    print((time.process_time() - begin) / calls, flush=True)
"""


class Evosax:
    """evosax in a process of its own, on one core.

    Args:
        python: Interpreter with evosax and gymnax.
        env: Name of the environment.
        rows: Weights and biases of the candidates, ``(size, P)``.
        each: Episodes per candidate.
        seconds: Length of a time window.
    """

    def __init__(self, python: str, env: str, rows: np.ndarray, each: int, seconds: float) -> None:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        self._process = subprocess.Popen(
            [python, "-c", _EVOSAX],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": ""},
        )
        self._write(json.dumps([env, each, rows.tolist(), seconds]))
        first = self._read()
        if not first.startswith("ready"):
            raise RuntimeError((self._process.stderr.read() if self._process.stderr else "").strip().splitlines()[-1])

    def seconds(self) -> float:
        """CPU seconds of one evaluation of the population."""
        self._write("go")
        return float(self._read())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


# -- measuring ---------------------------------------------------------------------------------------------------------


def rate(go: Callable[[], int], seconds: float) -> float:
    """Steps per CPU second."""
    begin, steps = time.process_time(), 0
    while not steps or time.process_time() - begin < seconds:
        steps += go()
    return steps / (time.process_time() - begin)


def measure(env: str, args: argparse.Namespace) -> bool:
    """Measure one environment against each peer and report it; returns whether every bar is met."""
    rows = population(env, args.candidates)
    learner = learner_of(env)
    config = {"env": env, "candidates": args.candidates, "rollouts": args.rollouts, "policy": "linear"}
    known = {"metric": "env_steps_per_cpu_second", "unit": "environment steps/s", "versions": versions(*PACKAGES)}
    unsaved, passed = args.quick or args.no_save or args.check, True
    with LocalRunner(seed=0) as runner:
        runner.setup(learner, env)
        ours = ours_of(runner, full_sets(learner, rows), args.rollouts)
        length = ours() / (args.candidates * args.rollouts)
        config["episode"] = round(length, 1)
        peer = "loop" if env in LOOPS else "floor"
        theirs = loop_of(env, rows, args.rollouts) if env in LOOPS else floor_of(env)
        theirs()
        pairs = [(rate(ours, args.seconds), rate(theirs, args.seconds)) for _ in range(args.repeats)]
        report_pairs(env, peer, pairs, config, known, unsaved)
        if peer == "loop":
            passed = statistics.median(a / b for a, b in pairs) >= TIMES_THE_LOOP
        if peer == "loop" and args.evosax:
            passed &= measure_evosax(env, rows, ours, length, args, config, known, unsaved)
    return passed


def measure_evosax(
    env: str,
    rows: np.ndarray,
    ours: Callable[[], int],
    length: float,
    args: argparse.Namespace,
    config: Mapping[str, Any],
    known: Mapping[str, Any],
    unsaved: bool,
) -> bool:
    """Measure against evosax, whose steps are taken to be those of as many episodes of our mean length."""
    try:
        evosax = Evosax(args.evosax, env, rows, args.rollouts, args.seconds)
    except (OSError, RuntimeError) as error:
        report_missing(NAME, unsaved, peer="evosax", reason=str(error), config=config, **known)
        return True
    try:
        steps = length * len(rows) * args.rollouts
        pairs = [(rate(ours, args.seconds), steps / evosax.seconds()) for _ in range(args.repeats)]
    finally:
        evosax.close()
    report_pairs(env, "evosax", pairs, config, known, unsaved)
    return statistics.median(a / b for a, b in pairs) >= TIMES_EVOSAX


def report_pairs(
    env: str,
    peer: str,
    pairs: list[tuple[float, float]],
    config: Mapping[str, Any],
    known: Mapping[str, Any],
    unsaved: bool,
) -> None:
    """Report the rates and ratios of ``pairs``, each the rate of ours and of the peer in neighboring windows."""
    ratios = [a / b for a, b in pairs]
    report(
        NAME,
        unsaved,
        peer=peer,
        value=round(statistics.median(a for a, _ in pairs), 1),
        ratio=round(statistics.median(ratios), 3),
        ratio_range=[round(min(ratios), 3), round(max(ratios), 3)],
        peer_value=round(statistics.median(b for _, b in pairs), 1),
        config=config,
        load_average=round(os.getloadavg()[0], 2),
        **known,
    )
    print(f"{env} {peer}: {statistics.median(ratios):.2f}", file=sys.stderr, flush=True)


def main() -> int:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--envs", nargs="+", choices=list(CENTERS), default=list(CENTERS))
    parser.add_argument("--candidates", type=int, default=512)
    parser.add_argument("--rollouts", type=int, default=8, help="rollouts per candidate")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a window")
    parser.add_argument("--evosax", help="Python interpreter of an environment with evosax and gymnax")
    parser.add_argument("--no-save", action="store_true", help="append nothing to the results")
    parser.add_argument("--check", action="store_true", help="append nothing; status 1 if a bar is missed")
    parser.add_argument("--quick", action="store_true", help="a small population, short windows, nothing appended")
    args = parser.parse_args()
    if args.quick:
        args.envs, args.candidates, args.repeats, args.seconds = args.envs[:3], 16, 1, 0.05
    torch.set_num_threads(1)
    compile_all()
    passed = True
    for env in args.envs:
        part = args if env in LOOPS else argparse.Namespace(**{**vars(args), "candidates": min(16, args.candidates)})
        passed &= measure(env, part)
    return int(args.check and not passed)


if __name__ == "__main__":
    sys.exit(main())
