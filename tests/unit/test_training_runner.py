"""specs/meta.md 5.2 (LocalRunner services), design.md 5 (a resumed run is the run that was never interrupted)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_training_snapshots import Killed, die_after
from training_fakes import HORIZON, GoalEnv, GoalLearner, GuessPolicy, goal_updates, make_learner

from metaroll.configs.evaluation import MetaEvaluationConfig
from metaroll.errors import NotSetupError, RunExistsError, ShapeError, SnapshotError, TaskOverlapError
from metaroll.learners.base import RLAlgorithm, train
from metaroll.rollouts.garage.local_sampler import LocalSampler
from metaroll.rollouts.garage.workers import DefaultWorker, PEARLWorker
from metaroll.seeding import derive_seed
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.run.runner import LocalRunner
from metaroll.training.store.files import read_json
from metaroll.training.store.metrics_log import FILE_NAME, read_metrics
from metaroll.training.store.snapshots import Snapshot, SnapshotConfig, snapshots_of

pytestmark = pytest.mark.usefixtures("lent_pools")


def make_runner(run_dir: Path | None, learner: GoalLearner | None = None, **arguments: Any) -> LocalRunner:
    options = {"seed": 4, "evaluator": {"n_exploration_traj": 1, "deterministic": False}, **arguments}
    runner = LocalRunner(run_dir=run_dir, **options)
    runner.setup(make_learner() if learner is None else learner, GoalEnv)
    return runner


def state_of(runner: LocalRunner) -> dict[str, Any]:
    """All that must be equal bitwise, as text and numbers."""
    learner = runner._source.algo
    rows = [] if runner.run_dir is None else [r for r in read_metrics(runner.run_dir) if r["phase"] != "time"]
    return {
        "learner": {name: repr(value) for name, value in learner.state_dict().items()},
        "bits": learner.policy.weight.tobytes() + learner.slopes.tobytes() + learner.rewards.tobytes(),
        "metrics": [json.dumps(row) for row in rows],
        "evaluation": runner.evaluate(learner, learner.test_env_sampler),
        "counters": (runner.step_itr, runner.total_env_steps, runner.seed),
        "initial": learner.collected_initial,
    }


def resumed(run_dir: Path, n_epochs: int | None = None, **arguments: Any) -> LocalRunner:
    runner = make_runner(arguments.pop("own_dir", run_dir), **{"seed": 77, **arguments})
    runner.restore(run_dir)
    runner.resume(n_epochs)
    return runner


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run of four epochs that nothing interrupts."""
    runner = make_runner(tmp_path_factory.mktemp("whole") / "run")
    runner.train(4)
    return state_of(runner)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same with two epochs."""
    runner = make_runner(tmp_path_factory.mktemp("short") / "run")
    runner.train(2)
    return state_of(runner)


# -- train -------------------------------------------------------------------------------------------------------------


def test_training_leaves_metrics_and_snapshot(tmp_path: Path) -> None:
    """specs/meta.md 5.2"""
    with make_runner(tmp_path / "run", config={"epochs": 2, "sizes": (3, 4)}) as runner:
        result = runner.train(2)
    assert result == runner.last_evaluation.return_after  # what algo.train returned
    # Two train tasks, two rollouts each of three steps; three collections (one of them the initial one).
    assert runner.step_itr == 3
    assert runner.total_env_steps == 3 * 4 * HORIZON
    assert sorted(os.listdir(tmp_path / "run")) == [".lock", ".metaroll", "config.yaml", FILE_NAME, "snapshots"]
    assert list(snapshots_of(tmp_path / "run")) == [2]
    rows = read_metrics(tmp_path / "run")
    assert [(r["iteration"], r["env_steps"]) for r in rows if r["metric"] == "weight"] == [(0, 24), (1, 36)]
    assert {r["phase"] for r in rows} == {"train", "MetaTest", "time"}
    assert {r["metric"] for r in rows if r["phase"] == "time"} == {
        "epoch_seconds",
        "total_seconds",
        "env_steps_per_second",
    }
    per_task = [r for r in rows if r["task"] == "task 2" and r["metric"] == "return_after"]
    assert len(per_task) == 2
    after = [r["value"] for r in rows if r["metric"] == "return_after" and r["task"] is None]
    assert after[-1] == result


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_runner(None).train(1)
    assert os.listdir(tmp_path) == []


def test_seeds_make_runs_repeat(tmp_path: Path, whole: dict[str, Any]) -> None:
    """Q-42: the seed is read when the runner is made."""
    again = make_runner(tmp_path / "a")
    again.train(4)
    assert state_of(again) == whole
    other = make_runner(tmp_path / "b", seed=5)
    other.train(4)
    assert state_of(other)["bits"] != whole["bits"]
    assert LocalRunner().seed != LocalRunner().seed  # fresh entropy, but recorded


def test_the_evaluation_seed_comes_from_the_runs_seed() -> None:
    runner = make_runner(None)
    runner.train(1)
    given = MetaEvaluator(n_exploration_traj=1, deterministic=False, seed=derive_seed("evaluation", 4))
    for evaluator in (given, MetaEvaluationConfig(num_adaptation_episodes=1, deterministic=False)):
        other = make_runner(None, evaluator=evaluator, seed=4)
        other.train(1)
        np.testing.assert_array_equal(other.last_evaluation.returns, runner.last_evaluation.returns)


def test_workers_change_nothing(tmp_path: Path, whole: dict[str, Any]) -> None:
    with make_runner(tmp_path / "run", num_workers=2) as runner:
        runner.train(4)
        assert runner._source.evaluation_engine.num_workers == 2
        assert state_of(runner) == whole
    with make_runner(None, max_cpus=3) as runner:
        assert runner._source.evaluation_engine.num_workers == 3


def test_callbacks_are_told() -> None:
    class Listener:
        def __init__(self) -> None:
            self.events: list[Any] = []

        def on_evaluation(self, runner: LocalRunner, result: Any) -> None:
            self.events.append(("evaluation", result.return_after))

        def on_epoch_end(self, runner: LocalRunner, epoch: int, metrics: dict[str, float]) -> None:
            self.events.append(("epoch", epoch, sorted(metrics)))

        def on_train_end(self, runner: LocalRunner) -> None:
            self.events.append("end")

    listener = Listener()
    runner = make_runner(None, callbacks=(listener,))
    runner.train(2)
    assert [e[0] if isinstance(e, tuple) else e for e in listener.events] == ["evaluation", "epoch"] * 2 + ["end"]
    names = listener.events[1][2]
    assert {"weight", "MetaTest/return_after", "MetaTest/change_ci_low", "time/epoch_seconds"} <= set(names)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"snapshot_config": 3}, "snapshot_config"),
        ({"run_dir": 3}, "run_dir"),
        ({"callbacks": 3}, "callbacks must"),
        ({"callbacks": [3]}, "callbacks must"),
        ({"loggers": [3]}, "loggers must"),
        ({"config": 3}, "config must"),
        ({"timeouts": 3}, "timeouts must"),
        ({"exist_ok": 3}, "exist_ok"),
        ({"n_jobs": "2"}, "n_jobs"),
        ({"random_seed": "2"}, "random_seed"),
        ({"evaluator": {"max_path_length": "2"}}, "max_path_length"),
    ],
)
def test_a_runner_says_what_its_arguments_are(given: dict[str, Any], named: str) -> None:
    with pytest.raises(TypeError, match=f"^{named}"):
        LocalRunner(**given)


def test_a_runner_takes_names_of_others() -> None:
    for name in ("n_workers", "n_parallel", "n_cpu", "n_jobs", "workers"):
        assert LocalRunner(**{name: 2})._engine.num_workers == 2
    assert LocalRunner(random_seed=3).seed == LocalRunner(seed=3).seed == 3  # type: ignore[call-arg]


def test_an_epochs_snapshot_stands_before_callbacks_run(tmp_path: Path) -> None:
    class Breaks:
        def on_epoch_end(self, *args: Any) -> None:
            raise RuntimeError("the display broke")

    runner = make_runner(tmp_path / "run", callbacks=[Breaks()])
    with pytest.raises(RuntimeError, match="display broke"):
        runner.train(3)
    assert list(snapshots_of(tmp_path / "run")) == [1]


def test_zero_epochs_are_zero_epochs(tmp_path: Path) -> None:
    """specs/meta.md 5.2: `n_epochs or saved` would take 0 for "not given"."""
    runner = make_runner(tmp_path / "run")
    assert runner.train(0) is None
    assert list(snapshots_of(tmp_path / "run")) == [0]
    later = make_runner(None)
    assert later.restore(tmp_path / "run").n_epochs == 0
    later.resume(n_epochs=2)
    again = make_runner(None)
    again.restore(tmp_path / "run")
    assert again.resume(n_epochs=0) is None
    assert list(snapshots_of(tmp_path / "run")) == [2]


def test_train_arguments_are_checked() -> None:
    runner = make_runner(None)
    for bad in (-1, 1.5, True):
        with pytest.raises((TypeError, ValueError), match="n_epochs"):
            runner.train(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch_size"):
        runner.train(1, batch_size=0)
    with pytest.raises(ValueError, match="plot=True needs a run folder"):
        runner.train(1, plot=True)


def test_plot_draws_the_learning_curve(tmp_path: Path) -> None:
    make_runner(tmp_path / "run").train(1, plot=True)
    assert (tmp_path / "run" / "learning_curve.png").stat().st_size > 1000


# -- order of calls ----------------------------------------------------------------------------------------------------


def test_everything_needs_setup(tmp_path: Path) -> None:
    """specs/meta.md 5.2"""
    runner = LocalRunner(run_dir=tmp_path / "run")
    for call in (
        lambda: runner.train(1),
        lambda: runner.restore(tmp_path),
        lambda: runner.obtain_samples(0, 10),
        lambda: runner.evaluate(None, None),
        lambda: runner.save(0),
        runner.get_env_copy,
    ):
        with pytest.raises(NotSetupError, match="setup"):
            call()
    with pytest.raises(NotSetupError, match="restore"):
        runner.resume()
    with pytest.raises(NotSetupError, match="train"):
        next(runner.step_epochs())
    assert not (tmp_path / "run").exists()


def test_an_algorithm_may_do_without_policy_and_sampler(tmp_path: Path) -> None:
    """specs/meta.md 5.2 (test_setup_no_sampler)"""

    class Thinker:
        def train(self, runner: LocalRunner) -> str:
            for _ in runner.step_epochs():
                runner.log({"thought": 1.0})
            return "done"

    runner = LocalRunner(SnapshotConfig(tmp_path / "run", "none"))
    runner.setup(Thinker(), None)
    assert runner.train(2) == "done"
    assert len(read_metrics(tmp_path / "run", metric="thought")) == 2
    with pytest.raises(ValueError, match="Thinker has no policy"):
        runner.obtain_samples(0, 10)
    saving = LocalRunner(run_dir=tmp_path / "other")
    saving.setup(Thinker(), None)
    with pytest.raises(TypeError, match="Thinker needs state_dict"):
        saving.train(1)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("numbers", "got"),
    [(None, "got None"), ([1.0], "got list with 1 entries"), ({3: 1.0}, "got the key 3 of type int")],
)
def test_what_an_update_returns_is_checked(numbers: Any, got: str) -> None:
    class Silent(RLAlgorithm):
        def collect(self, runner: Any) -> None:
            return None

        def update(self, collected: Any, progress: Any = None) -> Any:
            return numbers

        def train(self, runner: Any) -> float | None:
            return train(self, runner)

    runner = LocalRunner(SnapshotConfig(None, "none"))
    runner.setup(Silent(), None)
    with pytest.raises(TypeError, match=rf"update of Silent must return .* a dict of name -> number, {got}"):
        runner.train(1)


def test_setup_checks_the_algorithm() -> None:
    """specs/meta.md 5.2"""
    learner = make_learner()
    learner.max_path_length = None  # type: ignore[assignment]
    with pytest.raises(ValueError, match="no max_path_length"):
        LocalRunner().setup(learner, GoalEnv)
    with pytest.raises(TypeError, match=r"must have a method train\(runner\)"):
        LocalRunner().setup(object(), GoalEnv)
    with pytest.raises(ValueError, match="worker_args need a sampler_cls"):
        LocalRunner().setup(make_learner(), GoalEnv, worker_args={"deterministic": True})


# -- sampling ----------------------------------------------------------------------------------------------------------


def test_obtain_samples_by_steps_and_by_count() -> None:
    """specs/meta.md 5.2"""
    runner = make_runner(None)
    assert [len(r) for r in runner.obtain_samples(0, 7)] == [HORIZON] * 3
    assert len(runner.obtain_samples(0, num_rollouts=2)) == 2
    groups = runner.obtain_samples(0, 4, env_update=goal_updates([1.0, 6.0]))
    assert [len(group) for group in groups] == [2, 2]
    assert [group[0].env_infos["goal"][0] for group in groups] == [1.0, 6.0]
    one = runner.obtain_samples(0, 1, env_update=goal_updates([5.0])[0])
    assert one[0].env_infos["goal"][0] == 5.0
    assert runner.step_itr == 4
    assert runner.total_env_steps == HORIZON * (3 + 2 + 4 + 1)


def test_every_call_has_seeds_of_its_own() -> None:
    runner = make_runner(None)
    first, second = runner.obtain_samples(0, 6), runner.obtain_samples(0, 6)
    seeds = [r.rollout_info["plan"]["seed"] for r in (*first, *second)]
    assert seeds == [(4, 0, 0), (4, 0, 1), (4, 1, 0), (4, 1, 1)]
    assert not np.array_equal(first[0].actions, second[0].actions)


def test_agents_contexts_and_determinism() -> None:
    """specs/meta.md 5.2: agent_update defaults to exploration_policy, else policy."""
    learner = make_learner()
    runner = make_runner(None, learner)

    def action(**arguments: Any) -> float:
        return float(runner.obtain_samples(0, num_rollouts=1, deterministic=True, **arguments)[0].actions[0, 0])

    assert action() == 0.0
    learner.policy.weight[:] = 3.0  # the policy's present parameters act
    assert action() == 3.0
    assert action(agent_update=np.array([5.0], dtype=np.float32)) == 5.0
    assert action(agent_update=GuessPolicy(1.0, guess=0.5)) == 1.5
    assert action(contexts=[{"guess": np.array([2.0])}]) == 5.0
    learner.policy = GuessPolicy(7.0)  # another object
    assert action() == 7.0
    learner.exploration_policy = GuessPolicy(-1.0)
    assert action() == -1.0
    assert action(agent_update=lambda obs: np.array([4.0], dtype=np.float32)) == 4.0
    assert action() == -1.0
    noisy = runner.obtain_samples(0, num_rollouts=1)[0].actions
    assert len(np.unique(noisy)) == HORIZON


def test_a_policy_for_each_variation() -> None:
    updates, rows = goal_updates([1.0, 2.0, 3.0]), np.array([[0.5], [1.5], [-2.0]], dtype=np.float32)
    together = make_runner(None).obtain_samples(0, 7, env_update=updates, parameters=rows)
    for m, row in enumerate(rows):
        alone = make_runner(None).obtain_samples(0, 7, env_update=updates, parameters=row)[m]
        assert len(together[m]) == len(alone) == 3
        for left, right in zip(together[m], alone, strict=True):
            np.testing.assert_array_equal(left.actions, right.actions)
            np.testing.assert_array_equal(left.rewards, right.rewards)
    runner = make_runner(None)
    with pytest.raises(ShapeError, match=r"parameters must have shape \(1,\), or \(3, 1\).*got \(2, 1\)"):
        runner.obtain_samples(0, 7, env_update=updates, parameters=rows[:2])
    with pytest.raises(ValueError, match="either parameters or an agent_update"):
        runner.obtain_samples(0, 7, rows[0], parameters=rows[:1])
    assert (runner.step_itr, runner.total_env_steps) == (0, 0)
    one = runner.obtain_samples(0, num_rollouts=1, parameters=rows[2:], deterministic=True)
    assert one[0].actions[0, 0] == -2.0
    assert runner.obtain_samples(0, num_rollouts=1, deterministic=True)[0].actions[0, 0] == 0.0


def test_the_batch_size_of_train_is_the_default() -> None:
    class Sampler(GoalLearner):
        def train(self, runner: Any) -> None:
            for _ in runner.step_epochs():
                self.paths = runner.obtain_samples(runner.step_itr)

    learner = Sampler(goal_updates([1.0]), goal_updates([2.0]))
    runner = make_runner(None, learner)
    runner.train(1, batch_size=8, store_paths=True)
    assert len(learner.paths) == 3
    assert runner.last_paths is learner.paths
    with pytest.raises(ValueError, match="give either batch_size"):
        make_runner(None, Sampler(goal_updates([1.0]), goal_updates([2.0]))).train(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"num_rollouts": -1}, "num_rollouts"),
        ({"batch_size": 3, "num_rollouts": 2}, "give either"),
        ({"batch_size": 3, "env_update": []}, "at least one update"),
        ({"batch_size": 3, "contexts": [None, None]}, r"one entry per env_update \(1\), got 2"),
    ],
)
def test_bad_requests(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make_runner(None).obtain_samples(0, **arguments)


def test_garage_samplers_and_workers() -> None:
    """specs/meta.md 5.2, 5.4: the engine, in this process, does what LocalSampler does with garage's workers"""
    learner = make_learner()
    runner = LocalRunner(seed=1)
    for worker_class in (None, DefaultWorker, PEARLWorker):
        runner.setup(learner, GoalEnv(), sampler_cls=LocalSampler, n_workers=2, worker_class=worker_class)
        assert [len(r) for r in runner.obtain_samples(0, 8)] == [HORIZON] * 3
        assert len(runner.obtain_samples(0, num_rollouts=1)) == 1
        assert runner._source.evaluation_engine.pool.is_serial
        runner.close()
    assert len(runner.obtain_samples(0, 3)) == 1  # works again after close
    runner.setup(learner, GoalEnv(), sampler_cls=LocalSampler, sampler_args={"max_path_length": 2})
    assert [len(r) for r in runner.obtain_samples(0, 3)] == [2, 2]
    arguments = {"deterministic": True, "accum_context": True}
    runner.setup(learner, GoalEnv(), sampler_cls=LocalSampler, worker_class=PEARLWorker, worker_args=arguments)
    assert (runner.obtain_samples(0, 3)[0].actions == 0.0).all()
    with pytest.raises(ValueError, match="sampler_args and worker_args need"):
        runner.setup(learner, GoalEnv(), sampler_cls=LocalSampler, worker_args={"deterministic": True})


