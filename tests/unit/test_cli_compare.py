"""The commands compare and plot, and train over several seeds, on tiny networks."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rich.console import Console
from test_cli_sessions import TINY

from metaroll.data.folders.contents import foreign_in
from metaroll.data.folders.kinds import GROUP
from metaroll.functional.robust_statistics import interval_of_iqm
from metaroll.lab.cli.main import main
from metaroll.lab.comparing.comparison import Comparison, compare
from metaroll.training.evaluation.numbers import short_number
from metaroll.training.session import sessions
from metaroll.training.store.files import read_json
from metaroll.training.store.metrics_log import MetricsLog
from metaroll.training.store.run_store import RunStore

SMALL = {**TINY, "epochs": 1, "num_train_tasks": 2, "num_test_tasks": 2, "repetitions": 1}
CONFIG: dict = {
    "metaroll_run": 1,
    "algo": "pearl",
    "env": "point-robot",
    "run": {"seed": 0, "task_seed": 5, "epochs": 3},
    "algorithm": {"max_path_length": 20, "policy_lr": 0.1, "num_train_tasks": 4, "num_test_tasks": 2},
    "evaluation": {"n_exploration_traj": 2},
    "versions": {"metaroll": "1", "mujoco": "3.3.0"},
}


def write_run(folder: Path, scores: list[float], seed: int, **changes: dict) -> None:
    """A run of two evaluations; ``scores`` of its tasks are those of the second."""
    config = {**CONFIG, **{name: {**CONFIG.get(name, {}), **values} for name, values in changes.items()}}
    config["run"] = {**config["run"], "seed": seed}
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    log = MetricsLog(folder)
    for epoch, level in enumerate((-30.0, 0.0)):
        log.append(epoch, 100 * (epoch + 1), "MetaTest", {"return_after": level + float(np.mean(scores))})
        for i, score in enumerate(scores):
            log.append(epoch, 100 * (epoch + 1), "MetaTest", {"return_after": level + score}, task=f"task {i}")
    log.flush()


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    """Two groups of three seeds each."""
    monkeypatch.chdir(tmp_path)
    for seed, scores in enumerate(([1.0, 4.0], [2.0, 6.0], [3.0, 8.0])):
        write_run(tmp_path / "runs" / f"slow-{seed}", scores, seed)
        better = [score + 1 for score in scores]
        write_run(tmp_path / "runs" / f"fast-{seed}", better, seed, algorithm={"policy_lr": 0.2})
    return tmp_path


def test_runs_of_another_plug_in_are_another_group_and_in_another_environment_none(tmp_path, monkeypatch, capsys):
    """They were merged into one group, and compared."""
    monkeypatch.chdir(tmp_path)
    kept = {"distribution": "mazes", "version": "1.0", "sha256": "abc"}
    for seed, version in enumerate(("1.0", "1.0", "1.1", "1.1")):
        plugins = {"plugin": {**kept, "version": version}, "env_plugin": kept, "own_network": {"sha256": "f" * 64}}
        write_run(tmp_path / "runs" / f"{version}-{seed}", [1.0, 2.0], seed, **plugins)
    assert main(["compare", "runs", "--json"]) == 0
    labels = [group["group"] for group in json.loads(capsys.readouterr().out)["groups"]]
    assert sorted(label.partition("plugin=")[2] for label in labels) == [
        f"mazes {v} sha256:abc" for v in ("1.0", "1.1")
    ]
    write_run(tmp_path / "runs" / "other", [1.0, 2.0], 4, plugin=kept, env_plugin={**kept, "sha256": "abd"})
    assert "plug-in of the environment is 'mazes 1.0 sha256:abc'" in refusal(capsys, "compare", "runs")


def refusal(capsys, *arguments: str) -> str:
    assert main(arguments) == 2
    return " ".join(capsys.readouterr().err.split())


def test_groups_are_found_and_compared(runs, capsys):
    assert main(["compare", "runs", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    labels = ["pearl point-robot policy_lr=0.2", "pearl point-robot policy_lr=0.1"]
    assert [entry["group"] for entry in found["groups"]] == labels
    assert [entry["mean"] for entry in found["groups"]] == [5.0, 4.0]
    assert found["groups"][0]["seeds"] == [0, 1, 2]
    (pair,) = found["comparisons"]
    assert (pair["paired"], pair["difference"], pair["improvement"]) == (True, 1.0, 1.0)
    assert main(["compare", "runs", "--pairing", "unpaired"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "(not paired) difference +1.00 [" in shown
    assert "with fewer than 5 seeds" in shown


def test_single_seeds_are_not_said_to_improve(runs, capsys):
    assert main(["compare", "runs/slow-0", "runs/fast-0"]) == 0
    assert "probability of improvement unknown with a single seed each" in " ".join(capsys.readouterr().out.split())


def test_in_a_notebook_a_comparison_is_a_table(runs):
    shown = compare("runs")._repr_html_()
    assert shown.count("<tr>") == 3 and "pearl point-robot policy_lr=0.2" in shown and "3 seeds" in shown
    assert "probability of improvement" in shown and "95 % percentile bootstrap" in shown


def test_what_cannot_be_compared_is_refused(runs, capsys):
    write_run(runs / "other" / "versions", [1.0, 2.0], 7, versions={"mujoco": "3.4.0"})
    text = refusal(capsys, "compare", "runs/slow-0", "other")
    assert "version of mujoco is '3.3.0' in runs/slow-0 and '3.4.0' in other/versions" in text
    write_run(runs / "longer", [1.0, 2.0], 7, algorithm={"max_path_length": 40})
    assert "--max-steps is 20" in refusal(capsys, "compare", "runs/slow-0", "longer")
    write_run(runs / "shots", [1.0, 2.0], 7, evaluation={"n_exploration_traj": 9})
    assert "--num-adaptation-episodes is 2" in refusal(capsys, "plot", "runs/slow-0", "shots")
    write_run(runs / "twin", [1.0, 2.0], 0)
    assert "have the same seed" in refusal(capsys, "compare", "runs/slow-0", "twin")
    text = refusal(capsys, "compare", "runs/slow-0", "runs/fast-1", "--pairing", "paired")
    assert "needs the same seeds, got [0] and [1]" in text
    assert "the folders of the runs are missing" in refusal(capsys, "compare")
    (runs / "runs" / "slow-0" / "metrics.jsonl").unlink()
    assert "has no evaluation yet" in refusal(capsys, "compare", "runs/slow-0")


@pytest.mark.usefixtures("empty_charts")
def test_a_run_whose_metrics_were_cut_is_refused_as_reports_name_it(runs, capsys):
    folder = runs / "runs" / "slow-1"
    whole = (folder / "metrics.jsonl").read_bytes()
    RunStore(folder).save(2, {"algo": {"weight": 1.0}}, {"algorithm": "PEARL", "fingerprint": {}})
    assert main(["compare", "runs", "--quiet"]) == 0
    (folder / "metrics.jsonl").write_bytes(whole[: whole.rfind(b'{"iteration"')])
    told = "metrics.jsonl was changed after snapshot 2 was written (a line must end at byte"
    for arguments in (["compare"], ["plot", "--out", "c.png"]):
        text = refusal(capsys, arguments[0], "runs", *arguments[1:])
        assert "runs/slow-1 is damaged: " in text and told in text and "restore it from a copy" in text
    assert main(["report", "runs/slow-1", "--no-pictures"]) == 0
    assert told in (folder / "report.html").read_text()


def test_two_folders_that_are_one_group_are_named(runs, capsys):
    for seed in (3, 4):
        write_run(runs / "more" / f"slow-{seed}", [1.0, 2.0], seed)
    # Single runs of one group are what was asked for; a folder of runs beside others may be meant as a group.
    assert main(["compare", "more/slow-3", "more/slow-4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == []
    expected = "runs/slow-0 and more differ only in their seeds and form one group of 3 runs"
    assert main(["compare", "runs/slow-0", "more", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [expected]
    for seed in (5, 6):
        write_run(runs / "other" / f"slow-{seed}", [1.0, 2.0], seed, run={"task_seed": 6})
    expected = (
        "more and other differ only in their seeds and form one group of 4 runs; "
        "their held-out tasks differ (--task-seed 5 and 6)"
    )
    for arguments in (["compare", "more", "other"], ["plot", "more", "other", "--out", "c.png"]):
        assert main(arguments) == 0
        assert expected in " ".join(capsys.readouterr().out.split())
    write_run(runs / "twin", [1.0, 2.0], 3, run={"task_seed": None})
    text = refusal(capsys, "compare", "more", "twin")
    assert "(more/slow-3, twin) and differ only in their held-out tasks (--task-seed 5 and not given)" in text


def test_the_picture(runs, capsys):
    assert main(["plot", "runs", "--out", "c.png"]) == 0
    assert (runs / "c.png").read_bytes().startswith(b"\x89PNG")
    assert "c.png" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "start"), [("new/c.pdf", b"%PDF"), ("c.svg", b"<?xml")])
def test_the_ending_says_as_what_a_picture_is_written(runs, name, start):
    for _ in range(2):
        assert main(["plot", "runs", "--out", name, "--quiet"]) == 0
        assert (runs / name).read_bytes().startswith(start)


def test_a_picture_that_cannot_be_written_is_refused(runs, capsys):
    text = refusal(capsys, "plot", "runs", "--out", "c.xyz")
    assert "--out must end in .png, .pdf or .svg, got 'c.xyz'" in text
    assert "--out must end in" in refusal(capsys, "plot", "runs", "--out", "")
    assert "--out must name a file that can be written, got '/proc/c.svg': No such file" in refusal(
        capsys, "plot", "runs", "--out", "/proc/c.svg"
    )
    (runs / "c.png").mkdir()
    assert "it is a folder" in refusal(capsys, "plot", "runs", "--out", "c.png")
    assert sorted(path.name for path in runs.iterdir()) == ["c.png", "runs"]


def test_runs_that_have_not_finished_are_named(runs, capsys):
    assert main(["compare", "runs/slow-0", "runs/slow-1", "--json"]) == 0
    captured = capsys.readouterr()
    expected = [f"runs/slow-{seed} (interrupted, 2 of 3 epochs)" for seed in (0, 1)]
    assert json.loads(captured.out)["unfinished"] == expected
    assert f"not finished: {', '.join(expected)}" in " ".join(captured.err.split())


def test_a_run_without_evaluations_on_its_way_counts_with_that_of_its_end(runs, capsys):
    log = MetricsLog(runs / "runs" / "fast-0")
    (runs / "runs" / "fast-0" / "metrics.jsonl").unlink()
    log.append(2, 300, "train", {"loss": 1.0})
    log.flush()
    text = refusal(capsys, "compare", "runs/slow-0", "runs/fast-0")
    assert "`metaroll resume runs/fast-0` trains it to its end" in text and "--evaluate-every N" in text
    at_the_end = {"epochs": 3, "env_steps": 300, "return_after": 7.0}
    rows = [{"name": "task 0", "return_after": 6.0}, {"name": "task 1", "return_after": 8.0}]
    (runs / "runs" / "fast-0" / "summary.json").write_text(json.dumps({**at_the_end, "per_task": rows}))
    assert main(["compare", "runs/slow-0", "runs/fast-0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["mean"] for entry in found["groups"]] == [2.5, 7.0]
    assert (found["groups"][1]["env_steps"], found["unfinished"]) == (
        [300],
        ["runs/slow-0 (interrupted, 2 of 3 epochs)"],
    )


def evaluated(folder: Path, scores: list[float], **protocol: Any) -> None:
    """``metaroll evaluate`` has evaluated the second epoch of a run of ``write_run``."""
    rows = [{"name": f"task {i}", "return_after": score} for i, score in enumerate(scores)]
    trained = protocol.pop("trained", {})
    numbers = {"epoch": 2, "return_after": float(np.mean(scores)), "per_task": rows, "protocol": protocol} | trained
    (folder / "evaluation.json").write_text(json.dumps({**numbers, "versions": CONFIG["versions"]}))


def test_runs_that_were_evaluated_again_in_the_same_way_can_be_compared(runs, capsys):
    """The message for runs that were evaluated in different ways must not send anyone round in a circle."""
    write_run(runs / "shots", [1.0, 2.0], 7, evaluation={"n_exploration_traj": 9}, versions={"mujoco": "3.4.0"})
    compared, plotted = (["compare", "shots", "runs/slow-0"], ["plot", "shots", "runs/slow-0", "--out", "c.png"])
    assert "--num-adaptation-episodes is 9 in shots and 2 in runs/slow-0" in refusal(capsys, *compared)
    evaluated(runs / "shots", [5.0, 7.0], n_exploration_traj=4, adaptation_rounds=1, seed=3)
    assert "--num-adaptation-episodes is 4 in shots and 2 in runs/slow-0" in refusal(capsys, *compared)
    evaluated(runs / "runs" / "slow-0", [6.0, 8.0, 10.0], n_exploration_traj=4, adaptation_rounds=1, seed=4)
    assert "--num-test-tasks is 2 in shots and 3 in runs/slow-0" in refusal(capsys, *compared)
    evaluated(runs / "runs" / "slow-0", [6.0, 8.0], n_exploration_traj=4, adaptation_rounds=2, seed=4)
    assert "--adaptation-rounds is 1 in shots and 2 in runs/slow-0" in refusal(capsys, *compared)
    evaluated(runs / "runs" / "slow-0", [6.0, 8.0], n_exploration_traj=4, adaptation_rounds=1, seed=4)
    evaluated(runs / "shots", [5.0, 7.0], n_exploration_traj=4, adaptation_rounds=1, max_steps=3, seed=3)
    assert "--max-steps is 3 in shots and 20 in runs/slow-0" in refusal(capsys, *compared)
    evaluated(runs / "shots", [5.0, 7.0], n_exploration_traj=4, adaptation_rounds=1, max_steps=20, seed=3)
    whole = json.loads((runs / "shots" / "evaluation.json").read_text())
    (runs / "shots" / "evaluation.json").write_text(json.dumps({k: v for k, v in whole.items() if k != "protocol"}))
    assert "does not say how it was made: `metaroll evaluate shots` makes a new one" in refusal(capsys, *compared)
    (runs / "shots" / "evaluation.json").write_text(json.dumps(whole))
    assert main([*compared, "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]  # both were trained with the same options
    assert (group["seeds"], group["mean"], group["env_steps"]) == ([0, 7], 6.5, [200, 200])
    text = refusal(capsys, *plotted)  # curves are of training, and are still different
    assert "--num-adaptation-episodes is 9" in text and "train all of them in the same way" in text


def test_an_evaluation_as_in_training_is_comparable_with_runs_that_were_not_evaluated_again(runs, capsys):
    """What an algorithm settles itself (its rounds) is no difference, only what `metaroll evaluate` was given."""
    one = runs / "runs" / "slow-0"
    protocol = {"n_exploration_traj": 2, "adaptation_rounds": 1}
    (one / "summary.json").write_text(json.dumps({"epochs": 2, "return_after": 9.0, "protocol": protocol}))
    for other, folder in ((2, one), (0, runs / "runs" / "slow-1")):
        changed = yaml.safe_load((folder / "config.yaml").read_text())
        changed["evaluation"]["adaptation_rounds"] = None
        (folder / "config.yaml").write_text(yaml.safe_dump(changed))
        evaluated(one, [6.0, 8.0], **{**protocol, "n_exploration_traj": 2 + other}, seed=4)
        if other:
            assert "--num-adaptation-episodes is 4" in refusal(capsys, "compare", str(one), "runs/slow-1")
    assert main(["compare", str(one), "runs/slow-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"][0]["mean"] == 5.5
    (one / "evaluation.json").write_text('{"epoch": ')
    assert "evaluation.json" in refusal(capsys, "compare", str(one))


def test_an_interrupted_run_that_was_evaluated_as_in_training_is_comparable(runs, capsys):
    """What is left to the algorithm was another value than the one that it chose, without a final evaluation."""
    one, other = runs / "runs" / "slow-0", runs / "runs" / "slow-1"
    left, chosen = {"adaptation_rounds": None, "adapt_from": "all"}, {"adaptation_rounds": 2, "adapt_from": "last"}
    for folder in (one, other):
        changed = yaml.safe_load((folder / "config.yaml").read_text())
        changed["evaluation"] |= left
        (folder / "config.yaml").write_text(yaml.safe_dump(changed))
    compared = ["compare", str(one), "runs/slow-1", "--quiet"]
    evaluated(one, [6.0, 8.0], adaptation_rounds=2, seed=4)  # by an earlier version
    assert main(compared) == 0
    as_trained = {"trained": {"training_protocol": chosen}}
    evaluated(one, [6.0, 8.0], **chosen, seed=4, **as_trained)
    assert main(compared) == 0
    evaluated(one, [6.0, 8.0], **{**chosen, "adaptation_rounds": 3}, seed=4, **as_trained)
    assert "--adaptation-rounds is 3 in" in refusal(capsys, *compared)
    # Trained with posterior sampling, which has no rounds, and evaluated without.
    without = {"trained": {"training_protocol": {"posterior_sampling": True, "num_prior_episodes": 1}}}
    evaluated(one, [6.0, 8.0], **{**chosen, "adaptation_rounds": 3}, seed=4, **without)
    assert "--adapt-from is 'last' in" in (said := refusal(capsys, *compared)) and "--adaptation-rounds" in said


def test_repetitions_of_a_final_evaluation_are_those_that_it_had(runs, capsys):
    """That of the demo has more of them than those of its training."""
    one = runs / "runs" / "slow-0"
    for folder in (one, runs / "runs" / "slow-1"):
        changed = yaml.safe_load((folder / "config.yaml").read_text())
        changed["evaluation"]["repetitions"] = 1
        (folder / "config.yaml").write_text(yaml.safe_dump(changed))
    rows = [{"name": f"task {i}", "return_after": 9.0} for i in range(2)]
    final: dict[str, Any] = {"epochs": 2, "return_after": 9.0, "per_task": rows}
    final["protocol"] = {"n_exploration_traj": 2, "repetitions": 4}
    (one / "summary.json").write_text(json.dumps({**final, "versions": CONFIG["versions"]}))
    assert "--repetitions is 4 in" in refusal(capsys, "compare", str(one), "runs/slow-1")
    evaluated(one, [6.0, 8.0], **final["protocol"])
    assert "--repetitions is 4 in" in refusal(capsys, "compare", str(one), "runs/slow-1")
    evaluated(one, [6.0, 8.0], n_exploration_traj=2, repetitions=1)
    assert main(["compare", str(one), "runs/slow-1", "--quiet"]) == 0


def test_one_run_per_seed(tmp_path, monkeypatch, capsys):
    """In this process; in several: test_cli_seed_group.py."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(SMALL))
    arguments = [
        "train",
        "pearl",
        "point-robot",
        "--config",
        "tiny.yaml",
        "--out",
        "many",
        "--seed",
        "4",
        "--seeds",
        "2",
    ]
    assert main([*arguments, "--json"]) == 0
    summaries = json.loads(capsys.readouterr().out)["runs"]
    assert [summary["seed"] for summary in summaries] == [4, 5]
    names = sorted(path.name for path in (tmp_path / "many").iterdir() if not path.name.startswith("."))
    assert names == ["group.yaml", "seed-4", "seed-5"]
    assert foreign_in(tmp_path / "many", GROUP.layout) == []
    text = refusal(capsys, *arguments)
    assert "a group of runs already exists in many (seeds 4, 5): `metaroll resume many` continues" in text
    # One that has not begun, one that has finished.
    shutil.rmtree(tmp_path / "many" / "seed-5")
    assert main(["compare", "many", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unfinished"] == ["many/seed-5 (not begun)"]
    before = (tmp_path / "many" / "seed-4" / "summary.json").read_bytes()
    assert main(["resume", "many", "--jobs", "1", "--json"]) == 0
    assert [summary["seed"] for summary in json.loads(capsys.readouterr().out)["runs"]] == [4, 5]
    assert (tmp_path / "many" / "seed-4" / "summary.json").read_bytes() == before
    # More epochs for all of them.
    assert main(["resume", "many", "--jobs", "1", "--epochs", "2", "--json"]) == 0
    assert [summary["epochs"] for summary in json.loads(capsys.readouterr().out)["runs"]] == [2, 2]
    for command in ("evaluate", "report", "watch"):
        assert "many is a group of runs" in (text := refusal(capsys, command, "many")) and "many/seed-4" in text
    kept = Path("many/group.yaml").read_bytes()
    assert "--epochs must be at least 2, which a run of the group has" in refusal(
        capsys, "resume", "many", "--epochs", "1"
    )
    assert Path("many/group.yaml").read_bytes() == kept  # otherwise a later resume would train fewer epochs
    assert "--from-epoch is for one run" in refusal(capsys, "resume", "many", "--from-epoch", "1")
    assert "--jobs is for a group of runs" in refusal(capsys, "resume", "many/seed-4", "--jobs", "2")


def test_a_group_that_was_interrupted_says_how_it_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(SMALL))
    train = ["train", "pearl", "point-robot", "--config", "tiny.yaml", "--seeds", "2", "--quiet"]
    started, begin = [], sessions.start

    def interrupted(config, folder, *arguments, **options):
        started.append(folder.name)
        if folder.name == "seed-1":
            raise KeyboardInterrupt
        begin(config, folder, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(sessions, "start", interrupted)
        assert main(train) == 130
    group = "runs/pearl-point-robot-seeds-0-1"
    assert f"interrupted; continue with: metaroll resume {group}" in " ".join(capsys.readouterr().err.split())
    assert started == ["seed-0", "seed-1"]
    assert main(["resume", group]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{group}/seed-0 is finished" in shown and f"run folder {group}/seed-1;" in shown


def test_a_group_of_which_nothing_begins_may_be_asked_for_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(SMALL))
    train = ["train", "pearl", "point-robot", "--config", "tiny.yaml", "--seeds", "2", "--quiet"]
    assert "resume" not in refusal(capsys, *train, "--context-reward-key", "nothing")
    assert main(train) == 0


def test_an_evaluation_says_whether_it_adapts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump({**TINY, "epochs": 1}))
    assert main(["train", "pearl", "point-robot", "--config", "tiny.yaml", "--out", "r", "--quiet"]) == 0
    assert main(["evaluate", "r", "--adapted-episodes", "3", "--repetitions", "2", "--json"]) == 0
    captured = capsys.readouterr()
    values = json.loads(captured.out)
    assert values["k_shot_curve"]["shots"] == [0, 1, 2]
    assert set(values["baselines"]) == {"no adaptation", "random context", "task oracle"}
    assert values["baselines"]["task oracle"]["advantage"] < 0
    assert len(values["per_task"]) == 4
    without = values["baselines"]["no adaptation"]
    assert values["gain"] == without["advantage"] == pytest.approx(values["return_after"] - without["return"])
    assert values["change"] == pytest.approx(values["return_after"] - values["return_before"])
    assert values["share_worse"] == np.mean([row["worse"] for row in values["per_task"]])
    # No success ends an episode here, so that none is the first to finish.
    assert (values["first_finished_bias"], values["first_finished_success_rate"]) == (0.0, values["success_rate"])
    # What the file keeps of each cell gives the intervals anew.
    kept = read_json("r/evaluation.json")["cell_returns"]
    assert set(kept) == {"before", "after", "no_adaptation", "random_context", "task_oracle"}
    runs = np.transpose(kept["after"])
    assert list(interval_of_iqm(runs, generator=0)) == values["return_after_iqm_interval"]
    gains = np.mean(np.subtract(kept["after"], kept["no_adaptation"]), axis=1)
    assert values["gain"] == gains.mean() and len(gains) == 4  # too few for an interval
    assert values["gain_ci_low"] is None is values["gain_ci_high"]
    assert "cell_returns" not in read_json("r/summary.json")
    shown = " ".join(captured.err.split())
    assert "k-shot curve" in shown
    assert "all episodes have the same length, so Meta-World's rule" in shown
    assert "which is biased" not in shown
    assert "got worse by adapting" in shown
    assert f"adaptation gain (paired) {short_number(values['gain'], sign='+')}" in shown
    assert "first-to-last-episode difference" not in shown
    verdict = values["verdict"]
    assert [verdict[name] for name in ("gain", "gain_ci_low")] == [values[name] for name in ("gain", "gain_ci_low")]
    assert verdict["n_failing"] == sum(row["worse"] for row in values["per_task"])
    assert {"own_data_gain", "oracle_room", "posterior_divergence", "task_divergence"} <= verdict.keys()
    assert verdict["text"] in " ".join(shown.replace("│", " ").split())
    assert values["per_task"][0]["task"] in shown


@pytest.mark.parametrize("width", [40, 80, 100, 140])
def test_tables_of_groups_are_not_cut(width):
    interval = (-1234.5, -1100.0)
    names = ["pearl metaworld:ML1-pick-place-wall-v3 learning_rate=0.0003 hidden_sizes=[64, 64]", "ppo Pendulum-v1"]
    numbers = {"mean": -1150.0, "mean_interval": interval, "iqm": -1151.0, "iqm_interval": interval}
    groups = [{"group": name, "seeds": [0, 1], "env_steps": [200_000, 1_400_000], **numbers} for name in names]
    found, text = Comparison(groups, [], [], []), io.StringIO()
    found.show(Console(file=text, width=width))
    shown = str(found) if width == 80 else text.getvalue()
    table = shown.partition("newest evaluations")[0]
    assert max(len(line.rstrip()) for line in table.splitlines()) <= max(80, width)
    assert "metaworld:ML1-pick-place-wall-v3" in table and "Pendulum-v1" in table
    for part in ("interquartile mean", "200,000", "1,400,000", "[-1234.5, -1100.0]", "-1150.0", "-1151.0", "…"):
        assert (part in table) is (part != "…"), table
    assert repr(found).startswith("Comparison(pearl metaworld:ML1") and "\n" not in repr(found)
