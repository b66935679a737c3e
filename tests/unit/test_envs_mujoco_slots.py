"""Batched MuJoCo against Gymnasium's own environments (design: the kind of slots changes no bit of a rollout)."""

from __future__ import annotations

import functools
import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from interruptions import is_interrupted, last_times

from metaroll import RolloutEngine, make_slots
from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.lookup.source import env_kind
from metaroll.envs.mujoco.threads import PhysicsThreads, physics_threads
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.errors import InvalidValueError, ShapeError, SlotError
from metaroll.policies import GaussianMLPPolicy
from metaroll.rollouts.engine.slot_loop import SlotLoop
from metaroll.rollouts.requests import Kept
from metaroll.seeding import torch_generator
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.plan_table import plan_env_seed
from metaroll.types import EnvSpec, RolloutPlan

pytestmark = pytest.mark.usefixtures("lent_pools")

ROBOTS = (
    "Ant",
    "HalfCheetah",
    "Hopper",
    "Humanoid",
    "InvertedDoublePendulum",
    "InvertedPendulum",
    "Pusher",
    "Reacher",
    "Swimmer",
    "Walker2d",
)


def actions_of(space: Any, num_steps: int, seed: int = 0) -> np.ndarray:
    """Also outside the range: MuJoCo clips, costs do not."""
    drawn = np.random.default_rng(seed).uniform(-1.2, 1.2, (num_steps, *space.shape))
    return (drawn * space.high).astype(np.float32)


def policy_of(env: str) -> GaussianMLPPolicy:
    with gymnasium.make(env, disable_env_checker=True) as made:
        spec = EnvSpec.from_env(made)
    return GaussianMLPPolicy(spec, hidden_sizes=(8,), generator=torch_generator(0))


@pytest.mark.parametrize("robot", ROBOTS)
def test_trajectories_are_gymnasiums(robot: str) -> None:
    """200 steps with several simulations side by side, each started anew when it ends; forces of contacts included."""
    name, num = f"{robot}-v5", 3
    slots: Any = make_slots(name, num)
    assert type(slots) is SimulatorSlots
    envs = [gymnasium.make(name, disable_env_checker=True) for _ in range(num)]
    plans = [RolloutPlan(i, (5, 0, i)) for i in range(num)]
    first = slots.reset(range(num), plans)
    for row, env, plan in zip(first, envs, plans, strict=True):
        assert plan.seed is not None
        np.testing.assert_array_equal(row, env.reset(seed=plan_env_seed(plan.seed))[0])
    active, largest_force, actions = np.ones(num, dtype=bool), 0.0, actions_of(envs[0].action_space, 200 * num)
    for step in range(200):
        given = actions[step * num : (step + 1) * num]
        result = slots.step(given, active)
        for i, env in enumerate(envs):
            observation, reward, terminated, truncated, info = env.step(given[i])
            np.testing.assert_array_equal(result.observations[i], observation)
            assert result.rewards[i] == reward
            assert (result.terminated[i], result.truncated[i]) == (terminated, truncated)
            assert result.infos.keys() == info.keys()
            for key, value in info.items():
                np.testing.assert_array_equal(result.infos[key][i], value)
                assert result.infos[key].dtype == np.asarray(value).dtype
            if terminated or truncated:
                plan = RolloutPlan(i, (6, step, i))
                assert plan.seed is not None
                row = slots.reset([i], [plan])[0]
                np.testing.assert_array_equal(row, env.reset(seed=plan_env_seed(plan.seed))[0])
            if robot in ("Ant", "Humanoid"):
                simulator: Any = env.unwrapped
                largest_force = max(largest_force, float(np.abs(simulator.data.cfrc_ext).max()))
    assert (largest_force > 0) == (robot in ("Ant", "Humanoid"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Ant-v5", {"healthy_reward": 2, "include_cfrc_ext_in_observation": False, "contact_force_range": (-0.5, 0.2)}),
        ("Humanoid-v5", {"exclude_current_positions_from_observation": False, "include_cvel_in_observation": False}),
        ("Hopper-v5", {"terminate_when_unhealthy": False, "max_episode_steps": 7, "frame_skip": 2}),
        ("Reacher-v5", {"reward_control_weight": 0.3}),
    ],
)
def test_arguments_of_make_hold(name: str, options: dict[str, Any]) -> None:
    make = functools.partial(gymnasium.make, name, disable_env_checker=True, **options)
    compare(make_slots(make, 2), GymSlots(make, 2), [RolloutPlan(i, (1, 0, i)) for i in range(2)], 10)


