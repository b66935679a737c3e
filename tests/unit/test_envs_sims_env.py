"""Simulated environments, single and many at once: specs/sampling.md 0.6, 16.2, 17.1, 17.2, 21, 22.2, 22.9."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from metaroll import DomainParamUpdate, RolloutPlan, rollout
from metaroll.envs.lookup.source import env_kind
from metaroll.envs.sims.catalog import SIMS, sim_constructor
from metaroll.envs.sims.model import SCALARS
from metaroll.envs.sims.simulator import DerivedConstants, first_state, step_columns
from metaroll.errors import DataError, ShapeError, SlotError, UnknownNameError
from metaroll.policies import GaussianMLPPolicy
from metaroll.rollouts.engine.slot_loop import SlotLoop
from metaroll.sims import (
    OneMassOscillatorEnv,
    PendulumEnv,
    QCartPoleStabEnv,
    QCartPoleSwingUpEnv,
    QQubeSwingUpEnv,
    SimBatch,
    SimSlots,
)

pytestmark = pytest.mark.usefixtures("lent_pools")

KINDS = [pytest.param(sim_constructor(entry.id), id=entry.short_name) for entry in SIMS]
ADVICE = "ignore:.*symmetric and normalized space:UserWarning"  # physical units have no such range


def other_params(env: Any, share: float = 0.05) -> dict[str, float]:
    """Domain parameters a little above the nominal ones, within their ranges."""
    return {
        name: min(value * (1 + share), env.model.params[name].allowed[1])
        for name, value in env.get_nominal_domain_param().items()
    }


def rows_of_actions(env: Any, num: int, steps: int, excess: float = 1.2) -> np.ndarray:
    space = env.act_space
    return np.random.default_rng(0).uniform(space.low * excess, space.high * excess, (steps, num, space.shape[0]))


# -------------------------------------------------------------------------------------------------- worked by hand
def test_pendulum_step_by_hand() -> None:
    env = PendulumEnv(
        dt=0.1, domain_param={"pole_mass": 3.0, "pole_length": 2.0, "gravity_const": 10.0, "pole_damping": 2.0}
    )
    env.reset(options={"init_state": (math.pi / 6, 0.5)})
    observation, reward, terminated, truncated, info = env.step(np.array([5.0]))
    # inertia 3 * 4 / 3 = 4; torque 3.5 (clipped) - 30 * sin(30 deg) - 2 * 0.5 = 3.5 - 15 - 1 = -12.5; / 4 = -3.125
    theta_dot = 0.5 - 0.1 * 3.125
    theta = math.pi / 6 + 0.1 * theta_dot
    np.testing.assert_allclose(env.state, [theta, theta_dot], rtol=1e-14)
    np.testing.assert_allclose(observation, [math.sin(theta), math.cos(theta), theta_dot], rtol=1e-14)
    # of the state before, with the action as it was given: e = (5/6 pi, -0.5)
    assert reward == pytest.approx(math.exp(-((5 / 6 * math.pi) ** 2 + 1e-3 * 0.25 + 0.01 * 25)))
    assert (terminated, truncated) == (False, False)
    np.testing.assert_array_equal(info["act_applied"], [3.5])


def test_oscillator_fails_outside_its_bounds_with_the_final_reward_once() -> None:
    env = OneMassOscillatorEnv()
    env.reset(options={"init_state": (0.99, 5.0)})
    _, reward, terminated, truncated, _ = env.step(np.zeros(1))
    # force -30 * 0.99 - 0.5 * 5 = -32.2; v = 5 - 0.644, x = 0.99 + 0.02 * 4.356 > 1: failed
    np.testing.assert_allclose(env.state, [0.99 + 0.02 * 4.356, 4.356])
    assert reward == pytest.approx(-(10 * 0.99**2 + 0.01 * 25) - 1000)
    assert (terminated, truncated) == (True, False)


def test_the_horizon_truncates() -> None:
    env = PendulumEnv(max_steps=2)
    env.reset(seed=0)
    assert env.step(np.zeros(1))[2:4] == (False, False)
    assert env.step(np.zeros(1))[2:4] == (False, True)
    assert env.curr_step == 2


@pytest.mark.parametrize(
    ("kind", "start", "penalty"),
    [(QCartPoleSwingUpEnv, (0.356, 0.0, 1.6, 0.0), 1e4), (OneMassOscillatorEnv, (0.99, 5.0), 1e3)],
)
def test_the_final_reward_is_given_once(kind: Any, start: Any, penalty: float) -> None:
    """specs/sampling.md 16.2: at the end of an episode, not at every step outside the bounds (nor at the horizon)."""
    env, given = kind(max_steps=50), {"init_state": list(start)}
    alone = rollout(env, lambda obs: np.zeros(1), stop_on_done=False, reset_kwargs=given, seed=0, no_close=True)
    assert len(alone) == 50 and -2 * penalty < alone.undiscounted_return() < -penalty
    batch = SimBatch(env, 1)
    batch.reset(np.array([start]))
    rewards = [float(batch.step(np.zeros((1, 1)))[1][0]) for _ in range(60)]
    assert sum(reward < -penalty for reward in rewards) == 1
    np.testing.assert_allclose(rewards[:50], alone.rewards)


def test_penalties_count_the_steps_that_remain_until_the_rollout_is_cut_off() -> None:
    """The pole falls in the first step: its cost times the steps that were left."""
    given = {"init_state": [0.0, math.pi + 0.26, 0.0, 6.0]}
    costs = {}
    for limit in (300, 20):
        policy, env = (lambda obs: np.zeros(1)), QCartPoleStabEnv()
        costs[limit] = float(rollout(env, policy, max_steps=limit, reset_kwargs=given, seed=0).rewards[-1])
        plan = RolloutPlan(0, (0, 0, 0), init_state=np.array(given["init_state"]), max_steps=limit)
        slots = SimSlots(1, env)
        slots.reset([0], [plan])
        assert slots.step(np.zeros((1, 1)), np.ones(1, bool)).rewards[0] == costs[limit]
    assert costs[300] < 10 * costs[20] < 0


def test_beyond_the_horizon_nothing_is_paid_for_failure() -> None:
    batch = SimBatch(QCartPoleStabEnv(max_steps=5), 1)
    batch.reset(np.array([[0.0, math.pi, 0.0, 0.0]]))
    rewards = [float(batch.step(np.full((1, 1), 8.0))[1][0]) for _ in range(60)]
    assert max(rewards) <= 0.0


def test_energy_without_friction_is_conserved() -> None:
    env = PendulumEnv(dt=0.001, domain_param={"pole_damping": 0.0})
    env.reset(options={"init_state": (2.5, 0.0)})
    energies = []
    for _ in range(10_000):  # several periods; semi-implicit Euler is symplectic: no drift
        env.step(np.zeros(1))
        energies.append(env.energy())
    first, last = np.mean(energies[:5000]), np.mean(energies[5000:])
    assert np.ptp(energies) < 0.01 * first
    assert last == pytest.approx(first, rel=2e-4)
    damped = OneMassOscillatorEnv()
    damped.reset(seed=0)
    before = damped.energy()
    for _ in range(200):  # explicit Euler would gain energy here
        damped.step(np.zeros(1))
    assert damped.energy() < 0.5 * before


# ------------------------------------------------------------------------------------ one computation, many forms


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_torch_and_plain_numbers_agree(kind: Any) -> None:
    env = kind()
    drawn = SimBatch(env, 6, generator=1)
    drawn.reset()
    start = drawn.state
    params = {name: np.linspace(env.domain_param[name], value, 6) for name, value in other_params(env).items()}
    ours, theirs = SimBatch(env, 6, params=params), SimBatch(env, 6, params=params, device="cpu")
    np.testing.assert_allclose(ours.reset(start), theirs.reset(start).numpy(), rtol=1e-12, atol=1e-12)
    config = env.config
    plain = []
    for i in range(6):
        own = {name: float(values[i]) for name, values in params.items()}
        derived = DerivedConstants.of(config.model, config.task, own, SCALARS)
        plain.append((derived, first_state(config, tuple(start[i].tolist()), derived, 0.0, SCALARS)))
    for actions in rows_of_actions(env, 6, min(20, int(env.max_steps))):
        a, b = ours.step(actions), theirs.step(actions)
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y.numpy(), rtol=1e-12, atol=1e-12)
        for i, (derived, state) in enumerate(plain):
            found = step_columns(config, derived, state, tuple(actions[i].tolist()), SCALARS)
            np.testing.assert_allclose(found.state.values, ours.state[i], rtol=1e-12, atol=1e-12)
            assert found.reward == pytest.approx(a[1][i], rel=1e-12, abs=1e-12)
            assert found.terminated == a[2][i]
            plain[i] = (derived, found.state)


def test_float32_follows_float64() -> None:
    env = PendulumEnv()
    wide, narrow = SimSlots(3, env), SimSlots(3, env, dtype="float32")
    plans = [RolloutPlan(i, (0, 0, i)) for i in range(3)]
    assert narrow.reset(range(3), plans).dtype == narrow.env_spec.observation_space.dtype == np.float32
    wide.reset(range(3), plans)
    for actions in rows_of_actions(env, 3, 50):
        a, b = wide.step(actions, np.ones(3, bool)), narrow.step(actions, np.ones(3, bool))
    np.testing.assert_allclose(a.observations, b.observations, atol=1e-4)
    assert b.rewards.dtype == np.float64


def test_gradients_with_respect_to_actions_and_parameters() -> None:
    """d theta'' / d tau = 3 / (m l^2), so one step changes theta by dt^2 times that."""
    mass = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    batch = SimBatch(PendulumEnv(), 2, params={"pole_mass": mass}, device="cpu")
    batch.reset(np.zeros((2, 2)))
    actions = torch.ones((2, 1), dtype=torch.float64, requires_grad=True)
    batch.step(actions)
    theta = batch.state[:, 0].sum()
    to_actions, to_mass = torch.autograd.grad(theta, [actions, mass])
    torch.testing.assert_close(to_actions[:, 0], 0.02**2 * 3 / mass.detach())
    torch.testing.assert_close(to_mass, -(0.02**2) * 3 / mass.detach() ** 2)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_batch_resets_where_it_is_told(device: str | None) -> None:
    batch = SimBatch(OneMassOscillatorEnv(), 4, device=device, dtype="float32", generator=3)
    first = batch.reset()
    batch.step(np.zeros((4, 1)))
    moved = np.asarray(batch.state)
    mask = np.array([True, False, False, True])
    batch.reset(mask=mask)
    state = np.asarray(batch.state)
    np.testing.assert_array_equal(state[~mask], moved[~mask])
    assert ((state[mask, 0] >= -0.75) & (state[mask, 0] <= -0.65)).all()
    assert (state[mask] != np.asarray(first)[mask]).all()
    assert batch.steps.tolist() == [0, 1, 1, 0]
    assert first.dtype == batch.dtype


# ---------------------------------------------------------------------------------------------------- configuration
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "pickle"])
def test_copies_keep_everything_that_was_set(kind: Any, copied: Any) -> None:
    """Upstream lost all of it but the domain parameters, so that workers ran with constructor values."""
    env = kind()
    env.reset(seed=1)
    start = env.state
    env.max_steps, env.dt, env.init_space = 7, 0.5 * env.dt, start
    env.domain_param = other_params(env)
    twin = copied(env)
    assert (twin.max_steps, twin.dt) == (7, env.dt)
    assert twin.domain_param == env.domain_param != env.get_nominal_domain_param()
    np.testing.assert_array_equal(twin.init_space, start)
    np.testing.assert_array_equal(twin.state, env.state)
    for e in (env, twin):
        e.reset(seed=4)
    action = 0.3 * env.act_space.high
    for a, b in zip(env.step(action)[:4], twin.step(action)[:4], strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_custom_init_space_survives_domain_parameters() -> None:
    env = PendulumEnv(init_space=[(0.1, 0.2), (0.3, 0.4)])
    starts = set()
    for seed in range(20):
        env.reset(seed=seed, options={"domain_param": {"pole_mass": 1.0 + 0.01 * seed}})
        starts.add(tuple(env.state))
    assert starts == {(0.1, 0.2), (0.3, 0.4)}
    assert env.domain_param["pole_mass"] == pytest.approx(1.19)
    env.init_space = gymnasium.spaces.Box(np.array([1.0, -1.0]), np.array([2.0, 1.0]), dtype=np.float64)
    env.reset(seed=0)
    assert env.init_space.contains(env.state)
    env.init_space = None
    env.reset(seed=0)
    np.testing.assert_array_equal(env.state, [0.0, 0.0])


def test_bounds_follow_domain_parameters() -> None:
    env = OneMassOscillatorEnv()
    env.domain_param = {"stiffness": 50.0}
    np.testing.assert_array_equal(env.act_space.high, [50.0])
    np.testing.assert_array_equal(env.limit_act(np.array([70.0])), [50.0])
    slots = SimSlots(2, OneMassOscillatorEnv())
    slots.reset([0, 1], [RolloutPlan(0, (0, 0, 0)), RolloutPlan(1, (0, 0, 1), DomainParamUpdate({"stiffness": 50.0}))])
    applied = slots.step(np.full((2, 1), 99.0), np.ones(2, bool)).infos["act_applied"]
    np.testing.assert_array_equal(applied, [[30.0], [50.0]])
    assert [slots.domain_param(i)["stiffness"] for i in range(2)] == [30.0, 50.0]


def test_nothing_is_aliased() -> None:
    env = PendulumEnv()
    env.reset(options={"init_state": (0.1, 0.2)})
    env.state[:] = 9.0
    env.domain_param["pole_mass"] = 9.0
    env.get_nominal_domain_param()["pole_mass"] = 9.0
    action = np.array([7.0])
    first = env.step(action)[0]
    kept = first.copy()
    env.step(action)
    np.testing.assert_array_equal(action, [7.0])
    np.testing.assert_array_equal(first, kept)
    assert env.domain_param["pole_mass"] == env.get_nominal_domain_param()["pole_mass"] == 1.0
    assert abs(env.state[0]) < 1


# --------------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda e: setattr(e, "domain_param", {"pole_mas": 1.0}), KeyError, "did you mean 'pole_mass'"),
        (
            lambda e: setattr(e, "domain_param", {"pole_mass": 0.0}),
            ValueError,
            "'pole_mass' of the pendulum must be pos",
        ),
        (lambda e: setattr(e, "domain_param", {"pole_mass": -1.0}), ValueError, "must be positive, got -1.0"),
        (lambda e: setattr(e, "domain_param", {"pole_mass": math.nan}), ValueError, "finite"),
        (lambda e: setattr(e, "domain_param", {"pole_mass": "heavy"}), TypeError, "must be a number"),
        (lambda e: setattr(e, "domain_param", {"pole_damping": -0.1}), ValueError, r"must lie in \[0, inf\)"),
        (lambda e: e.reset(options={"init_state": "ab"}), TypeError, "init_state must hold numbers, got 'ab'"),
        (lambda e: e.limit_act(np.zeros(2)), ShapeError, r"act must have shape \(1,\), got \(2,\)"),
        (
            lambda e: e.reset(options={"init_state": [0.1]}),
            ShapeError,
            r"shape \(2,\) \(theta, theta_dot\), got \(1,\)",
        ),
        (lambda e: e.reset(options={"init_state": [0.1, math.inf]}), ValueError, "init_state must be finite"),
        (lambda e: e.reset(options={"init_sate": [0.1, 0.2]}), UnknownNameError, "did you mean 'init_state'"),
        (lambda e: e.reset(options={"domain_param": {"l": 1.0}}), DataError, "pole_length"),
        (lambda e: setattr(e, "init_space", []), ValueError, "at least one state"),
        (lambda e: setattr(e, "init_space", [[0.1, 0.2], [0.3]]), TypeError, "init_space must be"),
        (lambda e: setattr(e, "init_space", gymnasium.spaces.Box(-np.inf, np.inf, (2,))), ValueError, "bounded"),
        (lambda e: setattr(e, "max_steps", 0), ValueError, "max_steps must be an integer of at least 1, got 0"),
        (lambda e: setattr(e, "dt", -0.1), ValueError, r"dt must lie in \(0, inf\), got -0.1"),
        (lambda e: e.step([math.nan]), ValueError, r"action must not be NaN, got \[nan\]"),
        (lambda e: e.step(np.zeros(2)), ShapeError, r"action must have shape \(1,\), got \(2,\)"),
    ],
)
def test_wrong_input_is_refused_and_changes_nothing(change: Any, error: type[Exception], message: str) -> None:
    env = PendulumEnv()
    env.reset(options={"init_state": (0.1, 0.2)})
    before = (env.config, env.state.tolist(), env.curr_step)
    with pytest.raises(error, match=message):
        change(env)
    assert (env.config, env.state.tolist(), env.curr_step) == before


def test_ends_of_a_dead_zone_are_in_order() -> None:
    wrong, message = {"voltage_thold_neg": 0.2, "voltage_thold_pos": 0.1}, "'voltage_thold_neg' .* must not be above"
    for env in (QCartPoleSwingUpEnv(), QQubeSwingUpEnv()):
        with pytest.raises(ValueError, match=message):
            env.domain_param = wrong
        with pytest.raises(ValueError, match=message):
            SimBatch(env, 2, params={"voltage_thold_neg": [0.0, 0.2], "voltage_thold_pos": 0.1})
        slots = SimSlots(1, env)
        with pytest.raises(SlotError, match=message):
            slots.reset([0], [RolloutPlan(0, (0, 0, 0), env_update=DomainParamUpdate(wrong))])
        env.domain_param = {"voltage_thold_neg": 0.1, "voltage_thold_pos": 0.2}  # where one alone would be refused
        assert SimBatch(env, 2, params={"voltage_thold_neg": 0.3, "voltage_thold_pos": 0.4}).num_envs == 2


def test_nominal_values_of_the_class_are_those_of_an_instance_without_arguments() -> None:
    assert QCartPoleStabEnv.get_nominal_domain_param() == QCartPoleStabEnv().get_nominal_domain_param()
    short = QCartPoleStabEnv(long_pole=False, domain_param={"cart_mass": 0.5})
    assert short.get_nominal_domain_param()["pole_length"] == 0.16825
    assert "domain_param={'cart_mass': 0.5}" in repr(short) and repr(PendulumEnv()).startswith("<PendulumEnv: pendulum")


def test_wrong_plans_leave_the_slots_as_they_were() -> None:
    slots = SimSlots(2, PendulumEnv())
    good = [RolloutPlan(i, (0, 0, i), init_state=np.array([0.1 * i, 0.2])) for i in range(2)]
    slots.reset([0, 1], good)
    states = slots.states()
    for plan, error in (
        (good[0].with_(env_update=DomainParamUpdate({"pole_mass": -1.0})), ValueError),
        (good[0].with_(init_state=np.zeros(3)), ShapeError),
    ):
        with pytest.raises(SlotError) as caught:
            slots.reset([1, 0], [good[1], plan])
        assert caught.value.slot == 0 and isinstance(caught.value.__cause__, error)
        np.testing.assert_array_equal(slots.states(), states)


def test_wrong_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        SimBatch(PendulumEnv(), 3, params={"pole_mass": [1.0, 2.0, -3.0]})
    with pytest.raises(ShapeError, match=r"shape \(3,\), got \(2,\)"):
        SimBatch(PendulumEnv(), 3, params={"pole_mass": [1.0, 2.0]})
    with pytest.raises(ShapeError, match=r"actions must have shape \(3, 1\), got \(3, 2\)"):
        SimBatch(PendulumEnv(), 3).step(np.zeros((3, 2)))
    for device in (None, "cpu"):
        for mask in ([True], [0, 2, 1], np.ones(4, dtype=bool)):
            with pytest.raises(ShapeError, match=r"mask must hold truth values of shape \(3,\)"):
                SimBatch(PendulumEnv(), 3, device=device).reset(mask=mask)


def test_a_parameter_may_be_a_tensor_with_a_gradient() -> None:
    env = PendulumEnv(domain_param={"pole_mass": torch.tensor([2.0], requires_grad=True)})
    assert env.domain_param["pole_mass"] == 2.0
    assert DomainParamUpdate({"m": torch.tensor(2.0, requires_grad=True)}).task == {"m": 2.0}


# ------------------------------------------------------------------------------------------------- Gymnasium, engine
@pytest.mark.parametrize("entry", SIMS, ids=lambda entry: entry.short_name)
@pytest.mark.filterwarnings(ADVICE, "ignore:.*-infinity:UserWarning", "ignore:.*is infinity:UserWarning")
def test_gymnasium(entry: Any) -> None:
    env = gymnasium.make(entry.id)
    check_env(env.unwrapped, skip_render_check=True)
    assert env.unwrapped.state_space.shape == (len(env.unwrapped.model.state_labels),)
    vector = gymnasium.make_vec(entry.id, num_envs=3, autoreset_mode="SameStep", max_steps=1)
    vector.reset(seed=0)
    _, rewards, _, _, infos = vector.step(np.tile(env.action_space.high, (3, 1)))
    assert rewards.shape == (3,) and infos["_final_obs"].all()
    assert env_kind(entry.id) == env_kind(entry.short_name) == "batched"


def test_ids_are_known_however_metaroll_is_imported() -> None:
    make = "gymnasium.make('metaroll/Pendulum-v0')"
    orders = (
        f"import gymnasium, metaroll; {make}",
        f"import metaroll, gymnasium; metaroll.sims.PendulumEnv; {make}",
    )
    code = f"""
