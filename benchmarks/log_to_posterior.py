"""From the log of a robot, as a laboratory's script writes it, to a posterior of its parameters: is each step right?

Usage: python benchmarks/log_to_posterior.py [--part import] [--robots pendulum double_pendulum] [--runs 5] [--check]
       python benchmarks/log_to_posterior.py --part amortized directed wrong --logs 20     # continues where it stopped
       python benchmarks/log_to_posterior.py --judge

The robots are Gymnasium's Pendulum-v1 and InvertedDoublePendulum-v5 with steps of 20 ms, driven by a plain loop with a
new random command in each row; metaroll is not used before the CSV file exists. A ``column`` is one kind of error
that logs of laboratories have: noisy time stamps, an early first one, a slow clock, time since 1970 in ns, sensor noise
(as a share of each channel's range). In ``late`` the loop itself wakes up to 1 ms late, then reads its sensors, sets
the command and stamps the row.

``import``: the rollouts of ``load_log``. The gain is the slope of imported commands over the true ones, which are time
averages over each step of the commands that acted; steps begin at the first row. The share counts commands that are
right to 2 % of their range. Bars: gain within 1 % of 1, and 99 % right.

``amortized``: one posterior per column, learned from simulations only and conditioned on 200 logs (with the same known
commands and initial states; parameters from the prior). Bar: 90 % intervals hold 82 to 96.5 % of each parameter.

``directed``: ``infer`` with its defaults, on logs with their own commands, initial states and parameters. Bars:
intervals of at least 14 of 20 logs hold in every column, 85 to 94.5 % pooled; for parameters that ``infer`` calls
identified in most logs, standard deviations at most 1.25 times those with exact stamps at equal noise, and at most 0.4
of the prior's; right models called "do not train" in at most 5 % pooled; estimated noise within a factor of 1.5, and
below 0.1 % of the range where there is none.

``wrong``: pendulums with Coulomb friction, or with commands that act two steps late, which the simulator lacks. Bar:
36 of 40 are called "do not train". Residuals of the best fit are in standard deviations of the noise.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from _reporting import read_results, report, versions

DT, ROWS, QUICK_ROWS = 0.02, 1500, 300
EPOCH_NS = 1_764_000_000_000_000_000
GAIN, SHARE, RIGHT = 0.01, 0.99, 0.02
LOGGED, AMORTIZED_ROWS, AMORTIZED_LOGS, NOISE_LOGS = 5, 50, 200, 10
"""Runs per log from which parameters are inferred; rows and number of the logs of an amortized posterior, and how many
of them its noise is estimated from."""
INFERRED = ("held", "truth", "intervals", "of_prior", "trusted", "verdict", "failed", "noise_of_range", "residual")
"""Keys of a directed posterior's line. If ``load_log`` makes equal rows of two columns, both get the same values."""
FRICTION, DELAY, WRONG_NOISE = 0.4, 2, 0.005
"""Coulomb friction in N m, delay in steps, and sensor noise of the robots that the simulator cannot represent."""
IDENTIFIED = 0.5
"""``infer`` calls a parameter identified if its standard deviation is below this share of the prior's."""


class NeverTerminates(gymnasium.Wrapper):
    """Continues after the robot has fallen, as the real one does."""

    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = self.env.step(action)
        return observation, reward, False, truncated, info


class Robot(NamedTuple):
    """An environment of Gymnasium in the role of the robot.

    Attributes:
        env: Name of the environment.
        labels: Labels of its observations.
        states: Labels of its state; empty if logs do not record it.
        hold: ``hold(env, command, seconds)`` integrates under a constant command.
        observe: Returns the current observation, followed by the state if logs record it.
        state: Returns the current state, in the form of the simulator's ``options["init_state"]``.
        limit: Largest command.
        substep: Longest integration step, in s.
        prior: Parameter -> bounds of its uniform prior.
        change: Sets parameters of an environment.
        rows: Rows per run of a log from which parameters are inferred.
    """

    env: str
    labels: tuple[str, ...]
    states: tuple[str, ...]
    hold: Callable[[Any, float, float], None]
    observe: Callable[[Any], np.ndarray]
    state: Callable[[Any], np.ndarray]
    limit: float
    substep: float
    prior: Mapping[str, tuple[float, float]]
    change: Callable[[Any, Mapping[str, float]], None]
    rows: int

    def make(self) -> Any:
        """The environment with steps of ``DT`` seconds."""
        if self.env == "Pendulum-v1":
            env = gymnasium.make(self.env)
            env.unwrapped.dt = DT
        else:
            env = NeverTerminates(gymnasium.make(self.env, frame_skip=round(DT / self.substep)))
            env.unwrapped.model.opt.timestep = self.substep
        return env