def test_physics_of_each_slot() -> None:
    """Masses, friction and the time step differ between slots, and nothing stays of the plan before."""
    updates = [
        DomainParamUpdate({"body_mass:torso": 3.0, "geom_friction:*": 0.5}),
        None,
        DomainParamUpdate({"opt_timestep": 0.004, "dof_damping:*": 2.0}),
        DomainParamUpdate({"body_mass:torso": 9.0}),
    ]
    plans = [RolloutPlan(i, (1, 0, i), update) for i, update in enumerate(updates)]
    batched, listed = make_slots("HalfCheetah-v5", 4, plans=plans), GymSlots("HalfCheetah-v5", 4)
    assert type(batched) is SimulatorSlots
    first = compare(batched, listed, plans, 30)
    assert len({row.tobytes() for row in first}) == 4
    compare(batched, listed, [plans[2], plans[0], plans[3], plans[1]], 30)
    assert batched.domain_param(2) == {"body_mass:torso": 9.0}  # type: ignore[attr-defined]
    assert batched.domain_param(3) is None  # type: ignore[attr-defined]


def compare(batched: Any, listed: Any, plans: list[RolloutPlan], num_steps: int) -> np.ndarray:
    """Step both until ``num_steps`` or an ending; last observations."""
    rows = list(range(len(plans)))
    np.testing.assert_array_equal(batched.reset(rows, plans), listed.reset(rows, plans))
    active = np.arange(batched.num_slots) < len(plans)
    drawn = actions_of(batched.env_spec.action_space, num_steps * batched.num_slots)
    result = None
    for actions in drawn.reshape(num_steps, batched.num_slots, -1):
        result, expected = batched.step(actions, active), listed.step(actions, active)
        for one, other in zip(result[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(one[rows], other[rows])
        assert [batched.domain_param(i) for i in rows] == [listed.domain_param(i) for i in rows]
        if (result.terminated | result.truncated).all():
            break
    assert result is not None
    return result.observations[rows]


def test_extras_equal_those_of_a_list() -> None:
    """The time, which depends on the time step of each rollout."""
    policy, updates = policy_of("Swimmer-v5"), [None, DomainParamUpdate({"opt_timestep": 0.005})]
    plans = [RolloutPlan(i, (2, 0, i), update, max_steps=5) for i, update in enumerate(updates)]
    with RolloutEngine("Swimmer-v5", policy, record_extras=True) as engine:
        batched = engine.run(plans)
    listed = []
    for plan in plans:
        with RolloutEngine(functools.partial(passed_on, "Swimmer-v5"), policy, record_extras=True) as engine:
            listed += engine.run([plan])
    for one, other in zip(batched, listed, strict=True):
        assert set(one.data_names) == set(other.data_names)
        np.testing.assert_array_equal(np.asarray(one.time), np.asarray(other.time))
        np.testing.assert_array_equal(np.asarray(one.observations), np.asarray(other.observations))
    assert batched[1].time[-1] == pytest.approx(0.1)
    assert batched[1].rollout_info["domain_param"] == {"opt_timestep": 0.005}


def passed_on(name: str) -> gymnasium.Env:
    """An environment in a wrapper that nobody knows."""
    return gymnasium.Wrapper(gymnasium.make(name, disable_env_checker=True))


def louder() -> gymnasium.Env:
    from gymnasium.envs.mujoco.swimmer_v5 import SwimmerEnv

    class Louder(SwimmerEnv):
        def step(self, action):
            return super().step(0.5 * action)

    return Louder()


def replaced() -> gymnasium.Env:
    env = gymnasium.make("Swimmer-v5", disable_env_checker=True)
    simulator: Any = env.unwrapped
    simulator.control_cost = lambda action: 0.0
    return env


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("Swimmer-v5", "physics"),
        ("Swimmer-v4", "list"),
        (functools.partial(gymnasium.make, "Swimmer-v5"), "physics"),
        (functools.partial(passed_on, "Swimmer-v5"), "list"),
        (louder, "list"),
        (replaced, "list"),
        ("cheetah-dir", "physics"),
    ],
)
def test_only_gymnasiums_own_are_batched(source: Any, kind: str) -> None:
    assert env_kind(source) == kind


