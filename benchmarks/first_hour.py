"""How long a new user waits: for the first adapted agent, for the first line of progress, for a saved agent.

python benchmarks/first_hour.py            # installs the wheel of this checkout into a new virtual environment
python benchmarks/first_hour.py --check    # without installation; fails if a bar is missed
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from _reporting import report, versions

ROOT = Path(__file__).parents[1]
BARS = {"seconds to the first line of progress": 3.0, "seconds to load and act": 1.5, "act": 50.0}
"""Metric -> largest value, in seconds, or in microseconds per call of ``act``."""
LIMIT = 120
"""Seconds to wait for a line of progress."""

FIRST_AGENT = """
import metaroll
agent = metaroll.agent("pearl", "point-robot", seed=0, size="small"{more})
agent.learn(progress=False)
env = agent.test_tasks[0]()
adapted = agent.adapt(agent.explore(env, episodes=3))
obs, info = env.reset(seed=0)
print(adapted.act(obs))
"""
FIRST_LINE = """
import time
print("begin", time.time(), flush=True)
import metaroll
metaroll.agent({algo!r}, {env!r}, seed=0, size="small").learn(epochs=1)
"""
LOAD = """
import sys, time
begin = time.perf_counter()
import metaroll
agent = metaroll.load(sys.argv[1])
action = agent.act([1.0, 0.0, 0.0])
print(time.perf_counter() - begin, time.process_time())
"""
TORCH = """
import time
begin = time.perf_counter()
import torch
print(time.perf_counter() - begin)
"""


class Bench:
    """Reports measurements, and records which of them hold their bars.

    Args:
        quick: Only print measurements.
    """

    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.held: list[bool] = []

    def add(
        self, metric: str, value: float, unit: str, config: Mapping[str, object], peer: str = "none", **more: object
    ) -> None:
        """Report ``value``, the smaller the better, and compare it with its bar, if there is one."""
        bar = BARS.get(metric)
        if bar is not None:
            self.held.append(value <= bar)
        packages = versions("torch", "numpy", "gymnasium")
        known = {"value": round(value, 3), "unit": unit, "config": config, "versions": packages, "bar": bar}
        report("first_hour", self.quick, peer=peer, metric=metric, **known, **more)


def run(command: Sequence[str], folder: Path, own: bool = True) -> str:
    """Run a command, and return its output; not ``own``: hide this Python environment from it."""
    hidden = () if own else ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:3])} ... ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def first_agent(bench: Bench, scratch: Path, torch: str) -> None:
    """From ``pip install`` of the wheel to the action of an agent that has adapted to a held-out task."""
    config = {"algo": "pearl", "env": "point-robot", "size": "small", "episodes": 3}
    if bench.quick:  # nothing is installed, and hardly anything learned
        more = ", epochs=1, warmup_steps=20, gradient_steps=5"
        begun = time.perf_counter()
        run([sys.executable, "-c", FIRST_AGENT.format(more=more)], scratch)
        seconds = time.perf_counter() - begun
        bench.add("seconds to the first adapted agent", seconds, "s", {**config, "installed": False, "epochs": 1})
        return
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(scratch / "dist")]
    run(build, ROOT)
    (wheel,) = (scratch / "dist").glob("*.whl")
    constraints = scratch / "constraints.txt"  # the build of torch is the user's choice, as in the Makefile
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    constraints.write_text("\n".join(line for line in lines if not line.startswith("torch==")), "utf-8")
    venv.create(scratch / "new", with_pip=True)
    python = str(scratch / "new" / "bin" / "python")
    begun = time.perf_counter()
    run([python, "-m", "pip", "install", "--quiet", "-c", str(constraints), torch, str(wheel)], scratch, own=False)
    installed = time.perf_counter()
    run([python, "-c", FIRST_AGENT.format(more="")], scratch, own=False)
    ended = time.perf_counter()
    bench.add(
        "seconds to the first adapted agent",
        ended - begun,
        "s",
        {**config, "installed": True, "torch": torch, "pip": "with its cache"},
        install_seconds=round(installed - begun, 1),
        agent_seconds=round(ended - installed, 1),
    )


def lines_of(code: str, folder: Path) -> Iterator[tuple[float, str]]:
    """Times at which lines of a program's output arrive, and the lines; the program ends with the iteration."""
    command = [sys.executable, "-u", "-c", code]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        limit = threading.Timer(LIMIT, process.kill)
        limit.start()
        try:
            for line in process.stdout or ():
                yield time.time(), line
        finally:
            limit.cancel()
            process.kill()


