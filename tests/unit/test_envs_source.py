"""From ids, constructors and environments to the fitting slots."""

from __future__ import annotations

import warnings
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest

from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.lookup.source import EnvSource, env_kind, make_env, make_slots
from metaroll.envs.point.point_robot import PointRobotEnv, SparsePointRobotEnv
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.errors import SlotError, UnknownNameError
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import RolloutPlan


class Slower(PointRobotEnv):
    """Steps in its own way, so the batched simulator does not speak for it."""

    def step(self, action: np.ndarray) -> tuple[Any, ...]:
        return super().step(0.5 * action)


def wrap(env: Any, task: Any) -> Any:
    return gymnasium.wrappers.TimeLimit(env, 5)


def limited() -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(PointRobotEnv(), 5)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("point-robot", SimulatorSlots),
        ("sparse-point-robot", SimulatorSlots),
        (SparsePointRobotEnv, SimulatorSlots),
        (PointRobotEnv(goal=(0.5, 0.5)), SimulatorSlots),
        (lambda: PointRobotEnv(), SimulatorSlots),
        (limited, GymSlots),
        (limited(), GymSlots),
        (Slower, GymSlots),
        ("FrozenLake-v1", GymSlots),
    ],
)
def test_make_slots_and_env_kind(source: Any, kind: type) -> None:
    slots = make_slots(source, 3)
    assert type(slots) is kind
    assert slots.num_slots == 3
    assert env_kind(source) == ("batched" if kind is SimulatorSlots else "list")
    assert slots.reset([2], [RolloutPlan(seed=(0, 0, 0))]).shape[0] == 1
    assert make_slots(slots, 3) is slots
    with pytest.raises(ValueError, match="num_slots must be 3"):
        make_slots(slots, 2)


def test_updates_that_the_batched_simulator_cannot_apply_go_through_a_list() -> None:
    plain = RolloutPlan(seed=(0, 0, 0), env_update=SetTaskUpdate(PointRobotEnv, {"goal": (1, 0)}))
    wrapped = plain.with_(env_update=SetTaskUpdate(PointRobotEnv, {"goal": (1, 0)}, wrap))
    for source in ("point-robot", PointRobotEnv, PointRobotEnv()):
        assert env_kind(source, [plain, RolloutPlan()]) == "batched"
        assert env_kind(source, [plain, wrapped]) == "list"
    assert isinstance(make_slots("point-robot", 2, plans=[wrapped]), GymSlots)
    with pytest.raises(SlotError, match=r"TypeError: .*make_slots\(..., plans=plans\)"):
        make_slots("point-robot", 2).reset([0], [wrapped])


def test_share_steps_the_given_environment() -> None:
    env = PointRobotEnv()
    slots = make_slots(env, 1, share=True)
    assert isinstance(slots, GymSlots)
    assert slots.environments()[0] is env


def test_a_source_is_a_picklable_recipe() -> None:
    env = PointRobotEnv(goal=(0.3, 0.4))
    for source in ("point-robot", PointRobotEnv, lambda: PointRobotEnv(), env):
        made = cloudpickle.loads(cloudpickle.dumps(EnvSource.of(source)))()
        assert type(made) is PointRobotEnv
    recipe = EnvSource.of(env)
    env.set_task({"goal": (9, 9)})  # too late to matter
    np.testing.assert_array_equal(recipe().get_task()["goal"], [0.3, 0.4])
    assert recipe() is not recipe()


def test_make_env_of_an_id_warns_of_nothing_and_has_no_checker() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = make_env("CartPole-v0")  # out of date
    assert "PassiveEnvChecker" not in str(env)
    assert make_env("gymnasium:Pendulum-v1").spec.max_episode_steps == 200


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("piont-robot", "did you mean 'point-robot'"),
        ("Pendulm-v1", "did you mean 'Pendulum-v1'"),
        ("Pendulum-v0", "-v1"),
    ],
)
def test_unknown_ids_name_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UnknownNameError, match=near) as caught:
        make_slots(name, 2)
    assert "or any id of Gymnasium" in str(caught.value)


def test_wrong_sources_are_told() -> None:
    with pytest.raises(TypeError, match="env must be an id such as 'point-robot'"):
        make_slots(3, 2)
    with pytest.raises(TypeError, match="must make an environment"):
        make_slots(dict, 2)
    with pytest.raises(UnknownNameError, match="there is no module 'no_such_module'"):
        make_env("no_such_module:Env-v0")
    with pytest.raises(ValueError, match="num_slots must be"):
        make_slots("point-robot", 0)

    class NoCopy(PointRobotEnv):
        def __deepcopy__(self, memo: dict) -> Any:
            raise RuntimeError("holds a window")

    with pytest.raises(TypeError, match=r"cannot be copied \(holds a window\); pass a function"):
        EnvSource.of(NoCopy())
    vector = gymnasium.make_vec("CartPole-v1", num_envs=2)
    with pytest.raises(ValueError, match="must be one environment here, got the vector environment"):
        make_slots(vector, 1, share=True)
    vector.close()


@pytest.mark.parametrize(
    "source", ["Acrobot-v1", "CartPole-v1", "MountainCarContinuous-v0", "qcp-st", "bob", "point-robot"]
)
@pytest.mark.filterwarnings("error")
def test_cheap_simulators_are_stepped_beyond_endings_in_silence(source: str) -> None:
    """The loop looks for endings now and then only; rows may be anywhere by then."""
    slots = make_slots(source, 3)
    assert slots.info.steps_past_end and slots.info.can_keep
    slots.reset(range(3), [RolloutPlan(i, (0, 0, i), max_steps=5) for i in range(3)])
    space, ended = slots.env_spec.action_space, np.zeros(3, bool)
    most = np.full(3, space.n - 1) if isinstance(space, gymnasium.spaces.Discrete) else np.tile(space.high, (3, 1))
    for _ in range(300):
        step = slots.step(most, np.ones(3, bool))
        ended |= step.terminated
    assert step.rewards.dtype == np.float64 and (ended.any() or source not in ("CartPole-v1", "qcp-st", "bob"))
