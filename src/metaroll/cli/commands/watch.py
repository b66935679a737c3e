"""The command ``watch``: a video of the agent in held-out tasks, before and after adaptation side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from metaroll.training.store import run_folder

if TYPE_CHECKING:
    from metaroll.training.figures.video import Panel

__all__ = ["film_run", "watch"]

_Video = Annotated[str | None, unset("FILE", "watch.mp4 in the folder of the run, or watch.gif without imageio-ffmpeg")]
_Newest = Annotated[int | None, unset("INT", "that of the newest snapshot")]
_AsMade = Annotated[float | None, unset("FLOAT", "as fast as the environment says")]


@dataclass(frozen=True, kw_only=True)
class _WatchArguments:
    out: _Video = None
    """Video to write; its ending says as what: .mp4 or .gif."""
    first_task: int = 0
    """The first held-out task to show (counted from 0)."""
    num_tasks: int = 1
    """Number of held-out tasks, one below the other."""
    fps: _AsMade = None
    """Steps of the environment per second."""
    from_epoch: _Newest = None
    """Show the agent as it was after this epoch."""
    output: Output = field(default_factory=Output)


def watch(arguments: Sequence[str]) -> None:
    """Film the newest snapshot of a run in held-out tasks."""
    usage = "metaroll watch RUN [options]"
    names, rest = take_positionals(arguments, 1, flags_of(_WatchArguments, valued_only=True))
    if not names and not asks_for_help(rest):
        raise UsageError(f"{usage}: the folder of the run is missing")
    about = (
        f"{usage}\n\nWrites a video of held-out tasks: before and after adaptation side by side, or the policy of an "
        "algorithm that does not adapt. No screen is needed. Nothing of the run itself is changed."
    )
    given = parse_options(_WatchArguments, rest, "metaroll watch", about)
    from metaroll.cli.display.summary import print_json
    from metaroll.training.figures.video import KINDS, default_kind, write_video

    with blame_input():
        folder = run_folder.find_run(names[0])
        out = str(folder / f"watch.{default_kind()}") if given.out is None else given.out
        path = file_to_write("--out", out, [f".{kind}" for kind in KINDS])
        if given.num_tasks < 1:
            raise UsageError(f"--num-tasks must be at least 1, got {given.num_tasks}")
    console = given.output.console()
    with console.status("acting, and drawing it", spinner="line"), blame_input():
        rows, epoch = film_run(folder, given.num_tasks, given.first_task, given.from_epoch)
        write_video(path, rows, given.fps)
    shown = [{"title": panel.title, "return": float(panel.rewards.sum())} for row in rows for panel in row]
    for panel in shown:
        console.print(f"{escape(panel['title'])}: return {panel['return']:.1f}", soft_wrap=True)
    console.print(f"after {epoch} epochs; video {escape(str(path))}", soft_wrap=True)
    if given.output.json:
        print_json({"file": str(path), "epoch": epoch, "panels": shown})


def film_run(
    folder: Path, num_tasks: int, first_task: int = 0, from_epoch: int | None = None
) -> tuple[list[list[Panel]], int]:
    """What the agent of a snapshot does in held-out tasks, and the number of epochs of the snapshot."""
    from metaroll.cli.probes import without_screen
    from metaroll.cli.runs.sessions import restored_run
    from metaroll.training.figures.video import record_video, tasks_to_film

    config = run_folder.read_config(folder)
    with restored_run(config, folder, from_epoch) as (checked, experiment, epoch):
        evaluator: Any = experiment.evaluator
        with contextlib.closing(evaluator), without_screen():
            count, what = tasks_to_film(experiment.algo, evaluator)
            if not 0 <= first_task < count:
                raise UsageError(
                    f"--first-task must be from 0 to {count - 1}, since there are {count} {what}, got {first_task}"
                )
            if first_task + num_tasks > count:
                most = f"{count - first_task}" + (f" with --first-task {first_task}" if first_task else "")
                raise UsageError(f"--num-tasks must be at most {most}, since there are {count} {what}, got {num_tasks}")
            tasks = range(first_task, first_task + num_tasks)
            return record_video(experiment.algo, evaluator, checked["env"], tasks), epoch
