"""Noise with a memory (Lillicrap et al. 2016), and actions at random at first."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from metaroll import RolloutEngine, RolloutPlan
from metaroll.policies import CategoricalMLPPolicy, GaussianMLPPolicy, OrnsteinUhlenbeckPolicy
from metaroll.policies.exploration import EpsilonGreedyPolicy, UniformFirstPolicy
from metaroll.policies.greedy import GreedyQPolicy
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec

SPEC = EnvSpec(gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Box(-5.0, 5.0, (2,)))


def policy(**options: Any) -> OrnsteinUhlenbeckPolicy:
    return OrnsteinUhlenbeckPolicy(GaussianMLPPolicy(SPEC, (8,), generator=torch_generator(0)), **options)


def test_the_process_is_the_formula() -> None:
    noisy, draw = policy(sigma=0.4, theta=0.5, mean=0.2, dt=0.1), np.random.default_rng(0)
    state = noisy.initial_state([None] * 4, [draw] * 4)
    obs, x = np.zeros((4, 3), np.float32), np.zeros((4, 2))
    mean, _, _ = noisy.policy.act(obs, {}, np.zeros((4, 2)), True)
    for _ in range(20):
        noise = draw.standard_normal((4, 2))
        action, state, _ = noisy.act(obs, state, noise, np.array([False, False, False, True]))
        x = x + 0.5 * 0.1 * (0.2 - x) + 0.4 * np.sqrt(0.1) * noise
        np.testing.assert_allclose(action[:3], np.clip(mean + x, -5, 5)[:3], atol=1e-5)
        np.testing.assert_array_equal(action[3], mean[3])


def test_its_moments_are_those_of_the_process() -> None:
    """Stationary variance sigma^2 / (2 theta - theta^2 dt) of the discrete process, and correlation 1 - theta dt."""
    noisy, draw, num = policy(sigma=0.3, theta=2.0, dt=0.1), np.random.default_rng(1), 4000
    state = noisy.initial_state([None] * num, [draw] * num)
    obs, before = np.zeros((num, 3), np.float32), np.zeros((num, 2))
    for _ in range(60):
        before = state["ornstein_uhlenbeck"]
        _, state, _ = noisy.act(obs, state, draw.standard_normal((num, 2)))
    now = state["ornstein_uhlenbeck"]
    assert np.var(now) == pytest.approx(0.09 / (4.0 - 0.4), rel=0.05)
    assert np.corrcoef(before.ravel(), now.ravel())[0, 1] == pytest.approx(0.8, abs=0.02)


def test_it_acts_in_rollouts_within_the_bounds() -> None:
    spec = EnvSpec.from_env(gymnasium.make("Pendulum-v1"))
    noisy = OrnsteinUhlenbeckPolicy(GaussianMLPPolicy(spec, (8,), generator=torch_generator(0)), sigma=30.0)
    assert noisy.get_param_values().size == noisy.policy.get_param_values().size
    with RolloutEngine("Pendulum-v1", noisy) as engine:
        rollouts = engine.run([RolloutPlan(index=i, seed=(0, 0, i), deterministic=i == 0) for i in range(3)])
    assert all(np.abs(rollout.actions).max() <= 2.0 for rollout in rollouts)
    assert np.abs(np.diff(rollouts[1].actions, axis=0)).max() > 10 * np.abs(np.diff(rollouts[0].actions, axis=0)).max()


def test_bad_input() -> None:
    with pytest.raises(TypeError, match="policy must be an ActingPolicy"):
        OrnsteinUhlenbeckPolicy(lambda obs: obs)  # type: ignore[arg-type]
    choices = EnvSpec(SPEC.observation_space, gymnasium.spaces.Discrete(3))
    with pytest.raises(TypeError, match="needs a Box action space"):
        OrnsteinUhlenbeckPolicy(CategoricalMLPPolicy(choices, generator=torch_generator(0)))
    with pytest.raises(ValueError, match="sigma must"):
        policy(sigma=-1.0)
    with pytest.raises(ValueError, match="dt must"):
        policy(dt=0.0)


CHOICES = EnvSpec(gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(4))


def test_choices_are_uniform_at_first() -> None:
    policy = CategoricalMLPPolicy(CHOICES, (8,), generator=torch_generator(0))
    weights = policy.get_param_values()
    weights[-4:] = 0.0, 9.0, 0.0, 0.0
    policy.set_param_values(weights)  # it nearly always takes the second
    first = UniformFirstPolicy(policy)
    obs, noise = np.zeros((4000, 3), np.float32), np.random.default_rng(0).random((4000, 1))
    own, _, infos = policy.act(obs, {}, noise)
    np.testing.assert_array_equal(first.act(obs, {}, noise)[0], own)
    first.set_uniform(True)
    acting = first.acting_parameters()
    chosen, _, told = first.act(obs, {}, noise, False, acting)
    np.testing.assert_allclose(np.bincount(chosen) / 4000, 0.25, atol=0.03)
    np.testing.assert_array_equal(chosen, (noise[:, 0] * 4).astype(np.int64))
    assert told.keys() == infos.keys() and (own == 1).mean() > 0.99
    assert (first.act(obs, {}, noise, True)[0] == 1).all()
    some = first.act(obs, {}, noise, np.arange(4000) % 2 == 0)[0]
    assert (some[::2] == 1).all() and np.array_equal(some[1::2], chosen[1::2])
    # Parameters of each row: some rows are uniform, some are not.
    stacked = np.stack([acting] * 8)
    stacked[::2, 0] = 0.0
    mixed = first.act(obs[:8], {}, noise[:8], False, stacked)[0]
    assert np.array_equal(mixed[::2], own[:8:2]) and np.array_equal(mixed[1::2], chosen[1:8:2])


def test_choices_at_random_need_a_number() -> None:
    with pytest.raises(TypeError, match="policy must draw a uniform number for its choice, which GreedyQPolicy does"):
        UniformFirstPolicy(GreedyQPolicy(CHOICES, (8,)))
    UniformFirstPolicy(EpsilonGreedyPolicy(GreedyQPolicy(CHOICES, (8,))))
    several = EnvSpec(CHOICES.observation_space, gymnasium.spaces.MultiDiscrete([2, 3]))
    with pytest.raises(TypeError, match="UniformFirstPolicy needs a Box action space"):
        UniformFirstPolicy(CategoricalMLPPolicy(several))
