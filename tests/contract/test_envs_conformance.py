"""The conformance kit finds planted faults (specs/meta.md Q-02, Q-24; design.md 7)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.lookup.registry import family_names, get_family
from metaroll.envs.lookup.source import make_slots
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.testing import ConformanceError, check_slots
from metaroll.types import RolloutPlan, SlotStep


class PointRobotSlots(SimulatorSlots):
    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots, PointRobotEnv().simulator)


class Aliased(PointRobotSlots):
    """Hands out the same memory at every step."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.buffer = np.zeros((num_slots, 2), dtype=np.float32)

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        result = super().step(actions, active)
        self.buffer[:] = result.observations
        return result._replace(observations=self.buffer)


class StateHandedOut(PointRobotSlots):
    """Hands out its own memory of the rewards' sum, fresh at every step, but used later."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.last = np.zeros((num_slots, 2), dtype=np.float32)

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        moved = super().step(actions, active)
        result = moved._replace(rewards=np.where(active, moved.rewards + self.last[:, 0], 0.0))
        self.last = result.observations
        return result

    def reset(self, slots: Any, plans: Any) -> np.ndarray:
        first = super().reset(slots, plans)
        self.last = self.last.copy()
        self.last[list(slots)] = first
        return first


class IgnoresMask(PointRobotSlots):
    """Steps everybody, and hides it."""

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        before = self.rows.state[0].astype(np.float32)
        result = super().step(actions + 0.5, np.ones_like(active))
        return result._replace(
            observations=np.where(active[:, None], result.observations, before),
            rewards=np.where(active, result.rewards, 0.0),
        )


class RewardsFrozen(PointRobotSlots):
    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        result = super().step(actions, active)
        return result._replace(rewards=result.rewards - 1.0)


class SharedGenerator(PointRobotSlots):
    """One generator for the noise of all slots."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.generator = np.random.default_rng(0)

    def reset(self, slots: Any, plans: Any) -> np.ndarray:
        self.generator = np.random.default_rng(plans[0].seed)
        return super().reset(slots, plans)

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        noise = self.generator.normal(size=actions.shape)
        return super().step(actions + 0.1 * noise, active)


class Unseeded(PointRobotSlots):
    generator = np.random.default_rng(0)

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        return super().step(actions + 0.1 * self.generator.normal(size=actions.shape), active)


class AnySeed(PointRobotSlots):
    def reset(self, slots: Any, plans: Any) -> np.ndarray:
        return super().reset(slots, [plan.with_(seed=plan.seed or (0, 0, 0)) for plan in plans])


class KeepsTask(PointRobotSlots):
    """A plan without an update finds the goal of the plan before."""

    def reset(self, slots: Any, plans: Any) -> np.ndarray:
        before = self.rows.constants["goal"].copy()
        first = super().reset(slots, plans)
        for slot, plan in zip(slots, plans, strict=True):
            if plan.env_update is None:
                self.rows.constants["goal"][slot] = before[slot]
        return first


class ChangesActions(PointRobotSlots):
    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        np.clip(actions, -0.5, 0.5, out=actions)
        return super().step(actions, active)


class Float32Rewards(PointRobotSlots):
    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        result = super().step(actions, active)
        return result._replace(rewards=result.rewards.astype(np.float32))


class EndsAtLimit(PointRobotEnv):
    """Calls the time limit an ending, as old vectorized samplers did (Q-24)."""

    def __init__(self, old_info: bool = False) -> None:
        super().__init__()
        self.steps, self.old_info = 0, old_info

    def reset(self, **kwargs: Any) -> Any:
        self.steps = 0
        return super().reset(**kwargs)

    def step(self, action: np.ndarray) -> Any:
        self.steps += 1
        observation, reward, _, _, info = super().step(action)
        if self.old_info:
            info["TimeLimit.truncated"] = self.steps >= 5
        return observation, reward, self.steps >= (5 if self.old_info else 20), False, info


class KeepsGenerator(PointRobotEnv):
    """Seeds itself at the first reset only."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed if self._np_random is None else None, options=options)


class ForgetsState(SimulatorSlots):
    """``resume`` leaves the slots where their reset has put them."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots, PointRobotEnv().simulator)

    def resume(self, slots: np.ndarray, state: Any) -> None:
        pass


