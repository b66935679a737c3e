"""Families of tasks from environments of one's own: the hashed split, its samplers, and what is wrong with a family."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from task_envs import Line, Sized, ToldByReset, make_line

from metaroll import (
    DomainRandomizer,
    FixedTaskSampler,
    NewEnvUpdate,
    NormalDomainParam,
    RolloutEngine,
    RolloutPlan,
    SetTaskSampler,
    SetTaskUpdate,
    SplitTaskSampler,
    TaskFamily,
    TaskSampler,
    UniformDomainParam,
    get_family,
)
from metaroll.envs.lookup.registry import family_of
from metaroll.envs.lookup.source import env_kind
from metaroll.envs.sims.catalog import SIMS, CatapultEnv, sim_constructor
from metaroll.errors import DataError, UnknownNameError
from metaroll.policies.playback import DummyPolicy
from metaroll.sims import default_randomizer
from metaroll.tasks.split_sampler import task_side
from metaroll.tasks.task_key import task_key
from metaroll.training.session.experiments import resolve
from metaroll.types import EnvSpec

pytestmark = pytest.mark.usefixtures("lent_pools")


def keys(updates) -> list:
    return [task_key(update.task) for update in updates]


def place_of(update) -> float:
    return update(None).unwrapped.place


FAMILIES = {
    "params": lambda: TaskFamily.from_params(Line, {"place": (-1, 1)}, horizon=10),
    "randomizer": lambda: TaskFamily.from_params(
        make_line, DomainRandomizer(UniformDomainParam("place", 0.0, 1.0)), horizon=10
    ),
    "sample_tasks": lambda: TaskFamily.from_env(Line, horizon=10),
    "set_task": lambda: TaskFamily.from_env(Line, [NormalDomainParam("place", 0.0, 1.0)], horizon=10),
    "reset": lambda: TaskFamily.from_env(ToldByReset, {"place": (-1, 1)}, horizon=10),
    "function": lambda: TaskFamily.from_env(
        make_line, lambda num, generator: [{"place": float(p)} for p in generator.normal(size=num)], horizon=10
    ),
}


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_kind_of_family_splits_by_hash(kind):
    family = FAMILIES[kind]()
    train, test = family.split(seed=3)
    assert (len(train), len(test)) == (80, 20)
    assert all(task_side(update.task, 0.2) == "train" for update in train)
    assert all(task_side(update.task, 0.2) == "test" for update in test)
    assert len({*keys(train), *keys(test)}) == 100
    assert keys(FAMILIES[kind]().split(seed=3)[0]) == keys(train)
    assert not set(keys(train)) & set(keys(family.split(seed=4)[0]))


@pytest.mark.parametrize("kind", FAMILIES)
def test_growing_a_set_moves_no_task(kind):
    family = FAMILIES[kind]()
    train, test = family.split(10, 5)
    more, others = family.split(300, 7)
    assert keys(more[:10]) == keys(train)
    assert keys(others[:5]) == keys(test)


@pytest.mark.parametrize("kind", FAMILIES)
def test_updates_make_environments_of_their_task_and_change_others(kind):
    train, _ = FAMILIES[kind]().split(3, 1)
    env = train[0](None)
    for update in train:
        env = update(env)
        env.reset(seed=0)
        assert env.unwrapped.place == update.task["place"]
    fresh = train[2](None)
    fresh.reset(seed=0)
    assert fresh.unwrapped.place == train[2].task["place"]


@pytest.mark.parametrize("kind", FAMILIES)
def test_samplers_go_on_for_ever_and_never_meet(kind):
    family = FAMILIES[kind]()
    train, test = family.samplers(seed=1)
    assert train.n_tasks is None
    drawn = [*train.sample(30), *train.sample(30)], [*test.sample(30), *test.sample(30)]
    assert len(set(keys(drawn[0]))) == len(set(keys(drawn[1]))) == 60
    assert not set(keys(drawn[0])) & set(keys(drawn[1]))
    assert not set(keys(family.split()[0])) & set(keys(drawn[1]))  # whatever the seed
    assert keys(family.samplers(seed=1)[0].sample(30)) == keys(drawn[0][:30])
    assert train.sample(0) == []


def test_rollouts_of_a_family_are_the_same_in_workers():
    family = FAMILIES["reset"]()
    train, _ = family.split(6, 1)
    plans = [RolloutPlan(i, (0, 0, i), env_update=update, max_steps=5) for i, update in enumerate(train)]
    policy = DummyPolicy(EnvSpec.from_env(family.env_constructor()))
    with RolloutEngine(family.env_constructor, policy) as engine:
        here = engine.run(plans)
    with RolloutEngine(train[0], policy, num_workers=2) as engine:
        there = engine.run(plans)
    for left, right, update in zip(here, there, train, strict=True):
        np.testing.assert_array_equal(left.rewards, right.rewards)
        first = abs(0.2 * left.actions[0, 0] - update.task["place"])
        assert left.rewards[0] == pytest.approx(-first)


class Mine(TaskSampler):
    """A sampler of somebody else, with no more than it must have."""

    generator = np.random.default_rng(0)

    def sample(self, n_tasks, with_replacement=False):
        return [SetTaskUpdate(Line, {"place": float(place)}) for place in self.generator.uniform(size=n_tasks)]


@pytest.mark.parametrize(
    "sampler",
    [
        Mine(),
        SetTaskSampler(Line),
        DomainRandomizer(UniformDomainParam("place", 0.0, 1.0), env_constructor=Line),
        FixedTaskSampler([NewEnvUpdate(functools.partial(Sized, size=i), task=i) for i in range(30)]),
        FixedTaskSampler([SetTaskUpdate(Line, {"place": i / 30}) for i in range(30)]),
    ],
)
def test_tasks_of_any_sampler_are_split(sampler):
    train, test = (SplitTaskSampler(sampler, side, generator=0) for side in ("train", "test"))
    drawn = train.sample(8), test.sample(2)
    assert all(task_side(update.task, 0.2) == "train" for update in drawn[0])
    assert all(task_side(update.task, 0.2) == "test" for update in drawn[1])
    assert len(set(keys([*drawn[0], *drawn[1]]))) == 10
    assert drawn[0][0](None).reset(seed=0)


# -------------------------------------------------------------------------------------------------- lists of all tasks
def test_constructors_are_tasks_by_name():
    sizes = {f"size {size}": functools.partial(Sized, size=size) for size in range(1, 31)}
    family = TaskFamily.from_constructors(sizes, horizon=10)
    train, test = family.split()
    assert len(train) + len(test) == 30 == family.num_train_tasks + family.num_test_tasks
    assert [update.task for update in test] == [name for name in sizes if task_side(name, 0.2) == "test"]
    assert test[0](None).size == float(test[0].task.split()[1])
    more = TaskFamily.from_constructors({**sizes, "size 31": Sized}, horizon=10)
    assert set(keys(train)) <= set(keys(more.split()[0]))
    sampler, _ = family.samplers()
    assert sampler.n_tasks == len(train)
    assert set(keys(sampler.sample(len(train)))) == set(keys(train))  # each once before any again
    assert len(sampler.sample(100, with_replacement=True)) == 100


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_of_two_constructors_one_is_held_out(share):
    kinds = {"light": functools.partial(Sized, size=1), "heavy": functools.partial(Sized, size=2)}
    family = TaskFamily.from_constructors(kinds, horizon=10, test_share=share)
    (train,), (test,) = family.split()
    assert {train.task, test.task} == {"light", "heavy"}
    assert family.split(seed=5)[1][0].task == test.task
    samplers = [sampler.sample(1)[0].task for sampler in family.samplers(seed=2)]
    assert samplers == [train.task, test.task]


def test_short_lists_are_split_as_longer_ones_where_the_hash_fills_both_sides():
    for start in range(60):
        tasks = [{"place": start + i / 7} for i in range(4)]
        sides = [task_side(task, 0.2) for task in tasks]
        train, test = TaskFamily.from_env(Line, tasks, horizon=5).split()
        assert train and test
        if "test" in sides and "train" in sides:
            assert [task_side(update.task, 0.2) for update in test] == ["test"] * sides.count("test")
        elif "test" not in sides:  # that nearest to the border: the first that a larger share holds out
            shares = np.linspace(0.2, 1, 2000, endpoint=False)
            found = [[task for task in tasks if task_side(task, share) == "test"] for share in shares]
            assert [update.task for update in test] == next(held_out for held_out in found if held_out)


def test_what_is_held_out_can_be_said():
    kinds = {name: functools.partial(Sized, size=i + 1) for i, name in enumerate(["light", "medium", "heavy"])}
    family = TaskFamily.from_constructors(kinds, test_tasks=["heavy"], horizon=10)
    train, test = family.split()
    assert ([update.task for update in train], [update.task for update in test]) == (["light", "medium"], ["heavy"])
    assert {update.task for update in family.samplers()[0].sample(2)} == {"light", "medium"}
    family = TaskFamily.from_env(Line, [{"place": i / 4} for i in range(4)], test_tasks=[{"place": 0.5}], horizon=5)
    assert [update.task for update in family.split()[1]] == [{"place": 0.5}]
    assert (family.num_train_tasks, family.num_test_tasks) == (3, 1)
    all_for_training = TaskFamily.from_constructors(kinds, test_tasks=[], horizon=10)
    assert (all_for_training.num_train_tasks, all_for_training.num_test_tasks) == (3, 0)
    with pytest.raises(ValueError, match="some of the tasks, 'light', 'medium', 'heavy', got 'heavier'"):
        TaskFamily.from_constructors(kinds, test_tasks=["heavier"], horizon=10)
    with pytest.raises(ValueError, match="test_tasks must be some of a list of tasks, but here tasks are drawn"):
        TaskFamily.from_env(Line, {"place": (-1, 1)}, test_tasks=[{"place": 0.5}])


def test_a_task_of_nan_is_refused_when_the_family_is_made():
    with pytest.raises(ValueError, match=r"tasks\[1\] must be without NaN.*\(place is NaN\)"):
        TaskFamily.from_env(Line, [{"place": 0.5}, {"place": float("nan")}])


def test_names_of_constructors_must_tell_them_apart():
    family = TaskFamily.from_constructors([functools.partial(Sized, size=s) for s in range(20)], horizon=5)
    assert "Sized(size=3)" in [update.task for update in family.tasks.updates or []]
    with pytest.raises(ValueError, match=r"names, .*got 'Line' twice; give a dict"):
        TaskFamily.from_constructors([Line, Line])
    with pytest.raises(ValueError, match="names"):
        TaskFamily.from_constructors([lambda: Line()])
    with pytest.raises(TypeError, match="must be functions or classes"):
        TaskFamily.from_constructors({"a": 3})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="at least one, got none"):
        TaskFamily.from_constructors([])


def test_a_list_of_tasks_is_split_whole():
    tasks = [{"place": i / 10} for i in range(40)] + [{"place": 0.1}]  # one twice
    family = TaskFamily.from_env(Line, tasks, horizon=5)
    train, test = family.split()
    assert len(train) + len(test) == 40
    with pytest.raises(ValueError, match=r"Line has \d+ training and \d+ held-out tasks.*too few for num_train=60"):
        family.split(num_train=60)
    with pytest.raises(ValueError, match=r"at least two tasks, one to train in and one to hold out.*test_tasks=\[\]"):
        TaskFamily.from_env(Line, tasks[:1])
    with pytest.raises(ValueError, match="none of the 1 tasks is on the side 'test'"):
        SplitTaskSampler(TaskFamily.from_env(Line, tasks[:1], num_train_tasks=1, num_test_tasks=0).tasks, "test", 1e-9)


# ---------------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"plaze": (-1, 1)}, DataError, "unknown domain parameter of Line 'plaze'; did you mean 'place'"),
        ({"place": (1, -1)}, ValueError, "low below high"),
        ({"place": 3}, TypeError, r"params\['place'\] must be \(low, high\), or a distribution"),
        ({"place": ("a", "b")}, TypeError, "two numbers"),
        ({"place": NormalDomainParam("x", 0, 1)}, ValueError, "must be a distribution of 'place', got one of"),
        ({}, ValueError, "at least one number that varies"),
        (3, TypeError, "params must be a dict such as"),
    ],
)
def test_bad_params_are_refused_when_the_family_is_made(params, error, message):
    with pytest.raises(error, match=message):
        TaskFamily.from_params(Line, params)


def test_bad_environments_and_tasks_are_refused():
    with pytest.raises(TypeError, match=r"ToldByReset has no sample_tasks\(num_tasks\): add it"):
        TaskFamily.from_env(ToldByReset)
    with pytest.raises(TypeError, match="make_env must be a class or function"):
        TaskFamily.from_env(Line())  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match=r"Pendulumm.*did you mean 'Pendulum-v1'"):
        TaskFamily.from_params("Pendulumm-v1", {"m": (0.5, 2)})
    with pytest.raises(TypeError, match="tasks must be a list of tasks"):
        TaskFamily.from_env(Line, 3)
    with pytest.raises(ValueError, match="test_share must lie in"):
        TaskFamily.from_env(Line, test_share=0)
    short = TaskFamily.from_env(Line, lambda num, generator: [0.5], horizon=5)
    with pytest.raises(ValueError, match=r"tasks\(64, generator\) must return 64 tasks, got 1"):
        short.split()


@pytest.mark.parametrize("horizon", [0, -3, 2.5, True])
def test_a_horizon_that_is_none_is_refused(horizon):
    with pytest.raises((TypeError, ValueError), match=f"horizon must be .*, got {horizon}"):
        TaskFamily.from_env(Line, horizon=horizon)


@pytest.mark.parametrize("seed", [1.9, "7", -1, "x", float("inf"), None, True, np.zeros(2)])
@pytest.mark.parametrize("test_share", [0.2, None])
def test_a_seed_that_is_none_is_refused(seed, test_share):
    """``int(seed)`` split as other seeds do, or raised an error of Python's."""
    family = dataclasses.replace(TaskFamily.from_params(Line, {"place": (-1, 1)}, horizon=5), test_share=test_share)
    for call in (family.split, family.samplers):
        with pytest.raises((TypeError, ValueError), match=r"^seed must be an integer of at least 0, got "):
            call(seed=seed)
    assert keys(family.split(2, 1, seed=np.int64(3))[0]) == keys(family.split(2, 1, seed=3)[0])


