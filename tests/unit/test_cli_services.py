"""Services of a run on the command line: what train takes, what resume may change, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import metaroll
from metaroll.lab.cli.main import main
from metaroll.training.store.run_folder import read_config
from metaroll.training.store.snapshots import load_snapshot, snapshots_of

TINY = ["cmaes", "CartPole-v1", "--max-steps", "15", "--n-samples", "4", "--num-episodes", "2", "--quiet"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, " ".join(captured.err.split())


def test_a_run_stops_keeps_its_best_and_goes_on_with_other_values(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("r")
    options = ["--stop-at", "1", "--stop-metric", "train/return", "--stop-mean-of", "2", "--keep-best", "train/return"]
    status, out, _ = run(capsys, "train", *TINY, "--epochs", "9", "--out", "r", "--keep-last", "2", *options, "--json")
    summary = json.loads(out)
    assert (status, summary["epochs"], summary["ended_early"]) == (0, 2, True)
    assert summary["best"]["metric"] == "train/return"
    best = summary["best"]["iteration"]
    assert set(snapshots_of(folder)) == {best, 1, 2}

    status, out, _ = run(capsys, "evaluate", "r", "--from-epoch", "best", "--quiet", "--json")
    assert (status, json.loads(out)["epoch"]) == (0, best)
    assert load_snapshot(folder, "best").iteration == best

    status, _, err = run(capsys, "resume", "r", "--quiet")  # the target is reached: nothing is trained
    assert (status, err, max(snapshots_of(folder))) == (0, "", 2)
    changes = ["--stop-at", "none", "--epochs", "4", "--keep-last", "1", "--keep-best", "none", "--evaluate-every", "3"]
    assert run(capsys, "resume", "r", "--quiet", *changes)[0] == 0
    assert list(snapshots_of(folder)) == [4]
    config = read_config(folder)
    assert (config["run"]["stop_at"], config["run"]["keep_best"], config["run"]["epochs"]) == (None, None, 4)
    assert config["algorithm"]["evaluate_every"] == 3
    assert run(capsys, "resume", "r", "--quiet", "--epochs", "9", "--budget", "0.001s")[0] == 0
    assert list(snapshots_of(folder)) == [4]  # what the run has taken before counts


def test_what_may_not_change_is_refused_and_nothing_is_touched(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "train", *TINY, "--epochs", "1", "--out", "r")[0] == 0
    before = {path: path.read_bytes() for path in Path("r").rglob("*") if path.is_file()}
    for arguments, message in (
        (
            ["--sigma0", "0.1"],
            "--sigma0 cannot change in a run that continues, it is 0.5 in r/config.yaml: start a new run with ",
        ),
        (["--seed=3"], "--seed cannot change in a run that continues, it is 0 in r/config.yaml"),
        (["--nonsense", "1"], "unknown option --nonsense"),
        (["--stop-at", "high"], "--stop-at must be a number or none, got 'high'"),
        (["--stop-mean-of", "0"], "--stop-mean-of must be an integer of at least 1, got 0"),
        (["--budget", "soon"], "--budget must be a time above 0, as 90s, 10m, 1h30m or 2d, got 'soon'"),
        (["--keep-last", "3", "--snapshot-mode", "all"], "--keep-last is for --snapshot-mode 'last' or"),
        (["--keep-best", "return", "--evaluate-every", "0"], "--keep-best return is a metric of evaluations"),
        (["--epochs", "0"], "an integer of at least 1"),
    ):
        status, _, err = run(capsys, "resume", "r", *arguments)
        assert (status, message in err) == (2, True), err
    assert {path: path.read_bytes() for path in Path("r").rglob("*") if path.is_file()} == before


def test_a_misspelled_metric_is_told_with_a_command_that_continues(capsys: pytest.CaptureFixture[str]) -> None:
    for option, name, guess in (
        ("--keep-best", "retrn", "--keep-best return"),
        ("--keep-best", "nothing-like-it", "--keep-best none"),
        ("--stop-metric", "train/sigmaa", "--stop-metric train/sigma"),
    ):
        folder = name.replace("/", "-")
        few = ["--epochs", "2", "--stop-at", "1e9", "--evaluate-every", "1", "--out", folder]
        status, _, err = run(capsys, "train", *TINY, *few, option, name)
        assert (status, f"{option} '{name}' is not among the numbers of epoch 1" in err) == (2, True), err
        assert f"try again with: metaroll resume {folder} {guess}" in err and "Known: return, train/" in err, err
        assert run(capsys, *f"resume {folder} {guess} --quiet".split())[0] == 0
    group = ["--epochs", "1", "--evaluate-every", "0", "--seeds", "2", "--out", "g"]  # no evaluation has a return
    status, _, err = run(capsys, "train", *TINY, *group, "--keep-best", "retrn")
    assert status == 2 and "try again with: metaroll resume g --keep-best train/return" in err, err


def test_a_misspelled_metric_is_refused_before_a_resumed_run_trains(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--epochs", "2", "--stop-at", "0", "--evaluate-every", "1", "--out", "r"]
    assert run(capsys, "train", *TINY, *few)[0] == 0
    before = {path: path.read_bytes() for path in Path("r").rglob("*") if path.is_file()}
    for options in (["--keep-best", "retrun", "--stop-at", "1e9"], ["--stop-metric", "retrun", "--stop-at", "1e9"]):
        status, out, err = run(capsys, "resume", "r", *options)
        text = f"{options[0]} 'retrun' is not among the numbers of epoch 1; did you mean 'return'"
        assert (status, text in err) == (2, True), err
        assert "epoch 2/2" not in out and "continue with" not in err, (out, err)  # which would forget --stop-at
        assert {path: path.read_bytes() for path in Path("r").rglob("*") if path.is_file()} == before
    config = Path("r/config.yaml")
    text = config.read_text().replace("keep_best: null", "keep_best: retrun").replace("stop_at: 0.0", "stop_at: null")
    config.write_text(text)
    status, _, err = run(capsys, "resume", "r")
    assert (status, "continue with: metaroll resume r --keep-best return" in err) == (2, True), err
    assert run(capsys, "resume", "r", "--keep-best", "return", "--quiet")[0] == 0


def test_an_algorithm_without_the_option_refuses_it(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "train", *TINY, "--keep-best", "return", "--snapshot-mode", "none", "--out", "r")
    assert (status, "--keep-best must be left out with --snapshot-mode none, got 'return'" in err) == (2, True)
    status, _, err = run(capsys, "train", *TINY, "--step-timeout", "nan", "--out", "r")
    assert (status, "--step-timeout must lie in (0, inf), got nan" in err) == (2, True)
    status, _, err = run(capsys, "train", "pearl", "point-robot", "--target", "3")
    assert status == 2 and "--stop-at" in err
    assert not Path("r").exists()


def test_groups_of_runs_go_on_with_other_values(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--epochs", "3", "--stop-at", "1", "--stop-metric", "train/return", "--seeds", "2", "--out", "g"]
    assert run(capsys, "train", *TINY, *options)[0] == 0
    assert [max(snapshots_of(f"g/seed-{seed}")) for seed in (0, 1)] == [1, 1]
    assert run(capsys, "resume", "g", "--quiet")[0] == 0  # both have ended
    assert run(capsys, "resume", "g", "--quiet", "--stop-at", "none")[0] == 0
    assert [max(snapshots_of(f"g/seed-{seed}")) for seed in (0, 1)] == [3, 3]


def test_an_agent_is_loaded_from_its_best_snapshot_and_goes_on_from_there() -> None:
    sizes = {"max_path_length": 15, "n_samples": 4, "num_episodes": 2}
    agent = metaroll.agent("cmaes", "CartPole-v1", keep_best="train/return", run_dir="r", **sizes)
    agent.learn(epochs=4, progress=False)
    best = load_snapshot("r", "best")
    loaded = metaroll.load("r", from_epoch="best")
    assert loaded.algo.num_epochs == best.iteration
    assert f"{best.iteration} epoch" in repr(loaded)
    assert load_snapshot(loaded.save("copy")).iteration == best.iteration
    loaded.learn(epochs=1, progress=False)
    assert loaded.algo.num_epochs == best.iteration + 1
    assert max(snapshots_of("r")) == 4  # the folder stays as it is


def test_the_configuration_of_a_run_trains_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    """What changes nothing in it, since one name has set several options, is no mistake in a file of a run."""
    small = [
        "--epochs",
        "1",
        "--hidden-sizes",
        "4",
        "--cycles-per-epoch",
        "1",
        "--warmup-steps",
        "10",
        "--max-steps",
        "10",
    ]
    small += ["--evaluate-every", "0", "--snapshot-mode", "none", "--batch-size", "4"]
    both = ["--ent-coef", "0.1", "--learning-rate", "0.002"]
    assert run(capsys, "train", "sac", "Pendulum-v1", *small, *both, "--out", "a")[0] == 0
    assert (
        run(capsys, "train", "sac", "Pendulum-v1", "--config", "a/config.yaml", "--gamma", "0.9", "--out", "b")[0] == 0
    )
    status, _, err = run(capsys, "train", "sac", "Pendulum-v1", "--config", "a/config.yaml", "--temperature-lr", "0.1")
    assert (status, "--temperature-lr 0.1 has no effect" in err) == (2, True), err
