"""``metaroll watch`` and ``metaroll report`` on runs of the command line: what they write, and what they refuse."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from PIL import Image

from metaroll.lab.cli.main import main
from metaroll.lab.figures import probes
from metaroll.lab.figures.probes import can_draw, without_screen
from metaroll.lab.runs import run_reports

PEARL = {
    "hidden_sizes": [8, 8],
    "encoder_hidden_sizes": [8],
    "num_train_tasks": 3,
    "num_test_tasks": 4,
    "meta_batch_size": 2,
    "batch_size": 8,
    "embedding_batch_size": 8,
    "embedding_mini_batch_size": 8,
    "num_steps_per_epoch": 2,
    "num_tasks_sample": 1,
    "num_initial_steps": 20,
    "num_steps_prior": 20,
    "num_extra_rl_steps_posterior": 20,
    "max_path_length": 10,
    "epochs": 1,
}
PPO = {"hidden_sizes": [8], "steps_per_epoch": 100, "batch_size": 50, "epochs": 1, "num_episodes": 2}


@pytest.fixture(scope="module", autouse=True)
def known_backend() -> Iterator[None]:
    """How MuJoCo draws here is found out once, in a process of its own, instead of by every command."""
    with without_screen():
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Folders ``pearl``, ``ppo`` and ``blind`` of tiny runs."""
    place = tmp_path_factory.mktemp("runs")
    for name, algo, env, options in (
        ("pearl", "pearl", "point-robot", PEARL),
        ("ppo", "ppo", "qcp-st", {**PPO, "max_path_length": 15}),
        ("blind", "ppo", "bandit-5", PPO),
    ):
        (place / f"{name}.yaml").write_text(yaml.safe_dump(options))
        arguments = ["--config", str(place / f"{name}.yaml"), "--out", str(place / name), "--quiet"]
        assert main(["train", algo, env, *arguments]) == 0
    return place


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, " ".join(captured.err.split())


def test_watch_shows_no_adaptation_beside_adaptation(runs, capsys, tmp_path):
    before = {path.name for path in (runs / "pearl").iterdir()}
    video = tmp_path / "new" / "a.gif"
    status, out, _ = run(capsys, "watch", str(runs / "pearl"), "--out", str(video), "--num-tasks", "2", "--json")
    assert status == 0
    found = json.loads(out)
    assert found["file"] == str(video) and found["epoch"] == 1
    assert [panel["title"] for panel in found["panels"]] == ["no adaptation", "adapted to 2 episodes"] * 2
    tasks = [panel["task"] for panel in found["panels"]]
    assert tasks[0] == tasks[1] and tasks[2] == tasks[3]
    assert tasks[0].startswith("task 0: goal=(") and tasks[2].startswith("task 1: goal=(")
    with Image.open(video) as picture:
        assert picture.width == 2 * 240 + 10 and picture.height == 2 * (26 + 46 + 240)
    assert {path.name for path in (runs / "pearl").iterdir()} == before


def test_what_is_shown_is_what_the_evaluation_measures(runs, capsys, tmp_path):
    out = run(capsys, "watch", str(runs / "pearl"), "--out", str(tmp_path / "a.gif"), "--json")[1]
    shown = [panel["return"] for panel in json.loads(out)["panels"]]
    assert run(capsys, "evaluate", str(runs / "pearl"), "--repetitions", "1", "--quiet")[0] == 0
    task = json.loads((runs / "pearl" / "evaluation.json").read_text())["per_task"][0]
    assert shown == pytest.approx([task["no_adaptation"], task["return_after"]], abs=1e-6)


def test_a_policy_that_does_not_adapt_is_watched_alone_even_while_it_trains(runs, capsys, monkeypatch):
    monkeypatch.setattr(run_reports, "is_locked", lambda folder: True)
    status, out, _ = run(capsys, "watch", str(runs / "ppo"), "--num-tasks", "2")
    assert status == 0
    last = out.splitlines()[-1]
    assert re.fullmatch(r"the run is training: 1 of 1 epoch, 0:\d\d of training, 0:00 left", last)
    assert (runs / "ppo" / "watch.mp4").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["watch"], "the folder of the run is missing"),
        (["watch", "nowhere"], "nowhere is not a metaroll run directory"),
        (["watch", "{runs}/pearl", "--out", "a.avi"], "--out must end in .mp4 or .gif, got 'a.avi'"),
        (
            ["watch", "{runs}/pearl", "--first-task", "4"],
            "--first-task must be from 0 to 3, since there are 4 held-out tasks, got 4",
        ),
        (
            ["watch", "{runs}/pearl", "--num-tasks", "7"],
            "--num-tasks must be at most 4, since there are 4 held-out tasks, got 7",
        ),
        (["watch", "{runs}/pearl", "--first-task", "3", "--num-tasks", "2"], "at most 1 with --first-task 3"),
        (
            ["watch", "{runs}/ppo", "--num-tasks", "3"],
            "--num-tasks must be at most 2, since there are 2 episodes, got 3",
        ),
        (
            ["watch", "{runs}/pearl", "--out", "/proc/a.mp4"],
            "--out must name a file that can be written, got '/proc/a.mp4'",
        ),
        (
            ["report", "{runs}/pearl", "--out", "/proc/b/a.html"],
            "that can be written, got '/proc/b/a.html': No such file",
        ),
        (["watch", "{runs}/pearl", "--num-tasks", "0"], "--num-tasks must be at least 1, got 0"),
        (["watch", "{runs}/pearl", "--fps", "0"], "fps must be from 0.1 to 240"),
        (["watch", "{runs}/blind"], "bandit-5 has no pictures"),
        (["report"], "the folder of the run is missing"),
        (["report", "nowhere"], "nowhere is not a metaroll run directory"),
        (["report", "{runs}/pearl", "--out", "a.pdf"], "--out must end in .html or .htm, got 'a.pdf'"),
    ],
)
def test_bad_input_is_one_clear_line(runs, capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *(argument.format(runs=runs) for argument in arguments))
    assert (status, out) == (2, "")
    assert message in err and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_report_has_pictures_and_numbers(runs, capsys):
    status, out, _ = run(capsys, "report", str(runs / "pearl"), "--json")
    assert status == 0
    found = json.loads(out)
    assert found["notes"] == [] and found["pictures"] == 6
    text = Path(found["file"]).read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 6
    for said in (
        "pearl on point-robot",
        "Learning to adapt to new tasks",
        "Adapting to a new task",
        "1 of 1 (finished)",
        'class="verdict',
        "task 0: goal=(",
    ):
        assert said in text


