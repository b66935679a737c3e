"""CrossQ, the plug-in of the examples, on HalfCheetah-v5 after 50,000 steps, beside SBX's CrossQ and our SAC.

    python benchmarks/crossq_cheetah.py                                # all three, five seeds
    python benchmarks/crossq_cheetah.py --subjects crossq --seeds 1   # a part, appended to the results
    python benchmarks/crossq_cheetah.py --summary                      # of the stored results
    python benchmarks/crossq_cheetah.py --check                        # CrossQ, 6,000 steps; status 1: learns nothing

All networks are 256 x 256, batches 256 steps, with one gradient step for each environment step, after 100 random ones
(SAC: 10,000). So the subjects differ only in what CrossQ changes: batch renormalization, no target networks, one step
of the policy for every three of the critics, and Adam's first moment (Bhatt et al. 2024, arXiv:1902.05605). SBX is
``pip install sbx-rl``, and trains in this process, too. The return is the mean of ten episodes of the final policy
without noise, with seeds that do not depend on training.
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

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "plugins"))
import crossq  # pyright: ignore[reportMissingImports]

NAME, ENV = "crossq_cheetah", "HalfCheetah-v5"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium", "mujoco", "sbx-rl", "jax")
STEPS, EPISODES, EPOCH, CYCLE = 50_000, 10, 5000, 10
SEEDS = (0, 1, 2, 3, 4)
UNIT = "return without noise"
CHECK_STEPS, CHECK_BAR = 6000, 0.0
OPTIONS: dict[str, Any] = {
    "hidden_sizes": (256, 256),
    "batch_size": 256,
    "gradient_steps": CYCLE,
    "evaluate_every": 0,
    "replay_size": STEPS,
    "torch_threads": 1,
}
OURS: dict[str, tuple[Any, dict[str, Any]]] = {
    "crossq": (crossq.CROSSQ, {}),
    "sac": ("sac", {"policy_lr": 3e-4, "qf_lr": 3e-4, "tau": 0.005, "random_steps": 10_000, "warmup_steps": 10_000}),
}
"""Name -> algorithm, and its own options."""


def mean_return(act: Any, seed: int) -> float:
    """Mean return of ten episodes; ``act`` gives an action for an observation."""
    returns = []
    with gymnasium.make(ENV) as env:
        for episode in range(EPISODES):
            obs, _ = env.reset(seed=10_000 + 100 * seed + episode)
            total, ended = 0.0, False
            while not ended:
                obs, reward, terminated, truncated, _ = env.step(act(obs))
                total, ended = total + float(reward), terminated or truncated
            returns.append(total)
    return float(np.mean(returns))


def train_ours(name: str, seed: int, steps: int, run_dir: Path) -> tuple[float, float]:
    """Return of the final policy, and seconds of processor time."""
    algo, own = OURS[name]
    epoch = min(EPOCH, steps)
    options = {**OPTIONS, **own, "cycles_per_epoch": epoch // CYCLE}
    cpu = time.process_time()
    agent = m.agent(algo, ENV, seed=seed, run_dir=run_dir, **options).learn(epochs=steps // epoch, progress=False)
    seconds = time.process_time() - cpu
    return mean_return(lambda obs: agent.act(obs), seed), seconds


def train_sbx(seed: int, steps: int) -> tuple[float, float]:
    """The same for SBX's CrossQ, with its defaults except for the width."""
    from sbx import CrossQ  # pyright: ignore[reportMissingImports]

    cpu = time.process_time()
    with gymnasium.make(ENV) as env:
        model = CrossQ("MlpPolicy", env, policy_kwargs={"net_arch": [256, 256]}, buffer_size=STEPS, seed=seed)
        model.learn(steps)
    return mean_return(lambda obs: model.predict(obs, deterministic=True)[0], seed), time.process_time() - cpu


def measure(subject: str, seed: int, folder: Path, steps: int = STEPS, dry: bool = False) -> float:
    """Train once and report the return, which is also returned."""
    value, seconds = (
        train_sbx(seed, steps) if subject == "sbx" else train_ours(subject, seed, steps, folder / f"{subject}-{seed}")
    )
    report(
        NAME,
        dry,
        peer="sbx-rl" if subject == "sbx" else "none",
        metric="return",
        value=value,
        unit=UNIT,
        config={"subject": subject, "env": ENV, "seed": seed, "env_steps": steps, "episodes": EPISODES},
        cpu_seconds=round(seconds, 1),
        versions=versions(*PACKAGES),
    )
    return value


def summarize() -> None:
    """Print means and intervals of the stored results."""
    lines = read_results(NAME)
    for subject in (*OURS, "sbx"):
        newest = {line["config"]["seed"]: line["value"] for line in lines if line["config"]["subject"] == subject}
        values = np.array([newest[seed] for seed in SEEDS if seed in newest])
        if not len(values):
            print(f"{subject}: no results")
            continue
        _, low, high = (float(np.ravel(v)[0]) for v in m.bootstrap_ci(values, np.mean, 2000, 0.05, 2, seed=0))
        print(f"{subject}: mean {values.mean():.0f} [{low:.0f}, {high:.0f}] of {len(values)} seeds: {values.round(0)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subjects", nargs="+", default=[*OURS, "sbx"], choices=[*OURS, "sbx"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--folder", type=Path, default=Path("runs/crossq_cheetah"), help="folder of the runs")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a few hundred steps, to see that it runs")
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if args.check or args.quick:
        with tempfile.TemporaryDirectory() as folder:
            value = measure("crossq", 0, Path(folder), CHECK_STEPS if args.check else 400, dry=True)
        sys.exit(0 if args.quick or value > CHECK_BAR else 1)
    if not args.summary:
        for seed in args.seeds:
            for subject in args.subjects:
                measure(subject, seed, args.folder)
    summarize()


if __name__ == "__main__":
    main()
