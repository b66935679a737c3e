"""A list of Gymnasium environments as slots: exact, copied, frozen where not active."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from metaroll.envs.base.checks import check_slots
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.errors import ShapeError, SlotError
from metaroll.tasks.plan_table import plan_env_seed
from metaroll.tasks.updates import ExistingEnvUpdate, NewEnvUpdate, SetTaskUpdate
from metaroll.types import EnvUpdate, RolloutPlan, TaskNote


def plan(number: int = 0, update: EnvUpdate | None = None, **fields: Any) -> RolloutPlan:
    return RolloutPlan(index=number, seed=(7, 0, number), env_update=update, **fields)


class Counter(gymnasium.Env):
    """Observation = number of steps, always in the same memory; keeps the actions that it gets."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, end: int = 3, start: float = 0.0, fail_at: int | None = None) -> None:
        self.buffer = np.zeros(2, dtype=np.float32)
        self.info = {"buffer": self.buffer}
        self.end, self.begin, self.fail_at = end, start, fail_at
        self.kept: list[np.ndarray] = []
        self.closed = False

    def set_task(self, task: float) -> None:
        self.begin = task

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.buffer[:] = self.begin if options is None else options["init_state"][0]
        return self.buffer, {}

    def step(self, action: np.ndarray) -> tuple[Any, ...]:
        self.kept.append(action)
        self.buffer += 1
        if self.buffer[0] == self.fail_at:
            raise RuntimeError("the motor burned")
        return self.buffer, np.float32(0.5), np.bool_(self.buffer[0] >= self.end), False, self.info

    def close(self) -> None:
        self.closed = True


def test_step_returns_copies_and_keeps_frozen_slots() -> None:
    slots = GymSlots(Counter, 3)
    first = slots.reset([0, 1, 2], [plan(0), plan(1), plan(2)])
    np.testing.assert_array_equal(first, np.zeros((3, 2)))
    actions = np.zeros((3, 1), dtype=np.float32)
    one = slots.step(actions, np.array([True, False, True]))
    two = slots.step(actions, np.array([True, False, False]))
    # slot 0 stepped twice, slot 1 never, slot 2 once
    np.testing.assert_array_equal(one.observations[:, 0], [1, 0, 1])
    np.testing.assert_array_equal(two.observations[:, 0], [2, 0, 1])
    np.testing.assert_array_equal(two.rewards, [0.5, 0, 0])
    assert two.rewards.dtype == np.float64
    assert two.infos[1] == {}
    np.testing.assert_array_equal(one.infos[0]["buffer"], [1, 1])  # an info that is the environment's own memory
    ending = slots.step(actions, np.array([True, False, False]))
    assert ending.terminated.tolist() == [True, False, False]
    assert not ending.truncated.any()
    np.testing.assert_array_equal(ending.observations[0], [3, 3])  # the true last one: nothing resets itself


def test_actions_are_copied() -> None:
    slots = GymSlots(Counter, 1)
    slots.reset([0], [plan()])
    actions = np.full((1, 1), 0.25, dtype=np.float32)
    slots.step(actions, np.array([True]))
    actions[:] = 9
    assert slots.environments()[0].kept[0].tolist() == [0.25]
    slots.environments()[0].kept[0][:] = 5
    assert actions[0, 0] == 9


def test_time_limit_stays_truncation() -> None:
    """specs/meta.md Q-24, Q-41"""
    slots = GymSlots(lambda: gymnasium.wrappers.TimeLimit(Counter(end=9), 2), 1)
    slots.reset([0], [plan()])
    steps = [slots.step(np.zeros((1, 1)), np.array([True])) for _ in range(2)]
    assert [(s.terminated[0], s.truncated[0]) for s in steps] == [(False, False), (False, True)]
    both = GymSlots(lambda: gymnasium.wrappers.TimeLimit(Counter(end=2), 2), 1)
    both.reset([0], [plan()])
    both.step(np.zeros((1, 1)), np.array([True]))
    last = both.step(np.zeros((1, 1)), np.array([True]))
    assert (last.terminated[0], last.truncated[0]) == (True, True)  # the time limit hides no ending


def test_seed_of_the_plan_seeds_the_environment() -> None:
    slots = GymSlots("Pendulum-v1", 2)
    observation = slots.reset([1], [plan(4)])
    expected, _ = gymnasium.make("Pendulum-v1").reset(seed=plan_env_seed((7, 0, 4)))
    np.testing.assert_array_equal(observation[0], expected)
    with pytest.raises(ValueError, match="seed of plan 0 must be set"):
        slots.reset([0], [RolloutPlan()])


