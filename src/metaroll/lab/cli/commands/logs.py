"""The command ``import-log``: turns robot logs into a folder of checked and resampled rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from gymnasium.spaces import Box

from metaroll.errors import UsageError, blame_input, named_as
from metaroll.lab.cli.options import Output, Switch, parse_command, unset
from metaroll.lab.display.consoles import escape

if TYPE_CHECKING:
    from metaroll.data.step_sequence import StepSequence

__all__ = ["import_log"]

_MOST_FILES = 10_000


@dataclass(frozen=True, kw_only=True)
class _ImportArguments:
    mapping: Annotated[str | None, unset("FILE", "the log describes its own columns")] = None
    """YAML or JSON file that maps columns to observations, actions and time, with their units."""
    out: str = "rollouts"
    """Folder for the rollouts."""
    env: Annotated[str | None, unset("ENV", "labels and time step of the mapping")] = None
    """Simulator that the rollouts take labels, action bounds and time step from, for example qcp-su."""
    dt: Annotated[float | None, unset("FLOAT", "that of the mapping, else of --env, else of the log")] = None
    """Seconds per step."""
    overwrite: Switch = False
    """Replace rollouts that are already in the folder."""
    output: Output = field(default_factory=Output)


def import_log(arguments: Sequence[str]) -> None:
    """Write the rollouts in logs to a folder."""
    about = (
        "LOG is a .csv, .npz or .parquet file, the .jsonl file of a RealEnv, the folder of a Minari data set, or "
        "minari:ID (on this machine). See docs/robot_logs.md for a mapping file."
    )
    usage, missing = "metaroll import-log LOG ... --mapping FILE --out FOLDER [options]", "the log is missing"
    names, args = parse_command(_ImportArguments, arguments, usage, about, missing, _MOST_FILES)
    from metaroll.checks import check_number
    from metaroll.data.recordings import save_rollouts
    from metaroll.lab.display.json_output import print_json
    from metaroll.lab.inferring.log_checks import lag_of
    from metaroll.lab.logs.importing import load_log
    from metaroll.lab.logs.lags import lag_text
    from metaroll.lab.logs.mapping import LogMapping
    from metaroll.lab.logs.plausibility import check_log

    with blame_input():
        dt = None if args.dt is None else check_number("--dt", args.dt, 0.0, above_low=True)
        spec, own_dt, simulated = (None, None, []) if args.env is None else _simulator(args.env)
        mapping = None if args.mapping is None else LogMapping.load(args.mapping)
        if mapping is not None:
            mapping = mapping.with_dt(own_dt) if dt is None else replace(mapping, dt=dt)
        rollouts = [
            rollout
            for name in names
            for rollout in load_log(name, mapping, env_spec=spec, dt=own_dt if dt is None else dt)
        ]
        with named_as({"overwrite": "--overwrite"}):
            paths = save_rollouts(rollouts, Path(args.out).expanduser(), overwrite=args.overwrite)
    facts = [_facts(path, rollout) for path, rollout in zip(paths, rollouts, strict=True)]
    console = args.output.console()
    for fact in facts:
        seconds = "" if fact["dt"] is None else f", {fact['steps'] * fact['dt']:.6g} s in steps of {fact['dt']:g} s"
        console.print(escape(f"{fact['file']}  {fact['steps']} steps{seconds}, from {fact['log']}"), soft_wrap=True)
        for line in fact["timing"]:
            console.print(escape(f"  {line}"), soft_wrap=True)
    ranges = _ranges(rollouts)
    for name, (column, low, high) in ranges.items():
        console.print(escape(f"  {name:28} {low:12.5g} to {high:<12.5g} {column}".rstrip()), soft_wrap=True)
    findings = check_log(rollouts, simulated, own_dt)
    for finding in findings:
        console.print(escape(f"  check: {finding.text}"), soft_wrap=True)
    lag = lag_of(rollouts)
    if lag is not None:
        console.print(escape(f"  {lag_text(lag, facts[0]['dt'])}"), soft_wrap=True)
    if args.output.json:
        document = {"folder": str(Path(args.out).expanduser()), "rollouts": facts}
        document["ranges"] = {name: [low, high] for name, (_, low, high) in ranges.items()}
        document["findings"] = [finding._asdict() for finding in findings]
        document["lag"] = None if lag is None or not lag.is_known else lag._asdict()
        print_json(document)


def _simulator(name: str) -> tuple[Any, float | None, list[StepSequence]]:
    """Spec, time step and some rollouts of an environment."""
    from metaroll.envs.base.env_state import time_step_of
    from metaroll.envs.lookup.source import EnvSource
    from metaroll.lab.inferring.log_checks import random_rollouts
    from metaroll.types import EnvSpec

    try:
        env = EnvSource.of(name).make()
    except TypeError as error:
        raise UsageError(f"--env must name an environment, got {name!r}: {error}") from error
    try:
        return EnvSpec.from_env(env), time_step_of(env), random_rollouts(env)
    finally:
        env.close()


def _facts(path: Path, rollout: StepSequence) -> dict[str, Any]:
    from metaroll.lab.logs.timing import gaps_text, missing_text, timing_text

    info = rollout.rollout_info or {}
    log = info.get("log", {})
    parts = [str(log.get("file", "a recording"))] + [f"{key} {log[key]}" for key in ("episode", "end") if key in log]
    timing, lines = log.get("timing"), []
    if timing is not None:
        choices = not isinstance(info["env_spec"].action_space, Box)
        steps_text = timing_text(timing, info["dt"], choices=choices)
        texts = (steps_text, gaps_text(timing["gaps"]), missing_text(log.get("missing") or []))
        lines = [line for line in texts if line]
    return {
        "file": str(path),
        "steps": len(rollout),
        "dt": info.get("dt"),
        "log": ", ".join(parts),
        "timing": lines,
    }


def _ranges(rollouts: Sequence[StepSequence]) -> dict[str, tuple[str, float, float]]:
    """Column and unit, lowest and highest value of each observation and action: a wrong unit shows here."""
    from metaroll.lab.logs.mapping import simulators_unit

    ranges: dict[str, tuple[str, float, float]] = {}
    for rollout in rollouts:
        info = rollout.rollout_info or {}
        spec, columns = info.get("env_spec"), info.get("log", {}).get("columns", {})
        for kind in ("observation", "action"):
            values = rollout.get_data_values(f"{kind}s")
            if not isinstance(values, np.ndarray) or values.ndim > 2 or not values.size:
                continue  # entries of other spaces, or images
            values = values.reshape(len(values), -1)
            mapped = columns.get(f"{kind}s") or []
            labels = [label for label, *_ in mapped] or getattr(spec, f"{kind}_labels", None) or []
            for i in range(values.shape[1]):
                name = f"{kind} {labels[i] if len(labels) == values.shape[1] else i}"
                column = ""
                if len(mapped) == values.shape[1]:
                    _, name_in_log, unit = mapped[i]
                    converted = f" -> {simulators_unit(unit)}" if simulators_unit(unit) != unit else ""
                    column = f"{name_in_log} [{unit or '-'}{converted}]"
                _, low, high = ranges.get(name, ("", float("inf"), -float("inf")))
                ranges[name] = (column, min(low, float(values[:, i].min())), max(high, float(values[:, i].max())))
    return ranges
