"""Groups of runs that differ only in their seeds, their scores, and what must be equal for a comparison."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.data.doors.json_files import parse_json
from metaroll.data.doors.plain_files import damage
from metaroll.errors import SnapshotError, UsageError, command_text, for_reader, option_name
from metaroll.lab.figures.charts import training_curve
from metaroll.lab.runs.report_facts import named_protocol, newest_evaluation
from metaroll.lab.runs.run_reports import find_runs, read_evaluation, read_run, read_summary
from metaroll.own_code import is_given
from metaroll.training.session.run_config import read_group
from metaroll.training.store import run_folder
from metaroll.training.store.metrics_log import read_metrics
from metaroll.training.store.run_values import ENV_PLUGIN, NETWORK, PLUGIN, adapts, flat_values, kept_origins

__all__ = ["RunGroup", "RunScores", "compared_groups", "scores_of"]

# Options that concern a single run, or the machine it ran on.
_OF_ONE_RUN = (
    *("seed", "task_seed", "epochs", "num_workers", "transport", "ray_address", "step_timeout", "reset_timeout"),
    *("device", "torch_threads", "snapshot_mode", "snapshot_gap", "memory_limit"),
    *("keep_last", "keep_best", "stop_at", "stop_metric", "stop_mean_of", "budget"),
    "size",  # its values are compared themselves
)
# Packages that change what is measured, not only its speed or last bits.
_PACKAGES = ("metaroll", "gymnasium", "mujoco", "metaworld")
_HINT = "they are not comparable; {} all of them in the same way, or leave some out"
_PHASE = {"return_after": "MetaTest", "return_mean": "Evaluation"}
_WHAT = {"return_after": "return after adaptation", "return_mean": "return of a policy that does not adapt"}


@dataclass(frozen=True)
class RunScores:
    """One run and its newest evaluation.

    Attributes:
        folder: Folder of the run.
        source: The folder that was given: that of the run, or one that contains it.
        config: Its configuration; section ``evaluation`` says how the newest evaluation was made.
        metric: ``return_after`` or ``return_mean``.
        env_steps: Environment steps of training at the evaluation.
        mean: The score.
        per_task: Scores in its held-out tasks; empty for the nominal environment.
        curve: Steps and score of all evaluations, shape ``(E, 2)``.
        trained: Steps and return of training in all epochs, shape ``(E, 2)``; none: ``(0, 2)``.
        unfinished: How far the run is, if it has not finished; empty otherwise.
        provenance: How the newest evaluation was made, as far as known.
        protocol: Its arguments as they were used, except the seed; empty for an evaluation during training.
    """

    folder: Path
    source: Path
    config: Mapping[str, Any]
    metric: str
    env_steps: int
    mean: float
    per_task: tuple[float, ...]
    curve: np.ndarray
    trained: np.ndarray
    unfinished: str
    provenance: Mapping[str, Any]
    protocol: Mapping[str, Any]

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config["run"]["seed"]

    @property
    def task_seed(self) -> int | str:
        """Seed of the tasks, if given separately."""
        seed = self.config["run"].get("task_seed")
        return "not given" if seed is None else seed

    @property
    def options(self) -> dict[str, Any]:
        """All options of training except those of a single run, and where the algorithm and the network come from."""
        # Evaluations need no place here: runs that were evaluated in different ways are refused.
        trained = {**self.config, "evaluation": {}}
        flat = {**flat_values(trained), "algo": self.config["algo"], "env": self.config["env"]}
        origins = {name: text for name, text in kept_origins(self.config).items() if name != ENV_PLUGIN}
        return {name: value for name, value in flat.items() if name not in _OF_ONE_RUN} | origins

    @property
    def tasks_key(self) -> tuple[Any, ...]:
        """A key that is equal for runs with the same held-out tasks."""
        run, algorithm = self.config["run"], self.config["algorithm"]
        drawn = run["seed"] if run.get("task_seed") is None else run["task_seed"]
        numbers = [algorithm.get(name) for name in ("num_train_tasks", "num_test_tasks")]
        return (self.config["env"], drawn, *numbers, len(self.per_task))


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only in their seeds, sorted by seed.

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


def compared_groups(arguments: Sequence[str], curves: bool = False) -> tuple[list[RunGroup], list[str], list[str]]:
    """Groups of runs, the runs that are not complete, and notes on the groups.

    Args:
        arguments: Folders of runs, or folders that contain runs.
        curves: Whether learning curves are compared, which only training measures, instead of the newest evaluations.

    Raises:
        UsageError: Two runs were measured in different ways, are the same one, or one has no evaluation.
    """
    sources: dict[Path, Path] = {}
    given_by: dict[Path, Path] = {}
    unfinished: list[str] = []
    for argument in arguments:
        path = Path(argument).expanduser()
        folders = find_runs(path) if path.is_dir() and not (path / run_folder.CONFIG_FILE).is_file() else []
        for folder in folders or [run_folder.find_run(path)]:
            resolved = folder.resolve()
            if resolved in given_by:
                both = "" if path == given_by[resolved] else f", by {given_by[resolved]} and {path}"
                raise UsageError(f"{folder} is given twice{both}: give each run once")
            sources[folder] = given_by[resolved] = path
        if (group_file := read_group(path)) is not None:
            unfinished += [f"{folder} (not begun)" for folder in group_file.missing]
    runs = [_read(folder, source, curves) for folder, source in sources.items()]
    _refuse_different(runs, _HINT.format("train" if curves else "evaluate"))
    groups = _groups_of(runs)
    begun = [run.unfinished for group in groups for run in group.runs if run.unfinished]
    return groups, begun + unfinished, _notes_on_merged(groups)


def _groups_of(runs: Sequence[RunScores]) -> list[RunGroup]:
    groups: dict[str, list[RunScores]] = {}
    for run, options in zip(runs, _with_one_name([run.options for run in runs]), strict=True):
        groups.setdefault(json.dumps(options, sort_keys=True), []).append(run)
    options = [parse_json(key) for key in groups]
    result = []
    for own, members in zip(options, groups.values(), strict=True):
        alike = [other for other in options if other["algo"] == own["algo"] and other["env"] == own["env"]]
        names = [name for name in own if any(other.get(name) != own[name] for other in alike)]
        label = " ".join([own["algo"], own["env"], *(f"{name}={own[name]}" for name in names)])
        members.sort(key=lambda run: run.seed)
        for run, other in itertools.pairwise(members):
            if run.seed == other.seed:
                raise UsageError(_same_seed(label, run, other))
        result.append(RunGroup(label, tuple(members)))
    return result


def _with_one_name(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give objects that a script creates for each seed the same name in all runs, if they were recorded as equal."""
    named = [dict(options) for options in runs]
    for entry, name in ((PLUGIN, "algo"), (NETWORK, "policy")):
        alike: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for options in named:
            if is_given(str(options.get(name))) and options.get(entry):
                alike.setdefault((re.sub(r"_\d+$", "", options[name]), options[entry]), []).append(options)
        for members in alike.values():
            shortest = min(
                (options[name] for options in members), key=lambda name_of_run: (len(name_of_run), name_of_run)
            )
            for options in members:
                options[name] = shortest
    return named


