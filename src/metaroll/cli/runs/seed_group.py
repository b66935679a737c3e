"""One run for each of several seeds, one after the other or in processes, and how such a group goes on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from metaroll.cli.runs.child import Child
from metaroll.cli.runs.group_display import GroupDisplay
from metaroll.data.doors.json_files import read_json_dict
from metaroll.errors import MetarollError, RunExistsError, SnapshotError
from metaroll.training.display.consoles import escape
from metaroll.training.session.machine import processors
from metaroll.training.session.run_config import SeedGroup, changed, read_group
from metaroll.training.store import run_folder
from metaroll.training.store.run_folder import GROUP_FILE

__all__ = ["SeedsFailedError", "refuse_existing_group", "resume_group", "train_group"]

_POLL_SECONDS = 0.2
_FLAGS = {"transport": "--engine"}
"""Flags of options of a run that may change when it goes on, where they are not their names."""


_ENDS = {"stop_at", "stop_metric", "stop_mean_of", "budget"}
"""Options that end a run before its last epoch."""


class SeedsFailedError(MetarollError, RuntimeError):
    """Some of several runs ended with an error; the others are complete."""


def refuse_existing_group(group: SeedGroup) -> None:
    """Error if a run of the group has begun, or another group is in its folder."""
    known = read_group(group.folder)
    if known is not None and len(known.missing) < len(known.seeds):
        raise RunExistsError(
            f"a group of runs exists already in {group.folder} (seeds {', '.join(map(str, known.seeds))}): "
            f"`{known.resume_command}` continues those that have begun and starts the others; or choose another folder "
            "with --out"
        )
    for folder in group.folders:
        run_folder.refuse_existing(folder)


def train_group(group: SeedGroup, console: Console) -> list[dict[str, Any]]:
    """Train all runs of a new group, and return their summaries."""
    group.write()
    return _carry_out(group, group.folders, {}, console)


def resume_group(group: SeedGroup, changes: Mapping[str, Any], console: Console) -> list[dict[str, Any]]:
    """Continue the runs of a group that have begun, start those that have not, and return the summaries of all.

    Args:
        group: The group.
        changes: Options of the runs that are to change.
        console: Where to say what is done.
    """
    from metaroll.training.session.run_reports import read_run

    epochs = {"epochs": changes["epochs"]} if "epochs" in changes else {}
    group = dataclasses.replace(group, config={**group.config, "run": {**group.config["run"], **epochs}})
    group.write()
    todo: list[Path] = []
    for folder in group.folders:
        known = read_run(folder)
        done = known.state == "finished" and (folder / "summary.json").is_file()
        done = done and not (known.ended_early and changes.keys() & _ENDS)  # which may go on now
        if done and (known.epochs_total or 0) >= group.config["run"]["epochs"]:
            console.print(f"{escape(str(folder))} is finished", soft_wrap=True)
        else:
            todo.append(folder)
    return _carry_out(group, todo, changes, console)


def _carry_out(
    group: SeedGroup, todo: Sequence[Path], changes: Mapping[str, Any], console: Console
) -> list[dict[str, Any]]:
    try:
        if group.jobs == 1:
            for number, folder in enumerate(todo, 1):
                console.print(f"run {number} of {len(todo)}: {escape(str(folder))}", soft_wrap=True)
                _train_here(group, folder, changes, console)
        else:
            _train_in_processes(group, todo, changes, console)
    except SnapshotError:
        raise  # it says itself what can be done
    except BaseException as error:
        # Tell who handles errors and Ctrl-C how the whole group can be continued, rather than one of its runs.
        if isinstance(error, KeyboardInterrupt) or len(group.missing) < len(group.seeds):
            error.resume_command = group.resume_command  # type: ignore[attr-defined]
        raise
    return [read_json_dict(folder / run_folder.SUMMARY_FILE, SnapshotError) for folder in group.folders]


def _resumed(group: SeedGroup, folder: Path, changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configuration of a run that has begun, and what is to change in it."""
    config = run_folder.read_config(folder)
    epochs = max(config["run"]["epochs"], group.config["run"]["epochs"])
    return config, {"epochs": epochs, **changes}


def _train_here(group: SeedGroup, folder: Path, changes: Mapping[str, Any], console: Console) -> None:
    from metaroll.training.session.sessions import continue_run, start

    if folder in group.missing:
        go_on, config, changes = start, group.config, {**changes, "seed": group.seeds[group.folders.index(folder)]}
    else:
        go_on, (config, changes) = continue_run, _resumed(group, folder, changes)
    go_on(changed(config, changes), folder, console)


def _begin(group: SeedGroup, folder: Path, changes: Mapping[str, Any]) -> Child:
    """A process that does the same."""
    begins = folder in group.missing
    if begins:
        seed = str(group.seeds[group.folders.index(folder)])
        algo, env, file = group.config["algo"], group.config["env"], str(group.folder / GROUP_FILE)
        arguments = ["train", algo, env, "--config", file, "--seed", seed, "--out", str(folder)]
        if group.config["run"]["torch_threads"] is None:
            arguments += ["--torch-threads", str(max(1, processors().usable // group.jobs))]
    else:
        arguments, changes = ["resume", str(folder)], _resumed(group, folder, changes)[1]
    # Where a run goes on, an engine without a cluster leaves out the address by itself.
    kept = {name: value for name, value in changes.items() if begins or (name, value) != ("ray_address", None)}
    nothing = "None" if begins else "none"
    pairs = [
        (_FLAGS.get(name, "--" + name.replace("_", "-")), nothing if value is None else str(value))
        for name, value in kept.items()
    ]
    return Child([*arguments, *(text for pair in pairs for text in pair)], folder, folder / run_folder.LOG_FILE)


def _train_in_processes(group: SeedGroup, todo: Sequence[Path], changes: Mapping[str, Any], console: Console) -> None:
    waiting, running, failed = list(todo), [], []
    with GroupDisplay(console, [folder.name for folder in todo]) as display:
        try:
            while waiting or running:
                while waiting and len(running) < group.jobs:
                    running.append(_begin(group, waiting.pop(0), changes))
                    display.begin(running[-1].folder.name, str(running[-1].folder))
                time.sleep(_POLL_SECONDS)
                ended = [child for child in running if child.returncode is not None]
                for child in running:
                    display.read(child.folder.name, child.progress())
                for child in ended:
                    running.remove(child)
                    child.close()
                    display.end(child.folder.name, str(child.folder), child.last_words() if child.returncode else None)
                    failed += [str(child.folder)] if child.returncode else []
        finally:
            for child in running:
                child.terminate()
            for child in running:
                child.close()
    if failed:
        raise SeedsFailedError(f"{len(failed)} of {len(group.seeds)} runs failed: {', '.join(failed)}")
