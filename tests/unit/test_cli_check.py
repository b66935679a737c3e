"""``metaroll check``: the report on the screen and as JSON, and its exit status."""

from __future__ import annotations

import json
import sys

import pytest

from metaroll.lab.cli.main import main
from metaroll.own_code import look_in


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = main(["check", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, " ".join(captured.err.split())


def test_a_good_family_passes(capsys):
    status, out, err = run(capsys, "point-robot", "--quick")
    assert (status, err) == (0, "")
    assert "point-robot is ready as a family of tasks" in out
    assert "worker" not in out


def test_a_failure_has_status_1_and_its_cure(capsys):
    status, out, _ = run(capsys, "task_envs:SetsNothing", "--quick", "--num-steps", "20")
    assert status == 1
    assert "store the task in set_task" in out
    assert "task_envs:SetsNothing is not ready: setting a task failed" in " ".join(out.split())


def test_warnings_count_if_asked_for(capsys):
    quickly = ["task_envs:Line", "--quick", "--num-steps", "20"]
    assert run(capsys, *quickly)[0] == 0  # no time limit: a warning
    assert run(capsys, *quickly, "--strict")[0] == 1


def test_json_is_all_there_is(capsys):
    status, out, err = run(capsys, "task_envs:ShowsThePlace", "--quick", "--json", "--seed", "3", "--num-steps", "30")
    document = json.loads(out)
    assert (status, err, document["name"], document["ok"]) == (1, "", "task_envs:ShowsThePlace", False)
    (leak,) = [check for check in document["checks"] if check["name"] == "first observation"]
    assert leak["status"] == "fail" and leak["numbers"]["r_squared place"] > 0.99
    assert set(leak) == {"name", "status", "value", "hint", "numbers"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the environment is missing"),
        (["point-robt"], "did you mean 'point-robot'"),
        (["no_such_file:Env"], "no module 'no_such_file'"),
        (["HalfCheetah-v5"], "a single Gymnasium environment without tasks to check."),
        (["ML10"], "unknown environment 'ML10'; did you mean 'metaworld:ML10'?"),
        (["task_envs:ToldByReset"], "has no sample_tasks(num_tasks): add it"),
        (["task_envs:no_license"], "RuntimeError: no license"),
        (["point-robot", "--num-steps", "0"], "--num-steps must be at least 1, got 0"),
        (["point-robot", "--num-steps", "x"], "error: --num-steps must be a whole number, got 'x'; see metaroll check"),
        (
            ["task_envs:Needs"],
            "task_envs:Needs needs the argument size, but environments are made without any; give default",
        ),
        (["CartPole-v1"], "without tasks to check. Define them in a file my_env.py"),
        (["point-robot", "--quik"], "did you mean --quick"),
    ],
)
def test_bad_input_has_status_2(capsys, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_files_of_the_current_folder_are_found(tmp_path, monkeypatch, capsys):
    """By workers, too; by the program as it is installed: test_lines_on_standard_error_say_whose_they_are."""
    (tmp_path / "env_here.py").write_text("from metaroll import get_family\nrobot = get_family('point-robot')\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    look_in(str(tmp_path))
    status, out, err = run(capsys, "env_here:robot", "--num-steps", "20")
    assert status == 0, out + err
    assert "env_here:robot is ready as a family of tasks" in out
    assert "where rollouts are the same" in " ".join(out.split())
