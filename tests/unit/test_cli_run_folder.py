"""Run folders: what is refused, what is overwritten, what is read back (issue: bad input)."""

from __future__ import annotations

import re

import pytest

from metaroll.data.doors.yaml_files import read_yaml
from metaroll.data.folders.kinds import RUN
from metaroll.data.folders.taking import take
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import LinkError, RunExistsError, SnapshotError, UsageError, folder_is_given, in_shell
from metaroll.lab.cli.options import file_to_write
from metaroll.training.session.run_config import default_run_dir, file_layer
from metaroll.training.store.run_folder import (
    find_run,
    package_versions,
    read_config,
    refuse_existing,
    refuse_foreign,
    write_config,
)
from metaroll.training.store.run_store import check_results_folder
from metaroll.training.store.run_values import check_same_run, flat_values

CONFIG = {
    "command": "demo",
    "algo": "pearl",
    "env": "point-robot",
    "run": {"seed": 3, "hidden_sizes": (30, 30), "task_seed": None},
    "algorithm": {"policy_lr": 3e-4, "discount": 0.99},
    "evaluation": {"posterior_sampling": True},
}


@pytest.fixture(autouse=True)
def _at_the_command_line():
    with in_shell():
        yield


def test_a_configuration_is_read_back_as_it_was_written(tmp_path):
    write_config(tmp_path / "deep" / "run", CONFIG)
    read = read_config(tmp_path / "deep" / "run")
    assert read["versions"] == package_versions()
    assert flat_values(read) == {**flat_values(CONFIG), "hidden_sizes": [30, 30]}
    assert (read["algo"], read["env"], read["command"]) == ("pearl", "point-robot", "demo")


def test_a_configuration_is_replaced_by_a_later_one(tmp_path):
    write_config(tmp_path, CONFIG)
    write_config(tmp_path, {**read_config(tmp_path), "run": {"seed": 4}})
    assert read_config(tmp_path)["run"] == {"seed": 4}
    assert [p.name for p in tmp_path.iterdir()] == ["config.yaml"]


def test_values_may_stand_without_sections():
    assert flat_values({"algo": "pearl", "epochs": 3, "run": {"seed": 1}}) == {"epochs": 3, "seed": 1}


def test_default_folder_names_algorithm_environment_and_seed():
    assert default_run_dir("pearl", EnvSource.of("point-robot"), 7).as_posix() == "runs/pearl-point-robot-7"


def test_a_new_run_refuses_the_folder_of_another_and_names_both_cures(tmp_path):
    write_config(tmp_path, CONFIG)
    with pytest.raises(RunExistsError, match=r"metaroll resume .*--out"):
        refuse_existing(tmp_path)


def test_a_new_run_refuses_any_other_content(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunExistsError, match=r"not a run of metaroll.*--out"):
        refuse_existing(tmp_path)
    with pytest.raises(RunExistsError, match=r"--out"):
        refuse_existing(tmp_path / "thesis.tex")


def test_a_new_run_takes_a_missing_or_an_empty_folder(tmp_path):
    refuse_existing(tmp_path)
    refuse_existing(tmp_path / "new")


@pytest.mark.parametrize("content", ["command: train", "not: ours", "::", ""])
def test_the_demo_never_touches_what_it_did_not_write(tmp_path, content):
    if content == "command: train":
        write_config(tmp_path, {**CONFIG, "command": "train"})
    else:
        (tmp_path / "config.yaml").write_text(content)
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(RunExistsError, match="--out"):
        refuse_foreign(tmp_path, "demo")
    assert (tmp_path / "config.yaml").exists()
    assert (tmp_path / "summary.json").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "must hold lines"),
        ("a: [1\n", "not valid YAML"),
        ("a: 1\n", "must have metaroll_run"),
        ("metaroll_run: 99\nalgo: pearl\n", "another version"),
        ("metaroll_run: 1\nalgo: pearl\n", "lacks env, run, algorithm, evaluation"),
    ],
)
def test_a_damaged_configuration_is_one_clear_error(tmp_path, text, message):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(SnapshotError, match=message):
        read_config(tmp_path)