def hold_pendulum(env: Any, command: float, seconds: float) -> None:
    env.dt = seconds
    env.step(np.array([command]))


def hold_with_friction(env: Any, command: float, seconds: float) -> None:
    hold_pendulum(env, command - FRICTION * np.tanh(20.0 * env.state[1]), seconds)


def hold_mujoco(env: Any, command: float, seconds: float) -> None:
    env.model.opt.timestep = seconds
    env.do_simulation(np.array([command]), 1)


def change_mujoco(env: Any, params: Mapping[str, float]) -> None:
    import mujoco

    for name, value in params.items():
        kind, _, what = name.partition(":")
        if kind == "body_mass":
            env.model.body(what).mass = value
        else:
            env.model.dof_damping *= value
    mujoco.mj_setConst(env.model, env.data)


def observe_mujoco(env: Any) -> np.ndarray:
    return np.concatenate([env._get_obs(), env.data.qpos, env.data.qvel])


DOUBLE_LABELS = ("x", "sin_1", "sin_2", "cos_1", "cos_2", "x_dot", "theta_1_dot", "theta_2_dot", "force")
ROBOTS = {
    "pendulum": Robot(
        "Pendulum-v1",
        ("cos", "sin", "speed"),
        (),
        hold_pendulum,
        lambda env: env._get_obs(),
        lambda env: np.array(env.state),
        2.0,
        0.05,
        {"m": (0.5, 1.5), "l": (0.5, 1.5)},
        lambda env, params: vars(env).update(params),
        300,
    ),
    "double_pendulum": Robot(
        "InvertedDoublePendulum-v5",
        DOUBLE_LABELS,
        ("q_x", "q_1", "q_2", "v_x", "v_1", "v_2"),
        hold_mujoco,
        observe_mujoco,
        lambda env: np.concatenate([env.data.qpos, env.data.qvel]),
        1.0,
        0.005,
        {"body_mass:pole": (2.0, 7.0), "body_mass:pole2": (2.0, 7.0), "dof_damping:*": (0.2, 3.0)},
        change_mujoco,
        100,
    ),
}


class Column(NamedTuple):
    """How a log deviates from what happened: times in s, noise as a share of each channel's range."""

    stamp_noise: float = 0.0
    late: float = 0.0
    first_early: float = 0.0
    clock: float = 1.0
    epoch_ns: bool = False
    sensor_noise: float = 0.0
    channel_noise: tuple[float, ...] = (0.0,)  # added to ``sensor_noise``, for each channel


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
CONTROL = "as-late"
"""Column of the double pendulum with exact stamps and the noise that ``infer`` estimates in ``late`` (medians of 20
logs, as shares of the range: observations, of which forces have none, then states)."""
_OBSERVED_LATE = (1.9e-5, 4.8e-5, 5.4e-5, 2.9e-5, 4.4e-5, 1.5e-5, 4.3e-5, 7.3e-5, 0.0)
COLUMNS[CONTROL] = Column(channel_noise=(*_OBSERVED_LATE, 4.6e-5, 1.6e-5, 2.6e-5, 7.0e-4, 5.9e-4, 6.4e-4))


class Run(NamedTuple):
    """What really happened: times of rows in s ``(N,)``, observations ``(N, O)``, commands ``(N,)``, first state."""

    begins: np.ndarray
    observations: np.ndarray
    commands: np.ndarray
    start: np.ndarray