def test_workers_of_ones_own() -> None:
    """specs/meta.md 5.4"""

    class OwnWorker(DefaultWorker):
        pass

    seen = []
    for step_itr in (0, 1):  # the second as after a resume: its rollouts must be others
        runner = LocalRunner(seed=1)
        runner.setup(make_learner(), GoalEnv(), worker_class=OwnWorker, sampler_args={"max_path_length": 2})
        runner._step_itr = step_itr
        seen.append(runner.obtain_samples(0, 4))
        assert [len(r) for r in seen[-1]] == [2, 2]
        assert isinstance(runner._source._sampler, LocalSampler)
        with pytest.raises(ValueError, match="need the rollout engine: setup with"):
            runner.obtain_samples(0, num_rollouts=1)
        with pytest.raises(ValueError, match="parameters need the rollout engine"):
            runner.obtain_samples(0, 4, parameters=np.zeros(1, dtype=np.float32))
        runner.close()
    assert not np.array_equal(seen[0][0].observations, seen[1][0].observations)


def test_env_copies_are_copies() -> None:
    """specs/meta.md 5.2"""
    runner = LocalRunner()
    env = GoalEnv()
    runner.setup(make_learner(), env)
    copied = runner.get_env_copy()
    assert type(copied) is GoalEnv
    assert copied is not env
    for recipe in (GoalEnv, goal_updates([2.0])[0]):
        runner.setup(make_learner(), recipe)
        assert type(runner.get_env_copy()) is GoalEnv


