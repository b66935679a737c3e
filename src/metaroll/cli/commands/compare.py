"""The commands ``compare`` and ``plot``: groups of runs that differ in their seeds, in numbers and as a picture."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import Console

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
)

__all__ = ["compare", "plot"]

_FEW = 5
_MOST_RUNS = 1000


@dataclass(frozen=True, kw_only=True)
class _CompareArguments:
    pairing: Literal["auto", "paired", "unpaired"] = "auto"
    """Whether runs of one seed belong together; auto: where two groups have the same seeds."""
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class _PlotArguments:
    out: str = "comparison.png"
    """Picture to write; its ending says as what: .png, .pdf or .svg."""
    output: Output = field(default_factory=Output)


def compare(arguments: Sequence[str]) -> None:
    """Compare groups of runs by their newest evaluations."""
    usage = "metaroll compare RUN RUN ... [options]"
    about = (
        f"{usage}\n\nRUN is the folder of a run, or one that holds runs. Runs that differ in their seeds only are a "
        "group. Runs that were measured in different ways are refused."
    )
    names, given = _parsed(_CompareArguments, arguments, usage, about)
    from metaroll.cli.display.summary import print_json
    from metaroll.cli.runs.run_groups import group_runs, notes_on_merged, refuse_different, scores_of, unfinished_runs
    from metaroll.training.evaluation.group_comparison import compare_groups, summarize_group

    with blame_input():
        groups = group_runs(names)
        refuse_different(groups)
        unfinished, notes = unfinished_runs(names, groups), notes_on_merged(groups)
    entries: list[dict[str, Any]] = []
    for group in groups:
        scores = scores_of(group)[0]
        entries.append(
            {
                "group": group.label,
                "seeds": group.seeds,
                "env_steps": [run.env_steps for run in group.runs],
                **dataclasses.asdict(summarize_group(scores)),
            }
        )
    pairs: list[dict[str, Any]] = []
    for first, second in itertools.combinations(groups, 2):
        same = first.seeds == second.seeds
        if given.pairing == "paired" and not same:
            raise UsageError(f"--pairing paired needs the same seeds, got {first.seeds} and {second.seeds}")
        paired = same and given.pairing != "unpaired" and len(first.seeds) > 1
        found = compare_groups(*_aligned(first, second, paired, scores_of), paired=paired)
        pairs.append({"x": first.label, "y": second.label, **dataclasses.asdict(found)})
    console = given.output.console()
    _show(console, entries, pairs)
    _warn(console, notes, unfinished)
    if given.output.json:
        print_json({"groups": entries, "comparisons": pairs, "notes": notes, "unfinished": unfinished})


def _aligned(first: Any, second: Any, paired: bool, scores_of: Any) -> list[Any]:
    """Scores of two groups; pairs whose tasks are their own keep the tasks apart."""
    keys = [[run.tasks_key for run in group.runs] for group in (first, second)]
    if paired and keys[0] == keys[1] and first.runs[0].per_task:
        return [[run.per_task for run in group.runs] for group in (first, second)]
    return scores_of(first, second)


def _show(console: Console, entries: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]]) -> None:
    from metaroll.cli.display.evaluation_tables import plain_table, with_interval

    table = plain_table("group", "seeds", "steps", "return", "interquartile mean")
    for entry in entries:
        mean = with_interval(entry["mean"], entry["mean_interval"])
        robust = with_interval(entry["iqm"], entry["iqm_interval"])
        low, high = min(entry["env_steps"]), max(entry["env_steps"])
        steps = f"{low:,}" if low == high else f"{low:,} - {high:,}"
        table.add_row(escape(entry["group"]), str(len(entry["seeds"])), steps, mean, robust)
    console.print(table)
    for pair in pairs:
        gap = with_interval(pair["difference"], pair["difference_interval"], sign="+")
        chance = with_interval(pair["improvement"], pair["improvement_interval"], 2)
        console.print(
            f"[cyan]{escape(pair['x'])}[/] against [cyan]{escape(pair['y'])}[/] "
            f"({'paired by seed' if pair['paired'] else 'not paired'})\n"
            f"  difference {gap}   probability of improvement {chance}",
            soft_wrap=True,
        )
    counts = [len(entry["seeds"]) for entry in entries]
    note = "newest evaluations, on held-out tasks where there are some; 95 % percentile bootstrap intervals over seeds"
    if min(counts) < _FEW:
        note += f"; with fewer than {_FEW} seeds they are too narrow, or there are none"
    console.print(note, style="dim", soft_wrap=True)
    if len({steps for entry in entries for steps in entry["env_steps"]}) > 1:
        console.print("[yellow]the runs have had different numbers of environment steps[/]")


def _warn(console: Console, notes: Sequence[str], unfinished: Sequence[str]) -> None:
    for note in notes:
        console.print(f"[yellow]{escape(note)}[/]", soft_wrap=True)
    if unfinished:
        console.print(f"[yellow]not finished:[/] {escape(', '.join(unfinished))}", soft_wrap=True)


def plot(arguments: Sequence[str]) -> None:
    """Draw learning curves of groups of runs."""
    usage = "metaroll plot RUN ... [options]"
    about = (
        f"{usage}\n\nRUN is the folder of a run, or one that holds runs. Runs that differ in their seeds only are a "
        "group."
    )
    names, given = _parsed(_PlotArguments, arguments, usage, about)
    from metaroll.cli.display.summary import print_json
    from metaroll.cli.runs.run_groups import group_runs, notes_on_merged, refuse_different, unfinished_runs
    from metaroll.training.figures.plots import PICTURE_KINDS, plot_groups

    with blame_input():
        out = file_to_write("--out", given.out, [f".{kind}" for kind in PICTURE_KINDS])
        groups = group_runs(names)
        refuse_different(groups)
        adapts = {run.metric for group in groups for run in group.runs} == {"return_after"}
        curves = {group.label: [run.curve for run in group.runs] for group in groups}
        path = plot_groups(curves, out, adapts=adapts)
        unfinished, notes = unfinished_runs(names, groups), notes_on_merged(groups)
    given.output.console().print(f"picture  {escape(str(path))}", soft_wrap=True)
    _warn(given.output.console(), notes, unfinished)
    if given.output.json:
        seeds = {group.label: group.seeds for group in groups}
        print_json({"picture": str(path), "groups": seeds, "notes": notes})


def _parsed(kind: type, arguments: Sequence[str], usage: str, about: str) -> tuple[list[str], Any]:
    """The folders, and the options."""
    names, rest = take_positionals(arguments, _MOST_RUNS, flags_of(kind, valued_only=True))
    if not names and not asks_for_help(rest):
        raise UsageError(f"{usage}: the folders of the runs are missing")
    return names, parse_options(kind, rest, " ".join(usage.split()[:2]), about)
