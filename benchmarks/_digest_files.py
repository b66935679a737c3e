"""Cases of ``digests.py``: contents of files, decoded to arrays, without times, versions and paths.

Versions may arrange a snapshot differently, so all numbers in it are compared as a set.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from _digest_learning import MAML, NARROW, PEARL, PPO, RL2, SMALL, TINY, UNIFORM, add_actions, make_agent, train_agent
from _digest_measures import PRIOR, comparable, simulate_swing
from _digest_parts import Cases, Parts
from _digest_parts import names as m
from safetensors.numpy import load_file

__all__ = ["CASES"]

CASES = Cases()

TIMES = ("seconds", "time", "versions", "path", "environment")
"""Keys whose values differ from run to run or from machine to machine."""


# -- folders of runs ---------------------------------------------------------------------------------------------------


def add_run(parts: Parts, folder: Path, name: str = "run") -> None:
    """Record the metrics, the summary and the newest snapshot of a run."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    for line in map(json.loads, lines):
        if line["phase"] != "time":
            where = "" if line["task"] is None else f" of {line['task']}"
            parts.add(f"{name} metrics {line['phase']}/{line['metric']}{where}", line["value"])
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    parts.add_all(f"{name} summary", {key: comparable(value) for key, value in summary.items() if key not in TIMES})
    snapshots = sorted((folder / "snapshots").iterdir())
    parts.add(f"{name} snapshots", [snapshot.name for snapshot in snapshots])
    arrays = [array for path in snapshots[-1].rglob("*.safetensors") for array in load_file(path).values()]
    for kinds, word in (("f", "floats"), ("iu", "whole numbers")):
        parts.add_weights(f"{name} snapshot {word}", [array for array in arrays if array.dtype.kind in kinds])


def add_config(parts: Parts, folder: Path) -> None:
    """Record each option of ``config.yaml`` under its section and its former name, if it had one."""
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    for section in ("run", "algorithm", "evaluation"):
        for name, value in config[section].items():
            parts.add(
                f"{section} {_former_names(config['algo']).get(name, name)}",
                value if isinstance(value, int | float | str | None) else str(value),
            )


_NEVER_OPTIONS = ("use_next_obs",)
"""Former names of fields that were never names of options: configurations of runs always had today's name."""


def _former_names(algo: str) -> dict[str, str]:
    """Option -> former name; empty in a checkout without a table of options."""
    try:
        from metaroll.configs.table import run_options
    except ImportError:
        return {}
    return {option.name: option.was for option in run_options(algo) if option.was not in ("", *_NEVER_OPTIONS)}


def saving(name: str, env: str, quick: bool = False, adapts: bool = False, **options: Any) -> None:
    """Add two cases: the folder of a run, whose agent is loaded and trained further, and the options of the run."""

    def run(parts: Parts, folder: Path) -> None:
        add_run(parts, train_agent(Parts(), folder, name, env, epochs=2, **options).run_dir)
        loaded: Any = m.load(folder / "run")
        add_actions(parts, loaded, adapts)
        loaded.learn(epochs=1, progress=False)
        add_run(parts, loaded.run_dir, "continued")

    def config(parts: Parts, folder: Path) -> None:
        add_config(parts, train_agent(Parts(), folder, name, env, epochs=1, **options).run_dir)

    CASES.add(f"files of {name}", run, quick)
    CASES.add(f"options of {name}", config)


saving("ppo", "Pendulum-v1", quick=True, **PPO)
saving("sac", "Pendulum-v1", quick=True, **UNIFORM, **SMALL)
saving("td3", "Pendulum-v1", **UNIFORM, **SMALL)
saving("dqn", "CartPole-v1", evaluate_every=0, max_path_length=60, steps_per_epoch=2, priority_exponent=0.6)
saving("tqc", "Pendulum-v1", **UNIFORM, **SMALL)
saving("rsac", "Pendulum-v1", **{**UNIFORM, "n_train_steps": 5, "buffer_batch_size": 64}, hidden_size=8)
saving("cmaes", "CartPole-v1", evaluate_every=1, max_path_length=60)
saving("pgpe", "CartPole-v1", evaluate_every=1, max_path_length=60)
saving("hill-climbing", "CartPole-v1", evaluate_every=1, max_path_length=60)
saving("pearl", "point-robot", quick=True, adapts=True, **PEARL, **NARROW)
saving("rl2", "bandit-5", adapts=True, **RL2, trials_per_epoch=50, batch_size=200)
saving("maml", "point-navigation", adapts=True, **MAML, **TINY)
saving("promp", "point-navigation", adapts=True, **MAML, **TINY)


# -- the command line --------------------------------------------------------------------------------------------------


