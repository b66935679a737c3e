"""Learners by gradient steps by name: on the command line, and as agents that adapt outside of any runner."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml

import metaroll
from metaroll.envs.lookup.source import EnvSource
from metaroll.lab.cli.main import main
from metaroll.lab.runs.run_reports import read_run
from metaroll.learners.maml.outer import DICEOuter, EMAMLOuter, ProMPOuter, TRPOOuter, VPGDICEOuter, VPGOuter
from metaroll.training.algorithms.building import BuildOptions
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.session.experiments import build, resolve
from metaroll.training.store.files import write_json
from metaroll.training.store.metrics_log import MetricsLog, read_metrics

TINY: dict[str, Any] = {
    "meta_batch_size": 3,
    "rollouts_per_task": 4,
    "num_train_tasks": 6,
    "num_test_tasks": 2,
    "max_path_length": 10,
    "hidden_sizes": (8,),
}
FLAGS = [part for name, value in TINY.items() for part in (f"--{name.replace('_', '-')}", str(value).strip("(,)"))]
EVALUATION = ["--adaptation-rounds", "2", "--episodes-per-round", "3", "--evaluate-every", "1", "--torch-threads", "1"]


@pytest.mark.parametrize("name", ["maml", "promp"])
def test_a_run_is_trained_and_evaluated(name, tmp_path, capsys):
    run = str(tmp_path / "run")
    train = ["train", name, "point-navigation", *FLAGS, *EVALUATION]
    assert main([*train, "--epochs", "1", "--out", run, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["algo"] == name and {"return_before", "return_after"} < set(summary)
    assert {"gain", "share_worse", "inner_kl", "gradient_cosine"} < {row["metric"] for row in read_metrics(run)}
    assert main(["evaluate", run, "--adapt-from", "all", "--json"]) == 0


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("maml", {}, TRPOOuter),
        ("maml", {"outer": "vpg", "learning_rate": 0.01}, VPGOuter),
        ("maml", {"outer": "emaml"}, EMAMLOuter),
        ("promp", {"clip_range": 0.2, "target_kl": 0.01}, ProMPOuter),
        ("dice", {}, DICEOuter),
        ("dice", {"outer": "vpg-dice"}, VPGDICEOuter),
    ],
)
def test_options_say_how_initial_parameters_improve(name, values, kind):
    algo = build(resolve(name, "point-navigation", [("the test", {**TINY, **values})])).algo
    assert type(algo.outer) is kind
    for option, value in values.items():
        assert option == "outer" or getattr(algo.outer, option) == value
    assert len(algo.train_tasks) == 6
    assert algo.max_path_length == 10


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"learning_rate": 0.01}, r'learning_rate=0.01 is not for outer="trpo": leave it out, or take outer="vpg"'),
        ({"outer": "emaml", "max_kl": 0.1}, r'max_kl=0.1 is not for outer="emaml": leave it out, or take outer="trpo"'),
    ],
)
def test_options_of_another_way_to_improve_are_refused(values, told):
    with pytest.raises(ValueError, match=told):
        build(resolve("maml", "point-navigation", [("the test", {**TINY, **values})]))
    default = {"outer": "vpg", "max_kl": TRPOOuter().max_kl}  # as a configuration has it that was written out
    build(resolve("maml", "point-navigation", [("the test", {**TINY, **default})]))


def test_published_values_are_the_presets():
    config = resolve("maml", "cheetah-dir")["algorithm"]
    names = ("meta_batch_size", "rollouts_per_task", "max_steps", "inner_lr", "max_kl")
    assert [config[name] for name in names] == [40, 20, 200, 0.1, 0.01]
    config = resolve("promp", "cheetah-dir")["algorithm"]
    names = ("meta_batch_size", "gradient_steps", "clip_range", "kl_coeff", "learning_rate")
    assert [config[name] for name in names] == [40, 5, 0.3, 5e-4, 1e-3]  # of 100 steps; the family has 200


class Corridor(gymnasium.Env):
    """Go left or right; which of them is not observed."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self) -> None:
        self._way, self._x = 1.0, 0.0

    def set_task(self, way: float) -> None:
        self._way = way

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._x = 0.0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        before, self._x = self._x, self._x + 0.1 * float(action[0])
        return np.array([self._x], np.float32), self._way * (self._x - before), False, False, {}


def ways(num: int, generator: np.random.Generator) -> list[float]:
    return generator.permutation(np.linspace(-1.0, 1.0, num)).tolist()


def test_an_agent_adapts_to_one_s_own_environment(tmp_path):
    """Three lines, and a loop of one's own: no runner, engine or evaluator is in sight."""
    family = metaroll.TaskFamily.from_env(Corridor, ways, horizon=10)
    options = {**TINY, "meta_batch_size": 6, "rollouts_per_task": 10, "size": "small", "epochs": 8, "evaluate_every": 0}
    agent = metaroll.agent("promp", family, run_dir=tmp_path / "run", inner_lr=0.5, **options)
    agent.learn(progress=False)
    means = {}
    for way in (-1.0, 1.0):
        env = Corridor()
        env.set_task(way)
        adapted = agent.adapt(agent.explore(env, episodes=10, seed=0))
        obs, _ = env.reset(seed=0)
        taken = []
        for _ in range(5):
            action = adapted.act(obs)
            obs, *_ = env.step(action)
            taken.append(float(action[0]))
        means[way] = np.mean(taken)
    assert means[-1.0] < -0.05 < 0.05 < means[1.0]


def test_what_diverges_is_told_how_to_train_anew(tmp_path, capsys, monkeypatch):
    """A run that is resumed would meet the same."""
    monkeypatch.chdir(tmp_path)
    own = ["train", "maml", "point-navigation", *FLAGS, "--inner-lr", "1e30", "--epochs", "1", "--quiet"]
    assert main([*own, "--out", "first"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "lower --inner-lr (now 1e+30), and train again" in told
    assert "metaroll resume" not in told
    command = ["train", *told.rpartition("metaroll train ")[2].split()]
    assert command[-1] == "1e+29"
    assert main([*command[:-1], "0.1", "--evaluate-every", "0", "--out", "second", "--quiet"]) == 0
    settings = [settings_of(tmp_path / run / "config.yaml") for run in ("first", "second")]
    changed = {name for name, value in settings[0].items() if settings[1][name] != value}
    assert changed == {"inner_lr", "evaluate_every"}


def settings_of(path):
    return yaml.safe_load(path.read_text())["algorithm"]


def test_fewer_tasks_than_an_epoch_draws_are_told():
    known = resolve("maml", "point-navigation", [("the test", {**TINY, "meta_batch_size": 7})])
    env = EnvSource.of("point-navigation")
    notes = get_algorithm("maml").notes(BuildOptions.of(known, env), 1)
    assert notes == ["every epoch draws 7 tasks (meta_batch_size) of 6: some repeat; num_train_tasks=7 has as many"]
    known = resolve("maml", "point-navigation", [("the test", TINY)])
    assert get_algorithm("maml").notes(BuildOptions.of(known, env), 1) == []


def test_returns_of_training_are_not_shown_as_an_evaluation(tmp_path):
    """MAML logs the return after adaptation in training, too."""
    log = MetricsLog(tmp_path)
    log.append(0, 10, "train", {"return_after": -1.0})
    log.flush()
    (tmp_path / "config.yaml").write_text("metaroll_run: 1\n")
    assert read_run(tmp_path).newest_return is None
    write_json(tmp_path / "summary.json", {"epochs": 1, "env_steps": 10, "return_after": -7.0})
    assert read_run(tmp_path).newest_return == -7.0