def test_an_empty_file_holds_no_values(tmp_path):
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert read_yaml(tmp_path / "empty.yaml") == {}


def test_a_missing_run_is_an_error_that_lists_those_nearby(tmp_path):
    runs = tmp_path / "runs"
    write_config(runs / "pearl-point-robot-1", CONFIG)
    assert find_run(runs / "pearl-point-robot-1") == runs / "pearl-point-robot-1"
    with pytest.raises(FileNotFoundError, match=r"does not exist.*pearl-point-robot-1"):
        find_run(runs / "pearl-point-robot-2")
    with pytest.raises(FileNotFoundError, match=r"holds no config.yaml.*pearl-point-robot-1"):
        find_run(runs)
    with pytest.raises(FileNotFoundError, match=r"is a file\); runs here: .*pearl-point-robot-1"):
        find_run(runs / "pearl-point-robot-1" / "config.yaml")


def test_a_run_without_its_configuration_is_not_taken_for_a_misspelled_name(tmp_path):
    for name in ("ppo-1", "ppo-2"):
        write_config(tmp_path / name, CONFIG)
        with take(tmp_path / name, RUN):
            (tmp_path / "ppo-3" / "snapshots").mkdir(parents=True, exist_ok=True)
    (tmp_path / "ppo-2" / "config.yaml").unlink()
    for name in ("ppo-2", "ppo-3"):
        with pytest.raises(FileNotFoundError, match=rf"{name}/config.yaml is missing.* restore the file from a copy"):
            find_run(tmp_path / name)
    (tmp_path / "ppo-4").mkdir()
    with pytest.raises(FileNotFoundError, match=r"holds no config.yaml\); runs here: "):
        find_run(tmp_path / "ppo-4")


def test_advice_fits_a_command_that_has_no_option_for_the_folder(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").symlink_to(tmp_path / "file")
    for folder, error, hint in (
        (tmp_path / "file" / "run", OSError, "continue a copy of the folder elsewhere"),
        (tmp_path / "run", LinkError, "remove it, or put a copy of what it points to in its place"),
    ):
        with folder_is_given(), pytest.raises(error, match=hint) as told:
            take(folder, RUN)
        assert "--out" not in str(told.value)
    for given, text in (
        (None, r"^\S+/file/evaluation.json cannot be written \(Not a directory\): choose another folder with --out$"),
        (str(tmp_path / "file"), "^--out must name a folder that can be written, got '.*/file': Not a directory$"),
    ):
        with pytest.raises(UsageError, match=text):
            file_to_write("--out", given, [".json"], tmp_path / "file", "evaluation.json")


def test_a_list_of_runs_that_stops_says_how_many_more_there_are(tmp_path):
    for number in range(11):
        write_config(tmp_path / f"ppo-{number}", CONFIG)
    with pytest.raises(FileNotFoundError, match=r"ppo-6 and 3 more$"):
        find_run(tmp_path / "other")


def test_a_folder_that_cannot_be_made_is_an_error_with_the_cure(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"file/run cannot be used \(Not a directory\): choose another folder with --out"):
        take(tmp_path / "file" / "run", RUN)


def test_what_a_run_leaves_that_ended_before_it_began_is_nothing(tmp_path):
    with take(tmp_path / "run", RUN):
        pass
    (tmp_path / "run" / ".config.yaml.4711-0a1b2c3d.tmp").write_text("half")
    refuse_existing(tmp_path / "run")


def test_a_file_for_another_environment_or_version_is_refused(tmp_path):
    write_config(tmp_path, CONFIG)
    path = tmp_path / "config.yaml"
    assert file_layer(path, "pearl", "point-robot")[1]["seed"] == 3
    with pytest.raises(ValueError, match=r"env in .* is 'point-robot', expected 'cheetah-vel'.*delete that line"):
        file_layer(path, "pearl", "cheetah-vel")
    path.write_text("metaroll_run: 99\n")
    with pytest.raises(ValueError, match=r"metaroll_run in .* is 99, expected 1"):
        file_layer(path, "pearl", "cheetah-vel")
    path.write_text("run: {seed: 1}\nseed: 2\n")
    with pytest.raises(ValueError, match=r"config.yaml: option seed is given twice, as 1 and 2"):
        file_layer(path, "pearl", "cheetah-vel")


def test_what_may_not_change_within_a_run_is_compared_with_the_snapshot(tmp_path):
    write_config(tmp_path, CONFIG)
    read = read_config(tmp_path)
    check_same_run(read, CONFIG, tmp_path)
    check_same_run(read, None, tmp_path)
    check_same_run({**read, "run": {**read["run"], "epochs": 7, "num_workers": 3}}, CONFIG, tmp_path)
    with pytest.raises(
        SnapshotError, match=r"seed in .*config.yaml is 4, the snapshot was written with 3: set it back"
    ):
        check_same_run({**read, "run": {**read["run"], "seed": 4}}, CONFIG, tmp_path)
    with pytest.raises(SnapshotError, match=r"discount in .* is 0.9, the snapshot was written with 0.99"):
        check_same_run({**read, "algorithm": {"discount": 0.9}}, CONFIG, tmp_path)


BOMB = (
    "a: &a ["
    + "x, " * 9
    + "x]\n"
    + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "more than 10000 entries"),
        ("hidden_sizes: " + "[" * 3000 + "]" * 3000, "nested deeper than 20"),
        ("a: &a [1, *a]", "contains itself"),
        ("a: &a {b: *a}", "contains itself"),
        ("epochs: 3\nseed: 1\nepochs: 4", "line 3: it gives 'epochs' a second time"),
        ("run: {seed: 1, seed: 2}", "'seed' a second time"),
        ("# " + "x" * 2**18, "expected at most 262144"),
        ("epochs: " + "9" * 5000, "line 1: the integer 9"),
    ],
)
def test_yaml_that_no_configuration_needs_is_refused_at_once(tmp_path, text, message):
    """Nine lines of aliases became gigabytes, and the others an internal error, or the last of two values."""
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_yaml(tmp_path / "config.yaml")
    with pytest.raises(SnapshotError, match=re.escape(message)):
        read_config(tmp_path)
    with pytest.raises(ValueError, match=re.escape(message)):
        file_layer(tmp_path / "config.yaml", "pearl", "point-robot")


