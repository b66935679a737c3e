"""``metaroll list``: what there is, and runs in every state that a disk can leave them in."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import metaroll
from metaroll.envs.lookup.registry import family_names, get_family
from metaroll.errors import command_text
from metaroll.lab.cli.main import main
from metaroll.lab.cli.options import take_positionals
from metaroll.lab.runs.run_reports import find_runs, read_run
from metaroll.training.algorithms.registry import ALGORITHM_NAMES, preset, preset_names
from metaroll.training.store.metrics_log import MetricsLog
from metaroll.training.store.run_folder import find_run, write_config
from metaroll.training.store.snapshots import Snapshotter

TOTAL = 5


def config(**changes: Any) -> dict[str, Any]:
    return {
        "command": "train",
        "algo": "pearl",
        "env": "point-robot",
        "run": {"seed": 3, "epochs": TOTAL},
        "algorithm": {},
        "evaluation": {},
        **changes,
    }


def make_run(folder: Path, epochs: int, evaluate_every: int = 1, snapshot: bool = True, **changes: Any) -> Path:
    """A run of the command line that was stopped after ``epochs`` of 5 epochs; its return is minus their number."""
    write_config(folder, config(**changes))
    metrics, snapshots = MetricsLog(folder), Snapshotter(folder)
    for epoch in range(epochs):
        steps, number = 100 * (epoch + 1), epoch + 1
        if number % evaluate_every == 0:
            metrics.append(epoch, steps, "MetaTest", {"return_before": -99.0, "return_after": -float(number)})
            metrics.append(epoch, steps, "MetaTest", {"return_after": 1000.0}, task="task 1")
        metrics.append(epoch, steps, "train", {"loss": 1.0})
        offset = metrics.flush()
        if snapshot:
            manifest = {"algorithm": "PEARL", "metrics_offset": offset, "config": config(**changes)}
            snapshots.save(number, {"algo": {"x": 1}}, manifest)
    return folder


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Another process trains in the folder."""
    code = (
        "import sys; from metaroll.data.folders.locks import FolderLock; lock = FolderLock(sys.argv[1]); "
        "print('mine', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        yield
    finally:
        process.communicate()


def listed(capsys, *arguments: str) -> dict[str, Any]:
    status = main(["list", *arguments, "--json"])
    captured = capsys.readouterr()
    assert (status, captured.err) == (0, "")
    return json.loads(captured.out)


# ------------------------------------------------------------------------------------------------------- what there is
def test_everything_is_listed_without_a_name(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = listed(capsys)
    assert list(found) == ["algos", "envs", "presets", "sizes", "policies", "runs"]
    assert [entry["name"] for entry in found["algos"]] == list(ALGORITHM_NAMES)
    assert [entry["name"] for entry in found["envs"]] == family_names()
    assert found["runs"] == []
    for algorithm in found["algos"]:
        room = metaroll if algorithm["class"] in metaroll.__all__ else metaroll.contrib
        assert getattr(room, algorithm["class"]).__doc__.startswith(algorithm["summary"].split()[0])
        assert algorithm["summary"]


def test_an_environment_tells_its_sizes_tasks_and_presets(capsys):
    (entry,) = [e for e in listed(capsys, "envs")["envs"] if e["name"] == "cheetah-vel"]
    assert (entry["obs_dim"], entry["act_dim"], entry["horizon"]) == (20, 6, 200)
    assert (entry["num_train_tasks"], entry["num_test_tasks"]) == (100, 30)
    assert "pearl" in entry["presets"]
    assert entry["summary"] == get_family("cheetah-vel").description


def test_an_environment_that_cannot_be_made_says_why(capsys, monkeypatch):
    import metaroll.envs.base.task_family as registry

    def without_package():
        raise ImportError("cheetah-vel needs MuJoCo: pip install 'metaroll[mujoco]'")

    families = {name: registry.TaskFamily(name, without_package, 1, 1, 5, "a cat") for name in ("cheetah-vel", "cat")}
    monkeypatch.setattr(registry, "_FAMILIES", families)
    entry, _ = sorted(listed(capsys, "envs")["envs"], key=lambda entry: -len(entry["name"]))
    assert (entry["obs_dim"], entry["act_dim"]) == (None, None)
    assert entry["problem"] == "cheetah-vel needs MuJoCo: pip install 'metaroll[mujoco]'"
    assert main(["list", "envs"]) == 0
    shown = capsys.readouterr().out  # once, for both
    assert shown.count("metaroll[mujoco]") == 1 and ("cat, cheetah-vel: " in shown or "cheetah-vel, cat: " in shown)


def test_presets_hold_their_values(capsys):
    found = listed(capsys, "presets")["presets"]
    assert {(e["algo"], e["env"]) for e in found} == {(a, e) for a in ALGORITHM_NAMES for e in preset_names(a)}
    (entry,) = [e for e in found if (e["algo"], e["env"]) == ("pearl", "point-robot")]
    assert entry["values"]["reward_scale"] == preset("pearl", "point-robot")["reward_scale"] == 100.0


def test_policies_are_the_public_classes_that_act(capsys):
    names = {entry["name"] for entry in listed(capsys, "policies")["policies"]}
    assert {"GaussianMLPPolicy", "ScriptedPolicy", "ContextConditionedPolicy"} <= names
    assert not {"MLPEncoder", "QFunction", "as_policy"} & names


def test_tables_show_the_same(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "mine", 2)
    out = ""
    for topic in ("algos", "envs", "policies", "sizes", "runs"):
        assert main(["list", topic]) == 0
        out += capsys.readouterr().out
    for text in ("pearl", "PEARL", "cheetah-vel", "80 + 20", "TanhGaussianMLPPolicy", "runs/mine", "2/5", "-2.00"):
        assert text in out


def test_without_a_name_ones_own_runs_come_first_and_the_rest_is_short(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    make_run(tmp_path / "runs" / "mine", 2)
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("runs/mine" in line for line in lines[:6])
    assert len(lines) < 40
    text = "\n".join(lines)
    assert "cheetah-vel" in text and "hill-climbing" in text and "small, medium, paper" in text
    assert "metaroll list algos|envs|presets|sizes|policies|runs" in text


# --------------------------------------------------------------------------------------------------------------- runs
def states(capsys, folder: Path) -> dict[str, dict[str, Any]]:
    return {Path(entry["folder"]).name: entry for entry in listed(capsys, "runs", "--runs", str(folder))["runs"]}


def test_runs_are_finished_or_interrupted(capsys, tmp_path):
    make_run(tmp_path / "whole", TOTAL)
    make_run(tmp_path / "part", 4, evaluate_every=3)
    make_run(tmp_path / "deeper" / "below" / "fresh", 0)
    found = states(capsys, tmp_path)
    assert {name: entry["state"] for name, entry in found.items()} == {
        "whole": "finished",
        "part": "interrupted",
        "fresh": "interrupted",
    }
    assert found["part"] == {
        "folder": str(tmp_path / "part"),
        "state": "interrupted",
        "algo": "pearl",
        "env": "point-robot",
        "seed": 3,
        "epochs_done": 4,
        "epochs_total": TOTAL,
        "env_steps": 400,
        "newest_return": -3.0,
        "newest_return_epoch": 3,
        "problem": "",
        "ended_early": False,
    }
    assert (found["fresh"]["epochs_done"], found["fresh"]["newest_return"]) == (0, None)


def test_a_run_that_ended_by_itself_is_finished(capsys, tmp_path):
    folder = make_run(tmp_path / "a", 3)
    summary = folder / "summary.json"
    for text, state in (
        ('{"epochs": 3, "ended_early": true}', "finished"),
        ('{"epochs": 3}', "interrupted"),  # before it was told to go on
        ('{"epochs": 2, "ended_early": true}', "interrupted"),  # before it was trained from a snapshot on
        ('{"epochs": 3, "ended_ea', "interrupted"),
    ):
        summary.write_text(text)
        entry = states(capsys, tmp_path)["a"]
        assert (entry["state"], entry["ended_early"]) == (state, state == "finished")
    summary.write_text('{"epochs": 3, "ended_early": true}')
    assert main(["list", "runs", "--runs", str(tmp_path)]) == 0
    assert "finished early" in " ".join(capsys.readouterr().out.split())


def test_a_run_that_a_process_holds_is_running_and_is_not_disturbed(capsys, tmp_path):
    folder = make_run(tmp_path / "runs" / "a", 2)
    with in_use(folder):
        assert states(capsys, tmp_path)["a"]["state"] == "running"
        assert states(capsys, tmp_path)["a"]["state"] == "running"
    assert states(capsys, tmp_path)["a"]["state"] == "interrupted"


def test_without_snapshots_the_metrics_tell_how_far_it_is(capsys, tmp_path):
    make_run(tmp_path / "a", 3, snapshot=False)
    found = states(capsys, tmp_path)["a"]
    assert (found["state"], found["epochs_done"]) == ("interrupted", 3)


def test_a_run_from_python_is_listed_with_what_is_known(capsys, tmp_path):
    for name in ("none", "own"):
        folder = make_run(tmp_path / name, 2)
        (folder / "config.yaml").unlink()
        Snapshotter(folder).save(2, {"algo": {"x": 1}}, {"algorithm": "MyOwn", "metrics_offset": 0})
    (tmp_path / "own" / "config.yaml").write_text("learning_rate: 3\n")
    found = states(capsys, tmp_path)
    for name in ("none", "own"):
        entry = found[name]
        assert (entry["state"], entry["algo"], entry["env"]) == ("stopped", "MyOwn", None)
        assert (entry["epochs_done"], entry["epochs_total"], entry["newest_return"]) == (2, None, -2.0)


def test_half_a_last_line_is_no_damage(capsys, tmp_path):
    folder = make_run(tmp_path / "a", 2)
    with open(folder / "metrics.jsonl", "ab") as file:
        file.write(b'{"iteration": 2, "env_st')
    assert states(capsys, tmp_path)["a"]["state"] == "interrupted"


def test_a_return_that_is_no_number_is_none(capsys, tmp_path):
    folder = make_run(tmp_path / "a", 1)
    metrics = MetricsLog(folder)
    metrics.append(1, 200, "MetaTest", {"return_after": float("nan")})
    metrics.flush()
    entry = states(capsys, tmp_path)["a"]
    assert (entry["state"], entry["newest_return"], entry["newest_return_epoch"]) == ("interrupted", None, 2)


def newest_snapshot(folder: Path) -> Path:
    return max((folder / "snapshots").iterdir())


DAMAGES = {
    "no configuration": (lambda f: (f / "config.yaml").unlink(), "config.yaml is missing: restore it"),
    "empty configuration": (lambda f: (f / "config.yaml").write_text(""), "must have metaroll_run: 1"),
    "no yaml": (lambda f: (f / "config.yaml").write_text("a: [1"), "is not valid YAML"),
    "bytes": (lambda f: (f / "config.yaml").write_bytes(b"\xff\xfe\x00"), "is not valid UTF-8 text"),
    "deep": (lambda f: (f / "config.yaml").write_text("[" * 5000), ""),
    "other version": (lambda f: (f / "config.yaml").write_text("metaroll_run: 99\n"), "another version"),
    "no sections": (lambda f: (f / "config.yaml").write_text("metaroll_run: 1\nalgo: pearl\n"), "lacks env, run"),
    "no epochs": (lambda f: write_config(f, config(run={"seed": 3})), "epochs in "),
    "run is a text": (lambda f: write_config(f, config(run="fast")), "run in "),
    "seed is a text": (lambda f: write_config(f, config(run={"seed": "2020", "epochs": 1})), "seed in "),
    "garbled metrics": (lambda f: (f / "metrics.jsonl").write_bytes(b"\x00\xff\n" * 40), "line 40: "),
    "short metrics": (lambda f: (f / "metrics.jsonl").write_text(""), "was changed after snapshot 3"),
    "metrics of another kind": (lambda f: (f / "metrics.jsonl").write_text('{"a": 1}\n' * 400), "line 400: "),
    "snapshot without manifest": (
        lambda f: (newest_snapshot(f) / "manifest.json").unlink(),
        "manifest.json is missing",
    ),
    "snapshot without a file": (lambda f: (newest_snapshot(f) / "algo.json").unlink(), "algo.json is missing"),
    "snapshot of another": (lambda f: newest_snapshot(f).rename(f / "snapshots" / "000009"), "renamed or copied"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_listed_with_the_reason_beside_whole_ones(capsys, tmp_path, damage):
    do_damage, reason = DAMAGES[damage]
    make_run(tmp_path / "whole", 1)
    do_damage(make_run(tmp_path / "broken", 3))
    found = states(capsys, tmp_path)
    assert found["whole"]["state"] == "interrupted"
    assert found["broken"]["state"] == "damaged"
    assert reason in found["broken"]["problem"]
    assert found["broken"]["problem"]
    assert main(["list", "runs", "--runs", str(tmp_path)]) == 0
    assert "damaged" in capsys.readouterr().out


def test_what_is_whole_in_a_damaged_run_is_shown(capsys, tmp_path):
    folder = make_run(tmp_path / "broken", 3)
    (newest_snapshot(folder) / "algo.json").write_text("{}")
    entry = states(capsys, tmp_path)["broken"]
    assert (entry["algo"], entry["epochs_done"], entry["newest_return"]) == ("pearl", 3, -3.0)


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl"])
def test_a_folder_in_the_place_of_a_file_is_damage(tmp_path, name):
    folder = make_run(tmp_path / "broken", 2)
    (folder / name).unlink()
    (folder / name).mkdir()
    assert read_run(folder).state == "damaged"


def test_a_file_in_the_place_of_the_snapshots_is_damage(tmp_path):
    folder = make_run(tmp_path / "broken", 0)
    (folder / "snapshots").write_text("")
    assert "snapshots must be a folder" in read_run(folder).problem


def test_files_of_others_are_no_runs(tmp_path):
    for name in ("hydra", "empty", "notes", "begun"):
        (tmp_path / name).mkdir()
    (tmp_path / "hydra" / "config.yaml").write_text("lr: 3\n")
    (tmp_path / "notes" / "summary.txt").write_text("")
    (tmp_path / "begun" / ".lock").write_text("")  # ended before it began
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert find_runs(tmp_path) == []


def test_runs_are_found_three_folders_down_behind_links_and_in_the_folder_itself(tmp_path):
    near = make_run(tmp_path / "a" / "b" / "c", 0)
    make_run(tmp_path / "a" / "b" / "x" / "d", 0)
    make_run(tmp_path / "a" / ".hidden", 0)
    (tmp_path / "a" / "link").symlink_to(near)
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert find_runs(near) == [near]
    assert set(find_runs(tmp_path / "a", depth=2)) == {near, tmp_path / "a" / "link"}


def test_no_runs_yet_is_no_error_and_names_the_first_step(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["list", "runs"]) == 0
    shown = capsys.readouterr().out
    assert "metaroll demo" in shown and "--runs FOLDER" in shown


# ---------------------------------------------------------------------------------------------------------- arguments
@pytest.mark.parametrize(
    ("arguments", "taken", "others"),
    [
        (["run", "--epochs", "3"], ["run"], ["--epochs", "3"]),
        (["--epochs", "3", "run"], ["run"], ["--epochs", "3"]),
        (["--epochs=3", "run"], ["run"], ["--epochs=3"]),
        (["--json", "run", "--epochs", "3"], ["run"], ["--json", "--epochs", "3"]),
        (["--from_epoch", "3", "run"], ["run"], ["--from_epoch", "3"]),
        (["--epochs"], [], ["--epochs"]),
        (["--epochs", "3"], [], ["--epochs", "3"]),
        (["--epochs", "-3", "run", "more"], ["run"], ["--epochs", "-3", "more"]),
    ],
)
def test_names_are_told_from_the_values_of_options(arguments, taken, others):
    assert take_positionals(arguments, 1, ["--epochs", "--from-epoch"]) == (taken, others)


def test_where_options_are_not_known_yet_names_come_first():
    assert take_positionals(["a", "b", "c", "--x", "1"], 2) == (["a", "b"], ["c", "--x", "1"])
    assert take_positionals(["a", "--x", "1", "b"], 2) == (["a"], ["--x", "1", "b"])


@pytest.mark.parametrize("width", [80, 60, 40])
@pytest.mark.parametrize("topic", ["algos", "envs"])
def test_names_that_are_to_be_typed_are_whole_in_a_narrow_terminal(capsys, monkeypatch, topic, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["list", topic]) == 0
    shown = capsys.readouterr().out
    names = {"algos": ALGORITHM_NAMES, "envs": family_names()}[topic]
    assert set(names) <= set(shown.split())
    if topic == "envs":  # nothing is cut
        assert "150 + 30" in shown and "presets: pearl, maml, promp" in shown


@pytest.mark.parametrize(("width", "columns"), [(80, 3), (60, 2), (50, 1)])
def test_commands_of_presets_can_be_copied_from_a_narrow_terminal(capsys, monkeypatch, width, columns):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["list", "presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["command", "epochs", "sets"][:columns] and max(map(len, lines)) <= width
    shown = [re.split(r" {2,}", line.strip())[0] for line in lines]
    commands = {command_text("train", algo, env) for algo in ALGORITHM_NAMES for env in preset_names(algo)}
    assert commands <= set(shown)


@pytest.mark.parametrize(("width", "columns"), [(80, 6), (60, 4)])
def test_sizes_have_whole_words_in_a_narrow_terminal(capsys, monkeypatch, width, columns):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["list", "sizes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["algorithm", "size", "environments", "epochs", "tasks", "networks"]
    assert lines[2].split() == names[:columns] and max(map(len, lines)) <= width
    row = ["pearl", "paper", "hopper-rand-params", "500", "40", "300", "300", "300"]
    assert row[: columns + 2 * (columns == len(names))] in [line.split() for line in lines]


@pytest.mark.parametrize("what", [["list", "runs"], ["list"]])
def test_names_of_runs_stay_whole_in_a_narrow_terminal(tmp_path, monkeypatch, capsys, what):
    name = "hill-climbing-my_package.environments-Hidden-seeds-0-4"
    make_run(tmp_path / name, 1, env="my_package.environments:Hidden")
    monkeypatch.setenv("COLUMNS", "60")
    assert main([*what, "--runs", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()  # a pipe
    assert [line.split()[-2:] for line in lines if str(tmp_path / name) in line] == [["interrupted", "-1.00"]]
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert main([*what, "--runs", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = lines.index(str(tmp_path / name))  # on a line of its own, which a terminal breaks at its edge at most
    assert lines[place + 1].split() == ["pearl", "my_package.environments:Hidden,", "epochs", "1/5,"]
    assert lines[place + 2].split() == ["interrupted,", "return", "-1.00"]
    monkeypatch.setenv("COLUMNS", "400")
    assert main([*what, "--runs", str(tmp_path)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if name in line)
    assert line.split()[1:] == ["pearl", "my_package.environments:Hidden", "1/5", "interrupted", "-1.00"]


def test_what_a_terminal_would_obey_is_spelled_out(tmp_path, capfd):
    write_config(tmp_path / "a\x1b]0;title\x07b", config(env="point\x1b[31m-robot"))
    assert main(["list", "runs", "--runs", str(tmp_path)]) == 0
    shown = capfd.readouterr().out
    assert "\x1b" not in shown and "\x07" not in shown
    assert "x1b" in shown


def test_the_newest_result_may_be_that_of_the_end_of_a_run(tmp_path, capsys):
    folder = make_run(tmp_path / "run", TOTAL, evaluate_every=2)
    summary = {"epochs": TOTAL, "env_steps": 500, "return_after": -18.2}
    (folder / "summary.json").write_text(json.dumps(summary))
    (entry,) = listed(capsys, "runs", "--runs", str(tmp_path))["runs"]
    assert (entry["newest_return"], entry["newest_return_epoch"]) == (-18.2, TOTAL)
    for epoch, newest in ((TOTAL, (-20.5, TOTAL)), (TOTAL - 1, (-18.2, TOTAL)), (TOTAL + 1, (-18.2, TOTAL))):
        (folder / "evaluation.json").write_text(json.dumps({"epoch": epoch, "return_after": -20.5}))
        (entry,) = listed(capsys, "runs", "--runs", str(tmp_path))["runs"]
        assert (entry["newest_return"], entry["newest_return_epoch"]) == newest
    (folder / "summary.json").write_text(json.dumps({**summary, "epochs": TOTAL + 1}))  # of an earlier time
    (entry,) = listed(capsys, "runs", "--runs", str(tmp_path))["runs"]
    assert (entry["newest_return"], entry["newest_return_epoch"]) == (-4.0, 4)
    untrained = make_run(tmp_path / "untrained", 0)
    (untrained / "evaluation.json").write_text(json.dumps({"epoch": 0, "return_after": -99.0}))
    assert states(capsys, tmp_path)["untrained"]["newest_return"] == -99.0


def test_a_folder_of_runs_may_hold_what_is_none(capsys):
    """A folder that is called config.yaml neither hides the runs beside it nor makes a run of what holds it."""
    runs = Path("runs")
    (runs / "config.yaml").mkdir(parents=True)
    (runs / "thesis.tex").touch()
    (runs / "dangling").symlink_to("nowhere")
    (runs / "broken").mkdir()
    (runs / "broken" / "config.yaml").write_text("algo: [pearl")
    (runs / "old").mkdir()
    (runs / "old" / "config.yaml").write_text("metaroll_run: 0\nalgo: pearl\nenv: point-robot\n")
    assert {entry["folder"]: entry["state"] for entry in listed(capsys, "runs")["runs"]} == {
        "runs/broken": "damaged",
        "runs/old": "damaged",
    }
    with pytest.raises(FileNotFoundError, match=r"did you mean 'runs/old'\? runs here: runs/broken, runs/old$"):
        find_run("runs/odl")
