"""Simulations per second of ``SimRolloutSamplerForSBI``, compared with a scalar loop over single rollouts.

    OMP_NUM_THREADS=1 python benchmarks/sbi_throughput.py
    OMP_NUM_THREADS=1 python benchmarks/sbi_throughput.py --quick    with few parameter sets, appending nothing
    OMP_NUM_THREADS=1 python benchmarks/sbi_throughput.py --check    fewer windows, status 1 if a bar is missed

10,000 sets of three domain parameters of the pendulum x 4 recorded rollouts of 400 steps, whole and in 4 segments, with
BayesSim's features, on one core and on two (worker processes, started before). ``peer=loop`` plays the same actions one
rollout at a time with the same formulas in plain Python floats, and computes features with the same embedding, on one
core. It simulates some of the sets, and its features must equal ours to five digits. Time windows of ours and of the
loop alternate. Each pair of neighbors gives a ratio; the median and range are reported. The time from the table of
parameters to the table of features is CPU time on one core, and wall-clock time on two.

``--parts dtw`` measures dynamic time warping of 100 pairs of series (500 steps of 4 numbers), compared with dtw-python
and aeon.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any

import numpy as np
import torch
from _reporting import report, versions
from _warping import measure_warping

NAME = "sbi_throughput"
PACKAGES = ("metaroll", "numpy", "torch")
MAPPING = {0: "pole_mass", 1: "pole_length", 2: "pole_damping"}
LOW, HIGH = np.array([0.7, 0.7, 0.01]), np.array([1.3, 1.3, 0.1])
ROLLOUTS = 4
STEPS = 400
BAR = 40.0


def recorded(env: Any) -> list[Any]:
    """Rollouts of the nominal pendulum under random torques."""
    from metaroll.policies.playback import DummyPolicy
    from metaroll.rollouts.single.rollout import rollout

    policy = DummyPolicy(env.env_spec)
    return [
        rollout(env, policy, max_steps=STEPS, stop_on_done=False, seed=0, sub_seed=i, no_close=True)
        for i in range(ROLLOUTS)
    ]


def embedding_of(env: Any) -> Any:
    from metaroll.inference.embeddings import BayesSimEmbedding
    from metaroll.rollouts.samplers.sbi import RolloutSamplerForSBI

    return BayesSimEmbedding(env.env_spec, RolloutSamplerForSBI.get_dim_data(env.env_spec))


class Loop:
    """One rollout after another, one step after another, in plain Python floats."""

    def __init__(self, env: Any, real: list[Any], segments: int) -> None:
        self._config, self._embedding = env.unwrapped.config, embedding_of(env)
        size = STEPS // segments
        self._pieces = [
            [
                (piece.states[begin].tolist(), [tuple(a) for a in piece.actions_applied[begin : begin + size].tolist()])
                for begin in range(0, STEPS, size)
            ]
            for piece in real
        ]

    def __call__(self, theta: np.ndarray) -> torch.Tensor:
        """Features ``(B, R * F)`` of parameters ``(B, 3)``."""
        rows = []
        for row in theta.tolist():
            params = {**self._config.params, **dict(zip(MAPPING.values(), row, strict=True))}
            rows.append(torch.cat([self._features(params, pieces) for pieces in self._pieces]))
        return torch.stack(rows)

    def _features(self, params: dict[str, float], pieces: list[Any]) -> torch.Tensor:
        """Features ``(F,)`` of one rollout."""
        from metaroll.envs.sims.model import SCALARS
        from metaroll.envs.sims.simulator import DerivedConstants, first_state, step_columns

        config, series = self._config, []
        derived = DerivedConstants.of(config.model, config.task, params, SCALARS)
        for start, actions in pieces:
            state = first_state(config, tuple(start), derived, 0.0, SCALARS)
            for action in actions:
                outcome = step_columns(config, derived, state, action, SCALARS)
                series.append((*state.values, *outcome.applied))
                state = outcome.state
        with torch.no_grad():
            return self._embedding(self._embedding.pack(torch.tensor(series, dtype=torch.float32)))[0]


def measure(segments: int, cores: int, args: argparse.Namespace) -> float:
    """Measure and report one case; returns its ratio."""
    from metaroll.envs.lookup.source import make_env
    from metaroll.policies.playback import IdlePolicy
    from metaroll.rollouts.samplers.sbi import SimRolloutSamplerForSBI

    env = make_env("metaroll/Pendulum-v0")
    real = recorded(env)
    loop, generator = Loop(env, real, segments), np.random.default_rng(0)
    ratios, rates, theirs = [], [], []
    now = time.process_time if cores == 1 else time.perf_counter
    options: dict[str, Any] = {"rollouts_real": real, "stop_on_done": False, "num_workers": cores, "seed": 0}
    with SimRolloutSamplerForSBI(
        env, IdlePolicy(env.env_spec), MAPPING, embedding_of(env), num_segments=segments, **options
    ) as ours:
        theta = generator.uniform(LOW, HIGH, (args.sets, 3))
        torch.testing.assert_close(ours(theta)[: args.alone], loop(theta[: args.alone]), rtol=1e-5, atol=1e-5)
        for _ in range(args.repeats):
            theta = generator.uniform(LOW, HIGH, (args.sets, 3))
            begin = now()
            features = ours(theta)
            middle = now()
            loop(theta[: args.alone])
            end = now()
            assert features.isfinite().all()
            rates.append(args.sets * ROLLOUTS / (middle - begin))
            theirs.append(args.alone * ROLLOUTS / (end - middle))
            ratios.append(rates[-1] / theirs[-1])
    line = report(
        NAME,
        args.quick or args.check,
        peer="loop",
        metric="simulations_per_second",
        value=round(statistics.median(rates), 1),
        unit="rollouts/s",
        ratio=round(statistics.median(ratios), 2),
        ratio_range=[round(min(ratios), 2), round(max(ratios), 2)],
        peer_value=round(statistics.median(theirs), 2),
        slots=None,
        config={
            "env": "metaroll/Pendulum-v0",
            "sets": args.sets,
            "rollouts": ROLLOUTS,
            "steps": STEPS,
            "segments": segments,
            "cores": cores,
            "features": "BayesSim",
            "bar": BAR,
            "repeats": args.repeats,
        },
        load_average=round(os.getloadavg()[0], 2),
        versions=versions(*PACKAGES),
    )
    return float(line["ratio"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=int, default=10_000, help="number of parameter sets")
    parser.add_argument("--alone", type=int, default=50, help="number of sets that the loop simulates")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--segments", type=int, nargs="+", default=[1, 4], help="segments per rollout")
    parser.add_argument("--parts", nargs="+", choices=["sampler", "dtw"], default=["sampler", "dtw"])
    parser.add_argument("--check", action="store_true", help="fail if a bar is missed; append nothing")
    parser.add_argument("--quick", action="store_true", help="few sets, one window, nothing appended")
    args = parser.parse_args()
    if args.quick:
        args.sets, args.alone, args.repeats = 500, 5, 1
    elif args.check:
        args.repeats = 3
    torch.set_num_threads(1)
    passed = []
    if "sampler" in args.parts:
        passed += [measure(segments, cores, args) >= BAR for segments in args.segments for cores in args.cores]
    if "dtw" in args.parts:
        passed += [measure_warping(NAME, args.quick or args.check, args.repeats, cores) for cores in args.cores]
    if args.check and not all(passed):
        sys.exit("a bar was missed")


if __name__ == "__main__":
    main()