def drive(
    robot: Robot,
    rows: int,
    late: float,
    generator: np.random.Generator,
    params: Mapping[str, float] | None = None,
    delay: int = 0,
) -> Run:
    """Run a loop that reads sensors and sets a new command every ``DT`` seconds, or up to ``late`` seconds later."""
    env = gymnasium.make(robot.env).unwrapped
    robot.change(env, params or {})
    env.reset(seed=int(generator.integers(2**31)))
    start = robot.state(env).astype(np.float64)
    commands = generator.uniform(-robot.limit, robot.limit, size=rows)
    begins = DT * np.arange(rows) + late * generator.uniform(size=rows)
    acting = np.concatenate([np.zeros(delay), commands])[:rows]
    observations = []
    for row, command in enumerate(acting):
        observations.append(np.array(robot.observe(env), dtype=np.float64))
        if row + 1 < rows:
            seconds = begins[row + 1] - begins[row]
            substeps = int(np.ceil(seconds / robot.substep - 1e-6))
            for _ in range(substeps):
                robot.hold(env, float(command), seconds / substeps)
    env.close()
    return Run(begins, np.array(observations), commands, start)


def write_log(
    run: Run, robot: Robot, column: Column, path: Path, generator: np.random.Generator, ranges: np.ndarray
) -> None:
    """Write a run as CSV with the errors of ``column``; ``ranges (O,)`` are those of the observations."""
    stamps = column.clock * run.begins + column.stamp_noise * generator.normal(size=len(run.begins))
    stamps[0] -= column.first_early
    noise = (column.sensor_noise + np.array(column.channel_noise)) * ranges
    observations = run.observations + noise * generator.normal(size=run.observations.shape)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["t", *robot.labels, *robot.states, "u"])
        for stamp, observed, command in zip(stamps, observations, run.commands, strict=True):
            time_ = EPOCH_NS + round(stamp * 1e9) if column.epoch_ns else repr(float(stamp))
            writer.writerow([time_, *(repr(float(value)) for value in observed), repr(float(command))])


def mapping_of(robot: Robot, column: Column) -> dict[str, Any]:
    unit = "ns" if column.epoch_ns else "s"
    mapping = {"time": {"column": "t", "unit": unit}, "observations": list(robot.labels), "actions": ["u"], "dt": DT}
    return {**mapping, "states": list(robot.states)} if robot.states else mapping


def imported(runs: Sequence[Run], robot: Robot, column: Column, generator: np.random.Generator, ranges: Any) -> list:
    """Rollouts that ``load_log`` makes of the files of the laboratory's loop, one file for each run."""
    from metaroll.lab import load_log

    rollouts = []
    with tempfile.TemporaryDirectory() as folder:
        for number, run in enumerate(runs):
            path = Path(folder) / f"log-{number}.csv"
            write_log(run, robot, column, path, generator, ranges)
            rollouts += load_log(path, mapping_of(robot, column))
    return rollouts


def mean_commands(run: Run, num_steps: int) -> np.ndarray:
    """Time averages ``(num_steps,)`` of commands over steps from the first row on, computed without metaroll."""
    integral = np.append(0.0, np.cumsum(run.commands[:-1] * np.diff(run.begins)))
    return np.diff(np.interp(run.begins[0] + DT * np.arange(num_steps + 1), run.begins, integral)) / DT


def measure_import(name: str, label: str, args: argparse.Namespace) -> bool:
    robot, column = ROBOTS[name], COLUMNS[label]
    rows, gains, shares, timing = QUICK_ROWS if args.check else ROWS, [], [], {}
    for number in range(1 if args.check else args.runs):
        generator = np.random.default_rng([number, list(ROBOTS).index(name), list(COLUMNS).index(label)])
        run = drive(robot, rows, column.late, generator)
        [log] = imported([run], robot, column, generator, np.ptp(run.observations, axis=0))
        truth, commands = mean_commands(run, len(log)), log.actions[:, 0]
        gains.append(float(np.polyfit(truth, commands, 1)[0]))
        shares.append(float(np.mean(np.abs(commands - truth) <= RIGHT * 2.0 * robot.limit)))
        timing = log.rollout_info["log"]["timing"]
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
            "timing": timing["rows"],
            "really_off": timing["really_off"],
            "passed": passed,
        },
        versions=versions("metaroll", "gymnasium", "mujoco", "numpy"),
    )
    return passed


# ------------------------------------------------------------------------------------------------------- posteriors
def draw_params(robot: Robot, generator: np.random.Generator) -> dict[str, float]:
    return {name: float(generator.uniform(*bounds)) for name, bounds in robot.prior.items()}


