"""Noisy sensors of Gymnasium's pendulum: the noise that ``infer`` estimates, and its checks with and without it.

python benchmarks/sensor_noise.py [--seeds 3] [--check]

Noise of 1 % must be estimated within a factor of 1.5, and a posterior that was made without noise must be refused (no
simulation resembles the log). ``--check`` does both for one log at full size (2 minutes), and appends nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from typing import Any

import gymnasium
import numpy as np
from _reporting import report, versions

from metaroll import StepSequence
from metaroll.configs.inference import InferenceOptions
from metaroll.lab import infer

ROBOT = {"m": 0.8, "l": 1.2, "g": 9.0}
PRIOR = {"m": (0.5, 1.5), "l": (0.5, 1.5), "g": (5.0, 15.0)}
MOST_OFF = 1.5


def logged(share: float, seed: int, count: int = 5, steps: int = 200) -> tuple[list[StepSequence], np.ndarray]:
    """Logs of a pendulum with noisy sensors and a new torque every 0.15 s, and the deviations of the noise."""
    env, clean, commands = gymnasium.make("Pendulum-v1"), [], []
    vars(env.unwrapped).update(ROBOT)
    for number in range(count):
        generator = np.random.default_rng((seed, number))
        torques = np.repeat(generator.uniform(-2.0, 2.0, (steps // 3 + 1, 1)), 3, axis=0)[:steps]
        shown = [env.reset(seed=100 * seed + number)[0]]
        shown += [env.step(torque)[0] for torque in torques]
        clean.append(np.array(shown, dtype=np.float64))
        commands.append(torques)
    noise = share * np.ptp(np.concatenate(clean), axis=0)
    generator = np.random.default_rng((seed, count))
    noisy = [one + noise * generator.standard_normal(one.shape) for one in clean]
    rows = zip(noisy, commands, strict=True)
    return [StepSequence(rewards=np.zeros(steps), observations=x, actions=u) for x, u in rows], noise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one log, 200 simulations; nothing is written")
    parser.add_argument("--check", action="store_true", help="one log; nothing is written; status 1 if a bar is missed")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    cases = (
        ((0.01, "estimate"), (0.01, "none")) if args.check else ((0.01, "estimate"), (0.01, "none"), (0.0, "estimate"))
    )
    good = [
        measure(share, how, seed, args.quick, args.check)
        for seed in range(1 if args.quick or args.check else args.seeds)
        for share, how in cases
    ]
    return int(args.check and not all(good))


def measure(share: float, how: str, seed: int, quick: bool, check: bool) -> bool:
    """Infer from one log and report it; returns whether the bar of such a case holds."""
    log, noise = logged(share, seed)
    options = InferenceOptions(noise=how, num_simulations=200 if quick else 2000)
    quick = quick or check
    with tempfile.TemporaryDirectory() as folder:
        inference = infer("Pendulum-v1", log, PRIOR, folder, options)
    outcomes = {check["name"]: check["outcome"] for check in inference.checks["checks"]}
    config = {"noise_share": share, "noise": how, "seed": seed, "num_simulations": options.num_simulations}
    common: dict[str, Any] = {
        "config": config,
        "versions": versions("sbi", "torch"),
        "peer": "none",
    }
    report(
        "sensor_noise",
        quick,
        metric="failed_checks",
        value=sum(outcome == "failed" for outcome in outcomes.values()),
        unit="checks",
        outcomes=outcomes,
        verdict=inference.checks["text"],
        **common,
    )
    if how == "estimate" and share:
        ratios = np.array(list(inference.noise["found"].values())) / noise
        worst = float(np.exp(np.abs(np.log(ratios)).max()))
        report("sensor_noise", quick, metric="noise_factor", value=worst, unit="found over true", **common)
        return worst <= MOST_OFF
    return how == "estimate" or not inference.trusted


if __name__ == "__main__":
    sys.exit(main())
