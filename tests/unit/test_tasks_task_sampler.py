"""Task samplers: specs/meta.md 3.1, 3.3."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest

from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.tasks.task_sampler import FixedTaskSampler, SetTaskSampler, TaskSampler
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.types import EnvUpdate, TaskNote


class Named(gymnasium.Wrapper):
    def __init__(self, env: Any, task: Any) -> None:
        super().__init__(env)
        self.goal = task["goal"]


class Counted(PointRobotEnv):
    num_tasks = 7
    built = 0

    def __init__(self) -> None:
        super().__init__()
        Counted.built += 1


class OldStyle(PointRobotEnv):
    def sample_tasks(self, num_tasks: int) -> list[dict[str, Any]]:  # type: ignore[override]
        return [{"goal": (0.1 * i, 0.0)} for i in range(num_tasks)]


def test_task_sampler_is_abstract_with_unknown_number_of_tasks() -> None:
    """specs/meta.md 3.1"""
    with pytest.raises(TypeError, match="abstract"):
        TaskSampler()  # type: ignore[abstract]

    class Endless(TaskSampler):
        def sample(self, n_tasks: int, with_replacement: bool = False) -> list[EnvUpdate]:
            return [TaskNote()] * n_tasks

    assert Endless().n_tasks is None


def test_set_task_sampler_gives_updates_with_different_tasks() -> None:
    """specs/meta.md 3.3"""
    sampler = SetTaskSampler(PointRobotEnv, wrapper=Named, generator=1)
    updates = sampler.sample(10)
    assert sampler.n_tasks is None
    assert len({tuple(update.task["goal"]) for update in updates}) == 10
    env = updates[0]()
    for update in updates:
        env = pickle.loads(pickle.dumps(update))(env)
        np.testing.assert_array_equal(env.goal, update.task["goal"])
        np.testing.assert_array_equal(env.unwrapped.get_task()["goal"], update.task["goal"])


def test_set_task_sampler_draws_from_its_generator() -> None:
    first, same, other = (SetTaskSampler(PointRobotEnv, generator=seed).sample(3) for seed in (1, 1, 2))
    assert first == same
    assert first != other


def test_set_task_sampler_uses_the_given_environment_and_its_number_of_tasks() -> None:
    """specs/meta.md 3.3: ``env is None`` decides, and ``n_tasks`` is the environment's ``num_tasks``"""
    env = Counted()
    built = Counted.built
    sampler = SetTaskSampler(Counted, env=gymnasium.wrappers.TimeLimit(env, 5))
    assert sampler.n_tasks == 7
    assert len(sampler.sample(2)) == 2
    assert Counted.built == built


def test_set_task_sampler_takes_functions_and_old_sample_tasks() -> None:
    """specs/meta.md 3.3: any callable"""
    sampler = SetTaskSampler(lambda: OldStyle())
    first, second = sampler.sample(2)
    assert [first.task, second.task] == [{"goal": (0.0, 0.0)}, {"goal": (0.1, 0.0)}]
    env = first()
    assert second(env) is env
    assert sampler.sample(0) == []


def test_set_task_sampler_refuses_what_cannot_work() -> None:
    with pytest.raises(TypeError, match=r"env_constructor must .*'point-robot'.*get_family"):
        SetTaskSampler("point-robot")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"wrapper must .*3"):
        SetTaskSampler(PointRobotEnv, wrapper=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"env must .*sample_tasks"):
        SetTaskSampler(gymnasium.Env).sample(1)
    with pytest.raises(TypeError, match=r"sample_tasks.* CartPoleEnv"):
        SetTaskSampler(lambda: gymnasium.make("CartPole-v1")).sample(1)
    with pytest.raises(ValueError, match=r"n_tasks must .*-1"):
        SetTaskSampler(PointRobotEnv).sample(-1)
    with pytest.raises(TypeError, match=r"n_tasks must .*1\.5"):
        SetTaskSampler(PointRobotEnv).sample(1.5)  # type: ignore[arg-type]


def test_fixed_task_sampler_gives_the_first_in_order() -> None:
    updates: list[EnvUpdate] = [SetTaskUpdate(PointRobotEnv, {"goal": (i, 0)}) for i in range(3)]
    sampler = FixedTaskSampler(updates, generator=0)
    assert sampler.n_tasks == 3
    assert sampler.sample(2) == updates[:2]
    assert sampler.sample(3) == updates
    drawn = sampler.sample(50, with_replacement=True)
    assert len(drawn) == 50
    assert all(any(update is one for one in updates) for update in drawn)
    with pytest.raises(ValueError, match=r"n_tasks must .* 3, .*got 4"):
        sampler.sample(4)
    with pytest.raises(ValueError, match="updates must"):
        FixedTaskSampler([])
    with pytest.raises(TypeError, match=r"updates must .*dict .* at position 0"):
        FixedTaskSampler([{"goal": 1}])  # type: ignore[list-item]
