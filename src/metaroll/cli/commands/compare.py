"""The commands ``compare`` and ``plot``: groups of runs that differ in their seeds, in numbers and as a picture."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import Console

from metaroll.cli.options import Output, file_to_write, parse_command
from metaroll.errors import UsageError, blame_input
from metaroll.training.display.consoles import escape

__all__ = ["compare", "plot"]

_FEW = 5
_MOST_RUNS = 1000
_MISSING = "the folders of the runs are missing"
_ABOUT = "RUN is the folder of a run, or one that holds runs. Runs that differ in their seeds only are a group."


@dataclass(frozen=True, kw_only=True)
class _CompareArguments:
    pairing: Literal["auto", "paired", "unpaired"] = "auto"
    """Whether runs of one seed belong together; auto: where two groups have the same seeds."""
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class _PlotArguments:
    out: str = "comparison.png"
    """Picture to write; the format follows the extension: .png, .pdf or .svg."""
    output: Output = field(default_factory=Output)


def compare(arguments: Sequence[str]) -> None:
    """Compare groups of runs by their newest evaluations."""
    usage, about = "metaroll compare RUN RUN ... [options]", f"{_ABOUT} Runs measured in different ways are refused."
    names, given = parse_command(_CompareArguments, arguments, usage, about, _MISSING, _MOST_RUNS)
    from metaroll.cli.runs.run_groups import compared_groups, scores_of
    from metaroll.training.display.results import print_json
    from metaroll.training.evaluation.group_comparison import compare_groups, summarize_group

    with blame_input():
        groups, unfinished, notes = compared_groups(names)
    entries: list[dict[str, Any]] = []
    for group in groups:
        steps = [run.env_steps for run in group.runs]
        numbers = dataclasses.asdict(summarize_group(scores_of(group)[0]))
        entries.append({"group": group.label, "seeds": group.seeds, "env_steps": steps, **numbers})
    pairs: list[dict[str, Any]] = []
    for first, second in itertools.combinations(groups, 2):
        same = first.seeds == second.seeds
        if given.pairing == "paired" and not same:
            raise UsageError(f"--pairing paired needs the same seeds, got {first.seeds} and {second.seeds}")
        paired = same and given.pairing != "unpaired" and len(first.seeds) > 1
        found = compare_groups(*scores_of(first, second, paired=paired), paired=paired)
        pairs.append({"x": first.label, "y": second.label, **dataclasses.asdict(found)})
    console = given.output.console()
    _show(console, entries, pairs)
    _warn(console, notes, unfinished)
    if given.output.json:
        print_json({"groups": entries, "comparisons": pairs, "notes": notes, "unfinished": unfinished})


def _show(console: Console, entries: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]]) -> None:
    from metaroll.training.display.numbers import with_interval
    from metaroll.training.display.results import plain_table

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
    note = "newest evaluations, on held-out tasks where there are some; 95 % percentile bootstrap intervals over seeds"
    if min(len(entry["seeds"]) for entry in entries) < _FEW:
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
    names, given = parse_command(_PlotArguments, arguments, usage, _ABOUT, _MISSING, _MOST_RUNS)
    from metaroll.cli.runs.run_groups import compared_groups
    from metaroll.training.display.results import print_json
    from metaroll.training.figures.plots import PICTURE_KINDS, plot_groups

    with blame_input():
        out = file_to_write("--out", given.out, [f".{kind}" for kind in PICTURE_KINDS])
        groups, unfinished, notes = compared_groups(names)
        adapts = {run.metric for group in groups for run in group.runs} == {"return_after"}
        path = plot_groups({group.label: [run.curve for run in group.runs] for group in groups}, out, adapts=adapts)
    console = given.output.console()
    console.print(f"picture  {escape(str(path))}", soft_wrap=True)
    _warn(console, notes, unfinished)
    if given.output.json:
        print_json({"picture": str(path), "groups": {group.label: group.seeds for group in groups}, "notes": notes})
