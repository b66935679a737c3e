"""A population of policies on the cart-pole as one batched simulation, compared with one rollout at a time.

    OMP_NUM_THREADS=1 python benchmarks/parameter_exploration.py
    OMP_NUM_THREADS=1 python benchmarks/parameter_exploration.py --policies linear --repeats 7
    OMP_NUM_THREADS=1 python benchmarks/parameter_exploration.py --check      status 1 if a bar is missed

Ours are whole calls of ``ParameterExplorationSampler.sample`` with one worker: 256 parameters x 4 drawn domains x 2
initial states, up to the recorded ``StepSequence`` objects. ``peer=loop`` steps the same formulas one rollout at a time
with plain Python floats and only adds up rewards. Its policy is linear in plain floats, a 64x64 tanh network as three
NumPy products on one row, or (``64x64-module``) the same torch module as ours on one row. Time windows of both
alternate. Each pair of neighboring windows gives a ratio; the median and range over the repetitions are reported. Rates
are per CPU second of this process, so both use one core.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _reporting import report, versions

from metaroll.envs.lookup.randomization import default_randomizer
from metaroll.envs.sims.catalog import QCartPoleSwingUpEnv
from metaroll.envs.sims.model import SCALARS
from metaroll.envs.sims.simulator import DerivedConstants, first_state, step_columns
from metaroll.envs.wrappers.domain_rand import DomainRandWrapperLive
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.samplers.parameter_exploration import ParameterExplorationSampler

NAME = "parameter_exploration"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium")
DOMAINS, STATES = 4, 2
HIDDEN = {"linear": (), "64x64": (64, 64), "64x64-module": (64, 64)}
LOOP_POLICY = {
    "linear": "linear, plain Python floats",
    "64x64": "64x64 tanh, NumPy on one row",
    "64x64-module": "64x64 tanh, the torch module on one row",
}

BARS = {"linear": 13.7, "64x64": 16.0, "64x64-module": 30.0}
"""Least ratios. 30 is required against the loop as a user writes it, with the torch module; the others are the ratios
that were measured first."""

Act = Callable[[tuple[float, ...]], float]


def linear_act(flat: np.ndarray) -> Act:
    """Linear policy: 5 weights and a bias."""
    a, b, c, d, e, bias = flat.tolist()
    return lambda o: a * o[0] + b * o[1] + c * o[2] + d * o[3] + e * o[4] + bias


def numpy_act(policy: GaussianMLPPolicy, flat: np.ndarray) -> Act:
    """The policy's mean in NumPy, one row at a time."""
    views = dict(zip(policy.acting_parameter_names(), policy.parameter_layout().numpy_views(flat), strict=True))
    weights = [view for name, view in views.items() if name.endswith("weight")]
    biases = [view for name, view in views.items() if name.endswith("bias")]

    def act(observation: tuple[float, ...]) -> float:
        x = np.array(observation, dtype=np.float32)
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            x = np.tanh(weight @ x + bias)
        return float((weights[-1] @ x + biases[-1])[0])

    return act


def module_act(policy: GaussianMLPPolicy, flat: np.ndarray) -> Act:
    """The policy's mean from its torch module, one row at a time."""
    policy.parameter_layout().assign(policy, flat)

    def act(observation: tuple[float, ...]) -> float:
        with torch.no_grad():
            return float(policy.net(torch.tensor(observation)))

    return act


def act_of(kind: str, policy: GaussianMLPPolicy, flat: np.ndarray) -> Act:
    """The function by which the loop acts with one set of parameters."""
    if kind == "linear":
        names, views = policy.acting_parameter_names(), policy.parameter_layout().numpy_views(flat)
        return linear_act(np.concatenate([v.ravel() for n, v in zip(names, views, strict=True) if n != "log_std"]))
    return numpy_act(policy, flat) if kind == "64x64" else module_act(policy, flat)


