"""What is told of the tasks of a run at its start: how those held out lie to the others, and whether they differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from metaroll.cli.display.consoles import escape
from metaroll.diagnostics.task_differences import tasks_do_not_differ
from metaroll.envs.lookup.entry_points import is_entry_point
from metaroll.envs.lookup.registry import get_family, has_family
from metaroll.tasks.leak_guard import SplitReport, check_split
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.store.files import write_json
from metaroll.training.store.run_store import TASK_SPLIT_FILE

__all__ = ["describe_split", "split_of", "warn_of_equal_tasks", "write_split"]


def split_of(config: Mapping[str, Any], algo: Any, evaluator: Any) -> SplitReport | None:
    """The report of the leak guard; ``None`` for algorithms that do not adapt.

    Held-out tasks that occur in training are an error, unless the evaluator was told that they may.
    """
    if not get_algorithm(config["algo"]).adapts:
        return None
    return check_split(algo.train_tasks, evaluator.draw(), overlap="accept" if evaluator.allow_overlap else "refuse")


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


def warn_of_equal_tasks(config: Mapping[str, Any], console: Console) -> None:
    """Say so if the tasks of a user's own family are all the same in a few steps; ours are known to differ."""
    name = config["env"]
    if not is_entry_point(name) or not has_family(name):
        return
    finding = tasks_do_not_differ(get_family(name), config["run"]["seed"])
    if finding is not None:
        text = f"[yellow]the tasks of {escape(name)} do not differ:[/] {escape(finding)}"
        console.print(f"{text}; `metaroll check {escape(name)}` looks closer\n", soft_wrap=True)
