"""Vector environments of Gymnasium as slots: the same trajectories in all three autoreset modes (design.md 3)."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import gymnasium
import gymnasium.envs.classic_control
import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from space_envs import Sampler, compound_action, nested

import metaroll
from metaroll.data.compare import first_difference, trees_equal
from metaroll.envs.slots.vector_slots import VectorEnvSlots
from metaroll.types import EnvSpec, RolloutPlan, Slots

pytestmark = pytest.mark.usefixtures("lent_pools")

MODES = list(AutoresetMode)


def cart_pole() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", max_episode_steps=15)


def vector_of(mode: AutoresetMode, make: Any = cart_pole, count: int = 3, kind: Any = SyncVectorEnv) -> Any:
    return kind([make] * count, autoreset_mode=mode)


def policy_for(make: Any) -> Any:
    spec = EnvSpec.from_env(make())
    return metaroll.policies.CategoricalMLPPolicy(spec, generator=torch.Generator().manual_seed(0))


def plans(count: int = 8) -> list[RolloutPlan]:
    return [RolloutPlan(index=i, seed=(3, 0, i)) for i in range(count)]


def same_bits(left: list[Any], right: list[Any]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert first_difference(a, b, compare_info=False) is None


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    """Rollouts in single environments, some of which end early, others by the time limit."""
    with metaroll.RolloutEngine(cart_pole, policy_for(cart_pole)) as engine:
        rollouts = engine.run(plans())
    assert {bool(rollout.terminated[-1]) for rollout in rollouts} == {True, False}
    return rollouts


@pytest.mark.parametrize("mode", MODES)
def test_trajectories_are_those_of_single_environments_in_every_mode(mode: AutoresetMode, expected: list[Any]) -> None:
    source = functools.partial(vector_of, mode)
    with metaroll.RolloutEngine(source, policy_for(cart_pole)) as engine:
        same_bits(engine.run(plans()), expected)
        same_bits(engine.run(plans()[:2]), expected[:2])  # fewer than there are sub-environments


def test_environment_of_processes_and_given_instances(expected: list[Any]) -> None:
    env = vector_of(AutoresetMode.NEXT_STEP, kind=AsyncVectorEnv)
    try:
        with metaroll.RolloutEngine(env, policy_for(cart_pole)) as engine:
            same_bits(engine.run(plans()), expected)
        with metaroll.RolloutEngine(env, lambda obs: 0) as engine:  # asks for the spec, whose environment it is
            assert len(engine.run(plans())) == 8
        env.reset(seed=0)  # still the caller's: not closed
    finally:
        env.close()


class Together(gymnasium.vector.VectorWrapper):
    """Hides what the environment is, so that it can only be reset as a whole, like many foreign ones."""

    @property
    def unwrapped(self) -> Any:
        return self


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_environments_that_reset_only_as_a_whole(mode: AutoresetMode, expected: list[Any]) -> None:
    slots = VectorEnvSlots(Together(vector_of(mode)))
    assert slots.info.resets_together
    with metaroll.RolloutEngine(lambda: Together(vector_of(mode)), policy_for(cart_pole)) as engine:
        same_bits(engine.run(plans()), expected)


# The second one shows the same memory at every step, which SyncVectorEnv's SAME_STEP mode does not copy in time.
@pytest.mark.parametrize(
    ("make", "mode"), [*((nested, mode) for mode in MODES), *((compound_action, mode) for mode in (MODES[0], MODES[2]))]
)
def test_structured_spaces(make: Any, mode: AutoresetMode) -> None:
    env = make()
    policy = Sampler(env.action_space, env.observation_space)
    limited = [plan.with_(max_steps=12) for plan in plans(5)]
    with metaroll.RolloutEngine(make, policy) as engine:
        alone = engine.run(limited)
    with metaroll.RolloutEngine(functools.partial(vector_of, mode, make), policy) as engine:
        same_bits(engine.run(limited), alone)


def test_infos_are_those_of_the_sub_environments() -> None:
    env = vector_of(AutoresetMode.SAME_STEP, nested)
    slots = VectorEnvSlots(env)
    assert isinstance(slots, Slots)
    slots.reset([0, 2], [plans()[0], plans()[1]])
    step = slots.step(np.zeros((3, 2)), np.array([True, False, True]))
    assert [sorted(info) for info in step.infos] == [["seen", "text"], [], ["seen", "text"]]
    assert (step.rewards[1], step.terminated[1], step.truncated[1]) == (0.0, False, False)
    slots.close()


def test_initial_states_reach_one_sub_environment() -> None:
    class Settable(gymnasium.envs.classic_control.PendulumEnv):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            state = (options or {}).pop("init_state", None)
            result = super().reset(seed=seed, options=options)
            if state is not None:
                self.state = state
                return self._get_obs(), {}
            return result

    source = functools.partial(vector_of, AutoresetMode.NEXT_STEP, Settable)
    policy = metaroll.policies.ScriptedPolicy(lambda obs, contexts: np.zeros((len(obs), 1)))
    states = [np.array([0.5, 0.0]), None, np.array([1.0, 0.0])]
    batch = [plan.with_(init_state=state, max_steps=3) for plan, state in zip(plans(3), states, strict=True)]
    with metaroll.RolloutEngine(source, policy) as engine, metaroll.RolloutEngine(Settable, policy) as single:
        rollouts = engine.run(batch)
        same_bits(rollouts, single.run(batch))
    np.testing.assert_allclose(rollouts[0].observations[0], [np.cos(0.5), np.sin(0.5), 0.0], rtol=1e-6)


def test_one_seed_for_all_is_used_and_told() -> None:
    def native() -> Any:
        return gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point")

    with metaroll.RolloutEngine(native, policy_for(cart_pole)) as engine:
        with pytest.warns(UserWarning, match="one seed for all its sub-environments"):
            rollouts = engine.run(plans(6))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = engine.run(plans(6))
    assert len(rollouts) == 6
    assert all(rollout.terminated[-1] or rollout.truncated[-1] for rollout in rollouts)
    assert all(trees_equal(a.observations, b.observations) for a, b in zip(rollouts, again, strict=True))


def test_what_a_vector_environment_cannot_do_is_told() -> None:
    source = functools.partial(vector_of, AutoresetMode.NEXT_STEP)
    task = metaroll.NewEnvUpdate(cart_pole)
    with metaroll.RolloutEngine(source, policy_for(cart_pole)) as engine:
        with pytest.raises(Exception, match="cannot take the task of one sub-environment"):
            engine.run([plans()[0].with_(env_update=task)])
    with pytest.raises(ValueError, match="must be one environment"):
        metaroll.rollout(source, policy_for(cart_pole), max_steps=3)
    env = vector_of(AutoresetMode.NEXT_STEP)
    env.metadata["autoreset_mode"] = "Sometimes"
    with pytest.raises(ValueError, match=r"autoreset_mode.* got 'Sometimes'"):
        VectorEnvSlots(env)
    env.close()


class SameMemory(gymnasium.Env):
    """Shows the same array at every step."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.shown = getattr(self, "shown", np.zeros(1, np.float32))
        self.shown[:] = 0
        return self.shown, {}

    def step(self, action: int) -> tuple[Any, ...]:
        self.shown += 1
        return self.shown, 1.0, bool(self.shown[0] >= 3), False, {}


