"""Signals at random moments: is nobody left, does it continue, and is the result that of the undisturbed command?

    python benchmarks/interrupts.py
    python benchmarks/interrupts.py --commands infer group --moments 10
    python benchmarks/interrupts.py --check                     two moments of each, without appending

Each command (a training in an environment that starts processes of its own, a group of two seeds side by side,
``infer``, and ``sim2real demo``) runs once by itself. Then it is started again and again, each time with the same
words, or with ``metaroll resume`` once its run has begun, and gets a signal at a random moment: SIGKILL, SIGTERM,
SIGINT, SIGHUP, or Ctrl-C (SIGINT to the whole process group). Ten seconds later no process that descends from it may
be left. At last it runs to its end. Compared are snapshots, metrics and summaries, draws and weights of posteriors,
and the returns of the loop, bit by bit. The status is 1 if anything differs, is left, or does not continue.
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


# -- what is interrupted -----------------------------------------------------------------------------------------------


def same_runs(left: Path, right: Path) -> list[str]:
    """What differs between two finished runs."""
    return resume_exact.differences(left, right)


def same_groups(left: Path, right: Path) -> list[str]:
    """What differs between two finished groups."""
    names = sorted(path.name for path in left.glob("seed-*"))
    if names != sorted(path.name for path in right.glob("seed-*")):
        return ["runs"]
    return [f"{name}: {what}" for name in names for what in same_runs(left / name, right / name)]


def same_inferences(left: Path, right: Path) -> list[str]:
    """What differs between two inferences."""
    found = []
    draws = [read_draws(folder / "posterior") for folder in (left, right)]
    if draws[0].names != draws[1].names or not np.array_equal(draws[0].values, draws[1].values):
        found.append("draws")
    weights = [read_weights(folder / "posterior") or {} for folder in (left, right)]
    if weights[0].keys() != weights[1].keys() or any(not (weights[0][k] == weights[1][k]).all() for k in weights[0]):
        found.append("weights")
    texts = [(folder / "inference.json").read_text() for folder in (left, right)]
    return found if texts[0] == texts[1] else [*found, "inference.json"]


def same_loops(left: Path, right: Path) -> list[str]:
    """What differs between two loops."""
    found = same_inferences(left / "inference", right / "inference")
    texts = [(folder / "sim2real.json").read_text() for folder in (left, right)]
    found += [] if texts[0] == texts[1] else ["sim2real.json"]
    names = sorted(path.name for path in (left / "policies").iterdir())
    return found + [f"{n}: {w}" for n in names for w in same_runs(left / "policies" / n, right / "policies" / n)]


@dataclass(frozen=True)
class Case:
    """A command.

    Attributes:
        start: What starts it, ``OUT`` for its folder.
        same: What differs between two of its folders.
        resume: What continues it once the file ``begun`` is in its folder; ``None``: the same words.
        begun: Name of that file.
    """

    start: str
    same: Callable[[Path, Path], list[str]]
    resume: str | None = None
    begun: str = "config.yaml"

    def words(self, folder: Path, data: Path) -> list[str]:
        """What to type now."""
        text = self.resume if self.resume is not None and (folder / self.begun).is_file() else self.start
        return [word.replace("OUT", str(folder)).replace("DATA", str(data)) for word in text.split()]


_TRAIN = "train cem _interrupt_envs:make --epochs 12 --max-steps 60 --n-samples 8 --num-workers 2 --out OUT --quiet"
_GROUP = "train ppo Pendulum-v1 --seeds 2 --jobs 2 --epochs 6 --steps-per-epoch 800 --max-steps 100 --out OUT --quiet"
_INFER = f"infer {SIM} --data DATA --out OUT --num-simulations 200 --hold-out 1 --quiet"
_LOOP = "sim2real demo --out OUT --simulations 100 --epochs 2 --episodes 3 --rollouts 2 --jobs 2 --quiet"

CASES = {
    "train": Case(_TRAIN, same_runs, "resume OUT --quiet"),
    "group": Case(_GROUP, same_groups, "resume OUT --quiet", "group.yaml"),
    "infer": Case(_INFER, same_inferences),
    "sim2real": Case(_LOOP, same_loops),
}


def write_data(folder: Path) -> None:
    """Rollouts of a simulator under random actions."""
    spec, generator = EnvSource.of(SIM).spec, np.random.default_rng(0)
    played = [generator.uniform(-1.0, 1.0, (60, 1)) for _ in range(3)]
    policy = PlaybackPolicy(spec, played)
    save_rollouts([rollout(SIM, policy, max_steps=60, seed=number) for number in range(3)], folder)


# -- how ---------------------------------------------------------------------------------------------------------------


@dataclass
class Found:
    """What went wrong, and when signals came."""

    wrong: list[str] = field(default_factory=list)
    moments: list[dict[str, Any]] = field(default_factory=list)


def marked(mark: str) -> Iterator[int]:
    """Processes that descend from a marked one."""
    wanted = f"{MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state = (path / "stat").read_bytes().rpartition(b")")[2].split()[0]
            if state not in (b"Z", b"X") and wanted in (path / "environ").read_bytes().split(b"\0"):
                yield int(path.name)
        except (OSError, IndexError):
            continue


def begin(words: list[str], mark: str, log: Path) -> subprocess.Popen[bytes]:
    """The command, in a group of its own, marked."""
    variables = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"}
    with open(log, "ab") as file:
        return subprocess.Popen(
            [*PROGRAM, *words], env=variables, stdout=file, stderr=file, start_new_session=True, cwd=HERE
        )


def alone(case: Case, folder: Path, data: Path, log: Path) -> float:
    """Run it without a signal; the seconds that it takes."""
    begun = time.monotonic()
    if begin(case.words(folder, data), "alone", log).wait():
        raise SystemExit(f"{case.start} failed:\n{log.read_text()[-2000:]}")
    return time.monotonic() - begun


def disturbed(
    case: Case, folder: Path, data: Path, log: Path, seconds: float, moments: int, draw: random.Random
) -> Found:
    """Run it with signals, and to its end."""
    found = Found()
    # Each part gets on by some of the whole: later moments lie behind what was done before.
    for number in range(moments):
        name, delay = SIGNALS[number % len(SIGNALS)], draw.uniform(0.05, 0.7 * seconds)
        mark = secrets.token_hex(8)
        process = begin(case.words(folder, data), mark, log)
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
            found.wrong.append(f"part {number} ended by itself with status {status}")
        asked = time.monotonic()
        while left := list(marked(mark)):
            process.poll()  # a zombie is nobody
            if time.monotonic() > asked + GRACE_SECONDS:
                break
            time.sleep(0.05)
        ended = time.monotonic() - asked
        if left:
            told = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:120] for pid in left]
            found.wrong.append(f"{name} after {delay:.2f} s: {len(left)} left: {told}")
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        process.wait()
        moment = {"signal": name, "after": round(delay, 2), "gone_after": round(ended, 2), "status": process.returncode}
        found.moments.append(moment)
    if (status := begin(case.words(folder, data), "last", log).wait()) != 0:
        found.wrong.append(f"it does not continue, status {status}: {log.read_text()[-600:]}")
    return found


def measure(name: str, args: argparse.Namespace) -> bool:
    """Run a command alone and with signals, and report; whether all was well."""
    case, moments = CASES[name], 2 if args.check or args.quick else args.moments
    with tempfile.TemporaryDirectory() as scratch:
        data, log = Path(scratch) / "data", Path(scratch) / "log"
        if name == "infer":
            write_data(data)
        # In the same place, since tasks of a posterior are drawn from its name, which holds the folder.
        left, right = Path(scratch) / "alone", Path(scratch) / "run"
        seconds = alone(case, right, data, log)
        right.rename(left)
        found = disturbed(case, right, data, log, seconds, moments, random.Random(f"{args.seed}-{name}"))
        if not found.wrong:
            found.wrong += case.same(left, right)
    report(
        "interrupts",
        args.quick or args.check,
        peer="none",
        metric="wrong",
        value=len(found.wrong),
        unit="findings",
        config={"command": name, "signals": len(found.moments), "seed": args.seed},
        wrong=found.wrong,
        moments=found.moments,
        longest_until_gone=max((moment["gone_after"] for moment in found.moments), default=0.0),
        seconds_alone=round(seconds, 1),
        versions=versions("torch", "numpy", "gymnasium", "sbi"),
    )
    return not found.wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--commands", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--moments", type=int, default=10, help="signals to each command")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    sys.exit(not all([measure(name, args) for name in args.commands]))


if __name__ == "__main__":
    main()
