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

from metaroll.errors import DamagedFileError, UsageError, blame_input, counted, shortened
from metaroll.lab.cli.options import AsTrained, Newest, Output, Switch, parse_command
from metaroll.lab.display.consoles import escape
from metaroll.lab.display.timing import after_epoch
from metaroll.training.evaluation.numbers import with_interval
from metaroll.training.store import run_folder
from metaroll.training.store.run_values import adapts

__all__ = ["parse_grid", "robustness"]

_MOST_POINTS = 10_000
_HOW = "--param NAME FROM:TO:COUNT or --param NAME=V1,V2,... (numbers)"


@dataclass(frozen=True, kw_only=True)
class _RobustnessArguments:
    param: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUES")] = ()
    """A domain parameter and its values, FROM:TO:COUNT or V1,V2,...; give one for a curve, two for a heat map."""
    episodes: int = 20
    """Episodes per grid point; all points use the same seeds."""
    max_steps: AsTrained = None
    """Maximum number of steps of an episode."""
    seed: int = 0
    """Seed of the episodes."""
    from_epoch: Newest = None
    """Use the policy from after this epoch."""
    num_workers: int = 1
    """Worker processes; they do not affect results."""
    trust: Switch = False
    """Import the run's environment module although this installation did not create the run: read the code first."""
    output: Output = field(default_factory=Output)


def robustness(arguments: Sequence[str]) -> None:
    """Measure the return of a run's policy over a grid of domain parameters."""
    usage = "metaroll robustness RUN --param NAME FROM:TO:COUNT [--param NAME=V1,V2,...] [options]"
    about = (
        "Plots the return over one or two domain parameters with bootstrap intervals, the nominal value and "
        "the training range, and writes the numbers as CSV and JSON. The run itself is not changed."
    )
    missing = "the folder of the run is missing"
    names, args = parse_command(_RobustnessArguments, _joined(arguments), usage, about, missing)
    with blame_input():
        folder = run_folder.find_run(names[0])
        run_folder.check_links(folder)
        config = run_folder.read_config(folder)
        grid = parse_grid(args.param)
        if adapts(config):
            raise UsageError(f"robustness is for policies that do not adapt, but {folder} is a run of {config['algo']}")
    from metaroll.lab.display.json_output import print_json
    from metaroll.lab.figures.plots import plot_robustness

    result, epoch = _measured(config, folder, grid, args)
    console, files = args.output.console(), []
    stem = folder / f"robustness-{re.sub(r'[^A-Za-z0-9_]+', '-', '-'.join(grid))}"
    try:
        files.append(plot_robustness(result, stem.with_suffix(".png")))
    except (OSError, DamagedFileError) as error:  # a full disk, a broken matplotlibrc: still write the numbers
        console.print(f"[yellow]no picture:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    files += result.write(stem)
    console.print(_panel(result, epoch, files))
    if args.output.json:
        print_json({**result.to_dict(), "algo": config["algo"], "epoch": epoch, "files": [str(p) for p in files]})


def _joined(arguments: Sequence[str]) -> list[str]:
    """Join ``--param NAME VALUES`` to ``--param NAME=VALUES``, so that values may be negative."""
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
    for param in params:
        name, equals, text = param.partition("=")
        if not (name and equals):
            raise UsageError(f"values are missing: write {_HOW}, got {param!r}")
        if name in grid:
            raise UsageError(f"--param {name} is given twice")
        grid[name] = _values(name, text)
    points = math.prod(map(len, grid.values()))
    if points > _MOST_POINTS:
        raise UsageError(f"--param asks for {points} points, more than {_MOST_POINTS}; use smaller counts")
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
    if not math.isfinite(end - begin):
        raise UsageError(f"--param {name}: FROM and TO must be finite, and so their difference, got {low} and {high}")
    if not begin <= end:
        raise UsageError(f"--param {name}: FROM must not be above TO, got {low} and {high}")
    if number == 1 and begin != end:
        raise UsageError(
            f"--param {name}: one value from {low} to {high} leaves out {high}; use a COUNT of at least 2, or "
            f"--param {name}={low} for that value alone"
        )
    return np.linspace(begin, end, number).tolist()


def _measured(
    config: Mapping[str, Any], folder: Path, grid: Mapping[str, Sequence[float]], args: _RobustnessArguments
) -> tuple[Any, int]:
    """The robustness map, and the number of epochs that the policy was trained for."""
    from metaroll.lab.results.robustness import robustness_map
    from metaroll.rollouts.workers.pool import SamplerPool
    from metaroll.tasks.domain_randomizer import RandomDomains
    from metaroll.training.session.experiments import split_tasks
    from metaroll.training.session.sessions import restored_run

    with restored_run(config, folder, args.from_epoch, args.trust) as (checked, experiment, epoch), blame_input():
        source = experiment.source
        training = split_tasks(checked, source)[0]
        with SamplerPool(args.num_workers) as pool:
            result = robustness_map(
                experiment.algo.policy,
                experiment.env if source.is_varied else source,
                grid,
                num_episodes=args.episodes,
                max_steps=checked["algorithm"]["max_steps"] if args.max_steps is None else args.max_steps,
                training=training if isinstance(training, RandomDomains) else None,
                seed=args.seed,
                pool=pool,
            )
        return result, epoch


def _panel(result: Any, epoch: int, files: Sequence[Path]) -> Panel:
    rows = sorted(result.rows(), key=lambda row: row["return_mean"])
    lines = []
    for name, row in [("best ", rows[-1]), ("worst", rows[0])] if len(rows) > 1 else [("return", rows[0])]:
        where = ", ".join(f"{param} {row[param]:.4g}" for param in result.grid)
        value, _, bounds = with_interval(row["return_mean"], (row["ci_low"], row["ci_high"])).partition(" ")
        lines.append(f"{name}  [bold green]{value}[/]{bounds and ' ' + bounds}  at {escape(where)}")
    episodes = rows[0]["episodes"]
    where = f"at each of {len(rows)} points" if len(rows) > 1 else "at one point"
    how = counted(episodes, "episode")
    method = " (95 % bootstrap)" if episodes > 1 else ""
    lines.append(f"{after_epoch(epoch)}, {how} {where}{method}")
    if result.note:
        lines.append(f"[yellow]{escape(result.note)}[/]")
    lines += [escape(str(path)) for path in files]
    return Panel("\n".join(lines), title="robustness", title_align="left", expand=False)
