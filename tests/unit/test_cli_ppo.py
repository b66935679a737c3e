"""``metaroll train ppo``: any Gymnasium id, families, random domains; resume and evaluate."""

from __future__ import annotations

import json

import pytest

from metaroll.envs.lookup.source import EnvSource
from metaroll.lab.cli.main import main
from metaroll.policies.gru import CategoricalGRUPolicy, GRUGaussianPolicy
from metaroll.training.session.experiments import build, resolve, split_tasks
from metaroll.training.store.metrics_log import read_metrics

SMALL = (
    "--epochs",
    "2",
    "--steps-per-epoch",
    "100",
    "--evaluate-every",
    "1",
    "--num-episodes",
    "2",
    "--torch-threads",
    "1",
)


def config_of(env, **values):
    return resolve("ppo", env, [("the test", {"steps_per_epoch": 60, "epochs": 1, **values})])


@pytest.mark.parametrize("network", ["mlp", "gru"])
def test_a_run_is_trained_resumed_and_evaluated(network, tmp_path, capsys):
    straight, stopped = str(tmp_path / "straight"), str(tmp_path / "stopped")
    assert main(["train", "ppo", "CartPole-v1", *SMALL, "--network", network, "--out", straight, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["algo"] == "ppo"
    assert len(summary["returns"][0]) == 2
    assert summary["return_mean"] == pytest.approx(sum(summary["returns"][0]) / 2)
    assert (
        main(
            ["train", "ppo", "CartPole-v1", *SMALL, "--network", network, "--epochs", "1", "--out", stopped, "--quiet"]
        )
        == 0
    )
    assert main(["resume", stopped, "--epochs", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["returns"] == summary["returns"]
    rows = [
        [(r["metric"], r["value"]) for r in read_metrics(run) if r["phase"] != "time"] for run in (straight, stopped)
    ]
    assert rows[0] == rows[1]
    assert main(["evaluate", straight, "--episodes", "3", "--json"]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert len(evaluated["returns"][0]) == 3
    assert main(["list", "runs", "--runs", str(tmp_path), "--json"]) == 0
    listed = {run["folder"]: run for run in json.loads(capsys.readouterr().out)["runs"]}
    newest = {folder: run["newest_return"] for folder, run in listed.items()}
    assert newest == {straight: evaluated["return_mean"], stopped: summary["return_mean"]}


def test_lines_show_the_return_in_training_and_that_of_evaluations(tmp_path, capfd, pictures):
    assert main(["train", "ppo", "CartPole-v1", *SMALL, "--epochs", "1", "--out", str(tmp_path / "run")]) == 0
    shown = capfd.readouterr()
    text = " ".join((shown.out + shown.err).split())
    assert "epoch 1/1" in text
    assert ", evaluation " in text
    assert "2 episodes, deterministic policy" in text
    assert (tmp_path / "run" / "learning_curve.png").is_file()


def test_repetitions_and_tasks_are_for_those_that_have_some(tmp_path, capsys):
    run = str(tmp_path / "run")
    assert main(["train", "ppo", "CartPole-v1", *SMALL, "--epochs", "1", "--out", run, "--quiet"]) == 0
    for option in ("--repetitions", "--num-tasks"):  # no tasks: they were ignored
        assert main(["evaluate", run, option, "2"]) == 2
        assert "--episodes" in capsys.readouterr().err


def test_a_family_is_trained_in_its_training_tasks_and_evaluated_on_the_others():
    config = config_of("point-robot", num_train_tasks=3, num_test_tasks=2, num_episodes=1)
    train, test = split_tasks(config, EnvSource.of("point-robot"))
    assert (len(train), len(test)) == (3, 2)
    experiment = build(config)
    with experiment.runner as runner:
        runner.train(1)
        runner.evaluate(experiment.algo)
        assert runner.last_evaluation.returns.shape == (2, 1)


def test_domain_parameters_vary_and_held_out_ones_are_evaluated():
    names = ("pole_mass", "pole_length")
    config = config_of("pend", randomize="default", domain_params=names, num_test_tasks=3, max_path_length=20)
    train, test = split_tasks(config, EnvSource.of("pend"))
    assert [update.task for update in test] == [u.task for u in split_tasks(config, EnvSource.of("pend"))[1]]
    assert len({update.task["pole_mass"] for update in [*train.sample(5), *test]}) == 8
    experiment = build(config)
    with experiment.runner as runner:
        runner.train(1)
        assert experiment.algo.critic.input_dim == experiment.algo.env_spec.obs_dim + 2


@pytest.mark.parametrize(("env", "kind"), [("Pendulum-v1", GRUGaussianPolicy), ("CartPole-v1", CategoricalGRUPolicy)])
def test_a_policy_with_memory(env, kind):
    experiment = build(config_of(env, network="gru", hidden_sizes=(8,)))
    policy = experiment.algo.policy.policy
    assert type(policy) is kind and policy.hidden_size == 8
    assert experiment.algo.gradients == "autograd"


def test_an_environment_without_a_time_limit_is_given_one(tmp_path, capsys):
    options = ["--max-steps", "20", "--epochs", "1", "--steps-per-epoch", "40", "--num-passes", "1", "--json"]
    assert main(["train", "ppo", "CliffWalking-v1", *options, "--num-episodes", "2", "--out", str(tmp_path / "r")]) == 0
    assert "return" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (["Pendulm-v1"], "Pendulum-v1"),
        (["CartPole-v1", "--clip-range", "0"], "--clip-range must lie in (0, inf)"),
        (["CartPole-v1", "--network", "gru", "--hidden-sizes"], "--hidden-sizes must name the width of the gru"),
        (["CliffWalking-v1"], "no time limit: set one, for example --max-steps 200"),
        (["point-robot", "--randomize", "conservative"], "--randomize none"),
        (["point-robot", "--randomize-param", "length=1:2"], "--randomize-param is not for point-robot"),
        (["CartPole-v1", "--randomize", "default"], "--randomize-param length=0.3:0.7"),
        (["Pendulum-v1", "--randomize", "default"], "--randomize-param g=9:11"),
        (["Acrobot-v1", "--randomize", "default"], "--randomize-param NAME=LOW:HIGH"),
        (["CartPole-v1", "--init-std", "-1"], "--init-std must lie in (0, inf)"),
    ],
)
def test_wrong_input_is_named_and_leaves_nothing(tmp_path, capsys, arguments, about):
    assert main(["train", "ppo", *arguments, "--out", str(tmp_path / "run")]) == 2
    assert about in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
