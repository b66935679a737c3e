"""specs/meta.md 5.5, 4.7, Q-30, 9.12: fixed cells, both protocols, no overlap, nothing of the algorithm changed."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
from typing import Any

import numpy as np
import pytest
from training_fakes import HORIZON, GoalEnv, GoalLearner, GuessPolicy, goal_updates, make_learner

from metaroll import MetaEvaluator
from metaroll.configs import EvaluationConfig, MetaEvaluationConfig
from metaroll.errors import SnapshotError, TaskOverlapError, UnknownNameError
from metaroll.learners.base import AlgorithmInfo
from metaroll.learners.foreign import as_algorithm
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.garage.workers import DefaultWorker, PEARLWorker
from metaroll.tasks.task_sampler import FixedTaskSampler, SetTaskSampler
from metaroll.tasks.updates import NewEnvUpdate
from metaroll.training.evaluation import meta_evaluator
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.store.files import load_tree, save_tree


def evaluator(**arguments: Any) -> MetaEvaluator:
    sampler = FixedTaskSampler(goal_updates([1.5, 2.5, 4.0]))
    return MetaEvaluator(**{"test_task_sampler": sampler, "n_exploration_traj": 2, **arguments})


def test_returns_by_hand() -> None:
    """specs/meta.md 5.5"""
    # Three steps at -|action - goal|: exploring acts 0, adapted acts the goal. Tasks 1.5, 2.5 and 4.
    result = evaluator(n_test_rollouts=2).evaluate(make_learner())
    np.testing.assert_allclose(result.returns[:, 0], -3 * np.array([[1.5, 1.5, 0, 0], [2.5, 2.5, 0, 0], [4, 4, 0, 0]]))
    assert result.return_before == pytest.approx(-8.0)  # -(4.5 + 7.5 + 12) / 3
    assert result.return_after == 0.0
    assert result.change == pytest.approx(8.0)
    assert result.change_interval.low < 8 < result.change_interval.high
    assert result.return_after_interval == (0.0, 0.0)
    assert result.env_steps == 3 * 4 * HORIZON
    np.testing.assert_allclose(result.return_per_episode, [-8, -8, 0, 0], atol=1e-6)


def test_metrics_have_garage_names_and_the_algorithms_discount() -> None:
    """specs/meta.md 5.5, Q-40"""
    checked = evaluator(test_task_names=["near", "near", "far"])
    learner = make_learner()
    learner.policy.weight[:] = 1.0  # adapted policies miss the goal by 1: return -3, discounted -(1 + .5 + .25)
    metrics = [checked.evaluate(learner).metrics for _ in range(2)]
    assert [m["MetaTest/Average/Iteration"] for m in metrics] == [0, 1]
    assert metrics[0]["MetaTest/Average/AverageReturn"] == pytest.approx(-3.0)
    assert metrics[0]["MetaTest/Average/AverageDiscountedReturn"] == pytest.approx(-1.75)
    assert metrics[0]["MetaTest/near/NumTrajs"] == 2
    assert metrics[0]["MetaTest/far/NumTrajs"] == 1
    for m in metrics:
        assert m["MetaTest/Average/MaxReturn"] >= m["MetaTest/Average/AverageReturn"] >= m["MetaTest/Average/MinReturn"]


def test_episodes_are_counted_not_steps() -> None:
    """specs/meta.md 9.12"""
    result = evaluator(max_path_length=1).evaluate(make_learner(), test_rollouts_per_task=4)
    assert result.returns.shape == (3, 1, 6)
    assert result.env_steps == 3 * 6


def test_posterior_sampling_adapts_after_every_episode_from_all_so_far() -> None:
    """specs/meta.md 4.7, Q-30 (oyster's protocol)"""
    learner = make_learner()
    seen: list[int] = []
    adapt = learner.adapt_policy
    learner.adapt_policy = lambda policy, batch: seen.append(len(batch.lengths)) or adapt(policy, batch)  # type: ignore[method-assign, func-returns-value]
    checked = evaluator(n_exploration_traj=4, n_test_rollouts=2, posterior_sampling=True, num_prior_episodes=2)
    result = checked.evaluate(learner)
    assert seen == [2] * 3 + [3] * 3 + [4] * 3
    # The first two episodes know nothing, all later ones the goal; to the last two, which count, nobody adapts.
    np.testing.assert_allclose(result.return_per_episode, [-8, -8, 0, 0, 0, 0], atol=1e-6)
    assert result.num_exploration == 4


def test_every_cell_has_its_own_policy_and_seed() -> None:
    """Q-30: no belief leaks from one task into the next."""
    learner = make_learner()
    policies: list[GuessPolicy] = []
    make = learner.get_exploration_policy

    def get_exploration_policy() -> GuessPolicy:
        policies.append(make())
        return policies[-1]

    learner.get_exploration_policy = get_exploration_policy  # type: ignore[method-assign]
    result = evaluator(repetitions=2).evaluate(learner)
    assert [p.guess for p in policies] == [None] * 6 + [1.5, 1.5, 2.5, 2.5, 4.0, 4.0]  # who explores, who is adapted
    assert result.returns.shape == (3, 2, 3)
    seeds = [cell.seed for cell in result.cells]
    assert len(set(seeds)) == len(seeds) == 3 * 2 * 3
    # A cell keeps its seed when there are more tasks, repetitions or episodes.
    more = evaluator(repetitions=3, n_exploration_traj=5).evaluate(make_learner())
    place = {(c.task, c.repetition, c.episode): c.seed for c in more.cells}
    assert all(place[c.task, c.repetition, c.episode] == c.seed for c in result.cells)


def test_evaluations_repeat_and_change_nothing() -> None:
    """specs/meta.md 4.7: evaluation must not change training state."""
    learner = make_learner()
    before = copy.deepcopy({**learner.state_dict(), **learner.buffers_state_dict()})
    checked = evaluator(deterministic=False, posterior_sampling=True)
    first, second = checked.evaluate(learner), checked.evaluate(learner)
    np.testing.assert_array_equal(first.returns, second.returns)
    after = {**learner.state_dict(), **learner.buffers_state_dict()}
    assert before.pop("generator") == after.pop("generator")
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name])
    assert learner.policy.guess is None
    other_seed = evaluator(deterministic=False, posterior_sampling=True, seed=1).evaluate(learner)
    assert not np.array_equal(first.returns, other_seed.returns)


