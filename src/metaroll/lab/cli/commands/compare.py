"""The commands ``compare`` and ``plot``: runs grouped over their seeds, as numbers and as a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rich.console import Console

from metaroll.errors import blame_input
from metaroll.lab.cli.options import Output, file_to_write, parse_command
from metaroll.lab.display.consoles import escape

__all__ = ["compare", "plot"]

_FEW = 5
_MOST_RUNS = 1000
_MISSING = "the folders of the runs are missing"
_ABOUT = "RUN is the folder of a run, or a folder of runs. Runs that differ only in their seeds form a group."


@dataclass(frozen=True, kw_only=True)
class _CompareArguments:
    pairing: Literal["auto", "paired", "unpaired"] = "auto"
    """Whether to pair runs with the same seed; auto pairs them if two groups have the same seeds."""
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class _PlotArguments:
    out: str = "comparison.png"
    """Picture to write; the extension selects the format: .png, .pdf or .svg."""
    output: Output = field(default_factory=Output)


def compare(arguments: Sequence[str]) -> None:
    """Compare groups of runs by their newest evaluations."""
    usage, about = (
        "metaroll compare RUN RUN ... [options]",
        f"{_ABOUT} Runs that were measured in different ways are rejected.",
    )
    names, args = parse_command(_CompareArguments, arguments, usage, about, _MISSING, _MOST_RUNS)
    from metaroll.lab.comparing.comparison import compare as compare_runs
    from metaroll.lab.display.json_output import print_json

    comparison = compare_runs(*names, pairing=args.pairing)
    comparison.show(args.output.console())
    if args.output.json:
        print_json(dataclasses.asdict(comparison))


def _warn(console: Console, notes: Sequence[str], unfinished: Sequence[str]) -> None:
    for note in notes:
        console.print(f"[yellow]{escape(note)}[/]", soft_wrap=True)
    if unfinished:
        console.print(f"[yellow]not finished:[/] {escape(', '.join(unfinished))}", soft_wrap=True)


def plot(arguments: Sequence[str]) -> None:
    """Draw learning curves of groups of runs."""
    usage = "metaroll plot RUN ... [options]"
    names, args = parse_command(_PlotArguments, arguments, usage, _ABOUT, _MISSING, _MOST_RUNS)
    from metaroll.lab.comparing.run_groups import compared_groups
    from metaroll.lab.display.json_output import print_json
    from metaroll.lab.figures.plots import PICTURE_KINDS, plot_groups

    with blame_input():
        out = file_to_write("--out", args.out, [f".{kind}" for kind in PICTURE_KINDS])
        groups, unfinished, notes = compared_groups(names, curves=True)
        adapts = {run.metric for group in groups for run in group.runs} == {"return_after"}
        curves = {group.label: [run.curve for run in group.runs] for group in groups}
        trained = {group.label: [run.trained for run in group.runs] for group in groups}
        path = plot_groups(curves, out, adapts=adapts, training=trained)
    console = args.output.console()
    console.print(f"picture  {escape(str(path))}", soft_wrap=True)
    _warn(console, notes, unfinished)
    if args.output.json:
        print_json({"picture": str(path), "groups": {group.label: group.seeds for group in groups}, "notes": notes})
