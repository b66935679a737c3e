"""Pictures of a point in the plane: with its way, its goal and the walls around it, or many small ones of points."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from metaroll.envs.base.canvas import BLUE, GRAY, GREEN, INK, PALE, PAPER, RED, Canvas, Point

__all__ = ["PIXELS", "SIDE", "Wall", "draw_plane", "plane_pixels"]

SIDE = 360
PIXELS = 64
"""Side of the small pictures."""
_DISC = 4.0  # radius of the point in them, in pixels
_MARGIN = 24.0
_GOAL_GROUND = (214, 233, 220)

Wall = tuple[float, np.ndarray, float]
"""Radius around the origin, middle of the gap ``(2,)``, and how near to that middle one gets through."""


def draw_plane(
    trail: Sequence[np.ndarray], goal: np.ndarray, reach: float, goal_radius: float = 0.0, walls: Sequence[Wall] = ()
) -> np.ndarray:
    """A picture of the square [-reach, reach]^2, uint8 ``(360, 360, 3)``.

    Args:
        trail: Where the point has been, ``(2,)`` each; the last is where it is. Outside the square it is drawn as a
            ring at the border.
        goal: Shape ``(2,)``.
        reach: Half of the square's side.
        goal_radius: How near to the goal the point has arrived; 0 draws no area.
        walls: Round walls with gaps.
    """
    canvas = Canvas(SIDE, SIDE)
    scale, middle = (SIDE / 2 - _MARGIN) / reach, SIDE / 2

    def seen(point: Sequence[float] | np.ndarray) -> Point:
        return middle + scale * float(point[0]), middle + scale * float(point[1])

    corners = [(-reach, -reach), (reach, -reach), (reach, reach), (-reach, reach), (-reach, -reach)]
    canvas.line([seen(corner) for corner in corners], PALE, 1)
    canvas.line([seen((-reach, 0)), seen((reach, 0))], PALE, 1)
    canvas.line([seen((0, -reach)), seen((0, reach))], PALE, 1)
    if goal_radius:
        canvas.disc(seen(goal), scale * goal_radius, _GOAL_GROUND, GREEN)
    for wall in walls:
        canvas.line([seen(point) for point in _arc(*wall)], INK, 4)
    x, y = seen(goal)
    for slope in (-1, 1):
        canvas.line([(x - 6, y - slope * 6), (x + 6, y + slope * 6)], GREEN, 3)
    way = [seen(point) for point in trail]
    canvas.disc(way[0], 3.5, GRAY)
    if len(way) > 1:
        canvas.line(way, BLUE, 2)
    at = way[-1]
    inside = (min(max(at[0], 8.0), SIDE - 8.0), min(max(at[1], 8.0), SIDE - 8.0))
    canvas.disc(inside, 7, RED if inside == at else None, RED)
    return canvas.pixels()


def _arc(radius: float, gap: np.ndarray, nearness: float) -> list[Point]:
    """Points of a round wall, from one side of its gap to the other."""
    half = 2.0 * math.asin(min(1.0, nearness / (2.0 * radius)))
    begin = math.atan2(gap[1], gap[0]) + half
    angles = np.linspace(begin, begin + 2.0 * (math.pi - half), 65)
    return [(radius * math.cos(angle), radius * math.sin(angle)) for angle in angles.tolist()]


def plane_pixels(points: np.ndarray, reach: float) -> np.ndarray:
    """Small pictures of the square [-reach, reach]^2 with a point each, uint8 ``(N, 64, 64, 3)``.

    A disc as ``Canvas`` draws it, computed for all at once: the share of a pixel that it covers is taken from the
    distance of the middles. Points outside of the square are put at its border.

    Args:
        points: Shape ``(N, 2)``.
        reach: Half of the square's side.
    """
    border, half = _DISC + 1.0, math.ceil(_DISC) + 1
    scaled = (points / reach + 1.0) * (PIXELS / 2)
    place = np.minimum(np.maximum(np.nan_to_num(scaled, posinf=PIXELS, neginf=0.0), border), PIXELS - border)
    columns, rows = place[:, 0], PIXELS - place[:, 1]  # rows go down
    around = np.arange(-half, half)
    xs, ys = (np.floor(axis).astype(np.int64)[:, None] + around for axis in (columns, rows))
    to_x, to_y = xs + 0.5 - columns[:, None], ys + 0.5 - rows[:, None]
    distance = np.sqrt(to_x[:, None, :] ** 2 + to_y[:, :, None] ** 2)
    share = np.minimum(np.maximum(_DISC + 0.5 - distance, 0.0), 1.0)[..., None]
    pictures = np.empty((len(points), PIXELS, PIXELS, 3), dtype=np.uint8)
    pictures[:] = PAPER
    seen = np.rint(np.array(PAPER) * (1.0 - share) + np.array(RED) * share).astype(np.uint8)
    pictures[np.arange(len(points))[:, None, None], ys[:, :, None], xs[:, None, :]] = seen
    return pictures
