"""The point that is told its goal, and the one that is seen in pixels: the physics of the point robot."""

from __future__ import annotations

import numpy as np
import pytest

from metaroll import rollout
from metaroll.envs.base.canvas import RED, Canvas
from metaroll.envs.point.plane_drawing import plane_pixels
from metaroll.envs.point.point_goal import PointGoalEnv
from metaroll.envs.point.point_pixels import PointRobotPixelsEnv
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.errors import ShapeError

# ---- the goal --------------------------------------------------------------------------------------------------------


def test_goals_by_hand() -> None:
    env = PointGoalEnv()
    seen, _ = env.reset(options={"init_state": (0.0, 0.0, 0.25, 0.1)})
    assert seen["observation"].tolist() == seen["achieved_goal"].tolist() == [0, 0]
    np.testing.assert_array_equal(seen["desired_goal"], np.float32([0.25, 0.1]))
    seen, reward, terminated, truncated, info = env.step(np.array([1.0, 5.0]))
    np.testing.assert_array_equal(seen["achieved_goal"], np.float32([0.1, 0.1]))
    assert (reward, terminated, truncated, info) == (-1.0, False, False, {"success": False})  # 0.15 from it
    assert env.step(np.array([0.75, 0.0]))[1:] == (0.0, False, False, {"success": True})  # 0.075 from it


def test_rewards_can_be_computed_again_for_any_goals() -> None:
    result = rollout("point-goal", lambda obs: np.array([1.0, -0.3]), max_steps=50, seed=4)
    env = PointGoalEnv()
    reached, wanted = (result.observations[key][1:] for key in ("achieved_goal", "desired_goal"))
    assert env.compute_reward(reached, wanted, {}).tolist() == result.rewards.reshape(-1).tolist()
    assert env.compute_reward(reached, reached, {}).tolist() == [0.0] * 50
    assert env.compute_reward(reached[0], wanted[0], {}) == -1.0  # also one pair alone
    assert env.compute_reward(np.zeros((2, 3, 2)), np.zeros((2, 3, 2)), {}).shape == (2, 3)
    wide = PointGoalEnv(radius=100.0)
    assert wide.compute_reward(reached, wanted, {}).tolist() == [0.0] * 50


def test_each_episode_draws_a_goal_unless_there_is_a_task() -> None:
    env = PointGoalEnv()
    seen = [env.reset(seed=i)[0] for i in range(300)]
    goals, places = (np.array([one[key] for one in seen]) for key in ("desired_goal", "observation"))
    assert 2.9 < np.abs(goals).max() <= 3 and 0.95 < np.abs(places).max() <= 1
    assert env.get_task() == {}
    env.set_task({"goal": (1.0, 2.0)})
    assert env.reset(seed=0)[0]["desired_goal"].tolist() == [1, 2] and env.get_task()["goal"].tolist() == [1, 2]
    env.set_task({})
    assert env.reset(seed=0)[0]["desired_goal"].tolist() == goals[0].tolist()
    assert PointGoalEnv(goal=(1, 1)).reset()[0]["desired_goal"].tolist() == [1, 1]


def test_wrong_input_is_told() -> None:
    with pytest.raises(ValueError, match="task must be a mapping with 'goal'"):
        PointGoalEnv().set_task({"target": (1, 1)})
    with pytest.raises(ValueError, match=r"task\['goal'\] must be finite"):
        PointGoalEnv().set_task({"goal": (np.nan, np.nan)})
    with pytest.raises(ShapeError, match=r"init_state must have shape \(4,\), got \(2,\)"):
        PointGoalEnv().reset(options={"init_state": (1, 1)})
    with pytest.raises(ValueError, match=r"radius must lie in \(0"):
        PointGoalEnv(radius=0.0)


# ---- pixels ----------------------------------------------------------------------------------------------------------


def test_pixels_show_the_point_robot() -> None:
    seen, plain = PointRobotPixelsEnv(goal=(0.5, 0.5)), PointRobotEnv(goal=(0.5, 0.5))
    picture, place = seen.reset(seed=3)[0], plain.reset(seed=3)[0]
    for action in ((1.0, -0.2), (0.3, 2.0)):
        rows, columns = np.nonzero(picture[:, :, 1] < 160)  # red on paper
        np.testing.assert_allclose((columns.mean() + 0.5) / 32 - 1, place[0] / 1.5, atol=0.02)
        np.testing.assert_allclose(1 - (rows.mean() + 0.5) / 32, place[1] / 1.5, atol=0.02)
        (picture, *mine), (place, *theirs) = seen.step(np.array(action)), plain.step(np.array(action))
        assert mine == theirs
    assert seen.observation_space.contains(picture)


def test_pixels_are_those_of_the_canvas() -> None:
    points = np.random.default_rng(0).uniform(-1.2, 1.2, size=(20, 2))
    pictures = plane_pixels(points, 1.5)
    for point, picture in zip(points, pictures, strict=True):
        canvas = Canvas(64, 64)
        canvas.disc(tuple(((point / 1.5 + 1) * 32).tolist()), 4.0, RED)
        assert np.abs(canvas.pixels().astype(int) - picture).mean() < 0.4  # its ring of half-covered pixels differs
    outside = plane_pixels(np.array([[9.0, 0.0], [np.inf, -np.inf], [0.0, 0.0]]), 1.5)
    assert outside[0, 32, 60].tolist() == outside[1, 60, 60].tolist() == outside[2, 32, 32].tolist() == list(RED)
    assert (pictures[3] == plane_pixels(points[3:4], 1.5)[0]).all()  # alone as among others
