"""The command ``check``: whether an environment is ready to be a family of tasks, and what to fix if not."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from metaroll.errors import UsageError, blame_input
from metaroll.lab.cli.options import Output, Switch, parse_command, unset
from metaroll.lab.display.consoles import escape, show_findings

__all__ = ["check"]


@dataclass(frozen=True, kw_only=True)
class _CheckArguments:
    num_steps: Annotated[int | None, unset("INT", "the horizon, at most 200")] = None
    """Maximum number of steps in a rollout."""
    seed: int = 0
    """Seed of tasks, resets and actions."""
    quick: Switch = False
    """Skip the checks that start a worker process."""
    strict: Switch = False
    """Count warnings as failures."""
    output: Output = field(default_factory=Output)


def check(arguments: Sequence[str]) -> int:
    """Check the tasks of an environment; return 1 if a check failed, 0 otherwise."""
    about = (
        "ENV is a family from `metaroll list envs`, or module:attribute: a TaskFamily, an environment with "
        "sample_tasks and set_task, or constructors, in a file in the current folder or an installed package. The exit "
        "status is 1 if a check fails."
    )
    missing = "the environment is missing; one of `metaroll list envs`, or module:attribute"
    names, args = parse_command(_CheckArguments, arguments, "metaroll check ENV [options]", about, missing)
    import gymnasium

    from metaroll.envs.lookup.source import EnvSource
    from metaroll.lab.checking.task_checks import check_task_env
    from metaroll.lab.display.json_output import print_json
    from metaroll.training.session.experiments import require_at_least

    console, name, started = args.output.console(), names[0], time.perf_counter()
    with blame_input():
        require_at_least({"--num-steps": args.num_steps}, 1)
        require_at_least({"--seed": args.seed}, 0)
        env = EnvSource.of(name)
        env.known.refuse_alike()
        if name in gymnasium.registry and not env.known.has_family:  # the nearest family names would not help
            raise UsageError(
                f"{name} is a single Gymnasium environment without tasks to check. Define them in a file my_env.py, "
                f"for example `family = TaskFamily.from_params({name!r}, {{constant: (low, high)}})`, and run "
                "`metaroll check my_env:family`; see docs/own_environment.md"
            )
        family = env.family
    with console.status(escape(f"checking {name}"), spinner="line"):
        report = check_task_env(family, num_steps=args.num_steps, workers=not args.quick, seed=args.seed)
    report = dataclasses.replace(report, name=name)
    seconds = time.perf_counter() - started
    if args.output.json:
        print_json({**report.to_dict(), "seconds": round(seconds, 2)})
    else:
        show_findings(console, report.checks)
        style = "bold red" if report.failed else "bold yellow" if report.warned else "bold green"
        console.print(f"\n[{style}]{escape(report.verdict)}[/] ({seconds:.1f} s)", soft_wrap=True)
    sys.stdout.flush()
    return 1 if report.failed or (args.strict and report.warned) else 0
