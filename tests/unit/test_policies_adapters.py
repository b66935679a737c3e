"""Foreign and scripted policies behind the Policy contract."""

import random
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch

from metaroll.errors import ShapeError
from metaroll.policies.adapters import INFO_ROWS, ScriptedPolicy, as_policy
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.policies.networks import MLP
from metaroll.seeding import torch_generator
from metaroll.types import EnvSpec, Policy

BOX = gymnasium.spaces.Box
SPEC = EnvSpec(BOX(-1, 1, (4,)), BOX(-1, 1, (2,)))
OBS = np.random.default_rng(0).standard_normal((5, 4))
UNIFORM = np.random.default_rng(1).random((5, 2), dtype=np.float32)


class GarageLike:
    def get_action(self, observation: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        mean = observation[:2]
        noise = np.random.standard_normal(2) + torch.randn(2).numpy() + random.random()
        return mean + noise, {"mean": mean, "log_std": np.zeros(2), "name": "garage"}


class Counter:
    """Remembers how often it was asked."""

    def __init__(self) -> None:
        self.count = 99

    def reset(self) -> None:
        self.count = 0

    def get_action(self, observation: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        self.count += 1
        return np.full(2, self.count), {}


def stacked(info: dict[str, Any], name: str) -> np.ndarray:
    return np.stack([row[name] for row in info[INFO_ROWS]])


def test_own_policies_stay_as_they_are():
    policy = GaussianMLPPolicy(SPEC, generator=torch_generator(0))
    assert as_policy(policy, SPEC) is policy
    foreign = as_policy(GarageLike(), SPEC)
    assert isinstance(foreign, Policy) and as_policy(foreign, SPEC) is foreign
    assert foreign.info.slow and foreign.noise_kind == "uniform"


class Duck:
    """Has the members of a policy, and does not say that it is one."""

    def initial_state(self, contexts, generators, domain_params=None):
        return {}

    def act(self, obs, state, noise, deterministic=False, parameters=None):
        return obs[:, :2], state, {}


def test_an_object_with_the_members_of_a_policy_is_told_to_be_one():
    with pytest.raises(TypeError, match=r"derive Duck from that class"):
        as_policy(Duck(), SPEC)


def test_foreign_noise_depends_on_the_row_alone():
    policy = as_policy(GarageLike(), SPEC)
    action, _, info = policy.act(OBS, {}, UNIFORM)
    order = np.array([3, 1, 4])
    part, _, _ = policy.act(OBS[order], {}, UNIFORM[order])
    np.testing.assert_array_equal(part, action[order])
    assert len(np.unique(action - stacked(info, "mean"))) == action.size
    assert set(info) == {INFO_ROWS} and set(info[INFO_ROWS][4]) >= {"mean", "log_std"}


def test_foreign_deterministic_acting_takes_the_mean():
    """specs/meta.md Q-27"""
    action, _, info = as_policy(GarageLike(), SPEC).act(OBS, {}, UNIFORM, True)
    np.testing.assert_allclose(action, stacked(info, "mean"), rtol=1e-6)
    mixed, _, info = as_policy(GarageLike(), SPEC).act(OBS, {}, UNIFORM, np.arange(5) < 2)
    np.testing.assert_allclose(mixed[:2], stacked(info, "mean")[:2], rtol=1e-6)
    assert not np.isclose(mixed[2:], stacked(info, "mean")[2:]).any()


def test_a_deterministic_argument_is_passed_on():
    policy = as_policy(lambda obs, deterministic: np.full(2, float(deterministic)), SPEC)
    action, _, _ = policy.act(OBS[:2], {}, UNIFORM[:2], np.array([True, False]))
    np.testing.assert_array_equal(action, [[1, 1], [0, 0]])


def test_policies_with_reset_remember_per_rollout():
    original = Counter()
    policy = as_policy(original, SPEC)
    state = policy.initial_state([None, None], [np.random.default_rng(k) for k in range(2)])
    policy.act(OBS[:1], {"agent": state["agent"][:1]}, UNIFORM[:1])
    action, _, _ = policy.act(OBS[:2], state, UNIFORM[:2])
    np.testing.assert_array_equal(action, [[2, 2], [1, 1]])
    assert original.count == 99


def test_torch_modules_take_flat_parameters_without_touching_the_module():
    module = MLP(4, 2, (8,), generator=torch_generator(0))
    policy = as_policy(module, SPEC)
    expected = module(torch.as_tensor(OBS, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(policy.act(OBS, {}, UNIFORM)[0], expected, atol=1e-6)
    flat = policy.acting_parameters()
    zeros, _, _ = policy.act(OBS, {}, UNIFORM, False, np.zeros_like(flat))
    np.testing.assert_array_equal(zeros, np.zeros((5, 2)))
    stack = np.stack([np.zeros_like(flat), flat, np.zeros_like(flat), flat, flat])
    mixed, _, _ = policy.act(OBS, {}, UNIFORM, False, stack)
    np.testing.assert_allclose(mixed, np.where(stack.any(axis=1)[:, None], expected, 0.0), atol=1e-6)
    np.testing.assert_array_equal(policy.acting_parameters(), flat)
    np.testing.assert_array_equal(cloudpickle.loads(cloudpickle.dumps(policy)).act(OBS, {}, UNIFORM)[0].shape, (5, 2))
    with pytest.raises(ValueError, match="only torch modules"):
        as_policy(GarageLike(), SPEC).act(OBS, {}, UNIFORM, False, flat)


def test_torch_distributions_are_sampled_or_their_mean_taken():
    policy = as_policy(lambda obs: torch.distributions.Normal(torch.zeros(2), torch.ones(2)), SPEC)
    sampled, _, _ = policy.act(OBS, {}, UNIFORM)
    again, _, _ = policy.act(OBS, {}, UNIFORM)
    np.testing.assert_array_equal(sampled, again)
    assert sampled.all()
    assert not policy.act(OBS, {}, UNIFORM, True)[0].any()


def test_discrete_observations_are_unflattened_and_actions_become_indices():
    spec = EnvSpec(gymnasium.spaces.Discrete(4), gymnasium.spaces.Discrete(3, start=5))
    seen = []

    def choose(obs: Any) -> int:
        seen.append(obs)
        return 5 + int(obs) % 3

    action, _, _ = as_policy(choose, spec).act(np.eye(4)[[3, 1]], {}, UNIFORM[:2])
    np.testing.assert_array_equal(action, [0, 1])
    assert seen == [3, 1] and action.dtype == np.int64


def test_what_cannot_act_is_named():
    with pytest.raises(TypeError, match="got the class Counter"):
        as_policy(Counter, SPEC)
    with pytest.raises(TypeError, match="got int"):
        as_policy(3, SPEC)
    with pytest.raises(ShapeError, match="one action of Box"):
        as_policy(lambda obs: np.zeros(3), SPEC).act(OBS, {}, UNIFORM)


def test_scripted_policies_see_the_context_of_each_row():
    """An oracle is told the goal and goes there."""
    policy = ScriptedPolicy(lambda obs, contexts: contexts["goal"] - obs[:, :2], SPEC)
    assert isinstance(policy, Policy) and as_policy(policy, SPEC) is policy
    goals = np.arange(10.0).reshape(5, 2)
    state = policy.initial_state([{"goal": goal} for goal in goals], [np.random.default_rng(0)] * 5)
    action, next_state, info = policy.act(OBS, state, np.zeros((5, 0)), True)
    np.testing.assert_array_equal(action, goals - OBS[:, :2])
    assert next_state is state and info == {} and policy.acting_parameters().shape == (0,)


def test_scripted_policies_without_context_and_with_mistakes():
    floor = ScriptedPolicy(lambda obs, contexts: -obs[:, :2], SPEC)
    assert floor.initial_state([None, None], [np.random.default_rng(0)] * 2) == {}
    np.testing.assert_array_equal(floor.act(OBS, {}, np.zeros((5, 0)))[0], -OBS[:, :2])
    with pytest.raises(ShapeError, match=r"one row per slot \(5\) with 2 entries"):
        ScriptedPolicy(lambda obs, contexts: obs, SPEC).act(OBS, {}, np.zeros((5, 0)))
    with pytest.raises(ValueError, match="same context names"):
        floor.initial_state([{"goal": np.zeros(2)}, None], [np.random.default_rng(0)] * 2)
