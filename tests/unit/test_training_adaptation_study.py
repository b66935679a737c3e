"""specs/meta.md 5.5: k-shot curves, per-task tables, and the baselines that tell adapting from averaging."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from training_fakes import HORIZON, GoalEnv, GoalLearner, GuessPolicy, goal_updates, make_learner

from metaroll.envs.point.point_robot import PointRobotEnv
from metaroll.functional.robust_statistics import wilson_interval_of_tasks
from metaroll.lab.display.results import show_study
from metaroll.tasks.task_sampler import FixedTaskSampler
from metaroll.tasks.updates import SetTaskUpdate
from metaroll.training.evaluation.adaptation_study import default_shots, oracle_of, study_adaptation
from metaroll.training.evaluation.evaluation_result import PolicyEvaluation
from metaroll.training.evaluation.meta_evaluator import MetaEvaluator
from metaroll.training.evaluation.numbers import short_number, with_interval
from metaroll.training.session.summaries import success_values

GOALS = [1.5, 2.5, 4.0]


def evaluator(**arguments: Any) -> MetaEvaluator:
    sampler = FixedTaskSampler(goal_updates(GOALS))
    return MetaEvaluator(**{"test_task_sampler": sampler, "n_exploration_traj": 3, **arguments})


class AveragingLearner(GoalLearner):
    """Adapts to k of three episodes by moving k thirds of the way to the goal; too far where goals are below 2."""

    def adapt_policy(self, exploration_policy: GuessPolicy, exploration_trajectories: Any) -> GuessPolicy:
        policy = super().adapt_policy(exploration_policy, exploration_trajectories)
        assert policy.guess is not None
        policy.guess *= len(exploration_trajectories.lengths) / 3 * (3 if policy.guess < 2 else 1)
        return policy


def make_averaging() -> AveragingLearner:
    return AveragingLearner(goal_updates([1.0, 2.0]), goal_updates(GOALS))


def test_the_curve_and_the_baselines_by_hand() -> None:
    # Acting 0 returns -3 goal. Told k episodes: guess = goal k / 3, but k goal in the first task (goal 1.5).
    heard: list[tuple[int, int]] = []
    told_of = lambda done, total: heard.append((done, total))  # noqa: E731
    study = study_adaptation(evaluator(), make_averaging(), shots=[0, 1, 3], progress=told_of)
    assert study.shots == (0, 1, 3)
    whole = 3 * 4 + 2 * 3 + 3  # the evaluation, two numbers of episodes, another task's data
    assert {total for _, total in heard} == {whole} and heard[-1][0] == whole
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    expected = -HORIZON * np.array([[1.5, 0.0, 3.0], [2.5, 2.5 * 2 / 3, 0.0], [4.0, 4.0 * 2 / 3, 0.0]])
    np.testing.assert_allclose(study.shot_returns[:, 0, :, 0], expected, atol=1e-5)
    np.testing.assert_allclose(study.k_shot_curve["mean"], expected.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(study.per_task["no adaptation"], expected[:, 0], atol=1e-5)
    np.testing.assert_allclose(study.per_task["adapted"], expected[:, 2], atol=1e-5)
    assert study.worse_per_task.tolist() == [True, False, False]
    assert study.share_worse_interval == pytest.approx((0.0615, 0.7923), abs=1e-4)  # Wilson, 1 of 3
    gap, (low, high) = study.advantage("no adaptation")
    assert gap == pytest.approx((4.5 + 7.5 + 12 - 9) / 3)
    assert np.isnan([low, high]).all()  # of three tasks nothing tells chance
    assert study.gain == pytest.approx(gap)
    told = study.to_dict()
    assert told["gain"] == study.gain and np.isnan([told["gain_ci_low"], told["gain_ci_high"]]).all()
    assert [row["gain"] for row in told["per_task"]] == pytest.approx([-4.5, 7.5, 12.0], abs=1e-4)
    assert "task oracle" not in study.baselines


def test_random_context_is_that_of_another_task() -> None:
    study = study_adaptation(evaluator(), make_learner())
    returns = study.per_task["random context"]
    # Each acts the goal of one other task, and every task's data are used once.
    errors = np.abs(np.array(GOALS)[:, None] - GOALS)  # of the task in a row, acting the goal of a column
    used = np.isclose(-HORIZON * errors, returns[:, None], atol=1e-5)
    assert used.sum(axis=0).tolist() == used.sum(axis=1).tolist() == [1, 1, 1]
    assert not used.diagonal().any()
    assert study.advantage("random context")[0] > 0
    one = MetaEvaluator(test_task_sampler=FixedTaskSampler(goal_updates([1.5])), n_exploration_traj=1)
    assert "random context" not in study_adaptation(one, make_learner()).baselines


@pytest.mark.parametrize("posterior", [False, True])
def test_all_shots_are_the_evaluation_itself(posterior: bool) -> None:
    checked = evaluator(n_test_rollouts=1, repetitions=2, posterior_sampling=posterior, deterministic=False)
    study = study_adaptation(checked, make_learner())
    assert study.shots == (0, 1, 2, 3)
    np.testing.assert_array_equal(study.shot_returns[:, :, -1], study.result.returns[:, :, 3:])
    plain = evaluator(n_test_rollouts=1, repetitions=2, posterior_sampling=posterior, deterministic=False)
    np.testing.assert_array_equal(plain.evaluate(make_learner()).returns, study.result.returns)


class EpisodeCounter(GoalLearner):
    """Looks at how many episodes there are, and never at what is in them."""

    def adapt_policy(self, exploration_policy: GuessPolicy, exploration_trajectories: Any) -> GuessPolicy:
        return GuessPolicy(weight=0.5 * len(exploration_trajectories.lengths))


@pytest.mark.parametrize("posterior", [False, True])
def test_all_arms_have_seen_as_many_episodes(posterior: bool) -> None:
    """What an agent does by the number of its episodes, it does with another task's data as well."""
    checked = evaluator(n_test_rollouts=3, posterior_sampling=posterior)
    study = study_adaptation(checked, EpisodeCounter(goal_updates([1.0]), goal_updates(GOALS)))
    np.testing.assert_array_equal(study.baselines["random context"], study.result.returns[:, :, 3:])
    np.testing.assert_array_equal(study.shot_returns[:, :, -1], study.result.returns[:, :, 3:])
    np.testing.assert_allclose(study.per_task["adapted"], -HORIZON * np.abs(np.array(GOALS) - 1.5), atol=1e-5)
    verdict = study.verdict()
    assert verdict.gain.value > 0.0 and verdict.own_data_gain is not None and verdict.own_data_gain.value == 0.0


