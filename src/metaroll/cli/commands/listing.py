"""The command ``list``: algorithms, environments, presets, policies, and runs with how far they are."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

import metaroll
from metaroll.cli.display.consoles import escape
from metaroll.cli.options import Output, UsageError, flags_of, parse_options, take_positionals, unset
from metaroll.errors import unknown_name
from metaroll.training.algorithms.registry import ALGORITHM_NAMES, get_algorithm, preset, preset_names
from metaroll.types import Policy

__all__ = ["list_command"]

_STATES = {"running": "cyan", "finished": "green", "interrupted": "yellow", "stopped": "", "damaged": "bold red"}
_WIDE = 110
"""Columns of a terminal that has room for what an environment is beside its name."""
_TYPED = ("name", "algorithm", "environment")
_Runs = Annotated[str | None, unset("DIR", "runs")]


@dataclass(frozen=True, kw_only=True)
class _ListArguments:
    runs: _Runs = None
    """Folder of the runs; those in its folders are found, too."""
    output: Output = field(default_factory=Output)


def list_command(arguments: Sequence[str]) -> None:
    """List what there is."""
    usage = f"metaroll list [{'|'.join(_SECTIONS)}]"
    names, rest = take_positionals(arguments, 1, flags_of(_ListArguments, valued_only=True))
    if names and names[0] not in _SECTIONS:
        raise unknown_name("topic", names[0], _SECTIONS)
    given = parse_options(_ListArguments, rest, "metaroll list", f"{usage}\n\nWithout a name everything is listed.")
    folder = _folder(given.runs)
    console = given.output.console()
    listed: dict[str, Any] = {}
    for name in names or _SECTIONS:
        title, entries_of, show = _SECTIONS[name]
        with console.status(f"looking for {title}", spinner="line"):
            listed[name] = entries_of(folder)
        if not given.output.json:
            console.print(f"[bold]{title}[/]")
            show(console, listed[name])
    if given.output.json:
        from metaroll.cli.display.summary import print_json  # only now: it loads torch, for which --help need not wait

        print_json(listed)


def _folder(text: str | None) -> Path:
    folder = Path("runs" if text is None else text).expanduser()
    if text is not None and not (text and folder.is_dir()):
        raise UsageError(f"--runs must name an existing folder, got {text!r}")
    return folder


# ---------------------------------------------------------------------------------------------------------- entries
def _algorithms(folder: Path) -> list[dict[str, Any]]:
    entries = []
    for name in ALGORITHM_NAMES:
        documented = get_algorithm(name).learner
        entries.append({"name": name, "class": documented.__name__, "summary": _first_line(documented)})
    return entries


def _environments(folder: Path) -> list[dict[str, Any]]:
    from metaroll.envs.lookup.registry import family_names, get_family

    entries = []
    for name in family_names():
        family = get_family(name)
        entries.append(
            {
                "name": name,
                "summary": family.description,
                **_dimensions(family.env_constructor),
                "num_train_tasks": family.num_train_tasks,
                "num_test_tasks": family.num_test_tasks,
                "horizon": family.horizon,
                "presets": [algo for algo in ALGORITHM_NAMES if name in preset_names(algo)],
            }
        )
    return entries


def _dimensions(constructor: Callable[[], Any]) -> dict[str, Any]:
    """Sizes of observations and actions; why they are not known where the environment cannot be made."""
    from gymnasium.spaces import flatdim

    from metaroll.types import EnvSpec

    try:
        environment = constructor()
        try:
            spec = EnvSpec.from_env(environment)
        finally:
            environment.close()
        return {"obs_dim": flatdim(spec.observation_space), "act_dim": flatdim(spec.action_space), "problem": ""}
    except Exception as error:  # most of all: a package is missing
        return {"obs_dim": None, "act_dim": None, "problem": " ".join(str(error).split()) or type(error).__name__}


def _presets(folder: Path) -> list[dict[str, Any]]:
    return [
        {"algo": algo, "env": env, "values": preset(algo, env)}
        for algo in ALGORITHM_NAMES
        for env in preset_names(algo)
    ]


def _policies(folder: Path) -> list[dict[str, Any]]:
    public = [getattr(metaroll, name) for name in metaroll.__all__ if name != "__version__"]
    classes = [item for item in public if inspect.isclass(item) and item.__module__.startswith("metaroll.policies.")]
    return [{"name": c.__name__, "summary": _first_line(c)} for c in classes if issubclass(c, Policy)]


def _runs(folder: Path) -> list[dict[str, Any]]:
    from metaroll.cli.runs.run_reports import find_runs, read_run

    found = find_runs(folder) if folder.is_dir() else []
    return [{**dataclasses.asdict(report), "folder": str(report.folder)} for report in map(read_run, found)]


def _first_line(documented: Any) -> str:
    """First sentence of a docstring, without its markup."""
    paragraph = " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())
    return paragraph.replace("``", "")


# ------------------------------------------------------------------------------------------------------------ tables
def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    """A table; names that are to be typed stay whole in narrow terminals, too."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        justify = "right" if column in right else "left"
        style = "cyan" if position == 0 else ""
        table.add_column(column, justify=justify, style=style, overflow="fold", no_wrap=column in _TYPED)
    return table


