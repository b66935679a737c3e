"""Task families: specs/meta.md 6.1, 7.2, Q-50."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from metaroll.envs.lookup.registry import TaskFamily, family_names, get_family
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.errors import UnknownNameError
from metaroll.tasks import split_sampler
from metaroll.tasks.task_key import task_key
from metaroll.training.session.experiments import resolve, split_tasks


@pytest.mark.parametrize(
    ("name", "num_train", "num_test", "horizon"),
    [("point-robot", 80, 20, 20), ("sparse-point-robot", 80, 20, 20), ("cheetah-vel", 100, 30, 200)],
)
def test_families_have_the_published_split(name: str, num_train: int, num_test: int, horizon: int) -> None:
    """specs/meta.md 6.1"""
    family = get_family(name)
    train, test = family.split()
    assert (len(train), len(test), family.horizon) == (num_train, num_test, horizon)
    assert len({task_key(update.task) for update in train + test}) == num_train + num_test
    assert family.split(seed=0) == (train, test)
    assert family.split(seed=1) != (train, test)
    assert name in family_names()


def test_split_takes_other_numbers() -> None:
    family = get_family("point-robot")
    train, test = family.split(num_train=10, num_test=40, seed=3)
    assert (len(train), len(test)) == (10, 40)
    assert family.split(num_train=0, num_test=1)[0] == []
    with pytest.raises(ValueError, match="num_test must be"):
        family.split(num_test=-1)


def test_sparse_goals_are_spread_over_the_half_circle() -> None:
    """specs/meta.md 7.2: train and test tasks together are equally spaced"""
    train, test = get_family("sparse-point-robot").split()
    angles = np.sort([np.arctan2(*u.task["goal"][::-1]) for u in train + test])
    np.testing.assert_allclose(np.diff(angles), np.pi / 99, atol=1e-12)


@pytest.mark.parametrize("name", ["point-robot", "sparse-point-robot", "ant-goal", "cheetah-vel", "point-navigation"])
def test_held_out_tasks_are_the_same_for_all_numbers_of_training_tasks(name: str) -> None:
    family = get_family(name)
    usual = family.split(seed=3)
    keys = [task_key(update.task) for update in usual[1]]
    for num_train in (1, family.num_train_tasks, family.num_train_tasks + 30):
        train, test = family.split(num_train, seed=3)
        assert [task_key(update.task) for update in test] == keys
        known = {task_key(update.task) for update in train}
        assert len(known) == num_train and not known & set(keys)
        shared = min(num_train, family.num_train_tasks)
        assert [task_key(u.task) for u in train[:shared]] == [task_key(u.task) for u in usual[0][:shared]]
    _, more = family.split(1, family.num_test_tasks + 5, seed=3)
    assert [task_key(update.task) for update in more][: len(keys)] == keys


@pytest.mark.parametrize("name", ["point-robot", "sparse-point-robot", "ant-goal", "cheetah-vel", "point-navigation"])
def test_more_held_out_tasks_leave_those_before_as_they_were(name: str) -> None:
    family = get_family(name)
    train, test = family.split()
    for number in (1, 25, 40, 150):
        same, more = family.split(num_test=number)
        assert same == train and len(more) == number
        assert all(one == other for one, other in zip(more, test, strict=False))
        assert not {task_key(update.task) for update in more} & {task_key(update.task) for update in train}
    assert family.split(num_test=150)[1][:40] == family.split(num_test=40)[1]


def test_runs_of_before_keep_the_tasks_that_they_held_out() -> None:
    """They held out what was drawn after their own training tasks, and say nothing of it in their configuration."""
    family = get_family("point-robot")
    train, test = family.split(400, 20, test_after_train=True)
    np.testing.assert_allclose(test[0].task["goal"], [0.441, -0.391], atol=5e-4)  # as such runs have it in their files
    config = resolve("pearl", "point-robot", size="small")
    assert config["run"]["held_out"] == "independent"
    older = {name: value for name, value in config["run"].items() if name != "held_out"}
    env = EnvSource.of("point-robot")
    old, new = split_tasks({**config, "run": older}, env), split_tasks(config, env)
    assert [task_key(u.task) for u in old[0]] == [task_key(u.task) for u in train]
    assert [task_key(u.task) for u in old[1]] == [task_key(u.task) for u in test]
    assert [task_key(u.task) for u in new[1]] == [task_key(u.task) for u in family.split()[1]]
    assert family.split(80, 40) == family.split(
        80, 40, test_after_train=True
    )  # with the usual number both are the same


def test_goals_that_differ_by_rounding_are_one_task() -> None:
    for sizes in ((100, 20), (240, 20), (80, 40), (300, 60)):
        train, test = get_family("sparse-point-robot").split(*sizes)
        goals = np.array([update.task["goal"] for update in train + test])
        distances = np.abs(goals[:, None] - goals[None]).max(axis=2) + np.eye(len(goals))
        assert distances.min() > 1e-9


def test_corners_that_are_not_trained_in_come_first_in_the_test() -> None:
    train, test = get_family("point-corners").split(3, 1)  # as runs of before have them
    assert task_key(test[0].task) not in {task_key(update.task) for update in train}
    train, test = get_family("point-corners").split()
    assert len(train) == len(test) == 4


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no more tasks, that is found out quickly."""
    monkeypatch.setattr(split_sampler, "_LARGEST_BLOCK", 128)


@pytest.mark.usefixtures("small_blocks")
def test_a_family_of_few_tasks_holds_out_what_nobody_is_trained_in() -> None:
    class Ten(PointRobotEnv):
        def sample_tasks(self, num_tasks, generator=None):
            places = np.random.default_rng(generator).permutation(10)
            return [{"goal": (0.1 * places[i % 10], 0.0)} for i in range(num_tasks)]

    family = TaskFamily("few", Ten, 6, 4, 10)
    for sizes in ((6, 4), (2, 8), (3, 7)):
        train, test = family.split(*sizes)
        assert len({task_key(update.task) for update in train + test}) == 10
    with pytest.raises(ValueError, match="different tasks"):
        family.split(6, 5)


def test_cheetah_velocities_lie_between_0_and_3() -> None:
    """specs/meta.md 7.2: U(0, 3), and no global generator is seeded (Q-50)"""
    train, test = get_family("cheetah-vel").split()
    velocities = [update.task["velocity"] for update in train + test]
    assert 0 <= min(velocities) < 0.3
    assert 2.7 < max(velocities) <= 3


@pytest.mark.usefixtures("small_blocks")
def test_too_few_different_tasks_are_told() -> None:
    class Two(PointRobotEnv):
        @classmethod
        def sample_tasks(cls, num_tasks: int, generator: np.random.Generator | None = None) -> list:  # type: ignore
            assert generator is not None
            return [{"goal": (float(x), 0.0)} for x in generator.choice([-1, 1], size=num_tasks)]

    family = TaskFamily("two", Two, 1, 1, 20)
    train, test = family.split()
    assert train[0] != test[0]  # drawn again until they differ
    with pytest.raises(ValueError, match="two must have 3 different tasks for this split, found 2"):
        family.split(2, 1)


def test_unknown_family_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown task family 'chetah-vel'; did you mean 'cheetah-vel'"):
        get_family("chetah-vel")


def test_tasks_of_cheetah_need_no_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    train, _ = get_family("cheetah-vel").split(2, 1)
    with pytest.raises(ImportError, match=r"pip install 'imageio>=2.34' 'mujoco>=3.2'"):
        train[0]()
