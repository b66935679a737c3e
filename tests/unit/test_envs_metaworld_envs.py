"""Meta-World: the same numbers, seeds that work, tasks set without building anything: specs/meta.md 3.5."""

from __future__ import annotations

import copy
import os
import pickle
import warnings
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import gymnasium
import metaworld
import numpy as np
import pytest
from metaworld.env_dict import ALL_V3_ENVIRONMENTS, ML10_V3
from metaworld.policies import ENV_POLICY_MAP
from scipy.spatial.transform import Rotation

from metaroll.envs.metaworld.benchmarks import make_metaworld_benchmark
from metaroll.envs.metaworld.goal_sampler import MetaWorldTaskSampler
from metaroll.envs.metaworld.rotations import quaternion_of
from metaroll.envs.metaworld.sawyer import MetaWorldEnvMaker
from metaroll.envs.metaworld.tasks import MetaWorldTask, read_task
from metaroll.errors import ShapeError, UnknownNameError
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.seeding import isolated_rng
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.testing import assert_worker_invariant
from metaroll.training.evaluation.evaluation_metrics import log_multitask_performance
from metaroll.types import RolloutPlan

pytestmark = pytest.mark.usefixtures("lent_pools", "compiled_once")

TWO = ("reach-v3", "door-open-v3")


class Expert:
    """Meta-World's scripted policy of one environment, which sees the goal."""

    def __init__(self, name: str) -> None:
        self._policy = ENV_POLICY_MAP[name]()

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "Constant(s) may be too high", of its own constants
            return np.clip(self._policy.get_action(observation), -1.0, 1.0).astype(np.float32)


@pytest.fixture(scope="module")
def two() -> Any:
    return make_metaworld_benchmark("custom-MT", train=TWO, seed=3)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the environments that are built."""
    names: list[str] = []
    make = MetaWorldEnvMaker.__call__

    def counted(maker: MetaWorldEnvMaker) -> Any:
        names.append(maker.env_name)
        return make(maker)

    monkeypatch.setattr(MetaWorldEnvMaker, "__call__", counted)
    yield names


def with_hidden_goal(task: Any) -> MetaWorldTask:
    return MetaWorldTask(task.env_name, pickle.dumps({**read_task(task), "partially_observable": True}))


def play(env: Any, actions: np.ndarray, seed: int | None = None) -> list[tuple[Any, ...]]:
    observation, _ = env.reset(seed=seed)
    steps = [env.step(action) for action in actions]
    return [(observation.tobytes(),), *[(o.tobytes(), r, ended, cut, i) for o, r, ended, cut, i in steps]]


def some_actions(count: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1.0, 1.0, (count, 4)).astype(np.float32)


def test_tasks_are_those_of_metaworld_and_the_global_generator_is_left_alone() -> None:
    """specs/meta.md 3.5: the same seed gives the same goals"""
    before = np.random.get_state()[1].copy()
    ours = make_metaworld_benchmark("MT1", "reach-v3", seed=3)
    assert (np.random.get_state()[1] == before).all()
    theirs = metaworld.MT1("reach-v3", seed=3)
    assert isinstance(ours, metaworld.MT1)
    assert ours.train_tasks == theirs.train_tasks
    assert ours.test_tasks == theirs.test_tasks == []
    assert make_metaworld_benchmark("MT1", "reach-v3", seed=4).train_tasks != ours.train_tasks


def test_meta_learning_benchmarks_hide_goals_and_test_on_others() -> None:
    one = make_metaworld_benchmark("ML1", "reach-v3", seed=3)
    assert all(read_task(task)["partially_observable"] for task in [*one.train_tasks, *one.test_tasks])
    assert not {task.data for task in one.train_tasks} & {task.data for task in one.test_tasks}
    assert MetaWorldTaskSampler(one, "test").n_tasks == 50
    custom = make_metaworld_benchmark("custom-ML", train=["reach-v3"], test=["door-close-v3"], seed=3)
    assert custom.train_tasks == one.train_tasks
    assert list(custom.test_classes) == ["door-close-v3"]


@pytest.mark.parametrize("name", ["pick-place-v3", "lever-pull-v3"])
def test_trajectories_are_those_of_metaworld(name: str) -> None:
    """Bit for bit, with contacts, on tasks that follow one another in one environment."""
    benchmark = make_metaworld_benchmark("MT1", name, seed=3)
    theirs, ours, expert = ALL_V3_ENVIRONMENTS[name](), MetaWorldEnvMaker(name)(), Expert(name)
    for task in (benchmark.train_tasks[0], with_hidden_goal(benchmark.train_tasks[1])):
        theirs.set_task(task)
        ours.set_task(task)
        observation, _ = theirs.reset()
        assert np.array_equal(observation, ours.reset(seed=5)[0])
        for _ in range(90):
            action = expert(observation)
            observation, reward, *_, info = theirs.step(action)
            step = ours.step(action)
            assert np.array_equal(observation, step[0])
            assert (reward, False, False) == step[1:4]
            assert {**info, "task_name": name} == step[4]


def test_quaternions_are_those_of_scipy() -> None:
    draw = np.random.default_rng(2)
    for quaternion in [*draw.normal(size=(200, 4)), *np.eye(4)]:
        matrix = Rotation.from_quat(quaternion).as_matrix()
        assert np.array_equal(quaternion_of(matrix), Rotation.from_matrix(matrix).as_quat())


def test_what_happens_depends_on_the_task_alone(two: Any) -> None:
    """The same task and seed: new, re-used and copied environments; NumPy's global generator is not drawn from."""
    first, second = two.train_tasks[50:52]
    actions = some_actions(15)
    update, other = (SetTaskUpdate(MetaWorldEnvMaker("door-open-v3"), task) for task in (first, second))
    new = update()
    expected = play(new, actions, seed=1)
    with isolated_rng(7):
        before = np.random.get_state()[1].copy()
        used = other()
        play(used, actions, seed=2)
        used.set_task(first)
        assert play(used, actions, seed=3) == expected
        assert (np.random.get_state()[1] == before).all()
    for copied in (copy.deepcopy(used), pickle.loads(pickle.dumps(used))):
        with pytest.raises(gymnasium.error.ResetNeeded):
            copied.step(actions[0])
        assert play(copied, actions) == expected


