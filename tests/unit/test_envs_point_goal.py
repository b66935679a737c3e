"""The point that is told its goal, and the one that is seen in pixels: the physics of the point robot."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from metaroll import RolloutEngine, get_family, rollout
from metaroll.envs.base.canvas import RED, Canvas
from metaroll.envs.base.checks import check_slots
from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.lookup.source import make_slots
from metaroll.envs.point.plane_drawing import plane_pixels
from metaroll.envs.point.point_goal import PointGoalEnv
from metaroll.envs.point.point_pixels import PointRobotPixelsEnv
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.errors import ShapeError
from metaroll.policies import ScriptedPolicy
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import RolloutPlan

FAMILIES = {"point-goal": PointGoalEnv, "point-robot-pixels": PointRobotPixelsEnv}
KINDS = list(FAMILIES.values())


def plans_of(kind: Any) -> list[RolloutPlan]:
    updates = [SetTaskUpdate(kind, task) for task in kind.sample_tasks(2, generator=1)]
    start = np.array([0.25, -0.5, 1.0, 2.0])[: kind().simulator.state_dim]
    plans = [RolloutPlan(i, (5, 1, i), update) for i, update in enumerate(updates)]
    return [*plans, RolloutPlan(2, (5, 1, 2)), RolloutPlan(3, (5, 1, 3)), RolloutPlan(4, (5, 1, 4), init_state=start)]


def leaves(tree: Any) -> list[np.ndarray]:
    return list(tree.values()) if isinstance(tree, dict) else [tree]


@pytest.mark.parametrize("kind", KINDS)
def test_single_and_batched_are_bit_equal(kind: Any) -> None:
    plans, generator = plans_of(kind), np.random.default_rng(0)
    batched, single = SimulatorSlots(5, kind().simulator), GymSlots(kind, 5)
    a, b = batched.reset(range(5), plans), single.reset(range(5), plans)
    for _ in range(6):
        for first, second in zip(leaves(a), leaves(b), strict=True):
            assert first.dtype == second.dtype
            np.testing.assert_array_equal(first, second)
        actions = 2 * generator.normal(size=(5, 2)).astype(np.float32)
        mine, theirs = (slots.step(actions, np.arange(5) != 1) for slots in (batched, single))
        np.testing.assert_array_equal(mine.rewards, theirs.rewards)
        a, b = mine.observations, theirs.observations


@pytest.mark.parametrize("kind", KINDS)
def test_they_conform(kind: Any) -> None:
    check_slots(lambda n: SimulatorSlots(n, kind().simulator), plans_of(kind), num_steps=12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=r".*(infinity|maximum value|wasn't initialized|not initialized).*")
        check_env(kind(), skip_render_check=True)


@pytest.mark.parametrize("name", FAMILIES)
def test_they_are_families(name: str) -> None:
    family = get_family(name)
    train, test = family.split(seed=3)
    assert (len(train), len(test)) == (family.num_train_tasks, family.num_test_tasks)
    slots = make_slots(name, 2, plans=[RolloutPlan(0, (0, 0, 0), train[0])])
    assert isinstance(slots, SimulatorSlots) and family.horizon == slots.env_spec.max_episode_length


def test_rollouts_do_not_show_the_number_of_workers() -> None:
    train, _ = get_family("point-goal").split(4, 0)
    policy = ScriptedPolicy(lambda obs, contexts: np.cos(np.float32(obs[:, :2])))
    plans = [RolloutPlan(i, (3, 0, i), train[i % 4] if i % 2 else None, max_steps=7) for i in range(6)]
    found = []
    for workers in (1, 2):
        with RolloutEngine("point-goal", policy, num_workers=workers) as engine:
            found.append(engine.run(plans))
    for a, b in zip(*found, strict=True):
        assert all((a.observations[key] == b.observations[key]).all() for key in a.observations)
        assert a.rewards.tobytes() == b.rewards.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_copies_go_on_exactly_where_the_environment_is(kind: Any) -> None:
    env: Any = kind()
    env.reset(seed=1)
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    found = [one.step(np.full(2, 0.5)) for one in (env, *twins)]
    for seen, reward, *_ in found[1:]:
        assert all((a == b).all() for a, b in zip(leaves(seen), leaves(found[0][0]), strict=True))
        assert reward == found[0][1]


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


@pytest.mark.parametrize("kind", KINDS)
def test_they_can_be_filmed(kind: Any) -> None:
    env = kind(render_mode="rgb_array")
    env.reset(seed=0)
    env.step(np.ones(2))
    assert env.render().shape == (360, 360, 3)
