"""Sizes of runs: fixed numbers, one source of truth with the demo, and a default that nobody is surprised by."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

import metaroll
from metaroll import TaskFamily
from metaroll.envs.lookup.registry import family_names
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import UnknownNameError
from metaroll.lab.cli.main import main
from metaroll.lab.display.sizes import size_text
from metaroll.training.algorithms.registry import (
    ALGORITHM_NAMES,
    SIZES,
    default_size,
    example_envs,
    get_algorithm,
    preset,
    preset_names,
    size_values,
)
from metaroll.training.evaluation.verdict import FEWEST_TASKS
from metaroll.training.session.demo import DEMO_VALUES, demo_config
from metaroll.training.session.experiments import build, resolve

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def arm(monkeypatch) -> str:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield "two_link_arm:family"
    sys.modules.pop("two_link_arm", None)


@pytest.mark.parametrize("algo", ALGORITHM_NAMES)
@pytest.mark.parametrize("size", ["small", "medium"])
def test_every_algorithm_has_the_sizes_everywhere(algo, size):
    for env in [*preset_names(algo), *example_envs(algo)]:
        config = resolve(algo, env, size=size)
        for name, value in size_values(algo, env, size).items():
            found = {**config["run"], **config["algorithm"], **config["evaluation"]}[name]
            assert found == value or name in ("num_train_tasks", "num_test_tasks", "repetitions"), (env, name)
        assert config["run"]["size"] == size
        assert f"size {size}: {config['run']['epochs']} epochs of" in size_text(config, EnvSource.of(env))


@pytest.mark.parametrize("algo", ALGORITHM_NAMES)
def test_sizes_grow(algo):
    small, medium = (resolve(algo, example_envs(algo)[0], size=size) for size in ("small", "medium"))
    assert small["run"]["epochs"] < medium["run"]["epochs"]


def test_the_demo_is_the_small_size_of_point_robot():
    demo, small = demo_config({}), resolve("pearl", "point-robot", size="small")
    assert small["algorithm"]["num_test_tasks"] == 20
    assert {**demo, "command": "train"} == {**small, "algorithm": {**small["algorithm"], "num_test_tasks": 60}}
    assert {**size_values("pearl", "point-robot", "small"), "num_test_tasks": 60} == DEMO_VALUES
    assert (demo["run"]["epochs"], demo["run"]["torch_threads"], demo["run"]["hidden_sizes"]) == (
        20,
        1,
        (100, 100, 100),
    )
    algorithm = demo["algorithm"]
    names = ("num_train_tasks", "num_test_tasks", "gradient_steps", "reward_scale", "discount", "num_steps_prior")
    assert [algorithm[name] for name in names] == [400, 60, 400, 10.0, 0.9, 200]


@pytest.mark.parametrize("env", ["cheetah-dir", "ant-dir", "point-corners"])
@pytest.mark.parametrize("algo", [name for name in ALGORITHM_NAMES if get_algorithm(name).adapts])
def test_where_the_tasks_are_all_there_are_an_evaluation_has_what_a_verdict_takes(algo, env):
    for size in (None, "small", "medium"):
        assert resolve(algo, env, size=size)["evaluation"]["repetitions"] == FEWEST_TASKS
    asked = resolve(algo, env, [("the options", {"repetitions": 2})])
    assert asked["evaluation"]["repetitions"] == 2


@pytest.mark.parametrize(("algo", "up_to"), [("cmaes", True), ("hill-climbing", True), ("epopt", True), ("ppo", False)])
def test_steps_of_episodes_that_may_end_early_are_said_to_be_at_most_so_many(algo, up_to):
    assert ("epochs of up to " in size_text(resolve(algo, "Pendulum-v1"), EnvSource.of("Pendulum-v1"))) == up_to


def test_steps_of_hill_climbing_are_those_of_its_population_and_of_the_policy_that_it_has():
    values = {"pop_size": 5, "num_domains": 2, "num_init_states_per_domain": 3, "max_path_length": 100}
    config = resolve("hill-climbing", "qcp-st", [("a test", {**values, "randomize": "default"})])
    text = size_text(config, EnvSource.of("qcp-st"))
    assert "epochs of up to 3,600 steps" in text  # (5 + 1) x 2 x 3 x 100


def test_paper_is_what_was_published_and_an_error_elsewhere():
    for env in preset_names("pearl"):
        assert default_size("pearl", env) == "paper"
        assert resolve("pearl", env, size="paper") == resolve("pearl", env)
    text = size_text(resolve("pearl", "cheetah-vel"), EnvSource.of("cheetah-vel"))
    assert "size paper (Rakelly et al. 2019" in text and 'size="small" takes minutes' in text
    short = resolve("pearl", "cheetah-vel", [("a test", {"epochs": 20})])  # as many as of the small size
    assert "takes minutes" not in size_text(short, EnvSource.of("cheetah-vel"))
    with pytest.raises(ValueError, match=r"published \(for pearl in ant-dir, .*\), got qcp-su: take size=.small. or"):
        resolve("pearl", "qcp-su", size="paper")
    for algo in set(ALGORITHM_NAMES) - {"pearl", "maml", "promp"}:
        with pytest.raises(ValueError, match=f"none is known here for {algo}"):
            resolve(algo, example_envs(algo)[0], size="paper")


@pytest.mark.parametrize(
    ("algo", "env", "values", "is_named"),
    [
        ("ppo", "HalfCheetah-v5", {}, True),
        ("ppo", "HalfCheetah-v5", {"epochs": 3}, False),
        ("ppo", "CliffWalking-v1", {"epochs": 300}, True),  # without a time limit
        ("ppo", "CliffWalking-v1", {"epochs": 3}, False),
        ("sac", "Pendulum-v1", {"epochs": 200}, True),
        ("sac", "Pendulum-v1", {"epochs": 2}, False),
    ],
)
def test_a_smaller_size_is_named_where_it_is_smaller(algo, env, values, is_named):
    config = resolve(algo, env, [("a test", values)], size="medium")
    assert ('size="small" takes minutes' in size_text(config, EnvSource.of(env))) == is_named


@pytest.mark.parametrize(("algo", "amount"), [("sac", "updates from step 1,000 on"), ("ppo", "gradients by numpy")])
def test_what_is_said_beside_the_size_does_not_repeat_it(algo, amount):
    agent = metaroll.agent(algo, "Pendulum-v1")
    assert get_algorithm(algo).amount(agent.algo, agent.config["algorithm"]) == amount


def test_without_a_size_presets_stay_and_what_is_ones_own_is_small(arm):
    assert default_size("ppo", "HalfCheetah-v5") is None
    halfcheetah = resolve("ppo", "HalfCheetah-v5")
    assert (halfcheetah["run"]["size"], halfcheetah["run"]["epochs"]) == (None, 500)
    assert "preset of HalfCheetah-v5: 500 epochs" in size_text(halfcheetah, EnvSource.of("HalfCheetah-v5"))
    assert {default_size("pearl", env) for env in set(family_names()) - set(preset_names("pearl"))} == {"small"}
    assert default_size("epopt", "qcp-st") == "medium" and resolve("epopt", "qcp-st")["run"]["epochs"] == 150
    for algo in set(ALGORITHM_NAMES) - {"distill", "hill-climbing"}:
        config = resolve(algo, arm)
        assert config["run"]["size"] == "small", algo
        assert resolve(algo, arm, size="small") == config
    assert resolve("pearl", arm)["algorithm"]["num_train_tasks"] == 400


def test_options_and_files_go_before_sizes(arm):
    layers = [("a file", {"size": "medium", "discount": 0.8}), ("the options", {"epochs": 3})]
    config = resolve("pearl", arm, layers)
    assert (config["run"]["size"], config["run"]["epochs"], config["algorithm"]["discount"]) == ("medium", 3, 0.8)
    assert config["run"]["hidden_sizes"] == (200, 200, 200)
    assert resolve("pearl", arm, [("a run of before", {"size": None})])["run"]["hidden_sizes"] == (300, 300, 300)
    assert resolve("ppo", "Pendulum-v1", size="medium")["algorithm"]["lr_decay_epochs"] == 500


def test_a_family_of_fewer_tasks_or_with_numbers_of_its_own_keeps_them(arm, monkeypatch):
    import two_link_arm
    from two_link_arm import TARGETS, Arm

    few = TaskFamily.from_constructors({str(i): Arm for i in range(6)}, test_tasks=["0", "1"], horizon=20)
    said = TaskFamily.from_params(Arm, TARGETS, horizon=20, num_train_tasks=30, num_test_tasks=7)
    for name, family, numbers in (("few", few, (4, 2)), ("said", said, (30, 7))):
        monkeypatch.setattr(two_link_arm, name, family, raising=False)
        algorithm = resolve("pearl", f"two_link_arm:{name}")["algorithm"]
        assert (algorithm["num_train_tasks"], algorithm["num_test_tasks"]) == numbers
    assert resolve("pearl", "cheetah-dir", size="small")["algorithm"]["num_train_tasks"] == 2
    long_episodes = resolve("pearl", "qcp-su")["algorithm"]
    assert (long_episodes["num_train_tasks"], long_episodes["max_steps"]) == (80, 8000)


def test_an_unknown_size_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown size 'smal'; did you mean 'small'"):
        resolve("ppo", "Pendulum-v1", size="smal")
    with pytest.raises(ValueError, match="size in a file must be one of small, medium, paper, got 'tiny'"):
        resolve("ppo", "Pendulum-v1", [("a file", {"size": "tiny"})])


def test_the_small_size_of_the_arm_is_ready_to_train_for_both_bounds(arm):
    for name, bound in (("family", 2.0), ("slow_family", 0.1)):
        experiment = build(resolve("pearl", f"two_link_arm:{name}", [("the test", {"num_train_tasks": 5})]))
        assert experiment.algo.env_spec.action_space.high.tolist() == pytest.approx([bound, bound])
        experiment.runner.close()


def test_a_run_says_and_keeps_its_size_and_help_shows_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny = ["--epochs", "1", "--steps-per-epoch", "40", "--max-steps", "10", "--num-episodes", "1"]
    assert main(["train", "ppo", "Pendulum-v1", "--size", "small", *tiny, "--out", "r"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "size small: 1 epoch of 40 steps and" in shown
    assert yaml.safe_load((tmp_path / "r" / "config.yaml").read_text())["run"]["size"] == "small"
    assert main(["resume", "r", "--epochs", "2", "--quiet"]) == 0
    assert yaml.safe_load((tmp_path / "r" / "config.yaml").read_text())["run"]["size"] == "small"
    assert main(["train", "ppo", "Pendulum-v1", "--size", "medium", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "size medium: 500 epochs of 2,000 steps" in shown and "{small,medium,paper}" in shown
    assert main(["train", "ppo", "Pendulum-v1", "--config", "r/config.yaml", "--size", "medium", "--out", "s"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "--size medium does not fit r/config.yaml, which is of size small" in told


def test_values_of_sizes_are_those_that_exist():
    assert SIZES == ("small", "medium", "paper")
    assert preset("pearl", "my_env:family")["epochs"] == 500  # what there is without any size
