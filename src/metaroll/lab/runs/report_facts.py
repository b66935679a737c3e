"""Reads a run folder for its report, without damaged parts; never writes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metaroll.checks import check_path
from metaroll.config import options_of
from metaroll.configs import MetaEvaluationConfig
from metaroll.data.doors.yaml_files import read_yaml
from metaroll.errors import counted
from metaroll.training.store.files import number_of, read_json
from metaroll.training.store.metrics_log import FILE_NAME, read_metrics
from metaroll.training.store.run_folder import CONFIG_FILE, EVALUATION_FILE, SUMMARY_FILE, TASK_SPLIT_FILE
from metaroll.training.store.snapshots import latest

__all__ = ["STANDS_FOR_EVALUATION", "RunFacts", "named_protocol", "newest_evaluation", "read_facts"]

STANDS_FOR_EVALUATION = ("return_after", "return_mean")
"""Metrics that stand for an evaluation: of an algorithm that adapts, and of others."""


@dataclass(frozen=True)
class RunFacts:
    """The facts about a run that its report shows.

    Attributes:
        name: Name of its folder.
        metrics: Lines of ``metrics.jsonl``.
        phase: Phase of evaluations in the metrics; ``None`` if there are none.
        evaluation: Result of ``newest_evaluation``; empty if training has evaluated later, or nothing is stored.
        summary: ``summary.json``; empty without it.
        config: ``config.yaml``; empty without it.
        split: How training tasks and held-out tasks are separated.
        robustness: Robustness maps, as ``RobustnessMap.to_dict`` has them.
        problems: Parts that could not be read, with the reasons.
    """

    name: str
    metrics: list[dict[str, Any]]
    phase: str | None
    evaluation: dict[str, Any]
    summary: dict[str, Any]
    config: dict[str, Any]
    split: dict[str, Any]
    robustness: list[dict[str, Any]]
    problems: list[str] = field(default_factory=list)

    @property
    def adapts(self) -> bool:
        """Whether the algorithm adapts to its tasks, as far as its evaluations show."""
        if self.evaluation:
            return "return_after" in self.evaluation
        return any(row["metric"] == "return_after" for row in self.metrics)

    @property
    def numbers(self) -> dict[str, Any]:
        """The newest evaluation: what is stored of it, or else the pooled metrics that training logged.

        Never both. Training logs other episodes than those of a stored evaluation, so a logged interval may not even
        contain a stored mean.
        """
        return self.evaluation or {row["metric"]: row["value"] for row in self._logged(per_task=False)}

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """A row of numbers for each task of the same evaluation as ``numbers``; empty without any."""
        if self.evaluation:
            return [dict(row) for row in self.evaluation.get("per_task") or []]
        tasks: dict[str, dict[str, Any]] = {}
        for row in self._logged(per_task=True):
            tasks.setdefault(str(row["task"]), {"name": row["task"]})[row["metric"]] = row["value"]
        return list(tasks.values())

    def _logged(self, per_task: bool) -> list[dict[str, Any]]:
        rows = [row for row in self.metrics if row["phase"] == self.phase]
        newest = [row for row in rows if row["iteration"] == rows[-1]["iteration"]]
        return [row for row in newest if (row["task"] is not None) == per_task]


def read_facts(folder: str | Path) -> RunFacts:
    """Read the run in ``folder``; damaged parts are left out and listed in ``problems``.

    Raises:
        FileNotFoundError: The folder has no files of a run.
    """
    folder, problems = check_path("run_dir", folder), []

    def read_or_empty(path: Path, read: Callable[[Path], Any], kind: type) -> Any:
        if not path.is_file():
            return kind()
        try:
            content = read(path)
            if not isinstance(content, kind):
                raise ValueError(f"it must hold a {kind.__name__}, got {type(content).__name__}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            problems.append(f"{path.name} is left out: {' '.join(str(error).split())}")
            return kind()
        return content

    if not any((folder / name).is_file() for name in (FILE_NAME, CONFIG_FILE, SUMMARY_FILE, EVALUATION_FILE)):
        raise FileNotFoundError(f"{folder} holds no run: there is no {FILE_NAME}, no {CONFIG_FILE}, no summary.json")
    metrics = read_or_empty(folder / FILE_NAME, read_metrics, list)
    summary = read_or_empty(folder / SUMMARY_FILE, read_json, dict)
    config = read_or_empty(folder / CONFIG_FILE, read_yaml, dict)
    evaluation = read_or_empty(folder / EVALUATION_FILE, read_json, dict)
    evaluated = [row for row in metrics if row["phase"] != "train"]  # MAML also logs the return after adaptation there
    rows = [row for row in evaluated if row["metric"] in STANDS_FOR_EVALUATION and row["task"] is None]
    phases = [row["phase"] for row in rows]
    logged = rows[-1]["iteration"] + 1 if rows else 0
    done = metrics[-1]["iteration"] + 1 if metrics else None
    stored, newest = newest_evaluation(summary, evaluation, logged, done)
    problems += _missing(folder, stored if done is None else done, config)
    left_out = []
    if stored >= 0 and not newest:
        left_out.append(("The stored", stored, f"training has evaluated after {logged}"))
    for name, count in ((SUMMARY_FILE, summary.get("epochs")), (EVALUATION_FILE, evaluation.get("epoch"))):
        number = number_of(count)
        if done is not None and math.isfinite(number) and number > done:
            finished = f"training has continued from an earlier snapshot, and has finished {counted(done, 'epoch')}"
            left_out.append((f"{name}: the stored", int(number), finished))
    for which, number, why in left_out:
        cure = "" if newest else " `metaroll evaluate` makes a new one."
        problems.append(f"{which} evaluation after {counted(number, 'epoch')} is left out: {why}.{cure}")
    if done is not None and number_of(summary.get("epochs")) > done:
        summary = {}  # of the training that was left
    maps = [read_or_empty(path, read_json, dict) for path in sorted(folder.glob("robustness-*.json"))]
    return RunFacts(
        name=folder.resolve().name,
        metrics=metrics,
        phase=phases[-1] if phases else None,
        evaluation=newest,
        summary=summary,
        config=config,
        split=read_or_empty(folder / TASK_SPLIT_FILE, read_json, dict),
        robustness=[robustness_map for robustness_map in maps if robustness_map.get("grid")],
        problems=problems,
    )


def _missing(folder: Path, epochs: int, config: Mapping[str, Any]) -> list[str]:
    """What a run has no more, but must have had after ``epochs`` epochs, or after those of its newest snapshot."""
    newest, texts = latest(folder), []
    if max(epochs, newest or 0) > 0 and not os.path.lexists(folder / FILE_NAME):
        texts.append(f"{FILE_NAME} is missing: there are no numbers of training; restore it from a copy")
    run = config.get("run")
    mode = run.get("snapshot_mode", "none") if isinstance(run, Mapping) else "none"  # scripts need not keep any
    if newest is None and epochs > 0 and mode != "none":  # other modes write the first one before training
        texts.append(
            "There is no snapshot: the run can neither continue nor be watched or evaluated again; restore the folder "
            "snapshots from a copy"
        )
    return texts


def named_protocol(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a stored evaluation as they were used; files keep their names, here they are those of options."""
    names = {option.was: option.name for option in options_of(MetaEvaluationConfig) if option.was}
    protocol: Mapping[str, Any] = evaluation.get("protocol") or {}
    return {names.get(name, name): value for name, value in protocol.items()}


def newest_evaluation(
    summary: Mapping[str, Any], evaluation: Mapping[str, Any], logged: int = 0, done: int | None = None
) -> tuple[int, dict[str, Any]]:
    """The newest evaluation of a run, if it is stored: in reports, lists and comparisons.

    Args:
        summary: Content of ``summary.json``, the final evaluation of training; empty without it.
        evaluation: Content of ``evaluation.json``, by ``metaroll evaluate``; empty without it. It is preferred if both
            are equally new.
        logged: Finished epochs at the newest evaluation in the metrics of training; 0 without one.
        done: Finished epochs of the run; a stored evaluation after more is outdated, since training has continued from
            an earlier snapshot. ``None`` if they are unknown.

    Returns:
        The finished epochs at the newest stored evaluation (-1 without one) and its content, empty if training has
        evaluated later.
    """
    epochs, newest = -1, {}
    for count, content in ((summary.get("epochs"), summary), (evaluation.get("epoch"), evaluation)):
        number = number_of(count)
        if math.isfinite(number) and epochs <= number and (done is None or number <= done):
            epochs, newest = int(number), dict(content)
    return epochs, newest if epochs >= logged else {}
