"""Initial states from observations: of models, environments and wrappers (issue 15, robot logs)."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv

from metaroll.envs.base.env_state import determined_entries, state_from_observation, time_step_of
from metaroll.envs.sims.cart_pole import CartPoleModel
from metaroll.envs.sims.catalog import SIMS
from metaroll.envs.sims.model import SimModel
from metaroll.errors import ShapeError
from metaroll.policies.playback import PlaybackPolicy
from metaroll.rollouts.single.rollout import rollout
from metaroll.sims import PendulumEnv, QCartPoleStabEnv, QQubeStabEnv
from metaroll.types import EnvSpec
from metaroll.wrappers import (
    ActDelayWrapper,
    GaussianObsNoiseWrapper,
    InitStateWrapper,
    ObsNormWrapper,
    ObsPartialWrapper,
)


def states_of(env, count=200):
    """States within the bounds of ``env``, where these are finite ``(count, S)``."""
    low, high = (np.clip(side, -50.0, 50.0) for side in (env.state_space.low, env.state_space.high))
    return np.random.default_rng(0).uniform(low, high, (count, len(low)))


@pytest.mark.parametrize("entry", SIMS, ids=lambda entry: entry.short_name)
def test_every_simulator_knows_the_state_of_its_observation(entry):
    env = entry.env_type()
    states = states_of(env)
    found = env.state_from_observation(np.array([env.observe(state) for state in states]))
    angles = [i for i, label in enumerate(env.model.state_labels) if label not in env.model.observation_labels]
    turns = (found - states) / (2.0 * math.pi)
    np.testing.assert_allclose(turns[:, angles], np.round(turns[:, angles]), atol=1e-9)
    others = np.setdiff1d(np.arange(states.shape[1]), angles)
    np.testing.assert_array_equal(found[:, others], states[:, others])
    assert ((found >= env.state_space.low) & (found <= env.state_space.high)).all()  # a rollout can start there
    start = found[0]
    observation, _ = env.reset(seed=0, options={"init_state": start})
    np.testing.assert_allclose(env.state_from_observation(observation), start, atol=1e-12)


@pytest.mark.parametrize("env", [QCartPoleStabEnv(), QQubeStabEnv()])
def test_upright_angles_do_not_jump_at_half_a_turn(env):
    around = np.tile([0.0, math.pi, 0.0, 0.0], (5, 1))
    around[:, 1] += np.linspace(-0.2, 0.2, 5)
    found = env.state_from_observation(np.array([env.observe(state) for state in around]))
    np.testing.assert_allclose(found, around, atol=1e-12)


def test_tensors_keep_their_gradients():
    state = torch.tensor([[0.1, 3.0, 0.2, 0.3]], dtype=torch.float64, requires_grad=True)
    import array_api_compat.torch as xp

    model = CartPoleModel(swing_up=False)
    found = torch.stack(model.state_from_observation(model.observe(state.unbind(1), xp), xp), dim=1)
    found.sum().backward()
    np.testing.assert_allclose(state.grad.numpy(), 1.0, atol=1e-12)


def test_wrappers_are_undone_as_far_as_that_can_be():
    env = PendulumEnv()
    state = np.array([2.0, -3.0])
    seen = env.observe(state)
    scaled = ObsNormWrapper(env, low={"theta_dot": -20.0}, high={"theta_dot": 10.0})
    shown = scaled.observation(seen)
    for wrapped in (scaled, ActDelayWrapper(scaled, 2), gymnasium.wrappers.TimeLimit(scaled, 5)):
        np.testing.assert_allclose(state_from_observation(wrapped, shown), state, atol=1e-12)
    noisy = GaussianObsNoiseWrapper(env, 0.01, [0.0, 0.0, 0.5])
    np.testing.assert_allclose(noisy.state_from_observation(seen + np.array([0.0, 0.0, 0.5])), state, atol=1e-12)
    many = np.stack([seen] * 6).reshape(2, 3, 3)
    assert state_from_observation(env, many).shape == (2, 3, 2)
    hidden = ObsPartialWrapper(env, idcs=["theta_dot"])
    with pytest.raises(NotImplementedError, match=r"ObsPartialWrapper .* cannot be undone; give a function"):
        state_from_observation(hidden, seen[:2])
    by_hand = state_from_observation(hidden, seen[:2], lambda obs: [math.atan2(obs[0], obs[1]), 0.0])
    np.testing.assert_allclose(by_hand, [2.0, 0.0])


def test_environments_that_cannot_say_why():
    with pytest.raises(NotImplementedError, match=r"PusherEnv .*no method state_from.*InitStateWrapper"):
        state_from_observation(gymnasium.make("Pusher-v5"), np.zeros(23))

    class Shifted(CartPoleEnv):
        """Shows something else, so that nobody but its author can say what."""

        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed, options=options)
            return observation + 1, info

    with pytest.raises(NotImplementedError, match="Shifted"):
        state_from_observation(Shifted(), np.zeros(4))

    class OfOne(CartPoleEnv):
        def state_from_observation(self, observations):
            return np.asarray(observations)[0]

    with pytest.raises(
        ShapeError,
        match=r"OfOne.state_from_observation must return a state for each observation, shape \(3, S\) .*got \(4,\)",
    ):
        state_from_observation(OfOne(), np.zeros((3, 4)))
    assert time_step_of(CartPoleEnv()) == 0.02

    class Blind(CartPoleModel):
        state_from_observation = SimModel.state_from_observation

    with pytest.raises(NotImplementedError, match=r"observation of the cart-pole .* does not determine its state"):
        Blind().state_from_observation((0.0,) * 5, np)


@pytest.mark.parametrize(
    ("observation", "error", "message"),
    [
        ([0.0, 1.0], ShapeError, r"must have shape \(..., 3\)"),
        ([np.nan, 1.0, 0.0], ValueError, "'sin_theta' is nan"),
        ([90.0, 0.0, 0.0], ValueError, r"no state of the pendulum shows sin_theta = 90: .* shows 1; check units"),
        ([0.0, 0.1, 0.0], ValueError, "no state of the pendulum shows cos_theta"),
    ],
)
def test_observations_of_no_state_are_refused(observation, error, message):
    with pytest.raises(error, match=message):
        PendulumEnv().state_from_observation(observation)
    with pytest.raises(ShapeError, match="states of one shape"):
        state_from_observation(PendulumEnv(), np.ones((2, 3)), lambda obs: 1.0)
    with pytest.raises(ValueError, match="must return finite states"):
        state_from_observation(PendulumEnv(), np.ones(3), lambda obs: [np.nan, 1.0])


CLASSIC = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")
MUJOCO = [
    *("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5", "HumanoidStandup-v5", "Swimmer-v5"),
    *("InvertedPendulum-v5", "InvertedDoublePendulum-v5", "Reacher-v5", "Hopper-v4", "Ant-v4", "Reacher-v4"),
]


@pytest.mark.filterwarnings("ignore:.*The environment .* is out of date")
@pytest.mark.parametrize("name", [*CLASSIC, *MUJOCO])
def test_gymnasiums_environments_go_on_from_what_they_have_shown(name):
    """Observation, state, reset in that state: the same observations follow, under the usual wrappers."""
    env = gymnasium.make(name)
    env.reset(seed=3)
    env.action_space.seed(3)
    sampled = [env.action_space.sample() for _ in range(11)]
    weak = [action if isinstance(action, np.integer) else 0.3 * action for action in sampled]  # speeds stay below 10
    for action in weak[:6]:
        observation, *_ = env.step(action)
    actions = weak[6:]
    following = np.array([env.step(action)[0] for action in actions])
    state = state_from_observation(env, observation)
    assert np.isfinite(state).all()
    again = gymnasium.make(name)
    policy = PlaybackPolicy(EnvSpec.from_env(again), [np.array(actions)])
    replayed = rollout(again, policy, reset_kwargs={"init_state": state}, seed=9, max_steps=5, stop_on_done=False)
    told = determined_entries(env)
    told = slice(None) if told is None else told
    np.testing.assert_allclose(replayed.observations[0][told], observation[told], atol=2e-6)
    scale = np.abs(following).max(axis=0) + 1
    np.testing.assert_allclose((replayed.observations[1:] / scale)[:, told], (following / scale)[:, told], atol=2e-4)
    assert not vars(again.unwrapped).keys() & {"reset", "reset_model"}  # as it was before


def test_speeds_that_are_shown_clipped_do_not_tell_the_state():
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("Hopper-v5"))
    shown = np.zeros((2, 3, 11))
    shown[1, 2, 7] = -10.0
    states = state_from_observation(env, shown)
    assert states.shape == (2, 3, 12) and np.argwhere(np.isnan(states)).tolist() == [[1, 2, 8]]
    with_place = gymnasium.make("Hopper-v5", exclude_current_positions_from_observation=False)
    assert state_from_observation(with_place, np.arange(12.0) / 12).tolist() == (np.arange(12.0) / 12).tolist()


def test_only_what_the_state_tells_counts():
    told = determined_entries(gymnasium.make("Ant-v5"))
    assert told is not None and told.sum() == 27 and told[:27].all()
    assert determined_entries(gymnasium.make("Hopper-v5")) is None and determined_entries(PendulumEnv()) is None


def test_a_noisy_circle_is_projected():
    angle = state_from_observation(gymnasium.make("Pendulum-v1"), [1.3 * math.cos(2.0), 1.3 * math.sin(2.0), 5.0])
    np.testing.assert_allclose(angle, [2.0, 5.0], atol=1e-12)


def test_wrappers_of_ours_choose_the_start_of_gymnasiums_environments():
    env = InitStateWrapper(gymnasium.make("Pendulum-v1"), [0.5, 0.0], [1], bounds={"init_1": (-1.0, 1.0)})
    env.domain_param = {"init_1": 0.25}
    made = rollout(env, lambda obs: [0.0], seed=0, max_steps=1)
    np.testing.assert_allclose(made.observations[0], [math.cos(0.5), math.sin(0.5), 0.25], atol=1e-6)