def _same_seed(label: str, run: RunScores, other: RunScores) -> str:
    message = f"two runs of {label} have the same seed ({run.folder}, {other.folder})"
    if run.task_seed == other.task_seed:
        return f"{message}: they are one run, leave one out"
    name = option_name("task_seed")
    return (
        f"{message} and differ only in their held-out tasks ({name} {run.task_seed} and {other.task_seed}): train "
        f"them with the same {name}, or leave one out"
    )


def _notes_on_merged(groups: Sequence[RunGroup]) -> list[str]:
    """Notes on groups whose runs come from several given folders, which may be meant as several groups."""
    notes = []
    for group in groups:
        sources = list(dict.fromkeys(str(run.source) for run in group.runs))
        task_seeds = list(dict.fromkeys(str(run.task_seed) for run in group.runs))
        holds_runs = any(run.source != run.folder for run in group.runs)
        if len(sources) == 1 or not (holds_runs or len(task_seeds) > 1):
            continue
        note = f"{_listed(sources)} differ only in their seeds and form one group of {len(group.runs)} runs"
        if len(task_seeds) > 1:
            note += f"; their held-out tasks differ ({option_name('task_seed')} {_listed(task_seeds)})"
        notes.append(note)
    return notes


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _refuse_different(runs: Sequence[RunScores], hint: str) -> None:
    """``UsageError`` if two runs were measured in different ways: environment, horizon, protocol, versions.

    The message names the most important difference, in the order of ``RunScores.provenance``, and counts the others.
    """
    first = runs[0]
    for run in runs[1:]:
        differing = [name for name, value in first.provenance.items() if run.provenance.get(name, value) != value]
        if first.protocol and first.protocol == run.protocol:  # made in the same way, whatever training did
            settings = {option_name(name) for name in first.config["evaluation"]} - {option_name("return_reward_key")}
            differing = [name for name in differing if name not in settings]
        if differing:
            name, *more_names = differing
            here, there = first.provenance[name], run.provenance[name]
            more = f" (and {len(more_names)} more: {', '.join(more_names)})" if more_names else ""
            if name == "environment" and any("@" in str(value_here) for value_here in (here, there)):
                hint = (
                    "each was measured on its own tasks, which are not comparable; run both in one environment, as in "
                    "docs/inference.md (on_the_robot)"
                )
            raise UsageError(f"{name} is {here!r} in {first.folder} and {there!r} in {run.folder}{more}: {hint}")


