"""The loop on a simulated robot: what is logged, how policies are judged, and the command."""

from __future__ import annotations

import dataclasses
import io
import json
import sys

import numpy as np
import pytest
from rich.console import Console

from metaroll.configs import EstimatorConfig
from metaroll.configs.inference import InferenceOptions, LoopOptions
from metaroll.data.doors.yaml_files import read_yaml
from metaroll.data.folders.contents import foreign_in
from metaroll.data.folders.kinds import INFER, SIM2REAL
from metaroll.data.folders.taking import kind_of
from metaroll.data.recordings import save_rollouts
from metaroll.inference.posterior import Posterior
from metaroll.lab.cli.commands.infer import _loop_panel, _show
from metaroll.lab.cli.main import main
from metaroll.lab.inferring import inferring, sim2real
from metaroll.lab.inferring.sim2real import (
    LoopResult,
    Training,
    TrainingFailedError,
    draw_robot,
    log_robot,
    unknown_prior,
)
from metaroll.lab.results.inference_result import Inference
from metaroll.lab.runs.run_reports import read_run
from metaroll.training.store.yaml_files import write_yaml


def test_a_robot_is_drawn_from_the_prior_by_its_seed() -> None:
    prior, robots = unknown_prior(), [draw_robot(seed) for seed in range(20)]
    assert draw_robot(3) == robots[3] != robots[4]
    values = np.array([[robot[name] for name in prior.names] for robot in robots])
    assert (prior.low <= values).all() and (values <= prior.high).all()
    assert (values.std(axis=0) > 0.5 * prior.std).all()


def test_logged_rollouts_last_to_the_end_and_excite_the_robot() -> None:
    for seed in range(4):
        rollouts = log_robot(draw_robot(seed), 3, seed)
        assert [len(rollout) for rollout in rollouts] == [250] * 3
        assert min(np.ptp(rollout.states[:, 1]) for rollout in rollouts) > 0.5  # rad, of the pendulum
    again = log_robot(draw_robot(3), 3, 3)
    np.testing.assert_array_equal(again[2].states, rollouts[2].states)


def test_scores_are_shares_of_the_way_from_nominal_to_oracle(tmp_path) -> None:
    returns = {"nominal": np.full(4, 10.0), "uniform": np.full(4, 20.0), "posterior": np.full(4, 50.0)}
    result = LoopResult({}, None, {**returns, "oracle": np.full(4, 60.0)}, tmp_path, LoopOptions())
    assert (result.score("uniform"), result.score("posterior")) == (0.2, 0.8)
    assert result.interval("oracle") == (60.0, 60.0)


@pytest.mark.parametrize("options", [["--simulations", "80"], ["--simulations", "3"], ["--jobs", "0"], ["--nonsense"]])
def test_a_folder_of_something_else_is_refused_and_left(tmp_path, capsys, options) -> None:
    """Row 24: a folder ``log`` in it was enough for all of it to be removed, before options were looked at."""
    (tmp_path / "proj" / "log").mkdir(parents=True)
    (tmp_path / "proj" / "thesis.tex").write_text("mine")
    assert main(["sim2real", "demo", "--out", str(tmp_path / "proj"), *options]) == 2
    if options == ["--simulations", "80"]:
        text = " ".join(capsys.readouterr().err.split())
        assert "proj exists and is not a loop of sim2real: it holds thesis.tex; move that away, or" in text
    assert (tmp_path / "proj" / "thesis.tex").read_text() == "mine"
    assert sorted(path.name for path in (tmp_path / "proj").iterdir()) == ["log", "thesis.tex"]