# -- evaluation --------------------------------------------------------------------------------------------------------


def test_an_evaluators_own_sampler_has_its_own_number_of_tasks() -> None:
    """The algorithm's num_test_tasks is meant for its own sampler."""
    learner = make_learner()
    runner = make_runner(None, learner, evaluator={"test_task_sampler": FixedTaskSampler(goal_updates([9.0]))})
    runner.train(1)
    assert [t["goal"][0] for t in runner.last_evaluation.tasks] == [9.0]


def test_an_algorithm_without_policy_is_evaluated() -> None:
    """specs/meta.md 5.2: only obtain_samples needs a policy"""
    learner = make_learner()
    expected = make_runner(None).evaluate(learner)
    runner = make_runner(None, make_learner())
    learner.policy = None  # type: ignore[assignment]
    learner.get_exploration_policy = GuessPolicy  # type: ignore[method-assign]
    learner.state_dict = dict  # type: ignore[method-assign]
    runner.setup(learner, GoalEnv)
    assert runner.evaluate(learner) == expected


def test_another_setup_forgets_the_tasks_of_the_first() -> None:
    given = MetaEvaluator(n_exploration_traj=1)
    runner = make_runner(None, evaluator=given)
    runner.train(1)
    other = GoalLearner(goal_updates([1.5]), goal_updates([1.0]))  # a test task of the first is a train task here
    other.max_path_length = 2
    runner.setup(other, GoalEnv)
    runner.train(1)
    assert [t["goal"][0] for t in runner.last_evaluation.tasks] == [1.0]
    assert runner.last_evaluation.env_steps == 2 * 2
    assert given.test_task_sampler is None and given.max_steps is None  # the caller's evaluator is left alone