class Loop:
    """One rollout at a time: scalar physics and one row of the policy."""

    def __init__(self, kind: str, policy: GaussianMLPPolicy, sets: np.ndarray, max_steps: int) -> None:
        env = QCartPoleSwingUpEnv(max_steps=max_steps)
        self._config = env.config
        generator = np.random.default_rng(0)
        self._domains = [env.domain_param | d for d in default_randomizer(env).draw(DOMAINS, generator)]
        self._states = [tuple(generator.uniform(-0.05, 0.05, 4).tolist()) for _ in range(DOMAINS * STATES)]
        self._kind, self._policy, self._sets, self._next = kind, policy, sets, 0

    def run(self, rollouts: int) -> int:
        """Run the next ``rollouts`` rollouts; returns their number of steps."""
        steps = 0
        for _ in range(rollouts):
            index, pair = divmod(self._next, DOMAINS * STATES)
            self._next += 1
            act = act_of(self._kind, self._policy, self._sets[index % len(self._sets)])
            steps += self._rollout(act, self._domains[pair // STATES], self._states[pair])
        return steps

    def _rollout(self, act: Act, params: dict[str, float], state: tuple[float, ...]) -> int:
        config = self._config
        derived = DerivedConstants.of(config.model, config.task, params, SCALARS)
        now, total = first_state(config, state, derived, 0.0, SCALARS), 0.0
        while True:
            action = act(config.model.observe(now.values, SCALARS))
            outcome = step_columns(config, derived, now, (action,), SCALARS)
            now = outcome.state
            total += outcome.reward
            if outcome.terminated or outcome.truncated:
                return int(now.count)


def rate(run: Callable[[], int], seconds: float) -> float:
    """Steps per CPU second, measured over at least ``seconds``."""
    steps, begin = 0, time.process_time()
    while not steps or time.process_time() - begin < seconds:
        steps += run()
    return steps / (time.process_time() - begin)


def measure(kind: str, args: argparse.Namespace) -> bool:
    """Measure and report one policy; returns whether it meets its bar."""
    env = DomainRandWrapperLive(QCartPoleSwingUpEnv(max_steps=args.steps), default_randomizer(QCartPoleSwingUpEnv()))
    policy = GaussianMLPPolicy(env.env_spec, HIDDEN[kind], generator=torch.Generator().manual_seed(0))
    flat = policy.acting_parameters()
    noise = np.random.default_rng(0).normal(size=(args.sets, flat.size)).astype(np.float32)
    sets = flat + np.float32(0.1) * noise
    population = torch.from_numpy(sets)
    loop = Loop(kind, policy, sets, args.steps)
    pairs = []
    with ParameterExplorationSampler(env, policy, STATES, DOMAINS, 1, seed=0) as sampler:

        def ours() -> int:
            result = sampler.sample(population, eval=True)
            return sum(len(rollout) for rollouts in result.rollouts for rollout in rollouts)

        ours()
        loop.run(1)
        for _ in range(args.repeats):
            pairs.append((rate(ours, args.seconds), rate(lambda: loop.run(4), args.seconds)))
    ratios = [mine / theirs for mine, theirs in pairs]
    line = report(
        NAME,
        args.quick or args.no_save or args.check,
        peer="loop",
        metric="env_steps_per_cpu_second",
        value=round(statistics.median(mine for mine, _ in pairs), 1),
        unit="environment steps/s",
        ratio=round(statistics.median(ratios), 3),
        ratio_range=[round(min(ratios), 3), round(max(ratios), 3)],
        peer_value=round(statistics.median(theirs for _, theirs in pairs), 1),
        config={
            "env": "metaroll/QCartPoleSwingUp-v0",
            "sets": args.sets,
            "domains": DOMAINS,
            "states": STATES,
            "max_steps": args.steps,
            "policy": kind,
            "loop": f"scalar physics; policy: {LOOP_POLICY[kind]}; returns only",
            "workers": 1,
            "repeats": args.repeats,
        },
        load_average=round(os.getloadavg()[0], 2),
        versions=versions(*PACKAGES),
    )
    return float(line["ratio"]) >= BARS[kind]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policies", nargs="+", choices=list(HIDDEN), default=list(HIDDEN))
    parser.add_argument("--sets", type=int, default=256)
    parser.add_argument("--steps", type=int, default=400, help="time limit of an episode")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a window")
    parser.add_argument("--no-save", action="store_true", help="append nothing to the results")
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed; append nothing")
    parser.add_argument("--quick", action="store_true", help="a small population, short windows, nothing appended")
    args: Any = parser.parse_args()
    if args.quick:
        args.sets, args.steps, args.repeats, args.seconds = 32, 50, 1, 0.05
    torch.set_num_threads(1)
    passed = [measure(kind, args) for kind in args.policies]
    if args.check and not all(passed):
        sys.exit("a bar was missed")


if __name__ == "__main__":
    main()
