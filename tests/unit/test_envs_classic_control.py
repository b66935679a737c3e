"""Gymnasium's classic control as arrays against its own environments (design: the kind of slots changes no bit)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from metaroll import RolloutEngine, SlotsVectorEnv, make_slots
from metaroll.data.compare import first_difference
from metaroll.envs.base.simulator_slots import SimulatorSlots
from metaroll.envs.lookup.source import env_kind
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.errors import ShapeError, SlotError
from metaroll.policies import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.seeding import torch_generator
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.plan_table import plan_env_seed
from metaroll.tasks.updates import NewEnvUpdate
from metaroll.types import EnvSpec, RolloutPlan

pytestmark = [
    pytest.mark.usefixtures("lent_pools"),
    pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date"),
]

IDS = ("Acrobot-v1", "CartPole-v0", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")


def plans_of(num: int, sub_seed: int = 0) -> list[RolloutPlan]:
    return [RolloutPlan(i, (5, sub_seed, i)) for i in range(num)]


def eager_actions(name: str, states: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Mostly what swings up or balances (poles of every other cart may fall), else anything, also out of bounds."""
    chance = generator.random(len(states)) < 0.3
    if name in ("Pendulum-v1", "MountainCarContinuous-v0"):
        wild = 3.0 * generator.normal(size=len(states))
        return np.where(chance, wild, 0.9 * np.sign(states[:, 1]))[:, None].astype(np.float32)
    if name.startswith("CartPole"):
        chance |= np.arange(len(states)) % 2 == 1
        return np.where(chance, generator.integers(2, size=len(states)), states[:, 2] + 0.3 * states[:, 3] > 0)
    speed = states[:, 3] if name == "Acrobot-v1" else states[:, 1]
    return np.where(chance, generator.integers(3, size=len(states)), 1 + np.sign(speed).astype(np.int64))


@pytest.mark.parametrize("name", IDS)
def test_episodes_are_gymnasiums(name: str) -> None:
    """Whole episodes side by side, each started anew when it ends, against environments of ``gymnasium.make``."""
    num, generator = 6, np.random.default_rng(0)
    slots: Any = make_slots(name, num)
    assert type(slots) is SimulatorSlots
    envs = [gymnasium.make(name) for _ in range(num)]
    for row, env, plan in zip(slots.reset(range(num), plans_of(num)), envs, plans_of(num), strict=True):
        assert plan.seed is not None
        np.testing.assert_array_equal(row, env.reset(seed=plan_env_seed(plan.seed))[0])
    active, ends, cuts = np.ones(num, dtype=bool), 0, 0
    limit = gymnasium.spec(name).max_episode_steps
    assert limit is not None and limit == slots.env_spec.max_episode_length
    for step in range(limit + 20):
        actions = eager_actions(name, slots.states(), generator)
        result = slots.step(actions, active)
        assert (result.observations.dtype, result.rewards.dtype) == (np.float32, np.float64)
        for i, env in enumerate(envs):
            given: Any = actions[i] if actions.ndim == 2 else int(actions[i])
            observation, reward, terminated, truncated, _ = env.step(given)
            np.testing.assert_array_equal(result.observations[i], observation)
            assert result.rewards[i] == reward
            assert (result.terminated[i], result.truncated[i]) == (terminated, truncated)
            if terminated or truncated:
                ends, cuts = ends + terminated, cuts + truncated
                seed = (6, step, i)
                row = slots.reset([i], [RolloutPlan(i, seed)])[0]
                np.testing.assert_array_equal(row, env.reset(seed=plan_env_seed(seed))[0])
    assert (ends > 0) == (name != "Pendulum-v1")
    assert cuts > 0 or not name.startswith(("CartPole", "Pendulum"))