def test_a_last_observation_that_was_overwritten_is_not_recorded() -> None:
    policy = metaroll.policies.ScriptedPolicy(lambda obs, contexts: np.zeros(len(obs), dtype=np.int64))
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED):
        with metaroll.RolloutEngine(functools.partial(vector_of, mode, SameMemory), policy) as engine:
            assert engine.run(plans(1))[0].observations.ravel().tolist() == [0, 1, 2, 3]
    with metaroll.RolloutEngine(functools.partial(vector_of, AutoresetMode.SAME_STEP, SameMemory), policy) as engine:
        with pytest.raises(Exception, match="show the same memory at every step"):
            engine.run(plans(1))


def test_states_of_sub_environments_come_with_every_step() -> None:
    vector = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
    slots = VectorEnvSlots(vector)
    slots.reset([0, 1], [RolloutPlan(i, (0, 0, i)) for i in range(2)])
    slots.attach(record_states=True)
    step = slots.step(np.zeros(2, dtype=np.int64), np.ones(2, dtype=bool))
    assert step.states is not None
    np.testing.assert_allclose(np.stack(list(step.states)), step.observations, rtol=1e-6)  # type: ignore[arg-type]
    slots.close()
    batched = VectorEnvSlots(gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point"))
    assert batched.states() is None  # its ``state`` is that of all together
    batched.close()