def test_tasks_that_set_task_does_not_take_are_refused_when_the_family_is_made():
    for tasks in ({"plaze": (-1, 1)}, [{"plaze": 0.5}, {"plaze": 0.7}]):
        with pytest.raises(ValueError, match="tasks of Line cannot be set: KeyError: 'place'"):
            TaskFamily.from_env(Line, tasks)


def test_constructors_that_need_arguments_are_refused_with_the_cure():
    class Needs(Line):
        def __init__(self, size, *, weight, color="red"):
            super().__init__()

    hint = r"Needs needs the arguments size, weight, but .* def make\(\): return Needs\(size=..., weight=...\)"
    with pytest.raises(TypeError, match=hint):
        TaskFamily.from_env(Needs)
    with pytest.raises(TypeError, match="a needs the arguments size, weight"):
        TaskFamily.from_constructors({"a": Needs})
    with pytest.raises(TypeError, match=hint):
        family_of(Needs)
    assert TaskFamily.from_env(functools.partial(Needs, 1, weight=2), horizon=5).horizon == 5


def test_an_engine_names_the_constructor_of_a_family():
    with pytest.raises(TypeError, match=r"got a TaskFamily, whose family\.env_constructor does"):
        RolloutEngine(TaskFamily.from_env(Line), DummyPolicy(EnvSpec.from_env(Line())))


