"""The commands ``watch`` and ``report``: a video of a run's agent in held-out tasks, and one page about the run."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from metaroll.errors import MetarollError, UsageError, blame_input, counted
from metaroll.lab.cli.options import Newest, Output, Switch, file_to_write, parse_command, unset
from metaroll.lab.display.consoles import escape
from metaroll.training.evaluation.numbers import short_number
from metaroll.training.store import run_folder

if TYPE_CHECKING:
    from metaroll.lab.figures.video import Panel
    from metaroll.lab.runs.run_reports import RunReport

__all__ = ["report", "watch"]

_MOMENTS = 6
_VIDEO = unset("FILE", "watch.mp4 in the folder of the run, or watch.gif without imageio-ffmpeg")
_MISSING = "the folder of the run is missing"


@dataclass(frozen=True, kw_only=True)
class _WatchArguments:
    out: Annotated[str | None, _VIDEO] = None
    """Video to write; the extension selects the format: .mp4 or .gif."""
    first_task: int = 0
    """Index of the first held-out task to show, from 0."""
    num_tasks: int = 1
    """Number of held-out tasks, stacked vertically."""
    fps: Annotated[float | None, unset("FLOAT", "the environment's own rate")] = None
    """Environment steps per second."""
    from_epoch: Newest = None
    """Show the agent from after this epoch."""
    trust: Switch = False
    """Import the run's environment module although this installation did not create the run: read the code first."""
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class _ReportArguments:
    out: Annotated[str | None, unset("FILE", "report.html in the folder of the run")] = None
    """Page to write."""
    num_tasks: int = 1
    """Number of held-out tasks in the pictures."""
    no_pictures: Switch = False
    """Only use the files of the run; do not run the agent."""
    trust: Switch = False
    """Import the run's environment module although this installation did not create the run: read the code first."""
    output: Output = field(default_factory=Output)


def watch(arguments: Sequence[str]) -> None:
    """Film the newest snapshot of a run in held-out tasks."""
    about = (
        "Records a video of held-out tasks: the same episode without and with adaptation side by side, or just the "
        "policy if the algorithm does not adapt. Needs no display. The run itself is not changed."
    )
    names, args = parse_command(_WatchArguments, arguments, "metaroll watch RUN [options]", about, _MISSING)
    from metaroll.lab.display.json_output import print_json
    from metaroll.lab.display.timing import after_epoch
    from metaroll.lab.figures.video import KINDS, default_kind, write_video
    from metaroll.training.session.experiments import require_at_least

    with blame_input():
        folder = run_folder.find_run(names[0])
        if args.out is None:
            run_folder.check_links(folder)
        path = file_to_write("--out", args.out, [f".{kind}" for kind in KINDS], folder / f"watch.{default_kind()}")
        require_at_least({"--num-tasks": args.num_tasks}, 1)
    console = args.output.console()
    with console.status("recording", spinner="line"), blame_input():
        rows, epoch = _film_run(folder, args.num_tasks, args.first_task, args.from_epoch, args.trust)
        write_video(path, rows, args.fps)
    panels = [
        {"task": panel.heading, "title": panel.title, "return": float(panel.rewards.sum())}
        for row in rows
        for panel in row
    ]
    for panel in panels:
        title = " | ".join(part for part in (panel["task"], panel["title"]) if part)
        console.print(f"{escape(title)}: return {short_number(panel['return'])}", soft_wrap=True)
    console.print(f"{after_epoch(epoch)}; video {escape(str(path))}", soft_wrap=True)
    if progress := _progress(folder):
        console.print(progress, soft_wrap=True)
    if args.output.json:
        print_json({"file": str(path), "epoch": epoch, "panels": panels})


def _progress(folder: Path) -> str:
    """How far a run is that trains now, estimated from the times of its epochs; empty for any other run."""
    from metaroll.lab.display.timing import RunTiming, duration
    from metaroll.lab.runs.run_reports import read_run
    from metaroll.training.store.metrics_log import read_metrics

    run = read_run(folder)
    if run.state != "running" or run.epochs_total is None:
        return ""
    rows = read_metrics(folder, phase="time", metric="epoch_seconds") if run.epochs_done else []
    seconds = [row["value"] for row in rows]
    left = RunTiming.of_epochs(seconds, run.epochs_total).run_left()
    times = "" if left is None else f", {duration(sum(seconds))} of training, {duration(left)} left"
    return f"the run is training: {run.epochs_done} of {counted(run.epochs_total, 'epoch')}{times}"


