"""Kill a run with SIGKILL again and again, resume it, and compare it bit by bit with the same run left alone.

    python benchmarks/resume_exact.py --env point-robot --kills 12
    python benchmarks/resume_exact.py --env cheetah-vel --kills 2
    python benchmarks/resume_exact.py --env searches --kills 10     each search in turn
    python benchmarks/resume_exact.py --env off_policy --kills 10   each off-policy learner
    python benchmarks/resume_exact.py --env cem --kills 10
    python benchmarks/resume_exact.py --check                       the searches, without appending

Runs use the command line, as a user would. To add a learner, add a ``Row`` to ``OFF_POLICY`` or ``SEARCHES``. In the
rows of PEARL, kill k falls at a random moment of epoch k + 1 (the first may also fall into the start-up). In all
others, kills fall at random moments of random epochs, and each part of the run is a fork of this process, which starts
to train at once. Kills hit sampling, gradient steps, evaluations and the writing of snapshots. After each kill, every
existing snapshot must be readable, to its last byte. The comparison covers weights, optimizers or searches,
generators, replay buffers, callbacks, metrics, the snapshots that are kept, and the final evaluation. The status is 1
if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _reporting import report, versions

import metaroll.lab.cli.commands.train
import metaroll.lab.cli.main
import metaroll.training.session.sessions
from metaroll.data.compare import trees_equal
from metaroll.errors import MetarollError
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.store.snapshots import Snapshot, latest, load_snapshot, snapshots_of

PROGRAM = (sys.executable, "-m", "metaroll.lab.cli.main")
_FEW = "--num-steps-per-epoch 2 --hidden-sizes 16 --encoder-hidden-sizes 16 --num-train-tasks 4 --num-test-tasks 2"
_POLL_SECONDS = 0.002


@dataclass(frozen=True)
class Row:
    """One algorithm in one environment.

    Attributes:
        algo: Name of the algorithm.
        env: Name of the environment.
        sizes: Options of the run.
        quick: Options with ``--quick``, where the run is killed once; ``None`` means ``sizes``.
        num_workers: Worker processes; ``None`` means the number given to this script.
        forks: If true, the parts of the run are forks of this process and are killed in random epochs. Otherwise they
            are separate programs, and are killed in successive epochs.
    """

    algo: str
    env: str
    sizes: str
    quick: str | None = None
    num_workers: int | None = None
    forks: bool = True

    def command(self, folder: Path, quick: bool, workers: int) -> list[str]:
        """The arguments that start the run."""
        return [
            *("train", self.algo, self.env, "--seed", "3", "--quiet"),
            *("--num-workers", str(self.num_workers or workers), "--out", str(folder)),
            *(self.quick if quick and self.quick is not None else self.sizes).split(),
        ]


_KEPT = "--evaluate-every 5 --keep-last 3 --keep-best train/return"
_SEARCH = f"--epochs 40 --max-steps 100 {_KEPT}"

SEARCHES = {
    "cem": Row("cem", "CartPole-v1", f"{_SEARCH} --n-samples 12 --best-frac 0.3"),
    "cem-full": Row("cem", "CartPole-v1", f"{_SEARCH} --n-samples 12 --best-frac 0.5 --covariance full --elitism"),
    "cmaes-full": Row("cmaes", "CartPole-v1", f"{_SEARCH} --hidden-sizes 8 --separable False"),
    "cmaes-separable": Row("cmaes", "CartPole-v1", f"{_SEARCH} --hidden-sizes 32 32 --n-samples 12"),
    "cmaes-restarts": Row(  # each search ends when all its candidates score the same, and restarts
        "cmaes",
        "CartPole-v1",
        f"--epochs 50 --max-steps 5 {_KEPT} --restarts bipop --n-samples 30",
    ),
    "ars": Row("ars", "CartPole-v1", f"{_SEARCH} --num-directions 6 --normalize-observations"),
    "es": Row("es", "CartPole-v1", f"{_SEARCH} --population 12"),
    "pgpe": Row("pgpe", "CartPole-v1", f"{_SEARCH} --num-pairs 6"),
    "snes": Row("snes", "CartPole-v1", f"{_SEARCH} --population 12"),
    "hill-climbing": Row("hill-climbing", "CartPole-v1", f"{_SEARCH} --pop-size 11 --num-init-states-per-domain 1"),
}

# Three rollouts in parallel, 20 steps of each per epoch, so that snapshots fall in the middle of episodes.
_KEPT_RETURN = "--evaluate-every 8 --num-episodes 2 --keep-last 3 --keep-best train/return"
_CYCLES = "--steps-per-epoch 5 --n-train-steps 6 --rollout-batch-size 3 --update-to-data 0.5"
_BATCHES = "--min-buffer-size 200 --buffer-batch-size 32 --hidden-sizes 32 --torch-threads 1"
_REPLAY = f"--epochs 24 {_CYCLES} {_BATCHES} {_KEPT_RETURN}"
_BOX = f"{_REPLAY} --random-steps 300"
_VALUES = f"{_REPLAY} --epsilon-steps 1000 --target-update-steps 50"

OFF_POLICY = {
    "dqn": Row("dqn", "CartPole-v1", f"{_VALUES} --no-double"),
    "dqn-double": Row("dqn", "CartPole-v1", _VALUES),
    "dqn-dueling": Row("dqn", "CartPole-v1", f"{_VALUES} --dueling"),
    "dqn-n-step": Row("dqn", "CartPole-v1", f"{_VALUES} --n-step 3"),
    "dqn-prioritized": Row("dqn", "CartPole-v1", f"{_VALUES} --n-step 3 --priority-exponent 0.6 --replay-size 600"),
    "dqn-workers": Row("dqn", "FrozenLake-v1", f"{_VALUES} --rollout-batch-size 12", num_workers=2),
    "ddpg": Row("ddpg", "Pendulum-v1", f"{_BOX} --exploration-noise ornstein-uhlenbeck"),
    "td3": Row("td3", "Pendulum-v1", f"{_BOX} --replay-size 600"),  # the ring is filled twice
    "td3-mujoco": Row("td3", "InvertedPendulum-v5", _BOX),
    "td3-random": Row("td3", "Pendulum-v1", f"{_BOX} --randomize-param g=9:11 --num-test-tasks 2"),
    "td3-goals": Row("td3", "point-goal", _BOX),
    "sac": Row("sac", "Pendulum-v1", _BOX),
    "sac-tasks": Row("sac", "point-robot", f"{_BOX} --update-to-data 0.4 --num-train-tasks 5 --num-test-tasks 2"),
    "sac-pixels": Row(  # snapshots share blocks of images; the ring is filled twice
        "sac",
        "point-robot-pixels",
        f"--epochs 24 --steps-per-epoch 3 --n-train-steps 4 --rollout-batch-size 4 --update-to-data 0.2 {_BATCHES} "
        f"{_KEPT_RETURN} --buffer-batch-size 8 --replay-size 600 --random-steps 300",
    ),
    "sac-choices": Row("sac", "CartPole-v1", f"{_BOX} --n-step 3"),
    "sac-choices-prioritized": Row("sac", "CartPole-v1", f"{_BOX} --priority-exponent 0.6 --replay-size 1000"),
    "tqc": Row("tqc", "Pendulum-v1", f"{_BOX} --num-critics 3 --num-atoms 7"),
    "tqc-prioritized": Row(
        "tqc", "Pendulum-v1", f"{_BOX} --num-critics 2 --num-atoms 7 --n-step 3 --priority-exponent 0.6"
    ),
    "rsac": Row(  # recurrent states of unfinished rollouts; the ring is filled twice
        "rsac", "Pendulum-v1", f"{_BOX} --hidden-size 16 --segment-length 8 --burn-in 4 --replay-size 600"
    ),
}

GROUPS = {"searches": SEARCHES, "off_policy": OFF_POLICY}

# Fewer updates per iteration than in the presets. Everything else on cheetah-vel is the published configuration.
ROWS = {
    "point-robot": Row(
        "pearl",
        "point-robot",
        "--epochs 13 --num-steps-per-epoch 40 --hidden-sizes 64 64 --encoder-hidden-sizes 64",
        f"--epochs 3 {_FEW} --num-initial-steps 40 --num-steps-prior 40 --num-extra-rl-steps-posterior 40",
        forks=False,
    ),
    "cheetah-vel": Row(
        "pearl", "cheetah-vel", "--epochs 2 --num-steps-per-epoch 20", f"--epochs 3 {_FEW}", forks=False
    ),
    **SEARCHES,
    **OFF_POLICY,
}

TIMED = {"time"}  # phase of the metrics of time, which differ from run to run


class Fork:
    """The command line in a fork of this process, with those methods of ``Popen`` that are used here."""

    def __init__(self, arguments: Sequence[str]) -> None:
        sys.stdout.flush()
        self._status: int | None = None
        self._pid = os.fork()
        if not self._pid:
            status = 1
            try:
                status = metaroll.lab.cli.main.main(list(arguments))
            finally:
                os._exit(status)

    def poll(self) -> int | None:
        """The exit status, or None while the process runs."""
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; raises ``TimeoutExpired`` if the process still runs after ``timeout`` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("fork", timeout or 0.0)
            time.sleep(_POLL_SECONDS)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, if the process still runs."""
        if self.poll() is None:
            os.kill(self._pid, number)


