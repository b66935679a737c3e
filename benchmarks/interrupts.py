"""Signals at random moments: do all processes end, does the command continue, and is its result unchanged?

    python benchmarks/interrupts.py
    python benchmarks/interrupts.py --commands infer group --moments 10
    python benchmarks/interrupts.py --check                     two signals to each, nothing appended

Each command (a training in an environment that starts its own processes, a group of two seeds side by side,
``infer``, and ``sim2real demo``) runs once undisturbed. Then it is started repeatedly, with the same arguments, or with
``metaroll resume`` once its run exists, and gets a signal at a random moment: SIGKILL, SIGTERM, SIGINT, SIGHUP, or
Ctrl-C (SIGINT to the whole process group). Ten seconds later none of its descendants may be left. The last start runs
to the end. Snapshots, metrics and summaries, draws and weights of posteriors, and the returns of the loop are compared
bit for bit. The status is 1 if anything differs, a process is left, or a command does not continue.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import resume_exact
from _reporting import report, versions

from metaroll import rollout, save_rollouts
from metaroll.data.posteriors.folder import read_draws, read_weights
from metaroll.envs.lookup.source import EnvSource
from metaroll.policies import PlaybackPolicy

HERE = Path(__file__).resolve().parent
PROGRAM = (sys.executable, "-c", "import sys; from metaroll.lab.cli.main import main; sys.exit(main())")
MARK = "METAROLL_INTERRUPTED"
SIGNALS = ("KILL", "TERM", "INT", "HUP", "Ctrl-C")
GRACE_SECONDS = 10.0
SIM = "pend"


# -- commands ---------------------------------------------------------------------------------------------------------


def run_differences(left: Path, right: Path) -> list[str]:
    """Names of what differs between two finished runs."""
    return resume_exact.differences(left, right)


def group_differences(left: Path, right: Path) -> list[str]:
    """Names of what differs between two finished groups."""
    names = sorted(path.name for path in left.glob("seed-*"))
    if names != sorted(path.name for path in right.glob("seed-*")):
        return ["runs"]
    return [f"{name}: {what}" for name in names for what in run_differences(left / name, right / name)]


def inference_differences(left: Path, right: Path) -> list[str]:
    """Names of what differs between two inferences."""
    differing = []
    draws = [read_draws(folder / "posterior") for folder in (left, right)]
    if draws[0].names != draws[1].names or not np.array_equal(draws[0].values, draws[1].values):
        differing.append("draws")
    weights = [read_weights(folder / "posterior") or {} for folder in (left, right)]
    if weights[0].keys() != weights[1].keys() or any(not (weights[0][k] == weights[1][k]).all() for k in weights[0]):
        differing.append("weights")
    texts = [(folder / "inference.json").read_text() for folder in (left, right)]
    return differing if texts[0] == texts[1] else [*differing, "inference.json"]


def loop_differences(left: Path, right: Path) -> list[str]:
    """Names of what differs between two loops."""
    differing = inference_differences(left / "inference", right / "inference")
    texts = [(folder / "sim2real.json").read_text() for folder in (left, right)]
    differing += [] if texts[0] == texts[1] else ["sim2real.json"]
    names = sorted(path.name for path in (left / "policies").iterdir())
    for name in names:
        parts = run_differences(left / "policies" / name, right / "policies" / name)
        differing += [f"{name}: {part}" for part in parts]
    return differing


@dataclass(frozen=True)
class Case:
    """A command.

    Attributes:
        start: Arguments that start it, with ``OUT`` for its folder and ``DATA`` for that of the data.
        differences: Names of what differs between two of its folders.
        resume: Arguments that continue it once the file ``begun`` is in its folder; ``None``: those of ``start``.
        begun: Name of that file.
    """

    start: str
    differences: Callable[[Path, Path], list[str]]
    resume: str | None = None
    begun: str = "config.yaml"

    def arguments(self, folder: Path, data: Path) -> list[str]:
        """Arguments that start it, or continue it if it has begun."""
        text = self.resume if self.resume is not None and (folder / self.begun).is_file() else self.start
        return [word.replace("OUT", str(folder)).replace("DATA", str(data)) for word in text.split()]


_TRAIN = "train cem _interrupt_envs:make --epochs 12 --max-steps 60 --n-samples 8 --num-workers 2 --out OUT --quiet"
_GROUP = "train ppo Pendulum-v1 --seeds 2 --jobs 2 --epochs 6 --steps-per-epoch 800 --max-steps 100 --out OUT --quiet"
_INFER = f"infer {SIM} --data DATA --out OUT --num-simulations 200 --hold-out 1 --quiet"
_LOOP = "sim2real demo --out OUT --simulations 100 --epochs 2 --episodes 3 --rollouts 2 --jobs 2 --quiet"

CASES = {
    "train": Case(_TRAIN, run_differences, "resume OUT --quiet"),
    "group": Case(_GROUP, group_differences, "resume OUT --quiet", "group.yaml"),
    "infer": Case(_INFER, inference_differences),
    "sim2real": Case(_LOOP, loop_differences),
}


def write_data(folder: Path) -> None:
    """Rollouts of a simulator under random actions."""
    spec, generator = EnvSource.of(SIM).spec, np.random.default_rng(0)
    actions = [generator.uniform(-1.0, 1.0, (60, 1)) for _ in range(3)]
    policy = PlaybackPolicy(spec, actions)
    save_rollouts([rollout(SIM, policy, max_steps=60, seed=number) for number in range(3)], folder)


# -- running with signals ----------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What went wrong, and the signals that were sent."""

    wrong: list[str] = field(default_factory=list)
    moments: list[dict[str, Any]] = field(default_factory=list)


