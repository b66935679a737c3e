"""Action delay, observation noise and initial states as domain parameters, set by plans (issue 15)."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from metaroll import DomainParamUpdate, RolloutEngine, RolloutPlan, make_slots, rollout
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.errors import DataError, ShapeError, UnknownNameError
from metaroll.policies import DummyPolicy
from metaroll.sims import OneMassOscillatorEnv, PendulumEnv
from metaroll.testing import check_slots
from metaroll.wrappers import ActDelayWrapper, GaussianObsNoiseWrapper, InitStateWrapper, ObsNormWrapper


def robot():
    """A pendulum as its device shows it: late actions, noise, a velocity of the start that nobody knows."""
    env = InitStateWrapper(PendulumEnv(max_steps=60), [0.5, 0.0], ["theta_dot"], {"init_theta_dot": (-2.0, 2.0)})
    return GaussianObsNoiseWrapper(ActDelayWrapper(env, 1, round_delay=True), [0.1, 0.0, 0.2])


NAMES = ("act_delay", "obs_noise_std_sin_theta", "obs_noise_std_theta_dot", "init_theta_dot")


def test_all_of_them_are_told_and_set_by_name():
    env = robot()
    assert [env.domain_param[name] for name in NAMES] == [1, 0.1, 0.2, 0.0]
    DomainParamUpdate({"init_theta_dot": 1.5, "pole_mass": 2.0, "obs_noise_std_theta_dot": 0.0, "act_delay": 2.4})(env)
    assert [env.domain_param[name] for name in (*NAMES, "pole_mass")] == [2, 0.1, 0.0, 1.5, 2.0]
    observation, _ = env.reset(seed=0)
    assert observation[2] == 1.5 and env.unwrapped.state.tolist() == [0.5, 1.5]
    options = {"domain_param": {"init_theta_dot": -1.0, "pole_length": 2.0}, "init_state": [0.1, 0.7]}
    env.reset(seed=0, options=options)
    assert env.unwrapped.state.tolist() == [0.1, -1.0] and env.domain_param["pole_length"] == 2.0
    for again in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert again.domain_param == env.domain_param


@pytest.mark.parametrize("kind", [make_slots, GymSlots])
def test_rows_have_parameters_of_their_own(kind):
    slots, plans = kind(robot(), 3), []
    sets = [{"init_theta_dot": 1.0, "act_delay": 3}, {"obs_noise_std_theta_dot": 0.0, "pole_mass": 0.5}]
    for number, params in enumerate(sets):
        plans.append(RolloutPlan(number, (1, 0, number), DomainParamUpdate(params)))
    plans.append(RolloutPlan(2, (1, 0, 2), init_state=np.array([1.0, 1.25])))
    first = slots.reset(range(3), plans)
    states = [np.asarray(state).tolist() for state in slots.states()]
    assert states == [[0.5, 1.0], [0.5, 0.0], [1.0, 1.25]]
    told = [slots.domain_param(slot) for slot in range(3)]
    assert [params["init_theta_dot"] for params in told] == [1.0, 0.0, 1.25]
    assert [params["act_delay"] for params in told] == [3, 1, 1] and told[1]["pole_mass"] == 0.5
    assert first[1, 2] == 0.0 and first[2, 2] != 1.25 and (first[:, 1] == np.cos([0.5, 0.5, 1.0])).all()


def test_batches_are_bit_equal_to_lists_with_parameters_in_plans():
    env, draws = robot(), [[0.0, 0.3, 0.1, 1.0], [2.0, 0.0, 0.5, -1.0], [7.0, 1.0, 0.0, 0.3]]
    plans = [
        RolloutPlan(i, (2, 0, i), DomainParamUpdate(dict(zip(NAMES, draws[i % 3], strict=True)))) for i in range(4)
    ]
    assert not isinstance(make_slots(env, 4, plans=plans), GymSlots)
    check_slots(lambda n: make_slots(env, n), plans, num_steps=40, like=lambda n: GymSlots(env, n))


def test_engine_and_single_rollouts_agree_on_parameters_of_wrappers():
    update = DomainParamUpdate({"act_delay": 2, "init_theta_dot": 0.7, "obs_noise_std_theta_dot": 0.3})
    plans = [RolloutPlan(i, (3, 0, i), update) for i in range(2)]
    with RolloutEngine(robot, DummyPolicy(robot().env_spec)) as engine:
        found = engine.run(plans)
    alone = rollout(
        robot(), DummyPolicy(robot().env_spec), reset_kwargs={"domain_param": update.task}, seed=3, sub_sub_seed=1
    )
    np.testing.assert_array_equal(found[1].observations, alone.observations)
    assert found[1].rollout_info["domain_param"] == alone.rollout_info["domain_param"]


def test_noise_for_all_entries_has_one_name():
    env = GaussianObsNoiseWrapper(OneMassOscillatorEnv(), 0.5)
    assert env.domain_param["obs_noise_std"] == 0.5
    env.domain_param = {"obs_noise_std": 0.0}
    np.testing.assert_array_equal(env.reset(seed=0)[0], env.unwrapped.state)
    twice = GaussianObsNoiseWrapper(env, 0.25)
    twice.domain_param = {"obs_noise_std": 1.0}  # that of the outermost
    assert (twice.domain_param["obs_noise_std"], env.domain_param["obs_noise_std"]) == (1.0, 0.0)
    two = ActDelayWrapper(ActDelayWrapper(OneMassOscillatorEnv(), 1), 1)
    slots = make_slots(two, 1)
    slots.reset([0], [RolloutPlan(0, (0, 0, 0), DomainParamUpdate({"act_delay": 3}))])
    applied = [slots.step(np.ones((1, 1)), np.ones(1, dtype=bool)).infos["act_applied"].item() for _ in range(6)]
    assert applied == [0.0] * 4 + [1.0] * 2  # 3 outside and 1 inside


def test_rounded_delays_have_equal_shares_of_an_interval():
    env = ActDelayWrapper(PendulumEnv(), round_delay=True)
    found = [env.checked_param("act_delay", value) for value in (-0.4, 0.4, 0.6, 3.49)]
    assert found == [0, 0, 1, 3]


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"init_theta_dot": 2.5}, ValueError, r"'init_theta_dot' must lie in \[-2, 2\], got 2.5"),
        ({"init_theta": 0.5}, DataError, "did you mean 'init_theta_dot'"),
        ({"obs_noise_std_theta_dot": -1.0}, ValueError, "must not be negative, got -1"),
        ({"obs_noise_std_cos_theta": 1.0}, DataError, "unknown domain parameter"),
        ({"act_delay": "two"}, TypeError, "must be a number"),
    ],
)
def test_values_that_cannot_be_are_refused(params, error, message):
    env = robot()
    before = env.domain_param
    with pytest.raises(error, match=message):
        DomainParamUpdate({"pole_mass": 3.0, **params})(env)
    assert env.domain_param == before


def test_wrappers_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="make it with a positive noise_std"):
        GaussianObsNoiseWrapper(PendulumEnv(), 0.0).domain_param = {"obs_noise_std": 0.1}
    with pytest.raises(ShapeError, match=r"base must be a state \(2,\) \(theta, theta_dot\), got \(3,\)"):
        InitStateWrapper(PendulumEnv(), np.zeros(3))
    with pytest.raises(UnknownNameError, match="did you mean 'theta_dot'"):
        InitStateWrapper(PendulumEnv(), np.zeros(2), ["theta_dott"])
    with pytest.raises(ValueError, match="low < high"):
        InitStateWrapper(PendulumEnv(), np.zeros(2), bounds={"init_theta": (1.0, 1.0)})
    with pytest.raises(UnknownNameError, match="parameter in bounds"):
        InitStateWrapper(PendulumEnv(), np.zeros(2), ["theta"], {"init_theta_dot": (0.0, 1.0)})
    assert InitStateWrapper(PendulumEnv(), np.zeros(2), [1]).bounds == {"init_theta_dot": (-4 * np.pi, 4 * np.pi)}
    scaled = ObsNormWrapper(InitStateWrapper(OneMassOscillatorEnv(), [0.2, 0.0]))
    np.testing.assert_allclose(scaled.state_from_observation(scaled.reset(seed=0)[0]), [0.2, 0.0], atol=1e-12)
