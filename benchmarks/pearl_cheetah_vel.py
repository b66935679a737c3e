"""PEARL on cheetah-vel as published, iteration by iteration, beside a published curve.

    python benchmarks/pearl_cheetah_vel.py --iterations 3                  # begins, or goes on for 3 iterations
    python benchmarks/pearl_cheetah_vel.py --minutes 20 --device cuda      # as many iterations as fit
    python benchmarks/pearl_cheetah_vel.py --run runs/mine --report-only   # what a run has written by itself
    python benchmarks/pearl_cheetah_vel.py --num-workers 2                 # further options are those of a new run

Goes through the command line, one process per iteration: each continues from the snapshot of the one before. Numbers
come from the run's ``metrics.jsonl``; an iteration that is in the results already is not reported again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from _reporting import read_results, report

from metaroll.cli.presets import get_preset
from metaroll.training.metrics_log import FILE_NAME, read_metrics
from metaroll.training.snapshots import latest

NAME = "pearl_cheetah_vel"
# Held-out return after adaptation at environment steps: README.md says whose.
PUBLISHED = {205e3: -281.0, 250e3: -101.0, 300e3: -57.0, 400e3: -39.0, 500e3: -37.0, 700e3: -40.0}
PUBLISHED_BY = (
    "github.com/x35f/meta_rl, cheetah-vel, 1 seed: mean of 5 deterministic episodes after 2 exploration episodes in "
    "held-out tasks, read from its event files, interpolated at the same environment steps"
)
QUICK = "--num-steps-per-epoch 2 --hidden-sizes 16 --num-train-tasks 4 --num-test-tasks 2 --num-initial-steps 200"
RATE = "gradient updates / seconds of the iteration, sampling and evaluation included"
CONFIG = "config.yaml"
METAROLL = (sys.executable, "-m", "metaroll.cli.main")


def train_one_more(folder: Path, seed: int, options: Sequence[str]) -> int | None:
    """Run one more iteration in a process of its own; its peak memory in MiB, where the system tells."""
    if (folder / CONFIG).exists():
        command = [*METAROLL, "resume", str(folder), "--epochs", str((latest(folder) or 0) + 1)]
    else:
        command = [*METAROLL, "train", "pearl", "cheetah-vel", "--seed", str(seed), "--out", str(folder)]
        command += ["--epochs", "1", *options]
    process = subprocess.Popen([*command, "--quiet"])
    if not hasattr(os, "wait4"):
        status, memory = process.wait(), None
    else:
        _, code, used = os.wait4(process.pid, 0)
        status = process.returncode = os.waitstatus_to_exitcode(code)
        memory = round(used.ru_maxrss / (1024 if sys.platform == "linux" else 1024**2))
    if status != 0:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return memory


def iterations_of(folder: Path) -> dict[int, dict[str, float]]:
    """Finished iterations, counted from 1: what they wrote about held-out tasks and time."""
    if not (folder / FILE_NAME).exists():
        return {}
    found: dict[int, dict[str, float]] = {}
    for row in read_metrics(folder):
        if row["task"] is None and row["phase"] in ("MetaTest", "time"):
            numbers = found.setdefault(row["iteration"] + 1, {})
            numbers[row["metric"]] = row["value"]
            numbers["env_steps"] = row["env_steps"]
    return {number: values for number, values in found.items() if {"return_after", "epoch_seconds"} <= values.keys()}


def published_at(env_steps: float) -> float | None:
    """The published return at ``env_steps``; ``None`` outside of what was published."""
    steps = sorted(PUBLISHED)
    if not steps[0] <= env_steps <= steps[-1]:
        return None
    return round(float(np.interp(env_steps, steps, [PUBLISHED[step] for step in steps])), 1)


def read_config(folder: Path) -> dict[str, Any]:
    return yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))


def changes_from_preset(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the run that are not those of the published configuration."""
    used = {**config["run"], **config["algorithm"], **config["evaluation"]}
    preset = get_preset("pearl", "cheetah-vel")
    names = set(preset) - {"epochs"}
    return {name: used[name] for name in sorted(names) if _plain(used[name]) != _plain(preset[name])}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def device_name(device: str) -> str:
    """What the device is called; for a CPU just that."""
    if not device.startswith("cuda"):
        return device
    import torch

    return torch.cuda.get_device_name(device)


def key_of(line: Mapping[str, Any]) -> tuple[str, int, float]:
    """What tells a line from those of other runs and iterations."""
    return line["config"]["run"], line["iteration"], line["value"]


