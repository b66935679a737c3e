"""Whole commands on tiny networks: train, resume, evaluate, demo; what they write, and what they refuse."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from metaroll.lab.cli.main import main
from metaroll.lab.runs.run_reports import read_run
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.session import sessions

TINY = {
    "hidden_sizes": [8, 8],
    "encoder_hidden_sizes": [8],
    "num_train_tasks": 3,
    "num_test_tasks": 4,
    "meta_batch_size": 2,
    "batch_size": 8,
    "embedding_batch_size": 8,
    "embedding_mini_batch_size": 8,
    "gradient_steps": 2,
    "tasks_per_epoch": 1,
    "warmup_steps": 20,
    "num_steps_prior": 20,
    "num_extra_rl_steps_posterior": 20,
    "epochs": 2,
}


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A working folder with a configuration file of tiny numbers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    return tmp_path


@pytest.fixture
def drawing_place(place, pictures) -> Path:
    """The same, where commands draw pictures."""
    return place


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with the runs ``r`` of one epoch and ``whole`` of two, with all its snapshots."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    for name, options in (("r", ["--epochs", "1"]), ("whole", ["--epochs", "2", "--snapshot-mode", "all"])):
        arguments = ["--config", str(folder / "tiny.yaml"), *options, "--out", str(folder / name), "--quiet"]
        assert main(["train", "pearl", "point-robot", *arguments]) == 0
    return folder


@pytest.fixture
def given_run(trained, place) -> Path:
    """``r``, a run of one epoch."""
    return Path(shutil.copytree(trained / "r", place / "r"))


@pytest.fixture
def whole_run(trained, place) -> dict:
    """The summary of ``whole``, a run of two epochs."""
    shutil.copytree(trained / "whole", place / "whole")
    return json.loads((place / "whole" / "summary.json").read_text())


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, " ".join(captured.err.split())


def train(capsys, *arguments: str) -> tuple[int, str, str]:
    return run(capsys, "train", "pearl", "point-robot", "--config", "tiny.yaml", *arguments)


def test_training_leaves_a_complete_run_folder_and_only_json_on_standard_output(drawing_place, capsys):
    status, out, err = train(capsys, "--seed", "3", "--epochs", "1", "--json")
    assert (status, "epoch 1/1" in err) == (0, True)
    summary = json.loads(out)
    folder = drawing_place / "runs" / "pearl-point-robot-3"
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert (summary["seed"], summary["epochs"], summary["n_test_tasks"]) == (3, 1, 4)
    # 3 tasks x 20 initial steps, then one visit of 20 steps under the prior and 20 under the posterior
    assert summary["env_steps"] == 3 * 20 + 40
    assert summary["change"] == pytest.approx(summary["return_after"] - summary["return_before"])
    assert len(summary["adaptation_curve"]["mean"]) == summary["n_exploration_episodes"] + 1
    for name in ("config.yaml", "metrics.jsonl", "snapshots", "adaptation_curve.png", "learning_curve.png"):
        assert (folder / name).exists()


def test_flags_override_the_file_and_everything_is_written_out(place, capsys):
    assert train(capsys, "--epochs", "1", "--batch-size", "4", "--out", "here", "--quiet")[0] == 0
    config = yaml.safe_load((place / "here" / "config.yaml").read_text())
    assert (config["algorithm"]["batch_size"], config["algorithm"]["meta_batch_size"]) == (4, 2)
    assert (config["algorithm"]["policy_lr"], config["algorithm"]["reward_scale"]) == (3e-4, 100.0)
    assert config["run"]["hidden_sizes"] == [8, 8]
    assert set(config["versions"]) >= {"metaroll", "numpy", "torch", "python"}


def test_a_resumed_run_is_the_run_that_was_never_interrupted(given_run, whole_run, capsys):
    status, out, _ = run(capsys, "resume", "r", "--epochs", "2", "--json")
    assert status == 0
    resumed = json.loads(out)
    assert {**resumed, "seconds": 0} == {**whole_run, "seconds": 0}
    assert (given_run / "metrics.jsonl").read_text().count("\n") > 0


def test_a_run_that_was_killed_before_its_first_snapshot_starts_anew(place, given_run, capsys):
    (place / "early").mkdir()
    for name in ("config.yaml", "task_split.json"):
        (place / "early" / name).write_bytes((given_run / name).read_bytes())
    status, out, _ = run(capsys, "resume", "early", "--json")
    assert status == 0
    expected = json.loads((given_run / "summary.json").read_text())
    assert {**json.loads(out), "seconds": 0} == {**expected, "seconds": 0}


def test_a_run_can_be_repeated_from_its_own_configuration(given_run, capsys):
    first, config = json.loads((given_run / "summary.json").read_text()), "r/config.yaml"
    again = json.loads(run(capsys, "train", "pearl", "point-robot", "--config", config, "--out", "b", "--json")[1])
    assert {**again, "seconds": 0} == {**first, "seconds": 0}


def test_evaluation_adapts_the_newest_snapshot_to_as_many_tasks_as_asked_for(place, given_run, capsys, request):
    before = {p: p.read_bytes() for p in (place / "r").rglob("*") if p.is_file()}
    status, out, _ = run(capsys, "evaluate", "r", "--episodes", "3", "--num-tasks", "6", "--seed", "1", "--json")
    assert status == 0
    values = json.loads(out)
    assert (values["n_test_tasks"], values["n_exploration_episodes"], values["epoch"]) == (6, 3, 1)
    assert json.loads((place / "r" / "evaluation.json").read_text()) == values
    assert {p: p.read_bytes() for p in before} == before
    request.getfixturevalue("pictures")
    shown = run(capsys, "evaluate", "r", "--episodes", "1", "--num-tasks", "2", "--out", "elsewhere/results")[1]
    assert (place / "elsewhere" / "results" / "evaluation.png").is_file()
    assert {p for p in (place / "r").rglob("*") if p.is_file()} == {*before, place / "r" / "evaluation.json"}
    assert "after 1 epoch" in shown and "elsewhere/results" in shown
    assert (place / "elsewhere" / "results" / "evaluation.json").is_file()
    assert json.loads((place / "r" / "evaluation.json").read_text()) == values
    again = json.loads(run(capsys, "evaluate", "r", "--episodes", "3", "--num-tasks", "6", "--seed", "1", "--json")[1])
    assert again == values


def test_the_demo_reports_floor_oracle_and_score_and_keeps_its_earlier_run(place, capsys, monkeypatch, request):
    from metaroll.training.session import demo

    small = {**TINY, "epochs": 1, "num_test_tasks": 40, "num_adaptation_episodes": 1}
    monkeypatch.setattr(demo, "DEMO_VALUES", {**demo.DEMO_VALUES, **small})
    monkeypatch.setattr(demo, "_FINAL_REPETITIONS", 1)
    status, out, _ = run(capsys, "demo", "--seed", "1", "--json")
    assert status == 0
    summary = json.loads(out)
    assert summary["return_oracle"] > summary["return_floor"]
    room = summary["return_oracle"] - summary["return_floor"]
    score = (summary["return_after"] - summary["return_floor"]) / room
    assert summary["normalized_score"] == pytest.approx(score)
    assert summary["normalized_score_ci_low"] < summary["normalized_score"]
    assert summary["n_test_tasks"] >= 40
    assert summary["n_exploration_episodes"] <= 5
    for name in ("change", "change_ci_low", "change_ci_high", "env_steps", "seconds", "adaptation_curve", "versions"):
        assert name in summary
    (place / "runs" / "demo" / "notes.txt").write_text("mine")
    request.getfixturevalue("pictures")
    status, out, err = run(capsys, "demo", "--seed", "1")
    assert (status, err) == (0, "")
    verdict = summary["verdict"]
    assert verdict["text"] in " ".join(out.replace("│", " ").split())
    assert verdict["oracle_share"] == pytest.approx(summary["normalized_score"])  # from the floor to the oracle
    assert verdict["posterior_divergence"] > 0 and verdict["task_divergence"] >= 0
    assert all(row["task"].startswith("goal=(") for row in summary["per_task"])
    assert "adaptation_curve.png" in out
    assert (place / "runs" / "demo-2" / "notes.txt").read_text() == "mine"
    assert json.loads((place / "runs" / "demo-2" / "summary.json").read_text()) == summary
    assert "the earlier demo in runs/demo is kept as runs/demo-2" in " ".join(out.split())
    again = json.loads((place / "runs" / "demo" / "summary.json").read_text())
    assert {**again, "seconds": 0} == {**summary, "seconds": 0}


class _Dies:
    """Ends the training at the end of its second epoch, before that is saved."""

    def on_epoch_end(self, runner, epoch, metrics) -> None:
        if epoch == 1:
            raise KeyboardInterrupt


def test_a_demo_that_was_stopped_goes_on_and_another_one_is_kept(place, capsys, monkeypatch):
    from metaroll.training.run.views import console_view
    from metaroll.training.session import demo

    small = {**TINY, "num_test_tasks": 6, "num_adaptation_episodes": 1}
    monkeypatch.setattr(demo, "DEMO_VALUES", {**demo.DEMO_VALUES, **small})
    monkeypatch.setattr(demo, "_FINAL_REPETITIONS", 1)
    whole = json.loads(run(capsys, "demo", "--out", "whole", "--epochs", "2", "--json")[1])

    def stop(epochs: int) -> None:
        with pytest.raises(KeyboardInterrupt):
            config = demo.demo_config({"epochs": epochs})
            sessions.start(config, Path("d"), console_view(quiet=True), callbacks=[_Dies()])

    stop(2)
    status, out, err = run(capsys, "demo", "--out", "d", "--epochs", "2")
    assert (status, err) == (0, "") and "continuing the demo in d, which was interrupted" in out
    resumed = json.loads(Path("d/summary.json").read_text())
    assert {**resumed, "seconds": 0} == {**whole, "seconds": 0}
    assert not Path("d-2").exists()
    stop(3)  # the finished one is kept
    assert json.loads(Path("d-2/summary.json").read_text()) == resumed
    status, out, err = run(capsys, "demo", "--out", "d", "--epochs", "2")
    assert (status, err) == (0, "") and "the earlier demo in d is kept as d-3" in out
    assert yaml.safe_load(Path("d-3/config.yaml").read_text())["run"]["epochs"] == 3
    Path("d/summary.json").unlink()  # killed after its last epoch, and before it was evaluated
    status, out, err = run(capsys, "demo", "--out", "d", "--epochs", "2")
    assert (status, err) == (0, "") and "continuing the demo" in out
    again = json.loads(Path("d/summary.json").read_text())
    assert again["return_after"] == whole["return_after"]
    assert not Path("d-4").exists()


def test_the_demo_leaves_what_it_did_not_write(place, capsys):
    Path("d").mkdir()
    Path("d/thesis.tex").write_text("mine")
    status, _, err = run(capsys, "demo", "--out", "d")
    assert status == 2
    assert "d exists and was not written by `metaroll demo` (it holds thesis.tex): choose another folder" in " ".join(
        err.split()
    )
    assert [path.name for path in Path("d").iterdir()] == ["thesis.tex"]


def test_the_demo_announces_the_memory_that_it_needs_and_is_refused_where_that_is_too_much(place):
    from metaroll.training.session.demo import demo_config
    from metaroll.training.session.experiments import build

    config = demo_config({"memory_limit": 200 * 2**20})
    algo = build(config).algo
    assert algo.memory_when_full < 200 * 2**20
    assert get_algorithm("pearl").amount(algo, config["algorithm"]).endswith(" MiB")
    with pytest.raises(ValueError, match="memory_limit"):
        build(demo_config({"memory_limit": 200 * 2**20, "epochs": 2000}))


def test_a_run_whose_pictures_cannot_be_written_ends_with_a_message_instead(drawing_place, capsys, monkeypatch):
    from metaroll.lab.figures import plots

    def full(figure, path):
        raise OSError("no space left on device")

    monkeypatch.setattr(plots, "_save", full)
    status, out, _ = train(capsys, "--epochs", "1", "--out", "r")
    assert status == 0
    assert "no pictures: no space left on device" in out
    assert (drawing_place / "r" / "summary.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch-size", "0"], "--batch-size must be an integer of at least 1, got 0"),
        (
            ["--num-steps-prior", "0", "--num-steps-posterior", "0"],
            "--num-steps-prior must be positive with --num-steps-posterior 0",
        ),
        (["--config", "nothing.yaml"], "there is no file nothing.yaml"),
        (["--transport", "pigeons"], "transport"),
        (
            ["--snapshot-mode", "seldom"],
            "--snapshot-mode must be one of all, gap, gap_and_last,",
        ),
        (["--engine", "pigeons"], "--engine must be one of auto, process, ray, serial, got 'pigeons'"),
        (["--device", "abacus"], "device"),
        (["--device", "meta"], "--device meta cannot be used here"),
        (["--num-train-tasks", "0"], "--num-train-tasks must be an integer of at least 1, got 0"),
        (["--num-test-tasks", "0"], "--num-test-tasks must be an integer of at least 1, got 0"),
        (["--hidden-sizes", "8", "10000000", "10000000"], "more than this machine has"),
        (["--encoder-hidden-sizes", "100000000000000"], "the networks do not fit into memory"),
        (
            ["--hidden-sizes", "8", "0"],
            "each entry of --hidden-sizes must be an integer of at least 1, got 0, in [8, 0]",
        ),
        (["--context-reward-key", "sparse"], "--context-reward-key 'sparse' is not among the infos of point-robot"),
        (["--return-reward-key", "sparse"], "--return-reward-key 'sparse' is not among the infos of point-robot"),
        (["--out", ""], "--out must name a folder"),
        (
            ["--out", "tiny.yaml/run"],
            "tiny.yaml/run cannot be used (Not a directory): choose another folder with --out",
        ),
    ],
)
def test_values_that_make_no_sense_are_one_line_and_leave_no_folder(place, capsys, arguments, message):
    status, out, err = (
        train(capsys, *arguments)
        if "--config" not in arguments
        else run(capsys, "train", "pearl", "point-robot", *arguments)
    )
    assert (status, out) == (2, "")
    assert err.startswith("metaroll: error: ")
    assert message in err
    assert "Traceback" not in err
    assert not (place / "runs").exists()


def test_an_existing_run_is_never_overwritten_and_both_cures_are_named(place, trained, capsys):
    shutil.copytree(trained / "r", place / "runs" / "pearl-point-robot-0")
    summary = (place / "runs" / "pearl-point-robot-0" / "summary.json").read_bytes()
    status, _, err = train(capsys, "--epochs", "1")
    assert status == 2
    assert "metaroll resume runs/pearl-point-robot-0" in err
    assert "--out" in err
    assert (place / "runs" / "pearl-point-robot-0" / "summary.json").read_bytes() == summary


def test_a_damaged_snapshot_is_one_line(place, given_run, capsys):
    for path in (place / "r" / "snapshots").rglob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    status, _, err = run(capsys, "resume", "r", "--epochs", "2")
    assert status == 2
    assert err.startswith("metaroll: error: ")
    assert "Traceback" not in err


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_damage_in_any_file_of_a_snapshot_is_one_line_and_touches_nothing(place, given_run, capsys):
    snapshot = place / "r" / "snapshots" / "000001"
    names = sorted(path.name for path in snapshot.iterdir())
    assert len(names) == 7
    for name in names:
        whole = (snapshot / name).read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        for damaged in (whole[:middle], b"", flipped, None):
            if damaged is None:
                (snapshot / name).unlink()
            else:
                (snapshot / name).write_bytes(damaged)
            before = contents(place / "r")
            status, out, err = run(capsys, "resume", "r", "--epochs", "2")
            assert (status, out) == (2, ""), (name, err)
            assert err.startswith("metaroll: error: snapshot 1 cannot be used: ")
            assert name in err
            assert err.endswith("there is no other snapshot; restore this one from a copy, or train again with --out")
            assert contents(place / "r") == before
            (snapshot / name).write_bytes(whole)


def test_an_older_snapshot_is_chosen_by_its_epoch(place, whole_run, capsys, monkeypatch):
    first = json.loads(run(capsys, "evaluate", "whole", "--from-epoch", "1", "--json")[1])
    assert first["epoch"] == 1
    shown = run(capsys, "evaluate", "whole", "--from-epoch", "0")[1]
    assert "metaroll resume whole --epochs N" in shown
    assert shown.startswith("this agent is untrained: the run has not finished its first epoch")
    assert "before training" in shown and "untrained" in shown and "summary" not in shown
    (place / "whole" / "snapshots" / "000002" / "algorithm.json").write_text("{")
    status, _, err = run(capsys, "evaluate", "whole")
    assert (status, "--from-epoch 1 (there are: 0, 1, 2)" in err) == (2, True)
    for name, count in (("summary.json", "epochs"), ("evaluation.json", "epoch")):  # of the training that is left
        (place / "whole" / name).write_text(json.dumps({count: 2, "return_after": 7.0}))
    before, opened = contents(place / "whole"), os.open

    def refuse(path, *arguments, **options):
        if os.fspath(path).endswith("evaluation.json"):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return opened(path, *arguments, **options)

    with monkeypatch.context() as patch:  # it could be of the training that is left, and count again later
        patch.setattr(os, "open", refuse)
        status, _, err = run(capsys, "resume", "whole", "--from-epoch", "1", "--epochs", "3")
    assert status != 0 and "evaluation.json" in err and contents(place / "whole") == before
    status, out, _ = run(capsys, "resume", "whole", "--from-epoch", "1", "--json")
    assert (status, json.loads(out)["epochs"]) == (0, whole_run["epochs"])
    assert read_run(place / "whole").newest_return == json.loads(out)["return_after"] != 7.0
    for name in ("summary", "evaluation"):
        assert json.loads((place / "whole" / f"{name}-000002.abandoned").read_text())["return_after"] == 7.0
    assert sorted(os.listdir(place / "whole" / "snapshots")) == ["000000", "000001", "000002", "000002.abandoned"]
    shutil.rmtree(place / "whole" / "snapshots" / "000002")  # as if it had been interrupted
    shown = run(capsys, "evaluate", "whole")[1]
    assert "metaroll resume whole" in shown and "--epochs" not in shown
    before = (place / "whole" / "evaluation.json").read_bytes()
    assert run(capsys, "resume", "whole")[0] == 0  # an evaluation of the snapshot that training continues from stays
    assert (place / "whole" / "evaluation.json").read_bytes() == before


def test_a_finished_run_keeps_its_times_and_its_epochs(place, whole_run, capsys):
    status, out, err = run(capsys, "resume", "whole", "--json")
    assert status == 0
    assert "all 2 epochs of whole are done" in err
    again = json.loads(out)
    assert {**again, "seconds": 0} == {**whole_run, "seconds": 0}
    assert again["seconds"] > 0.1 * whole_run["seconds"]
    status, _, err = run(capsys, "resume", "whole", "--epochs", "1")
    assert status == 2
    assert "--epochs must be at least 2, the number of finished epochs, got 1" in err
    assert yaml.safe_load((place / "whole" / "config.yaml").read_text())["run"]["epochs"] == 2


def test_a_run_whose_last_epoch_is_not_evaluated_reports_its_last_agent(whole_run, capsys):
    first = json.loads(train(capsys, "--out", "first", "--evaluate-every", "3", "--json")[1])
    assert {**first, "seconds": 0} == {**whole_run, "seconds": 0}


def test_a_changed_seed_is_refused_instead_of_training_on_other_tasks(place, given_run, capsys):
    path = place / "r" / "config.yaml"
    path.write_text(path.read_text().replace("  seed: 0", "  seed: 1"))
    for command in (["resume", "r", "--epochs", "2"], ["evaluate", "r"]):
        status, _, err = run(capsys, *command)
        assert status == 2
        assert "seed in r/config.yaml is 1, the snapshot was written with 0: set it back" in err


def test_metrics_after_the_snapshot_are_cut_and_torn_ones_refused_before_anything_is_touched(
    place, given_run, whole_run, capsys
):
    metrics = place / "r" / "metrics.jsonl"
    kept = metrics.read_bytes()
    for damaged in (kept[:-1], kept[: len(kept) // 2], b""):
        metrics.write_bytes(damaged)
        before = contents(place / "r")
        status, _, err = run(capsys, "resume", "r", "--epochs", "2")
        assert status == 2
        assert "metrics.jsonl was changed after snapshot 1 was written" in err
        assert "move it away to go on without the earlier numbers" in err
        assert contents(place / "r") == before
    metrics.write_bytes(kept + b'{"iteration": 1, "half a li')
    assert run(capsys, "resume", "r", "--epochs", "2", "--quiet")[0] == 0

    def without_times(path: Path) -> list[bytes]:
        return [line for line in path.read_bytes().splitlines() if b'"phase": "time"' not in line]

    assert without_times(metrics) == without_times(place / "whole" / "metrics.jsonl")


def test_a_damaged_line_of_metrics_costs_the_learning_curve_and_nothing_else(drawing_place, given_run, capsys):
    metrics = drawing_place / "r" / "metrics.jsonl"
    metrics.write_bytes(b"?" + metrics.read_bytes()[1:])
    (drawing_place / "r" / "summary.json").unlink()
    status, out, _ = run(capsys, "resume", "r", "--epochs", "2")
    assert status == 0
    assert "no learning curve: r/metrics.jsonl: line 1: it is not valid JSON" in " ".join(out.split())
    assert json.loads((drawing_place / "r" / "summary.json").read_text())["epochs"] == 2


@pytest.mark.usefixtures("empty_charts")
def test_an_evaluation_may_adapt_in_rounds_and_explore_with_noise(place, given_run, capsys):

    def evaluated(*options: str) -> dict:
        status, out, _ = run(capsys, "evaluate", "r", "--posterior-sampling=False", *options, "--json")
        assert status == 0
        return json.loads(out)

    rounds = evaluated("--adaptation-rounds", "3", "--episodes-per-round", "2", "--adapt-from", "last")
    assert rounds["n_exploration_episodes"] == 6  # not that of the run
    assert rounds["k_shot_curve"]["shots"] == [0, 1, 2, 3]
    assert rounds["k_shot_curve"]["unit"] == "rounds"
    assert rounds["protocol"] == {
        "n_exploration_traj": 6,
        "n_test_rollouts": 1,
        "posterior_sampling": False,
        "adaptation_rounds": 3,
        "episodes_per_round": 2,
        "adapt_from": "last",
        "deterministic_exploration": True,
        "repetitions": 2,
        "deterministic": True,
        "max_steps": 20,
        "seed": rounds["protocol"]["seed"],
    }
    assert json.loads((place / "r" / "evaluation.json").read_text())["protocol"] == rounds["protocol"]
    assert run(capsys, "report", "r", "--no-pictures")[0] == 0
    page = (place / "r" / "report.html").read_text()
    for name, value in (("adaptation_rounds", "3"), ("episodes_per_round", "2"), ("adapt_from", "last")):
        assert re.search(rf">evaluation: {name}<.*?>{value}<", page), name
    trained = json.loads((place / "r" / "summary.json").read_text())["protocol"]
    assert trained["posterior_sampling"] is True and "adaptation_rounds" not in trained
    few = ("--num-tasks", "2", "--episodes")
    quiet = evaluated(*few, "3", "--deterministic-exploration", "True")
    noisy = evaluated(*few, "3", "--deterministic-exploration", "False")
    assert evaluated(*few, "3")["return_before"] == quiet["return_before"] != noisy["return_before"]
    assert evaluated(*few, "4", "--adaptation-rounds", "2")["k_shot_curve"]["shots"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--episodes", "0"], "--episodes must be at least 1, got 0"),
        (["--adaptation-rounds", "0"], "--adaptation-rounds must be at least 1, got 0"),
        (["--episodes-per-round", "many"], "--episodes-per-round must be a whole number, got 'many'"),
        (["--adapt-from", "first"], "--adapt-from must be one of all, last, got 'first'"),
        (["--deterministic-exploration", "no"], "--deterministic-exploration must be one of False, True, got 'no'"),
        (["--episodes", "5", "--adaptation-rounds", "2"], "--adaptation-rounds must divide --episodes 5, got 2"),
        (
            ["--episodes", "5", "--adaptation-rounds", "2", "--episodes-per-round", "3"],
            "--episodes must be --adaptation-rounds * --episodes-per-round = 6, or left out, got 5",
        ),
        (["--adapt-from", "last"], "--posterior-sampling (as in training) adapts after every episode from all"),
        (
            ["--adaptation-rounds", "2", "--episodes-per-round", "2"],
            "leave --adaptation-rounds, --episodes-per-round, --adapt-from out, or switch it off",
        ),
        (["--adapt-from", "last", "--posterior-sampling", "True"], "--posterior-sampling adapts after every"),
        (["--num-tasks", "-1"], "--num-tasks must be at least 1, got -1"),
        (["--repetitions", "0"], "--repetitions must be at least 1, got 0"),
        (["--seed", "-1"], "--seed must be at least 0, got -1"),
        (["--from-epoch", "9"], "r has no snapshot after 9 epochs"),
        (["--out", "tiny.yaml/results"], "--out must name a folder that can be written"),
    ],
)
def test_an_evaluation_names_the_option_that_makes_no_sense(given_run, capsys, option, message):
    status, out, err = run(capsys, "evaluate", "r", *option)
    assert (status, out) == (2, "")
    assert message in err


def test_a_single_task_has_no_interval_and_the_json_no_nan(given_run, capsys):
    status, out, err = run(capsys, "evaluate", "r", "--num-tasks", "1", "--json")
    assert status == 0
    shown = " ".join(err.replace("│", " ").split())
    assert "on 1 held-out task (too few for an interval)" in shown and "no verdict: gain" in shown
    assert json.loads(out, parse_constant=pytest.fail)["gain_ci_low"] is None


def test_a_second_process_in_a_run_folder_is_refused_and_a_dead_one_forgotten(place, given_run, capsys):
    code = (
        "import time; from metaroll.data.folders.locks import FolderLock; l = FolderLock('r'); print(1, flush=True); "
    )
    holder = subprocess.Popen([sys.executable, "-c", code + "time.sleep(60)"], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"1\n"
        before = contents(place / "r")
        status, _, err = run(capsys, "resume", "r", "--epochs", "2")
        assert status == 2
        assert f"r is in use by process {holder.pid}: wait until that process is done" in err
        assert contents(place / "r") == before
        assert run(capsys, "evaluate", "r", "--quiet")[0] == 0  # reads only
    finally:
        holder.kill()
        holder.communicate()
    assert run(capsys, "resume", "r", "--epochs", "2", "--quiet")[0] == 0


def test_ctrl_c_keeps_the_run_and_prints_the_command_that_continues_it(place, capsys):
    snapshots, over = place / "r" / "snapshots", threading.Event()

    def interrupt() -> None:
        while not over.wait(0.01):
            if any(snapshots.glob("00000[1-9]")):
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        status = main(["train", "pearl", "point-robot", "--config", "tiny.yaml", "--epochs", "100000", "--out", "r"])
    finally:
        over.set()
        thread.join()
    err = capsys.readouterr().err
    assert status == 130, err
    assert err.strip().splitlines()[-1] == "metaroll: interrupted; continue with: metaroll resume r"
    assert "Traceback" not in err
    assert list(snapshots.glob("[0-9]*"))


def test_a_reward_key_of_an_environment_without_infos_is_one_line(place, capsys):
    """It was an internal error, in a configuration that a fuzzer had changed."""
    arguments = ("train", "cem", "CartPole-v1", "--return-reward-key", "sparse", "--epochs", "1")
    status, _, err = run(capsys, *arguments)
    assert status == 2
    assert "--return-reward-key 'sparse' is not among the infos of CartPole-v1 (it has: none)" in err