class SteppingLearner(GoalLearner):
    """Each adaptation goes half of the way from the policy's weight to the goal."""

    def adapt_policy(self, exploration_policy: GuessPolicy, exploration_trajectories: Any) -> GuessPolicy:
        goal, weight = exploration_trajectories.env_infos["goal"][0], float(exploration_policy.weight[0])
        return GuessPolicy(weight + (goal - weight) / 2)


def test_the_curve_may_count_rounds() -> None:
    stepping = SteppingLearner(goal_updates([1.0]), goal_updates(GOALS))
    rounds = {"n_exploration_traj": 6, "adaptation_rounds": 3, "adapt_from": "last"}
    study = study_adaptation(evaluator(**rounds), stepping)
    assert (study.shots, study.shot_unit, study.k_shot_curve["unit"]) == ((0, 1, 2, 3), "rounds", "rounds")
    errors = np.array(GOALS)[:, None] * 0.5 ** np.arange(4)
    np.testing.assert_allclose(study.shot_returns[:, 0, :, 0], -HORIZON * errors, rtol=1e-5)
    np.testing.assert_array_equal(study.shot_returns[:, :, -1], study.result.returns[:, :, 6:])
    assert "random context" in study.baselines
    # From all data so far there is one adaptation whatever the number of rounds; episodes can be counted as well.
    whole = study_adaptation(evaluator(**{**rounds, "adapt_from": "all"}), make_averaging())
    assert (whole.shots, whole.shot_unit) == ((0, 1, 2, 3), "rounds")
    episodes = study_adaptation(evaluator(**{**rounds, "adapt_from": "all"}), make_averaging(), shot_unit="episodes")
    np.testing.assert_array_equal(whole.shot_returns[:, :, 1:], episodes.shot_returns[:, :, [2, 4, 6]][:, :, :3])
    one = study_adaptation(evaluator(adapt_from="last"), make_averaging())
    np.testing.assert_array_equal(one.shot_returns, study_adaptation(evaluator(), make_averaging()).shot_returns)
    assert one.shot_unit == "episodes"
    with pytest.raises(ValueError, match="shot_unit"):
        study_adaptation(evaluator(**rounds), stepping, shot_unit="episodes")
    with pytest.raises(ValueError, match="shot_unit"):
        study_adaptation(evaluator(), make_averaging(), shot_unit="steps")  # type: ignore[arg-type]


