"""The real thing: PEARL on point-robot, stopped and resumed, is the run that never stopped (design.md 5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metaroll.compat.constructors import PEARL
from metaroll.envs.lookup.registry import get_family
from metaroll.learners.pearl import PEARLCollector
from metaroll.policies.context import ContextConditionedPolicy
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.networks import QFunction
from metaroll.rollouts.garage.local_sampler import LocalSampler
from metaroll.rollouts.garage.workers import PEARLWorker
from metaroll.seeding import torch_generator
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.training.run import runner as runner_module
from metaroll.training.run import services
from metaroll.training.run.runner import LocalRunner
from metaroll.training.store.files import save_tree
from metaroll.training.store.metrics_log import read_metrics
from metaroll.types import EnvSpec
from pearl_sizes import IN_FOURS

pytestmark = pytest.mark.usefixtures("lent_pools")

SMALL = {**IN_FOURS, "max_path_length": 20}


def make_runner(
    run_dir: Path | None,
    seed: int = 3,
    posterior_sampling: bool = True,
    activation: str = "relu",
    family: str = "point-robot",
    options: Any = None,
    callbacks: Any = (),
    **setup: Any,
) -> LocalRunner:
    train, test = get_family(family).split(3, 2, seed=0)
    spec = EnvSpec.from_env(train[0]())
    wide, generator = PEARL.augment_env_spec(spec, 2), torch_generator(seed)
    learner = PEARL(
        env=train,
        inner_policy=TanhGaussianMLPPolicy(
            wide, hidden_sizes=(8,), hidden_nonlinearity=activation, generator=generator
        ),
        qf=QFunction(wide, hidden_sizes=(8,), generator=generator),
        vf=QFunction(PEARL.get_env_spec(spec, 2, "vf"), hidden_sizes=(8,), generator=generator),
        num_train_tasks=3,
        num_test_tasks=2,
        test_env_sampler=FixedTaskSampler(test),
        seed=seed,
        **(options or SMALL),
    )
    evaluator = {"n_exploration_traj": 2, "posterior_sampling": posterior_sampling}
    runner = LocalRunner(run_dir=run_dir, seed=seed, evaluator=evaluator, callbacks=callbacks)
    runner.setup(learner, train[0], **setup)
    return runner


def state_of(runner: LocalRunner, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    learner = runner._source.algo
    save_tree(folder, "algorithm", learner.state_dict())
    save_tree(folder, "buffers", learner.buffers_state_dict())
    rows = [json.dumps(row) for row in read_metrics(runner.run_dir) if row["phase"] != "time"]
    return {"metrics": rows, **{path.name: path.read_bytes() for path in folder.iterdir()}}


@pytest.mark.parametrize("stop_after", [0, 1, 2, 3])
def test_a_run_that_is_stopped_in_its_warm_up_resumes_there_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    """Issue 13: so many of three tasks have their initial data when Ctrl-C comes; a snapshot after each."""
    whole = make_runner(tmp_path / "whole")
    whole.train(2)
    monkeypatch.setattr(runner_module, "_SNAPSHOT_SECONDS", 0.0)
    monkeypatch.setattr(runner_module, "_SNAPSHOT_SHARE", 0.0)
    monkeypatch.setattr(services, "_next_size", lambda size, seconds: 1)
    stopped = make_runner(tmp_path / "run")
    stored: list[Any] = []
    store = PEARLCollector._store

    def interrupted(collector: PEARLCollector, tasks: Any, groups: Any, *, to_context: bool) -> list[int]:
        if len(stored) == stop_after:
            raise KeyboardInterrupt
        stored.extend(tasks)
        return store(collector, tasks, groups, to_context=to_context)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(PEARLCollector, "_store", interrupted)
        stopped.train(2)
    resumed = make_runner(None, seed=8)
    resumed.restore(tmp_path / "run")
    assert resumed._source.algo._buffers.empty_tasks == list(range(stop_after, 3))
    assert resumed.total_env_steps == 20 * stop_after
    resumed.resume()
    one, two = state_of(whole, tmp_path / "a"), state_of(resumed, tmp_path / "b")
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert value == two[name], name


@pytest.mark.parametrize("num_workers", [1, 2])
def test_what_is_collected_in_parts_is_what_one_call_gives(num_workers: int) -> None:
    tasks = get_family("point-robot").split(5, 2, seed=0)[0]
    with make_runner(None, n_workers=num_workers) as runner:
        told = [{}] * 5
        at_once = runner.obtain_samples(0, 30, env_update=tasks, contexts=told)
    with make_runner(None, n_workers=num_workers) as runner:
        parts = list(runner.obtain_in_parts(0, 30, tasks, contexts=told, missing=[0, 2, 4]))
        assert runner.step_itr == 1 and runner.total_env_steps == 3 * 40
    assert [list(positions) for positions, _ in parts] == [[0], [2, 4]] or len(parts) == 3
    for positions, groups in parts:
        for position, group in zip(positions, groups, strict=True):
            assert len(group) == len(at_once[position]) == 2
            for one, two in zip(group, at_once[position], strict=True):
                assert np.array_equal(one.observations, two.observations)
                assert np.array_equal(one.actions, two.actions)
                assert one.rollout_info["plan"]["seed"] == two.rollout_info["plan"]["seed"]


def test_timing_an_update_changes_nothing() -> None:
    runner = make_runner(None)
    learner = runner._source.algo
    before = repr(learner.state_dict())
    seconds = learner.update_seconds()
    assert 0 < seconds < 60
    assert repr(learner.state_dict()) == before
    huge = make_runner(None, options={**SMALL, "batch_size": 10**8})
    assert huge._source.algo.update_seconds() is None  # too much memory only to time it


def test_a_run_is_the_same_whoever_listens_and_is_told_all_its_phases(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []

    class Listener:
        def on_progress(self, runner: LocalRunner, phase: str, done: int, total: int) -> None:
            heard.append((phase, done, total))

    alone, told = make_runner(tmp_path / "alone"), make_runner(tmp_path / "told", callbacks=[Listener()])
    alone.train(1)
    told.train(1)
    one, two = state_of(alone, tmp_path / "a"), state_of(told, tmp_path / "b")
    assert all(value == two[name] for name, value in one.items())
    phases = list(dict.fromkeys(phase for phase, _, _ in heard))
    assert phases == ["warm-up", "sampling", "updates", "evaluation"]
    # 3 tasks of 20 steps; two visits of 20 and 20; two updates; two tasks of two episodes and one.
    totals = {"warm-up": 60, "sampling": 80, "updates": 2, "evaluation": 6}
    for phase, total in totals.items():
        news = [(done, of) for name, done, of in heard if name == phase]
        assert news[0] == (0, total) and news[-1] == (total, total)
        assert news == sorted(news)


def test_garages_way_to_set_up_pearl(tmp_path: Path) -> None:
    """specs/meta.md 9.11: LocalSampler and PEARLWorker as garage's examples pass them; resumed as exactly"""
    whole = make_runner(tmp_path / "whole")
    whole.train(2)
    garage = {"sampler_cls": LocalSampler, "sampler_args": {"max_path_length": 20}, "worker_class": PEARLWorker}
    make_runner(tmp_path / "run", n_workers=1, **garage).train(n_epochs=1, batch_size=20)
    resumed = make_runner(None, n_workers=1, **garage)
    resumed.restore(tmp_path / "run")
    resumed.resume(n_epochs=2)
    one, two = state_of(whole, tmp_path / "a"), state_of(resumed, tmp_path / "b")
    assert all(value == two[name] for name, value in one.items())