def scores_of(*groups: RunGroup, paired: bool = False) -> list[np.ndarray]:
    """Scores of each group: ``(runs, tasks)`` if all runs have the same held-out tasks, else ``(runs, 1)``.

    With ``paired`` only the two runs of each pair need the same tasks.
    """
    keys = [[run.tasks_key for run in group.runs] for group in groups]
    same = all(own == keys[0] for own in keys) if paired else len({key for own in keys for key in own}) == 1
    shared = same and len(groups[0].runs[0].per_task) > 0
    return [np.array([run.per_task if shared else (run.mean,) for run in group.runs]) for group in groups]


def _read(folder: Path, source: Path, curves: bool) -> RunScores:
    with damage(folder, SnapshotError, "restore it from a copy, or leave it out"):
        return _scores(folder, source, curves)


def _scores(folder: Path, source: Path, curves: bool) -> RunScores:
    config, report, summary = run_folder.read_config(folder), read_run(folder), read_summary(folder)
    if report.problem:
        raise UsageError(f"{folder} is damaged: {report.problem}; or leave it out")
    metric = "return_after" if adapts(config) else "return_mean"
    evaluation = {} if curves else read_evaluation(folder)
    newest, curve, tasks, trained = _evaluations(folder, metric, summary, evaluation, report.epochs_done)
    if not curve:
        raise _no_evaluation(folder, config, curves)
    unfinished = ""
    if report.state not in ("finished", "stopped"):
        unfinished = f"{folder} ({report.state}, {report.epochs_done} of {report.epochs_total} epochs)"
    limit = config["algorithm"]["max_steps"]
    protocol, trained_protocol = _protocol(newest, limit), _trained_protocol(newest, summary, limit)
    rewards = {"return_reward_key": newest["reward_key"]} if "reward_key" in newest else {}
    config["evaluation"] = _settings(config["evaluation"], protocol, trained_protocol) | rewards
    provenance = _provenance(config, metric, newest, summary, len(tasks))
    numbers = (*curve[-1], tuple(tasks), np.array(curve, dtype=float), training_curve(trained))
    return RunScores(folder, source, config, metric, *numbers, unfinished, provenance, protocol)


