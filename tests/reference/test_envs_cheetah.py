"""cheetah-vel against Gymnasium's own HalfCheetah-v5 (specs/meta.md 7.2)."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from metaroll.envs.base.checks import check_slots
from metaroll.envs.mujoco.cheetah_vel import CheetahVelEnv
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.errors import ShapeError
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import RolloutPlan


def actions_of(num_steps: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, size=(num_steps, 6)).astype(np.float32)


def test_trajectory_is_that_of_half_cheetah_v5() -> None:
    """specs/meta.md 7.2: observation qpos[1:], qvel, torso xyz; reward -|v - g| - 0.05 |a|^2; never done"""
    ours, theirs = CheetahVelEnv(velocity=1.5), gymnasium.make("HalfCheetah-v5", disable_env_checker=True)
    first, _ = ours.reset(seed=11)
    other, _ = theirs.reset(seed=11)
    np.testing.assert_array_equal(first[:17], other)
    simulator: Any = theirs.unwrapped
    for action in actions_of(250):
        observation, reward, terminated, truncated, info = ours.step(action)
        other, _, _, _, their_info = theirs.step(action)
        np.testing.assert_array_equal(observation[:17], other)
        np.testing.assert_array_equal(observation[17:], simulator.get_body_com("torso"))
        assert info["x_velocity"] == their_info["x_velocity"]
        assert info["x_position"] == their_info["x_position"]
        assert info["reward_ctrl"] == pytest.approx(0.5 * their_info["reward_ctrl"], rel=1e-5)  # 0.05 against 0.1
        assert info["reward_ctrl"] == pytest.approx(-0.05 * np.sum(action.astype(float) ** 2))
        assert reward == pytest.approx(-abs(info["x_velocity"] - 1.5) + info["reward_ctrl"], abs=1e-12)
        assert not (terminated or truncated)
        assert all(isinstance(value, float) for value in info.values())


def test_restart_forgets_the_episode_before() -> None:
    env = CheetahVelEnv()
    runs = []
    for _ in range(2):
        rows = [env.reset(seed=4)[0], *(env.step(action)[0] for action in actions_of(20))]
        runs.append(np.stack(rows))
    np.testing.assert_array_equal(*runs)


def test_init_state_replaces_the_draw() -> None:
    state = np.linspace(-0.1, 0.1, 18)
    observation, _ = CheetahVelEnv().reset(seed=0, options={"init_state": state})
    np.testing.assert_array_equal(observation[:17], state[1:])
    with pytest.raises(ShapeError, match=r"init_state must have shape \(18,\), got \(17,\)"):
        CheetahVelEnv().reset(options={"init_state": state[1:]})


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_continue_bit_for_bit(twin_of: Any) -> None:
    """specs/sampling.md 0.6: the task too, which Gymnasium's own copies lose"""
    env = CheetahVelEnv()
    env.set_task({"velocity": 2.0})
    env.reset(seed=2)
    actions = actions_of(30)
    for action in actions[:15]:
        env.step(action)
    twin = twin_of(env)
    assert twin.get_task() == {"velocity": 2.0}
    for action in actions[15:]:
        np.testing.assert_array_equal(env.step(action)[0], twin.step(action)[0])
    np.testing.assert_array_equal(env.reset()[0], twin.reset()[0])  # the generator travels too


def test_slots_conform() -> None:
    tasks = CheetahVelEnv.sample_tasks(2, generator=0)
    plans = [RolloutPlan(i, (1, 0, i), SetTaskUpdate(CheetahVelEnv, task)) for i, task in enumerate(tasks)]
    plans.append(RolloutPlan(2, (1, 0, 2)))
    check_slots(lambda n: GymSlots(CheetahVelEnv, n), plans, num_steps=12)


def test_labels_and_horizon() -> None:
    """specs/meta.md 7.2: 20 numbers, horizon 200"""
    spec = CheetahVelEnv().env_spec
    assert (spec.obs_dim, spec.act_dim, spec.max_episode_length) == (20, 6, 200)
    assert spec.observation_labels is not None
    assert spec.observation_labels[8] == "root_x_dot"
    assert spec.observation_labels[-3:] == ("torso_x", "torso_y", "torso_z")


def test_valid_gymnasium_environment() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(infinity|maximum value).*")
        warnings.filterwarnings("ignore", message=".*was not initialized with a spec.*")
        check_env(CheetahVelEnv(), skip_render_check=True)


def test_wrong_input_is_told() -> None:
    env = CheetahVelEnv()
    env.reset(seed=0)
    with pytest.raises(ShapeError, match=r"action must have shape \(6,\), got \(7,\)"):
        env.step(np.zeros(7))
    with pytest.raises(ValueError, match="task must be a mapping with 'velocity'"):
        env.set_task(1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="velocity must be finite"):
        env.set_task({"velocity": np.nan})
