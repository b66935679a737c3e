"""The command ``doctor``: what is fine on this machine, what is missing, and the hint."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from metaroll.cli.doctor import driver_checks, engine_checks, health_checks
from metaroll.cli.doctor.health_checks import Check, guarded
from metaroll.cli.options import Output, parse_options

__all__ = ["doctor", "examine"]

_PROBE_S = 10.0
_WORKER_S = 20.0
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True, kw_only=True)
class _DoctorArguments:
    quick: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Start no workers and draw no pictures."""
    output: Output = field(default_factory=Output)


def doctor(arguments: Sequence[str]) -> int:
    """Check this machine; 1 if metaroll cannot work on it, 0 otherwise."""
    about = "Says what is fine on this machine, what is missing, and the hint; the exit status is 1 if it cannot work."
    given = parse_options(_DoctorArguments, arguments, "metaroll doctor", about)
    console, started = given.output.console(), time.perf_counter()
    with console.status("looking at this machine", spinner="line") as status:
        checks = examine(given.quick, lambda name: status.update(f"looking at: {name}"))
    seconds = time.perf_counter() - started
    failed = any(check.status == "fail" for check in checks)
    if given.output.json:
        found = [dataclasses.asdict(check) for check in checks]
        # Plain text through the standard library: what else writes JSON here needs packages that may be missing.
        sys.stdout.write(json.dumps({"ok": not failed, "seconds": round(seconds, 2), "checks": found}, indent=2) + "\n")
    else:
        _show(console, checks, seconds)
    return 1 if failed else 0


def examine(quick: bool = False, tell: Callable[[str], None] = lambda name: None) -> list[Check]:
    """All checks in the order of the table.

    Args:
        quick: Leave out what starts workers and draws pictures.
        tell: Called with the name of each check before it is made.
    """

    def made(name: str, check: Callable[[], Check], essential: bool = False) -> Check:
        tell(name)
        return guarded(name, check, essential)

    if quick:
        return _looking(made)
    # They draw while the packages of this process are being imported.
    with driver_checks.picture_probes(_PROBE_S) as probes:
        checks = _looking(made)
        for name in driver_checks.PICTURES:
            checks.append(made(name, functools.partial(_picture, name, probes.get(name, {}))))
    return [
        *checks,
        made("worker start", functools.partial(engine_checks.worker_check, _WORKER_S), essential=True),
        made("self-test", functools.partial(engine_checks.self_test, _WORKER_S), essential=True),
    ]


def _looking(made: Callable[..., Check]) -> list[Check]:
    """The checks that ``--quick`` keeps."""
    checks = [
        made("metaroll", health_checks.program_check, True),
        made("packages", health_checks.packages_check, True),
    ]
    try:
        extras = health_checks.extras_in_use()
    except ImportError:
        extras = []  # the line of the packages says why
    checks += [made(f"extra {extra}", functools.partial(health_checks.extra_check, extra)) for extra in extras]
    return [
        *checks,
        made("processors", health_checks.processors_check),
        made("memory", health_checks.memory_check),
        made("threads", health_checks.threads_check),
        made("start method", health_checks.start_method_check),
        made("runs folder", health_checks.runs_folder_check),
        made("temporary folder", health_checks.temporary_folder_check, True),
        made("GPU", functools.partial(driver_checks.gpu_check, _PROBE_S)),
    ]


def _picture(name: str, probes: dict[str, driver_checks.Probe]) -> Check:
    answers = {way: probe.answer() for way, probe in probes.items()}
    answers |= driver_checks.backend_answers(name, answers, _PROBE_S)
    return driver_checks.picture_finding(name, answers, os.environ.get("MUJOCO_GL"))


def _show(console: Console, checks: Sequence[Check], seconds: float) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for check in checks:
        hint = f"\n[cyan]-> {escape(check.hint)}[/]" if check.hint else ""
        table.add_row(f"[{_STYLES[check.status]}]{check.status}[/]", check.name, f"{escape(check.value)}{hint}")
    console.print(table)
    counts = {status: sum(check.status == status for check in checks) for status in ("fail", "warn")}
    hints = f"{len(checks)} checks, {counts['warn']} with a hint" if counts["warn"] else f"{len(checks)} checks"
    if counts["fail"]:
        verdict = f"[bold red]metaroll does not work here:[/] {counts['fail']} of {len(checks)} checks failed"
    else:
        verdict = f"[bold green]metaroll works here[/] ({hints}, {seconds:.1f} s); next: metaroll demo"
    console.print(f"\n{verdict}", soft_wrap=True)