def test_overlap_is_found_before_anything_is_written(tmp_path: Path) -> None:
    tasks = goal_updates([1.0, 2.0])
    runner = make_runner(tmp_path / "run", GoalLearner(tasks, tasks[:1]))
    with pytest.raises(TaskOverlapError, match="test task 0 is training task 0"):
        runner.train(1)
    assert not (tmp_path / "run").exists()
    make_runner(tmp_path / "run").train(1)
    overwriting = make_runner(tmp_path / "run", GoalLearner(tasks, tasks[:1]), exist_ok=True)
    with pytest.raises(TaskOverlapError):
        overwriting.train(1)
    assert list(snapshots_of(tmp_path / "run")) == [1]  # the old run is still there


def test_the_evaluators_own_sampler_counts_and_others_can_be_asked() -> None:
    learner = make_learner()
    runner = make_runner(None, learner)
    runner.train(1)
    elsewhere = FixedTaskSampler(goal_updates([9.0]))
    runner.evaluate(learner, elsewhere)
    assert [t["goal"][0] for t in runner.last_evaluation.tasks] == [9.0]
    runner.evaluate(learner)
    assert len(runner.last_evaluation.tasks) == 3
    fixed = make_runner(None, learner, evaluator={"test_task_sampler": elsewhere, "num_test_tasks": 1})
    fixed.evaluate(learner, learner.test_env_sampler)
    assert [t["goal"][0] for t in fixed.last_evaluation.tasks] == [9.0]


