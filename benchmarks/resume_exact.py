"""A run that is killed with SIGKILL again and again, and resumed, against the same run left alone: every bit compared.

    python benchmarks/resume_exact.py --env point-robot --kills 12
    python benchmarks/resume_exact.py --env cheetah-vel --kills 2
    python benchmarks/resume_exact.py --env searches --kills 10     each search, one row after the other
    python benchmarks/resume_exact.py --env off_policy --kills 10   each off-policy learner
    python benchmarks/resume_exact.py --env cem --kills 10
    python benchmarks/resume_exact.py --check                       the searches, without appending

Through the command line, as a user would. A learner joins as a ``Row`` in ``OFF_POLICY`` or ``SEARCHES``. The rows of
PEARL: kill number k falls at a random moment of epoch k + 1 (the first also into the start). All others: kills fall at
random moments of random epochs; each part of such a run is a fork of this process, so that it begins to train at once.
What is hit is sampling, gradient steps, evaluation, writing a snapshot. After each kill, every snapshot that is there
must be readable, to its last byte. Compared are weights, optimizers or searches, generators, replay buffers, callbacks,
metrics, the snapshots that are kept, and the evaluation at the end. The status is 1 if anything differs.
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
        quick: Those of the quick form, which is killed once; ``None`` means the same.
        num_workers: Worker processes; ``None`` means as many as the command line of this script says.
        forks: Whether parts of the run are forks of this process, killed in random epochs, rather than programs of
            their own, killed in one epoch after the other.
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
    "cmaes-restarts": Row(  # candidates that are all alike end each of its parts
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

# Three rollouts side by side, 20 steps of each in an epoch: snapshots lie in the middle of episodes.
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
    "sac-pixels": Row(  # blocks of images that snapshots share, in a ring that is filled twice
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
    "rsac": Row(  # memories of the rollouts that go on, and a ring that is filled twice
        "rsac", "Pendulum-v1", f"{_BOX} --hidden-size 16 --segment-length 8 --burn-in 4 --replay-size 600"
    ),
}

GROUPS = {"searches": SEARCHES, "off_policy": OFF_POLICY}

# Fewer updates per iteration than the presets; on cheetah-vel everything else is the published configuration.
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

TIMED = {"time"}  # phase of metrics that measure the clock


class Fork:
    """The command line in a fork of this process, with the members of ``Popen`` that are used here."""

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
        """The status, if it has ended."""
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """The status; ``TimeoutExpired`` where it has not ended after ``timeout`` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired("fork", timeout or 0.0)
            time.sleep(_POLL_SECONDS)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        if self.poll() is None:
            os.kill(self._pid, number)


def begin(row: Row, arguments: Sequence[str]) -> Fork | subprocess.Popen[bytes]:
    """A process that runs the command line."""
    return Fork(arguments) if row.forks else subprocess.Popen([*PROGRAM, *arguments])


def run(row: Row, arguments: list[str], quick: bool) -> None:
    """A run that is left alone; a quick one of a program in this process, since starting one takes longest."""
    here = quick and not row.forks
    status = metaroll.lab.cli.main.main(arguments) if here else begin(row, arguments).wait()
    if status:
        raise SystemExit(f"{arguments} ended with status {status}")


@dataclass(frozen=True)
class Hit:
    """What a kill left.

    Attributes:
        newest: The newest snapshot; ``None``: there is none yet.
        ages: Steps that the rollouts had taken which go on there.
        unreadable: Snapshots that cannot be read, with the reason.
    """

    newest: int | None
    ages: list[int]
    unreadable: list[str]


def look(folder: Path) -> Hit:
    """Read all that there is."""
    ages: list[int] = []
    unreadable: list[str] = []
    found = snapshots_of(folder)
    for iteration in found:
        try:
            snapshot = load_snapshot(folder, iteration)
            live = snapshot.tree("runner").get("live")
            kept = snapshot.buffers  # of the newest alone
            if snapshot.tree("algorithm") is None or (
                iteration == max(found) and snapshot.manifest["buffers"] and not kept
            ):
                unreadable.append(f"{iteration}: it is not whole")
            ages = [] if live is None else np.concatenate([s["ages"] for s in live["shards"]]).tolist()
        except MetarollError as error:
            unreadable.append(f"{iteration}: {error}")
    return Hit(max(found, default=None), ages, unreadable)