def measure_amortized(name: str, label: str, args: argparse.Namespace) -> bool:
    """Condition one posterior on many logs with the same commands and initial states."""
    from metaroll.configs.inference import InferenceOptions
    from metaroll.inference.neural import NPDR
    from metaroll.inference.priors import as_prior
    from metaroll.lab.inferring.inferring import infer_config, noise_of_sensors, segment_sampler

    robot, column = ROBOTS[name], COLUMNS[label]
    settings = {"part": "amortized", "robot": name, "column": label, "logs": AMORTIZED_LOGS}
    if not args.check and settings in done_configs():
        return True
    start, prior, rows = time.perf_counter(), as_prior(robot.prior), AMORTIZED_ROWS
    ranges = np.ptp(drive(robot, rows, 0.0, np.random.default_rng(0)).observations, axis=0)
    options = InferenceOptions(hold_out=0, segment_length=rows, num_simulations=200 if args.check else 2000)
    truths, recorded = [], []
    for number in range(3 if args.check else AMORTIZED_LOGS):
        generator = np.random.default_rng([1, number, list(ROBOTS).index(name), list(COLUMNS).index(label)])
        truths.append(draw_params(robot, generator))
        runs = [drive(robot, rows, column.late, np.random.default_rng(run), truths[-1]) for run in range(LOGGED - 1)]
        recorded.append(imported(runs, robot, column, generator, ranges))
    # All logs have the same initial states, which are given exactly, and the same noise, which simulations share: from
    # its 200 rows alone, a log could estimate it only to 10 or 20 %.
    begin = partial(nearest_start, {float(run.commands[0]): run.start for run in runs})
    noisy = [rollout for logs in recorded[:NOISE_LOGS] for rollout in logs]
    noise = noise_of_sensors(robot.make, noisy, prior, options, begin)
    samplers = [segment_sampler(robot.make, logs, prior, options, noise, begin) for logs in recorded]
    features = [sampler.target_features().numpy()[0] for sampler in samplers]
    learner = NPDR(prior, infer_config(options))
    posterior = learner.infer(lambda thetas: samplers[0](thetas).numpy(), None, options.num_simulations)
    drawn = posterior.sample(500, 0, observed=np.array(features))
    low, high = np.quantile(drawn, [0.05, 0.95], axis=1)
    values = np.array([list(truth.values()) for truth in truths])
    held = dict(zip(prior.names, ((values >= low) & (values <= high)).mean(axis=0).tolist(), strict=True))
    share = drawn.std(axis=1).mean(axis=0) / prior.std
    of_prior = dict(zip(prior.names, share.tolist(), strict=True))
    unit = "share of logs, least of the parameters"
    report_line(args, "coverage", min(held.values()), unit, settings, start, held=held, of_prior=of_prior)
    return all(0.82 <= one <= 0.965 for one in held.values())


def nearest_start(start_of: Mapping[float, np.ndarray], segment: Any) -> np.ndarray:
    """First state of the run whose first command is that of the segment."""
    return start_of[min(start_of, key=lambda command: abs(command - float(segment.actions[0, 0])))]


def measure_directed(name: str, label: str, args: argparse.Namespace) -> bool:
    robot, column = ROBOTS[name], COLUMNS[label]
    for number in range(1 if args.check else args.logs):
        settings = {"part": "directed", "robot": name, "column": label, "rows": robot.rows, "log": number}
        if not args.check and settings in done_configs():
            continue
        generator = np.random.default_rng([2, number, list(ROBOTS).index(name)])  # the same robots in every column
        infer_one(args, settings, robot, column, generator, robot.hold)
    return True


def measure_wrong(name: str, label: str, args: argparse.Namespace) -> bool:
    """Infer pendulums that the simulator cannot represent; in one column only."""
    if name != "pendulum" or label != "exact":
        return True
    robot, column = ROBOTS[name], Column(sensor_noise=WRONG_NOISE)
    for kind, hold, delay in (("friction", hold_with_friction, 0), ("delay", hold_pendulum, DELAY)):
        for number in range(1 if args.check else args.logs):
            settings = {"part": "wrong", "robot": name, "kind": kind, "rows": robot.rows, "log": number}
            if not args.check and settings in done_configs():
                continue
            infer_one(args, settings, robot, column, np.random.default_rng([3, number]), hold, delay)
    return True


