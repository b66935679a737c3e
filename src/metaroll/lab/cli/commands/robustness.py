"""The command ``robustness``: how the return of a run's policy depends on domain parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.panel import Panel

from metaroll.errors import UsageError, blame_input, shortened
from metaroll.lab.cli.options import AsTrained, Newest, Output, Switch, parse_command
from metaroll.lab.display.consoles import escape
from metaroll.training.evaluation.numbers import with_interval
from metaroll.training.store import run_folder
from metaroll.training.store.run_values import adapts

__all__ = ["parse_grid", "robustness"]

_MOST_POINTS = 10_000
_HOW = "--param NAME FROM:TO:COUNT or --param NAME=V1,V2,... (numbers)"


@dataclass(frozen=True, kw_only=True)
class _RobustnessArguments:
    param: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUES")] = ()
    """A domain parameter and its values, FROM:TO:COUNT or V1,V2,...; once for a curve, twice for a field."""
    episodes: int = 20
    """Episodes at each point, with the same seeds at all of them."""
    max_steps: AsTrained = None
    """Maximum number of steps of an episode."""
    seed: int = 0
    """Seed of the episodes."""
    from_epoch: Newest = None
    """Take the policy as it was after this epoch."""
    num_workers: int = 1
    """Processes that run episodes; results do not depend on it."""
    trust: Switch = False
    """Import the module of the run's environment, though this installation has not made the run: look at it first."""
    output: Output = field(default_factory=Output)


def robustness(arguments: Sequence[str]) -> None:
    """Measure the return of a run's policy over a grid of domain parameters."""
    usage = "metaroll robustness RUN --param NAME FROM:TO:COUNT [--param NAME=V1,V2,...] [options]"
    about = (
        "Draws the return over one or two domain parameters, with bootstrap intervals, the nominal value "
        "and the range of training, and writes the numbers as CSV and JSON. No run is changed."
    )
    missing = "the folder of the run is missing"
    names, given = parse_command(_RobustnessArguments, _joined(arguments), usage, about, missing)
    with blame_input():
        folder = run_folder.find_run(names[0])
        run_folder.check_links(folder)
        config = run_folder.read_config(folder)
        grid = parse_grid(given.param)
        if adapts(config):
            raise UsageError(f"robustness is for policies that do not adapt, {folder} is a run of {config['algo']}")
    from metaroll.lab.display.json_output import print_json
    from metaroll.lab.figures.plots import plot_robustness

    result, epoch = _measured(config, folder, grid, given)
    console, written = given.output.console(), []
    stem = folder / f"robustness-{re.sub(r'[^A-Za-z0-9_]+', '-', '-'.join(grid))}"
    try:
        written.append(plot_robustness(result, stem.with_suffix(".png")))
    except OSError as error:  # a full disk, say: the numbers are written all the same
        console.print(f"[yellow]no picture:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    written += result.write(stem)
    console.print(_panel(result, epoch, written))
    if given.output.json:
        print_json({**result.to_dict(), "algo": config["algo"], "epoch": epoch, "files": [str(p) for p in written]})


def _joined(arguments: Sequence[str]) -> list[str]:
    """``--param NAME VALUES`` as ``--param NAME=VALUES``, so that values may be negative."""
    joined, rest = [], list(arguments)
    while rest:
        joined.append(rest.pop(0))
        if joined[-1] == "--param" and len(rest) > 1 and "=" not in rest[0] and not rest[1].startswith("--"):
            joined.append(f"{rest.pop(0)}={rest.pop(0)}")
    return joined


def parse_grid(params: Sequence[str]) -> dict[str, list[float]]:
    """Name -> values of each ``--param NAME=VALUES``."""
    if not 1 <= len(params) <= 2:
        raise UsageError(
            f"--param must be given once or twice, as in --param pole_length 0.5:1.5:11, got {len(params)} of them"
        )
    grid: dict[str, list[float]] = {}
    for given in params:
        name, equals, text = given.partition("=")
        if not (name and equals):
            raise UsageError(f"values are missing: write {_HOW}, got {given!r}")
        if name in grid:
            raise UsageError(f"--param {name} is given twice")
        grid[name] = _values(name, text)
    points = math.prod(map(len, grid.values()))
    if points > _MOST_POINTS:
        raise UsageError(f"--param asks for {points} points, more than {_MOST_POINTS}; take smaller counts")
    return grid


def _values(name: str, text: str) -> list[float]:
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        low, high, count = text.split(":")
        begin, end, number = float(low), float(high), int(count)
    except ValueError:
        raise UsageError(
            f"--param {name}: the values must be FROM:TO:COUNT or V1,V2,... (numbers), got {text!r}"
        ) from None
    if not 1 <= number <= _MOST_POINTS:
        raise UsageError(f"--param {name}: COUNT must lie in [1, {_MOST_POINTS}], got {shortened(number)}")
    if not begin <= end:
        raise UsageError(f"--param {name}: FROM must not be above TO, got {low} and {high}")
    if number == 1 and begin != end:
        raise UsageError(
            f"--param {name}: one value from {low} to {high} leaves out {high}; take a COUNT of at least 2, or "
            f"--param {name}={low} for that value alone"
        )
    return np.linspace(begin, end, number).tolist()


def _measured(
    config: Mapping[str, Any], folder: Path, grid: Mapping[str, Sequence[float]], given: _RobustnessArguments
) -> tuple[Any, int]:
    """The robustness map, and the number of epochs after which the policy was taken."""
    from metaroll.lab.results.robustness import robustness_map
    from metaroll.rollouts.workers.pool import SamplerPool
    from metaroll.tasks.domain_randomizer import RandomDomains
    from metaroll.training.session.experiments import split_tasks
    from metaroll.training.session.sessions import restored_run

    with restored_run(config, folder, given.from_epoch, given.trust) as (checked, experiment, epoch), blame_input():
        source = experiment.source
        training = split_tasks(checked, source)[0]
        with SamplerPool(given.num_workers) as pool:
            result = robustness_map(
                experiment.algo.policy,
                experiment.env if source.is_varied else source,
                grid,
                num_episodes=given.episodes,
                max_steps=checked["algorithm"]["max_steps"] if given.max_steps is None else given.max_steps,
                training=training if isinstance(training, RandomDomains) else None,
                seed=given.seed,
                pool=pool,
            )
        return result, epoch


def _panel(result: Any, epoch: int, written: Sequence[Path]) -> Panel:
    rows = sorted(result.rows(), key=lambda row: row["return_mean"])
    lines = []
    for name, row in [("best ", rows[-1]), ("worst", rows[0])] if len(rows) > 1 else [("return", rows[0])]:
        where = ", ".join(f"{param} {row[param]:.4g}" for param in result.grid)
        value, _, bounds = with_interval(row["return_mean"], (row["ci_low"], row["ci_high"])).partition(" ")
        lines.append(f"{name}  [bold green]{value}[/]{bounds and ' ' + bounds}  at {escape(where)}")
    episodes = rows[0]["episodes"]
    where = f"at each of {len(rows)} points" if len(rows) > 1 else "at one point"
    how = "1 episode" if episodes == 1 else f"{episodes} episodes"
    method = " (95 % bootstrap)" if episodes > 1 else ""
    lines.append(f"after {epoch} epoch{'' if epoch == 1 else 's'}, {how} {where}{method}")
    if result.note:
        lines.append(f"[yellow]{escape(result.note)}[/]")
    lines += [escape(str(path)) for path in written]
    return Panel("\n".join(lines), title="robustness", title_align="left", expand=False)