def lines_of(folder: Path, memory: Mapping[int, int | None]) -> Iterator[dict[str, Any]]:
    """Measurements of all finished iterations in ``folder``."""
    config = read_config(folder)
    run = config["run"]
    about = {
        "run": folder.name,
        "seed": run["seed"],
        "num_workers": run["num_workers"],
        "torch_threads": run["torch_threads"],
        "changes": changes_from_preset(config),
        "n_test_tasks": config["algorithm"]["num_test_tasks"],
        "updates_per_second": RATE,
        "published": PUBLISHED_BY,
    }
    for iteration, numbers in sorted(iterations_of(folder).items()):
        episodes = [value for name, value in numbers.items() if name.startswith("return_episode_")]
        updates, seconds = config["algorithm"]["num_steps_per_epoch"], numbers["epoch_seconds"]
        yield {
            "peer": "published",
            "metric": "held_out_return",
            "value": numbers["return_after"],
            "unit": "return after 2 exploration episodes",
            "iteration": iteration,
            "env_steps": int(numbers["env_steps"]),
            "published_value": published_at(numbers["env_steps"]),
            "return_after_interval": [numbers["return_after_ci_low"], numbers["return_after_ci_high"]],
            "return_before": numbers["return_before"],
            "return_before_interval": [numbers["return_before_ci_low"], numbers["return_before_ci_high"]],
            "gain": numbers["gain"],
            "gain_interval": [numbers["gain_ci_low"], numbers["gain_ci_high"]],
            "return_of_all_episodes": float(np.mean(episodes)),
            "gradient_updates": iteration * updates,
            "updates_per_second": round(updates / seconds, 3),
            "seconds": round(seconds, 1),
            "total_seconds": round(numbers["total_seconds"], 1),
            "host_memory_mib": memory.get(iteration),
            "device": run["device"],
            "device_name": device_name(run["device"]),
            "config": about,
            "versions": config["versions"],
        }


class Reporter:
    """Reports iterations that are not in the results yet."""

    def __init__(self, quick: bool) -> None:
        self._quick = quick
        self._known = set() if quick else {key_of(line) for line in read_results(NAME)}

    def report_new(self, folder: Path, memory: Mapping[int, int | None]) -> None:
        lines = list(lines_of(folder, memory))
        if not lines:
            print(f"{folder}: no iteration is finished yet", file=sys.stderr)
        for line in lines:
            if key_of(line) not in self._known:
                report(NAME, self._quick, **line)
                self._known.add(key_of(line))


def train(folder: Path, args: argparse.Namespace, options: Sequence[str]) -> None:
    """Iterations until their number, or the time, is used up; the last one must fit into the time by all appearance."""
    reporter, begun, expected, count = Reporter(args.quick), time.monotonic(), 0.0, 0
    while count < args.iterations if args.minutes is None else fits(args.minutes, begun, expected):
        started = time.monotonic()
        peak = train_one_more(folder, args.seed, options)
        newest = latest(folder) or 0
        reporter.report_new(folder, {newest: peak})
        # The first iteration holds the warm-up, so it says nothing about the next.
        expected, count = (0.0 if newest == 1 else time.monotonic() - started), count + 1


def fits(minutes: float, begun: float, expected: float) -> bool:
    return time.monotonic() - begun + expected < 60 * minutes


def for_new_run(folder: Path, device: str | None, options: Sequence[str]) -> list[str]:
    """Options to begin the run with; an error if it has begun already, and they would be ignored."""
    if (folder / CONFIG).exists():
        before = read_config(folder)["run"]["device"]
        if options or device not in (None, before):
            raise SystemExit(f"{folder} was begun with its own options (device {before}): leave them out, or --run DIR")
        return []
    return [*options, *(["--device", device] if device else [])]


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, help="folder of the run (default: runs/pearl-cheetah-vel-SEED)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=1, help="how many more")
    parser.add_argument("--minutes", type=float, help="as many iterations as fit, instead")
    parser.add_argument("--device", help="of a new run")
    parser.add_argument("--report-only", action="store_true", help="train nothing")
    parser.add_argument("--quick", action="store_true", help="tiny numbers in a scratch folder, nothing appended")
    args, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.run or Path("runs") / f"pearl-cheetah-vel-{args.seed}"
        if args.quick and not args.report_only:
            folder, options = Path(scratch) / "quick", [*options, *QUICK.split()]
        if args.report_only:
            Reporter(args.quick).report_new(folder, {})
        else:
            train(folder, args, for_new_run(folder, args.device, options))


if __name__ == "__main__":
    main()
