"""Gradient steps per second of SAC and TD3, and 20,000 steps of SAC on Pendulum-v1, against Stable-Baselines3.

    python benchmarks/update_rate.py                   # both: rates, then the training (some minutes)
    python benchmarks/update_rate.py --skip-training
    python benchmarks/update_rate.py --check           # 3 minutes, appends nothing; status 1 if a bar is missed
    python benchmarks/update_rate.py --quick           # a few steps, appends nothing

Both draw batches of 256 from buffers of 1,000 steps of Pendulum-v1 and have networks of 256 x 256, in one process, with
the same number of threads (--threads, for torch and for matrix products of NumPy). Short series of gradient steps
alternate, so that other load on the machine slows both alike. Each pair of neighbors gives a ratio; the median is
reported. In the training, each library keeps its own rhythm. Ours alternates ten environment steps and ten gradient
steps, as in its preset, and writes a snapshot every 5,000 steps, whose time counts and is also reported.
Stable-Baselines3 alternates one step and one gradient step, its default, and writes nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import torch
from _reporting import report, report_missing, versions
from threadpoolctl import threadpool_limits

import metaroll as m

NAME, PEER, ENV = "update_rate", "stable-baselines3", "Pendulum-v1"
PACKAGES = ("metaroll", "numpy", "torch", "gymnasium", "stable-baselines3")
BATCH, SIZES, WARM_UP, STEPS = 256, (256, 256), 1000, 20_000
TURNS, SERIES, TOGETHER = 15, 40, 10
EPOCH, SNAPSHOT_GAP, CHECK_STEPS = 1000, 5, 5000  # environment steps, epochs, environment steps
FASTER, SNAPSHOT_SHARE = 1.5, 0.05
KINDS = ("SAC", "TD3")


def ours(kind: str, seed: int) -> Any:
    """Our learner."""
    spec = m.EnvSpec.from_env(gymnasium.make(ENV))
    rhythm = {
        "n_train_steps": TOGETHER,
        "steps_per_epoch": EPOCH // TOGETHER,
        "min_buffer_size": WARM_UP,
        "random_steps": WARM_UP,
    }
    return getattr(m, kind)(spec, buffer_batch_size=BATCH, seed=seed, evaluate_every=0, **rhythm)


def theirs(kind: str, seed: int) -> Any:
    """The same learner of Stable-Baselines3."""
    import stable_baselines3  # pyright: ignore[reportMissingImports]

    sizes = {"net_arch": list(SIZES)}
    return getattr(stable_baselines3, kind)(
        "MlpPolicy", ENV, learning_starts=WARM_UP, batch_size=BATCH, policy_kwargs=sizes, seed=seed, device="cpu"
    )


def our_steps(kind: str) -> Callable[[int], None]:
    """A function that takes the given number of gradient steps."""
    algo = ours(kind, 0)
    with m.LocalRunner(seed=0) as runner:
        runner.setup(algo, ENV)
        runner.train(2)

    def run(count: int) -> None:
        for _ in range(count // TOGETHER):
            algo.improve()

    return run


def their_steps(kind: str) -> Callable[[int], None]:
    """The same for Stable-Baselines3."""
    model = theirs(kind, 0)
    model.learn(WARM_UP + 50)

    def run(count: int) -> None:
        model.train(count, BATCH)

    return run


def seconds(run: Callable[[int], None], count: int) -> float:
    """Seconds of ``run(count)``."""
    begun = time.perf_counter()
    run(count)
    return time.perf_counter() - begun


def measure_rate(kind: str, threads: int, quick: bool, turns: int) -> bool:
    """Alternate series of gradient steps, and report; returns whether ours are as much faster as is demanded."""
    mine, other = our_steps(kind), their_steps(kind)
    series = TOGETHER if quick else SERIES
    mine(TOGETHER)
    other(TOGETHER)
    pairs = [(seconds(mine, series), seconds(other, series)) for _ in range(turns)]
    line = report(
        NAME,
        quick or turns < TURNS,
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
    return line["ratio"] >= FASTER


def train_ours(env_steps: int, folder: str, gap: int) -> tuple[float, float, int]:
    """Train SAC; returns the seconds of training, the seconds of snapshots among them, and the number of these."""
    algo, saving = ours("SAC", 1), []
    with m.LocalRunner(seed=1, snapshot_config=m.SnapshotConfig(folder, "gap", gap)) as runner:
        runner.setup(algo, ENV)
        save = runner.save

        def timed(epoch: int) -> Any:
            begun = time.perf_counter()
            written = save(epoch)
            if written is not None:
                saving.append(time.perf_counter() - begun)
            return written

        runner.save = timed
        total = seconds(runner.train, max(1, env_steps // EPOCH))
    return total, sum(saving), len(saving)


def measure_training(threads: int, env_steps: int, store: bool, with_peer: bool) -> bool:
    """Train SAC of ours with snapshots, then that of the peer, and report; returns whether both demands are met."""
    gap = SNAPSHOT_GAP if env_steps >= SNAPSHOT_GAP * EPOCH else 1
    with tempfile.TemporaryDirectory() as folder:
        total, saving, count = train_ours(env_steps, folder, gap)
    config = {"algorithm": "sac", "env": ENV, "env_steps": env_steps, "threads": threads}
    known: dict[str, Any] = {"unit": "s", "config": config, "versions": versions(*PACKAGES)}
    share = saving / (total - saving)
    report(
        NAME,
        not store,
        peer="none",
        metric="share_of_snapshots",
        value=share,
        demanded=SNAPSHOT_SHARE,
        snapshots=count,
        **{**known, "unit": "seconds of snapshots per second without", "config": {**config, "every": gap * EPOCH}},
    )
    if not with_peer:
        return share <= SNAPSHOT_SHARE
    other = seconds(theirs("SAC", 1).learn, env_steps)
    ratio = other / total
    report(
        NAME,
        not store,
        peer=PEER,
        metric="seconds_of_training",
        value=total,
        ratio=ratio,
        demanded=FASTER,
        peer_value=other,
        **known,
    )
    return share <= SNAPSHOT_SHARE and ratio >= FASTER


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--skip-training", action="store_true")
    parser.add_argument("--check", action="store_true", help="shorter, append nothing; status 1 if a bar is missed")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with threadpool_limits(args.threads, user_api="blas"):
        passed = run(args.kinds, args.threads, args.quick, args.check, not args.skip_training)
    sys.exit(0 if passed or not args.check else 1)


def run(kinds: list[str], threads: int, quick: bool, check: bool, training: bool) -> bool:
    """Measure all that was asked for; returns whether all bars are met."""
    try:
        import stable_baselines3  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        known = {"metric": "updates_per_second", "unit": "gradient steps/s", "config": {"batch": BATCH}}
        report_missing(NAME, True, peer=PEER, reason="not installed: make bench-setup", versions=versions(), **known)
        kinds, with_peer = [], False
    else:
        with_peer = True
    turns = 2 if quick else TURNS // 2 if check else TURNS
    passed = [measure_rate(kind, threads, quick, turns) for kind in kinds]
    if training:
        env_steps = 1200 if quick else CHECK_STEPS if check else STEPS
        passed.append(measure_training(threads, env_steps, not (quick or check), with_peer))
    return all(passed)


if __name__ == "__main__":
    main()
