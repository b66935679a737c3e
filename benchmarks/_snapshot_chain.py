"""Train a run one iteration per process, each from the snapshot of the previous one, and report meanwhile."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _reporting import read_results

from metaroll.training.algorithms.registry import preset
from metaroll.training.store.metrics_log import FILE_NAME, read_metrics
from metaroll.training.store.run_folder import CONFIG_FILE, read_config
from metaroll.training.store.snapshots import latest

METAROLL = (sys.executable, "-m", "metaroll.lab.cli.main")
RATE = "gradient updates / seconds of the iteration, sampling and evaluation included"


@dataclass(frozen=True)
class Chain:
    """What a benchmark trains, and what it reports.

    Attributes:
        name: Name of the benchmark.
        env: Task family in which PEARL is trained with its preset.
        quick: Options of the quick form.
        iterations: ``iterations(folder)``: the iterations of a run that can be reported, counted from 1.
        lines: ``lines(folder, iteration, memory)``: measurements of one iteration; ``memory`` is its peak in MiB, or
            ``None`` if that is unknown.
    """

    name: str
    env: str
    quick: str
    iterations: Callable[[Path], Iterable[int]]
    lines: Callable[[Path, int, int | None], Iterator[dict[str, Any]]]


def chain_parser(chain: Chain, doc: str | None) -> argparse.ArgumentParser:
    """A parser with all options of such a benchmark except ``--quick``."""
    about, _, more = (doc or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, help=f"folder of the run (default: runs/pearl-{chain.env}-SEED)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=1, help="how many more to train")
    parser.add_argument("--minutes", type=float, help="instead, train as many iterations as fit into this time")
    parser.add_argument("--device", help="device of a new run")
    parser.add_argument("--report-only", action="store_true", help="train nothing")
    return parser


def measurements(chain: Chain, args: argparse.Namespace, options: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Train as ``args`` demand (``options`` are for a new run), and yield measurements that the results lack."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.run or Path("runs") / f"pearl-{chain.env}-{args.seed}"
        if args.quick and not args.report_only:
            folder, options = Path(scratch) / "quick", [*options, *chain.quick.split()]
        _check_env(chain, folder)
        unreported = _Unreported(chain, folder, known=() if args.quick else read_results(chain.name))
        if args.report_only:
            yield from unreported.lines({})
            return
        for iteration, memory in _train(chain, folder, args, _for_new_run(folder, args.device, options)):
            yield from unreported.lines({iteration: memory})


def _check_env(chain: Chain, folder: Path) -> None:
    if (folder / CONFIG_FILE).exists() and (env := read_config(folder)["env"]) != chain.env:
        raise SystemExit(f"{folder} is a run in {env}, expected one in {chain.env}: choose another with --run DIR")


class _Unreported:
    """Yields every measurement once, unless the results hold it already."""

    def __init__(self, chain: Chain, folder: Path, known: Iterable[Mapping[str, Any]]) -> None:
        self._chain, self._folder = chain, folder
        self._known = {_key_of(line) for line in known}
        self._done: set[int] = set()

    def lines(self, memory: Mapping[int, int | None]) -> Iterator[dict[str, Any]]:
        iterations = sorted(self._chain.iterations(self._folder))
        if not iterations:
            print(f"{self._folder}: no iteration is finished yet", file=sys.stderr)
        for iteration in iterations:
            if iteration not in self._done:
                lines = self._chain.lines(self._folder, iteration, memory.get(iteration))
                yield from (line for line in lines if _key_of(line) not in self._known)
                self._done.add(iteration)


def _key_of(line: Mapping[str, Any]) -> tuple[str, int, str, float]:
    """What identifies a line among those of all runs and iterations."""
    return line["config"]["run"], line["iteration"], line["metric"], line["value"]


def _train(
    chain: Chain, folder: Path, args: argparse.Namespace, options: Sequence[str]
) -> Iterator[tuple[int, int | None]]:
    """Train until the number of iterations or the time is used up; yields each iteration with its peak memory.

    With a time limit, an iteration starts only if it is expected to end in time, judged by the previous one.
    """
    begun, expected, count = time.monotonic(), 0.0, 0
    while count < args.iterations if args.minutes is None else _fits(args.minutes, begun, expected):
        started = time.monotonic()
        peak = _train_one_more(chain, folder, args.seed, options)
        newest = latest(folder) or 0
        yield newest, peak
        # The first iteration includes the warm-up, so it does not predict the next.
        expected, count = (0.0 if newest == 1 else time.monotonic() - started), count + 1


def _fits(minutes: float, begun: float, expected: float) -> bool:
    return time.monotonic() - begun + expected < 60 * minutes


def _train_one_more(chain: Chain, folder: Path, seed: int, options: Sequence[str]) -> int | None:
    """Run one more iteration in its own process; returns its peak memory in MiB, if the system reports it."""
    if (folder / CONFIG_FILE).exists():
        command = [*METAROLL, "resume", str(folder), "--epochs", str((latest(folder) or 0) + 1)]
    else:
        command = [*METAROLL, "train", "pearl", chain.env, "--seed", str(seed), "--out", str(folder)]
        command += ["--epochs", "1", *options]
    process = subprocess.Popen([*command, "--quiet"])
    if not hasattr(os, "wait4"):
        status, memory = process.wait(), None
    else:
        _, code, usage = os.wait4(process.pid, 0)
        status = process.returncode = os.waitstatus_to_exitcode(code)
        memory = round(usage.ru_maxrss / (1024 if sys.platform == "linux" else 1024**2))
    if status != 0:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return memory


def _for_new_run(folder: Path, device: str | None, options: Sequence[str]) -> list[str]:
    """Options for a new run; an error if the run exists already, since they would be ignored."""
    if (folder / CONFIG_FILE).exists():
        before = read_config(folder)["run"]["device"]
        if options or device not in (None, before):
            raise SystemExit(f"{folder} keeps its own options (device {before}): leave options out, or use --run DIR")
        return []
    return [*options, *(["--device", device] if device else [])]


def numbers_of(folder: Path) -> dict[int, dict[str, float]]:
    """Finished iterations, counted from 1 -> their metrics of time and, if there was one, of the evaluation."""
    if not (folder / FILE_NAME).exists():
        return {}
    metrics: dict[int, dict[str, float]] = {}
    for row in read_metrics(folder):
        if row["task"] is None and row["phase"] in ("MetaTest", "time"):
            numbers = metrics.setdefault(row["iteration"] + 1, {})
            numbers[row["metric"]] = row["value"]
            numbers["env_steps"] = row["env_steps"]
    return {number: values for number, values in metrics.items() if "epoch_seconds" in values}


def published_at(published: Mapping[float, float], env_steps: float) -> float | None:
    """The published return at ``env_steps``, interpolated; ``None`` outside the published range."""
    steps = sorted(published)
    if not steps[0] <= env_steps <= steps[-1]:
        return None
    return round(float(np.interp(env_steps, steps, [published[step] for step in steps])), 1)


def about_run(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """What every line of a run reports about it."""
    run = config["run"]
    return {
        "run": folder.name,
        "seed": run["seed"],
        "num_workers": run["num_workers"],
        "torch_threads": run["torch_threads"],
        "changes": _changes_from_preset(config),
        "n_test_tasks": config["algorithm"]["num_test_tasks"],
        "updates_per_second": RATE,
    }


def _changes_from_preset(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the run that differ from the preset, which is the published configuration."""
    used = {**config["run"], **config["algorithm"], **config["evaluation"]}
    tuned = preset("pearl", config["env"])
    names = set(tuned) - {"epochs"}
    return {name: used[name] for name in sorted(names) if _plain(used[name]) != _plain(tuned[name])}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def costs_of(
    config: Mapping[str, Any], iteration: int, numbers: Mapping[str, float], memory: int | None
) -> dict[str, Any]:
    """Time, memory and device of an iteration."""
    updates, seconds, device = (
        config["algorithm"]["gradient_steps"],
        numbers["epoch_seconds"],
        config["run"]["device"],
    )
    return {
        "gradient_updates": iteration * updates,
        "updates_per_second": round(updates / seconds, 3),
        "seconds": round(seconds, 1),
        "total_seconds": round(numbers["total_seconds"], 1),
        "host_memory_mib": memory,
        "device": device,
        "device_name": _device_name(device),
    }


def _device_name(device: str) -> str:
    """Name of the GPU; ``device`` itself if it is not one."""
    if not device.startswith("cuda"):
        return device
    import torch

    return torch.cuda.get_device_name(device)
