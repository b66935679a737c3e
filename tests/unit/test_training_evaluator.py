"""Evaluations of a policy that does not adapt, in a runner and without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from metaroll.errors import TaskOverlapError
from metaroll.learners.on_policy.ppo import PPO
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.seeding import torch_generator
from metaroll.tasks.domain_params import DomainParamUpdate
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.run.runner import LocalRunner
from metaroll.training.store.metrics_log import read_metrics
from metaroll.types import EnvSpec

pytestmark = pytest.mark.usefixtures("lent_pools")

SPEC = EnvSpec.from_env(gymnasium.make("Pendulum-v1"))
SMALL: dict[str, Any] = {"steps_per_epoch": 60, "num_passes": 2, "max_path_length": 20, "evaluate_every": 2}


def make_runner(run_dir: Path | None, **options: Any) -> LocalRunner:
    learner = PPO(
        SPEC, policy=GaussianMLPPolicy(SPEC, (8,), generator=torch_generator(0)), seed=1, **{**SMALL, **options}
    )
    runner = LocalRunner(run_dir=run_dir, seed=3, evaluator=PolicyEvaluator(num_episodes=3, seed=5))
    runner.setup(learner, "Pendulum-v1")
    return runner


def test_evaluations_are_logged_with_intervals(tmp_path):
    with make_runner(tmp_path / "run") as runner:
        returned = runner.train(2)
        evaluation = runner.last_evaluation
    rows = {row["metric"]: row["value"] for row in read_metrics(tmp_path / "run", phase="Evaluation")}
    assert evaluation.returns.shape == (1, 3)
    assert returned == pytest.approx(evaluation.returns.mean())
    assert rows["return_mean"] == pytest.approx(returned)
    assert rows["return_mean_ci_low"] <= returned <= rows["return_mean_ci_high"]
    assert rows["env_steps_of_evaluation"] == 60
    assert {row["task"] for row in read_metrics(tmp_path / "run", phase="Evaluation")} == {None}


def test_held_out_variations_are_evaluated_one_by_one(tmp_path):
    updates = [DomainParamUpdate({"m": mass}) for mass in (0.5, 1.0, 2.0)]
    with make_runner(tmp_path / "run", test_env_sampler=FixedTaskSampler(updates)) as runner:
        runner.train(2)
        evaluation = runner.last_evaluation
    assert evaluation.returns.shape == (3, 3)
    assert evaluation.return_interval.low < evaluation.return_mean < evaluation.return_interval.high
    rows = read_metrics(tmp_path / "run", phase="Evaluation", metric="return_mean")
    by_task = {row["task"]: row["value"] for row in rows}
    assert by_task["task 2"] == pytest.approx(evaluation.returns[2].mean())
    assert evaluation.to_dict()["n_test_tasks"] == 3


def test_a_variation_of_training_is_not_evaluated(tmp_path):
    class Learner:
        train_tasks = ({"m": 1.0},)

    evaluator = PolicyEvaluator(env="Pendulum-v1", test_task_sampler=FixedTaskSampler([DomainParamUpdate({"m": 1.0})]))
    with pytest.raises(TaskOverlapError, match="test task 0"):
        evaluator.prepare(Learner())


def test_an_evaluator_works_without_a_runner():
    learner = PPO(SPEC, policy=GaussianMLPPolicy(SPEC, (8,), generator=torch_generator(0)), seed=1, **SMALL)
    evaluator = PolicyEvaluator(env="Pendulum-v1", num_episodes=4)
    first = evaluator.evaluate(learner)
    assert first.returns.shape == (1, 4)
    assert np.array_equal(evaluator.evaluate(learner).returns, first.returns)
    evaluator.close()
    with pytest.raises(ValueError, match="env "):
        PolicyEvaluator().evaluate(learner)