def test_another_learner_with_as_many_parameters_acts_as_itself() -> None:
    """Policies share an engine only if they differ in nothing but parameters: activations are no parameters."""
    one, two = make_runner(None), make_runner(None, activation="tanh")
    one.evaluate(one._source.algo)
    assert one.evaluate(two._source.algo) == two.evaluate(two._source.algo) != one.evaluate(one._source.algo)


def test_both_ways_to_adapt_again_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """specs/meta.md 4.7"""
    runner = make_runner(None)
    fast = runner.evaluate(runner._source.algo)
    monkeypatch.setattr(PEARL, "adapts_again", False)
    assert runner.evaluate(runner._source.algo) == fast


def test_sparse_rewards_in_the_context_dense_ones_in_the_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """specs/meta.md 7.2, end to end: sparse-point-robot"""
    runner = make_runner(None, family="sparse-point-robot", options={**SMALL, "context_reward_key": "sparse_reward"})
    seen: list[np.ndarray] = []
    learner = runner._source.algo
    infer = ContextConditionedPolicy.posterior_of_lists

    def spy(belief: ContextConditionedPolicy, contexts: Any) -> Any:
        seen.extend(rows[:, -1] for rows in contexts)
        return infer(belief, contexts)

    monkeypatch.setattr(ContextConditionedPolicy, "posterior_of_lists", spy)
    runner.train(1)
    rewards = np.concatenate([rows.ravel() for rows in seen])
    assert len(seen) > 2 and (rewards >= 0).all()  # the dense reward is a negative distance
    stored = learner._buffers.sample_transitions([0, 1, 2], 50, np.random.default_rng(0))
    assert (learner._layout.split(torch.from_numpy(stored)).rewards < 0).all()