def compare(batched: Any, listed: Any, plans: list[RolloutPlan], num_steps: int) -> int:
    """Step both, also beyond endings, while slots stop in turn; how many endings there were."""
    name, rows, ends = batched.info.name, list(range(len(plans))), 0
    np.testing.assert_array_equal(batched.reset(rows, plans), listed.reset(rows, plans))
    active, generator = np.arange(batched.num_slots) < len(plans), np.random.default_rng(1)
    for step in range(num_steps):
        actions = eager_actions(name, batched.states(), generator)
        result, expected = batched.step(actions, active), listed.step(actions, active)
        for one, other in zip(result[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(one[rows], other[rows])
        ends += int(result.terminated.sum())
        active = active & ~result.truncated
        if step % 50 == 49 and active.sum() > 2:
            active[np.flatnonzero(active)[0]] = False
    return ends


@pytest.mark.parametrize("name", IDS)
@pytest.mark.filterwarnings("ignore:.*calling 'step\\(\\)' even though")
def test_steps_with_frozen_slots_and_beyond_endings(name: str) -> None:
    ends = compare(make_slots(name, 9), GymSlots(name, 9), plans_of(8), 250)
    assert (ends > 8) == (name != "Pendulum-v1")


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("Pendulum-v1", [{"g": 9.81, "m": 1.3, "l": 0.7}, {"dt": 0.02, "max_speed": 5.0}, {"max_torque": 1.1}]),
        ("CartPole-v1", [{"length": 0.8, "gravity": 3.7}, {"force_mag": 4.0, "tau": 0.05, "x_threshold": 0.3}]),
        ("MountainCar-v0", [{"force": 0.003}, {"gravity": 0.001, "goal_position": 0.3, "goal_velocity": 1.0}]),
        ("MountainCarContinuous-v0", [{"power": 0.004}, {"power": 0.0007}]),
        ("Acrobot-v1", [{"LINK_MASS_1": 1.7, "LINK_LENGTH_1": 0.6}, {"dt": 0.1, "LINK_MOI": 0.4, "MAX_VEL_2": 3.0}]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*calling 'step\\(\\)' even though")
def test_constants_of_each_slot(name: str, params: list[dict[str, float]]) -> None:
    """Domain parameters differ between slots, and nothing stays of the plan before."""
    updates = [None, *(DomainParamUpdate(values) for values in params)]
    plans = [RolloutPlan(i, (1, 0, i), update) for i, update in enumerate(updates)]
    batched, listed = make_slots(name, len(plans), plans=plans), GymSlots(name, len(plans))
    assert type(batched) is SimulatorSlots
    compare(batched, listed, plans, 60)
    compare(batched, listed, plans[::-1], 60)


def policy_of(name: str) -> Any:
    spec = EnvSpec.from_env(gymnasium.make(name, disable_env_checker=True))
    discrete = isinstance(spec.action_space, gymnasium.spaces.Discrete)
    kind = CategoricalMLPPolicy if discrete else GaussianMLPPolicy
    return kind(spec, hidden_sizes=(8,), generator=torch_generator(0))


def passed_on(name: str) -> gymnasium.Env:
    """An environment in a wrapper that nobody knows."""
    return gymnasium.Wrapper(gymnasium.make(name, disable_env_checker=True))


@pytest.mark.parametrize("name", IDS)
def test_extras_equal_those_of_a_list(name: str) -> None:
    """States and time, which depends on the time step of each rollout."""
    seconds = {"Pendulum-v1": "dt", "Acrobot-v1": "dt", "CartPole-v0": "tau", "CartPole-v1": "tau"}.get(name)
    update = None if seconds is None else DomainParamUpdate({seconds: 0.03})
    plans = [RolloutPlan(i, (2, 0, i), u, max_steps=5) for i, u in enumerate((None, update, None))]
    found = []
    for source in (name, functools.partial(passed_on, name)):
        with RolloutEngine(source, policy_of(name), record_extras=True) as engine:
            found.append(engine.run(plans))
    for one, other in zip(*found, strict=True):
        assert first_difference(one, other) is None
        assert one.states.shape == (6, one.states.shape[1])
        assert one.rollout_info == other.rollout_info
    assert ("time" in found[0][0].data_names) == (update is not None)


def changed(name: str, **attributes: Any) -> gymnasium.Env:
    env = gymnasium.make(name, disable_env_checker=True)
    for attribute, value in attributes.items():
        setattr(env.unwrapped, attribute, value)
    return env


class Louder(PendulumEnv):
    def step(self, u: np.ndarray) -> Any:
        return super().step(2 * u)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        *((name, "batched") for name in IDS),
        (PendulumEnv, "batched"),
        (functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=15), "batched"),
        (functools.partial(gymnasium.make, "Pendulum-v1", g=9.81), "batched"),
        (functools.partial(gymnasium.make, "Pendulum-v1", render_mode="rgb_array"), "list"),
        (functools.partial(gymnasium.make, "CartPole-v1", sutton_barto_reward=True), "list"),
        (functools.partial(gymnasium.make, "MountainCarContinuous-v0", goal_velocity=0.01), "list"),
        (functools.partial(changed, "Pendulum-v1", m=2.0, max_speed=3), "batched"),
        (functools.partial(changed, "Pendulum-v1", m=np.float32(2.0)), "list"),
        (functools.partial(changed, "Pendulum-v1", l=0.0), "list"),
        (functools.partial(changed, "Pendulum-v1", step=print), "list"),
        (functools.partial(changed, "CartPole-v1", kinematics_integrator="semi-implicit"), "list"),
        (functools.partial(changed, "Acrobot-v1", book_or_nips="nips"), "list"),
        (functools.partial(changed, "Acrobot-v1", torque_noise_max=0.1), "list"),
        (functools.partial(passed_on, "Pendulum-v1"), "list"),
        (Louder, "list"),
        (CartPoleVectorEnv, "vector"),
    ],
)
def test_only_what_the_formulas_know_is_batched(source: Any, kind: str) -> None:
    assert env_kind(source) == kind


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=15),
        functools.partial(gymnasium.make, "Pendulum-v1", g=9.81),
        functools.partial(changed, "Pendulum-v1", m=2.0, max_speed=3),
        functools.partial(changed, "Acrobot-v1", LINK_MASS_2=0.3),
    ],
)
def test_attributes_and_arguments_hold(make: Callable[[], gymnasium.Env]) -> None:
    for source in (make, make()):
        slots = make_slots(source, 3)
        assert type(slots) is SimulatorSlots
        compare(slots, GymSlots(source, 3), plans_of(3), 16)