import os, sys, torch
assert not {{"gymnasium", "metaroll"}} & sys.modules.keys()
for order in {orders}:
    child = os.fork()  # imported alike in both: torch alone
    if not child:
        exec(order)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, order
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=100)


def test_rollouts_that_end_together_are_those_that_end_alone() -> None:
    """More slots than are cut out at a time, longer than a block of the recording."""
    policy = GaussianMLPPolicy(PendulumEnv().env_spec, hidden_sizes=(8,), generator=torch.Generator().manual_seed(0))
    plans = [RolloutPlan(i, (1, 2, i), max_steps=300 if i % 3 else 290) for i in range(140)]
    parameters = policy.acting_parameters()
    together = SlotLoop(SimSlots(70, PendulumEnv()), policy, plans, parameters=parameters)
    found = dict(zip(together.positions, together.finished, strict=True))
    while not together.done:
        together.advance(64)
        found.update(zip(together.positions, together.finished, strict=True))
    for index in (0, 1, 65, 69, 70, 139):
        (alone,) = SlotLoop(SimSlots(1, PendulumEnv()), policy, [plans[index]], parameters=parameters).advance()
        assert len(alone) == plans[index].max_steps
        for name in ("observations", "actions", "rewards"):
            np.testing.assert_array_equal(getattr(found[index], name), getattr(alone, name))
        np.testing.assert_array_equal(found[index].env_infos["act_applied"], alone.env_infos["act_applied"])
        found[index].actions[:] = 0.0  # in memory of its own: the others stay
