"""The laboratory environments: tasks, weights, ids (specs/sampling.md 17.3-17.7)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metaroll.envs.sims.catalog import (
    BallOnBeamEnv,
    CatapultEnv,
    Gaussian2DEnv,
    QBallBalancerEnv,
    QCartPoleStabEnv,
    QCartPoleSwingUpEnv,
    QQubeStabEnv,
    QQubeSwingUpEnv,
)
from metaroll.envs.sims.sim_env import SimEnv


def first_reward(env: SimEnv, state: tuple[float, ...], action: tuple[float, ...]) -> float:
    env.reset(seed=0, options={"init_state": np.array(state)})
    return env.step(np.array(action))[1]


def test_rewards_worked_by_hand():
    """specs/sampling.md 17.4, 17.5: angles count the short way, velocities as they are (21, 25)."""
    up = math.pi
    assert first_reward(QQubeSwingUpEnv(), (0.1, up + 0.2 + 4 * up - 2 * up, 1.0, 2.0), (1.0,)) == pytest.approx(
        math.exp(-(0.01 + 0.04 + 0.02 + 0.005 * 4 + 4e-3))
    )
    assert first_reward(QQubeStabEnv(), (0.1, up, 0.1, 0.0), (1.0,)) == pytest.approx(math.exp(-(0.03 + 0.02 + 0.05)))
    assert first_reward(QCartPoleSwingUpEnv(), (0.1, -up + 0.1, 0.2, 10.0), (2.0,)) == pytest.approx(
        -(0.3 * 0.01 + 0.5 * 0.01 + 0.005 * 0.04 + 0.001 * 100 + 1e-3 * 4)
    )
    assert first_reward(QCartPoleStabEnv(), (0.1, up + 0.1, 0.0, 0.0), (0.0,)) == pytest.approx(-(0.05 + 0.1))


def test_scaled_rewards_are_smallest_at_the_bounds():
    """specs/sampling.md 17.3, 17.6: 1e-4 where errors and actions are largest, 1 where they are none."""
    for env in (BallOnBeamEnv(), QBallBalancerEnv(), BallOnBeamEnv(domain_param={"beam_length": 3.0})):
        high, action = env.state_space.high, env.act_space.high
        assert first_reward(env, tuple(high), tuple(action)) == pytest.approx(1e-4)
        assert first_reward(env, (0.0,) * len(high), (0.0,) * len(action)) == 1.0


def test_failures_cost_once():
    """specs/sampling.md 17.4: -1e4 (swing-up); -remaining * |r(s, 0)| (stabilize)."""
    env = QCartPoleSwingUpEnv()
    env.reset(seed=0, options={"init_state": np.array([0.356, 0.0, 0.8, 0.0])})
    _, reward, terminated, truncated, _ = env.step(np.zeros(1))
    assert terminated and not truncated
    assert reward == pytest.approx(-1e4, rel=1e-3)
    env = QCartPoleStabEnv(max_steps=100)
    env.reset(seed=0, options={"init_state": np.array([0.0, math.pi + 0.26, 0.0, 5.0])})
    _, reward, terminated, _, _ = env.step(np.zeros(1))
    assert terminated and env.state is not None
    x, theta, x_dot, theta_dot = env.state
    last = 5 * x**2 + 10 * (theta - math.pi) ** 2 + 0.01 * x_dot**2 + 0.01 * theta_dot**2
    assert reward == pytest.approx(-(10 * 0.26**2 + 0.01 * 25) - 99 * last)


def test_the_catapult_is_rewarded_for_where_it_threw():
    """specs/sampling.md 17.7: minus the height of the new state; Mars (0) and Venus (1) as planets."""
    env = CatapultEnv()
    env.reset(seed=0)
    height, reward, terminated, _, _ = env.step(np.array([3.0]))
    assert terminated
    assert reward == -height[0] == pytest.approx(-5.824960, rel=1e-6)
    env = CatapultEnv(planets=True, domain_param={"planet": 1})
    env.reset(seed=0)
    assert env.step(np.array([1.5]))[1] == 0.0
    env.domain_param = {"planet": 0}
    env.reset(seed=0)
    assert env.step(np.array([1.5]))[1] == pytest.approx(-1e3 / (2 * 70 * 3.71))
    with pytest.raises(ValueError, match="'planet' of the catapult must lie in"):
        env.domain_param = {"planet": 2}


def test_draws_of_the_gaussian_stay_and_follow_the_seed():
    """specs/sampling.md 17.7."""
    env = Gaussian2DEnv()
    first, _ = env.reset(seed=3)
    following, reward, terminated, _, _ = env.step(np.zeros(1))
    np.testing.assert_array_equal(first, following)
    assert (reward, terminated) == (0.0, True)
    np.testing.assert_array_equal(env.reset(seed=3)[0], first)
    assert (env.reset(seed=4)[0] != first).all()


def test_parameters_out_of_range_are_named():
    with pytest.raises(ValueError, match="'ball_mass' of the ball on beam must be positive, got 0"):
        BallOnBeamEnv(domain_param={"ball_mass": 0.0})
    with pytest.raises(ValueError, match=r"'gear_efficiency' of the cart-pole must lie in \(0, 1\], got 1.5"):
        QCartPoleSwingUpEnv(domain_param={"gear_efficiency": 1.5})
    with pytest.raises(ValueError, match="'damping_rot_pole' of the Qube must"):
        QQubeSwingUpEnv(domain_param={"damping_rot_pole": -0.1})
    assert QQubeSwingUpEnv(domain_param={"damping_rot_pole": 0.0}).domain_param["damping_rot_pole"] == 0.0