# -- resume ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_stop_and_resume_is_the_run_that_never_stopped(tmp_path: Path, whole: dict[str, Any], epochs: int) -> None:
    """design.md 5; specs/meta.md 5.2"""
    make_runner(tmp_path / "run").train(epochs)
    runner = make_runner(None, seed=99)  # neither folder nor seed are told again
    args = runner.restore(str(tmp_path / "run"))
    assert (args.n_epochs, args.start_epoch) == (epochs, epochs)
    runner.resume(n_epochs=4)
    assert state_of(runner) == {**whole, "initial": 1 if epochs == 0 else 0}


def test_resume_keeps_what_is_not_given(tmp_path: Path) -> None:
    """specs/meta.md 5.2 (test_resume)"""
    make_runner(tmp_path / "run").train(2, batch_size=24, store_paths=True)
    runner = make_runner(None)
    args = runner.restore(tmp_path / "run")
    assert (args.n_epochs, args.batch_size, args.store_paths, args.start_epoch) == (2, 24, True, 2)
    runner.resume(n_epochs=3)
    later = make_runner(None)
    args = later.restore(tmp_path / "run")
    assert (args.n_epochs, args.batch_size, args.store_paths, args.start_epoch) == (3, 24, True, 3)
    with pytest.raises(NotSetupError, match="restore"):
        runner.resume()  # once per restore


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_file_operation_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: dict[str, Any], every: int
) -> None:
    """Metrics, snapshots and removals are cut anywhere; the run then goes on as if nothing had been."""
    finished, count = False, 0
    while not finished:
        run = tmp_path / str(count)
        with monkeypatch.context() as patch:
            die_after(patch, count)
            try:
                make_runner(run).train(2)
                finished = True
            except Killed:
                pass
        if run.exists() and list(snapshots_of(run)):
            state = state_of(resumed(run, 2))
        else:  # killed before the snapshot of epoch 0: the same command again
            runner = make_runner(run)
            runner.train(2)
            state = state_of(runner)
        assert {**state, "initial": 1} == short, count
        shutil.rmtree(run)
        count += every
    assert count > 15


