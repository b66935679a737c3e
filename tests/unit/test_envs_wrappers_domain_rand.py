"""specs/sampling.md 16.3, 16.4, 0.4, 0.6: environments whose constants change from rollout to rollout."""

from __future__ import annotations

import copy
import math
import pickle

import gymnasium
import numpy as np
import pytest
import torch
from sampler_envs import NOMINAL, Oscillator

from metaroll import (
    DomainParamUpdate,
    DomainRandomizer,
    NormalDomainParam,
    ParallelRolloutSampler,
    RolloutEngine,
    RolloutPlan,
    UniformDomainParam,
    make_slots,
    rollout,
)
from metaroll.envs.sims.catalog import PendulumEnv
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.errors import DataError, ShapeError, UnknownNameError
from metaroll.sims import default_randomizer
from metaroll.testing import check_slots
from metaroll.types import TaskNote
from metaroll.wrappers import (
    ActNormWrapper,
    DomainParamTransformWrapper,
    DomainRandWrapperBuffer,
    DomainRandWrapperLive,
    MetaDomainRandWrapper,
    all_envs,
    inner_env,
    outermost_dr_wrapper,
    remove_all_dr_wrappers,
    typed_env,
)

pytestmark = pytest.mark.usefixtures("lent_pools")


def zero(obs):
    return np.zeros(1)


def masses(generator=0):
    return DomainRandomizer(UniformDomainParam("mass", 1.0, 0.5), generator=generator)


def live(**options):
    return DomainRandWrapperLive(Oscillator(**options), masses())


def test_every_reset_draws_from_its_seed_alone():
    env, other = live(), live()
    _, info = env.reset(seed=3)
    assert info["domain_param"] == env.domain_param and 0.5 <= info["domain_param"]["mass"] <= 1.5
    for _ in range(3):
        other.reset()
    assert other.reset(seed=3)[1] == info
    assert env.reset(seed=4)[1] != info
    assert env.env._params["mass"] == env.domain_param["mass"]
    unseeded = {env.reset()[1]["domain_param"]["mass"] for _ in range(4)}
    assert len(unseeded) == 4


def test_given_parameters_replace_one_draw_and_nothing_compounds():
    env = DomainRandWrapperLive(
        Oscillator(), DomainRandomizer(*masses().domain_params, NormalDomainParam("stiffness", 2.0, 0.1))
    )
    env.reset(seed=0)
    env.reset(seed=1, options={"domain_param": {"mass": 9.0}})
    assert env.domain_param == {"mass": 9.0, "stiffness": NOMINAL["stiffness"]}  # not that of the draw before
    assert env.reset(seed=1)[1]["domain_param"]["mass"] <= 1.5
    DomainParamUpdate({"stiffness": 5.0})(env)
    assert env.domain_param == {"mass": 1.0, "stiffness": 5.0}
    env.reset(seed=2)
    assert env.domain_param == {"mass": 1.0, "stiffness": 5.0}
    env.reset(seed=2)
    assert env.domain_param["stiffness"] != 5.0


def test_evaluation_runs_with_the_parameters_of_wrapping():
    inner = DomainParamUpdate({"stiffness": 7.0})(Oscillator())
    env = DomainRandWrapperLive(inner, masses())
    env.reset(seed=0)
    env.reset(seed=1, options={"eval": True})
    assert env.domain_param == {"mass": 1.0, "stiffness": 7.0}
    env.in_evaluation = True
    env.reset(seed=1, options={"eval": True})
    assert env.domain_param["mass"] != 1.0

    assert rollout(live(), zero, seed=0, eval=True).rollout_info["domain_param"] == NOMINAL
    drawn = rollout(live(), zero, seed=0).rollout_info["domain_param"]
    assert drawn != NOMINAL
    given = rollout(live(), zero, seed=0, reset_kwargs={"domain_param": {"mass": 4.0}})
    assert given.rollout_info["domain_param"] == {"mass": 4.0, "stiffness": 2.0}


def test_sampled_rollouts_record_their_domain():
    """specs/sampling.md 0.4: bits depend on the plan alone, and equal those of rollout()."""
    env = DomainRandWrapperLive(Oscillator(), masses())
    with ParallelRolloutSampler(env, zero, 1, min_rollouts=20, seed=5, show_progress_bar=False) as sampler:
        training, evaluation = sampler.sample(), sampler.sample(eval=True)
    assert len({r.rollout_info["domain_param"]["mass"] for r in training}) == 20
    assert all(r.rollout_info["domain_param"] == NOMINAL for r in evaluation)
    single = rollout(live(), zero, seed=5, sub_seed=0, sub_sub_seed=7)
    np.testing.assert_array_equal(single.observations, training[7].observations)
    assert single.rollout_info["domain_param"] == training[7].rollout_info["domain_param"]


