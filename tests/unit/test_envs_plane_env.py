"""Points in the plane are drawn where they are, with their way, their goal and what stands around them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from metaroll.envs.point.plane_drawing import SIDE, draw_plane
from metaroll.envs.point.point_corners import PointCornersEnv, PointMomentumEnv, PointWallsEnv
from metaroll.envs.point.point_goal import PointGoalEnv
from metaroll.envs.point.point_navigation import PointNavigationEnv
from metaroll.envs.point.point_pixels import PointRobotPixelsEnv
from metaroll.envs.point.point_robot import PointRobotEnv, SparsePointRobotEnv

RED = (200, 70, 50)
KINDS = [
    PointRobotEnv,
    SparsePointRobotEnv,
    PointNavigationEnv,
    PointCornersEnv,
    PointMomentumEnv,
    PointWallsEnv,
    PointGoalEnv,
    PointRobotPixelsEnv,
]


def middle_of(picture: np.ndarray, color: tuple[int, int, int]) -> tuple[float, float]:
    """Column and row, from the left upper corner, of all that has a color."""
    rows, columns = np.nonzero((picture == np.array(color)).all(axis=-1))
    return float(columns.mean()), float(rows.mean())


@pytest.mark.parametrize("kind", KINDS)
def test_every_point_environment_can_be_drawn_and_the_picture_moves(kind):
    env = kind(render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    assert before.shape == (SIDE, SIDE, 3) and before.dtype == np.uint8
    for _ in range(3):
        env.step(np.array([1.0, 0.0], np.float32))
    assert (env.render() != before).any()


def test_the_point_is_drawn_where_it_is():
    env = PointRobotEnv(goal=(-1.0, -1.0), render_mode="rgb_array")
    env.reset(options={"init_state": (1.5, -0.75)})
    # 24 pixels of margin; 156 pixels are 1.5: the right border, and half of the lower half
    column, row = middle_of(env.render(), RED)
    assert column == pytest.approx(180 + 156, abs=1.0) and row == pytest.approx(180 + 78, abs=1.0)


def test_the_way_is_that_of_this_episode():
    env = PointRobotEnv(render_mode="rgb_array")
    env.reset(options={"init_state": (1.0, 1.0)})
    fresh = env.render()
    for _ in range(4):
        env.step(np.array([-1.0, 0.0], np.float32))
    env.reset(options={"init_state": (1.0, 1.0)})
    assert (env.render() == fresh).all()


def test_a_wall_has_its_gap_where_the_point_gets_through():
    open_right = draw_plane([np.zeros(2)], np.array([-1.0, -1.0]), 2.0, walls=[(1.0, np.array([1.0, 0.0]), 1.0)])
    ink = (open_right < 80).all(axis=-1)
    # A chord of 1 in a circle of radius 1 spans 60 degrees to either side of the gap's middle.
    radius = (SIDE / 2 - 24) / 2.0

    def has_ink(degrees: float) -> bool:
        column = round(SIDE / 2 + radius * np.cos(np.radians(degrees)))
        row = round(SIDE / 2 - radius * np.sin(np.radians(degrees)))
        return bool(ink[row - 3 : row + 4, column - 3 : column + 4].any())

    assert [has_ink(angle) for angle in (0, 55, -55, 65, -65, 180)] == [False, False, False, True, True, True]


def test_a_point_that_has_left_the_picture_is_a_ring_at_its_border():
    picture = draw_plane([np.array([9.0, 0.0])], np.zeros(2), 1.5)
    column, row = middle_of(picture, RED)
    assert column > SIDE - 20 and row == pytest.approx(SIDE / 2, abs=1.5)


def test_drawing_needs_a_reset_and_a_render_mode():
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        PointRobotEnv(render_mode="rgb_array").render()
    env = PointRobotEnv()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="draws nothing without a render_mode"):
        assert env.render() is None


def test_a_drawn_environment_acts_as_one_that_is_not():
    plain, drawn = PointWallsEnv(), PointWallsEnv(render_mode="rgb_array")
    for env in (plain, drawn):
        env.reset(seed=3)
    for action in np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32):
        one, two = plain.step(action), drawn.step(action)
        drawn.render()
        assert (one[0] == two[0]).all() and one[1:4] == two[1:4]
