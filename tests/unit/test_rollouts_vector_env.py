"""Slots offered as ``gymnasium.vector.VectorEnv``, in all autoreset modes (design.md 3)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from engine_envs import Trouble
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from interruptions import is_interrupted, last_times
from sampler_envs import Oscillator
from space_envs import nested

import metaroll
from metaroll.envs.slots.vector_slots import VectorEnvSlots
from metaroll.errors import RolloutError
from metaroll.rollouts.single.vector_env import SlotsVectorEnv
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.plan_table import plan_env_seed

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


@pytest.mark.parametrize("mode", MODES)
def test_some_can_be_reset_in_every_mode(mode: AutoresetMode) -> None:
    env = SlotsVectorEnv(cart_pole, 3, mode)
    env.reset(seed=3)
    before = env.step(np.zeros(3, dtype=np.int64))[0]
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert (before != after).any(axis=1).tolist() == [False, True, False]
    assert np.array_equal(after[1], cart_pole().reset(seed=plan_env_seed((3 + 1, 0, 1)))[0])  # its second episode


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
        ({"color": 1}, r"options may hold .*, got \['color'\]"),
        ({"env_updates": [None]}, "one entry per sub-environment"),
        ({"init_state": np.zeros((1, 4))}, "one row per sub-environment"),
    ):
        with pytest.raises(ValueError, match=message):
            env.reset(options=options)
    for options, message in (
        (3, "options must be a dict"),
        ({"env_updates": 3}, "env_updates must be a list"),
        ({"init_state": 3}, "init_state must be a list"),
    ):
        with pytest.raises(TypeError, match=message):
            env.reset(options=options)
    for seed in (1.0, "a", True):
        with pytest.raises(TypeError, match="seed must be a list of seeds, or an integer"):
            env.reset(seed=seed)
    env.reset(seed=3)
    with pytest.raises(TypeError, match="actions must be an array of integers"):
        env.step(None)
    env.step(np.zeros(2, dtype=np.int64))
    with pytest.raises(ValueError, match="seed must be an integer or a list of 2"):
        env.reset(seed=[1])
    with pytest.raises(ValueError, match="seed must hold integers of at least 0"):
        env.reset(seed=[1, -1])
    with pytest.raises(ValueError, match="autoreset_mode must be one of"):
        SlotsVectorEnv(cart_pole, 2, "Never")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_envs": 0}, ValueError, "num_envs must be an integer of at least 1, got 0"),
        ({"max_episode_steps": 0}, ValueError, "max_episode_steps must be an integer of at least 1, got 0"),
        ({"env_updates": 5}, TypeError, "env_updates must be a list of EnvUpdates or None, got 5"),
        ({"env_updates": ["warm", None]}, TypeError, "env_updates must hold EnvUpdates or None, got 'warm'"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SlotsVectorEnv(cart_pole, **{"num_envs": 2, **arguments})


class Fragile(Oscillator):
    """Fails in its third step, or in a reset to the mass 13, or shows NaN for the mass 7."""

    def reset(self, **options: Any) -> Any:
        if self.domain_param["mass"] == 13.0:
            raise ZeroDivisionError("unlucky")
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        if self._t == 2:
            raise ZeroDivisionError("tired")
        observation, *rest = super().step(action)
        return observation * (np.nan if self.domain_param["mass"] == 7.0 else 1.0), *rest


def test_errors_speak_of_sub_environments_and_episodes() -> None:
    env = SlotsVectorEnv(Fragile, 2)
    actions = np.zeros((2, 1), np.float32)
    env.reset(seed=[8, 4])
    env.step(actions)
    env.step(actions)
    with pytest.raises(RolloutError) as tired:
        env.step(actions)
    expected = "the environment failed at step 2 of episode 0 of sub-environment 0 (seed 8): ZeroDivisionError: tired"
    message, _, where = str(tired.value).partition("\n")
    assert message == expected
    assert "test_rollouts_vector_env.py" in where and 'raise ZeroDivisionError("tired")' in where
    for mass, text in (
        (13.0, "the environment failed while resetting episode 0 of sub-environment 1 (seed 4): "),
        (7.0, "observation is not finite at step 0 of episode 0 of sub-environment 1 (seed 4): [nan nan]"),
    ):
        env = SlotsVectorEnv(Fragile, 2, env_updates=[None, DomainParamUpdate({"mass": mass})])
        with pytest.raises(RolloutError) as caught:
            env.reset(seed=[8, 4])
            env.step(actions)
        assert str(caught.value).startswith(text)
        said = str(caught.value).partition("\n")[0]  # the second line has a file of ours
        assert not any(word in said for word in ("rollout", "plan", "on_invalid"))


@pytest.mark.parametrize("mode", MODES)
def test_after_a_call_that_was_interrupted_or_failed_all_must_be_reset(mode: AutoresetMode) -> None:
    """Where a reset of some failed, all went on with observations that stayed and rewards of 0; a step was lost."""
    modules = ("/single/vector_env.py",)
    env, twin = (SlotsVectorEnv("point-robot", 2, mode, max_episode_steps=2) for _ in range(2))
    actions = np.zeros((2, 2), np.float32)

    def steps(env: SlotsVectorEnv, count: int) -> list[bytes]:
        return [env.step(actions)[0].tobytes() for _ in range(count)]

    def some() -> Any:
        return env.reset(seed=5, options={"reset_mask": np.array([True, False])})

    before = 2 if mode is AutoresetMode.NEXT_STEP else 1  # the step resets, too, where there is autoreset
    for call in (lambda: steps(env, 1), some):
        env.reset(seed=3), steps(env, before)
        for at in last_times(call, modules)[:-1]:  # the last one returns what is whole
            for each in (env, twin):
                each.reset(seed=3), steps(each, before)
            assert is_interrupted(call, at, modules)
            try:
                after = steps(env, 1)
            except gymnasium.error.ResetNeeded:
                continue
            assert after == steps(twin, 1), at  # as if it had not been called
    env = SlotsVectorEnv(Fragile, 2, mode)
    env.reset(seed=3)
    with pytest.raises(RolloutError):
        env.reset(
            options={"env_updates": [None, DomainParamUpdate({"mass": 13.0})], "reset_mask": np.array([0, 1], bool)}
        )
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros((2, 1), np.float32))


def test_a_closed_one_says_so() -> None:
    env = SlotsVectorEnv(cart_pole, 2)
    env.reset()
    env.close()
    for call in (env.reset, lambda: env.step(np.zeros(2, dtype=np.int64)), lambda: env.get_attr("gravity")):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="this SlotsVectorEnv has been closed"):
            call()


def test_attributes_and_methods_of_the_sub_environments_are_reached_as_in_gymnasium() -> None:
    env, reference = SlotsVectorEnv(cart_pole, 3), SyncVectorEnv([cart_pole] * 3)
    for one in (env, reference):
        assert one.get_attr("gravity") == (9.8, 9.8, 9.8)
        one.set_attr("gravity", [1.0, 2.0, 3.0])
        one.set_attr("length", 0.25)
        assert (one.get_attr("gravity"), one.call("length")) == ((1.0, 2.0, 3.0), (0.25, 0.25, 0.25))
        assert one.call("has_wrapper_attr", "no such thing") == (False, False, False)
        with pytest.raises(ValueError, match=r"[Vv]alues must be"):
            one.set_attr("gravity", [1.0])
    env.reset(seed=0)
    assert env.get_attr("gravity") == (1.0, 2.0, 3.0)  # resets leave it
    fall = [episode[0][5] for episode in episodes_of(env, 1)]
    assert not np.array_equal(fall[0], fall[1])


def test_it_has_the_spec_of_its_environment_and_a_batched_simulator_has_no_sub_environments() -> None:
    env = SlotsVectorEnv("CartPole-v1", 2, max_episode_steps=7)
    assert env.spec is not None and (env.spec.id, env.spec.max_episode_steps) == ("CartPole-v1", 7)
    assert gymnasium.spec("CartPole-v1").max_episode_steps == 500
    batched = SlotsVectorEnv("point-robot", 2)
    assert batched.spec is None
    with pytest.raises(AttributeError, match="'goal' cannot be asked of, or set in, single sub-environments"):
        batched.get_attr("goal")


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


def test_after_an_error_all_are_to_be_reset():
    envs = SlotsVectorEnv(lambda: Trouble("raise", 2), 2)
    envs.reset(seed=0)
    given = np.zeros((2, 2), np.float32)
    envs.step(given)
    envs.step(given)
    with pytest.raises(RolloutError, match="the motor is on fire"):
        envs.step(given)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset before step"):
        envs.step(given)
    first, _ = envs.reset(seed=0)
    again, *_ = envs.step(given)
    assert first.shape == again.shape == (2, 3)
    envs.close()