def test_updates_reuse_environments_of_their_class(two: Any, built: list[str]) -> None:
    """specs/meta.md 3.5 (e): tasks of a class are set; an environment of another class is closed and replaced"""
    closed: list[Any] = []
    updates = MetaWorldTaskSampler(two, "train", generator=1).sample(4)
    env = updates[0]()
    env.close = lambda: closed.append(env)
    assert updates[1](env) is env
    assert env.get_task() == updates[1].task
    assert built == ["reach-v3"]
    with pytest.warns(UserWarning, match="SetTaskUpdate .*SawyerReach"):
        other = updates[2](env)
    assert closed == [env]
    assert isinstance(other, ALL_V3_ENVIRONMENTS["door-open-v3"])


def test_the_goal_is_shown_as_the_benchmark_says(two: Any) -> None:
    task = two.train_tasks[0]
    env = MetaWorldEnvMaker("reach-v3")()
    for visible, shown in ((task, True), (with_hidden_goal(task), False)):
        env.set_task(visible)
        observation, _ = env.reset()
        assert env.observation_space.contains(observation)
        assert np.array_equal(observation[-3:], read_task(task)["rand_vec"][-3:] if shown else np.zeros(3))


def test_one_hot_and_wrappers(two: Any) -> None:
    """specs/meta.md 3.5: the index is the position in the classes; the wrapper is made anew for every task"""
    seen: list[str] = []

    def wrapper(env: Any, task: Any) -> Any:
        seen.append(task.env_name)
        return gymnasium.wrappers.TimeLimit(env, 7)

    updates = MetaWorldTaskSampler(two, "train", wrapper, True, generator=1).sample(2)
    envs = [update() for update in updates]
    assert seen == list(TWO)
    for env, one_hot in zip(envs, ([1.0, 0.0], [0.0, 1.0]), strict=True):
        observation, _ = env.reset()
        assert observation.shape == (41,)
        assert observation[39:].tolist() == one_hot
        assert env.observation_space.contains(observation)
    with pytest.raises(ValueError, match=r"add_env_onehot must .*ML1"):
        MetaWorldTaskSampler(make_metaworld_benchmark("ML1", "reach-v3"), "train", add_env_onehot=True)


def test_episodes_are_truncated_at_the_horizon(two: Any) -> None:
    env = MetaWorldEnvMaker("reach-v3", horizon=4)()
    env.set_task(two.train_tasks[0])
    assert MetaWorldEnvMaker("reach-v3")().env_spec.max_episode_length == 500
    assert env.env_spec.max_episode_length == 4
    steps = play(env, some_actions(4))[1:]
    assert [step[2:4] for step in steps] == [(False, False)] * 3 + [(False, True)]
    with pytest.raises(gymnasium.error.ResetNeeded, match="reach-v3"):
        env.step(np.zeros(4))


def test_reward_versions_differ(two: Any) -> None:
    rewards = []
    for version in ("v1", "v2"):
        env = MetaWorldEnvMaker("reach-v3", reward_version=version)()
        env.set_task(two.train_tasks[0])
        assert env.provenance["reward_version"] == version
        rewards.append(play(env, some_actions(1))[1][1])
    assert rewards[1] <= 10.0 < rewards[0]


