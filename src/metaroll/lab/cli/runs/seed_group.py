"""One run for each of several seeds, one after the other or in processes, and how to resume such a group."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from metaroll.data.doors.json_files import read_json_dict
from metaroll.data.folders.kinds import GROUP
from metaroll.data.folders.taking import refuse_foreign, take
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import (
    MetarollError,
    RunExistsError,
    SnapshotError,
    UsageError,
    blame_input,
    flag_of,
    option_name,
)
from metaroll.lab.cli.runs.group_display import GroupDisplay
from metaroll.lab.display.consoles import escape
from metaroll.option_names import GIVEN
from metaroll.processes.child import Child, run_children
from metaroll.training.session.machine import processors
from metaroll.training.session.run_config import SeedGroup, changed, command_after, file_layer, read_group
from metaroll.training.store import run_folder
from metaroll.training.store.run_folder import GROUP_FILE
from metaroll.training.store.snapshots import latest

__all__ = ["SeedsFailedError", "refuse_existing_group", "resume_group", "train_group"]

_PROGRESS = ("epoch ", "about ")
"""Prefixes of lines that report the progress of a run."""

_ENDS = {"stop_at", "stop_metric", "stop_mean_of", "budget"}
"""Options that can end a run before its last epoch."""


class SeedsFailedError(MetarollError, RuntimeError):
    """Some of several runs ended with an error; the others are complete."""


def refuse_existing_group(group: SeedGroup) -> None:
    """Raise an error if a run of the group has begun or its folder holds another group."""
    known = read_group(group.folder)
    if known is not None and len(known.missing) < len(known.seeds):
        raise RunExistsError(
            f"a group of runs already exists in {group.folder} (seeds {', '.join(map(str, known.seeds))}): "
            f"`{known.resume_command}` continues those that have begun and starts the others; or choose another folder "
            "with --out"
        )
    refuse_foreign(group.folder, GROUP)
    for folder in group.folders:
        run_folder.refuse_existing(folder)


def train_group(group: SeedGroup, env: EnvSource, console: Console) -> list[dict[str, Any]]:
    """Train all runs of a new group in its environment, and return their summaries."""
    with take(group.folder, GROUP, lambda: refuse_existing_group(group)):
        group.write()
        return _carry_out(group, env, group.folders, {}, console)


def resume_group(group: SeedGroup, changes: Mapping[str, Any], console: Console) -> list[dict[str, Any]]:
    """Continue the runs of a group that have begun, start those that have not, and return the summaries of all.

    Args:
        group: The group.
        changes: Options of the runs that are to change.
        console: Where to print progress.
    """
    epochs = {"epochs": changes["epochs"]} if "epochs" in changes else {}
    group = dataclasses.replace(group, config={**group.config, "run": {**group.config["run"], **epochs}})
    with take(group.folder, GROUP):
        return _resume_all(group, changes, console)


def _resume_all(group: SeedGroup, changes: Mapping[str, Any], console: Console) -> list[dict[str, Any]]:
    from metaroll.lab.runs.run_reports import read_run
    from metaroll.training.algorithms.origins import warn_of_changes

    done = max((latest(folder) or 0 for folder in group.folders), default=0)
    if changes.get("epochs", done) < done:
        raise UsageError(
            f"{option_name('epochs')} must be at least {done}, which a run of the group has finished, got "
            f"{changes['epochs']}"
        )
    if group.missing:
        warn_of_changes(group.config, group.folder)
    group.write()
    todo: list[Path] = []
    for folder in group.folders:
        report = read_run(folder)
        done = report.state == "finished" and (folder / "summary.json").is_file()
        done = done and not (report.ended_early and changes.keys() & _ENDS)  # such a run may continue now
        if done and (report.epochs_total or 0) >= group.config["run"]["epochs"]:
            console.print(f"{escape(str(folder))} is finished", soft_wrap=True)
        else:
            todo.append(folder)
    return _carry_out(group, EnvSource.of(group.config["env"]), todo, changes, console)


def _carry_out(
    group: SeedGroup, env: EnvSource, todo: Sequence[Path], changes: Mapping[str, Any], console: Console
) -> list[dict[str, Any]]:
    try:
        if group.jobs == 1:
            for number, folder in enumerate(todo, 1):
                console.print(f"run {number} of {len(todo)}: {escape(str(folder))}", soft_wrap=True)
                _train_here(group, env, folder, changes, console)
        elif todo:
            _train_in_processes(group, todo, changes, console)
    except SnapshotError:
        raise  # its message already says what to do
    except BaseException as error:
        # The handler of errors and Ctrl-C prints how to continue the whole group, rather than one of its runs.
        if isinstance(error, KeyboardInterrupt) or len(group.missing) < len(group.seeds):
            error.resume_command = command_after(error, group.folder)  # type: ignore[attr-defined]
        raise
    return [read_json_dict(folder / run_folder.SUMMARY_FILE, SnapshotError) for folder in group.folders]


def _resumed(group: SeedGroup, folder: Path, changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configuration of a run that has begun, and the changes to it."""
    config = run_folder.read_config(folder)
    epochs = max(config["run"]["epochs"], group.config["run"]["epochs"])
    return config, {"epochs": epochs, **changes}


