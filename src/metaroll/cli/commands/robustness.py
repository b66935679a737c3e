"""The command ``robustness``: how the return of a run's policy depends on domain parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.panel import Panel

from metaroll.cli.display.consoles import escape
from metaroll.cli.options import Output, UsageError, asks_for_help, blame_input, parse_options, take_positionals, unset
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.store import run_folder

__all__ = ["parse_grid", "robustness"]

_MOST_POINTS = 10_000
_AsTrained = Annotated[int | None, unset("INT", "as in training")]
_Newest = Annotated[int | None, unset("INT", "that of the newest snapshot")]
_Params = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUES")]
_HOW = "--param NAME FROM:TO:COUNT or --param NAME=V1,V2,... (numbers)"


@dataclass(frozen=True, kw_only=True)
class _RobustnessArguments:
    param: _Params = ()
    """A domain parameter and its values, FROM:TO:COUNT or V1,V2,...; once for a curve, twice for a field."""
    episodes: int = 20
    """Episodes at each point, with the same seeds at all of them."""
    max_steps: _AsTrained = None
    """Most steps of an episode."""
    seed: int = 0
    """Seed of the episodes."""
    from_epoch: _Newest = None
    """Take the policy as it was after this epoch."""
    num_workers: int = 1
    """Processes that run episodes; results do not depend on it."""
    output: Output = field(default_factory=Output)


def robustness(arguments: Sequence[str]) -> None:
    """Measure the return of a run's policy over a grid of domain parameters."""
    usage = "metaroll robustness RUN --param NAME FROM:TO:COUNT [--param NAME=V1,V2,...] [options]"
    names, rest = take_positionals(arguments, 1)
    if not names and not asks_for_help(rest):
        raise UsageError(f"{usage}: the folder of the run is missing (before all options)")
    about = (
        f"{usage}\n\nDraws the return over one or two domain parameters, with bootstrap intervals, the nominal value "
        "and the range of training, and writes the numbers as CSV and JSON. No run is changed."
    )
    given = parse_options(_RobustnessArguments, _joined(rest), "metaroll robustness", about)
    with blame_input():
        folder = run_folder.find_run(names[0])
        config = run_folder.read_config(folder)
        grid = parse_grid(given.param)
        if get_algorithm(config["algo"]).adapts:
            raise UsageError(f"robustness is for policies that do not adapt, {folder} is a run of {config['algo']}")
    _measure(config, folder, grid, given)


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
    points = 1
    for values in grid.values():
        points *= len(values)
    if points > _MOST_POINTS:
        raise UsageError(f"--param asks for {points} points, more than {_MOST_POINTS}; take smaller counts")
    return grid


def _values(name: str, text: str) -> list[float]:
    import numpy as np

    problem = UsageError(f"--param {name}: the values must be FROM:TO:COUNT or V1,V2,... (numbers), got {text!r}")
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        low, high, count = text.split(":")
        begin, end, number = float(low), float(high), int(count)
    except ValueError:
        raise problem from None
    if number < 1:
        raise UsageError(f"--param {name}: COUNT must be at least 1, got {number}")
    if not begin <= end:
        raise UsageError(f"--param {name}: FROM must not be above TO, got {low} and {high}")
    if number == 1 and begin != end:
        raise UsageError(
            f"--param {name}: one value from {low} to {high} leaves out {high}; take a COUNT of at least 2, or "
            f"--param {name}={low} for that value alone"
        )
    return np.linspace(begin, end, number).tolist()


def _measure(
    config: Mapping[str, Any], folder: Path, grid: Mapping[str, Sequence[float]], given: _RobustnessArguments
) -> None:
    from metaroll.cli.display.summary import print_json
    from metaroll.cli.experiment.experiments import split_tasks
    from metaroll.cli.runs.sessions import restored_run
    from metaroll.envs.lookup.registry import is_varied
    from metaroll.rollouts.workers.pool import SamplerPool
    from metaroll.tasks.domain_randomizer import DomainRandomizer
    from metaroll.training.evaluation.robustness import robustness_map

    console = given.output.console()
    with restored_run(config, folder, given.from_epoch) as (checked, experiment, epoch), blame_input():
        training = split_tasks(checked)[0]
        with SamplerPool(given.num_workers) as pool:
            result = robustness_map(
                experiment.algo.policy,
                experiment.env if is_varied(checked["env"]) else checked["env"],
                grid,
                num_episodes=given.episodes,
                max_steps=checked["algorithm"]["max_path_length"] if given.max_steps is None else given.max_steps,
                training=training if isinstance(training, DomainRandomizer) else None,
                seed=given.seed,
                pool=pool,
            )
    stem = folder / f"robustness-{re.sub(r'[^A-Za-z0-9_]+', '-', '-'.join(grid))}"
    written = [*_pictures(result, stem, console), *result.write(stem)]
    console.print(_panel(result, epoch, written))
    if given.output.json:
        print_json({**result.to_dict(), "algo": checked["algo"], "epoch": epoch, "files": [str(p) for p in written]})


def _pictures(result: Any, stem: Path, console: Console) -> list[Path]:
    from metaroll.training.figures.plots import plot_robustness

    try:
        return [plot_robustness(result, stem.with_suffix(".png"))]
    except (ImportError, OSError) as error:  # no matplotlib, a full disk: the numbers are written all the same
        console.print(f"[yellow]no picture:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return []


def _panel(result: Any, epoch: int, written: Sequence[Path]) -> Panel:
    rows = sorted(result.rows(), key=lambda row: row["return_mean"])
    named = [("best ", rows[-1]), ("worst", rows[0])] if len(rows) > 1 else [("return", rows[0])]
    lines = [f"{name}  {_at(row, result.grid)}" for name, row in named]
    episodes = rows[0]["episodes"]
    where = f"at each of {len(rows)} points" if len(rows) > 1 else "at one point"
    how = "1 episode" if episodes == 1 else f"{episodes} episodes"
    lines.append(
        f"after {epoch} epoch{'' if epoch == 1 else 's'}, {how} {where}" + (" (95 % bootstrap)" if episodes > 1 else "")
    )
    if result.note:
        lines.append(f"[yellow]{escape(result.note)}[/]")
    lines += [escape(str(path)) for path in written]
    return Panel("\n".join(lines), title="robustness", title_align="left", expand=False)


def _at(row: Mapping[str, float], names: Sequence[str]) -> str:
    where = ", ".join(f"{name} {row[name]:.4g}" for name in names)
    low, high = row["ci_low"], row["ci_high"]
    interval = escape(f" [{low:.1f}, {high:.1f}]") if math.isfinite(low) and math.isfinite(high) else ""
    return f"[bold green]{row['return_mean']:.1f}[/]{interval}  at {escape(where)}"
