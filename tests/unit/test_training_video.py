"""Videos hold what they are given, side by side, in both formats."""

from __future__ import annotations

import builtins
import subprocess
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from metaroll.rollouts.single.video import Film
from metaroll.training.figures.video import Panel, default_kind, moments, write_video

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
        ("a.avi", [[panel(1, 1)]], None, r"path must end in .mp4 or .gif, got '.*a.avi'"),
        ("a.gif", [], None, "at least one row"),
        ("a.gif", [[]], None, "at least one row"),
        ("a.gif", [[panel(1, 1)]], 0.0, "fps must be from 0.1 to 240 .* got 0.0"),
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
    with pytest.raises(ImportError, match=r"pip install 'metaroll\[video\]', or write a .gif"):
        write_video(tmp_path / "a.mp4", [[panel(60, 2)]])
    assert list(tmp_path.iterdir()) == []
    assert write_video(tmp_path / "a.gif", [[panel(60, 2)]]).exists()


def test_the_default_kind_is_one_that_can_be_written(monkeypatch):
    assert default_kind() == "mp4"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert default_kind() == "gif"