def infer_one(
    args: argparse.Namespace,
    settings: Mapping[str, Any],
    robot: Robot,
    column: Column,
    generator: np.random.Generator,
    hold: Callable[[Any, float, float], None],
    delay: int = 0,
) -> None:
    """Log a robot with parameters from the prior, and report the result of ``infer`` with its defaults."""
    from metaroll.configs.inference import InferenceOptions
    from metaroll.lab import infer

    start, truth = time.perf_counter(), draw_params(robot, generator)
    driven = robot._replace(hold=hold)
    runs = [drive(driven, robot.rows, column.late, generator, truth, delay) for _ in range(LOGGED)]
    ranges = np.ptp(np.concatenate([run.observations for run in runs]), axis=0)
    logs = imported(runs, robot, column, generator, ranges)
    digest = digest_of(logs)
    for line in [] if args.check else read_results("log_to_posterior"):
        config = line["config"]
        if line.get("digest") == digest and config == {**settings, "column": config.get("column")}:
            same = {name: line[name] for name in INFERRED} | {"digest": digest, "same_as": config["column"]}
            report_line(args, line["metric"], line["value"], line["unit"], settings, start, **same)
            return
    options = InferenceOptions(num_simulations=200 if args.check else 2000, seed=int(settings["log"]))
    with tempfile.TemporaryDirectory() as folder:
        result = infer(robot.make, logs, robot.prior, folder, options, name=robot.env)
    rows = {row["name"]: row for row in result.rows()}
    held = {name: row["low"] <= truth[name] <= row["high"] for name, row in rows.items()}
    stds = np.array(list(result.noise["found"].values()))
    channel_ranges = ranges[: len(stds)]  # of the first observations; forces are not compared
    trace = result.traces[0]
    residuals = np.nanmean(trace.simulated, axis=0) - trace.recorded
    noise = np.maximum(column.sensor_noise * channel_ranges, 1e-9)
    report_line(
        args,
        "held",
        sum(held.values()),
        "parameters in their 90 % interval",
        settings,
        start,
        held=held,
        truth=truth,
        intervals={name: [row["low"], row["high"]] for name, row in rows.items()},
        of_prior={name: row["share_of_prior_std"] for name, row in rows.items()},
        trusted=result.trusted,
        verdict=result.checks["text"],
        failed=[check["name"] for check in result.checks["checks"] if check["outcome"] == "failed"],
        noise_of_range=(stds / channel_ranges).tolist(),
        residual=float(np.max(np.sqrt(np.nanmean(residuals**2, axis=0)) / noise)) if column.sensor_noise else None,
        digest=digest,
    )


def digest_of(logs: Sequence[Any]) -> str:
    """Digest of the rollouts that ``infer`` gets; equal for columns of which ``load_log`` makes the same rows."""
    digest = hashlib.sha256()
    for log in logs:
        for name in ("observations", "actions", *(["states"] if "states" in log.data_names else [])):
            digest.update(np.ascontiguousarray(log.get_data_values(name), dtype=np.float64).tobytes())
    return digest.hexdigest()[:16]


def report_line(
    args: Any, metric: str, value: float, unit: str, settings: Mapping[str, Any], start: float, **more: Any
) -> None:
    seconds = round(time.perf_counter() - start, 1)
    report(
        *("log_to_posterior", args.check),
        peer="none",
        metric=metric,
        value=value,
        unit=unit,
        config=settings,
        seconds=seconds,
        versions=versions("metaroll", "gymnasium", "mujoco", "numpy", "sbi", "torch"),
        **more,
    )


def done_configs() -> list[dict[str, Any]]:
    return [line["config"] for line in read_results("log_to_posterior")]


