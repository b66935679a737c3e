"""``metaroll train epopt``: flags of EPOpt and PPO, random domains, resume and evaluate."""

from __future__ import annotations

import json

import pytest

from metaroll.cli.experiments import build, resolve, run_options, split_tasks
from metaroll.cli.main import main
from metaroll.learners.epopt import EPOpt
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.training.metrics_log import read_metrics

SMALL = (
    *("--epochs", "2", "--rollouts-per-epoch", "8", "--warm-up-epochs", "1", "--epsilon", "0.25"),
    *("--max-path-length", "20", "--evaluate-every", "1", "--num-episodes", "1", "--num-test-tasks", "3"),
    *("--torch-threads", "1"),
)


def test_a_run_is_trained_resumed_and_evaluated(tmp_path, capsys):
    straight, stopped = str(tmp_path / "straight"), str(tmp_path / "stopped")
    assert main(["train", "epopt", "pend", *SMALL, "--out", straight, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["algo"], len(summary["returns"])) == ("epopt", 3)
    assert main(["train", "epopt", "pend", *SMALL, "--epochs", "1", "--out", stopped, "--quiet"]) == 0
    assert main(["resume", stopped, "--epochs", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["returns"] == summary["returns"]
    rows = [
        [(r["metric"], r["value"]) for r in read_metrics(run) if r["phase"] != "time"] for run in (straight, stopped)
    ]
    assert rows[0] == rows[1]
    assert [value for name, value in rows[0] if name == "epsilon"] == [1.0, 0.25]
    assert [value for name, value in rows[0] if name == "full avg rollout len"] == [20.0, 20.0]
    assert main(["evaluate", straight, "--episodes", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["returns"][0]) == 2
    assert main(["evaluate", straight, "--repetitions", "2"]) == 2
    assert "--episodes" in capsys.readouterr().err


def test_flags_are_those_of_both_constructors_and_each_is_there_once():
    names = [option.name for option in run_options("epopt")]
    assert len(names) == len(set(names))
    assert {"epsilon", "warm_up_epochs", "rollouts_per_epoch", "clip_range", "randomise"} <= set(names)
    assert {"steps_per_epoch", "tasks_per_epoch", "learner"}.isdisjoint(names)


def test_domain_parameters_vary_unless_the_environment_does_that_itself():
    config = resolve("epopt", "pend")
    assert isinstance(split_tasks(config)[0], DomainRandomizer)
    experiment = build(config)
    assert isinstance(experiment.algo, EPOpt)
    assert experiment.algo.epsilon == 1.0
    assert split_tasks(resolve("epopt", "CartPole-v1", [("the test", {"randomise": "none"})])) == (None, [])


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (["pend", "--epsilon", "0"], "epsilon"),
        (["pend", "--rollouts-per-epoch", "0"], "rollouts_per_epoch"),
        (["pend", "--steps-per-epoch", "100"], "steps-per-epoch"),
        (["CartPole-v1"], "no default spreads"),
    ],
)
def test_wrong_input_is_named_and_leaves_nothing(tmp_path, capsys, arguments, about):
    assert main(["train", "epopt", *arguments, "--out", str(tmp_path / "run")]) == 2
    assert about in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