def test_only_entries_of_the_model_are_batched() -> None:
    model = RolloutPlan(0, (0, 0, 0), DomainParamUpdate({"body_mass:torso": 4.0}))
    other = RolloutPlan(1, (0, 0, 1), DomainParamUpdate({"frame_skip": 2.0}))
    assert env_kind("Swimmer-v5", [model]) == "physics"
    assert env_kind("Swimmer-v5", [model, other]) == "list"
    with pytest.raises(SlotError, match=r"entries of the MuJoCo model.*make_slots\(..., plans=plans\)"):
        make_slots("Swimmer-v5", 1).reset([0], [other])


def test_init_state_of_positions_and_velocities() -> None:
    state = np.linspace(-0.05, 0.05, 10)
    plan = RolloutPlan(0, (0, 0, 0), init_state=state)
    slots, listed = make_slots("Swimmer-v5", 1), GymSlots("Swimmer-v5", 1)
    np.testing.assert_array_equal(slots.reset([0], [plan])[0], state[2:])
    compare(slots, listed, [plan], 5)
    with pytest.raises(SlotError, match=r"init_state must have shape \(10,\), got \(3,\)"):
        slots.reset([0], [plan.with_(init_state=np.zeros(3))])


@pytest.mark.parametrize("make", [make_slots, GymSlots])
def test_physics_that_explode_in_one_slot(make: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo would start the simulation again without a word; the others' rollouts survive."""
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes its log
    wild = np.zeros(18)
    wild[9:] = 1e9
    plans = [RolloutPlan(i, (0, 0, i), init_state=wild if i == 1 else None, max_steps=8) for i in range(3)]
    policy = policy_of("HalfCheetah-v5")
    loop = SlotLoop(make("HalfCheetah-v5", 3), policy, plans, kept=Kept(on_invalid="drop"))
    assert [r.rollout_info["plan"]["index"] for r in loop.advance()] == [0, 2]
    assert [(drop.plan.index, drop.what) for drop in loop.dropped] == [(1, "observation")]
    loop = SlotLoop(make("HalfCheetah-v5", 3), policy, plans)
    with pytest.raises(InvalidValueError, match=r"observation is not finite at step \d+ of rollout 1 "):
        loop.advance()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_nothing(threads: int) -> None:
    plans = [RolloutPlan(i, (4, 0, i)) for i in range(4)]
    with physics_threads(threads):
        slots = make_slots("Walker2d-v5", 4)
    compare(slots, GymSlots("Walker2d-v5", 4), plans, 15)


def test_idle_threads_end_with_their_slots() -> None:
    gc.collect()
    wait_for_threads()  # of slots of other tests
    before = threading.active_count()
    with physics_threads(3):
        slots: Any = make_slots("InvertedPendulum-v5", 4)
    slots.reset(range(4), [RolloutPlan(i, (0, 0, i)) for i in range(4)])
    slots.step(np.zeros((4, 1)), np.ones(4, dtype=bool))
    assert threading.active_count() == before + 2
    gone = weakref.ref(slots)
    del slots
    gc.collect()
    assert gone() is None
    wait_for_threads()
    assert threading.active_count() == before


def wait_for_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "metaroll-physics":
            thread.join(5)


def test_every_slot_is_worked_on_once() -> None:
    seen: list[int] = []

    def loop(slots: Iterator[int]) -> None:
        for slot in slots:
            seen.append(slot)
            time.sleep(0)  # another thread's turn

    threads = PhysicsThreads(4)
    for _ in range(50):
        seen.clear()
        threads.run(loop, range(20))
        assert sorted(seen) == list(range(20))


def test_no_thread_works_when_a_call_was_interrupted() -> None:
    at_work: list[int] = []

    def loop(slots: Iterator[int]) -> None:
        for slot in slots:
            at_work.append(slot)
            time.sleep(1e-3)
            at_work.remove(slot)

    modules, threads = ("/mujoco/threads.py",), PhysicsThreads(3)
    main = threading.current_thread()

    def run() -> None:
        threads.run(lambda slots: None if threading.current_thread() is main else loop(slots), range(6))

    run()
    at = 1
    while is_interrupted(run, at, modules):
        assert not at_work, at
        time.sleep(3e-3)
        assert not at_work, at
        at += 1
    assert at > 12


def test_slots_whose_reset_was_interrupted_start_anew() -> None:
    """Two of them got one simulation: wrong numbers, or the end of the process where two threads stepped it."""
    modules = ("/base/simulator_slots.py", "/mujoco/simulator.py")
    plans = [RolloutPlan(i, (4, 0, i), env_update=DomainParamUpdate({"body_mass:torso": 2.0 + i})) for i in range(3)]
    with physics_threads(1):
        slots, twin = make_slots("Hopper-v5", 3), make_slots("Hopper-v5", 3)
    actions, every = np.full((3, 3), 0.5, np.float32), np.ones(3, dtype=bool)

    def shown(slots: Any) -> list[bytes]:
        return [slots.reset(range(3), plans).tobytes()] + [
            slots.step(actions, every).observations.tobytes() for _ in range(2)
        ]

    expected = shown(twin)
    again = [plan.with_(env_update=DomainParamUpdate({"body_mass:torso": 9.0})) for plan in plans[:2]]
    assert shown(slots) == expected
    for at in last_times(lambda: slots.reset([0, 1], again), modules):
        with np.errstate():  # no signal is handled before the end of a with block, where a line begins
            assert is_interrupted(lambda: slots.reset([0, 1], again), at, modules)
        assert shown(slots) == expected, at


def test_a_reset_that_fails_again_and_again_makes_no_more_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    slots, plans = make_slots("Hopper-v5", 2), [RolloutPlan(i, (4, 0, i)) for i in range(2)]
    first = slots.reset(range(2), plans)

    def fail(model: Any) -> None:
        raise OSError("no constants")

    for _ in range(3):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="no constants"):
            patch.setattr(slots.simulator.rules, "constants", fail)
            slots.reset(range(2), plans)
        np.testing.assert_array_equal(slots.reset(range(2), plans), first)
    assert len(slots.simulator._simulations) <= 4


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_wrong_number_of_threads(count: Any) -> None:
    with pytest.raises(ValueError, match="threads must be a whole number of at least 1"), physics_threads(count):
        pass


def test_wrong_shape_of_actions() -> None:
    slots = make_slots("Swimmer-v5", 2)
    slots.reset([0, 1], [RolloutPlan(i, (0, 0, i)) for i in range(2)])
    with pytest.raises(ShapeError, match=r"actions must have shape \(2, 2\), got \(2, 3\)"):
        slots.step(np.zeros((2, 3)), np.ones(2, dtype=bool))