def _train_here(group: SeedGroup, env: EnvSource, folder: Path, changes: Mapping[str, Any], console: Console) -> None:
    from metaroll.lab.display.view import ConsoleView
    from metaroll.training.session.experiments import resolve
    from metaroll.training.session.sessions import continue_run, start
    from metaroll.training.store.trust import check_built

    if folder in group.missing:
        changes = {**changes, "seed": group.seeds[group.folders.index(folder)]}
        with blame_input():
            layers = [file_layer(group.folder / GROUP_FILE, group.config["algo"], env.name), (GIVEN, changes)]
            config = resolve(group.config["algo"], env, layers)
            check_built(config, changed(group.config, changes), group.folder)
        start(config, folder, ConsoleView(console), env=env)
    else:
        config, changes = _resumed(group, folder, changes)
        continue_run(changed(config, changes), folder, ConsoleView(console), trust=group.trust)


def _begin(group: SeedGroup, folder: Path, changes: Mapping[str, Any]) -> Child:
    """Start a process that trains or resumes one run of the group."""
    begins = folder in group.missing
    if begins:
        seed = str(group.seeds[group.folders.index(folder)])
        algo, env, file = group.config["algo"], group.config["env"], str(group.folder / GROUP_FILE)
        arguments = ["train", algo, env, "--config", file, "--seed", seed, "--out", str(folder)]
        if group.config["run"]["torch_threads"] is None:
            arguments += ["--torch-threads", str(max(1, processors().usable // group.jobs))]
    else:
        arguments, changes = ["resume", str(folder)], _resumed(group, folder, changes)[1]
        arguments += ["--trust"] if group.trust else []
    # When a run is resumed, an engine without a cluster drops the address itself.
    kept = {name: value for name, value in changes.items() if begins or (name, value) != ("ray_address", None)}
    nothing = "None" if begins else "none"
    pairs = [(flag_of(name), nothing if value is None else str(value)) for name, value in kept.items()]
    folder.mkdir(parents=True, exist_ok=True)
    arguments += [text for pair in pairs for text in pair]
    return Child("metaroll.lab.cli.main:main", arguments, folder / run_folder.LOG_FILE, _PROGRESS)


def _train_in_processes(group: SeedGroup, todo: Sequence[Path], changes: Mapping[str, Any], console: Console) -> None:
    from metaroll.lab.runs.run_reports import read_run

    folders = {folder.name: folder for folder in todo}

    def ended(name: str, child: Child) -> None:
        folder, failed = folders[name], bool(child.returncode)
        newest = None if failed else read_run(folder).newest_return  # as `metaroll list` shows it
        display.end(name, str(folder), child.last_words() if failed else None, newest)

    with GroupDisplay(console, list(folders)) as display:
        failed = run_children(
            {name: functools.partial(_begin, group, folder, changes) for name, folder in folders.items()},
            group.jobs,
            begun=lambda name: display.begin(name, str(folders[name])),
            reported=display.read,
            ended=ended,
        )
    if failed:
        names = ", ".join(str(folders[name]) for name in failed)
        raise SeedsFailedError(f"{len(failed)} of {len(group.seeds)} runs failed: {names}")
