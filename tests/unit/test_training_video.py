"""Videos hold what they are given, side by side, in both formats."""

from __future__ import annotations

import builtins
import dataclasses
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from metaroll.envs.base.canvas import Canvas
from metaroll.envs.point.point_robot import PointRobotEnv, go_to
from metaroll.lab.figures import video
from metaroll.lab.figures.film import Film
from metaroll.lab.figures.video import Panel, default_kind, moments, record_video, write_video
from metaroll.learners.base import MetaRLAlgorithm
from metaroll.policies.adapters import ScriptedPolicy
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.training.evaluation.adaptation_study import study_adaptation
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator

HEAD = 46  # pixels of the title above a picture
GAP = 10


def panel(gray: int, steps: int, fps: float = 10.0, size: tuple[int, int] = (80, 120)) -> Panel:
    frames = np.full((steps + 1, *size, 3), gray, np.uint8)
    return Panel(f"gray {gray}", Film(frames, fps), np.ones(steps))


def mp4_frames(path: Path, width: int, height: int) -> np.ndarray:
    """All frames of a video of this size, ``(F, height, width, 3)``."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-i", str(path)]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    pixels = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    return np.frombuffer(pixels, np.uint8).reshape(-1, height, width, 3)


def test_panels_stand_beside_one_another_and_the_shorter_one_waits(tmp_path):
    path = write_video(tmp_path / "new" / "a.mp4", [[panel(60, 4), panel(200, 8)]])
    frames = mp4_frames(path, 2 * 120 + GAP, 80 + HEAD)
    assert len(frames) == 9 + 15  # the start, 8 steps, and the last picture for 1.5 seconds
    assert imageio_ffmpeg.count_frames_and_secs(str(path)) == (24, pytest.approx(2.4, abs=0.05))
    for frame in frames:
        assert abs(int(frame[HEAD + 40, 60, 0]) - 60) < 12
        assert abs(int(frame[HEAD + 40, 120 + GAP + 60, 0]) - 200) < 12
    assert [p.name for p in path.parent.iterdir()] == ["a.mp4"]


def test_a_gif_is_slower_and_starts_over(tmp_path):
    path = write_video(tmp_path / "a.gif", [[panel(60, 40)], [panel(200, 40)]], fps=60)
    with Image.open(path) as picture:
        assert picture.size == (120, 2 * (80 + HEAD))
        assert picture.info["loop"] == 0
        # every fourth of 60 steps a second; frames that are equal may be put together
        duration = 0
        for index in range(picture.n_frames):
            picture.seek(index)
            duration += picture.info["duration"]
    assert duration == pytest.approx((10 + 1 + 22) * 70, abs=80)


def test_tall_pictures_are_made_smaller_and_sides_are_even(tmp_path):
    path = write_video(tmp_path / "a.mp4", [[panel(60, 2, size=(800, 402))]])
    assert len(mp4_frames(path, 202, 400 + HEAD)) == 3 + 15  # 201 pixels and one more


def test_moments_reach_from_the_start_to_the_end():
    shown = moments([[panel(60, 20), panel(200, 10)]], 5)
    assert [name for name, _ in shown] == ["step 0", "step 5", "step 10", "step 15", "step 20"]
    assert [name for name, _ in moments([[panel(60, 1)]], 5)] == ["step 0", "step 1"]


@pytest.mark.parametrize(
    ("name", "rows", "fps", "message"),
    [
        ("a.avi", [[panel(1, 1)]], None, "path must"),
        ("a.gif", [], None, "at least one row"),
        ("a.gif", [[]], None, "at least one row"),
        ("a.gif", [[panel(1, 1)]], 0.0, "fps must"),
    ],
)
def test_bad_input(tmp_path, name, rows, fps, message):
    with pytest.raises(ValueError, match=message):
        write_video(tmp_path / name, rows, fps)
    assert list(tmp_path.iterdir()) == []


def test_without_ffmpeg_the_error_names_the_extra(tmp_path, monkeypatch):
    original = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "imageio_ffmpeg":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install .*'imageio-ffmpeg>=0.5', or write a .gif"):
        write_video(tmp_path / "a.mp4", [[panel(60, 2)]])
    assert list(tmp_path.iterdir()) == []
    assert write_video(tmp_path / "a.gif", [[panel(60, 2)]]).exists()


def test_the_default_kind_is_one_that_can_be_written(monkeypatch):
    assert default_kind() == "mp4"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert default_kind() == "gif"


def test_a_row_has_a_heading_and_present_values(tmp_path):
    speeds = np.linspace(0.0, 1.0, 4)
    told = [
        dataclasses.replace(panel(gray, 4), heading="task 3: velocity=1.42", values={"x_velocity": speeds})
        for gray in (60, 200)
    ]
    frames = mp4_frames(write_video(tmp_path / "a.mp4", [told]), 2 * 120 + GAP, 80 + HEAD + 26 + 18)
    assert abs(int(frames[0][-40, 60, 0]) - 60) < 12
    top = frames[4][:26].min(axis=(1, 2))
    assert top.min() < 120  # the heading is written
    present = frames[4][26 + HEAD - 4 : 26 + HEAD + 18, :100]
    assert present.min() < 180 and frames[0][26 + HEAD - 2 : 26 + HEAD + 18, :100].min() > 180  # nothing at the start


def test_a_heading_that_is_longer_than_the_picture_has_more_lines():
    heading = "task 0: gravity_const=10.6, cart_mass=0.402, rail_length=0.9, a_word_that_is_longer_than_the_picture"
    lines = Canvas(120, 1).wrapped(heading, 108, 14)
    assert " ".join(lines) == heading and len(lines) > 4
    shown = [picture for _, picture in moments([[dataclasses.replace(panel(60, 4), heading=heading)]], 3)]
    whole = 80 + HEAD + 8 + 18 * len(lines)
    assert {picture.shape for picture in shown} == {(whole + whole % 2, 120, 3)}
    for number in range(len(lines)):  # each is written
        assert shown[0][4 + 18 * number : 4 + 18 * (number + 1)].min() < 120


def _towards(x: float, y: float) -> ScriptedPolicy:
    return ScriptedPolicy(lambda obs, contexts: go_to(np.full_like(obs, (x, y)), obs))


class Fixed(MetaRLAlgorithm):
    """Goes to the origin, and after adaptation elsewhere."""

    max_path_length = 5

    def train(self, runner: Any) -> None:
        """Nothing to train."""

    def get_exploration_policy(self) -> ScriptedPolicy:
        return _towards(0.0, 0.0)

    def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> ScriptedPolicy:
        return _towards(-1.0, 0.0)


def test_both_panels_are_the_same_episode():
    updates = [SetTaskUpdate(PointRobotEnv, {"goal": np.array(goal)}) for goal in ((0.5, 0.5), (-1.0, 0.2))]
    sampler = FixedTaskSampler(updates)
    evaluator = MetaEvaluator(test_task_sampler=sampler, n_exploration_traj=2, n_test_rollouts=2, repetitions=2)
    (row,) = record_video(Fixed(), evaluator, PointRobotEnv, tasks=[1])
    assert [(panel.heading, panel.title) for panel in row] == [
        ("task 1: goal=(-1, 0.2)", "no adaptation"),
        ("task 1: goal=(-1, 0.2)", "adapted to 2 episodes"),
    ]
    np.testing.assert_array_equal(row[0].film.frames[0], row[1].film.frames[0])  # the same first state
    study = study_adaptation(evaluator, Fixed())
    assert row[0].rewards.sum() == pytest.approx(study.baselines["no adaptation"][1, 0, 0])
    assert row[1].rewards.sum() == pytest.approx(study.result.returns[1, 0, 2])


def test_what_the_environment_tells_of_a_task_is_shown():
    infos = {"x_velocity": np.arange(5.0), "mass": np.ones(5), "y_position": np.zeros(5), "pose": np.zeros((5, 2))}
    told = SimpleNamespace(env_infos=infos, data_names=("env_infos",))
    assert list(video._present_values(told, {"velocity": 2.0})) == ["x_velocity"]
    assert list(video._present_values(told, {"mass": 1.0, "pose": 1.0})) == ["mass"]
    assert list(video._present_values(told, {"goal": (1.0, 2.0)})) == ["y_position"]
    assert video._present_values(told, "HopperEnv") == {}
    assert video._present_values(SimpleNamespace(data_names=()), {"velocity": 1.0}) == {}
