"""The command ``list``: algorithms, environments, presets, policies, and runs with their progress."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from metaroll.envs.lookup.family_names import FAMILY_NAMES
from metaroll.errors import UsageError, command_text, unknown_name
from metaroll.lab.cli.options import Output, parse_command, unset
from metaroll.lab.display.consoles import escape, print_table, printable, unwrapped_width
from metaroll.own_code import ENVIRONMENTS, declared
from metaroll.training.algorithms.plugin_lookup import installed, refused
from metaroll.training.algorithms.registry import (
    ALGORITHM_NAMES,
    OWN_ENV,
    SIZES,
    algorithm_names,
    get_algorithm,
    preset,
    preset_names,
    publication,
    size_values,
)
from metaroll.training.evaluation.numbers import short_number

__all__ = ["list_command"]

_STATES = {"running": "cyan", "finished": "green", "interrupted": "yellow", "stopped": "", "damaged": "bold red"}
_WIDE = 110
"""Columns of a terminal with room for the description of an environment beside its name."""
_WHOLE = ("command", "name", "folder", "algorithm", "environment", "environments", "state", "sets", "tasks")
"""Columns that are not wrapped: users type the names in them, and a run or number stays on one line."""
_NUMBERS = ("obs", "act", "steps", "epochs", "sets", "return")

_ABOUT = "Without a topic: your runs, and an overview of everything else. With --json: everything."

Entries = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class _ListArguments:
    runs: Annotated[str | None, unset("DIR", "runs")] = None
    """Folder to search for runs, including its subfolders."""
    output: Output = field(default_factory=Output)


def list_command(arguments: Sequence[str]) -> None:
    """List algorithms, environments, presets, sizes, policies and runs."""
    usage = "metaroll list [" + "|".join(_SECTIONS) + "]"
    names, args = parse_command(_ListArguments, arguments, usage, _ABOUT, "")
    if names and names[0] not in _SECTIONS:
        raise unknown_name("topic", names[0], _SECTIONS)
    folder = Path("runs" if args.runs is None else args.runs).expanduser()
    if args.runs is not None and not (args.runs and folder.is_dir()):
        raise UsageError(f"--runs must name an existing folder, got {args.runs!r}")
    console = args.output.console()
    if not names and not args.output.json:
        _show_overview(console, folder)
        return
    listed: dict[str, Entries] = {}
    for name in names or _SECTIONS:
        title, entries_of, show = _SECTIONS[name]
        with console.status(f"searching for {title}", spinner="line"):
            listed[name] = entries_of(folder)
        if not args.output.json:
            console.print(f"[bold]{title}[/]")
            show(console, listed[name])
    if args.output.json:
        from metaroll.lab.display.json_output import print_json

        print_json(listed)


# ---------------------------------------------------------------------------------------------------------- entries
def _algorithms(folder: Path) -> Entries:
    classes = {name: get_algorithm(name).learner for name in ALGORITHM_NAMES}
    ours = [{"name": name, "class": c.__name__, "summary": _first_line(c)} for name, c in classes.items()]
    plugins = [{"name": one.name, "class": "", "summary": f"plug-in: {one.label}"} for one in installed().values()]
    return [*ours, *plugins, *({"name": name, "class": "", "summary": why} for name, why in refused())]


def _environments(folder: Path) -> Entries:
    from metaroll.envs.lookup import registry
    from metaroll.envs.lookup.registry import family_names, get_family

    entries: Entries = []
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
    unknown = dict.fromkeys(
        ("obs_dim", "act_dim", "num_train_tasks", "num_test_tasks", "horizon")
    )  # plug-ins are not loaded here
    plugins = [(one.name, f"plug-in: {one.label}") for one in registry.installed().values()]
    for name, summary in [*plugins, *registry.refused()]:
        entries.append({"name": name, "summary": summary, **unknown, "presets": [], "problem": ""})
    return entries


def _dimensions(constructor: Callable[[], Any]) -> dict[str, Any]:
    """Sizes of observations and actions, or why they are unknown if the environment cannot be made."""
    from gymnasium.spaces import flatdim

    from metaroll.envs.lookup.source import EnvSource

    try:
        spec = EnvSource.of(constructor).spec
        return {"obs_dim": flatdim(spec.observation_space), "act_dim": flatdim(spec.action_space), "problem": ""}
    except Exception as error:  # usually a missing package
        return {"obs_dim": None, "act_dim": None, "problem": " ".join(str(error).split()) or type(error).__name__}


def _presets(folder: Path) -> Entries:
    return [
        {"algo": algo, "env": env, "values": preset(algo, env)}
        for algo in ALGORITHM_NAMES
        for env in preset_names(algo)
    ]


def _sizes(folder: Path) -> Entries:
    entries: Entries = []
    for algo in ALGORITHM_NAMES:
        for size in SIZES[:-1]:
            values = size_values(algo, OWN_ENV, size)
            entries.append({"algo": algo, "size": size, "envs": "all", "values": {**preset(algo, OWN_ENV), **values}})
        published = preset_names(algo) if publication(algo) else []
        for env in published:
            entries.append({"algo": algo, "size": SIZES[-1], "envs": env, "values": preset(algo, env)})
    return entries


def _policies(folder: Path) -> Entries:
    from metaroll import policies
    from metaroll.types import Policy

    classes = [item for item in (getattr(policies, name) for name in policies.__all__) if inspect.isclass(item)]
    return [{"name": c.__name__, "summary": _first_line(c)} for c in classes if issubclass(c, Policy)]


def _runs(folder: Path) -> Entries:
    from metaroll.lab.runs.run_reports import find_runs, read_run

    folders = find_runs(folder) if folder.is_dir() else []
    return [{**dataclasses.asdict(report), "folder": str(report.folder)} for report in map(read_run, folders)]


def _first_line(documented: Any) -> str:
    """First sentence of a docstring, without its markup."""
    paragraph = " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())
    return paragraph.replace("``", "")


# ------------------------------------------------------------------------------------------------------------ tables
def _table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A table for ``print_table``."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for position, column in enumerate(columns):
        justify = "right" if column in _NUMBERS else "left"
        style = "" if position else "cyan"
        table.add_column(column, justify=justify, style=style, overflow="fold", no_wrap=column in _WHOLE)
    for row in rows:
        table.add_row(*(escape(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def _print_fitting(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table without the last columns that do not fit into the terminal."""
    count = len(columns)
    while (
        count > 1 and unwrapped_width(console, _table(columns[:count], (row[:count] for row in rows))) > console.width
    ):
        count -= 1
    print_table(console, _table(columns[:count], (row[:count] for row in rows)))


