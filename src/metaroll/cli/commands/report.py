"""The command ``report``: one page with everything about a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from metaroll.cli.display.consoles import escape
from metaroll.cli.options import (
    Output,
    UsageError,
    asks_for_help,
    blame_input,
    file_to_write,
    flags_of,
    parse_options,
    take_positionals,
    unset,
)
from metaroll.errors import MetarollError
from metaroll.training.store import run_folder

__all__ = ["report"]

_MOMENTS = 6
_Page = Annotated[str | None, unset("FILE", "report.html in the folder of the run")]


@dataclass(frozen=True, kw_only=True)
class _ReportArguments:
    out: _Page = None
    """Page to write."""
    num_tasks: int = 1
    """Number of held-out tasks in the pictures."""
    no_pictures: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only read what the run has left, and do not let the agent act."""
    output: Output = field(default_factory=Output)


def report(arguments: Sequence[str]) -> None:
    """Write the report of a run."""
    usage = "metaroll report RUN [options]"
    names, rest = take_positionals(arguments, 1, flags_of(_ReportArguments, valued_only=True))
    if not names and not asks_for_help(rest):
        raise UsageError(f"{usage}: the folder of the run is missing")
    about = (
        f"{usage}\n\nWrites one page (HTML) that needs no network and no file beside it: curves with intervals, each "
        "held-out task, pictures of the agent, configuration, provenance. Nothing of the run itself is changed."
    )
    given = parse_options(_ReportArguments, rest, "metaroll report", about)
    from metaroll.cli.display.summary import print_json
    from metaroll.training.report.report import FILE_NAME, write_report
    from metaroll.training.report.report_facts import read_facts

    with blame_input():
        folder = Path(names[0]).expanduser()
        if given.num_tasks < 1:
            raise UsageError(f"--num-tasks must be at least 1, got {given.num_tasks}")
        out = str(folder / FILE_NAME) if given.out is None else given.out
        try:
            read_facts(folder)
        except FileNotFoundError:
            run_folder.find_run(folder)  # names the runs nearby
            raise
        path = file_to_write("--out", out, (".html", ".htm"))
    console = given.output.console()
    with console.status("writing the report", spinner="line"), blame_input():
        pictures, notes = ([], []) if given.no_pictures else _pictures(folder, given.num_tasks)
        write_report(folder, path, head=_head(folder), pictures=pictures, notes=notes)
    for note in notes:
        console.print(f"[yellow]{escape(note)}[/]", soft_wrap=True)
    console.print(f"report {escape(str(path))}", soft_wrap=True)
    if given.output.json:
        print_json({"file": str(path), "pictures": len(pictures), "notes": notes})


def _pictures(folder: Path, num_tasks: int) -> tuple[list[Any], list[str]]:
    """Pictures of the agent, or why there are none: the page is written all the same."""
    if not (folder / run_folder.CONFIG_FILE).is_file():
        return [], []  # a run from Python: only its script can build it
    from metaroll.cli.commands.watch import film_run
    from metaroll.training.figures.video import moments

    try:
        rows, _ = film_run(folder, num_tasks)
        return moments(rows, _MOMENTS), []
    except (MetarollError, ValueError, TypeError, OSError, ImportError) as error:
        return [], [f"There are no pictures of the agent: {' '.join(str(error).split())}"]


def _head(folder: Path) -> dict[str, Any]:
    """What stands below the title."""
    from metaroll.cli.runs.run_reports import read_run

    known = read_run(folder)
    head: dict[str, Any] = {"run": folder.resolve().name}
    if known.seed is not None:
        head["seed"] = known.seed
    total = "" if known.epochs_total is None else f" of {known.epochs_total}"
    head["epoch"] = f"{known.epochs_done}{total} ({known.state})"
    if known.env_steps is not None:
        head["environment steps"] = f"{known.env_steps:,}"
    if known.problem:
        head["problem:"] = known.problem
    return head