def test_killed_while_it_learns(tmp_path: Path, whole: dict[str, Any]) -> None:
    """SIGKILL of a real process, in the middle of its third epoch; metrics cut short in the middle of a line."""
    code = f"""
import os, signal
from pathlib import Path
from test_training_runner import make_runner
from training_fakes import make_learner
learner = make_learner()
learner.before_epoch = lambda epoch: epoch == 2 and os.kill(os.getpid(), signal.SIGKILL)
make_runner(Path({str(tmp_path / "run")!r}), learner).train(4)
"""
    path = os.pathsep.join([str(Path(__file__).parent), *(p for p in sys.path if p)])
    process = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=False)
    assert process.returncode == -signal.SIGKILL
    with open(tmp_path / "run" / FILE_NAME, "ab") as file:
        file.write(b'{"iteration": 2, "env_st')
    (tmp_path / "run" / "snapshots" / ".tmp-000003").mkdir()
    runner = resumed(tmp_path / "run")
    assert state_of(runner) == {**whole, "initial": 0}
    assert os.listdir(tmp_path / "run" / "snapshots") == ["000004"]


def test_an_older_snapshot_can_be_chosen(tmp_path: Path) -> None:
    """Its buffers are gone, so initial data are collected again; what came later is set aside, metrics are cut."""
    config = SnapshotConfig(tmp_path / "run", "all")
    runner = make_runner(None, snapshot_config=config)
    runner.train(3)
    damaged = tmp_path / "run" / "snapshots" / "000003" / "algorithm.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-4])
    later = make_runner(None)
    with pytest.raises(SnapshotError, match=r"snapshot 3 cannot be used.*from_epoch=2"):
        later.restore(tmp_path / "run")
    args = later.restore(tmp_path / "run", from_epoch=2)
    assert args.start_epoch == 2
    later.resume()
    assert later._source.algo.collected_initial == 1
    assert list(snapshots_of(tmp_path / "run")) == [0, 1, 2, 3]  # the mode of the run is kept
    iterations = [r["iteration"] for r in read_metrics(tmp_path / "run", metric="weight")]
    assert iterations == [0, 1, 2]