def _show_algorithms(console: Console, entries: Entries) -> None:
    print_table(
        console, _table(("name", "class", "description"), ([e["name"], e["class"], e["summary"]] for e in entries))
    )


def _show_environments(console: Console, entries: Entries) -> None:
    wide = console.width >= _WIDE
    rows = []
    for entry in entries:
        name, summary, presets = (
            Text(entry["name"]),
            Text(entry["summary"], style="default"),
            ", ".join(entry["presets"]),
        )
        sizes = ["?" if entry[size] is None else str(entry[size]) for size in ("obs_dim", "act_dim", "horizon")]
        tasks = "?" if entry["num_train_tasks"] is None else f"{entry['num_train_tasks']} + {entry['num_test_tasks']}"
        if wide:
            rows.append([name, summary, *sizes, tasks, presets or "-"])
        else:  # what is long goes below the name, which is not wrapped
            below = [summary, *[Text(f"presets: {presets}", style="dim default")] * bool(presets)]
            rows.append([Text("\n").join([name, *below]), *sizes, tasks])
    columns = ["name", *["description"] * wide, "obs", "act", "steps", "tasks", *["presets"] * wide]
    table = _table(columns, rows)
    if not wide:
        table.columns[0].no_wrap, table.collapse_padding = False, True
        names = max(len(entry["name"]) for entry in entries)
        table.columns[0].max_width = names
        table.columns[0].max_width = names + max(0, console.width - unwrapped_width(console, table))
    print_table(console, table)
    problems: dict[str, list[str]] = {}
    for entry in entries:
        problems.setdefault(entry["problem"], []).append(entry["name"])
    for problem, names in problems.items():
        if problem:
            console.print(f"[yellow]?[/] {', '.join(names)}: [yellow]{escape(problem)}[/]", soft_wrap=True)
    console.print(
        "steps: per episode. tasks: training + held out, all different, drawn once from the seed; change the numbers "
        "with --num-train-tasks and --num-test-tasks. Also available: any Gymnasium id for algorithms that do not "
        "adapt; your own environments as module:attribute (docs/own_environment.md); Meta-World benchmarks as "
        "metaworld:ML1-reach-v3, metaworld:ML10, metaworld:MT10 ... (docs/metaworld.md)\n",
        style="dim",
    )


def _show_presets(console: Console, entries: Entries) -> None:
    rows = []
    for algo, env, values in (entry.values() for entry in entries):
        rows.append([command_text("train", algo, env), str(values.get("epochs", "-")), f"{len(values)} values"])
    _print_fitting(console, ("command", "epochs", "sets"), rows)


