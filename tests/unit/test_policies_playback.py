"""Policies that do not look at observations (specs/sampling.md 16.5)."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from metaroll.envs.sims.catalog import PendulumEnv, QBallBalancerEnv
from metaroll.errors import DataError, ShapeError, UnknownNameError
from metaroll.policies.playback import DummyPolicy, IdlePolicy, PlaybackPolicy, TimePolicy
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.single.rollout import rollout
from metaroll.types import EnvSpec, Policy, RolloutPlan

pytestmark = pytest.mark.usefixtures("lent_pools")

RECORDINGS = [np.array([[1.0], [2.0], [3.0]]), np.array([[-1.0], [-2.0]])]


def actions_of(policy: PlaybackPolicy, max_steps: int = 4) -> list[float]:
    return rollout(PendulumEnv(), policy, max_steps=max_steps, seed=0).actions[:, 0].tolist()


def test_rollouts_play_the_recordings_in_turns():
    """specs/sampling.md 16.5: cyclic, from the first on, zeros beyond the end."""
    policy = PlaybackPolicy(PendulumEnv().env_spec, RECORDINGS)
    assert isinstance(policy, Policy)
    assert policy.curr_rec == -1
    assert actions_of(policy) == [1, 2, 3, 0]
    assert (policy.curr_rec, policy.curr_step) == (0, 3)
    assert actions_of(policy) == [-1, -2, 0, 0]
    assert actions_of(policy) == [1, 2, 3, 0]
    policy.reset()
    assert (policy.curr_rec, policy.curr_step) == (1, 0)


def test_without_reset_it_goes_on_where_it_was():
    policy = PlaybackPolicy(PendulumEnv().env_spec, RECORDINGS, no_reset=True)
    assert actions_of(policy, 2) == [1, 2]
    assert actions_of(policy, 2) == [3, 0]
    policy.curr_rec, policy.curr_step = 1, 1
    assert actions_of(policy, 2) == [-2, 0]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_contexts_choose_what_is_played(num_workers: int):
    """In the engine a rollout's actions depend on its plan alone."""
    wanted = [(0, 1), (1, 0), (0, 0), (1, 2)]
    plans = [
        RolloutPlan(i, seed=(0, 0, i), max_steps=3, context={"recording": np.array(k), "start": np.array(t)})
        for i, (k, t) in enumerate(wanted)
    ]
    policy = PlaybackPolicy(PendulumEnv().env_spec, RECORDINGS)
    with RolloutEngine(PendulumEnv(), policy, num_workers=num_workers) as engine:
        found = [r.actions[:, 0].tolist() for r in engine.run(plans)]
    assert found == [[2, 3, 0], [-1, -2, 0], [1, 2, 3], [0, 0, 0]]
    assert policy.curr_rec == -1


def test_rollouts_at_once_need_contexts():
    policy = PlaybackPolicy(PendulumEnv().env_spec, RECORDINGS)
    with pytest.raises(ValueError, match=r"RolloutPlan\(context="):
        policy.initial_state([None, None], [np.random.default_rng()] * 2)
    single = PlaybackPolicy(PendulumEnv().env_spec, torch.ones(1, 2, 1))
    assert single.initial_state([None] * 3, [np.random.default_rng()] * 3)["step"].tolist() == [0, 0, 0]


def test_recordings_of_choices():
    spec = EnvSpec(Box(-1.0, 1.0, (2,)), Discrete(3))
    policy = PlaybackPolicy(spec, [[2, 1]], no_reset=True)
    state = policy.initial_state([None], [np.random.default_rng()])
    played = []
    for _ in range(3):
        action, state, _ = policy.act(np.zeros((1, 2)), state, np.zeros((1, 0)))
        played.append(action.tolist())
    assert played == [[2], [1], [0]]


def test_mistakes():
    spec = PendulumEnv().env_spec
    for recordings, error, about in (
        ([], ValueError, "act_recordings"),
        ([RECORDINGS[0], np.zeros(3)], ShapeError, r"act_recordings\[1\] .* \(T, 1\)"),
        ([np.full((2, 1), np.nan)], ValueError, r"act_recordings\[0\]"),
    ):
        with pytest.raises(error, match=about):
            PlaybackPolicy(spec, recordings)
    policy = PlaybackPolicy(spec, RECORDINGS)
    for name, value, error in (("curr_rec", 2, ValueError), ("curr_step", 0.5, TypeError)):
        with pytest.raises(error, match=name):
            setattr(policy, name, value)
    for context, error, about in (
        ({"recording": np.array(1), "start": np.array(3)}, ValueError, "recording 1.* at most 2, got 3"),
        ({"recordings": np.array(1)}, UnknownNameError, "did you mean 'recording'"),
        ({"start": np.array(1)}, DataError, "'recording'"),
    ):
        with pytest.raises(error, match=about):
            policy.initial_state([context], [np.random.default_rng()])
    assert policy.curr_rec == -1


def test_idle_and_dummy_policies():
    """specs/sampling.md 16.5: zeros; uniform within the bounds."""
    env = QBallBalancerEnv(max_steps=200)
    assert not rollout(env, IdlePolicy(env.env_spec), seed=0).actions.any()
    actions = rollout(env, DummyPolicy(env.env_spec), seed=0, stop_on_done=False).actions
    assert actions.shape == (200, 2)
    assert -3.0 <= actions.min() < -2.9 and 2.9 < actions.max() <= 3.0
    for evaluation in (False, True):  # which would be one action all along, did it get no noise
        again = rollout(env, DummyPolicy(env.env_spec), seed=0, stop_on_done=False, eval=evaluation).actions
        np.testing.assert_array_equal(actions, again)
    with gymnasium.make("CartPole-v1") as discrete:
        choices = rollout(discrete, DummyPolicy(discrete), seed=0, no_close=True).actions  # type: ignore[arg-type]
        assert set(choices.tolist()) == {0, 1}
        assert rollout(discrete, IdlePolicy(discrete), seed=0).actions.tolist().count(1) == 0  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must have bounded actions"):
        DummyPolicy(EnvSpec(Box(-1.0, 1.0, (2,)), Box(-np.inf, np.inf, (2,))))


def test_time_policy_acts_by_the_time():
    """specs/sampling.md 16.5: t = 0, dt, 2 dt, ..."""
    env = PendulumEnv()
    policy = TimePolicy(env.env_spec, lambda t: [np.sin(t)], env.dt)
    np.testing.assert_allclose(rollout(env, policy, max_steps=5, seed=0).actions[:, 0], np.sin(0.02 * np.arange(5)))
    with pytest.raises(ShapeError, match=r"must return actions of shape \(1,\), got \(2,\) at 0.0 s"):
        policy = TimePolicy(env.env_spec, lambda t: [t, t], env.dt)
        policy.act(np.zeros((1, 3)), policy.initial_state([None], [np.random.default_rng()]), np.zeros((1, 0)))
    with pytest.raises(ValueError, match="dt must"):
        TimePolicy(env.env_spec, lambda t: [t], 0.0)
