"""A policy between normalized observations and its action space."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from metaroll.envs.sims.catalog import OneMassOscillatorEnv
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.policies.gru import GRUGaussianPolicy
from metaroll.policies.normalized import NormalizedPolicy, widened_spec
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.single.replay import assert_worker_invariant
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec, RolloutPlan

pytestmark = pytest.mark.usefixtures("lent_pools")

Box = gymnasium.spaces.Box
SPEC = EnvSpec(Box(-50, 50, (3,)), Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32)))
MEAN, STD = np.array([10.0, 0.0, -3.0]), np.array([5.0, 0.0, 0.1])


def make(kind=GaussianMLPPolicy, **options):
    inner = kind(SPEC, generator=torch_generator(0))
    policy = NormalizedPolicy(inner, **options)
    if policy.normalize_observations:
        policy.set_observation_moments(MEAN, STD)
    return policy, inner


def test_it_acts_as_the_inner_policy_on_normalized_rows():
    policy, inner = make()
    obs = np.array([[15.0, 2.0, -3.1], [10.0, 0.0, 90.0]])
    expected_rows = np.array([[1.0, 2.0, -1.0], [0.0, 0.0, 10.0]], np.float32)  # never varied: centered; far out: 10
    np.testing.assert_allclose(policy.normalized(obs), expected_rows, atol=1e-5)
    noise = np.random.default_rng(0).standard_normal((2, 2)).astype(np.float32)
    action, _, infos = policy.act(obs, {}, noise)
    raw, _, _ = inner.act(policy.normalized(obs), {}, noise)
    assert np.array_equal(infos["raw_action"], raw)
    clipped = np.clip(raw, -1, 1)
    np.testing.assert_allclose(action, np.stack([2 * clipped[:, 0], 5 + 5 * clipped[:, 1]], axis=1), rtol=1e-6)


def test_actions_stay_in_the_space():
    policy, inner = make()
    inner.log_std.data.fill_(3.0)
    noise = np.random.default_rng(0).standard_normal((100, 2)).astype(np.float32)
    action, _, _ = policy.act(np.zeros((100, 3)), {}, noise)
    assert all(SPEC.action_space.contains(row) for row in action)
    assert action.min(axis=0).tolist() == [-2.0, 0.0]
    assert action.max(axis=0).tolist() == [2.0, 10.0]


def test_rounding_leads_no_action_out_of_the_space():
    space = Box(np.array([-1.38, -2.98, -0.1], np.float32), np.array([0.82, 1.9, 0.3], np.float32))
    inner = GaussianMLPPolicy(EnvSpec(Box(-1, 1, (1,)), space), generator=torch_generator(0))
    for sign in (-5, 5):
        action, _, _ = NormalizedPolicy(inner).act(np.zeros((2, 1)), {}, np.full((2, 3), sign, np.float32))
        assert action.tolist() == [(space.low if sign < 0 else space.high).tolist()] * 2


def test_entries_with_one_bound_are_clipped_and_those_without_left_alone():
    most = np.finfo(np.float32).max  # a usual way to write that there is no bound
    space = Box(np.array([0, -np.inf, -most, -4], np.float32), np.array([np.inf, 3, most, 4], np.float32))
    inner = GaussianMLPPolicy(EnvSpec(Box(-1, 1, (1,)), space), generator=torch_generator(0))
    inner.net.layers[-1].weight.data.zero_()
    action, _, infos = NormalizedPolicy(inner).act(np.zeros((2, 1)), {}, np.array([[-5] * 4, [5] * 4], np.float32))
    assert action.tolist() == [[0, -5, -5, -4], [5, 3, 5, 4]]
    assert infos["raw_action"].tolist() == [[-5] * 4, [5] * 4]


@pytest.mark.parametrize("kind", [GaussianMLPPolicy, GRUGaussianPolicy])
def test_the_normalizer_is_among_the_acting_parameters(kind):
    policy, _ = make(kind)
    obs = np.random.default_rng(1).normal(0, 20, (16, 3))
    noise = np.random.default_rng(0).standard_normal((16, 2)).astype(np.float32)
    state = policy.initial_state([None] * 16, [np.random.default_rng(0)] * 16)
    live, flat = policy.act(obs, state, noise)[0], policy.acting_parameters()
    assert np.array_equal(flat[:6], np.concatenate([MEAN, [0.2, 1.0, 10.0]]).astype(np.float32))
    stacked = np.repeat(flat[None], 16, axis=0)
    stacked[3, :3] += 100.0  # another normalizer in one row only
    moved = policy.act(obs, state, noise, parameters=stacked)[0]
    assert np.flatnonzero((np.abs(moved - live) > 1e-4).any(axis=1)).tolist() == [3]


def test_torch_sees_the_same_rows():
    policy, inner = make()
    obs = np.random.default_rng(1).normal(0, 20, (5, 3)).astype(np.float32)
    noise = torch.zeros(5, 2)
    expected = inner(torch.from_numpy(policy.normalized(obs)), noise).mean
    torch.testing.assert_close(policy(torch.from_numpy(obs), noise).mean, expected, atol=1e-5, rtol=1e-4)


def test_without_normalizer_and_bounds_nothing_is_changed():
    policy, inner = make(normalize_observations=False, scale_actions=False)
    obs, noise = np.ones((2, 3)), np.ones((2, 2), np.float32)
    assert np.array_equal(policy.act(obs, {}, noise)[0], inner.act(obs, {}, noise)[0])
    assert policy.acting_parameter_names() == tuple(f"policy.{n}" for n in inner.acting_parameter_names())
    flat = policy.acting_parameters()
    assert np.array_equal(policy.act(obs, {}, noise, parameters=flat)[0], inner.act(obs, {}, noise)[0])


def test_discrete_actions_are_left_alone():
    spec = EnvSpec(Box(-1, 1, (2,)), gymnasium.spaces.Discrete(3))
    policy = NormalizedPolicy(CategoricalMLPPolicy(spec, generator=torch_generator(0)))
    action, _, infos = policy.act(np.zeros((4, 2)), {}, np.full((4, 1), 0.5, np.float32))
    assert action.dtype.kind == "i"
    assert "raw_action" not in infos


def test_the_normalizer_reaches_the_workers():
    spec = EnvSpec.from_env(gymnasium.make("Pendulum-v1"))
    policy = NormalizedPolicy(GaussianMLPPolicy(spec, (8,), generator=torch_generator(0)))
    plans = [RolloutPlan(index=i, seed=(0, 0, i), max_steps=5) for i in range(2)]
    with RolloutEngine("Pendulum-v1", policy) as engine:
        before = engine.run(plans)
        policy.set_observation_moments(np.array([0.5, 0.0, 3.0]), np.array([0.1, 1.0, 2.0]))
        after = engine.run(plans)
    assert not np.array_equal(before[0].actions, after[0].actions)
    assert_worker_invariant("Pendulum-v1", policy, plans)


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match="policy of metaroll"):
        NormalizedPolicy(object())
    with pytest.raises(ValueError, match="clip_observations"):
        make(clip_observations=0.0)


def test_a_gru_gives_the_same_along_sequences_by_both_ways():
    inner = GRUGaussianPolicy(SPEC, 8, generator=torch_generator(0))
    obs, actions = torch.randn(3, 7, 3, generator=torch_generator(1)), torch.zeros(3, 7, 2)
    log_prob, entropy = inner.evaluate_actions(obs, actions)
    torch.testing.assert_close(log_prob, inner.log_prob(obs, actions), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy, torch.full((3, 7), 1.0 + np.log(2 * np.pi)), atol=1e-5, rtol=1e-5)


def test_orthogonal_weights_have_the_gains_that_were_asked_for():
    inner = GaussianMLPPolicy(SPEC, (16, 16), init="orthogonal", generator=torch_generator(0))
    first, second, last = (layer.weight.detach() for layer in inner.net.layers)
    torch.testing.assert_close(first.T @ first, 2.0 * torch.eye(3), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(second @ second.T, 2.0 * torch.eye(16), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(last @ last.T, 1e-4 * torch.eye(2), atol=1e-8, rtol=1e-4)


def test_domain_parameters_reach_a_privileged_policy_inside():
    spec = EnvSpec.from_env(OneMassOscillatorEnv())
    generator = torch_generator(0)
    inner = GaussianMLPPolicy(widened_spec(spec, 1), hidden_sizes=(4,), generator=generator)
    privileged = NormalizedPolicy(inner, domain_params=["mass"], env_spec=spec)
    around = NormalizedPolicy(privileged, normalize_observations=False, scale_actions=False)
    assert around.info.takes_domain_params
    plan = RolloutPlan(seed=(0, 0, 0), max_steps=4)
    found = [RolloutEngine(OneMassOscillatorEnv, policy).run([plan])[0].actions for policy in (privileged, around)]
    np.testing.assert_array_equal(*found)
