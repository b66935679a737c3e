"""One run for each of several seeds, one after the other or in processes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from metaroll.cli.run_folder import write_config
from metaroll.errors import MetarollError

__all__ = ["SeedRun", "SeedsFailedError", "train_seeds"]

SeedRun = tuple[Mapping[str, Any], Path]
"""Configuration and folder of one run."""

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 30.0


class SeedsFailedError(MetarollError, RuntimeError):
    """Some of several runs ended with an error; the others are complete."""


def train_seeds(runs: Sequence[SeedRun], jobs: int, console: Console) -> list[dict[str, Any]]:
    """Train all ``runs``, ``jobs`` at a time, and return their summaries.

    Args:
        runs: What to train, and where.
        jobs: Processes at a time; 1 trains in this process.
        console: Where to say what is done.
    """
    if jobs == 1:
        from metaroll.cli.sessions import start

        for config, folder in runs:
            start(config, folder, console, as_json=False)
    else:
        _train_in_processes(runs, jobs, console)
    return [json.loads((folder / "summary.json").read_text(encoding="utf-8")) for _, folder in runs]


def _train_in_processes(runs: Sequence[SeedRun], jobs: int, console: Console) -> None:
    waiting, failed = list(runs), []
    running: list[tuple[subprocess.Popen[str], SeedRun]] = []
    with tempfile.TemporaryDirectory(prefix="metaroll-") as place:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    run = waiting.pop(0)
                    running.append((_begin(run, Path(place) / str(len(waiting))), run))
                    console.print(f"training {escape(str(run[1]))}", soft_wrap=True)
                for process, run in [entry for entry in running if entry[0].poll() is not None]:
                    running.remove((process, run))
                    complaint = process.communicate()[1].strip()
                    if process.returncode:
                        failed.append(run[1])
                    word = f"[bold red]failed[/]: {escape(complaint)}" if process.returncode else "done"
                    console.print(f"{escape(str(run[1]))} {word}", soft_wrap=True)
                time.sleep(_POLL_SECONDS)
        finally:
            _end([process for process, _ in running])
    if failed:
        names = ", ".join(str(folder) for folder in failed)
        raise SeedsFailedError(
            f"{len(failed)} of {len(runs)} runs failed: {names}; `metaroll resume RUN` continues one of them"
        )


def _begin(run: SeedRun, place: Path) -> subprocess.Popen[str]:
    config, folder = run
    write_config(place, config)
    names = (config["algo"], config["env"])
    options = ("--config", str(place / "config.yaml"), "--out", str(folder), "--quiet")
    command = (sys.executable, "-m", "metaroll.cli.main", "train", *names, *options)
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=subprocess.PIPE, text=True)


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Let processes that are left end in order, so that their runs can be resumed."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.communicate(timeout=_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