def _evaluations(
    folder: Path, metric: str, summary: Mapping[str, Any], evaluation: Mapping[str, Any], epochs_done: int
) -> tuple[Mapping[str, Any], list[tuple[int, float]], list[float], list[dict[str, Any]]]:
    """What is known of the evaluations of a run.

    Returns:
        The newest one if it is stored, otherwise empty; steps and score of all; scores of the newest in its tasks;
        numbers of training.

    Raises:
        UsageError: The newest one was stored by a version that did not say how it was made.
    """
    try:
        rows, trained = read_metrics(folder, phase=_PHASE[metric], metric=metric), read_metrics(folder, phase="train")
    except FileNotFoundError:
        rows = trained = []
    whole = [row for row in rows if row["task"] is None]
    curve = [(row["env_steps"], row["value"]) for row in whole]
    tasks = [row["value"] for row in rows if row["task"] is not None and row["iteration"] == whole[-1]["iteration"]]
    logged = whole[-1]["iteration"] + 1 if whole else 0
    epochs, newest = newest_evaluation(summary, evaluation, logged, epochs_done)
    if newest and newest == evaluation and "protocol" not in newest:
        again = for_reader(f"evaluate(out={str(folder)!r})", f"`{command_text('evaluate', folder)}`")
        raise UsageError(f"the evaluation in {folder} does not say how it was made: {again} makes a new one")
    if not isinstance(newest.get(metric), int | float):
        return {}, curve, tasks, trained
    steps = max((row["env_steps"] for row in (*rows, *trained) if row["iteration"] < epochs), default=0)
    curve = curve[:-1] if logged == epochs else curve
    curve.append((newest.get("env_steps", steps), newest[metric]))
    if "per_task" in newest:
        tasks = [row[metric] for row in newest["per_task"]]
    else:  # no tasks in the nominal environment
        returns = newest.get("returns", ())
        tasks = [float(np.mean(row)) for row in returns] if len(returns) > 1 else []
    return newest, curve, tasks, trained


def _no_evaluation(folder: Path, config: Mapping[str, Any], curves: bool) -> UsageError:
    every = config["algorithm"].get("evaluate_every")
    evaluate_text, resume_text, option = (
        for_reader(f"evaluate(out={str(folder)!r})", f"`{command_text('evaluate', folder)}`"),
        for_reader("learn()", f"`{command_text('resume', folder)}`"),
        for_reader("evaluate_every=N", "--evaluate-every N"),
    )
    now = "" if curves else f"{evaluate_text} evaluates it now; "
    return UsageError(
        f"{folder} has no evaluation yet: {now}{resume_text} trains it to its end, where it is evaluated; {option} "
        f"(now {every}) also evaluates in between; or leave it out"
    )


def _provenance(
    config: Mapping[str, Any], metric: str, newest: Mapping[str, Any], summary: Mapping[str, Any], num_tasks: int
) -> dict[str, Any]:
    """How the newest evaluation was made, as far as known, by the names of options."""
    versions = newest.get("versions") or config.get("versions") or {}
    return {
        "environment": config["env"],
        "plug-in of the environment": kept_origins(config).get(ENV_PLUGIN, ""),
        "what is measured": _WHAT[metric],
        option_name("max_steps"): config["algorithm"]["max_steps"],
        option_name("num_test_tasks"): num_tasks,
        **{option_name(name): value for name, value in config["evaluation"].items()},
        **{f"version of {name}": versions[name] for name in _PACKAGES if name in versions},
        **((newest or summary).get("provenance") or {}),
    }


def _protocol(evaluation: Mapping[str, Any], max_steps: int) -> dict[str, Any]:
    """Arguments of a stored evaluation as they were used, by the names of settings, except its seed.

    Those of earlier versions do not name the limit of episodes, which was nearly always that of training.
    """
    known = {name: value for name, value in named_protocol(evaluation).items() if name != "seed"}
    return known and {"max_steps": max_steps, **known}


def _trained_protocol(newest: Mapping[str, Any], summary: Mapping[str, Any], max_steps: int) -> dict[str, Any]:
    """``_protocol`` of the evaluations of training; empty if it is unknown."""
    return _protocol({"protocol": newest.get("training_protocol")}, max_steps) or _protocol(summary, max_steps)


def _settings(
    trained: Mapping[str, Any], protocol: Mapping[str, Any], trained_protocol: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings of the newest evaluation: those of training, and what it was given instead.

    Settings that leave something to the algorithm stay as they are, unless the protocol differs from that of training.

    Args:
        trained: Settings of the evaluations of training.
        protocol: ``_protocol`` of the newest evaluation, if it is stored; otherwise empty.
        trained_protocol: ``_protocol`` of the evaluations of training; empty if it is unknown.
    """

    def changed(name: str) -> bool:
        if name not in trained or name == "repetitions":  # the final evaluation of the demo has more of them
            return True
        left_to_algorithm = trained[name] is None and not trained_protocol
        return not left_to_algorithm and trained_protocol.get(name) != protocol[name]

    return {**trained, **{name: value for name, value in protocol.items() if changed(name)}}
