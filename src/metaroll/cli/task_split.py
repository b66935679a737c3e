"""How the training tasks and the held-out tasks of a run lie to one another: told at its start, kept in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metaroll.tasks.leak_guard import SplitReport, check_split
from metaroll.training.files import write_json
from metaroll.training.run_store import TASK_SPLIT_FILE

__all__ = ["describe_split", "split_of", "write_split"]


def split_of(algo: Any, evaluator: Any) -> SplitReport | None:
    """The report of the leak guard; ``None`` for algorithms that do not adapt.

    Held-out tasks that occur in training are an error, unless the evaluator was told that they may.
    """
    train_tasks = getattr(algo, "train_tasks", None)
    if not train_tasks:
        return None
    return check_split(train_tasks, evaluator.draw(), overlap="accept" if evaluator.allow_overlap else "refuse")


def describe_split(report: SplitReport) -> str:
    """The report in words; where training tasks are tested on, what that means."""
    if not report.overlaps:
        return str(report)
    numbers = f"{report.num_train} training and {report.num_test} test tasks, {len(report.overlaps)} in both"
    return f"{numbers}, as the family was published: returns do not tell what happens in new tasks"


def write_split(folder: Path, report: SplitReport | None) -> None:
    """Write the report into the folder of the run."""
    if report is not None:
        write_json(folder / TASK_SPLIT_FILE, report.to_dict())