def start(row: Row, arguments: Sequence[str]) -> Fork | subprocess.Popen[bytes]:
    """Start a process that runs the command line."""
    return Fork(arguments) if row.forks else subprocess.Popen([*PROGRAM, *arguments])


def run(row: Row, arguments: list[str], quick: bool) -> None:
    """Run to the end. With ``quick`` a program runs in this process, since starting one would take longest."""
    here = quick and not row.forks
    status = metaroll.lab.cli.main.main(arguments) if here else start(row, arguments).wait()
    if status:
        raise SystemExit(f"{arguments} ended with status {status}")


@dataclass(frozen=True)
class AfterKill:
    """State of a run's folder after a kill.

    Attributes:
        newest: Epoch of the newest snapshot; ``None`` if there is none yet.
        ages: Steps so far of the rollouts that continue from this snapshot.
        unreadable: Snapshots that cannot be read, with the reason.
    """

    newest: int | None
    ages: list[int]
    unreadable: list[str]


def read_snapshots(folder: Path) -> AfterKill:
    """Read all snapshots in a folder."""
    ages: list[int] = []
    unreadable: list[str] = []
    iterations = snapshots_of(folder)
    for iteration in iterations:
        try:
            snapshot = load_snapshot(folder, iteration)
            live = snapshot.tree("runner").get("live")
            buffers = snapshot.buffers  # only the newest snapshot has them
            if snapshot.tree("algorithm") is None or (
                iteration == max(iterations) and snapshot.manifest["buffers"] and not buffers
            ):
                unreadable.append(f"{iteration}: it is incomplete")
            ages = [] if live is None else np.concatenate([s["ages"] for s in live["shards"]]).tolist()
        except MetarollError as error:
            unreadable.append(f"{iteration}: {error}")
    return AfterKill(max(iterations, default=None), ages, unreadable)


