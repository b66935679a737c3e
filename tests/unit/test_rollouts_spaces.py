"""Environments with every kind of Gymnasium space: recorded as they are, exact for any number of workers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from space_envs import ENVS, NESTED, Sampler, compound_action, image, nested

import metaroll
from metaroll.data.compare import trees_equal
from metaroll.data.space_batches import flatten_batch, take_rows
from metaroll.envs.lookup.source import make_slots
from metaroll.errors import RolloutError
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.tasks.plan_table import plan_env_seed
from metaroll.types import EnvSpec, RolloutPlan


@pytest.fixture(scope="module")
def pool(shared_pools: Any) -> SamplerPool:
    return shared_pools[2]


def plans(count: int, steps: int = 12) -> list[RolloutPlan]:
    return [RolloutPlan(index=i, seed=(5, 0, i), max_steps=steps) for i in range(count)]


def sampler_of(env: gymnasium.Env) -> Sampler:
    return Sampler(env.action_space, env.observation_space)


@pytest.mark.parametrize("name", ENVS)
def test_slots_of_any_space_conform(name: str) -> None:
    metaroll.testing.check_slots(lambda count: metaroll.make_slots(ENVS[name], count), num_steps=15)


@pytest.mark.parametrize("name", ENVS)
def test_any_space_is_recorded_as_it_is_with_the_same_bits_everywhere(name: str, pool: SamplerPool) -> None:
    env = ENVS[name]()
    rollouts = metaroll.testing.assert_worker_invariant(ENVS[name], sampler_of(env), plans(5), num_workers=[pool])
    for rollout in rollouts:
        for row in range(len(rollout) + 1):
            assert env.observation_space.contains(take_rows(rollout.observations, row))
    alone = metaroll.rollout(ENVS[name], sampler_of(env), max_steps=12, seed=5, sub_sub_seed=3)
    for field in ("observations", "actions", "rewards", "terminated", "env_infos"):
        assert trees_equal(getattr(alone, field), getattr(rollouts[3], field))


def test_observations_are_those_of_the_environment() -> None:
    rollout = metaroll.rollout(nested, sampler_of(nested()), max_steps=6, seed=5)
    env = nested()
    shown = [env.reset(seed=plan_env_seed((5, 0, 0)))[0]]
    shown += [env.step(action)[0] for action in rollout.actions]
    for row, element in enumerate(shown):
        mine = take_rows(rollout.observations, row)
        assert mine["mission"] == element["mission"]
        np.testing.assert_array_equal(mine["image"], element["image"])
        np.testing.assert_array_equal(mine["pair"][1], element["pair"][1])
    assert rollout.observations["image"].dtype == np.uint8
    assert rollout.observations["pair"][1].dtype == np.float64
    assert rollout.rewards.dtype == np.float64
    assert rollout.terminated.dtype == bool
    assert isinstance(rollout[0].observation.image, np.ndarray)


def test_own_policies_see_flat_rows_of_structured_spaces() -> None:
    env = nested()
    policy = metaroll.policies.GaussianMLPPolicy(EnvSpec.from_env(env), generator=torch.Generator().manual_seed(0))
    assert policy.obs_dim == 48 + (3 + 2) + 5 + 2  # the text counts nothing
    rollouts = metaroll.testing.assert_worker_invariant(nested, policy, plans(3), num_workers=[])
    rows = flatten_batch(NESTED, rollouts[0].observations)
    assert rows.shape == (len(rollouts[0]) + 1, 60)
    with torch.no_grad():
        mean, _ = policy.distribution(torch.as_tensor(rows[:1], dtype=torch.float32))
    np.testing.assert_allclose(rollouts[0].policy_infos["mean"][0], mean[0], rtol=1e-5, atol=1e-5)


def test_categorical_policy_acts_in_multi_discrete_spaces() -> None:
    env = ENVS["gears"]()
    policy = metaroll.policies.CategoricalMLPPolicy(EnvSpec.from_env(env), generator=torch.Generator().manual_seed(0))
    rollouts = metaroll.testing.assert_worker_invariant(ENVS["gears"], policy, plans(8), num_workers=[])
    actions = np.concatenate([rollout.actions for rollout in rollouts])
    assert actions.shape[1:] == (2,)
    assert actions.max(axis=0).tolist() == [1, 2]


def test_scripted_policy_may_see_the_structure() -> None:
    def follow(obs: Any, contexts: Any) -> np.ndarray:
        return np.tanh(obs["pair"][1])

    policy = metaroll.policies.ScriptedPolicy(follow, EnvSpec.from_env(nested()), structured=True)
    rollouts = metaroll.testing.assert_worker_invariant(nested, policy, plans(3), num_workers=[])
    expected = np.tanh(rollouts[0].observations["pair"][1][:-1])
    np.testing.assert_array_equal(rollouts[0].actions, expected)


def test_composite_actions_are_recorded_in_their_parts() -> None:
    rollout = metaroll.rollout(compound_action, sampler_of(compound_action()), max_steps=5, seed=1)
    action, switches = rollout.actions
    assert (action["move"].shape, action["tool"].shape, switches.shape) == (
        (len(rollout), 2),
        (len(rollout),),
        (len(rollout), 2),
    )
    assert set(action["tool"].tolist()) <= {0, 1, 2}  # indices, whatever the space starts with
    weights = np.concatenate([action["move"], np.eye(3)[action["tool"]], switches], axis=1) @ np.arange(1, 8)
    np.testing.assert_allclose(rollout.rewards, weights, rtol=1e-6)


def test_registered_ids_and_wrappers() -> None:
    spec = EnvSpec.from_env(gymnasium.make("Blackjack-v1"))
    policy = metaroll.policies.CategoricalMLPPolicy(spec, generator=torch.Generator().manual_seed(0))
    blackjack = metaroll.rollout("Blackjack-v1", policy, seed=0)
    assert [part.shape for part in blackjack.observations] == [(len(blackjack) + 1,)] * 3

    def wrapped() -> gymnasium.Env:
        env = gymnasium.wrappers.GrayscaleObservation(image())
        return gymnasium.wrappers.TimeLimit(gymnasium.wrappers.FrameStackObservation(env, 2), 7)

    rollouts = metaroll.testing.assert_worker_invariant(
        wrapped, sampler_of(wrapped()), plans(3, steps=100), num_workers=[]
    )
    assert rollouts[0].observations.shape[1:] == (2, 8, 8)
    assert all(len(rollout) <= 7 for rollout in rollouts)
    assert all(rollout.truncated[-1] == (not rollout.terminated[-1]) for rollout in rollouts)


def test_a_wrong_observation_names_its_part() -> None:
    def broken() -> gymnasium.Env:
        env = nested()
        env._observe = lambda: {**NESTED.sample(), "image": np.zeros((3, 3), np.uint8)}  # type: ignore[method-assign]
        return env

    with pytest.raises(RolloutError, match=r"observation\['image'\] must have shape \(4, 4, 3\)"):
        metaroll.rollout(broken, sampler_of(nested()), max_steps=2, seed=0)


def test_nan_in_a_part_is_found() -> None:
    def broken() -> gymnasium.Env:
        env = nested()
        env._observe = lambda: {**NESTED.sample(), "pair": (1, np.array([0.0, np.nan]))}  # type: ignore[method-assign]
        return env

    with pytest.raises(metaroll.errors.InvalidValueError, match="observation is not finite while resetting"):
        metaroll.rollout(broken, lambda obs: np.zeros(2), max_steps=2, seed=0)


def test_ids_registered_in_the_script_reach_the_workers(pool: SamplerPool) -> None:
    gymnasium.register("MetarollTestImage-v0", entry_point="space_envs:image", max_episode_steps=4)
    try:
        policy = sampler_of(image())
        spec = gymnasium.spec("MetarollTestImage-v0")
        expected = metaroll.RolloutEngine("MetarollTestImage-v0", policy).run(plans(3))
        for source in ("MetarollTestImage-v0", spec):
            with metaroll.RolloutEngine(source, policy, pool=pool) as engine:
                for mine, alone in zip(engine.run(plans(3)), expected, strict=True):
                    assert trees_equal(mine.observations, alone.observations)
    finally:
        del gymnasium.registry["MetarollTestImage-v0"]


class Shows(gymnasium.Env):
    """Shows what it is told to."""

    action_space = gymnasium.spaces.Discrete(2, start=10)

    def __init__(self, space: gymnasium.Space, observation: Any) -> None:
        self.observation_space, self.observation = space, observation

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self.observation, {}

    def step(self, action: Any) -> tuple[Any, ...]:
        if action not in (10, 11):
            raise ValueError(f"unknown action {action}")
        return self.observation, 0.0, True, False, {}


@pytest.mark.parametrize("observation", [np.array([-1.0, 3.0]), np.array([0.5, 0.0]), np.array([300, 1])])
def test_numbers_that_do_not_fit_into_an_integer_space_are_told(observation: np.ndarray) -> None:
    space = gymnasium.spaces.Box(0, 255, (2,), np.uint8)
    with pytest.raises(RolloutError, match=r"observation must hold values of uint8, as its space Box"):
        metaroll.rollout(Shows(space, observation), lambda obs: 10, seed=0)
    whole = metaroll.rollout(Shows(space, np.array([254.0, 3.0])), lambda obs: 10, seed=0)
    assert (whole.observations.dtype, whole.observations[0].tolist()) == (np.uint8, [254, 3])


def test_choices_count_from_zero_and_are_applied_as_the_environment_counts() -> None:
    env = Shows(gymnasium.spaces.Discrete(3), 1)
    rollout = metaroll.rollout(env, lambda obs: 11, seed=0)
    assert (rollout.actions.tolist(), rollout.actions_applied.tolist()) == ([1], [11])
    with pytest.raises(RolloutError, match=r"the policy failed .* action must lie from 10 to 11 .* got 1"):
        metaroll.rollout(env, lambda obs: 1, seed=0)


def test_an_action_outside_the_space_is_not_the_environments_fault() -> None:
    policy = metaroll.policies.ScriptedPolicy(lambda obs, contexts: np.full(len(obs), 2))
    with pytest.raises(RolloutError, match="the action given to the environment failed at step 0"):
        metaroll.rollout("CartPole-v1", policy, seed=0)


@pytest.mark.parametrize(
    ("space", "action", "applied"),
    [
        (gymnasium.spaces.Box(0, 255, (1,), np.uint8), [-3.7], [0]),
        (gymnasium.spaces.Box(0, 255, (1,), np.uint8), [300.0], [255]),
        (gymnasium.spaces.Box(0, 4, (2,), np.int32), [9.7, 1.9], [4, 2]),
        (gymnasium.spaces.Tuple([gymnasium.spaces.Box(0, 4, (2,), np.int32)]), ([9.7, 1.9],), ([4, 2],)),
    ],
)
def test_numbers_for_integers_are_rounded_and_clipped_and_never_wrap_around(
    space: gymnasium.Space, action: Any, applied: Any
) -> None:
    got: list[Any] = []

    class Remembers(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(-1, 1, (1,)), space

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
            got.append(action)
            return np.zeros(1, np.float32), 0.0, False, False, {}

    rollout = metaroll.rollout(Remembers(), lambda obs: action, max_steps=1, seed=0)
    assert space.contains(got[0]) and trees_equal(got[0], gym_like(applied, got[0]))
    if isinstance(space, gymnasium.spaces.Box):
        assert rollout.actions_applied[0].tolist() == applied


def gym_like(value: Any, example: Any) -> Any:
    if isinstance(example, tuple):
        return tuple(gym_like(part, other) for part, other in zip(value, example, strict=True))
    return np.asarray(value, example.dtype)


class NarrowEnv(gymnasium.Env):
    """Bounds of float64 that no float32 is equal to; refuses every action beyond them."""

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space: gymnasium.Space = Box(-0.2, 0.1, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        given = action if isinstance(action, np.ndarray) else action["arm"]
        return np.zeros(2, np.float32), float(given[0]), False, False, {}


class NarrowParts(NarrowEnv):
    action_space = Dict({"arm": NarrowEnv.action_space})


def both_bounds(obs: np.ndarray) -> np.ndarray:
    """As policies act: float32, here at the bounds of ``NarrowEnv``."""
    return np.array([[-0.2], [0.1]], dtype=np.float32)[np.arange(len(obs)) % 2]


@pytest.mark.parametrize(
    "env",
    [NarrowEnv, lambda: gymnasium.vector.SyncVectorEnv([NarrowEnv] * 2)],
    ids=["list", "vector"],
)
def test_float32_actions_at_the_bounds_of_a_float64_space_are_within_it(env: Any) -> None:
    slots = make_slots(env, 2)
    slots.reset([0, 1], [RolloutPlan(seed=(0, number, 0)) for number in range(2)])
    result = slots.step(both_bounds(np.zeros((2, 2))), np.ones(2, dtype=bool))
    assert result.rewards.tolist() == [-0.2, 0.1]
    slots.close()


def test_parts_of_an_action_are_within_float64_bounds_too() -> None:
    slots = make_slots(NarrowParts, 2)
    slots.reset([0, 1], [RolloutPlan(seed=(0, number, 0)) for number in range(2)])
    result = slots.step({"arm": both_bounds(np.zeros((2, 2)))}, np.ones(2, dtype=bool))
    assert result.rewards.tolist() == [-0.2, 0.1]


def test_simulators_get_the_bounds_that_float32_actions_mean() -> None:
    found = []
    for dtype in (np.float32, np.float64):
        slots = make_slots("bob", 2)  # torques within +-29.43
        slots.reset([0, 1], [RolloutPlan(seed=(0, number, 0)) for number in range(2)])
        found.append(slots.step(np.array([[-29.43], [29.43]], dtype=dtype), np.ones(2, dtype=bool)).rewards)
    assert np.array_equal(*found)
