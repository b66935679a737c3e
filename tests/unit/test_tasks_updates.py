"""Updates of environments: specs/meta.md 3.6, Q-32, Q-55."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest

from metaroll.tasks.task_key import task_key
from metaroll.tasks.updates import ExistingEnvUpdate, NewEnvUpdate, SetTaskUpdate


class TaskEnv(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain
        self.task: Any = None
        self.closed = False

    def set_task(self, task: Any) -> None:
        self.task = task

    def get_task(self) -> Any:
        return self.task

    def close(self) -> None:
        self.closed = True


class SubTaskEnv(TaskEnv):
    pass


class TaskName(gymnasium.Wrapper):
    """A wrapper with data of the task, as garage's TaskNameWrapper."""

    def __init__(self, env: Any, task: Any) -> None:
        super().__init__(env)
        self.name_of_task = task


class OtherWrapper(gymnasium.Wrapper):
    pass


def layers(env: Any) -> list[str]:
    names = []
    while True:
        names.append(type(env).__name__)
        if not isinstance(env, gymnasium.Wrapper):
            return names
        env = env.env


def test_new_env_update_closes_the_old_and_builds() -> None:
    """specs/meta.md 3.6"""
    old = TaskEnv()
    new = NewEnvUpdate(SubTaskEnv)(old)
    assert type(new) is SubTaskEnv
    assert old.closed
    assert type(NewEnvUpdate(SubTaskEnv)()) is SubTaskEnv


def test_new_env_update_closes_an_environment_that_is_false() -> None:
    """specs/meta.md 3.6: upstream tests truthiness, and leaves an environment of length 0 open"""

    class Empty(TaskEnv):
        def __len__(self) -> int:
            return 0

    old = Empty()
    NewEnvUpdate(TaskEnv)(old)
    assert old.closed


def test_existing_env_update_returns_its_environment_and_closes_nothing() -> None:
    """specs/meta.md 3.6"""
    env, old = TaskEnv(), TaskEnv()
    assert ExistingEnvUpdate(env)(old) is env
    assert not old.closed


def test_copies_of_existing_env_update_keep_the_environment() -> None:
    """specs/meta.md Q-55"""
    env = TaskEnv()
    assert copy.deepcopy(ExistingEnvUpdate(env))() is env
    assert copy.copy(ExistingEnvUpdate(env))() is env
    with pytest.warns(UserWarning, match=r"ExistingEnvUpdate .*pickled"):
        assert type(pickle.loads(pickle.dumps(ExistingEnvUpdate(env)))()) is TaskEnv


def test_set_task_update_builds_sets_and_wraps() -> None:
    """specs/meta.md 3.6"""
    env = SetTaskUpdate(TaskEnv, "t1", TaskName)()
    assert layers(env) == ["TaskName", "TaskEnv"]
    assert env.unwrapped.task == "t1"
    assert env.name_of_task == "t1"


def test_set_task_update_reuses_the_environment_with_a_fresh_wrapper() -> None:
    """specs/meta.md Q-32: the wrapper of the task before must not survive"""
    old = SetTaskUpdate(TaskEnv, "t1", TaskName)()
    base = old.unwrapped
    new = SetTaskUpdate(TaskEnv, "t2", TaskName)(old)
    assert new.unwrapped is base
    assert layers(new) == ["TaskName", "TaskEnv"]
    assert (base.task, new.name_of_task) == ("t2", "t2")
    assert not base.closed


def test_set_task_update_without_wrapper_keeps_those_of_the_user_and_drops_those_of_updates() -> None:
    """specs/meta.md 3.6, Q-32"""
    own = OtherWrapper(TaskEnv())
    assert layers(SetTaskUpdate(TaskEnv, "t1")(own)) == ["OtherWrapper", "TaskEnv"]
    stale = SetTaskUpdate(TaskEnv, "t1", TaskName)(TaskEnv())
    assert layers(SetTaskUpdate(TaskEnv, "t2")(stale)) == ["TaskEnv"]