def test_a_run_can_go_on_in_another_folder(tmp_path: Path, whole: dict[str, Any]) -> None:
    make_runner(tmp_path / "first").train(2)
    before = sorted(p.name for p in (tmp_path / "first").rglob("*"))
    runner = resumed(tmp_path / "first", 4, own_dir=tmp_path / "second")
    assert {**state_of(runner), "initial": 1} == whole
    assert list(snapshots_of(tmp_path / "second")) == [4]
    assert sorted(p.name for p in (tmp_path / "first").rglob("*")) == before


def test_a_run_with_other_arithmetic_is_not_trained_further_by_any_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_runner(tmp_path / "first").train(2)
    monkeypatch.setattr(RLAlgorithm, "arithmetic", 2)  # of a later version
    with pytest.raises(SnapshotError, match="not trained further"):
        resumed(tmp_path / "first", 3)
    resumed(tmp_path / "first", 2, own_dir=tmp_path / "second")  # copied, and no epoch trained
    with pytest.raises(SnapshotError, match="not trained further"):
        resumed(tmp_path / "second", 3)
    make_runner(tmp_path / "third").train(1)
    resumed(tmp_path / "third", 2)


def test_restoring_for_an_evaluation_writes_nothing(tmp_path: Path) -> None:
    make_runner(tmp_path / "run").train(2)
    before = content_of(tmp_path / "run")
    runner = make_runner(None)
    runner.restore(tmp_path / "run")
    runner.evaluate(runner._source.algo)
    assert content_of(tmp_path / "run") == before


def test_an_interrupt_keeps_the_last_epoch(tmp_path: Path, whole: dict[str, Any]) -> None:
    learner = make_learner()

    def interrupt(epoch: int) -> None:
        if epoch == 2:
            raise KeyboardInterrupt

    learner.before_epoch = interrupt
    with pytest.raises(KeyboardInterrupt), make_runner(tmp_path / "run", learner) as runner:
        runner.train(4)
    assert list(snapshots_of(tmp_path / "run")) == [2]
    assert {**state_of(resumed(tmp_path / "run")), "initial": 1} == whole