def run_killed(
    row: Row, arguments: list[str], folder: Path, kills: Sequence[tuple[int, float]], quick: bool
) -> list[AfterKill]:
    """Run to the end, but kill and resume on the way.

    Args:
        row: Algorithm and environment.
        arguments: Command line that starts the run.
        folder: Folder of the run.
        kills: Per kill, the epoch of a snapshot and the delay in seconds after it is written.
        quick: Whether the last part of a program runs in this process.

    Returns:
        State of the folder after each kill.
    """
    states: list[AfterKill] = []
    while True:
        if quick and not row.forks and len(states) == len(kills):
            run(row, arguments, quick)
            return states
        process = start(row, arguments)
        epoch, delay = kills[len(states)] if len(states) < len(kills) else (0, None)
        while process.poll() is None and delay is not None and (latest(folder) or 0) < epoch:
            time.sleep(_POLL_SECONDS)
        try:
            status = process.wait(timeout=delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            states.append(read_snapshots(folder))
            if (folder / "config.yaml").exists():
                arguments = ["resume", str(folder), "--quiet"]
            continue
        if status != 0:
            raise SystemExit(f"{arguments} ended with status {status}")
        return states


def moments(row: Row, draw: random.Random, count: int, epochs: int, seconds: float, quick: bool) -> list[Any]:
    """When to kill: pairs of the epoch of a snapshot and a delay in seconds."""
    if quick:  # after the first snapshot, so that the only kill does not fall into the start-up
        return [(k + 1, 0.0) for k in range(count)]
    if not row.forks:
        # Kill k falls into the time that epoch k + 1 takes; the first may fall into the start-up of the program.
        return [(k, draw.uniform(0.0, 0.5 * seconds / epochs)) for k in range(count)]
    chosen = sorted(draw.sample(range(epochs - 1), count))
    return [(epoch, draw.uniform(0.0, seconds / epochs)) for epoch in chosen]


def state(snapshot: Snapshot, name: str) -> dict:
    """A state tree without measured times."""
    return {key: value for key, value in snapshot.tree(name).items() if key != "seconds"}


def metrics(folder: Path) -> list[dict]:
    """Lines of metrics.jsonl without measured times."""
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["phase"] not in TIMED]