def test_cells_with_other_parameters_run_together() -> None:
    """Policies adapted in their parameters (MAML) act with their own."""

    class Shifted(GoalLearner):
        def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> Any:
            return GuessPolicy(weight=float(exploration_trajectories.env_infos["goal"][0]) - 1)

    learner = Shifted(goal_updates([9.0]), goal_updates([1.5, 2.5, 4.0]))
    np.testing.assert_allclose(evaluator().evaluate(learner).returns[:, 0, -1], -3.0, atol=1e-6)


def test_adapted_policies_may_be_of_any_kind() -> None:
    class Foreign(GoalLearner):
        def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> Any:
            goal = exploration_trajectories.env_infos["goal"][0]
            return lambda observation: np.array([goal + 2.0], dtype=np.float32)

    learner = Foreign(goal_updates([9.0]), goal_updates([1.5, 2.5, 4.0]))
    result = evaluator().evaluate(learner)
    np.testing.assert_allclose(result.returns[:, 0, -1], -6.0)


def test_exploration_has_noise_where_the_algorithm_needs_it() -> None:
    """``deterministic`` is meant for adapted episodes where adaptation needs noise (score-function gradients)."""

    class Noisy(GoalLearner):
        @property
        def info(self) -> AlgorithmInfo:
            return dataclasses.replace(super().info, deterministic_exploration=False)

    updates = goal_updates([9.0]), goal_updates([1.5, 2.5, 4.0])
    quiet = evaluator(n_test_rollouts=2).evaluate(GoalLearner(*updates)).returns
    noisy = evaluator(n_test_rollouts=2).evaluate(Noisy(*updates)).returns
    assert (quiet[:, :, :2] != noisy[:, :, :2]).all()
    np.testing.assert_array_equal(quiet[:, :, 2:], noisy[:, :, 2:])


class ScoreFunctionLearner(GoalLearner):
    """Adapts by a step along the score-function gradient, which only noise in the actions makes."""

    deterministic_exploration = False

    def adapt_policy(self, exploration_policy: GuessPolicy, exploration_trajectories: Any) -> GuessPolicy:
        batch = exploration_trajectories
        weight = float(exploration_policy.weight[0])
        scores = (np.asarray(batch.actions)[:, 0] - weight) / 0.1**2
        gradient = float(np.mean(scores * (batch.rewards - batch.rewards.mean())))
        self.gradients = [*getattr(self, "gradients", []), gradient]
        return GuessPolicy(weight + gradient)