def test_other_plans_run_in_a_list() -> None:
    good = RolloutPlan(0, (0, 0, 0), DomainParamUpdate({"g": 4.0}))
    bad = [
        good.with_(env_update=DomainParamUpdate({"screen_dim": 100.0})),
        good.with_(env_update=DomainParamUpdate({"l": 0.0})),
        good.with_(env_update=NewEnvUpdate(PendulumEnv)),
    ]
    assert env_kind("Pendulum-v1", [good]) == "batched"
    for plan in bad:
        assert env_kind("Pendulum-v1", [good, plan]) == "list"
        with pytest.raises(SlotError, match=r"takes DomainParamUpdate of g, m, l, .*make_slots\(..., plans=plans\)"):
            make_slots("Pendulum-v1", 1).reset([0], [plan])


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"]
)
def test_a_wished_state_is_taken_with_the_bits_of_a_list(name: str) -> None:
    size = 4 if name in ("CartPole-v1", "Acrobot-v1") else 2
    states = np.random.default_rng(0).uniform(-0.05, 0.05, (6, size))
    plans = [RolloutPlan(i, (0, 0, i), init_state=state, max_steps=9) for i, state in enumerate(states)]
    assert env_kind(name, plans) == "batched"
    found = []
    for source in (name, gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(name))):
        with RolloutEngine(source, policy_of(name), record_extras=True) as engine:
            found.append(engine.run(plans))
    for batched, listed, state in zip(*found, states, strict=True):
        np.testing.assert_array_equal(batched.observations, listed.observations)
        np.testing.assert_array_equal(batched.states, listed.states)
        np.testing.assert_array_equal(batched.states[0], state)
    wrong = plans[0].with_(init_state=np.zeros(size + 1))
    with pytest.raises(SlotError, match=rf"init_state must have shape \({size},\)"):
        make_slots(name, 1).reset([0], [wrong])