def judge() -> int:
    """Print the stored figures of all parts beside their bars; returns 1 if one is missed."""
    missed: list[str] = []

    def show(text: str, good: bool) -> None:
        print(text, "" if good else "  !")
        missed.extend([] if good else [text])

    lines = {
        part: [line for line in read_results("log_to_posterior") if line["config"]["part"] == part] for part in PARTS
    }
    for line in lines["amortized"]:
        settings, held = line["config"], line["held"]
        text = ", ".join(f"{name} {one:.1%}" for name, one in held.items())
        good = all(0.82 <= one <= 0.965 for one in held.values())
        show(f"amortized {settings['robot']:15} {settings['column']:10} {text} of {settings['logs']} logs", good)
    columns: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines["directed"]:
        columns[line["config"]["robot"], line["config"]["column"]].append(line)
    exact = {robot: _deviations(group) for (robot, label), group in columns.items() if label == "exact"}
    equal_noise = exact | {robot: _deviations(group) for (robot, label), group in columns.items() if label == CONTROL}
    for (robot, label), group in columns.items():
        held = np.array([list(line["held"].values()) for line in group], dtype=float)
        widths = _deviations(group)
        text = f"directed {robot:15} {label:11} {len(group):2} logs, hold {held.mean(axis=0).round(2).tolist()}"
        text += f", of the prior {widths.round(3).tolist()}"
        wider = np.ones(1)
        if robot in exact and not COLUMNS[label].sensor_noise:
            wider = widths / (equal_noise if label == "late" else exact)[robot]
            text += f", over exact {(widths / exact[robot]).round(2).tolist()}"
            text += f", at equal noise {wider.round(2).tolist()}" if label == "late" else ""
        share = COLUMNS[label].sensor_noise
        noise = np.array([line["noise_of_range"] for line in group])
        factor = np.exp(np.abs(np.log(np.maximum(noise, 1e-9) / share)).max()) if share else noise.max()
        text += f", noise {'off by a factor of' if share else 'at most, as a share of the range,'} {factor:.4f}"
        good = (held.mean(axis=0) >= 0.7).all() and (factor <= 1.5 if share else factor < 0.001)
        good = good and (label == CONTROL or (wider <= 1.25).all())
        below = [[value < IDENTIFIED for value in line["of_prior"].values()] for line in group]
        identified = np.mean(below, axis=0) > 0.5
        text += "" if identified.all() else f", {int((~identified).sum())} called not identified"
        show(text, bool(good and identified.any() and (widths <= 0.4)[identified].all()))
    demanded = [line for line in lines["directed"] if line["config"]["column"] != CONTROL]
    if demanded:
        every = [value for line in demanded for value in line["held"].values()]
        show(f"pooled: {np.mean(every):.1%} of {len(every)} hold", 0.85 <= float(np.mean(every)) <= 0.945)
        refused = sum(not line["trusted"] for line in demanded)
        show(f"right models called 'do not train': {refused} of {len(demanded)}", refused <= 0.05 * len(demanded))
    if lines["wrong"]:
        flagged = sum(not line["trusted"] for line in lines["wrong"])
        least = min(line["residual"] for line in lines["wrong"])
        text = f"wrong models called 'do not train': {flagged} of {len(lines['wrong'])}, least residual {least:.1f}"
        show(text, flagged >= 0.9 * len(lines["wrong"]))
    return int(bool(missed))


def _deviations(lines: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Means over logs of the posterior's standard deviations over the prior's, ``(d,)``."""
    return np.mean([list(line["of_prior"].values()) for line in lines], axis=0)


PARTS = {
    "import": measure_import,
    "amortized": measure_amortized,
    "directed": measure_directed,
    "wrong": measure_wrong,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", nargs="+", default=["import"], choices=list(PARTS))
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    parser.add_argument("--columns", nargs="+", default=list(COLUMNS), choices=list(COLUMNS))
    parser.add_argument("--runs", type=int, default=5, help="runs of the part import")
    parser.add_argument("--logs", type=int, default=20, help="logs of each column, or of each kind of wrong model")
    parser.add_argument(
        "--check", action="store_true", help="short logs, nothing appended; status 1 if a bar is missed"
    )
    parser.add_argument("--quick", action="store_true", help="the same, and status 0")
    parser.add_argument("--judge", action="store_true", help="compare the stored results with the bars")
    args = parser.parse_args()
    if args.judge:
        return judge()
    warnings.simplefilter("ignore")
    args.check, strict = args.check or args.quick, args.check
    passed = [
        PARTS[part](robot, column, args)
        for part in args.part
        for robot in args.robots
        for column in args.columns
        if column != CONTROL or (part, robot) == ("directed", "double_pendulum")
    ]
    if strict and not all(passed):
        print(f"{passed.count(False)} of {len(passed)} bars are missed", file=sys.stderr)
    return int(strict and not all(passed))


if __name__ == "__main__":
    sys.exit(main())
