"""Trials: several episodes of one task as one rollout."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from metaroll import (
    DomainParamUpdate,
    DomainRandomizer,
    RolloutEngine,
    RolloutPlan,
    SetTaskUpdate,
    TaskFamily,
    UniformDomainParam,
    make_slots,
    rollout,
)
from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.lookup.registry import get_family
from metaroll.envs.lookup.source import env_kind
from metaroll.envs.point.point_robot import SparsePointRobotEnv
from metaroll.envs.sims.catalog import OneMassOscillatorEnv
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.envs.wrappers.trials import TrialUpdate
from metaroll.errors import InvalidValueError, RolloutError
from metaroll.policies import CategoricalGRUPolicy, DummyPolicy, GRUGaussianPolicy
from metaroll.rollouts.engine.slot_loop import SlotLoop
from metaroll.tasks.plan_table import PlanTable, plan_env_seeds
from metaroll.testing import check_slots
from metaroll.types import EnvSpec, Slots, SlotsInfo, SlotStep
from metaroll.wrappers import ActDelayWrapper, DomainParamTransformWrapper, DomainRandWrapperLive, TrialWrapper


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


@pytest.mark.parametrize("batched", [False, True])
def test_the_last_reward_that_is_seen_may_be_another_one(batched: bool) -> None:
    update = TrialUpdate(SetTaskUpdate(SparsePointRobotEnv, {"goal": (0.0, 0.3)}), 2, 8, "sparse_reward")
    policy = DummyPolicy(EnvSpec.from_env(update()))
    if batched:
        with RolloutEngine(update, policy) as engine:
            made = list(engine.run([RolloutPlan(i, (0, 0, i), update) for i in range(6)]))
    else:
        made = [rollout(update(), policy, seed=0, sub_seed=i) for i in range(6)]
    for one in made:
        seen = one.observations[1:, -2]
        np.testing.assert_allclose(seen, one.env_infos["sparse_reward"], rtol=1e-6)
        assert (one.rewards < 0.0).all() and np.isfinite(seen).all()
    assert any((one.observations[1:, -2] > 0.0).any() for one in made)
    assert update == TrialUpdate(update.update, 2, 8, "sparse_reward") != TrialUpdate(update.update, 2, 8)
    with pytest.raises(RolloutError, match=r"the info 'hidden' must be .* with every step.* has: at"):
        rollout(TrialWrapper(Walk(), 2, 5, "hidden"), lambda obs: 1, seed=0, max_steps=3)


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
    assert not isinstance(make_slots(env, 4), GymSlots) and make_slots(env, 4).env_spec == GymSlots(env, 4).env_spec
    check_slots(lambda n: make_slots(env, n), num_steps=40, like=lambda n: GymSlots(env, n))
    check_slots(lambda n: GymSlots(env, n), num_steps=12)


def test_tasks_hold_for_a_whole_trial() -> None:
    plan = RolloutPlan(0, (0, 0, 0), env_update=SetTaskUpdate(Walk, 2.5))
    with RolloutEngine(lambda: TrialWrapper(Walk(), 2), lambda obs: 1, transport="serial") as engine:
        (result,) = engine.run([plan])
    numbers = result.env_infos["episode"]
    assert (result.observations[-1, 0] >= 2.5) and result.rewards[numbers == 0][-1] >= 2.5


def test_what_makes_no_trial_is_refused() -> None:
    with pytest.raises(ValueError, match="must not hold a TrialWrapper: wrap the environment inside it"):
        TrialWrapper(TrialWrapper(Walk(), 2), 2)
    randomized = DomainRandWrapperLive(Walk(), DomainRandomizer(UniformDomainParam("goal", 1.0, 0.1)))
    with pytest.raises(ValueError, match="change the task in a trial: put it outside"):
        TrialWrapper(randomized, 2)
    with pytest.raises(ValueError, match="episodes_per_trial must be"):
        TrialWrapper(Walk(), 0)
    with pytest.raises(TypeError, match="Box or Discrete observation_space, got Tuple"):
        TrialWrapper(gymnasium.make("Blackjack-v1"), 2)
    for maker in (lambda: TrialWrapper(gymnasium.make("CartPole-v1"), 2), functools.partial(TrialWrapper, Walk(), 2)):
        with pytest.raises(TypeError, match=r"has no sample_tasks\(num_tasks\): add it"):
            TaskFamily.from_env(maker)


@pytest.mark.parametrize("env", ["CartPole-v1", Walk, None])
def test_what_is_no_environment_cannot_be_wrapped(env) -> None:
    with pytest.raises(
        TypeError, match=r"env must be an environment \(.*gymnasium.make\(id\) makes one\), got .* of type"
    ):
        TrialWrapper(env, 2)
    with pytest.raises(TypeError, match="env must be an environment"):
        DomainRandWrapperLive(env, DomainRandomizer())


def test_a_trial_says_where_its_tasks_are() -> None:
    trial, bare = TrialWrapper(Walk(), 2), TrialWrapper(gymnasium.make("CartPole-v1"), 2)
    with pytest.raises(AttributeError, match=r"no attribute 'set_task'; call env.unwrapped.set_task"):
        trial.set_task(1.0)
    with pytest.raises(AttributeError, match="'sample_tasks', and CartPoleEnv inside lacks it: add it there"):
        bare.sample_tasks(2)
    with pytest.raises(
        AttributeError, match="'get_task', and Walk inside lacks it: add it there, or remember the task"
    ):
        trial.get_task()
    robot = TrialWrapper(get_family("point-robot").env_constructor(), 2)
    with pytest.raises(AttributeError, match=r"'get_task'; call env\.unwrapped\.get_task"):
        robot.get_task()
    with pytest.raises(TypeError, match=r"set_task\(task\), got TrialWrapper around .*CartPoleEnv; add the method"):
        SetTaskUpdate(TrialWrapper, {"goal": 1.0})(bare)
    assert not hasattr(trial, "set_task") and not hasattr(trial, "nothing")
    assert pickle.loads(pickle.dumps(trial)).episodes_per_trial == copy.deepcopy(trial).episodes_per_trial == 2


def test_on_a_device_the_wrapper_is_named() -> None:
    env = TrialWrapper(get_family("point-robot").env_constructor(), 2)
    with pytest.raises(TypeError, match="but PointRobotEnv in a TrialWrapper is not; leave device out"):
        RolloutEngine(env, GRUGaussianPolicy(env.env_spec), device="cpu")


FAMILIES = ["bandit-5", "random-mdp", "point-navigation", "point-momentum", "sparse-point-robot", "qq-su"]
"""Discrete and Box observations and actions, with and without a state of their own, and a simulated system."""


def trial_of(name: str, limit: int = 6) -> TrialWrapper:
    return TrialWrapper(get_family(name).env_constructor(), 3, limit)


class Listed(gymnasium.Wrapper):
    """Around what could be stepped as arrays: one environment after the other."""


def listed_trial_of(name: str, limit: int = 6) -> gymnasium.Env:
    return Listed(trial_of(name, limit))


def plans_of(name: str, num: int = 8) -> list[RolloutPlan]:
    updates = get_family(name).samplers(seed=3)[0].sample(3)
    return [RolloutPlan(i, (1, 0, i), updates[i % 3]) for i in range(num)]


@pytest.mark.parametrize("name", FAMILIES)
def test_trials_of_simulators_are_those_of_single_environments(name: str) -> None:
    env = trial_of(name)
    check_slots(lambda n: make_slots(env, n), num_steps=20, like=lambda n: GymSlots(env, n))


@pytest.mark.parametrize("name", FAMILIES)
def test_simulators_show_the_trials_of_single_environments(name: str) -> None:
    env = trial_of(name)
    batched, listed = make_slots(env, 5), GymSlots(env, 5)
    assert isinstance(batched._slots, SimulatorSlots) and batched.env_spec == listed.env_spec  # type: ignore
    plans = plans_of(name, 5)
    np.testing.assert_array_equal(batched.reset(range(5), plans), listed.reset(range(5), plans))
    space, asked = env.action_space, np.ones(5, dtype=bool)
    space.seed(0)
    numbers: list[Any] = []
    for t in range(18):
        actions = np.stack([space.sample() for _ in range(5)])
        one, two = batched.step(actions, asked), listed.step(actions, asked)
        for field in ("observations", "rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(one, field)[asked], getattr(two, field)[asked])
        numbers.append(one.infos["episode"].tolist())  # type: ignore[call-overload]
        asked = asked & ~(one.terminated | one.truncated)
        if t == 8:  # in the middle of the second episode
            kept = np.array([0, 2, 3])
            batched.keep(kept)
            batched.reset([1], plans[2:3])
            listed.reset([2], plans[2:3])
            break
    assert numbers[0] == [0] * 5 and {1} <= set(numbers[-1])
    for _ in range(10):
        actions = np.stack([space.sample() for _ in range(5)])
        one, two = batched.step(actions[kept], asked[kept]), listed.step(actions, asked)
        np.testing.assert_array_equal(one.observations[asked[kept]], two.observations[kept][asked[kept]])
        asked = asked & ~(two.terminated | two.truncated)


def test_memory_goes_on_over_episodes_in_any_number_of_workers(shared_pools: Any) -> None:
    for name in ("bandit-5", "random-mdp", "point-navigation", "qq-su"):
        maker, listed = functools.partial(trial_of, name), functools.partial(listed_trial_of, name)
        assert env_kind(maker) != "list" and env_kind(listed) == "list"
        spec = maker().env_spec
        kind: Any = CategoricalGRUPolicy if isinstance(spec.action_space, Discrete) else GRUGaussianPolicy
        policy = kind(spec, hidden_size=8, generator=torch.Generator().manual_seed(1))
        policy.head.weight.data *= 20.0  # memories tell in what is chosen
        found: list[Any] = []
        settings: list[tuple[Any, dict[str, Any]]] = [
            (maker, {"transport": "serial"}),
            (listed, {"transport": "serial"}),
            (maker, {"transport": "serial", "slots_per_unit": 3}),
            (maker, {"pool": shared_pools[2], "slots_per_unit": 3}),
        ]
        for env, options in settings:
            with RolloutEngine(env, policy, **options) as engine:
                found.append(engine.run(plans_of(name)))
        for others in found[1:]:
            for result, other in zip(found[0], others, strict=True):
                for field in ("observations", "actions", "rewards", "terminated", "truncated"):
                    np.testing.assert_array_equal(getattr(result, field), getattr(other, field), err_msg=name)
        for result in found[0]:
            assert set(result.env_infos["episode"].tolist()) == {0, 1, 2}
            check_memory(policy, result)


def check_memory(policy: Any, result: Any) -> None:
    """What was chosen is what a pass over the whole trial says, and not what one over its last episode says."""
    second = int(np.argmax(result.env_infos["episode"] == 1))
    obs = torch.as_tensor(result.observations[:-1], dtype=torch.float32)
    with torch.no_grad():
        whole, part = policy(obs)[0].numpy(), policy(obs[second:])[0].numpy()
    infos = result.policy_infos
    told = np.log(infos["prob"]) if isinstance(policy, CategoricalGRUPolicy) else infos["mean"]
    np.testing.assert_allclose(told, whole, rtol=1e-4, atol=1e-4)
    assert np.abs(told[second] - part[0]).max() > 1e-2


def test_discrete_observations_are_one_hot() -> None:
    env = TrialWrapper(gymnasium.make("FrozenLake-v1", is_slippery=False), 2, 4)
    assert env.observation_space.shape == (16 + 4 + 2,)
    result = rollout(env, lambda obs: 2, seed=0)
    np.testing.assert_array_equal(result.observations[:, :16].argmax(1), [0, 1, 2, 3, 0, 1, 2, 3, 3])
    assert (result.observations[:, :16].sum(1) == 1).all()
    bandit = rollout(trial_of("bandit-5"), lambda obs: 3, seed=0)
    np.testing.assert_array_equal(bandit.observations[1:, 0], 1.0)
    np.testing.assert_array_equal(bandit.observations[1:, 1:6], np.tile(np.eye(5)[3], (18, 1)))


def test_first_states_are_those_of_the_first_episode() -> None:
    env = trial_of("point-momentum")
    init = np.array([0.5, -0.5, 0.0, 0.0])
    plans = [RolloutPlan(i, (1, 0, i), init_state=init if i == 1 else None) for i in range(3)]
    batched, listed = make_slots(env, 3), GymSlots(env, 3)
    np.testing.assert_array_equal(batched.reset(range(3), plans), listed.reset(range(3), plans))
    for _ in range(7):
        one, two = (slots.step(np.full((3, 2), 0.1), np.ones(3, bool)) for slots in (batched, listed))
        np.testing.assert_array_equal(one.observations, two.observations)
    assert plans[1].init_state is init


class RobotTrial(TrialWrapper):
    """A class of trials is a family of tasks whose updates name the class."""

    def __init__(self) -> None:
        super().__init__(get_family("point-robot").env_constructor(), 2, 5)


class BanditTrial(TrialWrapper):
    def __init__(self) -> None:
        super().__init__(get_family("bandit-5").env_constructor(), 2, 5)


class WalkTrial(TrialWrapper):
    """A task is set by the wrapper, which no simulator inside knows."""

    def __init__(self) -> None:
        super().__init__(get_family("point-robot").env_constructor(), 2, 5)

    def set_task(self, task: Any) -> None:
        self.unwrapped.set_task({"goal": -np.asarray(task["goal"])})  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [RobotTrial, BanditTrial, WalkTrial])
def test_tasks_of_a_class_of_trials_are_set_in_its_simulator(kind: type) -> None:
    updates = TaskFamily.from_env(kind).samplers(seed=0)[0].sample(4)
    plans = [RolloutPlan(i, (2, 0, i), update) for i, update in enumerate([*updates, None])]
    assert updates[0].env_type is kind  # type: ignore[attr-defined]
    assert env_kind(kind, plans) == ("list" if kind is WalkTrial else "batched")
    policy_of = CategoricalGRUPolicy if kind is BanditTrial else GRUGaussianPolicy
    policy = policy_of(kind().env_spec, hidden_size=4, generator=torch.Generator().manual_seed(0))
    with RolloutEngine(kind, policy, transport="serial") as engine:
        found = engine.run(plans)
    for i, (one, update) in enumerate(zip(found, [*updates, kind], strict=True)):
        other = rollout(update(), policy, seed=2, sub_seed=0, sub_sub_seed=i)  # type: ignore[operator]
        for field in ("observations", "actions", "rewards"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
    assert len({result.rewards.tobytes() for result in found}) > 2


@pytest.mark.parametrize("scaled", [False, True])
def test_later_episodes_start_from_seeds_of_their_own_in_wrappers_that_change_plans(scaled: bool) -> None:
    """Whatever ends beside them: updates of some rollouts must not change the seeds of any."""

    def env() -> TrialWrapper:
        inner: Any = ActDelayWrapper(OneMassOscillatorEnv(max_steps=5))
        return TrialWrapper(DomainParamTransformWrapper(inner, {"mass": "log"}) if scaled else inner, 3)

    updates = [None, DomainParamUpdate({"act_delay": 2}), DomainParamUpdate({"mass": 0.7}), None]
    plans = [RolloutPlan(i, (3, 1, i), updates[i % 4]) for i in range(8)]
    plans[2] = plans[2].with_(init_state=np.array([0.3, 0.1]))
    policy = GRUGaussianPolicy(EnvSpec.from_env(env()), hidden_size=4)
    found = []
    for width in (1, 3, 8):
        with RolloutEngine(env, policy, slots_per_unit=width) as engine:
            found.append(engine.run(plans))
    found.append(SlotLoop(GymSlots(env, 4), policy, plans, parameters=policy.acting_parameters()).advance())
    for name in ("observations", "rewards"):
        for other in found[1:]:
            np.testing.assert_array_equal(other.column(name), found[0].column(name))
    starts = found[0][0].observations[[0, 5, 10], 0]
    assert len(set(starts.tolist())) == 3


def test_an_update_of_another_plan_of_the_table_is_not_looked_at() -> None:
    plans = PlanTable([RolloutPlan(i, (3, 1, i), DomainParamUpdate({"act_delay": 2.5 if i else 1})) for i in range(2)])
    slots = make_slots(TrialWrapper(ActDelayWrapper(OneMassOscillatorEnv(max_steps=5)), 2), 1)
    assert slots.reset([0], plans.take([0])).shape == (1, 5)
    with pytest.raises(ValueError, match=r"act_delay must be a whole number of steps, got 2\.5"):
        slots.reset([0], plans.take([1]))


class NaNReward(gymnasium.Env):
    """Its third reward is no number."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(1, np.float32), np.nan if self.steps == 3 else 1.0, False, self.steps == 5, {}


def test_a_reward_that_is_not_finite_is_called_a_reward() -> None:
    """The trial shows it in the next observation, too."""
    with pytest.raises(InvalidValueError, match="reward is not finite at step 2") as raised:
        rollout(TrialWrapper(NaNReward(), 2, 5), lambda obs: 0, seed=0)
    assert raised.value.what == "reward"
