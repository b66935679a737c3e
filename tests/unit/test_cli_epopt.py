"""``metaroll train epopt``: flags of EPOpt and PPO, random domains, resume and evaluate."""

from __future__ import annotations

import json

import pytest

from metaroll.contrib.epopt import EPOpt
from metaroll.envs.lookup.source import EnvSource
from metaroll.lab.cli.main import main
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.training.algorithms.building import parse_ranges
from metaroll.training.session.experiments import build, resolve, run_options, split_tasks
from metaroll.training.store.metrics_log import read_metrics
from metaroll.training.store.run_folder import read_config

SMALL = (
    *("--epochs", "2", "--lr-decay-epochs", "2"),
    *("--rollouts-per-epoch", "8", "--warmup-epochs", "1", "--epsilon", "0.25"),
    *("--max-steps", "20", "--evaluate-every", "1", "--num-episodes", "1", "--num-test-tasks", "3"),
    *("--torch-threads", "1"),
)


def test_a_run_is_trained_and_evaluated(tmp_path, capsys):
    run = str(tmp_path / "run")
    assert main(["train", "epopt", "pend", *SMALL, "--out", run, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["algo"], len(summary["returns"])) == ("epopt", 3)
    assert (summary["return_cvar"], summary["cvar_epsilon"]) == (min(summary["returns"])[0], 0.25)  # one of three
    rows = [(r["metric"], r["value"]) for r in read_metrics(run)]
    assert [value for name, value in rows if name == "epsilon"] == [1.0, 0.25]
    assert [value for name, value in rows if name == "full avg rollout len"] == [20.0, 20.0]
    assert main(["evaluate", run, "--episodes", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["returns"][0]) == 2
    assert main(["evaluate", run, "--repetitions", "2"]) == 2
    assert "--episodes" in capsys.readouterr().err


def test_flags_are_those_of_both_constructors_and_each_is_there_once():
    names = [option.name for option in run_options("epopt")]
    assert len(names) == len(set(names))
    assert {"epsilon", "warmup_epochs", "rollouts_per_epoch", "clip_range", "randomize"} <= set(names)
    assert {"steps_per_epoch", "tasks_per_epoch", "learner"}.isdisjoint(names)


def test_domain_parameters_vary_unless_the_environment_does_that_itself():
    config = resolve("epopt", "pend")
    assert isinstance(split_tasks(config, EnvSource.of("pend"))[0], DomainRandomizer)
    experiment = build(config)
    assert isinstance(experiment.algo, EPOpt)
    assert experiment.algo.epsilon == 1.0
    config = resolve("epopt", "CartPole-v1", [("the test", {"randomize": "none"})])
    assert split_tasks(config, EnvSource.of("CartPole-v1")) == (None, [])


def test_ranges_of_ones_own_vary_in_environments_of_others(tmp_path, capsys):
    ranges = ("--randomize-param", "length=0.3:0.7", "--randomize-param", "masspole=0.05:0.2")
    assert main(["train", "epopt", "CartPole-v1", *SMALL, *ranges, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    train, test = split_tasks(read_config(tmp_path / "run"), EnvSource.of("CartPole-v1"))
    drawn = [update.task for update in [*train.sample(50), *test]]
    assert all(0.3 <= task["length"] <= 0.7 and 0.05 <= task["masspole"] <= 0.2 for task in drawn)
    assert len({task["length"] for task in drawn}) == 53


def test_paths_into_a_mujoco_model_are_names_of_ranges():
    assert parse_ranges(["body_mass:torso=3:1e1"]) == {"body_mass:torso": (3.0, 10.0)}


def test_a_family_draws_its_own_and_nothing_drawn_is_told(tmp_path, capfd):
    config = resolve("epopt", "point-robot")
    assert split_tasks(config, EnvSource.of("point-robot"))[0] is not None  # the preset has randomize: default
    small = [*SMALL[:-4], "--out", str(tmp_path / "run")]
    assert main(["train", "epopt", "CartPole-v1", *small, "--randomize", "none"]) == 0
    assert "nothing is randomized" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (["pend", "--epsilon", "0"], "epsilon"),
        (["pend", "--rollouts-per-epoch", "0"], "--rollouts-per-epoch must be"),
        (["pend", "--steps-per-epoch", "100"], "steps-per-epoch"),
        (["CartPole-v1"], "no usual ranges are known"),
        (["CartPole-v1", "--randomize-param", "lenght=0.3:0.7"], "did you mean 'length'"),
        (["CartPole-v1", "--randomize-param", "length=0.7:0.3"], "--randomize-param must be NAME=LOW:HIGH"),
        (["CartPole-v1", *("--randomize-param", "length=1:2") * 2], "--randomize-param names 'length' twice"),
        (["pend", "--randomize-param", "pole_mass=-1:2"], "'pole_mass' of the pendulum must be positive"),
    ],
)
def test_wrong_input_is_named_and_leaves_nothing(tmp_path, capsys, arguments, about):
    assert main(["train", "epopt", *arguments, "--out", str(tmp_path / "run")]) == 2
    assert about in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