def test_too_few_different_tasks_are_told():
    family = TaskFamily.from_env(Line, lambda num, generator: list(generator.choice(5, size=num)), horizon=5)
    with pytest.raises(ValueError, match="no more than 5 different tasks of Line; ask for fewer"):
        family.split(80, 20)
    sampler, _ = family.samplers()
    with pytest.raises(ValueError, match=r"no more than . different tasks on the side 'train'"):
        sampler.sample(50)
    assert len(sampler.sample(50, with_replacement=True)) == 50


# -------------------------------------------------------------------------------------------------------- horizon, name
def test_time_limits_and_ids_of_gymnasium():
    family = TaskFamily.from_params("Pendulum-v1", {"m": (0.5, 2.0)})
    assert (family.name, family.horizon) == ("Pendulum-v1", 200)
    update = family.split(1, 1)[0][0]
    assert update(None).unwrapped.m == update.task["m"]  # type: ignore[union-attr]
    assert TaskFamily.from_env(Line).horizon is None


def test_the_option_of_reset_can_have_any_name():
    class Goal(ToldByReset):
        option = "goal"

    family = TaskFamily.from_env(Goal, {"place": (1, 2)}, option="goal", horizon=5)
    update = family.split(1, 1)[0][0]
    env = update(None)
    env.reset()
    assert env.unwrapped.place == update.task["place"] == env.get_task()["place"]
    env.reset(options={"goal": {"place": 7.0}})  # what is given at the reset goes first
    assert env.unwrapped.place == 7.0