def test_aliases_and_merged_names_may_be_used(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "sizes: &s [8, 8]\nhidden_sizes: *s\nrun: &r {seed: 1}\nmore: {<<: *r, epochs: 2}"
    )
    read = read_yaml(tmp_path / "config.yaml")
    assert (read["hidden_sizes"], read["more"]) == ([8, 8], {"seed": 1, "epochs": 2})


def test_a_configuration_of_something_else_is_no_run(tmp_path):
    (tmp_path / "config.yaml").write_text("theme: dark\n")
    with pytest.raises(RunExistsError, match=r"exists and is not a run of metaroll \(it holds config\.yaml\)"):
        refuse_existing(tmp_path)


@pytest.mark.parametrize("content", ["[1, 2]", "not JSON", '{"score": 1}'])
def test_results_of_others_are_not_replaced(tmp_path, content):
    (tmp_path / "evaluation.json").write_text(content)
    with pytest.raises(RunExistsError, match=r"evaluation\.json exists and was not written by metaroll"):
        check_results_folder(tmp_path)
    write_config(tmp_path, CONFIG)  # in a run whatever has its name is ours, damaged or not
    check_results_folder(tmp_path, tmp_path)


@pytest.mark.parametrize("run", [None, "other"])
def test_a_run_takes_no_results_of_another_agent(tmp_path, run):
    write_config(tmp_path, CONFIG)
    with pytest.raises(RunExistsError, match=r"holds another agent, and lists"):
        check_results_folder(tmp_path, run and tmp_path / run)


def test_our_own_results_are_replaced_anywhere(tmp_path):
    check_results_folder(tmp_path / "missing")
    (tmp_path / "thesis.tex").write_text("mine")
    check_results_folder(tmp_path)
    (tmp_path / "evaluation.json").write_text('{"algo": "ppo", "env": "Pendulum-v1"}')
    check_results_folder(tmp_path)
