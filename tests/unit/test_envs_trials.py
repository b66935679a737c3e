"""Trials: several episodes of one task as one rollout."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from metaroll import (
    DomainRandomizer,
    DomainRandWrapperLive,
    RolloutEngine,
    RolloutPlan,
    SetTaskUpdate,
    TaskFamily,
    TrialWrapper,
    UniformDomainParam,
    check_slots,
    make_slots,
    rollout,
)
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.tasks.plan_table import plan_env_seeds
from metaroll.types import EnvSpec, Slots, SlotsInfo, SlotStep


class Walk(gymnasium.Env):
    """Walks to the task's goal from a place that is drawn; ends there."""

    observation_space = Box(-9.0, 9.0, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self) -> None:
        self.goal = 1.0
        self.x = 0.0

    def set_task(self, task: float) -> None:
        self.goal = task

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.x = np.random.default_rng(seed).random()
        return np.array([self.x], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.x += 0.25 * (2 * int(action) - 1)
        return np.array([self.x], np.float32), self.x, self.x >= self.goal, False, {"at": self.x}

    def accepts_update(self, update: Any) -> bool:
        return update is None

    def batched_slots(self, num_slots: int) -> Slots:
        return WalkSlots(num_slots, EnvSpec.from_env(self), self.goal)


class WalkSlots(Slots):
    def __init__(self, num_slots: int, env_spec: EnvSpec, goal: float) -> None:
        self.num_slots, self.env_spec, self.goal = num_slots, env_spec, goal
        self.info = SlotsInfo("Walk", "batched", steps_past_end=True)
        self.x = np.zeros(num_slots)

    def reset(self, slots: Any, plans: Any) -> np.ndarray:
        for slot, seed in zip(slots, plan_env_seeds(plans).tolist(), strict=True):
            self.x[slot] = np.random.default_rng(seed).random()
        return self.x[list(slots), None].astype(np.float32)

    def step(self, actions: Any, active: np.ndarray) -> SlotStep:
        self.x = np.where(active, self.x + 0.25 * (2 * np.asarray(actions) - 1), self.x)
        ended = active & (self.x >= self.goal)
        infos = {"at": self.x.copy()}
        return SlotStep(self.x[:, None].astype(np.float32), np.where(active, self.x, 0.0), ended, ended & False, infos)


def test_a_trial_is_one_rollout_of_several_episodes() -> None:
    env = TrialWrapper(Walk(), 3)
    assert env.observation_space.shape == (1 + 2 + 2,)
    result = rollout(env, lambda obs: 1, seed=3, max_steps=100)
    numbers, returns = result.env_infos["episode"], result.env_infos["episode_return"]
    assert sorted(set(numbers.tolist())) == [0, 1, 2] and (np.diff(numbers) >= 0).all()
    assert result.terminated.sum() == 1 and result.terminated[-1]
    for episode in range(3):
        rewards = result.rewards[numbers == episode]
        np.testing.assert_allclose(returns[numbers == episode], np.cumsum(rewards))
    observations = result.observations
    assert not observations[0, 1:].any()
    np.testing.assert_array_equal(observations[1:, 1:3], np.tile([0, 1], (len(result), 1)))  # the last action
    np.testing.assert_allclose(observations[1:, 3], result.rewards, rtol=1e-6)
    first_of_next = np.flatnonzero(np.diff(numbers)) + 1
    assert np.flatnonzero(observations[:, 4]).tolist() == [*first_of_next.tolist(), len(result)]
    starts = observations[[0, *first_of_next], 0]
    assert len(set(starts.tolist())) == 3 and (starts < 1).all()
    assert observations[-1, 0] >= 1  # the true last one


def test_a_limit_of_steps_truncates_episodes_and_the_trial() -> None:
    env = TrialWrapper(Walk(), 2, max_episode_steps=4)
    assert env.env_spec.max_episode_length == 8
    result = rollout(env, lambda obs: 0, seed=0)
    assert result.env_infos["episode"].tolist() == [0] * 4 + [1] * 4
    assert result.truncated.tolist() == [False] * 7 + [True] and not result.terminated.any()
    timed = TrialWrapper(gymnasium.wrappers.TimeLimit(Walk(), 3), 2)
    assert len(rollout(timed, lambda obs: 0, seed=0)) == 6


@pytest.mark.parametrize("limit", [None, 5])
def test_batches_are_bit_equal_to_lists(limit: int | None) -> None:
    env = TrialWrapper(Walk(), 3, limit)
    batched, listed = make_slots(env, 4), GymSlots(env, 4)
    assert not isinstance(batched, GymSlots) and batched.env_spec == listed.env_spec
    plans = [RolloutPlan(i, (1, 0, i)) for i in range(4)]
    np.testing.assert_array_equal(batched.reset(range(4), plans), listed.reset(range(4), plans))
    generator, active = np.random.default_rng(0), np.ones(4, dtype=bool)
    for t in range(40):
        actions = generator.integers(0, 2, size=4)
        asked = active & (generator.random(4) < 0.8) if t > 5 else active.copy()
        one, two = batched.step(actions, asked), listed.step(actions, asked)
        for name in ("observations", "rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
        for slot in np.flatnonzero(asked).tolist():
            assert {name: values[slot] for name, values in one.infos.items()} == two.infos[slot]  # type: ignore
        active &= ~(one.terminated | one.truncated)
    check_slots(lambda n: make_slots(env, n), num_steps=12)
    check_slots(lambda n: GymSlots(env, n), num_steps=12)


def test_tasks_hold_for_a_whole_trial() -> None:
    plan = RolloutPlan(0, (0, 0, 0), env_update=SetTaskUpdate(Walk, 2.5))
    with RolloutEngine(lambda: TrialWrapper(Walk(), 2), lambda obs: 1, transport="serial") as engine:
        (result,) = engine.run([plan])
    numbers = result.env_infos["episode"]
    assert (result.observations[-1, 0] >= 2.5) and result.rewards[numbers == 0][-1] >= 2.5
    with pytest.raises(TypeError, match="has no sample_tasks"):
        TaskFamily.from_env(lambda: TrialWrapper(gymnasium.make("CartPole-v1"), 2))


def test_what_makes_no_trial_is_refused() -> None:
    with pytest.raises(ValueError, match="must not hold a TrialWrapper"):
        TrialWrapper(TrialWrapper(Walk(), 2), 2)
    randomized = DomainRandWrapperLive(Walk(), DomainRandomizer(UniformDomainParam("goal", 1.0, 0.1)))
    with pytest.raises(ValueError, match="change the task in a trial: put it outside"):
        TrialWrapper(randomized, 2)
    with pytest.raises(ValueError, match="episodes_per_trial must be"):
        TrialWrapper(Walk(), 0)
    with pytest.raises(TypeError, match="Box observation_space"):
        TrialWrapper(gymnasium.make("FrozenLake-v1"), 2)
