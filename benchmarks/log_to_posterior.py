"""From the log of a robot, as a script of a laboratory writes it, to what is known of the robot: is each part right?

Usage: python benchmarks/log_to_posterior.py [--part import] [--robots pendulum double_pendulum] [--runs 5] [--check]

The robots are Gymnasium's Pendulum-v1 and InvertedDoublePendulum-v5 with steps of 20 ms, driven by a plain loop with a
new random command in each row; nothing of metaroll is used before the CSV file is there. Its columns differ from what
happened as in laboratories: noise of time stamps, a first one that is early, a slow clock, time since 1970 in ns,
noise of sensors. In ``late`` the loop itself wakes up to 1 ms late, then reads its sensors, sets the command and stamps
the row.

``import``: what ``load_log`` makes of it. The gain is the slope of imported commands over the true ones, those that
acted during the steps, as means by time; steps begin at the first row. The share counts commands that are right to 2 %
of their range. Bars: gain within 1 % of 1, and 99 % right.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from _reporting import report, versions

DT, ROWS, QUICK_ROWS = 0.02, 1500, 300
EPOCH_NS = 1_764_000_000_000_000_000
GAIN, SHARE, RIGHT = 0.01, 0.99, 0.02
SUBSTEP = 0.005
"""Longest step of the integration, in s."""


class Robot(NamedTuple):
    """An environment of Gymnasium as the thing that is measured.

    Attributes:
        env: Its name.
        labels: Of its observations.
        hold: Integrate with a command for some seconds.
        observe: The present observation.
        limit: Largest command.
    """

    env: str
    labels: tuple[str, ...]
    hold: Callable[[Any, float, float], None]
    observe: Callable[[Any], np.ndarray]
    limit: float


def hold_pendulum(env: Any, command: float, seconds: float) -> None:
    env.dt = seconds
    env.step(np.array([command]))


def hold_mujoco(env: Any, command: float, seconds: float) -> None:
    env.model.opt.timestep = seconds
    env.do_simulation(np.array([command]), 1)


DOUBLE_LABELS = ("x", "sin_1", "sin_2", "cos_1", "cos_2", "x_dot", "theta_1_dot", "theta_2_dot", "force")
ROBOTS = {
    "pendulum": Robot("Pendulum-v1", ("cos", "sin", "speed"), hold_pendulum, lambda env: env._get_obs(), 2.0),
    "double_pendulum": Robot("InvertedDoublePendulum-v5", DOUBLE_LABELS, hold_mujoco, lambda env: env._get_obs(), 1.0),
}


class Column(NamedTuple):
    """How a log differs from what happened."""

    stamp_noise: float = 0.0
    late: float = 0.0
    first_early: float = 0.0
    clock: float = 1.0
    epoch_ns: bool = False
    sensor_noise: float = 0.0


COLUMNS = {
    "exact": Column(),
    "noise0.1ms": Column(stamp_noise=1e-4),
    "noise1ms": Column(stamp_noise=1e-3),
    "late": Column(late=1e-3),
    "early50us": Column(first_early=5e-5),
    "slow1e-5": Column(clock=1.0 - 1e-5),
    "epoch-ns": Column(epoch_ns=True),
    "sensors0.5%": Column(stamp_noise=1e-3, sensor_noise=0.005),
    "sensors2%": Column(stamp_noise=1e-3, sensor_noise=0.02),
}


class Made(NamedTuple):
    """What really happened: when rows began in s ``(N,)``, what was observed ``(N, O)``, and the commands ``(N,)``."""

    begins: np.ndarray
    observations: np.ndarray
    commands: np.ndarray


def drive(robot: Robot, rows: int, late: float, generator: np.random.Generator) -> Made:
    """A loop that reads sensors and sets a new command every ``DT`` seconds, or up to ``late`` seconds later."""
    env = gymnasium.make(robot.env).unwrapped
    env.reset(seed=int(generator.integers(2**31)))
    begins = DT * np.arange(rows) + late * generator.uniform(size=rows)
    commands = generator.uniform(-robot.limit, robot.limit, size=rows)
    observations = []
    for row, command in enumerate(commands):
        observations.append(np.array(robot.observe(env), dtype=np.float64))
        if row + 1 < rows:
            seconds = begins[row + 1] - begins[row]
            pieces = int(np.ceil(seconds / SUBSTEP))
            for _ in range(pieces):
                robot.hold(env, float(command), seconds / pieces)
    env.close()
    return Made(begins, np.array(observations), commands)


def write_log(made: Made, robot: Robot, column: Column, path: Path, generator: np.random.Generator) -> None:
    stamps = column.clock * made.begins + column.stamp_noise * generator.normal(size=len(made.begins))
    stamps[0] -= column.first_early
    spread = made.observations.std(axis=0)
    observations = made.observations + column.sensor_noise * spread * generator.normal(size=made.observations.shape)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["t", *robot.labels, "u"])
        for stamp, observed, command in zip(stamps, observations, made.commands, strict=True):
            time = EPOCH_NS + round(stamp * 1e9) if column.epoch_ns else repr(float(stamp))
            writer.writerow([time, *(repr(float(value)) for value in observed), repr(float(command))])


def mapping_of(robot: Robot, column: Column) -> dict[str, Any]:
    unit = "ns" if column.epoch_ns else "s"
    return {"time": {"column": "t", "unit": unit}, "observations": list(robot.labels), "actions": ["u"], "dt": DT}


def acted(made: Made, num_steps: int) -> np.ndarray:
    """Means of what acted in the steps that begin at the first row, by an integral of its own."""
    integral = np.append(0.0, np.cumsum(made.commands[:-1] * np.diff(made.begins)))
    return np.diff(np.interp(made.begins[0] + DT * np.arange(num_steps + 1), made.begins, integral)) / DT


def measure_import(name: str, label: str, args: argparse.Namespace) -> bool:
    from metaroll import load_log

    robot, column = ROBOTS[name], COLUMNS[label]
    rows, gains, shares, done = QUICK_ROWS if args.check else ROWS, [], [], {}
    for run in range(1 if args.check else args.runs):
        generator = np.random.default_rng([run, list(ROBOTS).index(name), list(COLUMNS).index(label)])
        made = drive(robot, rows, column.late, generator)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.csv"
            write_log(made, robot, column, path, generator)
            [log] = load_log(path, mapping_of(robot, column))
        imported = log.actions[:, 0]
        truth = acted(made, len(imported))
        gains.append(float(np.polyfit(truth, imported, 1)[0]))
        shares.append(float(np.mean(np.abs(imported - truth) <= RIGHT * 2.0 * robot.limit)))
        done = log.rollout_info["log"]["timing"]
    gain, share = max(gains, key=lambda one: abs(one - 1.0)), min(shares)
    passed = abs(gain - 1.0) <= GAIN and share >= SHARE
    report(
        "log_to_posterior",
        args.check,
        peer="none",
        metric="gain_of_actions",
        value=gain,
        unit="slope over what acted, worst of the runs",
        config={
            "part": "import",
            "robot": name,
            "column": label,
            "rows": rows,
            "runs": len(gains),
            "gains": [round(one, 5) for one in gains],
            "right": share,
            "timing": done["rows"],
            "really_off": done["really_off"],
            "passed": passed,
        },
        versions=versions("metaroll", "gymnasium", "mujoco", "numpy"),
    )
    return passed


PARTS = {"import": measure_import}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    parser.add_argument("--columns", nargs="+", default=list(COLUMNS), choices=list(COLUMNS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--check", action="store_true", help="short logs, nothing appended; status 1 where a bar is missed"
    )
    parser.add_argument("--quick", action="store_true", help="the same, and status 0")
    args = parser.parse_args()
    args.check, strict = args.check or args.quick, args.check
    passed = [
        PARTS[part](robot, column, args) for part in args.part for robot in args.robots for column in args.columns
    ]
    if strict and not all(passed):
        sys.exit(f"{passed.count(False)} of {len(passed)} bars are missed")


if __name__ == "__main__":
    main()