def score_learner() -> ScoreFunctionLearner:
    return ScoreFunctionLearner(goal_updates([9.0]), goal_updates([1.5, 2.5, 4.0]))


def test_score_functions_need_noise_and_test_episodes_do_not() -> None:
    learner = score_learner()
    result = evaluator(n_exploration_traj=8, n_test_rollouts=2).evaluate(learner, keep_rollouts=True)
    assert learner.gradients and np.mean(np.abs(learner.gradients)) > 0.3  # of a true gradient of 1
    assert result.rollouts is not None
    for rollouts in result.rollouts:
        assert all(len(np.unique(rollout.actions)) == HORIZON for rollout in rollouts[:8])
        assert all(len(np.unique(rollout.actions)) == 1 for rollout in rollouts[8:])
    # The evaluator's argument overrides what the algorithm says, either way.
    forced = score_learner()
    evaluator(n_exploration_traj=8, deterministic_exploration=True).evaluate(forced)
    assert np.max(np.abs(forced.gradients)) < 1e-4
    loud = evaluator(deterministic_exploration=False).evaluate(make_learner())
    assert (loud.returns[:, :, :2] != evaluator().evaluate(make_learner()).returns[:, :, :2]).all()
    assert as_algorithm(score_learner()).info.deterministic_exploration is False


def test_rounds_of_adaptation_from_the_last_episodes() -> None:
    """Every gradient step starts from the last one's policy and has fresh episodes of it."""
    learner = score_learner()
    checked = evaluator(n_exploration_traj=12, adaptation_rounds=3, episodes_per_round=4, adapt_from="last")
    result = checked.evaluate(learner, keep_rollouts=True)
    assert result.num_exploration == checked.n_exploration_traj == 12
    assert result.returns.shape == (3, 1, 13)
    exploring, acting = np.array(learner.gradients[:6]), np.array(learner.gradients[6:]).reshape(3, 3)  # round, task
    np.testing.assert_array_equal(acting[:2].reshape(-1), exploring)  # who acts takes all steps from the same episodes
    steps = acting
    assert result.rollouts is not None
    for task, rollouts in enumerate(result.rollouts):
        assert float(rollouts[-1].actions[0, 0]) == pytest.approx(steps[:, task].sum(), abs=1e-5)
        second = np.concatenate([rollout.actions for rollout in rollouts[4:8]])
        assert np.mean(second) == pytest.approx(steps[0, task], abs=0.15)
    np.testing.assert_array_equal(checked.evaluate(score_learner()).returns, result.returns)


def test_rounds_of_adaptation_from_all_episodes() -> None:
    seen: list[int] = []

    class Counting(GoalLearner):
        def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> Any:
            assert exploration_policy.guess is None  # a fresh one: it does not say that it adapts adapted ones
            seen.append(len(exploration_trajectories.lengths))
            return super().adapt_policy(exploration_policy, exploration_trajectories)

    learner = Counting(goal_updates([9.0]), goal_updates([1.5, 2.5, 4.0]))
    result = evaluator(n_exploration_traj=4, adaptation_rounds=2).evaluate(learner)
    assert seen == [2] * 3 + [4] * 3
    np.testing.assert_allclose(result.return_per_episode, [-8, -8, 0, 0, 0], atol=1e-6)
    same = evaluator(n_exploration_traj=4, episodes_per_round=2).evaluate(make_learner())
    np.testing.assert_array_equal(same.returns, result.returns)


def test_all_cells_may_be_adapted_at_once() -> None:
    calls: list[int] = []

    class Batched(GoalLearner):
        def adapt_policies(self, policies: Any, batches: Any) -> list[Any]:
            calls.append(len(policies))
            return super().adapt_policies(policies, batches)

    class Short(GoalLearner):
        def adapt_policies(self, policies: Any, batches: Any) -> list[Any]:
            return super().adapt_policies(policies[1:], batches[1:])

    updates = goal_updates([9.0]), goal_updates([1.5, 2.5, 4.0])
    result = evaluator(repetitions=2).evaluate(Batched(*updates))
    assert calls == [6]
    np.testing.assert_array_equal(result.returns, evaluator(repetitions=2).evaluate(make_learner()).returns)
    with pytest.raises(ValueError, match="Short must return a policy for each of 3 batches, got 2"):
        evaluator().evaluate(Short(*updates))


