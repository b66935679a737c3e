"""specs/sampling.md 16.2 and 11: domain parameters as a change to an environment."""

from __future__ import annotations

import pickle

import gymnasium
import numpy as np
import pytest
import torch
from sampler_envs import NOMINAL, Oscillator

from metaroll.envs.slots.gym_slots import GymSlots
from metaroll.errors import DataError
from metaroll.tasks.domain_params import DomainParamUpdate, domain_params_of
from metaroll.types import RolloutPlan, TaskNote


def test_values_reach_a_property_a_method_or_attributes():
    env = gymnasium.wrappers.TimeLimit(Oscillator(), 5)
    assert DomainParamUpdate({"mass": 3})(env) is env
    assert domain_params_of(env) == {"mass": 3.0, "stiffness": 2.0}

    class WithMethod(Oscillator):
        def set_domain_param(self, params):
            self.params = params

    env = WithMethod()
    DomainParamUpdate({"stiffness": 1.0})(env)
    assert env.params == {"stiffness": 1.0}

    env = gymnasium.make("Pendulum-v1", disable_env_checker=True)
    DomainParamUpdate({"g": np.array(9.0), "m": torch.tensor([0.5])})(env)
    assert (env.unwrapped.g, env.unwrapped.m, type(env.unwrapped.g)) == (9.0, 0.5, float)
    DomainParamUpdate({"max_speed": 7.0, "screen_dim": 400.0})(env)
    assert (env.unwrapped.screen_dim, type(env.unwrapped.screen_dim)) == (400, int)
    assert domain_params_of(env) is None


def test_attributes_of_base_classes_count_and_properties_do_not():
    class Base(gymnasium.Env):
        gravity = 9.81

        @property
        def weight(self):
            raise RuntimeError("must not be read")

    class Derived(Base):
        armed = True

    env = DomainParamUpdate({"gravity": 1})(Derived())
    assert env.gravity == 1.0 and Base.gravity == 9.81
    for name in ("weight", "armed", "_np_random_seed"):
        with pytest.raises(DataError, match=f"'{name}'.*Known: gravity$"):
            DomainParamUpdate({name: 1.0})(env)


@pytest.mark.parametrize("make", [Oscillator, lambda: gymnasium.make("Pendulum-v1", disable_env_checker=True)])
def test_unknown_names_list_the_known_ones_and_change_nothing(make):
    """specs/sampling.md 16.2: upstream accepts unknown names silently."""
    env = make()
    before = dict(vars(env.unwrapped))
    with pytest.raises(DataError, match=r"'massss'.*Known: ") as caught:
        DomainParamUpdate({"massss": 1.0})(env)
    assert isinstance(caught.value, KeyError)
    assert vars(env.unwrapped) == before and domain_params_of(env) in (None, NOMINAL)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"m": "heavy"}, TypeError, "'m' must"),
        ({"m": "1.0"}, TypeError, "'m' must"),
        ({"m": [1.0, 2.0]}, TypeError, "'m' must"),
        ({"m": None}, ValueError, "'m' must"),
        ({"m": float("nan")}, ValueError, "'m' must"),
        ({"m": float("inf")}, ValueError, "'m' must"),
        ([("m", 1.0)], TypeError, "params must"),
    ],
)
def test_values_that_are_no_numbers_are_refused(params, error, match):
    with pytest.raises(error, match=match):
        DomainParamUpdate(params)


def test_no_environment_is_an_error():
    with pytest.raises(ValueError, match=r"DomainParamUpdate .*None"):
        DomainParamUpdate({"m": 1.0})(None)


def test_updates_compare_by_value_and_are_pickled():
    update = DomainParamUpdate({"m": 1})
    assert update == DomainParamUpdate({"m": np.float32(1.0)}) != DomainParamUpdate({"m": 2.0})
    assert hash(update) == hash(DomainParamUpdate({"m": 1.0})) and update != TaskNote()
    copy = pickle.loads(pickle.dumps(update))
    assert copy == update and copy.task == {"m": 1.0} and repr(copy) == "DomainParamUpdate({'m': 1.0})"


def test_slots_start_from_nominal_values_whatever_was_set_before():
    """An update that does not set all names of the one before it changes an untouched environment."""
    made = []

    def make():
        made.append(Oscillator())
        return made[-1]

    slots = GymSlots(make, 1)

    def after(params):
        update = None if params is None else DomainParamUpdate(params)
        slots.reset([0], [RolloutPlan(seed=(0, 0, 0), env_update=update)])
        return domain_params_of(slots.environments()[0])

    assert after({"mass": 5.0}) == {"mass": 5.0, "stiffness": 2.0}
    built = len(made)
    assert after({"mass": 6.0}) == {"mass": 6.0, "stiffness": 2.0}
    assert len(made) == built  # the same names again: no need for a new environment
    assert after({"stiffness": 7.0}) == {"mass": 1.0, "stiffness": 7.0}
    assert after({}) == NOMINAL
    assert after({"mass": 5.0, "stiffness": 1.0}) == {"mass": 5.0, "stiffness": 1.0}
    assert after(None) == NOMINAL
