"""What environments tell of themselves: state, present observation (specs/sampling.md 8.1)."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from sampler_envs import Deaf, Oscillator

from metaroll.envs.base.env_state import (
    ResumedEnv,
    check_init_state,
    current_observation,
    read_state,
    state_owner,
    time_step_of,
)
from metaroll.envs.lookup.source import make_slots
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.errors import SlotError
from metaroll.types import RolloutPlan


def pendulum():
    return gymnasium.make("Pendulum-v1", disable_env_checker=True)


def test_state_is_read_behind_wrappers_as_a_copy():
    env = pendulum()
    assert state_owner(env) is None  # not reset yet
    env.reset(seed=0)
    assert state_owner(env) is env.unwrapped
    state = read_state(env.unwrapped)
    state[:] = 9.0
    assert not (env.unwrapped.state == 9.0).any()


@pytest.mark.parametrize("state", [None, "resting", {"x": 1.0}, [[1.0], [2.0, 3.0]], len])
def test_states_that_are_no_arrays_of_numbers_do_not_count(state):
    env = Oscillator()
    env.state = state
    assert read_state(env) is None and state_owner(env) is None


def test_time_step_is_a_positive_number_or_unknown():
    assert time_step_of(Oscillator()) == 0.1 and time_step_of(pendulum()) == 0.05
    assert time_step_of(PointRobotEnv()) is None
    for wrong in (True, 0.0, "fast"):
        env = Oscillator()
        env.dt = wrong
        assert time_step_of(env) is None


@pytest.mark.parametrize("make", [pendulum, Oscillator, PointRobotEnv])
def test_present_observation_is_that_of_the_last_step(make):
    env = make()
    env.reset(seed=3)
    for _ in range(3):
        observation, *_ = env.step(np.ones(env.action_space.shape, np.float32))
    np.testing.assert_array_equal(current_observation(env), observation)
    np.testing.assert_array_equal(ResumedEnv(env).reset(seed=1, options={})[0], observation)


def test_observation_wrappers_are_applied_and_others_refused():
    env = gymnasium.wrappers.RescaleObservation(pendulum(), np.float32(-0.5), np.float32(0.5))
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(current_observation(env), observation)
    stacked = gymnasium.wrappers.FrameStackObservation(pendulum(), 2)
    stacked.reset(seed=0)
    with pytest.raises(ValueError, match="behind FrameStackObservation is not known"):
        current_observation(stacked)


@pytest.mark.parametrize("wrapper", [gymnasium.wrappers.DelayObservation, gymnasium.wrappers.MaxAndSkipObservation])
def test_wrappers_that_show_earlier_observations_are_refused(wrapper):
    env = wrapper(pendulum(), 2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"behind {wrapper.__name__} is not known"):
        current_observation(env)


def test_asking_does_not_change_the_statistics_of_a_wrapper():
    env = gymnasium.wrappers.NormalizeObservation(pendulum())
    env.reset(seed=0)
    observation, *_ = env.step(np.ones(1, np.float32))
    count = env.obs_rms.count
    np.testing.assert_array_equal(current_observation(env), observation)
    assert (env.obs_rms.count, env.update_running_mean) == (count, True)


def test_environments_that_cannot_tell_are_refused_with_the_cure():
    cart = gymnasium.make("CartPole-v1", disable_env_checker=True)
    cart.reset(seed=0)
    with pytest.raises(ValueError, match=r"CartPoleEnv is not known.*current_observation"):
        current_observation(cart)
    with pytest.raises(ValueError, match="reset it first"):
        current_observation(pendulum())


def test_an_ignored_initial_state_is_noticed():
    env = Deaf()
    env.reset(seed=0, options={"init_state": np.ones(2)})
    with pytest.raises(ValueError, match=r"Deaf must start in init_state .* but .*ignores reset"):
        check_init_state(env, np.ones(2))
    with pytest.raises(ValueError, match=r"init_state must have the shape \(2,\) of the state of Deaf, got \(3,\)"):
        check_init_state(env, np.ones(3))
    env.init_space = gymnasium.spaces.Box(-1, 1, (3,))  # the state is computed from it: there is nothing to compare
    check_init_state(env, np.ones(3))
    check_init_state(PointRobotEnv(), np.ones(2))
    slots = make_slots(Deaf, 1)
    with pytest.raises(SlotError, match="ignores reset"):
        slots.reset([0], [RolloutPlan(seed=(0, 0, 0), init_state=np.ones(2))])
