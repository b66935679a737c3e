"""Point robots: specs/meta.md 7.2."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest

from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.point.point_robot import (
    PointRobotEnv,
    SparsePointRobotEnv,
    go_to,
    point_robot_step,
    sparse_reward,
)
from metaroll.errors import ShapeError
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import RolloutPlan


def test_step_moves_a_tenth_and_rewards_the_next_position() -> None:
    """specs/meta.md 7.2: s += a with a in +-0.1, then -||s - g||"""
    position = np.array([[0.0, 0.0], [1.0, 1.0]])
    action = np.array([[1.0, -0.5], [-3.0, 0.0]], dtype=np.float32)
    goal = np.array([[0.4, -0.45], [0.9, 1.0]])
    following, reward = point_robot_step(position, action, goal)
    # (0.1, -0.05), 0.3 and 0.4 from the goal: 0.5; clipped to -1: (0.9, 1.0), on the goal
    np.testing.assert_allclose(following, [[0.1, -0.05], [0.9, 1.0]], atol=1e-15)
    np.testing.assert_allclose(reward, [-0.5, 0.0], atol=1e-15)
    np.testing.assert_array_equal(position, [[0.0, 0.0], [1.0, 1.0]])


def test_sparse_reward_is_one_minus_distance_inside_the_radius() -> None:
    """specs/meta.md 7.2: 1 - dist if dist <= 0.2 else 0"""
    np.testing.assert_allclose(sparse_reward(np.array([-0.05, -0.2, -0.21, 0.0])), [0.95, 0.8, 0.0, 1.0])


def test_infos_are_zero_where_a_slot_is_not_active() -> None:
    goal = SetTaskUpdate(SparsePointRobotEnv, {"goal": (0.6, 0.8)})
    slots = SimulatorSlots(2, SparsePointRobotEnv().simulator)
    slots.reset([0, 1], [RolloutPlan(i, (0, 0, i), goal, init_state=np.array([0.6, 0.8])) for i in range(2)])
    infos = slots.step(np.zeros((2, 2), np.float32), np.array([True, False])).infos
    assert {name: values.tolist() for name, values in infos.items()} == {
        "sparse_reward": [1.0, 0.0],
        "success": [True, False],
    }


def test_go_to_lands_on_the_target() -> None:
    obs, target = np.array([[0.0, 0.95]]), np.array([[0.35, -1.0]])
    position = obs
    for steps in range(1, 21):
        position, reward = point_robot_step(position, go_to(target, position), target)
        if steps == 4:
            assert position[0, 0] == pytest.approx(0.35, abs=1e-15)  # 0.1 + 0.1 + 0.1 + 0.05
    np.testing.assert_allclose(position, target, atol=1e-15)
    assert reward[0] == pytest.approx(0.0, abs=1e-15)


def test_start_of_the_dense_robot_is_uniform_and_of_the_sparse_one_the_origin() -> None:
    """specs/meta.md 7.2: start U(-1, 1)^2, and (0, 0)"""
    env = PointRobotEnv()
    starts = np.array([env.reset(seed=i)[0] for i in range(300)])
    assert np.abs(starts).max() <= 1
    assert np.all(np.abs(starts.mean(axis=0)) < 0.12)  # standard error 0.58 / sqrt(300) = 0.033
    assert starts.min() < -0.95
    assert SparsePointRobotEnv().reset(seed=3)[0].tolist() == [0, 0]
    assert env.reset(options={"init_state": (0.5, 2.0)})[0].tolist() == [0.5, 2.0]


def test_tasks() -> None:
    """specs/meta.md 7.2: goals U(-1, 1)^2; n points equally spaced on the half circle of radius 1, shuffled"""
    goals = np.array([task["goal"] for task in PointRobotEnv.sample_tasks(200, generator=0)])
    assert goals.shape == (200, 2)
    assert np.abs(goals).max() <= 1
    assert goals.min() < -0.9
    ring = np.array([task["goal"] for task in SparsePointRobotEnv.sample_tasks(5, generator=0)])
    angles = np.arctan2(ring[:, 1], ring[:, 0])
    np.testing.assert_allclose(np.sort(angles), np.pi * np.array([0, 0.25, 0.5, 0.75, 1]), atol=1e-12)
    assert not np.array_equal(angles, np.sort(angles))
    np.testing.assert_allclose(np.linalg.norm(ring, axis=1), 1)


def test_set_task_and_copies_keep_the_goal() -> None:
    """specs/sampling.md 0.6: copies and pickles keep the task"""
    env = PointRobotEnv()
    env.set_task({"goal": [0.3, -0.2]})
    env.reset(seed=1)
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        np.testing.assert_array_equal(twin.get_task()["goal"], [0.3, -0.2])
        np.testing.assert_array_equal(twin.step(np.ones(2))[0], copy.deepcopy(env).step(np.ones(2))[0])
    env.get_task()["goal"][:] = 7
    np.testing.assert_array_equal(env.get_task()["goal"], [0.3, -0.2])


def test_published_floor_and_oracle() -> None:
    """Going to the origin -15.9, told the goal -5.2 (20 steps, goals and starts uniform in the square)."""
    num = 4000
    goals = np.array([task["goal"] for task in PointRobotEnv.sample_tasks(num, generator=2)])
    start = np.random.default_rng(3).uniform(-1, 1, size=(num, 2))
    means = []
    for target in (np.zeros((num, 2)), goals):
        position, total = start, np.zeros(num)
        for _ in range(20):
            position, reward = point_robot_step(position, go_to(target, position), goals)
            total += reward
        means.append(total.mean())
    assert means == pytest.approx([-15.9, -5.2], abs=0.25)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: PointRobotEnv(goal=(1, 2, 3)), ShapeError, r"goal must have shape \(2,\), got \(3,\)"),
        (lambda: PointRobotEnv(goal=(np.nan, 0)), ValueError, "goal must be finite"),
        (lambda: PointRobotEnv(render_mode="human"), ValueError, "render_mode must be None or 'rgb_array'"),
        (lambda: PointRobotEnv().set_task((0, 1)), ValueError, "task must be a mapping with 'goal'"),
        (lambda: PointRobotEnv().step(np.zeros(2)), gymnasium.error.ResetNeeded, "reset"),
        (
            lambda: SimulatorSlots(0, PointRobotEnv().simulator),
            ValueError,
            "num_slots must be an integer",
        ),
        (
            lambda: SimulatorSlots(2, PointRobotEnv().simulator).step(np.zeros((2, 3)), np.ones(2, bool)),
            ShapeError,
            r"\(2, 2\), got \(2, 3\)",
        ),
        (
            lambda: SimulatorSlots(1, PointRobotEnv().simulator).reset([0], [RolloutPlan()]),
            ValueError,
            "seed of plan 0 must be set",
        ),
    ],
)
def test_wrong_input_is_told(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
