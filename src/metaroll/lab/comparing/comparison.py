"""Groups of runs compared over their seeds: ``metaroll.lab.compare`` in Python, ``metaroll compare`` in a shell."""

from __future__ import annotations

import dataclasses
import io
import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from metaroll.checks import described
from metaroll.errors import UsageError, blame_input, counted
from metaroll.lab.comparing.run_groups import compared_groups, scores_of
from metaroll.lab.display.consoles import escape, print_table, unwrapped_width
from metaroll.lab.display.results import plain_table
from metaroll.lab.results.group_comparison import compare_groups, summarize_group
from metaroll.training.evaluation.html_table import in_notebook
from metaroll.training.evaluation.numbers import with_interval
from metaroll.training.session.agent import Agent

__all__ = ["Comparison", "compare"]

_OF_SINGLE = "unknown with a single seed each"
_FEW = 5
_WIDTH = 80
_ANY_WIDTH = 1000


@dataclass(frozen=True, repr=False)
class Comparison:
    """Groups of runs that differ only in their seeds, compared by their newest evaluations; prints as a table.

    Attributes:
        groups: For each group its label, ``seeds``, ``env_steps``, ``mean`` and ``iqm`` with intervals (95 % bootstrap
            over seeds).
        comparisons: For each pair of groups the ``difference`` and the probability of ``improvement``, with intervals.
        notes: Notes on the groups.
        unfinished: Runs that are not complete.
    """

    groups: list[dict[str, Any]]
    comparisons: list[dict[str, Any]]
    notes: list[str]
    unfinished: list[str]

    def show(self, console: Console) -> None:
        """Print it."""
        table = self._table(narrow=False)
        if unwrapped_width(console, table) > console.width:
            table = self._table(narrow=True)
        print_table(console, table)
        self._show_notes(console)

    def _show_notes(self, console: Console) -> None:
        """Print the notes below the table."""
        for pair in self.comparisons:
            gap = with_interval(pair["difference"], pair["difference_interval"], sign="+")
            known = math.isfinite(pair["improvement"])
            chance = with_interval(pair["improvement"], pair["improvement_interval"], 2) if known else _OF_SINGLE
            console.print(
                f"[cyan]{escape(pair['x'])}[/] against [cyan]{escape(pair['y'])}[/] "
                f"({'paired by seed' if pair['paired'] else 'not paired'})\n"
                f"  difference {gap}   probability of improvement {chance}",
                soft_wrap=True,
            )
        note = "newest evaluations, on test tasks if there are any; "
        note += "95 % percentile bootstrap intervals over seeds"
        if min(len(entry["seeds"]) for entry in self.groups) < _FEW:
            note += f"; with fewer than {_FEW} seeds they are too narrow or missing"
        console.print(note, style="dim", soft_wrap=True)
        if len({steps for entry in self.groups for steps in entry["env_steps"]}) > 1:
            console.print("[yellow]the runs have different numbers of environment steps[/]")
        for text in self.notes:
            console.print(f"[yellow]{escape(text)}[/]", soft_wrap=True)
        if self.unfinished:
            console.print(f"[yellow]not finished:[/] {escape(', '.join(self.unfinished))}", soft_wrap=True)

    def _table(self, narrow: bool) -> Table:
        """The groups; ``narrow`` uses fewer columns with two lines, so that no number is cut."""
        table = plain_table("group", *([] if narrow else ["seeds", "steps"]), "return", "interquartile mean")
        for entry in self.groups:
            numbers = [with_interval(entry[name], entry[f"{name}_interval"]) for name in ("mean", "iqm")]
            low, high = min(entry["env_steps"]), max(entry["env_steps"])
            steps = f"{low:,}" if low == high else f"{low:,} - {high:,}"
            if narrow:
                cells = [
                    f"{entry['group']}\n{_seeds(entry)}, {steps} steps",
                    *(n.replace(" [", "\n[") for n in numbers),
                ]
            else:
                cells = [entry["group"], str(len(entry["seeds"])), steps, *numbers]
            table.add_row(escape(cells[0]), *cells[1:])
        return table

    def __repr__(self) -> str:
        """One line: the groups with their means, and what to print."""
        groups = [
            f"{entry['group']}: {with_interval(entry['mean'], entry['mean_interval'])} ({_seeds(entry)})"
            for entry in self.groups
        ]
        return f"Comparison({'; '.join(groups)}); print it for the table"

    def _repr_html_(self) -> str:
        """In a notebook: the groups as a table, and the notes."""
        below = io.StringIO()
        self._show_notes(Console(file=below, width=_ANY_WIDTH, highlight=False, emoji=False))
        rows = [
            (
                entry["group"],
                _seeds(entry),
                *(with_interval(entry[name], entry[f"{name}_interval"]) for name in ("mean", "iqm")),
            )
            for entry in self.groups
        ]
        head = ["group", "seeds", "return", "interquartile mean"]
        return in_notebook(below.getvalue(), head, rows, "Groups of runs")

    def __str__(self) -> str:
        text = io.StringIO()
        self.show(Console(file=text, width=_WIDTH, highlight=False, emoji=False))
        return text.getvalue().rstrip()


def compare(*runs: str | Path | Agent, pairing: Literal["auto", "paired", "unpaired"] = "auto") -> Comparison:
    """Compare groups of runs by their newest evaluations; runs that differ only in their seeds form a group.

    Args:
        runs: Agents that have learned, folders of runs, or folders that contain runs.
        pairing: Whether to pair runs with the same seed; ``"auto"`` pairs them if two groups have the same seeds.

    Raises:
        ValueError: Two runs were measured in different ways, or are the same one; an agent has not learned, or a run
            has no evaluation.
    """
    if pairing not in ("auto", "paired", "unpaired"):
        raise ValueError(f"pairing must be 'auto', 'paired' or 'unpaired', got {pairing!r}")
    if not runs:
        raise ValueError("runs must name at least one run, got none: compare('runs/five', 'runs/other')")
    folders = [_folder_of(run) for run in runs]
    with blame_input():
        groups, unfinished, notes = compared_groups(folders)
    entries: list[dict[str, Any]] = []
    for group in groups:
        steps = [run.env_steps for run in group.runs]
        numbers = dataclasses.asdict(summarize_group(scores_of(group)[0]))
        entries.append({"group": group.label, "seeds": group.seeds, "env_steps": steps, **numbers})
    pairs: list[dict[str, Any]] = []
    for first, second in itertools.combinations(groups, 2):
        same_seeds = first.seeds == second.seeds
        if pairing == "paired" and not same_seeds:
            raise UsageError(f"pairing paired needs the same seeds, got {first.seeds} and {second.seeds}")
        paired = same_seeds and pairing != "unpaired" and len(first.seeds) > 1
        result = compare_groups(*scores_of(first, second, paired=paired), paired=paired)
        pairs.append({"x": first.label, "y": second.label, **dataclasses.asdict(result)})
    return Comparison(entries, pairs, list(notes), list(unfinished))


def _seeds(entry: dict[str, Any]) -> str:
    count = len(entry["seeds"])
    return counted(count, "seed")


def _folder_of(run: str | Path | Agent) -> str:
    if isinstance(run, Agent):
        if run.run_dir is None:
            name = f"the agent of {run.config['algo']!r} in {run.config['env']!r}"
            raise ValueError(f"{name} has nothing to compare yet: call learn() first")
        return str(run.run_dir)
    if not isinstance(run, str | Path):
        hint = ": compare(*agents)" if isinstance(run, list | tuple) else ""
        raise TypeError(f"runs must be folders or agents, got {described(run)}{hint}")
    return str(run)