def command(folder: Path, *arguments: str) -> Any:
    """Run ``metaroll ARGUMENTS --json`` in ``folder``, and return the JSON that it prints.

    Raises:
        RuntimeError: The command fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", "metaroll", *arguments, "--json"],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"metaroll {' '.join(arguments)} ended with status {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


@CASES.case("files of the command line", quick=True)
def command_line(parts: Parts, folder: Path) -> None:
    """A run that is trained, continued and evaluated by commands."""
    options = ["--steps-per-epoch", "400", "--evaluate-every", "1", "--num-episodes", "3", "--torch-threads", "1"]
    command(folder, "train", "ppo", "Pendulum-v1", "--out", "run", "--epochs", "2", *options)
    command(folder, "resume", "run", "--epochs", "3")
    add_run(parts, folder / "run")
    result = command(folder, "evaluate", "run")
    parts.add_all("evaluation", {key: value for key, value in comparable(result).items() if key not in TIMES})


@CASES.case("files of an inference")
def inference(parts: Parts, folder: Path) -> None:
    """``metaroll infer`` on three rollouts of a pendulum, and an agent that trains on draws of the posterior."""
    robot = m.PendulumEnv(domain_param={"pole_mass": 0.8, "pole_length": 1.2}, max_steps=60)
    torques = np.random.default_rng(0).uniform(-1.0, 1.0, (3, 60))
    log = [m.rollout(robot, playback(torques[i]), seed=0, sub_seed=i) for i in range(3)]
    m.save_rollouts(log, folder / "swings")
    ranges = [text for name in ("pole_mass", "pole_length") for text in ("--param", f"{name}=0.5:1.5")]
    sizes = ["--num-simulations", "200", "--rounds", "1", "--no-checks", "--torch-threads", "1"]
    command(folder, "infer", "pend", "--data", "swings", "--out", "inferred", *ranges, *sizes)
    posterior = m.Posterior.load(folder / "inferred" / "posterior")
    parts.add("draws", posterior.draws)
    options = {"steps_per_epoch": 200, "evaluate_every": 1, "num_episodes": 2, "max_path_length": 50}
    agent = make_agent("ppo", "pend", {**options, "epochs": 1, "tasks": folder / "inferred", "run_dir": folder / "run"})
    add_actions(parts, agent.learn(progress=False), False)


def playback(actions: np.ndarray) -> Any:
    """A policy that plays back ``actions (T,)``."""
    steps = iter(actions)
    return lambda obs: [next(steps)]


# -- recordings and posteriors -----------------------------------------------------------------------------------------


@CASES.case("files of recordings", quick=True)
def recordings(parts: Parts, folder: Path) -> None:
    """Rollouts as npz, csv and parquet: the columns of the files, and the rollouts loaded from them."""
    env = m.PendulumEnv(max_steps=12)
    rollouts = [m.rollout(env, playback(np.linspace(-1.0, 1.0, 12) * i), seed=i) for i in range(3)]
    for suffix, columns_of in ((".npz", arrays_of_npz), (".csv", columns_of_csv), (".parquet", columns_of_parquet)):
        paths = m.save_rollouts(rollouts, folder / suffix[1:], suffix=suffix)
        for path in paths:
            for name, values in columns_of(path):
                parts.add(f"{suffix} {name}", values)
        loaded = m.load_rollouts(folder / suffix[1:])
        parts.add_rollouts(f"{suffix} loaded", loaded)
        parts.add(f"{suffix} loaded states", [rollout.states for rollout in loaded])


def arrays_of_npz(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    with np.load(path, allow_pickle=False) as file:
        for name in file.files:
            if name != "header":
                yield name, file[name]


def columns_of_csv(path: Path) -> Iterator[tuple[str, list[str]]]:
    with open(path, encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(line for line in file if not line.startswith("#"))
    yield from ((name, list(column)) for name, column in zip(names, zip(*rows, strict=True), strict=True))


def columns_of_parquet(path: Path) -> Iterator[tuple[str, list[str]]]:
    from pyarrow import parquet

    table: Any = parquet.read_table(path)
    yield from ((name, list(map(repr, table[name].to_pylist()))) for name in table.column_names)


@CASES.case("files of a posterior", quick=True)
def posterior_folder(parts: Parts, folder: Path) -> None:
    """Draws, weights and prior in the folder of a neural posterior."""
    config = m.EstimatorConfig(model="maf", max_epochs=3, hidden_features=16, num_transforms=2)
    observed = simulate_swing(np.array([[0.9, 0.1]]))[0]
    m.NPDR(PRIOR, config, seed=4).infer(simulate_swing, observed, 200).save(folder / "posterior")
    with np.load(folder / "posterior" / "draws.npz", allow_pickle=False) as file:
        floats = [file[name] for name in file.files if file[name].dtype.kind == "f"]
    parts.add_weights("draws", floats)
    parts.add_weights("weights", load_file(folder / "posterior" / "weights.safetensors").values())
    description = json.loads((folder / "posterior" / "posterior.json").read_text(encoding="utf-8"))
    parts.add("prior", description["prior"])


@CASES.case("files of logs", quick=True)
def logs(parts: Parts, folder: Path) -> None:
    """Rollouts from a log with other units and another sampling rate."""
    truth = m.PendulumEnv(dt=0.005, domain_param={"pole_mass": 1.2}, init_space=[1.0, 0.0])
    recorded = m.rollout(truth, lambda obs: [np.sign(obs[2])], max_steps=200, seed=0)
    angle = np.degrees(recorded.states[:, 0]) % 360.0
    torque = np.append(1000.0 * recorded.actions, np.nan)
    rows = np.stack([1000.0 * recorded.time, angle, np.degrees(recorded.states[:, 1]), torque], axis=1)
    np.savetxt(folder / "log.csv", rows, delimiter=",", header="t_ms,angle,speed,torque", comments="", fmt="%.6f")
    mapping: Mapping[str, Any] = {
        "time": {"column": "t_ms", "unit": "ms"},
        "observations": {
            "sin_theta": {"column": "angle", "unit": "deg", "function": "sin"},
            "cos_theta": {"column": "angle", "unit": "deg", "function": "cos"},
            "theta_dot": {"column": "speed", "unit": "deg/s"},
        },
        "actions": {"torque": {"column": "torque", "unit": "mN m"}},
        "max_gap": 0.02,
    }
    (folder / "log.yaml").write_text(yaml.safe_dump(mapping), encoding="utf-8")
    env = m.PendulumEnv()
    for rollout in m.load_log(folder / "log.csv", folder / "log.yaml", env_spec=env.env_spec, dt=env.dt):
        parts.add("observations", rollout.observations)
        parts.add("actions", rollout.actions)