def test_init_state_is_handed_to_reset() -> None:
    slots = GymSlots(Counter, 1)
    np.testing.assert_array_equal(slots.reset([0], [plan(init_state=np.array([4.0]))]), [[4, 4]])
    np.testing.assert_array_equal(slots.reset([0], [plan()]), [[0, 0]])


@pytest.mark.parametrize("source", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "point-robot"])
def test_conformance_of_common_environments(source: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_slots(lambda n: GymSlots(source, n), num_steps=30)


def test_updates_leave_no_trace() -> None:
    """A slot's history does not show: every kind of update in every order, and none after each of them."""
    task = SetTaskUpdate(Counter, 2.0)

    class InPlace(EnvUpdate):
        """Says nothing about earlier updates: it adds to what it finds."""

        def __call__(self, old_env: Any = None) -> Any:
            old_env.begin += 10
            return old_env

    class Interrupted(InPlace):
        def __call__(self, old_env: Any = None) -> Any:
            super().__call__(old_env)
            raise KeyboardInterrupt

    updates = [None, task, TaskNote(), InPlace(), NewEnvUpdate(lambda: Counter(start=5.0)), InPlace(), task, None]
    starts = [0, 2, 0, 10, 5, 10, 2, 0]
    slots = GymSlots(Counter, 1)
    for update, start in zip(updates, starts, strict=True):
        assert slots.reset([0], [plan(0, update)])[0, 0] == start
        with pytest.raises(KeyboardInterrupt):
            slots.reset([0], [plan(0, Interrupted())])
    check_slots(
        lambda n: GymSlots(lambda: Counter(start=1.0), n),
        [plan(i, update) for i, update in enumerate(updates)],
        num_steps=4,
    )


def test_set_task_updates_reuse_the_environment() -> None:
    slots = GymSlots(Counter, 1)
    slots.reset([0], [plan(0, SetTaskUpdate(Counter, 2.0))])
    env = slots.environments()[0]
    assert slots.reset([0], [plan(0, SetTaskUpdate(Counter, 3.0))])[0, 0] == 3
    assert slots.environments()[0] is env
    slots.reset([0], [plan(0)])
    assert slots.environments()[0] is not env
    assert env.closed


def test_set_task_update_keeps_the_wrappers_of_the_source() -> None:
    slots = GymSlots(lambda: gymnasium.wrappers.TimeLimit(Counter(end=9), 1), 1)
    slots.reset([0], [plan(0, SetTaskUpdate(Counter, 2.0))])
    assert slots.step(np.zeros((1, 1)), np.array([True])).truncated[0]


def test_existing_environments_are_used_as_they_are_and_not_closed() -> None:
    pooled = Counter(start=6.0)
    update = ExistingEnvUpdate(pooled)
    slots = GymSlots(Counter, 2)
    np.testing.assert_array_equal(slots.reset([0], [plan(0, update)]), [[6, 6]])
    assert slots.environments()[0] is pooled
    slots.reset([1], [plan(1, update)])
    assert slots.environments()[1] is not pooled  # two slots cannot step one environment
    slots.close()
    assert not pooled.closed


def test_share_uses_the_given_environment_and_never_closes_it() -> None:
    env = Counter(start=1.0)
    slots = GymSlots(env, 1, share=True)
    assert slots.reset([0], [plan()])[0, 0] == 1
    assert slots.environments()[0] is env
    assert slots.reset([0], [plan(0, SetTaskUpdate(Counter, 2.0))])[0, 0] == 2
    assert slots.reset([0], [plan(0, NewEnvUpdate(lambda: Counter(start=3.0)))])[0, 0] == 3
    assert slots.reset([0], [plan()])[0, 0] == 1  # as it was given, although the task was changed in between
    slots.close()
    assert not env.closed
    copied = GymSlots(env, 2)
    copied.reset([0, 1], [plan(), plan(1)])
    assert all(one is not env for one in copied.environments())
    with pytest.raises(ValueError, match="takes an environment and one slot"):
        GymSlots(env, 2, share=True)


def test_close_closes_what_was_built() -> None:
    slots = GymSlots(Counter, 2)
    slots.reset([0, 1], [plan(), plan(1)])
    envs = slots.environments()
    slots.close()
    assert all(env.closed for env in envs)


@contextlib.contextmanager
def fails(kind: Any, slot: int | None = 0, match: str = "") -> Iterator[None]:
    """A SlotError, caused by a ``kind``."""
    with pytest.raises(SlotError) as caught:
        yield
    assert caught.value.slot == slot
    assert isinstance(caught.value.__cause__, kind)
    assert re.search(match, str(caught.value.__cause__)), caught.value.__cause__


def test_errors_name_the_slot() -> None:
    slots = GymSlots(lambda: Counter(fail_at=1), 3)
    slots.reset([0, 1, 2], [plan(i) for i in range(3)])
    with fails(RuntimeError, 2, "the motor burned"):
        slots.step(np.zeros((3, 1)), np.array([False, False, True]))

    def broken(self: Any, **kwargs: Any) -> None:
        raise KeyError("no reset")

    slots.environments()[1].reset = broken.__get__(slots.environments()[1])
    with fails(KeyError, 1):
        slots.reset([1], [plan()])


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ((np.zeros(2), 0.0, False, {}), "got a tuple of 4; wrap an environment of the old Gym API"),
        (np.zeros(2), "got ndarray"),
        ((np.zeros(3), 0.0, False, False, {}), r"observation must have shape \(2,\), as its space Box.*got \(3,\)"),
        ((np.float32(1), 0.0, False, False, {}), r"observation must have shape \(2,\), as its space Box.*got \(\)"),
        ((np.zeros(2), "much", False, False, {}), r"must return a number as reward, got 'much'"),
        ((np.zeros(2), "1", False, False, {}), r"must return a number as reward, got '1'"),
        ((np.zeros(2), 1j, False, False, {}), "reward=1j"),
        ((np.zeros(2), 0.0, False, False, [1]), r"must return a dict as info, got \[1\] of type list"),
        ((np.zeros(2), 0.0, False, False, []), r"must return a dict as info, got \[\] of type list"),
        ((np.zeros(2), 0.0, False, False, None), r"must return a dict as info, got None"),
        ((np.zeros(2), 0.0, None, False, {}), r"must return terminated as True or False, got None"),
        ((np.zeros(2), 0.0, False, "", {}), r"must return truncated as True or False, got ''"),
        ((np.zeros(2), 0.0, "no", False, {}), r"must return terminated as True or False, got 'no' of type str"),
        (
            (np.zeros(2), 0.0, False, {"a": 1}, {}),
            r"must return truncated as True or False, got \{'a': 1\} of type dict",
        ),
        ((np.zeros(2), 0.0, False, 2, {}), r"must return truncated as True or False, got 2 of type int"),
        ((np.zeros(2), None, False, False, {}), r"step\(\) must return a number as reward, got None"),
        (
            (np.array(["a", "b"]), 0.0, False, False, {}),
            r"^observation must hold values of float32, .* got <U1 \['a' 'b'\]",
        ),
        ((np.array([{}, 1]), 0.0, False, False, {}), r"^observation must hold values of float32, .* got object"),
    ],
)
def test_steps_of_another_api_are_told(result: Any, message: str) -> None:
    slots = GymSlots(Counter, 1)
    slots.reset([0], [plan()])
    slots._steps[0] = lambda action: result
    with fails((TypeError, ValueError), 0, message):
        slots.step(np.zeros((1, 1)), np.array([True]))


