"""A run that is killed with SIGKILL again and again, and resumed, against the same run left alone: every bit compared.

    python benchmarks/resume_exact.py --env point-robot --kills 12
    python benchmarks/resume_exact.py --env cheetah-vel --kills 2

Through the command line, as a user would. Kill number k falls at a random moment of epoch k + 1 (the first also into
the start): sampling, gradient steps, evaluation, writing a snapshot. Compared are weights, optimizers, generators,
replay buffers and metrics.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _reporting import report, versions

import metaroll.cli.main
from metaroll.data.compare import trees_equal
from metaroll.training.store.snapshots import Snapshot, latest, load_snapshot

# Fewer updates per iteration than the presets; on cheetah-vel everything else is the published configuration.
SIZES = {
    "point-robot": "--epochs 13 --num-steps-per-epoch 40 --hidden-sizes 64 64 --encoder-hidden-sizes 64",
    "cheetah-vel": "--epochs 2 --num-steps-per-epoch 20",
}
PROGRAM = (sys.executable, "-m", "metaroll.cli.main")
_FEW = "--num-steps-per-epoch 2 --hidden-sizes 16 --encoder-hidden-sizes 16 --num-train-tasks 4 --num-test-tasks 2"
QUICK = {
    "point-robot": f"--epochs 3 {_FEW} --num-initial-steps 40 --num-steps-prior 40 --num-extra-rl-steps-posterior 40",
    "cheetah-vel": f"--epochs 3 {_FEW}",
}
TIMED = {"time"}  # phase of metrics that measure the clock


def state(snapshot: Snapshot, name: str) -> dict:
    """A state tree without what measures the clock."""
    return {key: value for key, value in snapshot.tree(name).items() if key != "seconds"}


def train(env: str, folder: Path, sizes: str, workers: int) -> list[str]:
    """The arguments that start a run."""
    return [
        *("train", "pearl", env, "--seed", "3", "--quiet"),
        *("--num-workers", str(workers), "--out", str(folder), *sizes.split()),
    ]


def run(arguments: list[str], quick: bool) -> None:
    """A run that is left alone; a quick one in this process, since starting one takes longest."""
    if quick:
        status = metaroll.cli.main.main(arguments)
    else:
        status = subprocess.run([*PROGRAM, *arguments], check=False).returncode
    if status:
        raise SystemExit(f"{arguments} ended with status {status}")


def run_killed(arguments: list[str], folder: Path, delays: list[float], quick: bool) -> list[int | None]:
    """Start; kill ``delays[k]`` seconds after snapshot k is in place; resume; the newest snapshot at each kill.

    A quick run is killed one snapshot later, so that its only kill does not fall into the start.
    """
    hits: list[int | None] = []
    while True:
        if quick and len(hits) == len(delays):
            run(arguments, quick)
            return hits
        process = subprocess.Popen([*PROGRAM, *arguments])
        while process.poll() is None and len(hits) < len(delays) and (latest(folder) or 0) < len(hits) + quick:
            time.sleep(0.005)
        try:
            status = process.wait(timeout=delays[len(hits)] if len(hits) < len(delays) else None)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            hits.append(latest(folder))
            if (folder / "config.yaml").exists():
                arguments = ["resume", str(folder), "--quiet"]
            continue
        if status != 0:
            raise SystemExit(f"{arguments} ended with status {status}")
        return hits


def metrics(folder: Path) -> list[dict]:
    """Lines of metrics.jsonl without those that measure the clock."""
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["phase"] not in TIMED]


def differences(left: Path, right: Path) -> list[str]:
    """Names of what differs between two finished runs."""
    a, b = load_snapshot(left), load_snapshot(right)
    found = [] if a.iteration == b.iteration else [f"iteration {a.iteration} and {b.iteration}"]
    found += [name for name in ("algorithm", "runner") if not trees_equal(state(a, name), state(b, name))]
    if not trees_equal(a.buffers, b.buffers):
        found.append("buffers")
    if metrics(left) != metrics(right):
        found.append("metrics")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--env", default="point-robot", choices=sorted(SIZES))
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    sizes = (QUICK if args.quick else SIZES)[args.env]
    kills = min(args.kills, 1) if args.quick else args.kills
    with tempfile.TemporaryDirectory() as scratch:
        left, right = Path(scratch) / "alone", Path(scratch) / "killed"
        begun = time.monotonic()
        run(train(args.env, left, sizes, args.num_workers), args.quick)
        seconds = time.monotonic() - begun
        draw = random.Random(args.seed)
        epochs = load_snapshot(left).iteration
        # The first kill may fall into the start of the program, number k into the time that epoch k + 1 takes.
        longest = 0.0 if args.quick else 0.5 * seconds / epochs
        delays = [draw.uniform(0.0, longest) for _ in range(kills)]
        hits = run_killed(train(args.env, right, sizes, args.num_workers), right, delays, args.quick)
        found = differences(left, right)
        steps = load_snapshot(left).tree("runner").get("total_env_steps")
    report(
        "resume_exact",
        args.quick,
        peer="none",
        metric="differing_parts",
        value=len(found),
        unit="parts",
        config={
            "env": args.env,
            "sizes": sizes,
            "kills": len(hits),
            "seed": args.seed,
            "num_workers": args.num_workers,
        },
        differing=found,
        snapshot_at_kill=hits,
        seconds_after_snapshot=[round(delay, 2) for delay in delays],
        seconds_alone=round(seconds, 1),
        env_steps=steps,
        versions=versions("torch", "numpy", "gymnasium", "mujoco"),
    )
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