def test_no_number_is_cut_in_a_narrow_terminal() -> None:
    study = study_adaptation(
        evaluator(), make_averaging(), oracle=(GuessPolicy(), lambda task: {"guess": task["goal"]})
    )
    names = [f"a task with a long name, which is number {i}" for i in range(3)]
    result = dataclasses.replace(study.result, task_names=names, returns=study.result.returns - 0.0104)
    study = dataclasses.replace(study, result=result)
    for width in (80, 40, 20):
        text = io.StringIO()
        show_study(Console(file=text, width=width), study, {})
        baselines, _, rows = text.getvalue().partition("worst first")
        assert "…" not in text.getvalue() and "number" in rows
        for gain in study.gain_per_task:
            assert short_number(gain, sign="+") in rows
        for name in study.baselines:  # names whole as well
            gap, bounds = study.advantage(name)
            numbers = short_number(study.per_task[name].mean()), with_interval(gap, bounds, sign="+")
            assert all(word in baselines for word in (*numbers, "mismatched", "oracle"))


def test_in_a_notebook_an_evaluation_is_a_table() -> None:
    result = evaluator().evaluate(make_averaging())
    shown = result._repr_html_()
    assert (
        shown.count("<tr>") == 1 + len(result.tasks) and "after adaptation" in shown and "return in the first" in shown
    )
    single = PolicyEvaluation(np.array([[1.0, 3.0]]), [{"mass": 2.0}], ["task 0"])
    shown = single._repr_html_()
    assert shown.count("<tr>") == 2 and "mass=2" in shown and "2.00" in shown


def test_the_oracle_of_an_environment() -> None:
    tasks = [{"goal": np.array(goal)} for goal in ((0.5, 0.5), (-1.0, 0.2))]
    found = oracle_of(SetTaskUpdate(PointRobotEnv, tasks[0]))
    assert found is not None
    policy, tell = found
    goal = np.array([np.asarray(value) for value in (tell(tasks[0]) or {}).values()])
    actions = policy.function(np.array([[0.0, 0.0]]), {"goal": goal})
    np.testing.assert_allclose(actions, [[1.0, 1.0]])
    assert oracle_of(SetTaskUpdate(GoalEnv, {"goal": 1.0})) is None
    told = (GuessPolicy(), lambda task: {"guess": np.asarray(task["goal"], dtype=np.float32)})
    study = study_adaptation(evaluator(), make_averaging(), oracle=told)
    np.testing.assert_allclose(study.per_task["task oracle"], 0.0, atol=1e-6)
    assert study.advantage("task oracle")[0] == pytest.approx(-3.0)