def _show_sizes(console: Console, entries: Entries) -> None:
    rows = []
    for entry in entries:
        values = entry["values"]
        widths = " ".join(map(str, values["hidden_sizes"])) or "linear"
        tasks = str(values.get("num_train_tasks", "-"))
        rows.append([entry["algo"], entry["size"], entry["envs"], str(values["epochs"]), tasks, widths])
    _print_fitting(console, ("algorithm", "size", "environments", "epochs", "tasks", "networks"), rows)
    console.print(
        "Select a size with --size of metaroll train; its values are fixed and do not depend on timing. small: minutes "
        "on two cores. The default is small for your own environments and the preset for those that have one. "
        "`metaroll train ALGO ENV --size SIZE --help` shows all values\n",
        style="dim",
    )


def _show_policies(console: Console, entries: Entries) -> None:
    print_table(console, _table(("class", "description"), (list(entry.values()) for entry in entries)))


def _show_overview(console: Console, folder: Path) -> None:
    """The user's runs, and an overview of everything else."""
    console.print("[bold]runs[/]")
    with console.status("searching for runs", spinner="line"):
        runs = _runs(folder)
    _show_runs(console, runs)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("algorithms", ", ".join(algorithm_names()))
    table.add_row("families of tasks", ", ".join(FAMILY_NAMES))
    if declared(ENVIRONMENTS):  # else the registry of plug-ins is not imported
        from metaroll.envs.lookup import registry

        table.add_row("from plug-ins", ", ".join(registry.installed()))
    table.add_row("other environments", "any Gymnasium id; your own, as my_env:family; Meta-World (docs/metaworld.md)")
    tuned = {env for algo in ALGORITHM_NAMES for env in preset_names(algo)}
    counts = ", ".join(f"{algo} {len(preset_names(algo))}" for algo in ALGORITHM_NAMES if preset_names(algo))
    table.add_row("presets", f"{counts}; in {len(tuned)} environments (metaroll list presets)")
    table.add_row("sizes", ", ".join(SIZES) + " (--size of metaroll train)")
    console.print(table)
    console.print("\nmore: metaroll list " + "|".join(_SECTIONS) + "\n", style="dim", soft_wrap=True)


def _show_runs(console: Console, entries: Entries) -> None:
    if not entries:
        console.print("\nnone here yet; start one with metaroll demo, or list others: --runs FOLDER\n")
        return
    rows: list[tuple[str, str, str, str, Text, str]] = []
    for entry in entries:
        total, value, state = entry["epochs_total"], entry["newest_return"], entry["state"]
        epochs = f"{entry['epochs_done']}/{'?' if total is None else total}"
        state_text = Text(state + " early" * entry["ended_early"], style=_STATES[state])
        names = [entry["folder"], entry["algo"] or "?", entry["env"] or "-"]
        rows.append((*names, epochs, state_text, "-" if value is None else short_number(value)))
    table = _table(("folder", "algorithm", "environment", "epochs", "state", "return"), rows)
    if not console.is_terminal or unwrapped_width(console, table) <= console.width:
        print_table(console, table)  # in files and pipes a run stays on one line, which is easier to search
    else:  # two lines for each run, so that neither a folder nor a number is broken
        console.print()
        for folder, algo, env, epochs, state_text, value in rows:
            console.print(f"[cyan]{escape(folder)}[/]", soft_wrap=True)
            text = Text.assemble(printable(f"{algo} {env}, epochs {epochs}, "), state_text, f", return {value}")
            console.print(Padding(text, (0, 0, 0, 2)))
        console.print()
    for entry in entries:
        if entry["problem"]:
            folder, problem = escape(entry["folder"]), escape(entry["problem"])
            console.print(f"[bold red]damaged[/] {folder}: {problem}", soft_wrap=True)
    note = "return: mean in the newest evaluation; for algorithms that adapt, after adaptation on held-out tasks"
    console.print(f"{note}\n", style="dim")


_SECTIONS: dict[str, tuple[str, Callable[[Path], Entries], Callable[[Console, Entries], None]]] = {
    "algos": ("algorithms", _algorithms, _show_algorithms),
    "envs": ("environments (families of tasks)", _environments, _show_environments),
    "presets": ("presets", _presets, _show_presets),
    "sizes": ("sizes of runs", _sizes, _show_sizes),
    "policies": ("policies", _policies, _show_policies),
    "runs": ("runs", _runs, _show_runs),
}
