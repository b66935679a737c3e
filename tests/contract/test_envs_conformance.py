"""The conformance kit finds planted faults (specs/meta.md Q-02, Q-24; design.md 7)."""

from __future__ import annotations

import copy
import functools
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.utils.env_checker import check_env

from metaroll import DomainParamUpdate
from metaroll.data.compare import trees_equal
from metaroll.envs.base.batched_env import SettableTask
from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.lookup.registry import family_names, get_family
from metaroll.envs.lookup.source import EnvSource, make_slots
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.policies import DummyPolicy
from metaroll.tasks.task_key import task_key
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.testing import ConformanceError, assert_worker_invariant, check_slots
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


class ResetsNeighbors(PointRobotSlots):
    """The reset of one slot puts all others where they began, too."""

    def reset(self, slots: Any, plans: Any) -> np.ndarray:
        first = super().reset(slots, plans)
        if len(slots) < self.num_slots:
            self.rows.state[0][:] = 0.0
        return first


class AnotherKind(GymSlots):
    """One environment after the other, and farther from the goal than the array code says."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(PointRobotEnv, num_slots)

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        result = super().step(actions, active)
        return result._replace(rewards=np.where(active, result.rewards - 1e-9, 0.0))


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


class Blind(PointRobotSlots):
    """Observes NaN, and nothing else."""

    def reset(self, slots: Any, plans: Any) -> np.ndarray:
        return np.full_like(super().reset(slots, plans), np.nan)

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        result = super().step(actions, active)
        return result._replace(observations=np.full_like(result.observations, np.nan))


class RewardsNothing(PointRobotSlots):
    """Rewards of NaN."""

    def step(self, actions: np.ndarray, active: np.ndarray) -> SlotStep:
        result = super().step(actions, active)
        return result._replace(rewards=np.where(active, np.nan, 0.0))


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
        (ResetsNeighbors, "neighbors"),
        (Unseeded, "determinism"),
        (AnySeed, "seed"),
        (KeepsTask, "history"),
        (ChangesActions, "actions"),
        (Float32Rewards, "form"),
        (Blind, "numbers"),
        (RewardsNothing, "numbers"),
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
    assert caught.value.rule == rule and not re.search(r"\bnp\.|\n", caught.value.seen), "plain and short"


def test_kinds_that_differ_are_found() -> None:
    with pytest.raises(ConformanceError, match=r"^kinds: slots of kind 'list' .* 'batched': rewards of rollout 0"):
        check_slots(PointRobotSlots, PLANS, like=AnotherKind)


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


def test_correct_slots_pass() -> None:
    check_slots(PointRobotSlots, PLANS)
    check_slots(lambda n: GymSlots(lambda: gymnasium.wrappers.TimeLimit(PointRobotEnv(), 5), n), time_limit=5)
    with pytest.raises(ValueError, match="at least 2"):
        check_slots(PointRobotSlots, PLANS[:1])


def test_wrong_slots_are_errors() -> None:
    for wrong in ("Pendulum-v1", None):
        with pytest.raises(
            TypeError, match=r"make must be a function from a number to Slots, got .* make_slots\(env, n\)"
        ):
            check_slots(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"make\(1\) must return Slots, got 'CartPole-v1' of type str"):
        check_slots(lambda num_slots: "CartPole-v1")  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match=r"make\(1\) must return Slots, got the error .* make_slots\(env, n\)"):
        check_slots(lambda: PointRobotEnv())  # type: ignore[arg-type, misc]


# ---- every family ----------------------------------------------------------------------------------------------------

FAMILIES = family_names()
SIMULATED = [name for name in FAMILIES if isinstance(get_family(name).env_constructor(), SettableTask)]
"""Those of points in the plane, bandits and random MDPs."""


def family_case(name: str) -> tuple[Callable[[int], Any], list[RolloutPlan]]:
    """Slots of a family, and rollouts in its tasks, in none, and from a given state."""
    family = get_family(name)
    env: Any = family.env_constructor()
    tasks = family.split()[0] if family.all_tasks else family.split(3, 1)[0]
    updates = [*(tasks[number % len(tasks)] for number in range(3)), None, tasks[0]]
    plans = [RolloutPlan(number, (0, 0, number), update) for number, update in enumerate(updates)]
    if name in SIMULATED:
        plans[4] = plans[4].with_(init_state=np.arange(env.simulator.state_dim) % 2)
    elif hasattr(env, "state_space"):
        env.reset(seed=5)
        plans[4] = plans[4].with_(init_state=env.state)
    return lambda num_slots: make_slots(family.env_constructor, num_slots, plans=plans), plans


@pytest.mark.parametrize("name", FAMILIES)
def test_slots_of_every_family_keep_their_promises(name: str) -> None:
    make, plans = family_case(name)
    slots = make(1)
    assert slots.info.kind in ("batched", "physics")
    # 40 is more than one block of noise; episodes of the ball and beam end later.
    num_steps = 12 if slots.info.kind == "physics" else 70 if name == "bob" else 40
    check_slots(make, plans, num_steps=num_steps, like=lambda n: GymSlots(get_family(name).env_constructor, n))


@pytest.mark.parametrize("name", FAMILIES)
def test_tasks_of_every_family_differ_and_are_of_its_environment(name: str) -> None:
    family = get_family(name)
    train, test = family.split(seed=3)
    assert (len(train), len(test)) == (family.num_train_tasks, family.num_test_tasks)
    assert len({task_key(update.task) for update in train + test}) == len(test if family.same_tasks else train + test)
    limit = make_slots(name, 1).env_spec.max_episode_length
    assert family.horizon == (1 if name.startswith("bandit") else limit)
    kinds = {type(sampler.sample(1)[0]().unwrapped) for sampler in family.samplers(seed=1)}
    assert kinds == {type(family.env_constructor().unwrapped)}


@pytest.mark.parametrize("name", SIMULATED)
def test_single_environments_are_gymnasiums(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A point may go anywhere, as a MuJoCo body may: Gymnasium finds infinite bounds worth a warning.
        warnings.filterwarnings("ignore", message=".*(infinity|maximum value|wasn't initialized|not initialized).*")
        warnings.filterwarnings("ignore", message=".*we recommend.*")
        check_env(get_family(name).env_constructor(), skip_render_check=True)


@pytest.mark.parametrize("name", SIMULATED)
def test_copies_continue_exactly_where_the_environment_is(name: str) -> None:
    env: Any = get_family(name).env_constructor()
    env.set_task(env.sample_tasks(1, generator=3)[0])
    env.reset(seed=1)
    action = 0 if isinstance(env.action_space, Discrete) else np.full(2, 0.5)
    env.step(action)
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    expected = [env.step(action)[:2] for _ in range(80)]
    for twin in twins:
        assert task_key(twin.get_task()) == task_key(env.get_task())
        assert trees_equal([twin.step(action)[:2] for _ in range(80)], expected)


# ---- every kind of slots ---------------------------------------------------------------------------------------------

CLASSIC = ("Acrobot-v1", "CartPole-v0", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")
KINDS: dict[str, tuple[Any, str]] = {
    **{name: (name, "batched") for name in CLASSIC},
    "Hopper-v5": ("Hopper-v5", "physics"),
    "Gaussian": ("metaroll/Gaussian2D-v0", "batched"),
    "point": (lambda: gymnasium.wrappers.TimeLimit(PointRobotEnv(), 20), "list"),
}


@pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date")
@pytest.mark.parametrize("name", KINDS)
def test_slots_of_every_kind_keep_their_promises(name: str) -> None:
    source, kind = KINDS[name]
    params = {"Pendulum-v1": {"g": 4.0}, "Hopper-v5": {"body_mass:*": 1.4}}.get(name)
    updates = [None, None if params is None else DomainParamUpdate(params)] * 2
    plans = [RolloutPlan(number, (0, 0, number), update) for number, update in enumerate(updates)]
    slots = make_slots(source, 1)
    assert slots.info.kind == kind
    slots.close()
    check_slots(lambda n: make_slots(source, n), plans, num_steps=40, like=lambda n: GymSlots(source, n))


WORKED: dict[str, Any] = {
    **{name: name for name in ("CartPole-v1", "HalfCheetah-v5", "pend", "point-goal", "random-mdp")},
    "point": KINDS["point"][0],
    "vector": functools.partial(gymnasium.vector.SyncVectorEnv, [PointRobotEnv] * 3),
}


@pytest.mark.parametrize("name", WORKED)
def test_rollouts_of_every_kind_have_the_same_bits_in_workers(name: str, shared_pools: Any) -> None:
    source = WORKED[name]
    tasks = get_family(name).split(4, 1)[0] if name in FAMILIES else [None]
    plans = [RolloutPlan(i, (3, 0, i), tasks[i % len(tasks)], max_steps=12) for i in range(17)]
    assert_worker_invariant(source, DummyPolicy(EnvSource.of(source).spec), plans, num_workers=[shared_pools[2]])


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