def run_killed(
    row: Row, arguments: list[str], folder: Path, kills: Sequence[tuple[int, float]], quick: bool
) -> list[Hit]:
    """Start; kill some seconds after a snapshot is in place; resume; what each kill left.

    Args:
        row: What is run.
        arguments: What starts it.
        folder: Folder of the run.
        kills: The epochs of the snapshots, and the seconds after each.
        quick: Finish in this process.
    """
    hits: list[Hit] = []
    while True:
        if quick and not row.forks and len(hits) == len(kills):
            run(row, arguments, quick)
            return hits
        process = begin(row, arguments)
        epoch, delay = kills[len(hits)] if len(hits) < len(kills) else (0, None)
        while process.poll() is None and delay is not None and (latest(folder) or 0) < epoch:
            time.sleep(_POLL_SECONDS)
        try:
            status = process.wait(timeout=delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            hits.append(look(folder))
            if (folder / "config.yaml").exists():
                arguments = ["resume", str(folder), "--quiet"]
            continue
        if status != 0:
            raise SystemExit(f"{arguments} ended with status {status}")
        return hits


def moments(row: Row, draw: random.Random, count: int, epochs: int, seconds: float, quick: bool) -> list[Any]:
    """When to kill: snapshots, and seconds after each."""
    if quick:  # one snapshot later, so that its only kill does not fall into the start
        return [(k + 1, 0.0) for k in range(count)]
    if not row.forks:
        # The first kill may fall into the start of the program, number k into the time that epoch k + 1 takes.
        return [(k, draw.uniform(0.0, 0.5 * seconds / epochs)) for k in range(count)]
    chosen = sorted(draw.sample(range(epochs - 1), count))
    return [(epoch, draw.uniform(0.0, seconds / epochs)) for epoch in chosen]


def state(snapshot: Snapshot, name: str) -> dict:
    """A state tree without what measures the clock."""
    return {key: value for key, value in snapshot.tree(name).items() if key != "seconds"}


def metrics(folder: Path) -> list[dict]:
    """Lines of metrics.jsonl without those that measure the clock."""
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["phase"] not in TIMED]


def summary(folder: Path) -> dict[str, Any]:
    """The evaluation at the end."""
    found = json.loads((folder / "summary.json").read_text())
    return {key: value for key, value in found.items() if key != "seconds"}


def differences(left: Path, right: Path) -> list[str]:
    """Names of what differs between two finished runs."""
    a, b = load_snapshot(left), load_snapshot(right)
    found = [] if a.iteration == b.iteration else [f"iteration {a.iteration} and {b.iteration}"]
    found += [name for name in ("algorithm", "runner") if not trees_equal(state(a, name), state(b, name))]
    if not trees_equal(a.buffers, b.buffers):
        found.append("buffers")
    if metrics(left) != metrics(right):
        found.append("metrics")
    if summary(left) != summary(right):
        found.append("summary")
    kept = [(list(snapshots_of(folder)), load_snapshot(folder).manifest.get("best")) for folder in (left, right)]
    return found if kept[0] == kept[1] else [*found, "snapshots"]


def measure(name: str, args: argparse.Namespace) -> bool:
    """Run a row alone, and killed, and report; whether both are the same."""
    row, quick = ROWS[name], args.quick
    get_algorithm(row.algo)  # loads what forks then need not load, as the imports above do
    kills = min(args.kills, 1) if quick else args.kills
    with tempfile.TemporaryDirectory() as scratch:
        left, right = Path(scratch) / "alone", Path(scratch) / "killed"
        begun = time.monotonic()
        run(row, row.command(left, quick, args.num_workers), quick)
        seconds = time.monotonic() - begun
        epochs = load_snapshot(left).iteration
        planned = moments(row, random.Random(f"{args.seed}-{name}"), kills, epochs, seconds, quick)
        hits = run_killed(row, row.command(right, quick, args.num_workers), right, planned, quick)
        found = [*differences(left, right), *(f"snapshot {why}" for hit in hits for why in hit.unreadable)]
        steps = load_snapshot(left).tree("runner").get("total_env_steps")
    ages = [hit.ages for hit in hits]
    opened: dict[str, Any] = {"steps_of_open_rollouts": ages} if any(ages) else {}
    report(
        "resume_exact",
        quick or args.check,
        peer="none",
        metric="differing_parts",
        value=len(found),
        unit="parts",
        config={
            "env": row.env,
            "sizes": row.quick if quick and row.quick is not None else row.sizes,
            "kills": len(hits),
            "seed": args.seed,
            "num_workers": row.num_workers or args.num_workers,
            **({"row": name, "algo": row.algo} if row.forks else {}),
        },
        differing=found,
        snapshot_at_kill=[hit.newest for hit in hits],
        **opened,
        seconds_after_snapshot=[round(delay, 2) for _, delay in planned],
        seconds_alone=round(seconds, 1),
        env_steps=steps,
        versions=versions("torch", "numpy", "gymnasium", "mujoco"),
    )
    return not found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--env", choices=[*ROWS, *GROUPS], help="default: point-robot; with --check searches")
    parser.add_argument("--kills", type=int, help="default: 12 for point-robot and cheetah-vel, else 10")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    chosen = args.env or ("searches" if args.check else "point-robot")
    names = list(GROUPS[chosen]) if chosen in GROUPS else [chosen]
    args.kills = (10 if ROWS[names[0]].forks else 12) if args.kills is None else args.kills
    sys.exit(not all([measure(name, args) for name in names]))


if __name__ == "__main__":
    main()