def marked(mark: str) -> Iterator[int]:
    """Ids of living processes with ``mark`` in their environment: the marked command and its descendants."""
    wanted = f"{MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state = (path / "stat").read_bytes().rpartition(b")")[2].split()[0]
            if state not in (b"Z", b"X") and wanted in (path / "environ").read_bytes().split(b"\0"):
                yield int(path.name)
        except (OSError, IndexError):
            continue


def begin(arguments: list[str], mark: str, log: Path) -> subprocess.Popen[bytes]:
    """Start the command in its own process group, with ``mark`` in its environment."""
    variables = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"}
    with open(log, "ab") as file:
        return subprocess.Popen(
            [*PROGRAM, *arguments], env=variables, stdout=file, stderr=file, start_new_session=True, cwd=HERE
        )


def run_undisturbed(case: Case, folder: Path, data: Path, log: Path) -> float:
    """Run a command without signals; returns the seconds that it takes."""
    begun = time.monotonic()
    if begin(case.arguments(folder, data), "alone", log).wait():
        raise SystemExit(f"{case.start} failed:\n{log.read_text()[-2000:]}")
    return time.monotonic() - begun


def run_disturbed(
    case: Case, folder: Path, data: Path, log: Path, seconds: float, moments: int, draw: random.Random
) -> Outcome:
    """Run a command with signals, then to its end."""
    outcome = Outcome()
    # Each start completes some of the work, so later signals arrive at later stages.
    for number in range(moments):
        name, delay = SIGNALS[number % len(SIGNALS)], draw.uniform(0.05, 0.7 * seconds)
        mark = secrets.token_hex(8)
        process = begin(case.arguments(folder, data), mark, log)
        try:
            status: int | None = process.wait(delay)
        except subprocess.TimeoutExpired:
            status = None
        if status is None:
            if name == "Ctrl-C":
                os.killpg(process.pid, signal.SIGINT)
            else:
                process.send_signal(getattr(signal, f"SIG{name}"))
        elif status:
            outcome.wrong.append(f"start {number} failed by itself with status {status}")
        signaled = time.monotonic()
        while left := list(marked(mark)):
            process.poll()  # reaps the command, since a zombie does not count
            if time.monotonic() > signaled + GRACE_SECONDS:
                break
            time.sleep(0.05)
        ended = time.monotonic() - signaled
        if left:
            commands = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:120] for pid in left]
            outcome.wrong.append(f"{name} after {delay:.2f} s: {len(left)} processes left: {commands}")
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        process.wait()
        moment = {"signal": name, "after": round(delay, 2), "gone_after": round(ended, 2), "status": process.returncode}
        outcome.moments.append(moment)
    if (status := begin(case.arguments(folder, data), "last", log).wait()) != 0:
        outcome.wrong.append(f"it does not continue, status {status}: {log.read_text()[-600:]}")
    return outcome


def measure(name: str, args: argparse.Namespace) -> bool:
    """Run a command without and with signals, and report; returns whether nothing went wrong."""
    case, moments = CASES[name], 2 if args.check or args.quick else args.moments
    with tempfile.TemporaryDirectory() as scratch:
        data, log = Path(scratch) / "data", Path(scratch) / "log"
        if name == "infer":
            write_data(data)
        # Both use the same folder, since tasks of a posterior are drawn by its name, which contains the folder.
        left, right = Path(scratch) / "alone", Path(scratch) / "run"
        seconds = run_undisturbed(case, right, data, log)
        right.rename(left)
        outcome = run_disturbed(case, right, data, log, seconds, moments, random.Random(f"{args.seed}-{name}"))
        if not outcome.wrong:
            outcome.wrong += case.differences(left, right)
    report(
        "interrupts",
        args.quick or args.check,
        peer="none",
        metric="wrong",
        value=len(outcome.wrong),
        unit="findings",
        config={"command": name, "signals": len(outcome.moments), "seed": args.seed},
        wrong=outcome.wrong,
        moments=outcome.moments,
        longest_until_gone=max((moment["gone_after"] for moment in outcome.moments), default=0.0),
        seconds_alone=round(seconds, 1),
        versions=versions("torch", "numpy", "gymnasium", "sbi"),
    )
    return not outcome.wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--commands", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--moments", type=int, default=10, help="signals per command")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    sys.exit(not all([measure(name, args) for name in args.commands]))


if __name__ == "__main__":
    main()
