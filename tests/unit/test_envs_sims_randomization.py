"""specs/sampling.md 16.4 and the random columns of 17: default spreads of the simulated systems."""

from __future__ import annotations

import math
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from metaroll import DomainParamUpdate, DomainRandomizer, NormalDomainParam, UniformDomainParam, make_slots
from metaroll.envs.sims.catalog import SIMS, PendulumEnv, QCartPoleStabEnv
from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.errors import DataError, UnknownNameError
from metaroll.sims import conservative_randomizer, default_randomizer, empty_randomizer, zero_variance_randomizer
from metaroll.wrappers import DomainRandWrapperLive


@pytest.mark.parametrize("name", [entry.id for entry in SIMS if entry.short_name != "2dg"])
def test_every_system_accepts_its_default_domains(name):
    """No draw of the default spreads leaves the ranges of a system."""
    env = gymnasium.make(name, disable_env_checker=True)
    randomizer = default_randomizer(env, generator=0)
    assert set(randomizer.names) <= set(env.unwrapped.get_nominal_domain_param())  # type: ignore[attr-defined]
    for update in randomizer.sample(100):
        update(env)
    assert env.unwrapped.domain_param["gravity_const" if "gravity_const" in randomizer.names else "mass"] > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [entry.id for entry in SIMS if entry.short_name != "2dg"])
def test_no_draw_however_rare_ends_a_training(name):
    env = gymnasium.make(name, disable_env_checker=True)
    randomizer = default_randomizer(env)
    rarest = {key: randomizer[key].clip_lo for key in randomizer.names if np.isfinite(randomizer[key].clip_lo)}
    DomainParamUpdate(rarest)(env)
    assert {key: env.unwrapped.domain_param[key] for key in rarest} == rarest  # type: ignore[attr-defined]


def test_numbers_of_the_tables():
    pendulum = default_randomizer("metaroll/Pendulum-v0")
    assert pendulum["pole_length"] == NormalDomainParam("pole_length", 1.0, 0.1, clip_lo=1e-3)
    balancer = default_randomizer("qbb")
    assert balancer["offset_th_x"] == UniformDomainParam("offset_th_x", 0.0, math.radians(6.0))
    assert balancer["gear_efficiency"] == UniformDomainParam("gear_efficiency", 0.9, 0.225, clip_lo=1e-4, clip_up=1.0)
    assert default_randomizer(QCartPoleStabEnv)["pole_length"].mean == 0.641 / 2  # type: ignore[attr-defined]  # (17.4 d)


@pytest.mark.parametrize(
    "name", ["default", *(pytest.param(one, marks=pytest.mark.slow) for one in ("conservative", "zero_variance"))]
)
def test_names_are_known_to_the_first_call_of_a_process(name):
    script = f"import metaroll; print(len(metaroll.{name}_randomizer('qcp-st')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(default_randomizer("qcp-st"))


def test_factories_narrow_the_default():
    half = conservative_randomizer("pend")["pole_mass"]
    assert (half.mean, half.std) == (1.0, 0.05)  # type: ignore[attr-defined]
    drawn = zero_variance_randomizer("pend").draw(50, 0)
    assert all(abs(values["pole_mass"] - 1.0) < 1e-4 for values in drawn)
    env = DomainRandWrapperLive(PendulumEnv(), empty_randomizer())
    env.reset(seed=0)
    assert env.domain_param == PendulumEnv().get_nominal_domain_param()


def test_other_environments_need_rules():
    randomizer = default_randomizer("Pendulum-v1", {"g": ("normal", 0.1, 1e-3), "m": ("uniform", 0.2)})
    assert randomizer["g"] == NormalDomainParam("g", 10.0, 1.0, clip_lo=1e-3)
    given = default_randomizer({"mass": 2.0}, {"mass": ("uniform", 0.5)})
    assert isinstance(given, DomainRandomizer) and given["mass"] == UniformDomainParam("mass", 2.0, 1.0)
    with pytest.raises(ValueError, match=r"no default ranges for PendulumEnv; give, .* rules="):
        default_randomizer("Pendulum-v1")
    with pytest.raises(ValueError, match="rules must be given"):
        default_randomizer({"mass": 2.0})
    with pytest.raises(DataError, match="unknown domain parameter of PendulumEnv 'gg'"):
        default_randomizer("Pendulum-v1", {"gg": ("normal", 0.1)})
    with pytest.raises(UnknownNameError, match="did you mean 'normal'"):
        default_randomizer("pend", {"pole_mass": ("norml", 0.1)})


def test_environments_made_by_gymnasium_are_stepped_as_batches_too():
    env = gymnasium.make("metaroll/Pendulum-v0")
    wrapped = DomainRandWrapperLive(env, default_randomizer(env))
    slots = make_slots(wrapped, 2)
    assert not isinstance(slots, GymSlots)
    assert slots.info.name == GymSlots(wrapped, 1).info.name == "metaroll/Pendulum-v0"
    assert slots.env_spec.observation_labels == PendulumEnv().env_spec.observation_labels
    assert np.isfinite(slots.env_spec.action_space.high).all()  # type: ignore[attr-defined]