def test_algorithms_of_other_libraries_are_evaluated() -> None:
    """What garage documents is enough: no base class of ours, no state, no fingerprint."""

    class Foreign:
        max_path_length = HORIZON

        def __init__(self) -> None:
            self._learner = make_learner()

        def get_exploration_policy(self) -> Any:
            return self._learner.get_exploration_policy()

        def adapt_policy(self, exploration_policy: Any, exploration_trajectories: Any) -> Any:
            return self._learner.adapt_policy(exploration_policy, exploration_trajectories)

    result = evaluator().evaluate(Foreign())
    np.testing.assert_array_equal(result.returns, evaluator().evaluate(make_learner()).returns)
    info = as_algorithm(Foreign()).info
    assert (info.name, info.adapts, info.has_state) == ("Foreign", True, False)
    with pytest.raises(TypeError, match="get_exploration_policy"):
        evaluator().evaluate(object())


def test_references_act_in_the_same_cells() -> None:
    checked = evaluator(deterministic=False, repetitions=2)
    learner = make_learner()
    result = checked.evaluate(learner)
    same = checked.run_reference(GuessPolicy())  # what explores, by another way: the same noise, so the same returns
    np.testing.assert_array_equal(same[:, :, :2], result.returns[:, :, :2])
    oracle = checked.run_reference(GuessPolicy(), lambda task: {"guess": task["goal"].astype(np.float32)})
    assert oracle.shape == result.returns.shape
    assert (oracle > same).all()


def test_another_reward_can_be_summed() -> None:
    plain, double = evaluator(), evaluator(return_reward_key="double")
    learner = make_learner()
    result = double.evaluate(learner)
    np.testing.assert_allclose(result.returns, 2 * plain.evaluate(learner).returns, atol=1e-6)
    assert result.reward_key == "double"


def test_a_given_engine_is_used_and_gives_the_same() -> None:
    learner = make_learner()
    with RolloutEngine(GoalEnv, learner.policy) as engine:
        shared = evaluator(deterministic=False).evaluate(learner, engine=engine)
    np.testing.assert_array_equal(shared.returns, evaluator(deterministic=False).evaluate(learner).returns)


@pytest.mark.parametrize("train_goal", [2.5, [2.5], np.array([2.5])])
def test_overlap_names_the_task(train_goal: Any) -> None:
    learner = make_learner()
    learner.train_tasks = [{"goal": np.array([9.0])}, {"goal": np.atleast_1d(train_goal)}]
    with pytest.raises(TaskOverlapError, match=r"test task 1 is training task 1: .*2\.5"):
        evaluator().evaluate(learner)
    evaluator(allow_overlap=True).evaluate(learner)
    learner.train_tasks = [{"goal": np.array([np.nextafter(2.5, 3)])}]  # compared exactly
    evaluator().evaluate(learner)


def test_names_of_constructors_are_no_tasks() -> None:
    # Both lambdas are called "<lambda>"; which environment they make cannot be told from that.
    checked = MetaEvaluator(test_task_sampler=FixedTaskSampler([NewEnvUpdate(lambda: GoalEnv())]))
    learner = make_learner()
    learner.train_tasks = [NewEnvUpdate(lambda: GoalEnv()).task]
    assert len(checked.prepare(learner)) == 1


def test_tasks_are_drawn_once_and_kept_over_a_resume(tmp_path: Any) -> None:
    checked = MetaEvaluator(
        test_task_sampler=SetTaskSampler(GoalEnv, generator=1), n_test_tasks=2, n_exploration_traj=1
    )
    learner = make_learner()
    first = checked.evaluate(learner)
    assert checked.evaluate(learner).tasks == first.tasks
    save_tree(tmp_path, "evaluator", checked.state_dict())
    other = MetaEvaluator(test_task_sampler=SetTaskSampler(GoalEnv, generator=2), n_exploration_traj=1)
    other.load_state_dict(load_tree(tmp_path, "evaluator"))
    again = other.evaluate(learner)
    np.testing.assert_array_equal(again.returns, first.returns)
    assert again.metrics["MetaTest/Average/Iteration"] == 2
    fixed = MetaEvaluator(test_task_sampler=FixedTaskSampler([NewEnvUpdate(GoalEnv)] * 2))
    with pytest.raises(SnapshotError, match="test task 0 of test_task_sampler is 'GoalEnv', in the snapshot it is"):
        fixed.load_state_dict(load_tree(tmp_path, "evaluator"))


