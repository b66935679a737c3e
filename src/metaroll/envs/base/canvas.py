"""Drawing lines, shapes and words into arrays of pixels, with Pillow."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = [
    "BLUE",
    "GRAY",
    "GREEN",
    "INK",
    "ORANGE",
    "PALE",
    "PAPER",
    "RED",
    "Canvas",
    "Point",
    "gif_bytes",
    "png_bytes",
    "resized",
]

PAPER, INK, GRAY, PALE = (250, 250, 247), (45, 49, 56), (120, 124, 130), (202, 206, 211)
BLUE, RED, GREEN, ORANGE = (38, 98, 165), (200, 70, 50), (60, 140, 90), (217, 95, 2)

_SCALE = 2  # drawn larger by this factor, and then reduced, for smooth edges

Point = tuple[float, float]


class Canvas:
    """Drawing in pixels of the finished picture, y upwards from the bottom; shapes far outside are left out.

    Args:
        width: Pixels from left to right.
        height: Pixels from bottom to top.
        color: Color of the background.
    """

    def __init__(self, width: int, height: int, color: Any = PAPER) -> None:
        from PIL import Image, ImageDraw

        self.height = height
        self._image = Image.new("RGB", (width * _SCALE, height * _SCALE), color)
        self._pen = ImageDraw.Draw(self._image)

    def line(self, points: Sequence[Point], color: Any = INK, width: float = 3.0) -> None:
        """A line through points, with round ends."""
        placed = [self._place(point) for point in points]
        if any(point is None for point in placed):
            return
        self._pen.line([point for point in placed if point], fill=color, width=round(width * _SCALE), joint="curve")
        for point in (points[0], points[-1]):
            self.disc(point, width / 2, color)

    def disc(self, center: Point, radius: float, color: Any, edge: Any = None) -> None:
        """A filled circle; without a ``color`` its edge alone."""
        placed, size = self._place(center), radius * _SCALE
        if placed:
            (x, y), rim = placed, 2 * _SCALE if edge else 0
            self._pen.ellipse((x - size, y - size, x + size, y + size), fill=color, outline=edge, width=rim)

    def polygon(self, points: Sequence[Point], color: Any, edge: Any = None) -> None:
        """A filled shape."""
        placed = [point for point in map(self._place, points) if point]
        if len(placed) == len(points):
            self._pen.polygon(placed, fill=color, outline=edge, width=2 * _SCALE if edge else 0)

    def box(self, center: Point, width: float, height: float, color: Any, angle: float = 0.0) -> None:
        """A filled rectangle, turned counter-clockwise."""
        corners = [(sx * width / 2, sy * height / 2) for sx, sy in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
        sin, cos = math.sin(angle), math.cos(angle)
        turned = [(center[0] + x * cos - y * sin, center[1] + x * sin + y * cos) for x, y in corners]
        self.polygon(turned, color)

    def text(self, where: Point, text: str, color: Any = INK, size: int = 12) -> None:
        """A small text, its left lower corner at ``where``."""
        placed = self._place(where)
        if placed:
            self._pen.text(placed, text, fill=color, font_size=size * _SCALE, anchor="ls")

    def text_width(self, text: str, size: int = 12) -> float:
        """Width of ``text`` in pixels."""
        return self._pen.textlength(text, font_size=size * _SCALE) / _SCALE

    def wrapped(self, text: str, width: float, size: int = 12) -> list[str]:
        """The lines of ``text``, broken between words so that none is longer than ``width`` unless a word is."""
        lines: list[str] = []
        for word in text.split(" "):
            longer = f"{lines[-1]} {word}" if lines else word
            fits = lines and self.text_width(longer, size) <= width
            lines = [*lines[:-1], longer] if fits else [*lines, word]
        return lines

    def pixels(self) -> np.ndarray:
        """The finished picture, uint8 ``(H, W, 3)``."""
        return np.array(self._image.reduce(_SCALE), dtype=np.uint8)

    def _place(self, point: Point) -> Point | None:
        if not all(math.isfinite(value) and abs(value) < 1e5 for value in point):
            return None
        return point[0] * _SCALE, (self.height - point[1]) * _SCALE


def resized(picture: np.ndarray, height: int) -> np.ndarray:
    """``picture (H, W, 3)`` with another height and the same proportions."""
    from PIL import Image

    width = max(1, round(picture.shape[1] * height / picture.shape[0]))
    return np.array(Image.fromarray(picture).resize((width, height), Image.Resampling.LANCZOS), dtype=np.uint8)


def png_bytes(picture: np.ndarray) -> bytes:
    """``picture (H, W, 3)`` as a PNG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="PNG", optimize=True)
    return file.getvalue()


def gif_bytes(frames: Sequence[np.ndarray], fps: float) -> bytes:
    """``frames``, each uint8 ``(H, W, 3)``, as a GIF file that starts over at its end."""
    from PIL import Image

    # One palette for all frames, so that what does not move does not flicker.
    palette = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 8)])).quantize(256)
    pictures = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    file = io.BytesIO()
    # GIF counts in hundredths of a second, and programs show fewer than two of them as ten.
    duration = 10 * max(2, round(100 / fps))
    pictures[0].save(file, format="GIF", save_all=True, append_images=pictures[1:], duration=duration, loop=0)
    return file.getvalue()