def seconds_to_progress(algo: str, env: str, folder: Path) -> tuple[float, float]:
    """Seconds from ``import metaroll`` to the first line of progress, and to the first line of any kind."""
    begin = first = None
    printed = []
    for now, line in lines_of(FIRST_LINE.format(algo=algo, env=env), folder):
        printed.append(line)
        if begin is None:
            begin = float(line.split()[1])
            continue
        first = now if first is None else first
        if re.match(r"epoch \d+/", line):
            return now - begin, first - begin
    raise SystemExit(f"{algo} in {env} printed no line of progress in {LIMIT} s:\n{''.join(printed)}")


def first_line(bench: Bench, scratch: Path, repetitions: int) -> None:
    """Seconds until training prints its first line of progress, without a terminal."""
    for algo, env in (("ppo", "Pendulum-v1"), ("pearl", "point-robot")):
        waits = []
        for number in range(repetitions):
            folder = scratch / f"{algo}-{number}"
            folder.mkdir()
            waits.append(seconds_to_progress(algo, env, folder))
        value, first = (statistics.median(column) for column in zip(*waits, strict=True))
        metric, config = "seconds to the first line of progress", {"algo": algo, "env": env, "runs": repetitions}
        bench.add(metric, value, "s", config, first_output_seconds=round(first, 3))


def load_and_act(bench: Bench, scratch: Path, repetitions: int) -> None:
    """Load a saved PPO agent and act in a new process, alternating with the import of torch alone."""
    import metaroll

    saved = scratch / "saved"
    agent = metaroll.agent("ppo", "Pendulum-v1", seed=0, run_dir=scratch / "ppo", num_episodes=1, steps_per_epoch=400)
    agent.learn(epochs=1, progress=False).save(saved)
    ours, cpu, torch = [], [], []
    for _ in range(repetitions):
        torch.append(float(run([sys.executable, "-c", TORCH], scratch)))
        seconds, cpu_seconds = map(float, run([sys.executable, "-c", LOAD, str(saved)], scratch).split())
        ours.append(seconds)
        cpu.append(cpu_seconds)
    value, alone = statistics.median(ours), statistics.median(torch)
    bench.add(
        "seconds to load and act",
        value,
        "s",
        {"algo": "ppo", "env": "Pendulum-v1", "runs": repetitions},
        peer="torch",
        ratio=round(alone / value, 3),
        torch_seconds=round(alone, 3),
        cpu_seconds=round(statistics.median(cpu), 3),
    )


def act(bench: Bench, windows: int) -> None:
    """One action of a policy with two hidden layers of 64 units, for one observation."""
    import numpy as np

    import metaroll

    agent = metaroll.agent("ppo", "Pendulum-v1", seed=0, hidden_sizes=(64, 64))
    obs = np.array([1.0, 0.0, 0.0], dtype=np.float32)
    times = []
    for _ in range(windows):
        begun = time.process_time()  # one thread computes, and other processes must not count
        for _ in range(1000):
            agent.act(obs)
        times.append((time.process_time() - begun) / 1000)
    config = {"algo": "ppo", "env": "Pendulum-v1", "hidden_sizes": [64, 64], "windows": windows}
    bench.add("act", 1e6 * statistics.median(times), "microseconds per call", config)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5, help="new processes per measurement")
    parser.add_argument("--torch", default="torch", help="the build to install, such as torch==2.13.0+cpu")
    parser.add_argument("--quick", action="store_true", help="installs nothing, one process each; appends nothing")
    parser.add_argument("--check", action="store_true", help="installs nothing; fails if a bar is missed")
    args = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have bytecode; here the first runs write it
    bench = Bench(args.quick or args.check)
    repetitions = 1 if args.quick else min(args.repetitions, 3) if args.check else args.repetitions
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        act(bench, 10 if bench.quick else 50)
        first_line(bench, scratch, repetitions)
        load_and_act(bench, scratch, repetitions)
        first_agent(bench, scratch, args.torch)
    if args.check and not all(bench.held):
        print(f"{bench.held.count(False)} of {len(bench.held)} measurements miss their bar", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