@pytest.mark.parametrize("old_type", [SubTaskEnv, gymnasium.Env])
def test_set_task_update_replaces_another_type(old_type: type) -> None:
    """specs/meta.md 3.6: a subclass is another type"""
    closed = []
    old = old_type()
    old.close = lambda: closed.append(True)
    with pytest.warns(UserWarning, match=f"SetTaskUpdate .* TaskEnv, got {old_type.__name__}"):
        new = SetTaskUpdate(TaskEnv, "t1")(old)
    assert type(new) is TaskEnv
    assert closed == [True]


def test_set_task_update_with_a_function_reuses_only_what_it_made() -> None:
    """specs/meta.md 3.3: any callable; two of them may configure one class differently"""
    double = functools.partial(TaskEnv, gain=2.0)
    update = SetTaskUpdate(double, "t1")
    env = update()
    sent = cloudpickle.loads(cloudpickle.dumps(update))
    assert sent.reuses(env)
    assert sent(env) is env
    assert not SetTaskUpdate(TaskEnv, "t1").reuses(OtherWrapper(SubTaskEnv()))
    with pytest.warns(UserWarning, match=r"SetTaskUpdate .*got TaskEnv"):
        assert SetTaskUpdate(functools.partial(TaskEnv, gain=3.0), "t1")(env).gain == 3.0


def test_set_task_update_finds_set_task_behind_wrappers() -> None:
    update = SetTaskUpdate(lambda: OtherWrapper(TaskEnv()), "t1")
    env = update()
    assert layers(env) == ["OtherWrapper", "TaskEnv"]
    assert env.unwrapped.task == "t1"
    assert layers(update(env)) == ["OtherWrapper", "TaskEnv"]


def test_updates_are_equal_where_their_tasks_are() -> None:
    first = SetTaskUpdate(TaskEnv, {"goal": np.array([0.0, 1.0])})
    same = pickle.loads(pickle.dumps(SetTaskUpdate(TaskEnv, {"goal": [0, 1]})))
    assert first == same
    assert hash(first) == hash(same)
    assert first != SetTaskUpdate(TaskEnv, {"goal": np.array([0.0, 2.0])})
    assert first != SetTaskUpdate(SubTaskEnv, {"goal": np.array([0.0, 1.0])})
    assert NewEnvUpdate(TaskEnv) == NewEnvUpdate(TaskEnv)
    assert NewEnvUpdate(TaskEnv) != NewEnvUpdate(SubTaskEnv)
    env = TaskEnv()
    assert ExistingEnvUpdate(env) == ExistingEnvUpdate(env)
    assert ExistingEnvUpdate(env) != ExistingEnvUpdate(TaskEnv())


def test_updates_know_their_task() -> None:
    env = TaskEnv()
    env.set_task("here")
    assert SetTaskUpdate(TaskEnv, "t1").task == "t1"
    assert NewEnvUpdate(TaskEnv).task == "TaskEnv"
    assert ExistingEnvUpdate(OtherWrapper(env)).task == "here"


def test_task_key_is_by_value() -> None:
    assert task_key({"b": np.float32(2), "a": (1, [2])}) == task_key({"a": [1, (2,)], "b": 2.0})
    assert task_key({"a": 1}) != task_key({"a": 1, "b": 2})
    assert hash(task_key({"x": object.__new__(type("T", (), {"__hash__": None}))})) is not None


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"env_type must .*TaskEnv"):
        SetTaskUpdate(TaskEnv(), "t1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"wrapper_constructor must .*'wrap'"):
        SetTaskUpdate(TaskEnv, "t1", "wrap")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"env_constructor must .*None"):
        NewEnvUpdate(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"set_task\(task\).*got Env"):
        SetTaskUpdate(gymnasium.Env, "t1")()
