"""A run tells how far held-out tasks are from its training tasks; presets of all robots train and evaluate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from metaroll.envs.lookup.registry import get_family
from metaroll.lab.cli.main import main
from metaroll.tasks.leak_guard import check_split

TINY = {
    "hidden_sizes": [8],
    "encoder_hidden_sizes": [8],
    "num_train_tasks": 2,
    "num_test_tasks": 2,
    "meta_batch_size": 2,
    "batch_size": 8,
    "embedding_batch_size": 8,
    "embedding_mini_batch_size": 8,
    "num_steps_per_epoch": 1,
    "num_tasks_sample": 1,
    "num_initial_steps": 10,
    "num_steps_prior": 10,
    "num_extra_rl_steps_posterior": 10,
    "max_path_length": 10,
    "repetitions": 1,
    "replay_buffer_size": 100,
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a configuration file of tiny numbers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    return tmp_path


def train(capsys: pytest.CaptureFixture[str], env: str, *arguments: str) -> str:
    """What is printed while training in ``env`` into the folder ``run``."""
    options = ["--config", "tiny.yaml", "--epochs", "1", "--out", "run", *arguments]
    status = main(["train", "pearl", env, *options])
    captured = capsys.readouterr()
    assert (status, captured.err) == (0, "")
    return " ".join(captured.out.split())


def test_the_distance_is_printed_and_kept_in_the_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = train(capsys, "cheetah-vel", "--num-train-tasks", "5", "--num-test-tasks", "3")
    report = check_split(*get_family("cheetah-vel").split(5, 3, seed=0))
    assert np.isfinite(report.median)
    assert f"pearl on cheetah-vel: {report}" in out
    assert "5 training and 3 held-out tasks, disjoint; the nearest training task is" in out
    expected = json.loads(json.dumps(report.to_dict()))
    kept = json.loads((place / "run" / "task_split.json").read_text())
    assert all(text.startswith("velocity=") for text in kept["test_tasks"]) and len(kept.pop("test_tasks")) == 3
    assert kept == expected
    assert json.loads((place / "run" / "summary.json").read_text())["task_split"] == expected


def test_a_family_that_is_tested_on_its_training_tasks_says_so(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = train(capsys, "cheetah-dir")
    assert "2 training and 2 test tasks, 2 in both, as the family was published: returns do not predict" in out
    assert "return: on test tasks, before adaptation" in out
    assert json.loads((place / "run" / "task_split.json").read_text())["overlaps"] == [[0, 0], [1, 1]]
    assert main(["evaluate", "run"]) == 0
    for text in (out, capsys.readouterr().out):
        text = " ".join(text.replace("│", " ").split())
        assert "no verdict: gain " in text and "of these 2 tasks; it takes 6 or more rep" in text


@pytest.mark.parametrize(
    "env", ["cheetah-dir", "ant-dir", "ant-goal", "humanoid-dir", "hopper-rand-params", "walker-rand-params"]
)
def test_presets_of_robots_train_with_small_overrides(
    place: Path, capsys: pytest.CaptureFixture[str], env: str
) -> None:
    train(capsys, env, "--quiet")
    config = yaml.safe_load((place / "run" / "config.yaml").read_text())
    assert config["algorithm"]["reward_scale"] == 5.0
    assert config["algorithm"]["use_next_obs_in_context"] == env.endswith("-rand-params")
    assert json.loads((place / "run" / "summary.json").read_text())["n_exploration_episodes"] == 2


def test_an_evaluation_draws_the_k_shot_curve(
    place: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    train(capsys, "point-robot", "--quiet")
    request.getfixturevalue("pictures")
    assert main(["evaluate", "run", "--num-tasks", "3"]) == 0
    out = capsys.readouterr().out
    assert "k_shot_curve.png" in out
    assert "evaluation.png" in out
    assert (place / "run" / "k_shot_curve.png").read_bytes().startswith(b"\x89PNG")


SILENT = """
import gymnasium
import numpy as np
from metaroll import TaskFamily


class Goals(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    goal = 0.0

    def set_task(self, task):
        {set_task}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.normal()
        return np.array([self.x], np.float32), {{}}

    def step(self, action):
        self.x = np.clip(self.x + action[0], -9, 9)
        return np.array([self.x], np.float32), -abs(self.x - self.goal), False, False, {{}}


family = TaskFamily.from_env(Goals, lambda num, generator: list(generator.normal(size=num)), horizon=10)
"""


@pytest.mark.parametrize(("set_task", "warned"), [("pass", True), ("self.goal = task", False)])
def test_tasks_that_do_not_differ_are_told_before_training(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], set_task: str, warned: bool
) -> None:
    monkeypatch.syspath_prepend(place)
    module = f"goals_{int(warned)}"
    (place / f"{module}.py").write_text(SILENT.format(set_task=set_task))
    out = train(capsys, f"{module}:family")
    warning = (
        f"the tasks of {module}:family do not differ: 3 tasks give the same observations and rewards in 10 steps of "
        "random actions. Setting a task has no effect, or the reward is too sparse to show it; "
        f"`metaroll check {module}:family` checks them in detail"
    )
    assert (warning in out) is warned


def test_beside_the_json_the_warning_is_no_output(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(place)
    (place / "goals_json.py").write_text(SILENT.format(set_task="pass"))
    options = ["--config", "tiny.yaml", "--epochs", "1", "--out", "run", "--json"]
    assert main(["train", "pearl", "goals_json:family", *options]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["env"] == "goals_json:family"
    assert captured.err.count("the tasks of goals_json:family do not differ") == 1