@pytest.mark.usefixtures("empty_charts")
def test_report_of_what_cannot_be_drawn_says_so(runs, capsys):
    status, out, err = run(capsys, "report", str(runs / "blind"), "--json")
    found = json.loads(out)
    assert status == 0 and found["pictures"] == 0
    assert "There are no pictures of the agent: bandit-5 has no pictures" in found["notes"][0]
    assert "no pictures" in err
    assert "bandit-5 has no pictures" in (runs / "blind" / "report.html").read_text(encoding="utf-8")
    status, out, err = run(capsys, "report", str(runs / "blind"), "--no-pictures", "--json")
    assert (status, json.loads(out)["notes"], err.count("pictures")) == (0, [], 0)


@pytest.mark.usefixtures("empty_charts")
def test_report_of_a_run_without_its_configuration_says_so(runs, capsys, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(runs / "blind", folder)
    (folder / "config.yaml").unlink()
    (folder / "summary.json").write_text("{")
    status, out, _ = run(capsys, "report", str(folder))
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert status == 0
    for problem in ("config.yaml is missing: restore it", "summary.json is left out", "There are no pictures"):
        assert problem in out and problem in page.replace('<p class="note">', "")
    assert page.count('<p class="note">') == 3


def test_a_run_with_loggers_keeps_them_over_a_resume(tmp_path, capsys, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(yaml.safe_dump(PEARL))
    assert (
        main(["train", "pearl", "point-robot", "--config", "tiny.yaml", "--tensorboard", "--out", "a", "--quiet"]) == 0
    )
    assert main(["resume", "a", "--epochs", "2", "--quiet"]) == 0
    reader = EventAccumulator("a/tensorboard")
    reader.Reload()
    rows = [json.loads(line) for line in Path("a/metrics.jsonl").read_text().splitlines()]
    expected = [row["env_steps"] for row in rows if row["metric"] == "kl"]
    assert [event.step for event in reader.Scalars("train/kl")] == expected and len(expected) == 2
    capsys.readouterr()


# ------------------------------------------------------------------------------------------------- without a screen
def test_what_draws_without_a_screen_is_taken_for_the_time_of_the_block(monkeypatch):
    working = {"osmesa"}
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(probes, "can_draw", lambda env_id, backend, seconds: backend in working)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setitem(sys.modules, "mujoco", object())
    with without_screen() as backend:
        assert (backend, os.environ["MUJOCO_GL"]) == ("osmesa", "osmesa")
    assert "MUJOCO_GL" not in os.environ
    working.clear()
    with without_screen() as backend:
        assert backend is None
        assert "MUJOCO_GL" not in os.environ
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with without_screen() as backend:
        assert (backend, os.environ["MUJOCO_GL"]) == (None, "egl")


DRIVERS = {
    "hangs": "import subprocess, time\nsubprocess.Popen(['sleep', '60'])\nopen('imported', 'w')\ntime.sleep(60)",
    "crashes": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "leaves": "raise SystemExit(0)",
    "raises": "raise OSError('no GL library')",
}


@pytest.mark.parametrize("fault", DRIVERS)
def test_a_driver_that_crashes_or_hangs_takes_only_its_process_down(tmp_path, monkeypatch, fault):
    """The import of an environment's module stands for the driver; its process is gone afterwards (conftest looks)."""
    (tmp_path / f"driver_that_{fault}.py").write_text(DRIVERS[fault])
    monkeypatch.syspath_prepend(tmp_path)
    started = time.monotonic()
    assert not can_draw(f"driver_that_{fault}:Picture-v0", "egl", 3.0 if fault == "hangs" else 30.0)
    assert time.monotonic() - started < 20
    assert Path("imported").exists() == (fault == "hangs")


def test_pictures_are_drawn_with_the_backend_that_is_asked_for(tmp_path, monkeypatch):
    """A picture of noise with osmesa, a blank one with egl."""
    code = """
import os, gymnasium, numpy as np
class Picture(gymnasium.Env):
    action_space = observation_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}
    def __init__(self, render_mode=None): self.render_mode = render_mode
    def reset(self, *, seed=None, options=None): return 0, {}
    def step(self, action): return 0, 0.0, False, False, {}
    def render(self):
        return np.arange(48, dtype=np.uint8).reshape(4, 4, 3) * (os.environ["MUJOCO_GL"] == "osmesa")
gymnasium.register("Picture-v0", Picture)
"""
    (tmp_path / "drawing_driver.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    assert can_draw("drawing_driver:Picture-v0", "osmesa", 30.0)
    assert not can_draw("drawing_driver:Picture-v0", "egl", 30.0)
