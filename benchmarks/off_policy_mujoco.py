"""TD3, SAC and TQC on HalfCheetah-v5 after 100,000 steps, with the hyperparameters of their papers.

    python benchmarks/off_policy_mujoco.py                              # TD3 and SAC, three seeds each
    python benchmarks/off_policy_mujoco.py --algorithms tqc             # hours on a CPU: five critics of 3 x 512
    python benchmarks/off_policy_mujoco.py --algorithms tqc-256         # the same with critics of 2 x 256
    python benchmarks/off_policy_mujoco.py --algorithms td3 --seeds 1   # a part, appended to the results
    python benchmarks/off_policy_mujoco.py --summary                    # of the stored results
    python benchmarks/off_policy_mujoco.py --check                      # TD3, 10,000 steps; status 1: learns nothing

TD3: 25,000 random steps at the start, networks of 256 x 256, batches of 256, Adam at 3e-4, noise 0.1, target noise 0.2
clipped at 0.5, and a policy step after every second step of the critics (github.com/sfujim/TD3, whose curves of ten
seeds reach 5514 +- 584 after 100,000 steps of HalfCheetah-v1). TQC: five critics of 25 atoms, none of which is dropped
on this task (Kuznetsov et al. 2020, arXiv:2005.04269, appendix), and 10,000 random steps at the start, as for SAC. Ten
environment steps alternate with ten gradient steps. The return is the mean of ten episodes of the final policy without
noise, with seeds that are fixed in advance.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from _reporting import read_results, report, versions

import metaroll as m

NAME, ENV = "off_policy_mujoco", "HalfCheetah-v5"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium", "mujoco")
STEPS, EPISODES, EPOCH, CYCLE = 100_000, 10, 5000, 10
SEEDS = (0, 1, 2)
UNIT = "return without noise"
MEAN, WORST = 4500.0, 3500.0
PUBLISHED = {"td3": 5514.0}
CHECK_STEPS, CHECK_UNIFORM, CHECK_BAR = 10_000, 2000, -200.0

COMMON: dict[str, Any] = {
    "buffer_batch_size": 256,
    "discount": 0.99,
    "tau": 0.005,
    "policy_lr": 3e-4,
    "qf_lr": 3e-4,
    "replay_size": STEPS,
    "n_train_steps": CYCLE,
    "steps_per_epoch": EPOCH // CYCLE,
    "evaluate_every": 0,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "td3": {
        **COMMON,
        "random_steps": 25_000,
        "min_buffer_size": 25_000,
        "policy_delay": 2,
        "smoothing_std": 0.2,
        "smoothing_clip": 0.5,
        "exploration_noise": "gaussian",
        "exploration_sigma": 0.1,
    },
    "sac": {**COMMON, "random_steps": 10_000, "min_buffer_size": 10_000},
    "tqc": {**COMMON, "random_steps": 10_000, "min_buffer_size": 10_000, "dropped_atoms": 0},
    "tqc-256": {**COMMON, "random_steps": 10_000, "min_buffer_size": 10_000, "dropped_atoms": 0},
}
LEARNERS = {"td3": m.TD3, "sac": m.SAC, "tqc": m.contrib.TQC, "tqc-256": m.contrib.TQC}


def learner(algorithm: str, seed: int, **changes: Any) -> Any:
    """The learner of ``algorithm``."""
    spec, qf = m.EnvSpec.from_env(gymnasium.make(ENV)), None
    if algorithm == "tqc":
        generator = torch.Generator().manual_seed(seed)
        qf = m.policies.Critics(spec, 5, (512, 512, 512), num_atoms=25, init="fan_in", generator=generator)
    return LEARNERS[algorithm](spec, qf=qf, seed=seed, **{**SETTINGS[algorithm], **changes})


def final_return(algo: Any, seed: int) -> float:
    """Mean return of ten episodes without noise; their seeds do not depend on training."""
    plans = [
        m.RolloutPlan(index=i, seed=(10_000 + seed, 0, i), max_steps=1000, deterministic=True) for i in range(EPISODES)
    ]
    with m.RolloutEngine(ENV, algo.policy) as engine:
        return float(engine.run(plans).returns.mean())


def train(algorithm: str, seed: int, steps: int, run_dir: Path, **changes: Any) -> dict[str, Any]:
    """Train, from the snapshot in ``run_dir`` if there is one, and evaluate the final policy."""
    algo = learner(algorithm, seed, **changes)
    epochs = steps // EPOCH if steps >= EPOCH else 1
    cpu = time.process_time()
    with m.LocalRunner(run_dir=run_dir, seed=seed) as runner:
        runner.setup(algo, ENV)
        if (run_dir / "snapshots").is_dir():
            runner.restore(run_dir)
            runner.resume(n_epochs=epochs)
        else:
            runner.train(epochs)
        env_steps = runner.total_env_steps
    seconds = time.process_time() - cpu
    return {"return": final_return(algo, seed), "env_steps": env_steps, "cpu_seconds": seconds}


def measure(algorithm: str, seed: int, folder: Path) -> None:
    """Train at full length and report the final return."""
    result = train(algorithm, seed, STEPS, folder / f"{algorithm}-{seed}")
    report(
        NAME,
        False,
        peer="published" if algorithm in PUBLISHED else "none",
        metric="return",
        value=result["return"],
        unit=UNIT,
        ratio=result["return"] / PUBLISHED[algorithm] if algorithm in PUBLISHED else None,
        config={
            "algorithm": algorithm,
            "env": ENV,
            "seed": seed,
            "env_steps": result["env_steps"],
            "episodes": EPISODES,
        },
        cpu_seconds=round(result["cpu_seconds"], 1),
        versions=versions(*PACKAGES),
    )


def summarize(algorithm: str) -> bool:
    """Print the stored results; returns whether the bars hold."""
    newest = {
        line["config"]["seed"]: line["value"] for line in read_results(NAME) if line["config"]["algorithm"] == algorithm
    }
    values = [newest[seed] for seed in SEEDS if seed in newest]
    if not values:
        print(f"{algorithm}: no results")
        return False
    held = len(values) == len(SEEDS) and np.mean(values) >= MEAN and min(values) >= WORST
    returns = ", ".join(f"{value:.0f}" for value in values)
    print(f"{algorithm}: mean {np.mean(values):.0f} ({returns}); demanded of TD3: mean {MEAN:.0f}, worst {WORST:.0f}")
    return bool(held)


def check() -> bool:
    """Train briefly; returns whether the final policy earns more than a random one, which earns about -300."""
    with tempfile.TemporaryDirectory() as folder:
        short = {
            "random_steps": CHECK_UNIFORM,
            "min_buffer_size": CHECK_UNIFORM,
            "steps_per_epoch": CHECK_STEPS // CYCLE,
        }
        result = train("td3", 0, CHECK_STEPS, Path(folder) / "run", **short)
    report_short("td3", result)
    return result["return"] > CHECK_BAR


def quick() -> None:
    """Train each algorithm for a few hundred steps, to see that it runs."""
    for algorithm in SETTINGS:
        with tempfile.TemporaryDirectory() as folder:
            short = {"random_steps": 300, "min_buffer_size": 300, "steps_per_epoch": 40}
            result = train(algorithm, 0, 400, Path(folder) / "run", **short)
        report_short(algorithm, result)


def report_short(algorithm: str, result: dict[str, Any]) -> None:
    """Print a line that is not stored."""
    config = {"algorithm": algorithm, "env": ENV, "seed": 0, "env_steps": result["env_steps"], "episodes": EPISODES}
    known = versions(*PACKAGES)
    value = result["return"]
    report(NAME, True, peer="none", metric="return", value=value, unit=UNIT, config=config, versions=known)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--algorithms", nargs="+", default=["td3", "sac"], choices=list(SETTINGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--folder", type=Path, default=Path("runs/off_policy_mujoco"), help="folder of the runs")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a few hundred steps, to see that it runs")
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if args.check:
        sys.exit(0 if check() else 1)
    if args.quick:
        quick()
        return
    if not args.summary:
        for seed in args.seeds:
            for algorithm in args.algorithms:
                measure(algorithm, seed, args.folder)
    for algorithm in args.algorithms:
        summarize(algorithm)


if __name__ == "__main__":
    main()
