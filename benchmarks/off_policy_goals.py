"""Goals and images: point-goal with and without hindsight goals, point-robot from pixels and from states.

    python benchmarks/off_policy_goals.py                                  # everything, three seeds each
    python benchmarks/off_policy_goals.py --parts goals --seeds 0 1        # a part, appended to the results
    python benchmarks/off_policy_goals.py --summary                        # of the stored results
    python benchmarks/off_policy_goals.py --check                          # one seed of point-goal; appends nothing

Goals: the preset of TD3, trained on the family's 80 training goals; success is measured at the last step of 100
episodes with goals anywhere in [-3, 3]^2. Pixels: SAC with the same settings on both, for the goal (0, 0); returns are
those of 100 episodes without noise, whose starts are the same for all, minus that of a point that does not move.
One thread each.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import Any

import numpy as np
import torch
from _reporting import read_results, report, versions

import metaroll as m
from metaroll.envs.point.point_pixels import PointRobotPixelsEnv
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.policies.encoders import FixedEncoder, ObservationEncoder, holds_images
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.networks import Critics
from metaroll.seeding import torch_generator
from metaroll.training.session.experiments import build, resolve

NAME = "off_policy_goals"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium")
EPISODES, SEEDS = 100, (0, 1, 2)
WITH_LEAST, WITHOUT_MOST, PIXELS_LEAST = 0.9, 0.3, 0.8
PIXEL_STEPS = 5000
ENVS: dict[str, Any] = {"pixels": PointRobotPixelsEnv, "states": PointRobotEnv}


def plans(max_steps: int) -> list[m.RolloutPlan]:
    """Episodes without noise, the same for all."""
    return [m.RolloutPlan(i, (1_000_000, 0, i), max_steps=max_steps, deterministic=True) for i in range(EPISODES)]


def success(seed: int, hindsight: bool, quick: bool) -> dict[str, Any]:
    """Success rate of TD3 on point-goal."""
    changes: dict[str, Any] = {"seed": seed, "evaluate_every": 0, "torch_threads": 1}
    changes |= {} if hindsight else {"hindsight_ratio": 0.0}
    changes |= {"epochs": 2} if quick else {}
    options = resolve("td3", "point-goal", [("the benchmark", changes)])
    experiment = build(options)
    with contextlib.closing(experiment.runner):
        begun = time.process_time()
        experiment.runner.train(options["run"]["epochs"])
        seconds, env_steps = time.process_time() - begun, experiment.runner.total_env_steps
    with m.RolloutEngine("point-goal", experiment.algo.policy) as engine:
        reached = [flags["success"][-1] for flags in engine.run(plans(50)).each("env_infos")]
    config = {"algorithm": "td3", "env": "point-goal", "hindsight": hindsight, "seed": seed, "env_steps": env_steps}
    return {"metric": "success", "value": float(np.mean(reached)), "unit": "share of episodes", "seconds": seconds} | {
        "config": {**config, "episodes": EPISODES}
    }


def gain(seed: int, what: str, quick: bool) -> dict[str, Any]:
    """Return of SAC on point-robot, minus that of a point that does not move."""
    env = ENVS[what]
    spec, generator = m.EnvSpec.from_env(env()), torch_generator(seed)
    space = spec.observation_space
    encoder = ObservationEncoder(space, 32, (8, 16, 16), generator=generator) if holds_images(space) else None
    fixed = None if encoder is None else FixedEncoder(encoder)
    algo = m.SAC(
        spec,
        policy=TanhGaussianMLPPolicy(spec, (64, 64), init="fan_in", encoder=fixed, generator=generator),
        qf=Critics(spec, 2, (64, 64), init="fan_in", encoder=encoder, generator=generator),
        seed=seed,
        discount=0.9,
        policy_lr=1e-3,
        qf_lr=1e-3,
        random_steps=500,
        warmup_steps=500,
        replay_size=20_000,
        batch_size=64,
        num_envs=4,
        cycles_per_epoch=25,
        gradient_steps=20,
        max_steps=20,
        evaluate_every=0,
    )
    runner = m.LocalRunner(seed=seed)
    runner.setup(algo, env)
    begun = time.process_time()
    with runner:
        runner.train(2 if quick else PIXEL_STEPS // 500)
    seconds = time.process_time() - begun
    returns = []
    for policy in (algo.policy, m.policies.IdlePolicy(spec)):
        with m.RolloutEngine(env, policy) as engine:
            returns.append(float(engine.run(plans(20)).returns.mean()))
    config = {"algorithm": "sac", "env": f"point-robot from {what}", "seed": seed, "env_steps": algo.num_env_steps}
    return {"metric": "return_gain", "value": returns[0] - returns[1], "unit": "return beyond standing still"} | {
        "seconds": seconds,
        "config": {**config, "episodes": EPISODES},
    }


def report_training(line: dict[str, Any], quick: bool) -> float:
    """Report one training; returns its value."""
    seconds = round(line.pop("seconds"), 1)
    report(NAME, quick, peer="none", cpu_seconds=seconds, versions=versions(*PACKAGES), **line)
    return line["value"]


def newest(**wanted: Any) -> np.ndarray:
    """The newest value of each seed."""
    lines = [line for line in read_results(NAME) if all(line["config"].get(k) == v for k, v in wanted.items())]
    return np.array(list({line["config"]["seed"]: line["value"] for line in lines}.values()))


def summarize() -> bool:
    """Print the newest results; returns whether the bars hold."""
    with_them, without = (newest(env="point-goal", hindsight=there) for there in (True, False))
    pixels, states = (newest(env=f"point-robot from {what}") for what in ENVS)
    held = True
    if len(with_them) and len(without):
        held &= bool(with_them.mean() >= WITH_LEAST and without.mean() < WITHOUT_MOST)
        print(f"point-goal: success {with_them} with goals in hindsight, {without} without them")
    if len(pixels) and len(states):
        share = pixels.mean() / states.mean()
        held &= bool(share >= PIXELS_LEAST)
        print(f"point-robot: gains {pixels} from pixels, {states} from states; ratio {share:.2f}")
    print("the bars hold" if held else "a bar is missed")
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=("goals", "pixels"), default=("goals", "pixels"))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--check", action="store_true", help="one seed of point-goal, appending nothing")
    parser.add_argument("--quick", action="store_true", help="two epochs of each, to see that it runs")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        with_them, without = (report_training(success(SEEDS[0], there, False), True) for there in (True, False))
        sys.exit(0 if with_them >= WITH_LEAST and without < WITHOUT_MOST else 1)
    if not args.summary:
        for seed in args.seeds[:1] if args.quick else args.seeds:
            if "goals" in args.parts:
                for hindsight in (True, False):
                    report_training(success(seed, hindsight, args.quick), args.quick)
            if "pixels" in args.parts:
                for what in ENVS:
                    report_training(gain(seed, what, args.quick), args.quick)
    if not args.quick:
        sys.exit(0 if summarize() else 1)


if __name__ == "__main__":
    main()