@pytest.mark.parametrize("truth", [1, 1.0, np.array([True]), np.bool_(True)], ids=repr)
def test_numbers_0_and_1_are_truth_values(truth: Any) -> None:
    slots = GymSlots(Counter, 1)
    slots.reset([0], [plan()])
    slots._steps[0] = lambda action: (np.zeros(2), 0.0, truth, 0, {})
    step = slots.step(np.zeros((1, 1)), np.array([True]))
    assert step.terminated.tolist() == [True] and step.truncated.tolist() == [False]


def test_observations_of_another_type_are_told_as_such() -> None:
    class Bytes(Counter):
        observation_space = gymnasium.spaces.Box(0, 255, (2,), np.uint8)

    slots = GymSlots(Bytes, 1)
    slots.reset([0], [plan()])
    slots._steps[0] = lambda action: (np.array([0.5, 300]), 0.0, False, False, {})
    with fails(ValueError, 0, r"^observation must hold values of uint8, as its space Box.*got float64"):
        slots.step(np.zeros((1, 1)), np.array([True]))


def test_wrong_input_is_told() -> None:
    class OldReset(Counter):
        def reset(self, **kwargs: Any) -> Any:
            return np.zeros(2)

    with fails(TypeError, 0, r"must return \(observation, info\)"):
        GymSlots(OldReset, 1).reset([0], [plan()])
    with pytest.raises(ValueError, match="num_slots must be"):
        GymSlots(Counter, 0)
    with fails(gymnasium.error.ResetNeeded, 0, "must be reset"):
        GymSlots(Counter, 1).step(np.zeros((1, 1)), np.array([True]))
    slots = GymSlots(Counter, 2)
    slots.reset([0, 1], [plan(), plan(1)])
    with fails(ShapeError, None, r"actions must have shape \(2, 1\)"):
        slots.step(np.zeros((3, 1)), np.ones(2, dtype=bool))
    with fails(ShapeError, 0, "observation_space must stay as the environment was given"):
        slots.reset([0], [plan(0, NewEnvUpdate(lambda: gymnasium.make("Pendulum-v1")))])
    cart = GymSlots("CartPole-v1", 2)
    cart.reset([0, 1], [plan(), plan(1)])
    with fails(ShapeError, None, r"actions must have shape \(2,\)"):
        cart.step(np.zeros((2, 1)), np.ones(2, dtype=bool))
    with fails(ValueError, None, "indices from 0 to 1, got 2 in slot 1"):
        cart.step(np.array([0, 2]), np.ones(2, dtype=bool))


