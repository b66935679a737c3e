"""Slots offered as ``gymnasium.vector.VectorEnv``, in all autoreset modes (design.md 3)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from space_envs import nested

import metaroll
from metaroll.envs.vector_slots import VectorEnvSlots
from metaroll.rollouts.vector_env import SlotsVectorEnv
from metaroll.seeding import plan_env_seed

MODES = list(AutoresetMode)


def cart_pole() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", max_episode_steps=15)


def episodes_of(env: SlotsVectorEnv, count: int) -> list[list[Any]]:
    """``count`` episodes of each sub-environment (observations with the true last one), pushing always left."""
    observations, _ = env.reset(seed=3)
    open_episodes: list[list[Any]] = [[obs.copy()] for obs in observations]
    finished: list[list[Any]] = [[] for _ in range(env.num_envs)]
    just_reset = np.zeros(env.num_envs, dtype=bool)
    while min(map(len, finished)) < count:
        observations, _, terminated, truncated, infos = env.step(np.zeros(env.num_envs, dtype=np.int64))
        ended = terminated | truncated
        for i in range(env.num_envs):
            if just_reset[i]:  # NEXT_STEP: this step was the reset
                open_episodes[i] = [observations[i].copy()]
                continue
            same_step = env.autoreset_mode is AutoresetMode.SAME_STEP and ended[i]
            open_episodes[i].append(infos["final_obs"][i] if same_step else observations[i].copy())
            if ended[i]:
                finished[i].append(np.stack(open_episodes[i]))
                open_episodes[i] = [observations[i].copy()]
        just_reset = ended if env.autoreset_mode is AutoresetMode.NEXT_STEP else just_reset & False
        if env.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            observations, _ = env.reset(options={"reset_mask": ended})
            for i in np.flatnonzero(ended).tolist():
                open_episodes[i] = [observations[i].copy()]
    return [each[:count] for each in finished]


def test_all_modes_give_the_same_episodes_and_they_are_those_of_gymnasium() -> None:
    by_mode = [episodes_of(SlotsVectorEnv(cart_pole, 3, mode), 3) for mode in MODES]
    for other in by_mode[1:]:
        for mine, theirs in zip(by_mode[0], other, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
    env = cart_pole()
    for i, episodes in enumerate(by_mode[0]):
        for number, episode in enumerate(episodes):
            expected = [env.reset(seed=plan_env_seed((3 + i, 0, number)))[0]]
            ended = False
            while not ended:
                observation, _, terminated, truncated, _ = env.step(0)
                expected.append(observation)
                ended = terminated or truncated
            np.testing.assert_array_equal(episode, np.stack(expected))


def test_form_of_what_is_returned() -> None:
    env = SlotsVectorEnv("CartPole-v1", 4)
    observations, infos = env.reset(seed=0)
    assert (observations.shape, observations.dtype, infos) == ((4, 4), np.float32, {})
    assert env.observation_space.contains(observations)
    assert env.action_space.shape == (4,)
    result = env.step(env.action_space.sample())
    assert [np.asarray(part).dtype for part in result[1:4]] == [np.float64, bool, bool]
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    env.close()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_wrappers_of_gymnasium_work_on_it(mode: AutoresetMode) -> None:
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(SlotsVectorEnv(cart_pole, 3, mode))
    env.reset(seed=0)
    lengths: list[int] = []
    for _ in range(40):
        *_, infos = env.step(np.zeros(3, dtype=np.int64))
        if "episode" in infos:
            lengths.extend(infos["episode"]["l"][infos["_episode"]].tolist())
    assert lengths
    assert 1 <= min(lengths) <= max(lengths) <= 15


def test_batched_simulator_with_a_task_for_each() -> None:
    goals = [np.array([0.3, 0.1]), np.array([-0.2, 0.8])]
    family = metaroll.get_family("point-robot")
    updates = [metaroll.SetTaskUpdate(family.env_constructor, {"goal": goal}) for goal in goals]
    env = SlotsVectorEnv("point-robot", 2, "SameStep", env_updates=updates, max_episode_steps=5)
    env.reset(seed=1)
    for _ in range(5):
        observations, rewards, _, truncated, infos = env.step(np.zeros((2, 2)))
    assert truncated.tolist() == [True, True]
    last = np.stack(infos["final_obs"].tolist())
    np.testing.assert_allclose(rewards, [-np.linalg.norm(g - x) for g, x in zip(goals, last, strict=True)], rtol=1e-6)
    assert not np.array_equal(last, observations)
    assert infos["final_info"]["_success"].tolist() == [True, True]
    assert "success" not in infos


def test_structured_observations_are_gymnasiums_batches() -> None:
    env, reference = SlotsVectorEnv(nested, 2), SyncVectorEnv([nested] * 2)
    observations, _ = env.reset(seed=4)
    expected, _ = reference.reset(seed=[plan_env_seed((4 + i, 0, 0)) for i in range(2)])
    assert observations["mission"] == expected["mission"]
    np.testing.assert_array_equal(observations["image"], expected["image"])
    np.testing.assert_array_equal(observations["pair"][1], expected["pair"][1])
    *_, infos = env.step(np.zeros((2, 2), dtype=np.float32))
    *_, theirs = reference.step(np.zeros((2, 2), dtype=np.float32))
    assert infos.keys() == theirs.keys()
    assert infos["text"].tolist() == theirs["text"].tolist()


@pytest.mark.parametrize("mode", MODES)
def test_infos_are_gymnasiums_also_where_an_environment_tells_dicts(mode: AutoresetMode) -> None:
    def recorded() -> gymnasium.Env:
        return gymnasium.wrappers.RecordEpisodeStatistics(cart_pole())

    env, reference = SlotsVectorEnv(recorded, 3, mode), SyncVectorEnv([recorded] * 3, autoreset_mode=mode)
    env.reset(seed=4)
    reference.reset(seed=[plan_env_seed((4 + i, 0, 0)) for i in range(3)])
    ended = False
    while not ended:
        *_, terminated, truncated, infos = env.step(np.array([0, 1, 0]))
        ended = bool((terminated | truncated).any())
        theirs = reference.step(np.array([0, 1, 0]))[-1]
        assert infos.keys() == theirs.keys()
    told, expected = (x["final_info"] if mode is AutoresetMode.SAME_STEP else x for x in (infos, theirs))
    assert told["_episode"].tolist() == expected["_episode"].tolist() == (terminated | truncated).tolist()
    assert told["episode"]["l"].tolist() == expected["episode"]["l"].tolist()


def test_what_is_offered_can_be_given_back() -> None:
    slots = VectorEnvSlots(SlotsVectorEnv(cart_pole, 2, "Disabled"))
    assert (slots.num_slots, slots.mode) == (2, AutoresetMode.DISABLED)


def test_wrong_use_is_told() -> None:
    env = SlotsVectorEnv(cart_pole, 2, "Disabled")
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset before step"):
        env.step(np.zeros(2, dtype=np.int64))
    with pytest.raises(gymnasium.error.ResetNeeded, match="first reset must reset all"):
        env.reset(options={"reset_mask": np.array([True, False])})
    env.reset(seed=[1, 2])
    for _ in range(15):
        env.step(np.zeros(2, dtype=np.int64)) if not env._due.any() else None
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"sub-environments \[.*\] have ended"):
        env.step(np.zeros(2, dtype=np.int64))
    for options, message in (
        ({"reset_mask": [True]}, "reset_mask must be a bool array"),
        ({"colour": 1}, r"options may hold .*, got \['colour'\]"),
        ({"env_updates": [None]}, "one entry per sub-environment"),
        ({"init_state": np.zeros((1, 4))}, "one row per sub-environment"),
    ):
        with pytest.raises(ValueError, match=message):
            env.reset(options=options)
    with pytest.raises(ValueError, match="seed must be an integer or a list of 2"):
        env.reset(seed=[1])
    with pytest.raises(ValueError, match="autoreset_mode must be one of"):
        SlotsVectorEnv(cart_pole, 2, "Never")


class Masked(gymnasium.Env):
    """Tells at every reset which actions it takes."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.number = 0
        return np.zeros(1, np.float32), {"mask": self.np_random.integers(2, size=2)}

    def step(self, action: int) -> tuple[Any, ...]:
        self.number += 1
        return np.full(1, self.number, np.float32), 0.0, self.number >= 2, False, {"number": self.number}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_infos_of_resets_are_those_of_gymnasium(mode: AutoresetMode) -> None:
    env, reference = SlotsVectorEnv(Masked, 2, mode), SyncVectorEnv([Masked] * 2, autoreset_mode=mode)
    _, infos = env.reset(seed=4)
    _, expected = reference.reset(seed=[plan_env_seed((4 + i, 0, 0)) for i in range(2)])
    np.testing.assert_array_equal(infos["mask"], expected["mask"])
    for _ in range(4):
        *_, infos = env.step(np.zeros(2, dtype=np.int64))
        *_, expected = reference.step(np.zeros(2, dtype=np.int64))
        assert infos.keys() == expected.keys()
        assert ("mask" in infos) == ("mask" in expected)