def test_engine_without_extras_records_the_domain_too():
    with RolloutEngine(live(max_steps=3), zero) as engine:
        rollouts = engine.run([RolloutPlan(i, (0, 0, i)) for i in range(3)])
    assert len({r.rollout_info["domain_param"]["mass"] for r in rollouts}) == 3


def test_attributes_of_gymnasium_environments_are_randomized():
    env = gymnasium.make("Pendulum-v1", disable_env_checker=True)
    wrapped = DomainRandWrapperLive(
        env, default_randomizer("Pendulum-v1", {"g": ("normal", 0.1), "l": ("uniform", 0.2)})
    )
    _, info = wrapped.reset(seed=0)
    assert (env.unwrapped.g, env.unwrapped.l) == (info["domain_param"]["g"], info["domain_param"]["l"]) != (10.0, 1.0)
    wrapped.reset(seed=0, options={"eval": True})
    assert (env.unwrapped.g, env.unwrapped.l) == (10.0, 1.0)
    assert rollout(wrapped, zero, seed=1).rollout_info["domain_param"].keys() == {"g", "l"}


def test_buffer_is_a_ring_by_hand():
    env = DomainRandWrapperBuffer(Oscillator(), masses())
    with pytest.raises(ValueError, match=r"buffer .*fill_buffer"):
        env.reset()
    env.fill_buffer(3, generator=0)
    assert len(env.buffer) == 3 and env.ring_idx == 0
    seen = [env.reset()[1]["domain_param"]["mass"] for _ in range(5)]
    assert seen == [env.buffer[i]["mass"] for i in (0, 1, 2, 0, 1)] and env.ring_idx == 2
    for twin in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        assert (twin.ring_idx, twin.buffer) == (2, env.buffer)
    env.buffer = [{"mass": 3.0}]
    assert env.ring_idx == 0 and env.reset()[1]["domain_param"]["mass"] == 3.0
    env.buffer = [{"mass": 3.0}, {"mass": 4.0}]
    env.ring_idx = np.int64(1)
    for wrong in (2, -1, 0.5, True, None):
        with pytest.raises((ValueError, TypeError), match="ring_idx must"):
            env.ring_idx = wrong
    assert env.reset()[1]["domain_param"]["mass"] == 4.0 and env.ring_idx == 0
    with pytest.raises(ValueError, match=r"ring_idx must .*fill_buffer"):
        DomainRandWrapperBuffer(Oscillator(), masses()).ring_idx = 1
    env.buffer = [{"mass": 3.0}]
    for wrong in ([], {"mass": 1.0}, [{"mas": 1.0}], 3):
        with pytest.raises((ValueError, TypeError, KeyError), match=r"buffer must|'mas'"):
            env.buffer = wrong
    assert env.buffer == [{"mass": 3.0}]
    with pytest.raises(ValueError, match="num_domains must"):
        env.fill_buffer(0)
    with pytest.raises(ValueError, match=r"selection must .*'shuffled'"):
        DomainRandWrapperBuffer(Oscillator(), masses(), selection="shuffled")  # type: ignore[arg-type]


def test_buffer_position_depends_on_the_plan_alone():
    env = DomainRandWrapperBuffer(Oscillator(max_steps=2), masses())
    env.buffer = [{"mass": float(i + 1)} for i in range(10)]
    plans = [RolloutPlan(i, (0, batch, i)) for batch in range(12) for i in range(4)]
    order = np.random.default_rng(0).permutation(len(plans))
    with RolloutEngine(env, zero) as engine:
        ran = [r.rollout_info["domain_param"]["mass"] for r in engine.run(plans)]
        mixed = [r.rollout_info["domain_param"]["mass"] for r in engine.run([plans[i] for i in order])]
    assert mixed == [ran[i] for i in order]
    assert ran[:4] == [1.0, 2.0, 3.0, 4.0]
    assert all(
        (b - a) % 10 == 1 for k in range(12) for a, b in zip(ran[4 * k :], ran[4 * k + 1 : 4 * k + 4], strict=False)
    )
    assert set(ran) == set(range(1, 11))  # small batches use the whole buffer, too
    chosen = DomainRandWrapperBuffer(Oscillator(), masses(), selection="random")
    chosen.buffer = env.buffer
    assert chosen.reset(seed=1)[1] == chosen.reset(seed=1)[1]
    assert len({chosen.reset(seed=s)[1]["domain_param"]["mass"] for s in range(60)}) == 10