GOAL = SetTaskUpdate(PointRobotEnv, {"goal": (0.5, -0.5)})
PLANS = [RolloutPlan(0, (0, 0, 0)), RolloutPlan(1, (0, 0, 1), GOAL), RolloutPlan(2, (0, 0, 2))]


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (Aliased, "memory"),
        (StateHandedOut, "memory"),
        (IgnoresMask, "mask"),
        (RewardsFrozen, "mask"),
        (SharedGenerator, "neighbors"),
        (Unseeded, "determinism"),
        (AnySeed, "seed"),
        (KeepsTask, "history"),
        (ChangesActions, "actions"),
        (Float32Rewards, "form"),
        (lambda n: GymSlots(EndsAtLimit, n), "time_limit"),
        (lambda n: GymSlots(lambda: EndsAtLimit(old_info=True), n), "time_limit"),
        (lambda n: GymSlots(KeepsGenerator, n), "history"),
        (ForgetsState, "resume"),
    ],
)
def test_planted_faults_are_found(make: Any, rule: str) -> None:
    plans = None if rule in ("time_limit",) else PLANS
    with pytest.raises(ConformanceError, match=f"^{rule}: ") as caught:
        check_slots(make, plans)
    assert caught.value.rule == rule


def test_aliasing_environment_behind_gym_slots_is_cured() -> None:
    """specs/meta.md Q-02: an environment may return one buffer, the slots return copies"""

    class OneBuffer(PointRobotEnv):
        def reset(self, **kwargs: Any) -> Any:
            observation, info = super().reset(**kwargs)
            self.buffer = observation
            return self.buffer, info

        def step(self, action: np.ndarray) -> Any:
            observation, *rest = super().step(action)
            self.buffer[:] = observation
            return self.buffer, *rest

    check_slots(lambda n: GymSlots(OneBuffer, n), PLANS)


def test_honest_slots_pass() -> None:
    check_slots(PointRobotSlots, PLANS)
    check_slots(lambda n: GymSlots(lambda: gymnasium.wrappers.TimeLimit(PointRobotEnv(), 5), n), time_limit=5)
    with pytest.raises(ValueError, match="at least 2"):
        check_slots(PointRobotSlots, PLANS[:1])


def test_what_makes_no_slots_is_named() -> None:
    for wrong in ("Pendulum-v1", None):
        with pytest.raises(TypeError, match=r"make must be a function from a number to Slots .*, got"):
            check_slots(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"make\(1\) must return Slots, got 'CartPole-v1' of type str"):
        check_slots(lambda num_slots: "CartPole-v1")  # type: ignore[arg-type, return-value]


# ---- every kind of slots, every family -------------------------------------------------------------------------------


def family_case(name: str) -> tuple[Callable[[int], Any], list[RolloutPlan]]:
    """Slots of a family, and rollouts in three of its tasks (in those that there are)."""
    family = get_family(name)
    tasks = family.split()[0] if family.all_tasks else family.split(3, 1)[0]
    plans = [RolloutPlan(number, (0, 0, number), tasks[number % len(tasks)]) for number in range(3)]
    return lambda num_slots: make_slots(family.env_constructor, num_slots), plans


@pytest.mark.parametrize("name", family_names())
def test_slots_of_every_family_keep_their_promises(name: str) -> None:
    make, plans = family_case(name)
    check_slots(make, plans, num_steps=12)


KINDS: dict[str, Any] = {
    "batched": "CartPole-v1",
    "list": lambda: gymnasium.wrappers.TimeLimit(PointRobotEnv(), 20),
    "physics": "Hopper-v5",
}


@pytest.mark.parametrize("kind", KINDS)
def test_slots_of_every_kind_keep_their_promises(kind: str) -> None:
    slots = make_slots(KINDS[kind], 1)
    assert slots.info.kind == kind
    slots.close()
    check_slots(lambda num_slots: make_slots(KINDS[kind], num_slots), num_steps=30)


def test_slots_of_vector_environments_keep_their_promises() -> None:
    def make(num_slots: int) -> Any:
        vector = functools.partial(gymnasium.vector.SyncVectorEnv, [PointRobotEnv] * num_slots)
        return make_slots(vector, num_slots)

    assert make(1).info.kind == "vector"
    check_slots(make, num_steps=12)


def test_no_slot_need_be_active() -> None:
    for name in ("ant-goal", "humanoid-dir"):  # whose costs are of contact forces
        make, plans = family_case(name)
        slots = make(2)
        first = slots.reset([0, 1], plans[:2])
        result = slots.step(np.zeros((2, slots.env_spec.act_dim)), np.zeros(2, dtype=bool))
        assert np.array_equal(result.observations, first) and not result.rewards.any()
        slots.close()