def report(arguments: Sequence[str]) -> None:
    """Write the report of a run."""
    about = (
        "Writes a self-contained HTML page that needs no network: curves with intervals, every held-out task, "
        "pictures of the agent, configuration, provenance. The run itself is not changed."
    )
    names, args = parse_command(_ReportArguments, arguments, "metaroll report RUN [options]", about, _MISSING)
    from metaroll.lab.display.json_output import print_json
    from metaroll.lab.report.report import ENDINGS, FILE_NAME, write_report
    from metaroll.lab.runs.report_facts import read_facts
    from metaroll.lab.runs.run_reports import read_run
    from metaroll.training.session.experiments import require_at_least

    with blame_input():
        folder = Path(names[0]).expanduser()
        require_at_least({"--num-tasks": args.num_tasks}, 1)
        try:
            problems = read_facts(folder).problems
        except FileNotFoundError:
            run_folder.find_run(folder)  # names the runs nearby
            raise
        if args.out is None:
            run_folder.check_links(folder)
        path = file_to_write("--out", args.out, ENDINGS, folder / FILE_NAME)
    console = args.output.console()
    with console.status("writing the report", spinner="line"), blame_input():
        run = read_run(folder)
        pictures, notes = ([], []) if args.no_pictures else _pictures(folder, args.num_tasks, args.trust)
        if run.problem and not any(run.problem in text for text in problems):
            notes = [run.problem, *notes]
        write_report(folder, path, head=_head(run), pictures=pictures, notes=notes)
    notes = [*problems, *notes]
    for note in notes:
        console.print(f"[yellow]{escape(note)}[/]", soft_wrap=True)
    console.print(f"report {escape(str(path))}", soft_wrap=True)
    if args.output.json:
        print_json({"file": str(path), "pictures": len(pictures), "notes": notes})


def _pictures(folder: Path, num_tasks: int, trust: bool) -> tuple[list[Any], list[str]]:
    """Pictures of the agent, or why there are none: the page is written in either case."""
    if not (folder / run_folder.CONFIG_FILE).is_file():
        return [], [f"There are no pictures of the agent: a run cannot be built again without {run_folder.CONFIG_FILE}"]
    from metaroll.lab.figures.video import moments

    try:
        return moments(_film_run(folder, num_tasks, trust=trust)[0], _MOMENTS), []
    except (MetarollError, ValueError, TypeError, OSError, ImportError) as error:
        return [], [f"There are no pictures of the agent: {' '.join(str(error).split())}"]


def _head(run: RunReport) -> dict[str, Any]:
    """The facts below the title."""
    total = "" if run.epochs_total is None else f" of {run.epochs_total}"
    head: dict[str, Any] = {
        "run": run.folder.resolve().name,
        "seed": run.seed,
        "epoch": f"{run.epochs_done}{total} ({run.state})",
        "environment steps": None if run.env_steps is None else f"{run.env_steps:,}",
    }
    return {name: value for name, value in head.items() if value is not None}


def _film_run(
    folder: Path, num_tasks: int, first_task: int = 0, from_epoch: str | None = None, trust: bool = False
) -> tuple[list[list[Panel]], int]:
    """Record the agent of a snapshot in held-out tasks; also the number of epochs of the snapshot."""
    from metaroll.lab.figures.probes import without_screen
    from metaroll.lab.figures.video import record_video, tasks_to_film
    from metaroll.training.session.sessions import restored_run

    config = run_folder.read_config(folder)
    with restored_run(config, folder, from_epoch, trust) as (_, experiment, epoch):
        evaluator: Any = experiment.evaluator
        with contextlib.closing(evaluator), without_screen():
            count, kind = tasks_to_film(experiment.algo, evaluator)
            if not 0 <= first_task < count:
                raise UsageError(
                    f"--first-task must be from 0 to {count - 1}, since there are {count} {kind}, got {first_task}"
                )
            if first_task + num_tasks > count:
                most = f"{count - first_task}" + (f" with --first-task {first_task}" if first_task else "")
                raise UsageError(f"--num-tasks must be at most {most}, since there are {count} {kind}, got {num_tasks}")
            tasks = range(first_task, first_task + num_tasks)
            return record_video(experiment.algo, evaluator, experiment.source, tasks), epoch
