"""Gradient steps per second of SAC and TD3, and 20,000 steps of SAC on Pendulum-v1, beside Stable-Baselines3.

    python benchmarks/update_rate.py                   # both: rates, then the training (some minutes)
    python benchmarks/update_rate.py --skip-training
    python benchmarks/update_rate.py --quick           # a few steps, nothing is stored

Both draw batches of 256 from buffers of 1,000 steps of Pendulum-v1 and have networks of 256 x 256, in one process, with
as many threads (--threads). Short series of gradient steps take turns, so that both share what else the machine does: a
ratio is that of two neighbors, reported is the median. The training is that of either library with its own rhythm: ours
takes ten steps between ten gradient steps, as its preset says; Stable-Baselines3 one step between two, its default.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import torch
from _reporting import report, report_missing, versions

import metaroll as m

NAME, PEER, ENV = "update_rate", "stable-baselines3", "Pendulum-v1"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium", "stable-baselines3")
BATCH, SIZES, WARM_UP, STEPS = 256, (256, 256), 1000, 20_000
TURNS, SERIES, TOGETHER = 15, 40, 10
FASTER = 1.5
KINDS = ("SAC", "TD3")


def ours(kind: str, seed: int) -> Any:
    """Our learner, of the size that is measured."""
    spec = m.EnvSpec.from_env(gymnasium.make(ENV))
    rhythm = {"n_train_steps": TOGETHER, "steps_per_epoch": 100, "min_buffer_size": WARM_UP, "uniform_steps": WARM_UP}
    return getattr(m, kind)(spec, buffer_batch_size=BATCH, seed=seed, evaluate_every=0, **rhythm)


def theirs(kind: str, seed: int) -> Any:
    """The same of Stable-Baselines3."""
    import stable_baselines3  # pyright: ignore[reportMissingImports]

    sizes = {"net_arch": list(SIZES)}
    return getattr(stable_baselines3, kind)(
        "MlpPolicy", ENV, learning_starts=WARM_UP, batch_size=BATCH, policy_kwargs=sizes, seed=seed, device="cpu"
    )


def our_steps(kind: str) -> Callable[[int], None]:
    """Takes that many gradient steps."""
    algo = ours(kind, 0)
    with m.LocalRunner(seed=0) as runner:
        runner.setup(algo, ENV)
        runner.train(2)

    def run(count: int) -> None:
        for _ in range(count // TOGETHER):
            algo.improve()

    return run


def their_steps(kind: str) -> Callable[[int], None]:
    """The same of Stable-Baselines3."""
    model = theirs(kind, 0)
    model.learn(WARM_UP + 50)

    def run(count: int) -> None:
        model.train(count, BATCH)

    return run


def seconds(run: Callable[[int], None], count: int) -> float:
    begun = time.perf_counter()
    run(count)
    return time.perf_counter() - begun


def measure_rate(kind: str, threads: int, quick: bool) -> None:
    """Series of gradient steps that take turns."""
    mine, other = our_steps(kind), their_steps(kind)
    turns, series = (2, TOGETHER) if quick else (TURNS, SERIES)
    mine(3)
    other(3)
    pairs = [(seconds(mine, series), seconds(other, series)) for _ in range(turns)]
    report(
        NAME,
        quick,
        peer=PEER,
        metric="updates_per_second",
        value=series / statistics.median(pair[0] for pair in pairs),
        unit="gradient steps/s",
        ratio=statistics.median(pair[1] / pair[0] for pair in pairs),
        config={
            "algorithm": kind.lower(),
            "batch": BATCH,
            "hidden_sizes": list(SIZES),
            "threads": threads,
        },
        demanded=FASTER,
        peer_value=series / statistics.median(pair[1] for pair in pairs),
        ratios=[round(pair[1] / pair[0], 3) for pair in pairs],
        versions=versions(*PACKAGES),
    )


def measure_training(threads: int, quick: bool) -> None:
    """20,000 steps of SAC, one after the other."""
    steps = 1200 if quick else STEPS
    algo = ours("SAC", 1)
    with m.LocalRunner(seed=1) as runner:
        runner.setup(algo, ENV)
        took = seconds(runner.train, max(1, steps // 1000))
    model = theirs("SAC", 1)
    other = seconds(model.learn, steps)
    report(
        NAME,
        quick,
        peer=PEER,
        metric="seconds_of_training",
        value=took,
        unit="s",
        ratio=other / took,
        config={"algorithm": "sac", "env": ENV, "env_steps": steps, "threads": threads},
        demanded=FASTER,
        peer_value=other,
        versions=versions(*PACKAGES),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--skip-training", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    try:
        import stable_baselines3  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        config = {"batch": BATCH}
        known = {"metric": "updates_per_second", "unit": "gradient steps/s", "config": config}
        report_missing(NAME, True, peer=PEER, reason="not installed: make bench-setup", versions=versions(), **known)
        return
    for kind in args.kinds:
        measure_rate(kind, args.threads, args.quick)
    if not args.skip_training:
        measure_training(args.threads, args.quick)


if __name__ == "__main__":
    main()
