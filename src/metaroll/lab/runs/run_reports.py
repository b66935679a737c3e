"""Reports on the runs in a folder: their progress, returns, and damage; never writes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from metaroll.data.doors.budget import Budget
from metaroll.data.doors.json_files import parse_json_line
from metaroll.data.doors.plain_files import at_line, damage, read_bytes
from metaroll.data.doors.yaml_files import read_yaml
from metaroll.data.folders.kinds import LOCK_FILE
from metaroll.data.folders.locks import is_locked
from metaroll.errors import SnapshotError
from metaroll.lab.runs.report_facts import STANDS_FOR_EVALUATION, newest_evaluation
from metaroll.training.store.files import read_json
from metaroll.training.store.metrics_log import FILE_NAME, check_row
from metaroll.training.store.run_folder import CONFIG_FILE, EVALUATION_FILE, SUMMARY_FILE, read_config
from metaroll.training.store.run_store import check_metrics
from metaroll.training.store.snapshots import latest, load_snapshot

__all__ = ["RunReport", "find_runs", "read_evaluation", "read_run", "read_summary"]

_DEPTH = 3
_MOST_METRICS = 2**30
_SNAPSHOTS = "snapshots"
_HEAD = "metaroll_run"

State = Literal["running", "finished", "interrupted", "stopped", "damaged"]


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """One run, as far as it can be read.

    Attributes:
        folder: Folder of the run.
        state: ``running`` (a process holds its lock), ``finished``, ``interrupted`` (can be resumed), ``stopped``
            (started from Python, so that only its script knows how long it runs) or ``damaged``.
        ended_early: Whether it finished before its last epoch, because the algorithm could not improve any further.
        algo: Name of the algorithm.
        env: Name of the environment; ``None`` for runs from Python.
        seed: Seed of the run.
        epochs_done: Finished epochs.
        epochs_total: Number of epochs requested.
        env_steps: Environment steps so far.
        newest_return: Mean return on held-out tasks (after adaptation, if it adapts), in the newest evaluation.
        newest_return_epoch: Finished epochs at that evaluation.
        problem: Damage, and a hint.
    """

    folder: Path
    state: State
    algo: str | None = None
    env: str | None = None
    seed: int | None = None
    epochs_done: int = 0
    epochs_total: int | None = None
    env_steps: int | None = None
    newest_return: float | None = None
    newest_return_epoch: int | None = None
    problem: str = ""
    ended_early: bool = False


def find_runs(root: Path, depth: int = _DEPTH) -> list[Path]:
    """Folders of runs in ``root`` and below, including folders that cannot be read."""
    if _is_run(root):
        return [root]
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return [root]
    return [run for folder in folders for run in find_runs(folder, depth - 1)] if depth else []


def _is_run(folder: Path) -> bool:
    marks = [name for name in (FILE_NAME, _SNAPSHOTS, CONFIG_FILE) if os.path.lexists(folder / name)]
    if (folder / CONFIG_FILE).is_dir():
        marks.remove(CONFIG_FILE)  # not ours, and it would hide the runs beside it
    if marks != [CONFIG_FILE] or os.path.lexists(folder / LOCK_FILE):
        return bool(marks)
    # Many programs write a config.yaml; on its own it is a run only if marked as one, or if unreadable.
    try:
        return _HEAD in read_yaml(folder / CONFIG_FILE)
    except (OSError, ValueError):
        return True


def read_run(folder: Path) -> RunReport:
    """Facts about the run in ``folder``; never raises."""
    running = is_locked(folder)
    facts: dict[str, Any] = {}
    problems: list[str] = []
    for read in (_facts_of_config, _facts_of_metrics, functools.partial(_facts_of_snapshots, running=running)):
        try:
            new_facts = read(folder)
        except Exception as error:  # a broken file can raise anything
            problems.append(" ".join(str(error).split()) or type(error).__name__)
            continue
        new_facts["epochs_done"] = max(facts.get("epochs_done", 0), new_facts.get("epochs_done", 0))
        facts = {**new_facts, **facts, "epochs_done": new_facts["epochs_done"]}
    done, ended_early = facts.get("epochs_done", 0), False
    summary, evaluation = {}, {}
    with contextlib.suppress(SnapshotError, OSError):
        summary = read_summary(folder)
    with contextlib.suppress(SnapshotError, OSError):
        evaluation = read_evaluation(folder)
    epochs, newest = newest_evaluation(summary, evaluation, facts.get("newest_return_epoch") or 0, done)
    values = [newest[metric] for metric in STANDS_FOR_EVALUATION if isinstance(newest.get(metric), int | float)]
    if values:
        facts |= {"newest_return": values[0], "newest_return_epoch": epochs}
    total = facts.get("epochs_total")
    state: State = "stopped" if total is None else "finished" if done >= total else "interrupted"
    if problems or running:
        state = "damaged" if problems else "running"
    elif state == "interrupted" and summary.get("ended_early") is True and summary.get("epochs") == done:
        state, ended_early = "finished", True  # its own summary, not one from an earlier session
    return RunReport(folder=folder, state=state, problem="; ".join(problems[:1]), ended_early=ended_early, **facts)


def read_summary(folder: Path) -> dict[str, Any]:
    """Content of ``summary.json``, written at the end of a run; empty without it."""
    return _read_numbers(folder / SUMMARY_FILE)


def read_evaluation(folder: Path) -> dict[str, Any]:
    """Content of ``evaluation.json``, written by ``metaroll evaluate``; empty without it."""
    return _read_numbers(folder / EVALUATION_FILE)


def _read_numbers(path: Path) -> dict[str, Any]:
    content = read_json(path) if os.path.lexists(path) else {}
    return content if isinstance(content, dict) else {}


def _facts_of_config(folder: Path) -> dict[str, Any]:
    """Facts from ``config.yaml``; empty for a run from Python, which may have an unrelated one, or none."""
    path = folder / CONFIG_FILE
    if not os.path.lexists(path):
        if _was_started_by_command(folder):
            raise SnapshotError(f"{path} is missing: restore it from a copy, or train again")
        return {}
    if (
        path.is_file()
        and not path.is_symlink()
        and path.stat().st_size
        and _HEAD not in read_yaml(path)
        and not _was_started_by_command(folder)
    ):
        return {}
    config = read_config(folder)
    run = config["run"] if isinstance(config["run"], dict) else {}
    facts = {"algo": config["algo"], "env": config["env"], "seed": run.get("seed"), "epochs_total": run.get("epochs")}
    for (name, value), kind in zip(facts.items(), (str, str, int, int), strict=True):
        if not isinstance(value, kind):
            option = name.removesuffix("_total")
            raise SnapshotError(f"{option} in {path} is {value!r}: restore the file from a copy, or train again")
    return facts


def _was_started_by_command(folder: Path) -> bool:
    """Whether the newest snapshot is marked as part of a run of the command line."""
    try:
        return "command" in (load_snapshot(folder).manifest.get("config") or {})
    except (SnapshotError, OSError):
        return False


def _facts_of_snapshots(folder: Path, running: bool) -> dict[str, Any]:
    """Facts from the newest snapshot; an error if the run could not continue from it."""
    newest = latest(folder)
    if newest is None:
        path = folder / _SNAPSHOTS
        if os.path.lexists(path) and not path.is_dir():
            raise SnapshotError(f"{path} must be a folder: move the existing file away")
        return {}
    try:
        snapshot = load_snapshot(folder)
        check_metrics(folder, snapshot)
    except (SnapshotError, OSError):
        if running and latest(folder) != newest:  # replaced by a newer one in the meantime
            return _facts_of_snapshots(folder, running)
        raise
    facts: dict[str, Any] = {"epochs_done": snapshot.iteration}
    if isinstance(algorithm := snapshot.manifest.get("algorithm"), str):
        facts["algo"] = algorithm
    return facts


def _facts_of_metrics(folder: Path) -> dict[str, Any]:
    """Epochs, environment steps and the newest return in ``metrics.jsonl``, read from its end."""
    path = folder / FILE_NAME
    if not os.path.lexists(path):
        return {}
    with damage(path, hint="restore it from a copy"):
        data = read_bytes(path, _MOST_METRICS)
        lines = _lines_from_end(data)
        line = next(lines, None)
        if line is None:
            return {}
        last = _row(data, line)
        facts: dict[str, Any] = {"epochs_done": last["iteration"] + 1, "env_steps": last["env_steps"]}
        names = [f'"{name}"'.encode() for name in STANDS_FOR_EVALUATION]
        for place in itertools.chain([line], lines):
            if any(data.find(name, place.start, place.stop) >= 0 for name in names):
                row = _row(data, place)
                # MAML also logs the return after adaptation in training.
                if row["metric"] in STANDS_FOR_EVALUATION and row["task"] is None and row["phase"] != "train":
                    value = row["value"] if isinstance(row["value"], int | float) else None  # NaN is written as null
                    return {**facts, "newest_return": value, "newest_return_epoch": row["iteration"] + 1}
        return facts


def _lines_from_end(data: bytes) -> Iterator[slice]:
    """Positions of the lines, last one first; skips an incomplete last line of a run that was killed."""
    end = data.rfind(b"\n")
    while end >= 0:
        begin = data.rfind(b"\n", 0, end) + 1
        yield slice(begin, end)
        end = begin - 1


def _row(data: bytes, line: slice) -> dict[str, Any]:
    number = data.count(b"\n", 0, line.start) + 1
    row = parse_json_line(data[line], number, Budget())
    with at_line(number):
        check_row(row)
    return row