def test_it_survives_pickling() -> None:
    """specs/meta.md 5.5"""
    checked = evaluator()
    result = checked.evaluate(make_learner())
    copied = pickle.loads(pickle.dumps(checked))
    checked.close()
    np.testing.assert_array_equal(copied.evaluate(make_learner()).returns, result.returns)


def test_to_dict_has_what_summaries_need() -> None:
    values = evaluator().evaluate(make_learner()).to_dict()
    assert values["return_before"] == pytest.approx(-8.0)
    assert values["return_after_interval"] == [0.0, 0.0]
    assert values["change_ci_low"] < values["change"] < values["change_ci_high"]
    curve = values["adaptation_curve"]
    assert curve["episode"] == [1, 2, 3]
    assert all(low <= mean <= high for low, mean, high in zip(curve["low"], curve["mean"], curve["high"], strict=True))
    assert values["n_test_tasks"] == 3
    assert values["n_exploration_episodes"] == 2
    assert values["tasks"] == [{"goal": [1.5]}, {"goal": [2.5]}, {"goal": [4.0]}]


def test_garages_worker_arguments() -> None:
    """specs/meta.md 4.1: PEARL's evaluator is built with PEARLWorker"""
    checked = evaluator(worker_class=PEARLWorker, worker_args={"deterministic": False, "accum_context": True})
    assert checked.deterministic is False
    assert evaluator(worker_class=DefaultWorker).deterministic is True


MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"n_exploration_traj": 0}, ValueError, "n_exploration_traj"),
    ({"posterior_sampling": True, "num_prior_episodes": 3}, ValueError, "num_prior_episodes .* n_exploration_traj=2"),
    ({"adaptation_rounds": 3}, ValueError, "adaptation_rounds .* n_exploration_traj=2"),
    ({"episodes_per_round": 4}, ValueError, "episodes_per_round"),
    ({"adaptation_rounds": 2, "episodes_per_round": 2}, ValueError, "n_exploration_traj must be .* = 4"),
    ({"adaptation_rounds": 2, "posterior_sampling": True}, ValueError, "posterior_sampling .* switch it off"),
    ({"worker_class": int}, TypeError, "worker_class .* DefaultWorker or PEARLWorker"),
    ({"worker_args": {"noise": 1}}, TypeError, "got also noise"),
]


@pytest.mark.parametrize(("arguments", "error", "argument"), MISTAKES)
def test_mistakes(arguments: dict[str, Any], error: type[Exception], argument: str) -> None:
    with pytest.raises(error, match=argument):
        evaluator(**arguments)


def test_missing_parts() -> None:
    with pytest.raises(ValueError, match="test_task_sampler is missing"):
        MetaEvaluator().evaluate(make_learner())
    with pytest.raises(ValueError, match="max_path_length is missing"):
        evaluator().run_reference(GuessPolicy())
    with pytest.raises(ValueError, match="n_test_tasks"):
        MetaEvaluator(test_task_sampler=SetTaskSampler(GoalEnv)).evaluate(make_learner())
    with pytest.raises(ValueError, match="must name all 3 test tasks, got 1 names"):
        evaluator(test_task_names=["one"]).evaluate(make_learner())


def test_documented_keywords_are_numbers_of_a_config() -> None:
    """specs/meta.md 5.5: names and defaults of garage; a product of rounds is known at once."""
    usual = inspect.signature(MetaEvaluator).parameters
    assert [*usual][:9] == [
        *("test_task_sampler", "max_path_length", "n_exploration_traj", "n_test_tasks", "n_test_rollouts", "prefix"),
        *("test_task_names", "worker_class", "worker_args"),
    ]
    assert (usual["n_exploration_traj"].default, usual["prefix"].default) == (10, "MetaTest")
    checked = MetaEvaluator(
        max_path_length=3, n_test_tasks=2, n_test_rollouts=4, adaptation_rounds=2, episodes_per_round=3
    )
    assert checked.config == MetaEvaluationConfig(num_episodes=4, adaptation_rounds=2, episodes_per_round=3)
    assert (checked.max_path_length, checked.n_test_tasks, checked.n_test_rollouts) == (3, 2, 4)
    assert (checked.n_exploration_traj, checked.config.num_adaptation_episodes) == (6, 6)