# ------------------------------------------------------------------------------------------------- simulated systems
@pytest.mark.parametrize("name", [entry.short_name for entry in SIMS if entry.short_name != "2dg"])
def test_simulated_systems_are_families_of_their_default_domains(name):
    """specs/sampling.md 16.4"""
    family = get_family(name)
    assert family.horizon == sim_constructor(name)().max_steps
    train, test = family.split(30, 5)
    names = default_randomizer(name).names
    env = None
    for update in train + test:
        env = update(env)
        assert list(update.task) == names
        assert {key: env.domain_param[key] for key in names} == update.task
    assert repr(family.tasks) == repr(default_randomizer(name))


def test_tasks_of_a_simulated_system_are_stepped_as_a_batch():
    train, _ = get_family("pend").split(3, 1)
    plans = [RolloutPlan(i, (0, 0, i), env_update=update) for i, update in enumerate(train)]
    assert env_kind(train[0], plans) == env_kind("pend", plans) == "batched"


def test_ppo_learns_a_simulated_system_as_it_is():
    system, family = (resolve("ppo", name)["algorithm"] for name in ("pend", "point-robot"))
    assert (system["max_steps"], system["num_train_tasks"]) == (400, None)
    assert family["num_train_tasks"] == 80


def test_planets_of_the_catapult():
    """specs/sampling.md 17.7: Venus with probability 0.7"""
    randomizer = default_randomizer(CatapultEnv(planets=True), generator=0)
    planets = np.array([values["planet"] for values in randomizer.draw(4000)])
    assert set(planets) == {0.0, 1.0}
    assert planets.mean() == pytest.approx(0.7, abs=0.03)  # standard deviation 0.007
    assert "planet" not in default_randomizer(CatapultEnv()).names
