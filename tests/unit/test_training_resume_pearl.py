"""The real thing: PEARL on point-robot, stopped and resumed, is the run that never stopped (design.md 5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metaroll.envs.registry import get_family
from metaroll.learners.pearl import PEARL
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.networks import QFunction
from metaroll.seeding import torch_generator
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.training.files import save_tree
from metaroll.training.metrics_log import read_metrics
from metaroll.training.runner import LocalRunner
from metaroll.types import EnvSpec

SMALL = {
    "latent_dim": 2,
    "encoder_hidden_sizes": (8,),
    "meta_batch_size": 2,
    "num_steps_per_epoch": 2,
    "num_initial_steps": 20,
    "num_tasks_sample": 2,
    "num_steps_prior": 20,
    "num_extra_rl_steps_posterior": 20,
    "batch_size": 4,
    "embedding_batch_size": 4,
    "embedding_mini_batch_size": 4,
    "max_path_length": 20,
    "replay_buffer_size": 500,
}


def make_runner(run_dir: Path | None, seed: int = 3, posterior_sampling: bool = True) -> LocalRunner:
    train, test = get_family("point-robot").split(3, 2, seed=0)
    spec = EnvSpec.from_env(train[0]())
    wide, generator = PEARL.augment_env_spec(spec, 2), torch_generator(seed)
    learner = PEARL(
        env=train,
        inner_policy=TanhGaussianMLPPolicy(wide, hidden_sizes=(8,), generator=generator),
        qf=QFunction(wide, hidden_sizes=(8,), generator=generator),
        vf=QFunction(PEARL.get_env_spec(spec, 2, "vf"), hidden_sizes=(8,), generator=generator),
        num_train_tasks=3,
        num_test_tasks=2,
        test_env_sampler=FixedTaskSampler(test),
        seed=seed,
        **SMALL,
    )
    evaluator = {"n_exploration_traj": 2, "posterior_sampling": posterior_sampling}
    runner = LocalRunner(run_dir=run_dir, seed=seed, evaluator=evaluator)
    runner.setup(learner, train[0])
    return runner


def state_of(runner: LocalRunner, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    learner = runner._algo
    save_tree(folder, "algorithm", learner.state_dict())
    save_tree(folder, "buffers", learner.buffers_state_dict())
    rows = [json.dumps(row) for row in read_metrics(runner.run_dir) if row["phase"] != "time"]
    return {"metrics": rows, **{path.name: path.read_bytes() for path in folder.iterdir()}}


@pytest.mark.parametrize("epochs", [0, 1])
def test_pearl_resumes_bit_for_bit(tmp_path: Path, epochs: int) -> None:
    whole = make_runner(tmp_path / "whole")
    whole.train(2)
    make_runner(tmp_path / "run").train(epochs)
    resumed = make_runner(None, seed=8)  # other weights, other seed: all come from the snapshot
    resumed.restore(tmp_path / "run")
    resumed.resume(n_epochs=2)
    one, two = state_of(whole, tmp_path / "a"), state_of(resumed, tmp_path / "b")
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert value == two[name], name


@pytest.mark.parametrize("posterior_sampling", [True, False])
def test_an_evaluation_leaves_pearl_as_it_was(tmp_path: Path, posterior_sampling: bool) -> None:
    """Q-30"""
    runner = make_runner(tmp_path / "run", posterior_sampling=posterior_sampling)
    runner.train(1)
    before = state_of(runner, tmp_path / "before")
    runner.evaluate(runner._algo)
    assert state_of(runner, tmp_path / "after") == before