def test_evaluators_take_configs_and_keywords() -> None:
    given = MetaEvaluationConfig(num_episodes=4)
    own = meta_evaluator.MetaEvaluator(given, num_adaptation_episodes=3, max_steps=7, num_test_tasks=2)
    assert (own.config, own.max_steps, own.num_test_tasks) == (
        dataclasses.replace(given, num_adaptation_episodes=3),
        *(7, 2),
    )
    assert meta_evaluator.MetaEvaluator(given).config is given
    assert PolicyEvaluator(EvaluationConfig(deterministic=False), num_episodes=3).config == EvaluationConfig(
        deterministic=False, num_episodes=3
    )
    assert PolicyEvaluator(n_eval_episodes=3).config.num_episodes == 3
    assert meta_evaluator.MetaEvaluator(n_exploration_eps=3).num_adaptation_episodes == 3


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        (PolicyEvaluator, "num_episods", "num_episodes"),
        (PolicyEvaluator, "num_test_task", "num_test_tasks"),
        (meta_evaluator.MetaEvaluator, "test_task_sampler_", "test_task_sampler"),
        (meta_evaluator.MetaEvaluator, "repetition", "repetitions"),
    ],
)
def test_unknown_keywords_of_evaluators_are_answered(kind: Any, name: str, meant: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown option '{name}'; did you mean {meant}="):
        kind(**{name: 3})


def test_exploration_episodes_follow_rounds_unless_they_are_given() -> None:
    rounds = {"adaptation_rounds": 3, "episodes_per_round": 2}
    for number in (10, 11):  # whether it is the default or not
        for make in (MetaEvaluationConfig, MetaEvaluator, meta_evaluator.MetaEvaluator):
            with pytest.raises(ValueError, match=f"^num_adaptation_episodes must be .* = 6, or left out, got {number}"):
                make(num_adaptation_episodes=number, **rounds)
    checked = MetaEvaluator(**rounds)
    checked.episodes_per_round = 4
    assert checked.config.num_adaptation_episodes == checked.n_exploration_traj == 12
    for name in ("n_exploration_traj", "num_adaptation_episodes"):
        with pytest.raises(ValueError, match=f"^{name} must be .* = 12"):
            setattr(checked, name, 10)
        fresh = MetaEvaluator()
        setattr(fresh, name, 5)
        assert fresh.n_exploration_traj == fresh.config.num_adaptation_episodes == 5


def test_attributes_of_evaluators_are_checked_by_all_their_names() -> None:
    checked = MetaEvaluator(max_path_length=9)
    for name, field in (("max_path_length", "max_steps"), ("n_test_tasks", "num_test_tasks")):
        for other in (name, field):
            setattr(checked, other, 4)
            assert getattr(checked, name) == getattr(checked, field) == 4
            with pytest.raises(ValueError, match=f"^{other} must be an integer of at least 1"):
                setattr(checked, other, 0)
            with pytest.raises(ValueError, match=f"^{other} must be an integer of at least 1"):
                MetaEvaluator(**{other: 0})
    with pytest.raises(ValueError, match=r"^num_episodes must"):
        PolicyEvaluator().num_episodes = 0


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("max_steps", math.nan, ValueError),
        ("max_steps", 2.5, ValueError),
        ("prefix", 3, TypeError),
        ("allow_overlap", 3, TypeError),
        ("max_steps", 0, ValueError),
        ("max_steps", "7", TypeError),
        ("seed", "a", TypeError),
        ("seed", -1, ValueError),
        ("num_test_tasks", 0, ValueError),
    ],
)
def test_values_of_evaluators_are_checked_where_they_are_given(name: str, value: Any, error: type[Exception]) -> None:
    for kind in (PolicyEvaluator, meta_evaluator.MetaEvaluator):
        with pytest.raises(error, match=f"^{name} must be"):
            kind(**{name: value})
    assert PolicyEvaluator(max_steps=math.inf).max_steps == math.inf