def test_another_release_of_gymnasium_is_stepped_as_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only releases that these tests have seen are taken for granted."""
    assert env_kind("Acrobot-v1") == "batched"
    monkeypatch.setattr(gymnasium, "__version__", "9.0.1")
    assert env_kind("Acrobot-v1") == "list"


@pytest.mark.parametrize(
    ("given", "moved"),
    [
        ({"masspole": 1.5}, {"masspole": 1.5, "total_mass": 2.5, "polemass_length": 0.75}),
        ({"length": 0.25}, {"length": 0.25, "polemass_length": 0.025}),
        ({"masscart": 2.0, "total_mass": 9.0}, {"masscart": 2.0, "total_mass": 9.0}),
    ],
)
def test_attributes_that_belong_together_are_set_together(given: dict[str, float], moved: dict[str, float]) -> None:
    """A pole of another mass or length is one that Gymnasium would have made, alone and as a row."""
    env: Any = DomainParamUpdate(given)(gymnasium.make("CartPole-v1"))
    known = vars(gymnasium.make("CartPole-v1").unwrapped)
    assert {name: v for name, v in vars(env.unwrapped).items() if name in moved or v != known[name]}.keys() >= set(
        moved
    )
    assert {name: getattr(env.unwrapped, name) for name in moved} == pytest.approx(moved)
    plans = [RolloutPlan(0, (1, 0, 0), DomainParamUpdate(given)), RolloutPlan(1, (1, 0, 1), DomainParamUpdate(moved))]
    batched = make_slots("CartPole-v1", 2, plans=plans)
    assert type(batched) is SimulatorSlots
    compare(batched, GymSlots("CartPole-v1", 2), plans, 8)
    batched.reset([0, 1], [plans[0], plans[1].with_(seed=plans[0].seed)])
    results = [batched.step(np.array([i % 2, i % 2]), np.ones(2, bool)) for i in range(5)]
    np.testing.assert_array_equal(results[-1].observations[0], results[-1].observations[1])


def test_a_torque_that_no_policy_reaches_is_told() -> None:
    update = DomainParamUpdate({"max_torque": 3.0})
    with pytest.warns(UserWarning, match="max_torque lies above the action space"):
        update(gymnasium.make("Pendulum-v1"))
    with pytest.warns(UserWarning, match="max_torque lies above the action space"):
        make_slots("Pendulum-v1", 1).reset([0], [RolloutPlan(0, (0, 0, 0), update)])


def test_wrong_actions() -> None:
    cart, pole = make_slots("CartPole-v1", 2), make_slots("Pendulum-v1", 2)
    on = np.ones(2, dtype=bool)
    with pytest.raises(gymnasium.error.ResetNeeded, match="must be reset with a plan"):
        cart.step(np.zeros(2), on)
    for slots in (cart, pole):
        slots.reset([0, 1], plans_of(2))
    with pytest.raises(SlotError, match="actions must be indices from 0 to 1, got 2 in slot 1"):
        cart.step(np.array([1, 2]), on)
    with pytest.raises(SlotError, match=r"got 0\.5 in slot 0"):
        cart.step(np.array([0.5, 1.0]), on)
    with pytest.raises(ShapeError, match=r"actions must have shape \(2,\)"):
        cart.step(np.zeros(3), on)
    with pytest.raises(ShapeError, match=r"actions must have shape \(2, 1\), got \(2, 2\)"):
        pole.step(np.zeros((2, 2)), on)
    frozen = cart.step(np.array([1.0, np.nan]), np.array([True, False]))  # rows of frozen slots are not looked at
    assert np.isfinite(frozen.observations).all()


def test_sub_environments_of_a_vector_environment_can_be_reached() -> None:
    env = SlotsVectorEnv("Pendulum-v1", 2)
    env.set_attr("g", [1.0, 2.0])
    assert env.get_attr("g") == (1.0, 2.0)
    env.close()