def test_success_counts_all_planned_episodes_and_the_biased_rule_the_first_to_finish() -> None:
    result = evaluator(n_test_rollouts=3, test_task_names=["near", "near", "far"]).evaluate(make_averaging())
    # Adapted: the goal is missed in the first task and hit at every step of the other two.
    first = result.success_steps
    assert first is not None
    assert first[:, 0, 3:].tolist() == [[0, 0, 0], [1, 1, 1], [1, 1, 1]]
    assert result.success_rate == pytest.approx(6 / 9)
    # Three tasks whose episodes repeat each other: z^2 / t^2 of 2 trials, and not 9.
    assert result.success_interval == pytest.approx((0.0561, 0.9764), abs=1e-4)
    # Where the tasks are all there are, repetitions differ by chance: here there is one, whose episodes are told.
    everything = dataclasses.replace(result, all_tasks=True)
    assert everything.success_interval == wilson_interval_of_tasks([1.0] * 6 + [0.0] * 3, 9)
    first = np.tile(np.array([[[0, 0, 0, 1]], [[0, 0, 0, 0]]]), (1, 8, 1))
    first[1, :4, 3] = 1
    settled = dataclasses.replace(everything, success_steps=first)
    assert settled.success_rate == 0.75
    assert settled.success_interval == wilson_interval_of_tasks([1.0] * 4 + [0.5] * 4, 16)
    # "near": three successes of one step each finish before the first failure of three steps.
    assert result.first_finished_success_rate(2) == 1.0
    assert [row["success_rate"] for _, row in result.per_task()] == [0.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="run at least 5"):
        result.first_finished_success_rate(5)


def test_episodes_of_one_length_have_no_first_to_finish() -> None:
    result = evaluator(n_test_rollouts=3, test_task_names=["near", "near", "far"]).evaluate(make_averaging())
    assert result.equal_lengths  # all run to the horizon
    values = success_values(result, 3)
    assert (values["first_finished_success_rate"], values["first_finished_bias"]) == (result.success_rate, 0.0)
    # Meta-World's own evaluation ends episodes at success, ours does not.
    sawyer = dataclasses.replace(result, provenance={"benchmark": "Meta-World"})
    assert not sawyer.equal_lengths
    # "near": successes end at steps 1, 2 and 3, and at 3 the first failure, which is of the instance before.
    assert success_values(sawyer, 3)["first_finished_bias"] == pytest.approx((2 / 3 + 1) / 2 - 6 / 9)
    assert result.lengths is not None
    shorter = result.lengths.copy()
    shorter[0, 0, -1] -= 1
    assert not dataclasses.replace(result, lengths=shorter).equal_lengths


def test_small_numbers_are_not_shown_as_zero() -> None:
    assert with_interval(-0.003, (-0.004, 0.001), sign="+") == "-0.00300 [-0.00400, 0.00100]"
    assert with_interval(0.1, (-0.03, 0.2)) == "0.100 [-0.030, 0.200]"
    assert with_interval(12.34, (-0.02, 13.5)) == "12.3 [0.0, 13.5]"  # small beside the others
    assert with_interval(0.0, (0.0, 0.0316), 2) == "0.0000 [0.0000, 0.0316]"
    assert [short_number(value, sign="+") for value in (-0.003, 0.0, -1e-12, 0.049, 0.05, -2.5)] == [
        *("-0.00300", "+0.0", "+0.0", "+0.0490", "+0.0500", "-2.50")
    ]


def test_interquartile_means_leave_outliers_out() -> None:
    result = evaluator(repetitions=2).evaluate(make_averaging())  # returns -9, 0, 0, twice
    assert result.return_after_iqm == pytest.approx(-9 / 4)  # of 6 scores one is left out at either end
    assert result.return_after_iqm_interval == (pytest.approx(-9 / 4), pytest.approx(-9 / 4))
    assert np.isnan(evaluator().evaluate(make_averaging()).return_after_iqm_interval.low)


def test_shots_that_there_are_not() -> None:
    assert default_shots(3) == [0, 1, 2, 3]
    assert default_shots(30) == [0, 1, 2, 3, 4, 5, 10, 20, 30]
    for shots in ([4], [-1], [True], []):
        with pytest.raises((TypeError, ValueError), match="shots must"):
            study_adaptation(evaluator(), make_learner(), shots=shots)