def summary(folder: Path) -> dict[str, Any]:
    """The final evaluation, without measured times."""
    values = json.loads((folder / "summary.json").read_text())
    return {key: value for key, value in values.items() if key != "seconds"}


def differences(left: Path, right: Path) -> list[str]:
    """Names of the parts that differ between two finished runs."""
    a, b = load_snapshot(left), load_snapshot(right)
    names = [] if a.iteration == b.iteration else [f"iteration {a.iteration} and {b.iteration}"]
    names += [name for name in ("algorithm", "runner") if not trees_equal(state(a, name), state(b, name))]
    if not trees_equal(a.buffers, b.buffers):
        names.append("buffers")
    if metrics(left) != metrics(right):
        names.append("metrics")
    if summary(left) != summary(right):
        names.append("summary")
    kept = [(list(snapshots_of(folder)), load_snapshot(folder).manifest.get("best")) for folder in (left, right)]
    return names if kept[0] == kept[1] else [*names, "snapshots"]


def measure(name: str, args: argparse.Namespace) -> bool:
    """Run a row alone and with kills, and report the differences; returns whether there are none."""
    row, quick = ROWS[name], args.quick
    get_algorithm(row.algo)  # imports the algorithm here, so that forks need not, like the imports above
    kills = min(args.kills, 1) if quick else args.kills
    with tempfile.TemporaryDirectory() as scratch:
        left, right = Path(scratch) / "alone", Path(scratch) / "killed"
        begun = time.monotonic()
        run(row, row.command(left, quick, args.num_workers), quick)
        seconds = time.monotonic() - begun
        epochs = load_snapshot(left).iteration
        planned = moments(row, random.Random(f"{args.seed}-{name}"), kills, epochs, seconds, quick)
        states = run_killed(row, row.command(right, quick, args.num_workers), right, planned, quick)
        differing = differences(left, right)
        differing += [f"snapshot {problem}" for after in states for problem in after.unreadable]
        steps = load_snapshot(left).tree("runner").get("total_env_steps")
    ages = [after.ages for after in states]
    opened: dict[str, Any] = {"steps_of_open_rollouts": ages} if any(ages) else {}
    report(
        "resume_exact",
        quick or args.check,
        peer="none",
        metric="differing_parts",
        value=len(differing),
        unit="parts",
        config={
            "env": row.env,
            "sizes": row.quick if quick and row.quick is not None else row.sizes,
            "kills": len(states),
            "seed": args.seed,
            "num_workers": row.num_workers or args.num_workers,
            **({"row": name, "algo": row.algo} if row.forks else {}),
        },
        differing=differing,
        snapshot_at_kill=[after.newest for after in states],
        **opened,
        seconds_after_snapshot=[round(delay, 2) for _, delay in planned],
        seconds_alone=round(seconds, 1),
        env_steps=steps,
        versions=versions("torch", "numpy", "gymnasium", "mujoco"),
    )
    return not differing


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--env", choices=[*ROWS, *GROUPS], help="default: point-robot, with --check searches")
    parser.add_argument("--kills", type=int, help="default: 12 for point-robot and cheetah-vel, 10 for others")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments of kills")
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    name = args.env or ("searches" if args.check else "point-robot")
    names = list(GROUPS[name]) if name in GROUPS else [name]
    args.kills = (10 if ROWS[names[0]].forks else 12) if args.kills is None else args.kills
    sys.exit(not all([measure(name, args) for name in names]))


if __name__ == "__main__":
    main()