def test_mistakes_are_explained(two: Any) -> None:
    env = MetaWorldEnvMaker("reach-v3")()
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"reach-v3 has no task: call set_task"):
        env.reset()
    with pytest.raises(ValueError, match="task must be one of 'reach-v3', got one of 'door-open-v3'"):
        env.set_task(two.train_tasks[50])
    with pytest.raises(TypeError, match="task must be one of Meta-World's"):
        env.set_task({"goal": (0, 0)})
    assert env.get_task() is None
    env.set_task(two.train_tasks[0])
    with pytest.raises(ValueError, match="init_state"):
        env.reset(options={"init_state": np.zeros(3)})
    env.reset()
    with pytest.raises(ShapeError, match=r"action must have shape \(4,\), got \(3,\)"):
        env.step(np.zeros(3))
    with pytest.raises(UnknownNameError, match="reach-v3"):
        MetaWorldEnvMaker("reech-v3")()
    with pytest.raises(ValueError, match=r"MT1 has no test tasks; multi-task benchmarks are tested on"):
        MetaWorldTaskSampler(make_metaworld_benchmark("MT1", "reach-v3"), "test")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "ML11"}, UnknownNameError, "benchmark 'ML11'"),
        ({"name": "ML1"}, ValueError, "env_name must .*ML1"),
        ({"name": "ML10", "env_name": "reach-v3"}, ValueError, "env_name .*ML10, got 'reach-v3'"),
        ({"name": "custom-ML", "train": ["reach-v3"]}, ValueError, "test must .*custom-ML"),
        ({"name": "custom-ML", "train": ["reach-v3"], "test": ["reach-v3"]}, ValueError, "train and test must"),
        ({"name": "custom-MT", "train": []}, ValueError, r"train must .*\[\]"),
        ({"name": "custom-MT", "train": ["reach"]}, UnknownNameError, "environment 'reach'"),
        ({"name": "ML10", "seed": -1}, ValueError, "seed must .*-1"),
    ],
)
def test_wrong_benchmarks_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_metaworld_benchmark(**arguments)


def test_tasks_from_files_run_no_code() -> None:
    """A task is pickled data, in which only arrays and Meta-World's classes are allowed."""

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, ("/tmp/must-not-exist",)

    env = MetaWorldEnvMaker("reach-v3")()
    for evil, name in ((Evil(), "posix.mkdir"), (metaworld.ML10, "metaworld.ML10"), (os.system, "posix.system")):
        with pytest.raises(ValueError, match=f"task of 'reach-v3' .*must not hold {name}"):
            env.set_task(MetaWorldTask("reach-v3", pickle.dumps({"rand_vec": evil})))
    assert not os.path.exists("/tmp/must-not-exist")


def test_the_engine_takes_turns_between_classes_without_building(two: Any, built: list[str]) -> None:
    """Every rollout says what it is comparable with; no environment is built a second time."""
    sampler = MetaWorldTaskSampler(two, "train", horizon=6, generator=1)
    updates = sampler.sample(4)
    plans = [RolloutPlan(i, (0, 0, i), update) for i, update in enumerate([*updates, *reversed(updates)])]
    with RolloutEngine(updates[0], lambda observation: np.zeros(4), slots_per_unit=2) as engine:
        first = engine.run(plans)
        made = len(built)
        again = engine.run(plans[::-1])
    assert len(built) == made
    for rollout, plan in zip(first, plans, strict=True):
        assert len(rollout) == 6
        assert rollout.truncated[-1]
        assert rollout.rollout_info["env_name"] == f"Meta-World/{plan.task.env_name}"
        assert rollout.rollout_info["provenance"] == sampler.provenance
    assert sampler.provenance == {
        "benchmark": "Meta-World",
        "metaworld": metadata.version("metaworld"),
        "envs": "v3",
        "reward_version": "v2",
        "horizon": 6,
        "success_rule": "at any step",
    }
    rewards = [[rollout.rewards.tolist() for rollout in run] for run in (first, again)]
    assert rewards[0] == rewards[1]


def test_rollouts_have_the_same_bits_in_workers(two: Any, shared_pools: Any) -> None:
    updates = MetaWorldTaskSampler(two, "train", horizon=3, generator=1).sample(4)
    plans = [RolloutPlan(i, (0, 0, i), update) for i, update in enumerate(updates)]
    assert_worker_invariant(updates[0], lambda observation: np.zeros(4), plans, num_workers=[shared_pools[2]])


@pytest.mark.slow
def test_experts_solve_the_training_classes_of_ml10() -> None:
    """At least 95 % success, success counted in three ways."""
    names = list(ML10_V3["train"])
    benchmark = make_metaworld_benchmark("custom-MT", train=names, seed=1)
    updates = MetaWorldTaskSampler(benchmark, "train", horizon=250, generator=1).sample(2 * len(names))
    rollouts = []
    for name in names:
        own = [update for update in updates if update.task.env_name == name]
        with RolloutEngine(own[0], Expert(name)) as engine:
            rollouts += engine.run([RolloutPlan(i, (0, 0, i), update) for i, update in enumerate(own)])
    metrics = log_multitask_performance(0, rollouts, 0.99)
    assert metrics["Average/SuccessRate"] >= 0.95
    assert metrics["reach-v3/NumTrajs"] == 2
    assert 1 < metrics["Average/StepsToSuccess"] < 200
    assert metrics["Average/SuccessAtEndRate"] <= metrics["Average/SuccessRate"]
