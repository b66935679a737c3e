"""The command ``check``: is an environment ready to be a family of tasks, and if not, what is the hint?"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table

from metaroll.cli.display.consoles import escape
from metaroll.cli.options import (
    Output,
    UsageError,
    asks_for_help,
    blame_input,
    flags_of,
    parse_options,
    take_positionals,
    unset,
)

if TYPE_CHECKING:
    from metaroll.diagnostics.report import TaskEnvReport

__all__ = ["check"]

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}
_Steps = Annotated[int | None, unset("INT", "the horizon, at most 200")]


@dataclass(frozen=True, kw_only=True)
class _CheckArguments:
    num_steps: _Steps = None
    """Longest rollout."""
    seed: int = 0
    """Seed of tasks, resets and actions."""
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Start no worker process."""
    strict: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Count warnings as failures."""
    output: Output = field(default_factory=Output)


def check(arguments: Sequence[str]) -> int:
    """Look at the tasks of an environment; 1 if something is wrong with them, 0 otherwise."""
    usage = "metaroll check ENV [options]"
    names, rest = take_positionals(arguments, 1, flags_of(_CheckArguments, valued_only=True))
    about = (
        f"{usage}\n\nENV is a family of `metaroll list envs`, or module:attribute: a TaskFamily, an environment with "
        "sample_tasks and set_task, or constructors, in a file of the current folder or an installed package. The exit "
        "status is 1 if a check failed."
    )
    given = parse_options(_CheckArguments, rest, "metaroll check", about)
    if not names and not asks_for_help(rest):
        raise UsageError(f"{usage}: the environment is missing; one of `metaroll list envs`, or module:attribute")
    from metaroll.cli.experiment.experiments import refuse_benchmark, require_at_least
    from metaroll.diagnostics.task_checks import check_task_env
    from metaroll.envs.lookup.registry import get_family

    console, started = given.output.console(), time.perf_counter()
    with blame_input():
        require_at_least({"--num-steps": given.num_steps}, 1)
        require_at_least({"--seed": given.seed}, 0)
        refuse_benchmark(names[0])
        _refuse_gymnasium_id(names[0])
        family = get_family(names[0])
    with console.status(escape(f"looking at {names[0]}"), spinner="line"):
        report = check_task_env(family, num_steps=given.num_steps, workers=not given.quick, seed=given.seed)
    report = dataclasses.replace(report, name=names[0])
    seconds = time.perf_counter() - started
    if given.output.json:
        from metaroll.cli.display.summary import print_json

        print_json({**report.to_dict(), "seconds": round(seconds, 2)})
    else:
        _show(console, report, seconds)
    sys.stdout.flush()
    return 1 if report.failed or (given.strict and report.warned) else 0


def _refuse_gymnasium_id(name: str) -> None:
    """One environment is no family of tasks, of which the nearest names would be of no use."""
    import gymnasium

    from metaroll.envs.lookup.registry import has_family

    if name in gymnasium.registry and not has_family(name):
        raise UsageError(
            f"{name} is one environment of Gymnasium, without tasks to look at. Say in a file my_env.py what they are, "
            f"`family = TaskFamily.from_params({name!r}, {{constant: (low, high)}})` for one, and try `metaroll check "
            "my_env:family`; docs/own_environment.md shows how"
        )


def _show(console: Console, report: TaskEnvReport, seconds: float) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for found in report.checks:
        hint = f"\n[cyan]-> {escape(found.hint)}[/]" if found.hint else ""
        table.add_row(f"[{_STYLES[found.status]}]{found.status}[/]", found.name, f"{escape(found.value)}{hint}")
    console.print(table)
    style = "bold red" if report.failed else "bold yellow" if report.warned else "bold green"
    console.print(f"\n[{style}]{escape(report.verdict)}[/] ({seconds:.1f} s)", soft_wrap=True)