@pytest.fixture
def stops_at_the_log(monkeypatch):
    def interrupt(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(sim2real, "log_robot", interrupt)


def begin(folder, said=None, **options) -> None:
    with pytest.raises(KeyboardInterrupt):
        sim2real.close_the_loop(folder, LoopOptions(**options), (lambda text: None) if said is None else said.append)


def test_a_loop_of_the_same_options_that_was_stopped_goes_on_in_its_folder(tmp_path, stops_at_the_log) -> None:
    said: list[str] = []
    for jobs in (1, 2):  # which changes no result
        begin(tmp_path / "loop", said, jobs=jobs)
    assert [path.name for path in tmp_path.iterdir()] == ["loop"] and said == []


@pytest.mark.parametrize(("baselines", "goes_on"), [([], True), (["simopt", "adr"], False)])
def test_loops_of_versions_that_trained_baselines_are_known(tmp_path, stops_at_the_log, baselines, goes_on) -> None:
    begin(tmp_path / "loop")
    options = json.loads((tmp_path / "loop" / "options.json").read_text())
    (tmp_path / "loop" / "options.json").write_text(json.dumps({**options, "baselines": baselines}))
    for name in baselines:
        (tmp_path / "loop" / "policies" / name).mkdir(parents=True)
        (tmp_path / "loop" / "policies" / name / "metrics.jsonl").write_text("mine")
    (tmp_path / "loop" / "simopt-tasks").mkdir()
    (tmp_path / "loop" / "simopt-tasks" / "posterior.json").write_text("mine")
    assert kind_of(tmp_path / "loop") is SIM2REAL and foreign_in(tmp_path / "loop", SIM2REAL.layout) == []
    begin(tmp_path / "loop")
    assert len(list(tmp_path.iterdir())) == (1 if goes_on else 2)


@pytest.mark.parametrize("how", ["other options", "finished", "without its options"])
def test_any_other_loop_is_kept_beside_the_new_one(how, tmp_path, stops_at_the_log) -> None:
    said: list[str] = []
    begin(tmp_path / "loop")
    run = tmp_path / "loop" / "policies" / "nominal"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text("mine")
    if how == "finished":
        (tmp_path / "loop" / "report.html").write_text("page")
    if how == "without its options":
        (tmp_path / "loop" / "options.json").unlink()
    begin(tmp_path / "loop", said, epochs=7 if how == "other options" else 300)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop", "loop-2"]
    assert (tmp_path / "loop-2" / "policies" / "nominal" / "metrics.jsonl").read_text() == "mine"
    assert said == [f"the earlier loop in {tmp_path / 'loop'} was moved to {tmp_path / 'loop-2'}"]


def test_the_loop_says_why_it_goes_on_with_a_posterior_that_failed(tmp_path, monkeypatch) -> None:
    said, log = [], log_robot(draw_robot(0), 1, 0)
    checks = {"passed": False, "too_wide": False, "text": "Do not train on this posterior of a."}
    prior = unknown_prior()
    posterior = Posterior(prior, draws=prior.sample(20, 0))
    nominal = dict.fromkeys(prior.names, 1.0)
    found = Inference("sim", posterior, nominal, [], 0, InferenceOptions(), tmp_path, checks)
    monkeypatch.setattr(sim2real, "infer", lambda *given, **options: found)
    monkeypatch.setattr(sim2real, "log_robot", lambda *given: log[:])
    monkeypatch.setattr(sim2real, "train_all", lambda *given: {})
    monkeypatch.setattr(sim2real, "judge", lambda *given: {"nominal": np.zeros(2), "oracle": np.ones(2)})
    monkeypatch.setattr(Inference, "errors", lambda self: {})
    sim2real.close_the_loop(tmp_path / "loop", LoopOptions(rollouts=2), said.append)
    assert "Do not train on this posterior of a. The demo still trains on it" in said[-1]


@pytest.mark.parametrize(
    ("nominal", "oracle", "shown"),
    [
        (0.0, 204.0, ["50 % of the way", "102 [102, 102]"]),
        (220.0, 204.0, ["not clearly better", "212 [212, 212]"]),
        (0.0, 0.004, ["not even the oracle swings up", "0.002 [0.002, 0.002]"]),
    ],
)
def test_small_returns_have_digits_and_no_share_of_a_way_that_there_is_not(tmp_path, nominal, oracle, shown) -> None:
    half = (nominal + oracle) / 2
    returns = {"nominal": np.full(4, nominal), "posterior": np.full(4, half), "oracle": np.full(4, oracle)}
    text = str(_loop_panel(LoopResult({}, None, returns, tmp_path, LoopOptions())).renderable)
    assert all(part in text for part in shown) and ("of the way" in text) == (nominal < 1.0 < oracle)


def test_names_stay_whole_in_a_narrow_terminal(tmp_path, monkeypatch) -> None:
    prior = unknown_prior()
    posterior = Posterior(prior, draws=prior.sample(20, 0), description={"num_reused": 0, "num_foreign_parts": 0})
    nominal = dict.fromkeys(prior.names, 1.0)
    monkeypatch.setattr(Inference, "errors", lambda self: {"posterior": 0.1, "nominal": 0.2, "noise": 0.0})
    result = Inference("sim", posterior, nominal, [], 0, InferenceOptions(), tmp_path, {})
    words = {word for row in result.rows() for word in (row["name"], f"{row['prior_high']:.4g}", f"{row['mean']:.4g}")}
    for width in (80, 40):
        console = Console(width=width, file=io.StringIO())
        _show(console, result, nominal)
        assert words <= set(console.file.getvalue().split()) and "…" not in console.file.getvalue()


def test_without_sbi_nothing_is_done(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sbi", None)
    (tmp_path / "loop" / "log").mkdir(parents=True)
    assert main(["sim2real", "demo", "--out", str(tmp_path / "loop")]) == 2
    save_rollouts(log_robot(draw_robot(0), 1, 0), tmp_path / "swings")
    command = ["infer", sim2real.ENV, "--data", str(tmp_path / "swings"), "--param", "mass_pend_pole=0.1:0.2"]
    assert main([*command, "--out", str(tmp_path / "run")]) == 2
    out, err = capsys.readouterr()
    assert "logged" not in out and "rollouts of" not in out and err.count("pip install 'sbi>=") == 2
    assert (tmp_path / "loop" / "log").is_dir() and not (tmp_path / "run").exists()


@pytest.fixture
def short_trainings(monkeypatch) -> None:
    few = {"steps_per_epoch": 500, "num_passes": 1, "num_episodes": 1}
    monkeypatch.setattr(sim2real, "TRAINING", {**sim2real.TRAINING, **few})


def test_of_several_trainings_the_one_that_earns_most_is_kept(tmp_path, short_trainings) -> None:
    run = sim2real.train_policy(Training(name="nominal", options={"epochs": 1, "seed": 0}, trainings=2), tmp_path)
    (left,) = [path for path in tmp_path.iterdir() if path != run]
    assert run == tmp_path / "nominal" and sim2real._final_return(left) < sim2real._final_return(run)


def test_trainings_that_are_finished_are_not_touched_and_others_go_on(tmp_path, short_trainings, monkeypatch) -> None:
    training = Training(name="nominal", options={"epochs": 3, "seed": 0})
    alone = sim2real.train_policy(training, tmp_path / "alone")
    stop = {"options": {"epochs": 1, "seed": 0}}
    sim2real.train_policy(dataclasses.replace(training, **stop), tmp_path / "parts")
    config = read_yaml(tmp_path / "parts" / "nominal" / "config.yaml")
    config["run"]["epochs"] = config["algorithm"]["lr_decay_epochs"] = 3
    write_yaml(tmp_path / "parts" / "nominal" / "config.yaml", config)
    other = sim2real.train_policy(training, tmp_path / "parts")
    assert (other / "snapshots").is_dir() and read_run(other).epochs_done == 3
    before = {path: path.stat().st_mtime_ns for path in alone.rglob("*") if path.is_file()}
    assert sim2real.train_policy(training, tmp_path / "alone") == alone
    assert before == {path: path.stat().st_mtime_ns for path in alone.rglob("*") if path.is_file()}


def test_a_training_in_a_process_of_its_own_that_fails_says_why(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sim2real, "_is_finished", lambda run: run.name != "oracle")  # one is enough
    prior = unknown_prior()
    posterior = Posterior(prior, draws=prior.sample(20, 0))
    posterior.save(tmp_path / "inference" / "posterior")
    found = Inference(
        "sim", posterior, dict.fromkeys(prior.names, 1.0), [], 0, InferenceOptions(), tmp_path / "inference"
    )
    (tmp_path / "policies").write_text("in the way")
    with pytest.raises(TrainingFailedError, match="policies"):
        sim2real.train_all(tmp_path, found, draw_robot(0), LoopOptions(epochs=1, jobs=4), lambda text: None)


@pytest.mark.usefixtures("empty_charts")
def test_the_command_closes_the_loop(tmp_path, capsys, monkeypatch, short_trainings) -> None:
    short = EstimatorConfig(max_epochs=2, num_transforms=1, hidden_features=8)
    monkeypatch.setattr(inferring, "infer_config", lambda options: short)
    command = ["sim2real", "demo", "--out", str(tmp_path / "loop"), "--simulations", "80", "--epochs", "1"]
    command += ["--episodes", "2", "--jobs", "1", "--rollouts", "2"]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told["means"]) == {"nominal", "uniform", "posterior", "oracle"}
    assert {"score_posterior", "score_uniform"} <= set(told)
    page = (tmp_path / "loop" / "report.html").read_text()
    for text in ("Return on the robot", "Robustness of posterior", "true", "Pairs of parameters"):
        assert text in page
    assert len(list((tmp_path / "loop" / "log").iterdir())) == 2
    assert foreign_in(tmp_path / "loop", SIM2REAL.layout) == []  # all that is written is known by name
    assert foreign_in(tmp_path / "loop" / "inference", INFER.layout) == []
    for mark in (tmp_path / "loop").rglob(".metaroll"):  # as an earlier version wrote it
        mark.unlink()
    assert kind_of(tmp_path / "loop") is SIM2REAL and kind_of(tmp_path / "loop" / "inference") is INFER


def test_there_is_only_the_demo(capsys) -> None:
    assert main(["sim2real", "race"]) == 2
    assert "the only subcommand is demo, got 'race'" in capsys.readouterr().err