def test_env_spec_is_that_of_the_environment() -> None:
    assert GymSlots("Pendulum-v1", 1).env_spec.max_episode_length == 200
    assert GymSlots(PointRobotEnv, 1).env_spec.observation_labels == ("x", "y")


def test_infos_and_objects_that_the_environment_goes_on_changing_are_copied() -> None:
    class Keeps(Counter):
        observation_space = gymnasium.spaces.Sequence(gymnasium.spaces.Box(-9, 9, (1,), np.float32))  # type: ignore

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[np.ndarray] = []
            self.told = {"list": [0], "deep": {"a": [np.zeros(1)]}, "tensor": torch.zeros(1), "set": {0}}

        def reset(self, **kwargs: Any) -> Any:
            super().reset(seed=kwargs.get("seed"))
            self.seen = [np.zeros(1, np.float32)]
            return self.seen, self.told

        def step(self, action: Any) -> Any:
            self.seen[0][0] += 1
            self.seen.append(np.zeros(1, np.float32))
            self.told["list"][0] += 1
            self.told["deep"]["a"][0] += 1
            self.told["tensor"] += 1
            self.told["set"].add(len(self.seen))
            return self.seen, 0.0, False, False, self.told

    slots = GymSlots(Keeps, 1)
    first = slots.reset([0], [plan()])
    one = slots.step(np.zeros((1, 1)), np.array([True]))
    slots.step(np.zeros((1, 1)), np.array([True]))
    told = one.infos[0]
    assert (told["list"], told["deep"]["a"][0][0], told["tensor"].item(), told["set"]) == ([1], 1.0, 1.0, {0, 2})
    assert len(first[0]) == 1 and first[0][0][0] == 0
    assert len(one.observations[0]) == 2 and one.observations[0][0][0] == 1
    assert slots.reset_info(0)["list"] == [0]


def test_slots_are_kept() -> None:
    slots = GymSlots(Counter, 3)
    slots.reset([0, 1, 2], [plan(i) for i in range(3)])
    everyone = np.ones(3, dtype=bool)
    slots.step(np.zeros((3, 1)), np.array([False, True, True]))
    envs = slots.environments()
    slots.keep(np.array([0, 2]))
    assert slots.num_slots == 2 and slots.environments() == [envs[0], envs[2]]
    assert [env.closed for env in envs] == [False, True, False]
    step = slots.step(np.zeros((2, 1)), everyone[:2])
    np.testing.assert_array_equal(step.observations[:, 0], [1, 2])


def test_states_come_with_every_step() -> None:
    class Stateful(Counter):
        @property
        def state(self) -> np.ndarray:
            return self.buffer[:1]

    slots = GymSlots(Stateful, 2)
    slots.reset([0, 1], [plan(), plan(1)])
    assert slots.step(np.zeros((2, 1)), np.ones(2, dtype=bool)).states is None
    slots.attach(record_states=True)
    states = slots.step(np.zeros((2, 1)), np.array([True, False])).states
    assert states is not None
    np.testing.assert_array_equal(np.stack(list(states)), [[2], [1]])  # type: ignore[arg-type]
    assert GymSlots(Counter, 1).states() == [None]
