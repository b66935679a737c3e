"""specs/sampling.md 16.3 and 8 d: actions and observations on their way through wrappers."""

from __future__ import annotations

import copy
import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from sampler_envs import Oscillator

from metaroll import (
    DomainParamUpdate,
    DomainRandomizer,
    RolloutEngine,
    RolloutPlan,
    UniformDomainParam,
    make_slots,
    rollout,
)
from metaroll.envs.sims.catalog import OneMassOscillatorEnv, PendulumEnv
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.envs.wrappers.base import ChainWrapper, WrappedSlots
from metaroll.errors import DataError, ShapeError, UnknownNameError
from metaroll.policies import GaussianMLPPolicy
from metaroll.tasks.plan_table import PlanTable
from metaroll.testing import check_slots
from metaroll.types import EnvSpec
from metaroll.wrappers import (
    ActDelayWrapper,
    ActNormWrapper,
    DomainParamTransformWrapper,
    DomainRandWrapperLive,
    DownsamplingWrapper,
    GaussianObsNoiseWrapper,
    ObsNormWrapper,
    ObsPartialWrapper,
)


class Echo(gymnasium.Env):
    """Shows the action that it got, and tells nothing else."""

    def __init__(self, low=-2.0, high=6.0):
        self.action_space = Box(np.array([low, 0.0]), np.array([high, 1.0]), dtype=np.float64)
        self.observation_space = Box(-10.0, 10.0, (2,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2), {}

    def step(self, action):
        return np.array(action), 0.0, False, False, {}


class Choices(Echo):
    def __init__(self):
        super().__init__()
        self.action_space = gymnasium.spaces.Discrete(3, start=5)
        self.observation_space = Box(-10.0, 10.0, (), np.float64)

    def step(self, action):
        return np.float64(action), 0.0, False, False, {}


def received(env, actions):
    """What the environment got of ``actions``, and what it is told to have got."""
    env.reset(seed=0)
    steps = [env.step(np.asarray(action)) for action in actions]
    return np.array([step[0] for step in steps]), np.array([step[4]["act_applied"] for step in steps])


def test_normalized_actions_reach_the_bounds():
    env = ActNormWrapper(Echo())
    assert env.action_space == Box(-1.0, 1.0, (2,), np.float64)
    got, applied = received(env, [[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0], [2.0, 0.5]])
    assert got.tolist() == [[-2.0, 0.0], [2.0, 0.5], [6.0, 1.0], [10.0, 0.75]]
    assert applied.tolist() == [[-2.0, 0.0], [2.0, 0.5], [6.0, 1.0], [6.0, 0.75]]
    with pytest.raises(ValueError, match="finite bounds"):
        ActNormWrapper(Echo(high=np.inf))
    with pytest.raises(TypeError, match="needs a Box action_space"):
        ActNormWrapper(Choices())


def test_rollouts_record_the_physical_command():
    """specs/sampling.md 8 d: through normalization, delay and downsampling."""
    inner = ActNormWrapper(gymnasium.make("Pendulum-v1", disable_env_checker=True))
    env = DownsamplingWrapper(ActDelayWrapper(inner, delay=1), 2)
    values = iter(np.arange(1, 9) / 10)
    result = rollout(env, lambda obs: np.array([next(values)]), seed=0, max_steps=8)
    np.testing.assert_allclose(result.actions[:, 0], np.arange(1, 9) / 10, rtol=1e-6)
    np.testing.assert_allclose(
        result.actions_applied[:, 0], 2.0 * np.array([0, 0.1, 0.1, 0.3, 0.3, 0.5, 0.5, 0.7]), rtol=1e-6
    )
    sim = rollout(ActNormWrapper(PendulumEnv()), lambda obs: np.array([0.5]), seed=0, max_steps=2)
    np.testing.assert_array_equal(sim.actions_applied, [[1.75], [1.75]])  # half of 3.5 N m


def test_delay_is_a_domain_parameter_of_whole_steps():
    env = ActDelayWrapper(Echo(), delay=2)
    actions = np.array([[1.0, 0.1], [2.0, 0.2], [3.0, 0.3], [4.0, 0.4]])
    got, applied = received(env, actions)
    np.testing.assert_array_equal(got, np.vstack([np.zeros((2, 2)), actions[:2]]))
    np.testing.assert_array_equal(applied, got)
    DomainParamUpdate({"act_delay": np.array(0.0)})(env)
    np.testing.assert_array_equal(received(env, actions)[0], actions)
    assert env.domain_param == {"act_delay": 0}

    env = ActDelayWrapper(Oscillator(), 1)
    DomainParamUpdate({"act_delay": 3, "mass": 2.0})(env)
    assert env.domain_param == {"mass": 2.0, "stiffness": 2.0, "act_delay": 3}
    for wrong in ({"act_delay": 1.5, "mass": 5.0}, {"act_delay": -1}, {"act_delay": 1e9}, {"act_dely": 1}):
        with pytest.raises((ValueError, DataError), match="act_delay"):
            DomainParamUpdate(wrong)(env)
    assert env.domain_param == {"mass": 2.0, "stiffness": 2.0, "act_delay": 3}
    assert copy.deepcopy(env).domain_param == env.domain_param


def test_options_of_reset_are_told_as_the_wrappers_count():
    env = ActDelayWrapper(PendulumEnv(), 1)
    env.reset(seed=0, options={"domain_param": env.domain_param})
    env.reset(seed=0, options={"domain_param": {"act_delay": 2, "pole_mass": 3.0}, "init_state": [0.1, 0.0]})
    assert (env.domain_param["act_delay"], env.domain_param["pole_mass"]) == (2, 3.0)
    assert [env.step([1.0])[4]["act_applied"].item() for _ in range(3)] == [0.0, 0.0, 1.0]
    with pytest.raises(DataError, match="pole_mass"):
        env.reset(options={"domain_param": {"act_delay": 5, "pole_mas": 1.0}})
    assert env.domain_param["act_delay"] == 2

    scaled = DomainParamTransformWrapper(PendulumEnv(), {"pole_mass": "log"})
    scaled.reset(seed=0, options={"domain_param": {"pole_mass": math.log(2.0)}})
    assert scaled.unwrapped.domain_param["pole_mass"] == pytest.approx(2.0)
    scaled.reset(options={"domain_param": scaled.domain_param})
    assert scaled.unwrapped.domain_param["pole_mass"] == pytest.approx(2.0)


def test_delays_that_are_none_are_refused():
    for wrong, error in (("2", TypeError), (True, TypeError), (math.nan, ValueError), (math.inf, ValueError)):
        with pytest.raises(error, match="act_delay must be"):
            ActDelayWrapper(Echo(), wrong)
    env = ActDelayWrapper(Echo(), 1)
    env.domain_param = {"act_delay": torch.tensor([2])}  # as randomizers draw it
    assert env.domain_param == {"act_delay": 2}


def test_actions_of_a_wrong_shape_do_not_stay():
    env = ActDelayWrapper(PendulumEnv(), 1)
    env.reset(seed=0)
    with pytest.raises(ShapeError, match=r"action must have shape \(1,\), got \(2,\)"):
        env.step([1.0, 2.0])
    held = DownsamplingWrapper(PendulumEnv(), 2)
    held.reset(seed=0)
    with pytest.raises(ShapeError):
        held.step([1.0, 2.0])
    for wrapped, applied in ((env, [0.0, 1.0]), (held, [1.0, 1.0])):
        assert [wrapped.step([action])[4]["act_applied"].item() for action in (1.0, 2.0)] == applied


def test_zeros_on_their_way_lie_within_the_bounds():
    got, _ = received(ActDelayWrapper(Echo(low=1.0), 1), [[3.0, 0.5]])
    assert got.tolist() == [[1.0, 0.0]]


def test_downsampling_holds_actions():
    got, applied = received(DownsamplingWrapper(Echo(), 3), [[i, 0.5] for i in range(7)])
    assert got[:, 0].tolist() == [0, 0, 0, 3, 3, 3, 6] and applied[:, 0].tolist() == got[:, 0].tolist()
    got, applied = received(DownsamplingWrapper(Choices(), 2), [5, 6, 7])
    assert got.tolist() == [5, 5, 7] and applied.tolist() == [5, 5, 7]
    for wrong in (0, 1.5, True):
        with pytest.raises((TypeError, ValueError), match="factor must be"):
            DownsamplingWrapper(Echo(), wrong)


def test_normalized_observations_lie_between_minus_one_and_one():
    env = ObsNormWrapper(Echo(), low={1: -2.0}, high=np.array([10.0, 4.0]))
    env.reset()
    assert env.step(np.array([5.0, 4.0]))[0].tolist() == [0.5, 1.0]
    assert env.observation_space.low.tolist() == [-1.0, -11.0 / 3.0]
    named = ObsNormWrapper(PendulumEnv(), low={"theta_dot": -8.0}, high={"theta_dot": 8.0})
    assert named.env_spec.observation_labels == PendulumEnv().env_spec.observation_labels
    with pytest.raises(ValueError, match=r"needs finite bounds, which \[0, 1\] lack"):
        ObsNormWrapper(Oscillator())
    with pytest.raises(UnknownNameError, match="did you mean 'theta_dot'"):
        ObsNormWrapper(PendulumEnv(), low={"theta_dott": -8.0})
    with pytest.raises(ValueError, match="low must be below high"):
        ObsNormWrapper(Echo(), low=3.0, high=1.0)
    with pytest.raises(ShapeError, match=r"low must be a number or have shape \(2,\)"):
        ObsNormWrapper(Echo(), low=np.zeros(3))


def test_partial_observations_keep_their_labels():
    labels = PendulumEnv().env_spec.observation_labels
    env = ObsPartialWrapper(PendulumEnv(), idcs=[labels[2]])
    assert env.env_spec.observation_labels == labels[:2] and env.reset(seed=0)[0].shape == (2,)
    kept = ObsPartialWrapper(PendulumEnv(), mask=[0, 0, 1], keep_selected=True)
    assert EnvSpec.from_env(kept).observation_labels == labels[2:] and kept.observation_space.shape == (1,)
    kept.reset(seed=0)
    np.testing.assert_array_equal(kept.current_observation(), kept.env.current_observation()[2:])
    for arguments, error in (
        ({}, "either mask or idcs"),
        ({"mask": [True, True, True]}, "at least one entry"),
        ({"mask": [True]}, r"mask must have shape \(3,\)"),
        ({"mask": [0, 2, 1]}, "truth values"),
        ({"idcs": [0, 0]}, "once"),
        ({"idcs": [3]}, "from 0 to 2"),
        ({"idcs": ["theta_dott"]}, "did you mean 'theta_dot'"),
    ):
        with pytest.raises(ValueError, match=error):
            ObsPartialWrapper(PendulumEnv(), **arguments)


def test_a_selection_of_nothing_is_refused():
    with pytest.raises(ValueError, match="idcs must name at least one entry"):
        ObsPartialWrapper(PendulumEnv(), idcs=[])


def test_noise_depends_on_the_seed_and_has_its_moments():
    env = GaussianObsNoiseWrapper(Echo(), noise_std=[0.5, 0.0], noise_mean=[1.0, 0.0])
    assert env.observation_space.low.tolist() == [-np.inf, -10.0]

    def episode():
        return np.array([env.reset(seed=3)[0]] + [env.step(np.zeros(2))[0] for _ in range(2000)])

    seen = episode()
    np.testing.assert_array_equal(seen, episode())
    assert abs(seen[:, 0].mean() - 1.0) < 0.05 and abs(seen[:, 0].std() - 0.5) < 0.03 and not seen[:, 1].any()
    twice = GaussianObsNoiseWrapper(GaussianObsNoiseWrapper(Echo(), 1.0), 1.0)
    inner = GaussianObsNoiseWrapper(Echo(), 1.0)
    first, second = twice.reset(seed=0)[0], inner.reset(seed=0)[0]
    assert not np.isclose(first, 2.0 * second).any()  # streams of their own
    with pytest.raises(ValueError, match="noise_std must not be negative"):
        GaussianObsNoiseWrapper(Echo(), -1.0)
    with pytest.raises(ShapeError, match="noise_std must be a number or have shape"):
        GaussianObsNoiseWrapper(Echo(), [1.0])
    with pytest.raises(ValueError, match="noise_std and noise_mean must be finite"):
        GaussianObsNoiseWrapper(Echo(), 1.0, math.inf)


def test_noise_of_a_subclass_is_not_left_out_of_batches():
    class Shifted(GaussianObsNoiseWrapper):
        def rows_seen(self, observations, memory, rows):
            return super().rows_seen(observations, memory, rows) + 10.0

    slots = make_slots(lambda: Shifted(PendulumEnv(), 0.1), 2)
    assert slots.reset([0], [RolloutPlan(0, (0, 0, 0))])[0].min() > 5.0


def test_a_wrapper_with_rows_out_alone_changes_steps_of_one_and_of_many():
    class Doubled(ChainWrapper):
        def rows_out(self, step, memory, rows):
            return step._replace(rewards=2.0 * step.rewards)

    slots, plain = (make_slots(make, 2) for make in (lambda: Doubled(PendulumEnv()), PendulumEnv))
    for each in (slots, plain):
        each.reset([0, 1], [RolloutPlan(i, (0, 0, i)) for i in range(2)])
    active = np.array([True, False])
    found, inside = (each.step(np.ones((2, 1)), active) for each in (slots, plain))
    np.testing.assert_array_equal(found.rewards, inside.rewards * [2.0, 1.0])
    np.testing.assert_array_equal(found.observations, inside.observations)
    one, plain_one = Doubled(PendulumEnv()), PendulumEnv()
    assert (one.reset(seed=0)[0] == plain_one.reset(seed=0)[0]).all()
    assert one.step(np.ones(1))[1] == 2.0 * plain_one.step(np.ones(1))[1]


def chain(kind):
    env = OneMassOscillatorEnv(max_steps=150)
    if kind == "actions":
        delay = ActDelayWrapper(ActNormWrapper(env), 2)
        drawn = DomainRandomizer(UniformDomainParam("act_delay", 4.0, 4.0, roundint=True))
        return DownsamplingWrapper(DomainRandWrapperLive(delay, drawn), 3)
    return ObsPartialWrapper(GaussianObsNoiseWrapper(ObsNormWrapper(env), [0.1, 0.2]), idcs=[0])


@pytest.mark.parametrize("kind", ["actions", "observations"])
def test_chains_keep_the_promises_of_slots(kind):
    """Also with delays of different length beside each other."""
    env = chain(kind)
    plans = [RolloutPlan(i, (2, 0, i)) for i in range(4)]
    if kind == "actions":
        plans[3] = RolloutPlan(3, (2, 0, 3), DomainParamUpdate({"act_delay": 30, "mass": 1.5}))
    batched, listed = make_slots(env, 4, plans=plans), GymSlots(env, 4)
    assert not isinstance(batched, GymSlots) and batched.env_spec == listed.env_spec
    for slots in (batched, listed):
        slots.reset(range(4), plans)
    assert [batched.domain_param(i) for i in range(4)] == [listed.domain_param(i) for i in range(4)]
    check_slots(lambda n: make_slots(env, n, plans=plans), plans, num_steps=80, like=lambda n: GymSlots(env, n))
    check_slots(lambda n: GymSlots(env, n), num_steps=20)


def test_noise_is_that_of_the_seed_alone_or_among_many():
    env = GaussianObsNoiseWrapper(GaussianObsNoiseWrapper(OneMassOscillatorEnv(max_steps=300), 0.1), 0.2)
    table = PlanTable([RolloutPlan(i, (4, 0, i)) for i in range(5)])
    slots = make_slots(env, 5)
    first = slots.reset(range(5), table)
    shown = [first] + [slots.step(np.zeros((5, 1)), np.ones(5, dtype=bool)).observations for _ in range(150)]
    alone = [env.reset(seed=int(table.env_seeds[3]))[0]] + [env.step(np.zeros(1))[0] for _ in range(150)]
    np.testing.assert_array_equal(np.array(shown)[:, 3], np.array(alone))
    np.testing.assert_array_equal(env.current_observation(), alone[-1])


@pytest.mark.parametrize("kind", ["actions", "observations"])
def test_slots_in_wrappers_are_kept(kind):
    """In slots that can be kept, wrappers keep their rows of memory, too."""

    class Kept(GymSlots):
        def step(self, actions, active):
            found = super().step(actions, active)
            told = {"told": np.zeros(self.num_slots)}
            return found._replace(infos=told)

    def slots_of(num):
        inner, layers = chain(kind), []
        while isinstance(inner, ChainWrapper):
            layers.append(inner)
            inner = inner.env
        made = Kept(lambda: copy.deepcopy(inner), num)
        for layer in reversed(layers):
            made = WrappedSlots(made, layer)
        return made

    plans, generator = [RolloutPlan(i, (2, 0, i)) for i in range(4)], np.random.default_rng(0)
    one, two = slots_of(4), slots_of(4)
    for slots in (one, two):
        slots.attach(record_states=True)
        slots.reset(range(4), plans)
    kept = np.array([1, 3])
    for t in range(12):
        actions = generator.uniform(-1, 1, size=(4, 1))
        if t == 5:
            two.keep(kept)
        whole = one.step(actions, np.ones(4, dtype=bool))
        part = two.step(actions if t < 5 else actions[kept], np.ones(two.num_slots, dtype=bool))
        rows = kept if t >= 5 else slice(None)
        np.testing.assert_array_equal(whole.observations[rows], part.observations)
        np.testing.assert_array_equal(np.array(whole.states)[rows], np.array(part.states))


def test_a_table_of_plans_goes_through_wrappers_as_it_is():
    table = PlanTable([RolloutPlan(0, (0, 0, 0))])
    for env in (ActDelayWrapper(PendulumEnv()), DomainParamTransformWrapper(PendulumEnv(), {"pole_mass": "log"})):
        assert env.plans_in(table) is table


def delayed() -> DomainRandWrapperLive:
    """Only the delay differs between rollouts."""
    drawn = DomainRandomizer(UniformDomainParam("act_delay", 5.0, 4.0, roundint=True))
    return DomainRandWrapperLive(ActDelayWrapper(OneMassOscillatorEnv(max_steps=20)), drawn)


def delayed_plan(number: int) -> RolloutPlan:
    return RolloutPlan(number, (0, 0, number))


def test_rollouts_report_the_delay_that_they_had_whatever_runs_beside_them():
    policy, plans = GaussianMLPPolicy(EnvSpec.from_env(delayed())), [delayed_plan(i) for i in range(8)]
    with RolloutEngine(delayed, policy) as engine:
        together = [info["domain_param"] for info in engine.run(plans).infos]
        assert together == [engine.run([plan]).infos[0]["domain_param"] for plan in plans]
    assert len({params["act_delay"] for params in together}) > 3
    slots = make_slots(lambda: DomainParamTransformWrapper(PendulumEnv(), {"pole_mass": "log"}), 2)
    slots.reset([0, 1], plans[:2])
    assert len(set(slots.alike(np.arange(2)))) == 1  # type: ignore[arg-type]


def test_delays_of_any_length_go_on_after_a_snapshot():
    """The rings of actions on their way may be longer on one side than on the other."""
    policy = GaussianMLPPolicy(EnvSpec.from_env(delayed()))
    with RolloutEngine(delayed, policy) as engine, engine.open(delayed_plan, 3) as straight:
        with engine.open(delayed_plan, 3) as moved:
            for call in range(12):
                state = straight.state_dict()
                if call % 3:  # the other side has run other rollouts before, with other delays
                    moved.load_state_dict(state)
                    found = moved.advance(7)
                expected = straight.advance(7)
                if call % 3:
                    for name in ("observations", "actions", "rewards"):
                        np.testing.assert_array_equal(found.column(name), expected.column(name))


@pytest.mark.parametrize(("delay_here", "delay_there"), [(30, 0), (0, 30)])
def test_a_ring_is_lengthened_on_either_side(delay_here, delay_there):
    wrapper, rows = ActDelayWrapper(OneMassOscillatorEnv()), np.arange(2)

    def plan(delay):
        return RolloutPlan(0, (0, 0, 0), DomainParamUpdate({"act_delay": delay}))

    def act(memory, step):
        return wrapper.rows_in(np.full((2, 1), float(step)), memory, rows)

    here, there = wrapper.new_memory(3), wrapper.new_memory(3)
    for memory, delay in ((here, delay_here), (there, delay_there)):
        plans = wrapper.plans_in([plan(2), plan(3), plan(delay)])
        wrapper.start_rows(memory, np.arange(3), None, plans)
    for step in range(5):
        act(here, step)
    wrapper.resume_rows(there, rows, {name: values[rows] for name, values in here.items()})
    for step in range(5, 9):
        found = act(there, step)
        np.testing.assert_array_equal(found, act(here, step))
        np.testing.assert_array_equal(found, [[step - 2.0], [step - 3.0]])


@pytest.mark.parametrize("wrapper", [lambda env: ActDelayWrapper(env), lambda env: GaussianObsNoiseWrapper(env, 0.1)])
def test_what_is_no_environment_is_not_wrapped(wrapper):
    with pytest.raises(TypeError, match=r"env must be an environment .*got 'Pendulum-v1'"):
        wrapper("Pendulum-v1")
