"""What an environment was given as is what runs: constructors are never copied, and copies are what they copy."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import EzPickle

from metaroll import RolloutEngine, RolloutPlan, TaskFamily, make_slots, rollout
from metaroll.envs.lookup.source import EnvSource, env_kind
from metaroll.envs.wrappers.domain_rand import DomainRandWrapperLive
from metaroll.rollouts.samplers.domains import Domains
from metaroll.tasks.distributions import UniformDomainParam
from metaroll.tasks.domain_randomizer import DomainRandomizer
from metaroll.tasks.env_copies import copy_env
from metaroll.tasks.plan_table import plan_env_seed
from metaroll.types import EnvSpec

pytestmark = pytest.mark.usefixtures("lent_pools")

PLANS = [RolloutPlan(i, (0, 0, i), max_steps=30) for i in range(2)]


def moon() -> gymnasium.Env:
    env = gymnasium.make("Hopper-v5")
    inner: Any = env.unwrapped
    inner.model.opt.gravity[2] = -1.62
    inner.model.body_mass[1] *= 1.5
    inner._healthy_reward = 2.5
    return env


def listed() -> gymnasium.Env:
    """A wrapper of somebody else's: stepped as a list."""
    return gymnasium.wrappers.TransformReward(moon(), lambda reward: reward)


def stand(observation: Any) -> np.ndarray:
    return np.zeros(3, dtype=np.float32)


def by_hand(make: Any, plan: RolloutPlan) -> tuple[np.ndarray, np.ndarray]:
    env = make()
    observations = [env.reset(seed=plan_env_seed(plan.seed))[0]]
    rewards: list[float] = []
    while len(rewards) < 30:
        observation, reward, terminated, _, _ = env.step(np.zeros(3, dtype=np.float32))
        observations.append(observation)
        rewards.append(reward)
        if terminated:
            break
    env.close()
    return np.array(observations), np.array(rewards)


def check(found: Any, make: Any = moon) -> None:
    for plan, result in zip(PLANS, found, strict=True):
        observations, rewards = by_hand(make, plan)
        np.testing.assert_array_equal(result.observations, observations)
        np.testing.assert_array_equal(result.rewards, rewards)


@pytest.mark.parametrize("make", [moon, listed])
def test_what_a_function_makes_runs_as_it_is(make: Any) -> None:
    with RolloutEngine(make, stand, transport="serial") as engine:
        check(engine.run(PLANS))
    check([rollout(make, stand, max_steps=30, seed=0, sub_sub_seed=i) for i in range(2)])
    assert env_kind(make) == ("physics" if make is moon else "list")
    family = TaskFamily.from_params(make, {"geom_friction:floor": (0.9, 1.1)})
    with RolloutEngine(family.env_constructor, stand, transport="serial") as engine:
        check(engine.run(PLANS))


def test_workers_run_it_as_it_is() -> None:
    with RolloutEngine(moon, stand, num_workers=2) as engine:
        check(engine.run(PLANS))


def test_wrappers_that_randomize_are_taken_off_what_the_function_makes() -> None:
    def randomized() -> Any:
        return DomainRandWrapperLive(moon(), DomainRandomizer(UniformDomainParam("geom_friction:floor", 1.0, 0.1)))

    made = Domains(randomized).source.make()
    assert made.unwrapped.model.opt.gravity[2] == -1.62
    made.close()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda inner: inner.model.opt.gravity.__setitem__(2, -1.62), r"model\.opt\.gravity .*-1\.62.*-9\.81"),
        (lambda inner: inner.model.body_mass.__setitem__(1, 9.0), r"model\.body_mass"),
        (lambda inner: setattr(inner, "_healthy_reward", 2.5), "_healthy_reward is 2.5, in the copy 1.0"),
        (lambda inner: setattr(inner, "note", "mine"), "note is 'mine', in the copy absent"),
    ],
)
def test_an_instance_whose_copy_differs_is_refused(change: Any, named: str) -> None:
    env = gymnasium.make("Hopper-v5")
    change(env.unwrapped)
    for use in (EnvSource.of, lambda given: make_slots(given, 2), lambda given: RolloutEngine(given, stand)):
        with pytest.raises(ValueError, match=rf"{named}.*pass a function"):
            use(env)
    assert len(rollout(env, stand, max_steps=5, seed=0)) == 5  # steps the given one itself


def test_arguments_that_gymnasium_forgets_are_found() -> None:
    env = gymnasium.make("InvertedPendulum-v5", reset_noise_scale=0.5)
    with pytest.raises(ValueError, match="_reset_noise_scale is"):
        EnvSource.of(env)
    found = make_slots(lambda: gymnasium.make("InvertedPendulum-v5", reset_noise_scale=0.5), 1).reset([0], PLANS[:1])
    assert np.abs(found).max() > 0.01


class Pickled(gymnasium.Env, EzPickle):
    """Copies are made anew; the state, and what episodes draw, are lost with it."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size: int = 3) -> None:
        EzPickle.__init__(self, size)
        self.size = size
        self.steps, self.total, self.goal, self.path = 0, 0, None, []
        self.table = np.arange(size)
        self.window: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.goal, self.steps, self.path = self.np_random.random(), 0, []
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps, self.total = self.steps + 1, self.total + 1
        self.path.append(action)
        self.last = action
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_state_of_episodes_does_not_count() -> None:
    env = Pickled(4)
    env.reset(seed=3)
    env.step(1)
    env.window, env.renderer = object(), object()
    copied = copy_env(env)
    assert (copied.size, copied.steps, copied.goal) == (4, 0, None)
    env.table[0] = 7
    with pytest.raises(ValueError, match=r"env\.table is \[7 1 2 3\], in the copy \[0 1 2 3\]; pass"):
        copy_env(env)


class Counted(Pickled):
    open_now = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).open_now += 1

    def close(self) -> None:
        type(self).open_now -= 1


def test_what_is_made_to_find_out_the_kind_is_closed() -> None:
    assert env_kind(lambda: Counted()) == "list"
    assert Counted.open_now == 0
    source = EnvSource.of(lambda: Counted())
    assert source.spec == EnvSpec.from_env(Pickled()) and Counted.open_now == 0
    slots = source.slots(2)
    slots.reset([0, 1], PLANS)
    slots.close()
    assert Counted.open_now == 0


def test_what_a_simulator_is_made_of_is_closed_with_it() -> None:
    from metaroll.envs.point.point_robot import PointRobotEnv

    closed: list[bool] = []

    class Told(PointRobotEnv):
        def close(self) -> None:
            closed.append(True)

    slots = make_slots(lambda: Told(), 2)
    assert not closed
    del slots
    assert len(closed) == 1
