"""What a run folder holds for its report: read only, and as much as can be read where something is damaged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metaroll.data.doors.yaml_files import read_yaml
from metaroll.training.store.files import number_of, read_json
from metaroll.training.store.metrics_log import FILE_NAME, read_metrics
from metaroll.training.store.run_folder import CONFIG_FILE, EVALUATION_FILE, SUMMARY_FILE, TASK_SPLIT_FILE

__all__ = ["STANDS_FOR_EVALUATION", "RunFacts", "newest_evaluation", "read_facts"]

STANDS_FOR_EVALUATION = ("return_after", "return_mean")
"""Metrics that stand for an evaluation: of an algorithm that adapts, and of others."""


@dataclass(frozen=True)
class RunFacts:
    """What is known about a run.

    Attributes:
        name: Name of its folder.
        metrics: Lines of ``metrics.jsonl``.
        phase: Phase of the metrics that evaluations have; ``None`` without any.
        evaluation: What ``newest_evaluation`` finds; empty where training has evaluated later, or nothing is stored.
        summary: ``summary.json``; empty without it.
        config: ``config.yaml``; empty without it.
        split: How training tasks and held-out tasks lie to one another.
        robustness: Robustness maps, as ``RobustnessMap.to_dict`` has them.
        problems: What could not be read, and why.
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

    def newest(self, per_task: bool = False) -> list[dict[str, Any]]:
        """Metrics of the newest evaluation, pooled or per task."""
        rows = [row for row in self.metrics if row["phase"] == self.phase and (row["task"] is not None) == per_task]
        return [row for row in rows if row["iteration"] == rows[-1]["iteration"]]


def read_facts(folder: str | Path) -> RunFacts:
    """Read the run in ``folder``; what is damaged is named in ``problems``, and left out.

    Raises:
        FileNotFoundError: There is nothing of a run.
    """
    folder, problems = Path(folder), []

    def tried(path: Path, read: Callable[[Path], Any], kind: type) -> Any:
        if not path.is_file():
            return kind()
        try:
            found = read(path)
            if not isinstance(found, kind):
                raise ValueError(f"it must hold a {kind.__name__}, got {type(found).__name__}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            problems.append(f"{path.name} is left out: {' '.join(str(error).split())}")
            return kind()
        return found

    if not any((folder / name).is_file() for name in (FILE_NAME, CONFIG_FILE, SUMMARY_FILE, EVALUATION_FILE)):
        raise FileNotFoundError(f"{folder} holds no run: there is no {FILE_NAME}, no {CONFIG_FILE}, no summary.json")
    metrics = tried(folder / FILE_NAME, read_metrics, list)
    summary = tried(folder / SUMMARY_FILE, read_json, dict)
    epochs, newest = newest_evaluation(summary, tried(folder / EVALUATION_FILE, read_json, dict))
    told = [row for row in metrics if row["phase"] != "train"]  # where MAML logs the return after adaptation, too
    rows = [row for row in told if row["metric"] in STANDS_FOR_EVALUATION and row["task"] is None]
    phases = [row["phase"] for row in rows]
    if epochs >= 0 and rows and rows[-1]["iteration"] + 1 > epochs:
        problems.append(
            f"The stored evaluation after {epochs} epochs is left out: training has evaluated after "
            f"{rows[-1]['iteration'] + 1}. `metaroll evaluate` makes a new one."
        )
        newest = {}
    maps = [tried(path, read_json, dict) for path in sorted(folder.glob("robustness-*.json"))]
    return RunFacts(
        name=folder.resolve().name,
        metrics=metrics,
        phase=phases[-1] if phases else None,
        evaluation=newest,
        summary=summary,
        config=tried(folder / CONFIG_FILE, read_yaml, dict),
        split=tried(folder / TASK_SPLIT_FILE, read_json, dict),
        robustness=[found for found in maps if found.get("grid")],
        problems=problems,
    )


def newest_evaluation(summary: Mapping[str, Any], evaluation: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Finished epochs at the newer of the final evaluation of training and one of ``metaroll evaluate``, and that.

    Args:
        summary: Content of ``summary.json``; empty without it.
        evaluation: Content of ``evaluation.json``; empty without it. It counts where both are as new.
    """
    counts = [number_of(summary.get("epochs")), number_of(evaluation.get("epoch"))]
    epochs = [int(count) if math.isfinite(count) else -1 for count in counts]
    return (epochs[1], dict(evaluation)) if epochs[1] >= epochs[0] else (epochs[0], dict(summary))