def test_meta_wrapper_adapts_distributions_or_nothing():
    env = MetaDomainRandWrapper(live(), {0: ("mass", "mean"), 1: ("mass", "halfspan")})
    env.adapt_randomizer(torch.tensor([5.0, 0.0], requires_grad=True))
    assert env.reset(seed=0)[1]["domain_param"]["mass"] == 5.0
    with pytest.raises(ValueError, match=r"halfspan of 'mass' must .*-1"):
        env.adapt_randomizer([6.0, -1.0])
    assert env.randomizer["mass"] == UniformDomainParam("mass", 5.0, 0.0)
    with pytest.raises(ShapeError, match=r"values must .*\(2,\), got \(1,\)"):
        env.adapt_randomizer([1.0])
    with pytest.raises(UnknownNameError, match="'mas'"):
        MetaDomainRandWrapper(live(), {0: ("mas", "mean")})
    with pytest.raises(UnknownNameError, match="'std'"):
        MetaDomainRandWrapper(live(), {0: ("mass", "std")})
    with pytest.raises(ValueError, match=r"dp_mapping must .*keys"):
        MetaDomainRandWrapper(live(), {1: ("mass", "mean")})
    with pytest.raises(ValueError, match=r"dp_mapping must .*keys"):
        MetaDomainRandWrapper(live(), {"a": ("mass", "mean"), 0: ("mass", "mean")})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"dp_mapping must .*pairs .*got 'mass'"):
        MetaDomainRandWrapper(live(), {0: "mass"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"env must .*Oscillator"):
        MetaDomainRandWrapper(Oscillator(), {0: ("mass", "mean")})


def test_randomization_is_removed_without_changing_the_chain():
    inner = Oscillator()
    env = ActNormWrapper(MetaDomainRandWrapper(DomainRandWrapperLive(inner, masses()), {0: ("mass", "mean")}))
    env.reset(seed=0)
    assert inner.domain_param != NOMINAL
    bare = remove_all_dr_wrappers(env)
    assert [type(layer) for layer in all_envs(bare)] == [ActNormWrapper, Oscillator]
    assert inner_env(bare) is inner and inner.domain_param == NOMINAL
    assert len(all_envs(env)) == 4 and outermost_dr_wrapper(env) is typed_env(env, DomainRandWrapperLive)
    assert outermost_dr_wrapper(bare) is None and remove_all_dr_wrappers(bare) is bare
    assert typed_env(env, DomainRandWrapperBuffer) is None


def test_unknown_parameters_are_refused_when_wrapping():
    with pytest.raises(DataError, match="'masss'"):
        DomainRandWrapperLive(Oscillator(), DomainRandomizer(NormalDomainParam("masss", 1.0, 0.1)))
    with pytest.raises(TypeError, match="randomizer must"):
        DomainRandWrapperLive(Oscillator(), {"mass": 1.0})  # type: ignore[arg-type]
    env = live()
    with pytest.raises(DataError, match="'mas'"):
        env.reset(options={"domain_param": {"mas": 1.0}})
    assert env.reset(seed=0)[1]["domain_param"]["mass"] <= 1.5


def test_transformed_parameters_are_set_and_reported_on_their_scale():
    inner = Oscillator()
    env = DomainParamTransformWrapper(inner, {"mass": "log", "stiffness": "sqrt"})
    assert env.domain_param == {"mass": 0.0, "stiffness": math.sqrt(2.0)}
    DomainParamUpdate({"mass": math.log(3.0), "stiffness": 2.5})(env)
    assert inner.domain_param == {"mass": pytest.approx(3.0), "stiffness": 6.25}
    with pytest.raises(ValueError, match=r"'stiffness' .*square root.*-1"):
        DomainParamUpdate({"mass": 0.0, "stiffness": -1.0})(env)
    with pytest.raises(ValueError, match=r"'mass' .*logarithm.*1000\.0"):
        DomainParamUpdate({"mass": 1000.0})(env)
    assert inner.domain_param["mass"] == pytest.approx(3.0)
    env.domain_param = {"stiffness": np.array([2.0])}
    assert inner.domain_param["stiffness"] == 4.0
    randomized = DomainRandWrapperLive(env, DomainRandomizer(NormalDomainParam("mass", 0.0, 5.0)))
    for seed in range(20):
        reported = randomized.reset(seed=seed)[1]["domain_param"]["mass"]
        assert math.exp(reported) == pytest.approx(inner.domain_param["mass"], rel=1e-12)
    with pytest.raises(UnknownNameError, match="'logg'"):
        DomainParamTransformWrapper(Oscillator(), {"mass": "logg"})
    with pytest.raises(DataError, match="'mas'"):
        DomainParamTransformWrapper(Oscillator(), {"mas": "log"})
    with pytest.raises(ValueError, match=r"'mass' must .*-1"):
        DomainParamTransformWrapper(DomainParamUpdate({"mass": -1.0})(Oscillator()), {"mass": "log"})


def test_default_spreads_are_not_taken_for_transformed_values():
    """A fifth of a mass is not a fifth of its logarithm."""
    env = DomainParamTransformWrapper(PendulumEnv(), {"pole_length": "sqrt", "pole_mass": "log"})
    with pytest.raises(ValueError, match=r"'pole_length' .*sqrt"):
        default_randomizer(env)
    env.env.domain_param = {"pole_length": 4.0}
    given = default_randomizer(env, {"pole_mass": ("uniform", 0.1), "gravity_const": ("normal", 0.1)})
    assert given["pole_mass"] == UniformDomainParam("pole_mass", 0.0, 0.0)
    assert given["gravity_const"] == NormalDomainParam("gravity_const", 9.81, 0.1 * 9.81)


# -- batches -----------------------------------------------------------------------------------------------------------


def pendulum(kind):
    env = PendulumEnv(max_steps=30)
    if kind == "transform":
        env = DomainParamTransformWrapper(env, {"pole_length": "log"})
        return DomainRandWrapperLive(env, DomainRandomizer(UniformDomainParam("pole_length", 0.0, 0.3)))
    if kind == "buffer":
        env = DomainRandWrapperBuffer(env, default_randomizer(env))
        env.fill_buffer(7, generator=0)
        return MetaDomainRandWrapper(env, {0: ("pole_mass", "mean")})
    return DomainRandWrapperLive(env, default_randomizer(env))


@pytest.mark.parametrize("kind", ["live", "buffer", "transform"])
def test_batches_are_bit_equal_to_lists(kind):
    env = pendulum(kind)
    plans = [
        RolloutPlan(0, (1, 0, 0)),
        RolloutPlan(1, (1, 0, 1), eval=True),
        RolloutPlan(2, (1, 3, 2), DomainParamUpdate({"pole_length": 0.2})),
        RolloutPlan(3, (1, 0, 3), init_state=np.array([0.3, 0.1])),
    ]
    batched, listed = make_slots(env, 4, plans=plans), GymSlots(env, 4)
    assert not isinstance(batched, GymSlots)
    for slots in (batched, listed):
        slots.reset(range(4), plans)
    params = [[slots.domain_param(slot) for slot in range(4)] for slots in (batched, listed)]
    assert params[0] == params[1] and len(set(map(str, params[0]))) == 4
    check_slots(lambda n: make_slots(env, n, plans=plans), plans, num_steps=25, like=lambda n: GymSlots(env, n))


def test_an_environment_without_a_batched_simulator_stays_a_list():
    assert isinstance(make_slots(live(), 2), GymSlots)

    class Louder(DomainRandWrapperLive):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, 2.0 * reward, *rest

    env = PendulumEnv()
    assert isinstance(make_slots(Louder(env, default_randomizer(env)), 2), GymSlots)


def test_environments_whose_updates_are_task_notes_are_batched():
    env = DomainRandWrapperLive(PendulumEnv(), default_randomizer(PendulumEnv()))
    assert env.accepts_update(TaskNote("seen")) and PendulumEnv().simulator.accepts_update(TaskNote("seen"))
    plans = [
        RolloutPlan(i, (0, 0, i), env_update=update, max_steps=5) for i in range(2) for update in (None, TaskNote(i))
    ]
    with RolloutEngine(env, zero) as engine:
        plain, noted = engine.run(plans[::2]), engine.run(plans[1::2])
    assert all((a.observations == b.observations).all() for a, b in zip(plain, noted, strict=True))


# -- physics -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_drawn_lengths_and_gravities_give_the_periods_of_theory():
    """T = 2 pi sqrt(2 l / (3 g)) for small swings of a rod about its end, l and g as they were drawn."""
    dt = 0.001
    sim = PendulumEnv(dt=dt, max_steps=4000, init_space=np.array([0.01, 0.0]), domain_param={"pole_damping": 0.0})
    rules = {"pole_length": ("uniform", 0.5), "gravity_const": ("uniform", 0.5)}
    env = DomainRandWrapperLive(sim, default_randomizer(sim, rules))
    with RolloutEngine(env, zero) as engine:
        rollouts = engine.run([RolloutPlan(i, (0, 0, i)) for i in range(6)])
    periods = []
    for result in rollouts:
        params = result.rollout_info["domain_param"]
        angle = np.arctan2(result.observations[:, 0], result.observations[:, 1])
        zeros = np.flatnonzero(np.diff(np.sign(angle)))
        crossing = zeros + angle[zeros] / (angle[zeros] - angle[zeros + 1])
        periods.append(2.0 * dt * np.diff(crossing).mean())
        expected = 2.0 * math.pi * math.sqrt(2.0 * params["pole_length"] / (3.0 * params["gravity_const"]))
        assert periods[-1] == pytest.approx(expected, rel=1e-3)
    assert max(periods) > 1.2 * min(periods)