def test_a_snapshot_without_what_a_runner_needs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_runner(tmp_path / "run").train(1)
    monkeypatch.setattr(Snapshot, "tree", lambda self, name: {"seed": 1})
    with pytest.raises(SnapshotError, match=r"runner\.json lacks evaluator"):
        make_runner(None).restore(tmp_path / "run")


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_snapshots_of_others_are_refused(tmp_path: Path) -> None:
    make_runner(tmp_path / "run").train(1)
    before = content_of(tmp_path / "run")

    class OtherLearner(GoalLearner):
        pass

    other = make_runner(None, OtherLearner(goal_updates([1.0]), goal_updates([2.0])))
    with pytest.raises(SnapshotError, match="written by GoalLearner, the runner was set up with OtherLearner: set up"):
        other.restore(tmp_path / "run")
    wider = make_runner(None, make_learner(width=3))
    weight = wider._source.algo.policy.weight
    with pytest.raises(SnapshotError, match="same networks and hyperparameters"):
        wider.restore(tmp_path / "run")
    assert wider._source.algo.policy.weight is weight and content_of(tmp_path / "run") == before  # nothing was changed

    class Fussy(GoalLearner):
        def fingerprint(self) -> str:
            return "fussy"

        def load_state_dict(self, tree: Any) -> None:
            raise KeyError("weight")

    fussy = make_runner(tmp_path / "fussy", Fussy(goal_updates([1.0]), goal_updates([2.0])))
    fussy.train(0)
    assert read_json(tmp_path / "fussy" / "snapshots" / "000000" / "manifest.json")["fingerprint"] == "fussy"
    with pytest.raises(SnapshotError, match="does not fit the Fussy"):
        fussy.restore(tmp_path / "fussy")


def test_other_training_tasks_are_refused(tmp_path: Path) -> None:
    """The saved replay data are of the tasks of that run, which an unseeded task sampler would not draw again."""
    test = goal_updates([1.5, 2.5, 4.0])
    make_runner(tmp_path / "run").train(1)
    for goals, message in (([1.0, 3.0], r"training task 1 is .*3\..*task sampler a seed"), ([1.0], "with 2 training")):
        with pytest.raises(SnapshotError, match=message):
            make_runner(None, GoalLearner(goal_updates(goals), test)).restore(tmp_path / "run")
    untold = GoalLearner(goal_updates([1.0, 2.0]), test)
    untold.train_tasks = None  # type: ignore[assignment]
    make_runner(None, untold).restore(tmp_path / "run")


# -- the run folder ----------------------------------------------------------------------------------------------------


def test_a_run_folder_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    run = tmp_path / "run"
    make_runner(run).train(1)
    with pytest.raises(RunExistsError, match=r"run exists .*exist_ok=True.*another folder with run_dir="):
        make_runner(run).train(1)
    assert list(snapshots_of(run)) == [1]
    (run / "notes.txt").write_text("mine")
    (run / "config.yaml").write_text("seed: 1\n")
    make_runner(run, exist_ok=True, config={"seed": 2}).train(2)
    assert list(snapshots_of(run)) == [2]
    assert {r["iteration"] for r in read_metrics(run)} == {0, 1}
    assert (run / "notes.txt").read_text() == "mine"
    assert (run / "config.yaml").read_text() == "seed: 1\n"  # whoever wrote it knows better


@pytest.mark.parametrize("exist_ok", [True, False])
@pytest.mark.parametrize("kept", ["other/keep.txt", "other/summary.json", "other/metrics.jsonl", "other"])
def test_what_is_no_run_is_never_replaced(tmp_path: Path, kept: str, exist_ok: bool) -> None:
    mine = tmp_path / kept
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(RunExistsError, match=r"^\S+/other exists and is (not a run: it holds \w+|a file)(?!.*resume)"):
        make_runner(tmp_path / "other", exist_ok=exist_ok).train(1)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine] and mine.read_text() == "mine"


def test_a_run_without_a_mark_of_an_earlier_version_is_one(tmp_path: Path) -> None:
    make_runner(tmp_path / "run").train(1)
    (tmp_path / "run" / ".metaroll").unlink()
    make_runner(tmp_path / "run", exist_ok=True).train(2)
    assert list(snapshots_of(tmp_path / "run")) == [2]


def test_a_folder_with_foreign_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunExistsError, match=r"holds thesis\.tex"):
        make_runner(tmp_path).train(1)


def test_one_folder_per_runner(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be the same folder"):
        LocalRunner(SnapshotConfig(tmp_path / "a"), run_dir=tmp_path / "b")
    LocalRunner(SnapshotConfig(str(tmp_path / "a")), run_dir=tmp_path / "a")
