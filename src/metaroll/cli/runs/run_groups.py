"""Groups of runs that differ in their seeds only, their scores, and what must be equal for a comparison."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.cli.options import UsageError
from metaroll.cli.runs import run_config
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.store import run_folder
from metaroll.training.store.metrics_log import read_metrics

__all__ = [
    "RunGroup",
    "RunScores",
    "group_runs",
    "notes_on_merged",
    "refuse_different",
    "scores_of",
    "unfinished_runs",
]

# What belongs to one run, or to where it was run.
_OF_ONE_RUN = (
    *("seed", "task_seed", "epochs", "num_workers", "transport", "ray_address", "step_timeout", "reset_timeout"),
    *("device", "torch_threads", "snapshot_mode", "snapshot_gap", "memory_limit"),
)
# Packages that decide what is measured, rather than how fast or to which last bit.
_PACKAGES = ("metaroll", "gymnasium", "mujoco", "metaworld")
_HINT = "comparing them would say nothing; evaluate all in the same way, or leave some out"


@dataclass(frozen=True)
class RunScores:
    """One run and its newest evaluation.

    Attributes:
        folder: Where it lies.
        source: The folder that was given: of the run, or one that holds it.
        config: Its configuration.
        metric: ``return_after`` or ``return_mean``.
        env_steps: Environment steps of training at the evaluation.
        mean: The score.
        per_task: Scores in its held-out tasks; empty for the environment as it is.
        curve: Steps and score of all evaluations, shape ``(E, 2)``.
        unfinished: How far the run is, if it has not finished; empty otherwise.
    """

    folder: Path
    source: Path
    config: Mapping[str, Any]
    metric: str
    env_steps: int
    mean: float
    per_task: tuple[float, ...]
    curve: np.ndarray
    unfinished: str = ""

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config["run"]["seed"]

    @property
    def tasks_key(self) -> tuple[Any, ...]:
        """Equal for runs with the same held-out tasks."""
        run, algorithm = self.config["run"], self.config["algorithm"]
        drawn = run["seed"] if run.get("task_seed") is None else run["task_seed"]
        numbers = [algorithm.get(name) for name in ("num_train_tasks", "num_test_tasks")]
        return (self.config["env"], drawn, *numbers, len(self.per_task))


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in their seeds only, in the order of these.

    Attributes:
        label: Algorithm, environment, and what differs from the other groups.
        runs: The runs.
    """

    label: str
    runs: tuple[RunScores, ...]

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs."""
        return [run.seed for run in self.runs]


def group_runs(arguments: Sequence[str]) -> list[RunGroup]:
    """Groups of the runs that ``arguments`` name: folders of runs, or folders that hold some."""
    from metaroll.cli.runs.run_reports import find_runs

    sources: dict[Path, Path] = {}
    for argument in arguments:
        path = Path(argument).expanduser()
        found = find_runs(path) if path.is_dir() and not (path / run_folder.CONFIG_FILE).is_file() else []
        for folder in found or [run_folder.find_run(path)]:
            sources.setdefault(folder, path)
    groups: dict[str, list[RunScores]] = {}
    for folder, source in sources.items():
        run = _read(folder, source)
        groups.setdefault(json.dumps(_options(run), sort_keys=True), []).append(run)
    options = [json.loads(key) for key in groups]
    labels = [_label(own, options) for own in options]
    result = []
    for label, runs in zip(labels, groups.values(), strict=True):
        runs.sort(key=lambda run: run.seed)
        for run, other in itertools.pairwise(runs):
            if run.seed == other.seed:
                raise UsageError(_same_seed(label, run, other))
        result.append(RunGroup(label, tuple(runs)))
    return result


def unfinished_runs(arguments: Sequence[str], groups: Sequence[RunGroup]) -> list[str]:
    """The runs of ``groups`` that have not finished, and those that belong to them and have not begun."""
    from metaroll.cli.runs.seed_group import read_group

    asked_for = [group for argument in arguments if (group := read_group(Path(argument).expanduser())) is not None]
    begun = [run.unfinished for group in groups for run in group.runs if run.unfinished]
    return begun + [f"{folder} (not begun)" for group in asked_for for folder in group.missing]


def notes_on_merged(groups: Sequence[RunGroup]) -> list[str]:
    """What to say of groups whose runs come from several folders that were given, which may be meant as several."""
    notes = []
    for group in groups:
        sources = list(dict.fromkeys(str(run.source) for run in group.runs))
        task_seeds = list(dict.fromkeys(str(_task_seed(run)) for run in group.runs))
        holds_runs = any(run.source != run.folder for run in group.runs)
        if len(sources) == 1 or not (holds_runs or len(task_seeds) > 1):
            continue
        note = f"{_listed(sources)} differ in their seeds only, and are one group of {len(group.runs)} runs"
        if len(task_seeds) > 1:
            note += f"; their held-out tasks differ (--task-seed {_listed(task_seeds)})"
        notes.append(note)
    return notes


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _task_seed(run: RunScores) -> int | str:
    given = run.config["run"].get("task_seed")
    return "not given" if given is None else given


def _same_seed(label: str, run: RunScores, other: RunScores) -> str:
    message = f"two runs of {label} have the same seed ({run.folder}, {other.folder})"
    seeds = [_task_seed(run), _task_seed(other)]
    if seeds[0] == seeds[1]:
        return f"{message}: they are one run, leave one out"
    return (
        f"{message}, and differ in their held-out tasks only (--task-seed {seeds[0]} and {seeds[1]}): train them on "
        "tasks of the same --task-seed, or leave one out"
    )


def refuse_different(groups: Sequence[RunGroup]) -> None:
    """``UsageError`` if two runs were measured in different ways: environment, horizon, protocol, versions."""
    runs = [run for group in groups for run in group.runs]
    first = _provenance(runs[0])
    for run in runs[1:]:
        other = _provenance(run)
        for name in first.keys() & other.keys():
            if first[name] != other[name]:
                raise UsageError(
                    f"{name} is {first[name]!r} in {runs[0].folder} and {other[name]!r} in {run.folder}: {_HINT}"
                )


def scores_of(*groups: RunGroup) -> list[np.ndarray]:
    """Scores ``(runs, tasks)`` of each group if all runs have the same held-out tasks, else ``(runs, 1)``."""
    runs = [run for group in groups for run in group.runs]
    shared = len({run.tasks_key for run in runs}) == 1 and len(runs[0].per_task) > 0
    return [np.array([run.per_task if shared else (run.mean,) for run in group.runs]) for group in groups]


def _read(folder: Path, source: Path) -> RunScores:
    from metaroll.cli.runs.run_reports import evaluation_at_the_end, read_run

    config, known = run_folder.read_config(folder), read_run(folder)
    if known.problem:
        raise UsageError(f"{folder} is damaged: {known.problem}; or leave it out")
    algorithm = get_algorithm(config["algo"])
    metric = algorithm.metric
    try:
        rows = read_metrics(folder, phase=algorithm.phase, metric=metric)
    except FileNotFoundError:
        rows = []
    whole = [row for row in rows if row["task"] is None]
    curve = [(row["env_steps"], row["value"]) for row in whole]
    tasks = [row["value"] for row in rows if row["task"] is not None and row["iteration"] == whole[-1]["iteration"]]
    on_the_way = whole[-1]["iteration"] + 1 if whole else 0
    last = evaluation_at_the_end(folder, known.epochs_done, on_the_way, metric)
    if last is not None:
        curve.append((last["env_steps"], last[metric]))
        tasks = _scores_of_tasks(last, metric)
    if not curve:
        every = config["algorithm"].get("evaluate_every")
        raise UsageError(
            f"{folder} holds no evaluation yet: `metaroll resume {folder}` trains it to its end, where it is evaluated;"
            f" --evaluate-every N of `metaroll train` (here {every}) evaluates in between, too; or leave it out"
        )
    unfinished = ""
    if known.state not in ("finished", "stopped"):
        unfinished = f"{folder} ({known.state}, {known.epochs_done} of {known.epochs_total} epochs)"
    steps, value = curve[-1]
    return RunScores(
        folder, source, config, metric, steps, value, tuple(tasks), np.array(curve, dtype=float), unfinished
    )


def _scores_of_tasks(evaluation: Mapping[str, Any], metric: str) -> list[float]:
    """The score of each held-out task; none in the environment as it is."""
    if metric == "return_after":
        return [row[metric] for row in evaluation["per_task"]]
    returns = evaluation["returns"]
    return [float(np.mean(row)) for row in returns] if len(returns) > 1 else []


def _options(run: RunScores) -> dict[str, Any]:
    """All options but those of a single run."""
    flat = {**run_config.flat_values(run.config), "algo": run.config["algo"], "env": run.config["env"]}
    return {name: value for name, value in flat.items() if name not in _OF_ONE_RUN}


def _label(own: Mapping[str, Any], everything: Sequence[Mapping[str, Any]]) -> str:
    alike = [other for other in everything if other["algo"] == own["algo"] and other["env"] == own["env"]]
    names = [name for name in own if any(other.get(name) != own[name] for other in alike)]
    return " ".join([own["algo"], own["env"], *(f"{name}={own[name]}" for name in names)])


def _provenance(run: RunScores) -> dict[str, Any]:
    config = run.config
    known: dict[str, Any] = {"environment": config["env"], "max_path_length": config["algorithm"]["max_path_length"]}
    known["num_test_tasks"] = len(run.per_task)
    known |= config["evaluation"]
    versions = config.get("versions") or {}
    known |= {f"version of {name}": versions[name] for name in _PACKAGES if name in versions}
    summary = run.folder / "summary.json"
    found = json.loads(summary.read_text(encoding="utf-8")).get("provenance") if summary.is_file() else None
    return {**known, **(found or {})}