def _show_algorithms(console: Console, entries: Sequence[dict[str, Any]]) -> None:
    table = _table("name", "class", "what it is")
    for entry in entries:
        table.add_row(entry["name"], entry["class"], escape(entry["summary"]))
    console.print(table)


def _show_environments(console: Console, entries: Sequence[dict[str, Any]]) -> None:
    wide = console.width >= _WIDE
    columns = ["name", *(["what it is"] if wide else []), "obs", "act", "steps", "tasks", "presets"]
    table = _table(*columns, right=("obs", "act", "steps"))
    if not wide:  # what it is stands below the name, which stays whole
        table.columns[0].no_wrap = False
        table.columns[0].min_width = max(len(entry["name"]) for entry in entries)
    for entry in entries:
        sizes = ["?" if entry[name] is None else str(entry[name]) for name in ("obs_dim", "act_dim")]
        tasks = f"{entry['num_train_tasks']} + {entry['num_test_tasks']}"
        summary = escape(entry["summary"]) + (f"\n[yellow]{escape(entry['problem'])}[/]" if entry["problem"] else "")
        presets = ", ".join(entry["presets"]) or "-"
        head = [entry["name"], summary] if wide else [f"{entry['name']}\n[default]{summary}[/]"]
        table.add_row(*head, *sizes, str(entry["horizon"]), tasks, presets)
    console.print(table)
    console.print(
        "steps: of an episode. tasks: for training + held out, drawn once from the seed, all different; "
        "--num-train-tasks and --num-test-tasks ask for other numbers. Beside these: any Gymnasium id for "
        "algorithms that do not adapt; your own as module:attribute (docs/own_environment.md); Meta-World's "
        "benchmarks from Python (docs/metaworld.md)\n",
        style="dim",
    )


def _show_presets(console: Console, entries: Sequence[dict[str, Any]]) -> None:
    table = _table("algorithm", "environment", "epochs", "sets", "try it", right=("epochs", "sets"))
    for entry in entries:
        epochs = str(entry["values"].get("epochs", "-"))
        command = f"metaroll train {entry['algo']} {entry['env']}"
        table.add_row(entry["algo"], entry["env"], epochs, f"{len(entry['values'])} values", command)
    console.print(table)


def _show_policies(console: Console, entries: Sequence[dict[str, Any]]) -> None:
    table = _table("class", "what it is")
    for entry in entries:
        table.add_row(entry["name"], escape(entry["summary"]))
    console.print(table)


def _show_runs(console: Console, entries: Sequence[dict[str, Any]]) -> None:
    if not entries:
        console.print("\nnone here yet; start one with metaroll demo\n")
        return
    table = _table("folder", "algorithm", "environment", "epochs", "state", "return", right=("epochs", "return"))
    for entry in entries:
        total, value = entry["epochs_total"], entry["newest_return"]
        table.add_row(
            escape(entry["folder"]),
            escape(entry["algo"] or "?"),
            escape(entry["env"] or "-"),
            f"{entry['epochs_done']}/{'?' if total is None else total}",
            Text(entry["state"] + " early" * entry["ended_early"], style=_STATES[entry["state"]]),
            "-" if value is None else f"{value:.1f}",
        )
    console.print(table)
    for entry in entries:
        if entry["problem"]:
            where, what = escape(entry["folder"]), escape(entry["problem"])
            console.print(f"[bold red]damaged[/] {where}: {what}", soft_wrap=True)
    note = "return: mean in the newest evaluation, of algorithms that adapt on held-out tasks after adaptation"
    console.print(f"{note}\n", style="dim")


_SECTIONS: dict[str, tuple[str, Callable[[Path], list[dict[str, Any]]], Callable[..., None]]] = {
    "algos": ("algorithms", _algorithms, _show_algorithms),
    "envs": ("environments (families of tasks)", _environments, _show_environments),
    "presets": ("presets", _presets, _show_presets),
    "policies": ("policies", _policies, _show_policies),
    "runs": ("runs", _runs, _show_runs),
}
