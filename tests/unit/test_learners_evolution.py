"""Seed 001's CEM, CMAES and NOP, and other searches over policies: epochs by hand, runs, resume, names, bad input."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

import metaroll
from metaroll.compat.constructors import CEM, CMAES
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import InvalidValueError, ShapeError, SnapshotError
from metaroll.functional.search.averaging import AveragedMean
from metaroll.functional.search.base import Search
from metaroll.functional.search.finite_differences import ARS
from metaroll.functional.search.multi_start import MultiStart, Starts
from metaroll.lab.display.sizes import size_text
from metaroll.learners.base import NOP
from metaroll.learners.evolution import Evolution, SearchLearner
from metaroll.learners.trials import Trials
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.policies.playback import IdlePolicy
from metaroll.seeding import torch_generator
from metaroll.training.algorithms.registry import get_algorithm
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.run.runner import LocalRunner
from metaroll.training.session.experiments import build, resolve
from metaroll.types import EnvSpec

pytestmark = pytest.mark.usefixtures("lent_pools")

CART = EnvSpec.from_env(gymnasium.make("CartPole-v1"))
PENDULUM = EnvSpec.from_env(gymnasium.make("Pendulum-v1"))
ONCE = Trials(rollouts_per_candidate=1)
AVERAGED = Trials(rollouts_per_candidate=1, mean_epochs=3)
THREE = Starts(starts=3, round_length=1)


def policy_of(spec: EnvSpec = CART) -> Any:
    generator = torch_generator(0)
    if spec is CART:
        return CategoricalMLPPolicy(spec, (), generator=generator)
    return GaussianMLPPolicy(spec, (), learn_std=False, generator=generator)


def cem_of(spec: EnvSpec = CART, **options: Any) -> CEM:
    return CEM(spec, policy_of(spec), None, **{"n_samples": 4, "best_frac": 0.5, "seed": 1, **options})


def cmaes_of(spec: EnvSpec = CART, **options: Any) -> CMAES:
    return CMAES(spec, policy_of(spec), None, **{"n_samples": 6, "seed": 1, **options})


def evolution_of(search: Search[Any], spec: EnvSpec = CART, **options: Any) -> Evolution:
    return Evolution(
        spec, search, policy=policy_of(spec), **{"trials": ONCE, "seed": 1, "max_path_length": 30, **options}
    )


def path_with(score: float) -> dict[str, Any]:
    return {"rewards": np.array([score / 2, score / 2]), "observations": np.zeros((2, 4))}


def rollout_with(score: float) -> StepSequence:
    return StepSequence(rewards=np.array([score]), observations=np.zeros((2, 1)), actions=np.zeros((1, 1)))


# ---------------------------------------------------------------------------------------------------------- by hand
def test_an_epoch_of_cem_is_one_call_for_each_candidate():
    """specs/meta.md 2.2: scores, the returned values, the mean of the n_best ones, which the policy holds."""
    policy = policy_of()
    learner = CEM(CART, policy, None, 4, best_frac=0.5, init_std=0.5, extra_std=2.0, extra_decay_time=4, seed=3)
    start = policy.get_param_values()
    assert (learner.n_best, learner.discount, learner.max_path_length) == (2, 0.99, 500)
    for epoch in range(3):
        sets = learner.ask()
        assert sets.shape == (4, len(start)) and sets.dtype == np.float32
        if not epoch:
            assert np.array_equal(sets[0], start)  # the policy as it is, first
        scores = [3.0, 9.0, 5.0, 1.0]
        found = [learner.train_once(4 * epoch + i, [path_with(score)] * 2) for i, score in enumerate(scores)]
        assert found == [3.0, 9.0, 5.0, 9.0]  # at the end of the epoch that of the best candidate
        assert learner.cur_mean == pytest.approx(sets[[1, 2]].mean(axis=0), rel=1e-5)
        assert learner.cur_std == pytest.approx(sets[[1, 2]].std(axis=0), rel=1e-5, abs=1e-6)
        assert np.array_equal(policy.get_param_values(), learner.cur_mean.astype(np.float32))
        assert np.array_equal(learner.policy.acting_parameters(), policy.get_param_values())
    assert learner.num_epochs == 3 and learner.best_return == 9.0
    # The extra variance fades in epochs, not in candidates: 2^2 (1 - 3 / 4) after three of four epochs.
    variance = np.square(learner.cur_std).mean()
    assert learner.spread == pytest.approx(np.sqrt(variance + 1.0))


def test_an_epoch_of_cmaes_moves_the_policy_to_the_mean():
    """specs/meta.md 2.3"""
    learner = cmaes_of(sigma0=0.5)
    sets = learner.ask()
    found = [learner.train_once(i, [rollout_with(float(i))]) for i in range(6)]
    assert found == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert np.array_equal(learner.policy.acting_parameters(), learner.cur_mean.astype(np.float32))
    toward = (sets - sets.mean(axis=0)) @ (learner.cur_mean - sets.mean(axis=0))
    assert toward[5] > toward[0]
    assert np.array_equal(learner.best_parameters, sets[5]) and learner.best_return == 5.0
    assert learner.stop_reasons == () and not learner.converged


def test_what_acts_may_be_the_average_of_the_last_means():
    learner, plain = cem_of(trials=AVERAGED), cem_of(trials=ONCE)
    assert learner.fingerprint() != plain.fingerprint()
    means = []
    for _ in range(3):
        for each in (learner, plain):
            each.ask()
            each.tell([[path_with(score)] for score in (1.0, 4.0, 3.0, 2.0)])
        means.append(plain.cur_mean)
        assert np.array_equal(learner.cur_mean, plain.cur_mean) and np.array_equal(learner.cur_std, plain.cur_std)
        assert learner.policy.acting_parameters() == pytest.approx(np.mean(means, axis=0), rel=1e-5)
    before = repr(plain.state_dict())
    with pytest.raises(SnapshotError, match="nothing was changed"):
        plain.load_state_dict(learner.state_dict())
    assert repr(plain.state_dict()) == before


@pytest.mark.parametrize(("restarts", "starts"), [("ipop", None), ("bipop", None), ("ipop", THREE)])
def test_a_search_with_restarts_leaves_the_policy_where_its_best_run_has_ended(restarts, starts):
    """With a return that is highest, 0, at one point; a run that has just begun is anywhere."""
    learner = cmaes_of(restarts=restarts, max_restarts=30, sigma0=1.0, trials=ONCE, starts=starts)
    optimum, found = np.linspace(-1.0, 1.0, len(learner.cur_mean)), []

    def fitness(parameters: np.ndarray) -> float:
        return -float(np.square(parameters - optimum).sum())

    while learner._search.leading(learner._state).generation != 3 or len(found) < 500:  # a run that has just begun
        learner.tell([[path_with(fitness(row))] for row in learner.ask()])
        found.append(fitness(learner.policy.acting_parameters()))
    assert fitness(learner.cur_mean) < -0.1 and found[-1] > -1e-3
    assert min(found[-200:]) > -1e-3 and learner.policy.acting_parameters().std() > 0.1


def test_only_weights_are_searched():
    learner = cem_of(PENDULUM, trials=Trials(normalize_observations=True))
    sets = learner.ask()
    names = [name for name, size in zip(*_names(learner), strict=True) for _ in range(size)]
    searched = {name for name, same in zip(names, (sets == sets[0]).all(axis=0), strict=True) if not same}
    assert searched and not any("log_std" in name or name.startswith("obs_") for name in searched)
    assert {"obs_mean", "obs_scale"} <= set(names)


def _names(learner: SearchLearner) -> tuple[list[str], list[int]]:
    layout = learner.policy.parameter_layout()
    return list(layout.names), [int(np.prod(shape)) for shape in layout.shapes]


def test_a_candidate_without_return_ranks_last_and_is_named(capsys):
    learner = cem_of(best_frac=0.75)
    sets = learner.ask()
    metrics = learner.tell([[path_with(1.0)], [], [path_with(2.0)], [path_with(-50.0)]])
    assert "candidate 1 of epoch 0" in capsys.readouterr().err
    assert learner.cur_mean == pytest.approx(sets[[0, 2, 3]].mean(axis=0), rel=1e-5)
    assert (metrics["candidates_without_return"], metrics["return"], metrics["episodes"]) == (1.0, 2.0, 3.0)
    sets = learner.ask()
    metrics = learner.tell([[path_with(score)] for score in (math.inf, 1.0, math.nan, -math.inf)])
    assert metrics["candidates_without_return"] == 3.0 and learner.best_return == 2.0
    learner.ask()
    with pytest.raises(ValueError, match="all are NaN"):
        learner.tell([[]] * 4)


def test_candidates_are_counted_over_epochs_of_any_size(monkeypatch):
    learner, seen = cmaes_of(restarts="ipop"), []
    monkeypatch.setattr(CMAES, "train_once", lambda self, itr, paths: seen.append(itr))
    learner._state = replace(learner._state, generation=3, evaluations=30)
    learner.tell([[path_with(1.0)] for _ in learner.ask()])
    assert seen == [30, 31, 32, 33, 34, 35]


def test_the_log_has_discounted_returns_of_paths():
    learner = cem_of(n_samples=2, discount=0.5)
    learner.ask()
    assert learner.tell([[path_with(2.0)], [path_with(4.0)]])["discounted_return"] == pytest.approx((1.5 + 3.0) / 2)


def test_of_three_starts_the_best_goes_on():
    learner = cem_of(trials=ONCE, starts=Starts(starts=3, round_length=2, reduction=3))
    once = cem_of(trials=ONCE)
    assert learner.fingerprint() != once.fingerprint() == cem_of(trials=ONCE, starts=Starts()).fingerprint()
    sets = learner.ask()
    assert (len(sets), learner.num_candidates) == (12, 12) and np.array_equal(sets[:1], once.ask()[:1])
    scores = np.r_[np.zeros(4), [5.0, 9.0, 7.0, 1.0], np.ones(4)]
    numbers = learner.tell([[path_with(score)] for score in scores])
    assert (numbers["starts"], numbers["leading_start"], numbers["candidates"]) == (3.0, 0.0, 12.0)
    assert learner.cur_mean == pytest.approx(sets[[5, 6]].mean(axis=0), rel=1e-5)
    assert learner.cur_std == pytest.approx(sets[[5, 6]].std(axis=0), rel=1e-4, abs=1e-6)
    assert np.array_equal(learner.policy.acting_parameters(), learner.cur_mean.astype(np.float32))
    learner.ask()
    assert learner.tell([[path_with(score)] for score in scores])["leading_start"] == 1.0
    assert learner.num_candidates == 4
    learner.ask()
    numbers = learner.tell([[path_with(1.0)]] * 4)
    assert (numbers["starts"], numbers["leading_start"], numbers["episodes"]) == (1.0, 1.0, 4.0)
    before = repr(once.state_dict())
    with pytest.raises(SnapshotError, match="nothing was changed"):
        once.load_state_dict(learner.state_dict())
    assert repr(once.state_dict()) == before


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_training_with_one_elite_gives_one_warning(capsys, covariance):
    metaroll.agent("cem", "CartPole-v1", population=4, best_frac=0.25, covariance=covariance, max_steps=5).learn(
        epochs=1
    )
    assert capsys.readouterr().err.count("best candidate has no deviation") == 1


def test_fitness_is_the_mean_of_the_worst_returns():
    learner = cem_of(trials=Trials(epsilon=0.5))
    learner.ask()
    assert learner.train_once(0, [rollout_with(score) for score in (8.0, 2.0, 4.0, 9.0)]) == 3.0


class Recorder:
    """A runner that notes what it is asked for."""

    step_itr, total_env_steps = 0, 0

    def __init__(self) -> None:
        self.asked: list[tuple[str, np.ndarray, dict[str, Any]]] = []

    def sample_parameters(self, sets: np.ndarray, **more: Any) -> list[list[StepSequence]]:
        self.asked.append(("parameters", sets, more))
        return [[rollout_with(float(i))] for i in range(len(sets))]

    def obtain_samples(self, itr: int, **more: Any) -> list[list[StepSequence]]:
        self.asked.append(("samples", more.pop("parameters"), more))
        return [[rollout_with(float(i))] for i in range(len(self.asked[-1][1]))]


def test_how_candidates_are_tried():
    runner: Any = Recorder()
    tasks = [lambda env: env, lambda env: env, lambda env: env]
    cem_of().collect(runner)
    cem_of(trials=Trials(rollouts_per_candidate=3, deterministic=False)).collect(runner)
    groups = cem_of(trials=Trials(rollouts_per_candidate=2, tasks_per_epoch=2), task_sampler=tasks).collect(runner)
    cmaes_of(trials=ONCE, reevaluated=2).collect(runner)
    steps, alike, in_tasks, twice = runner.asked
    # A number of steps that the runner knows; the same initial states for all; the same tasks for all.
    assert (steps[0], steps[2]["num_rollouts"], steps[2]["env_update"]) == ("samples", None, [None] * 4)
    assert (alike[0], alike[2]) == (
        "parameters",
        {"num_domains": 1, "num_init_states_per_domain": 3, "deterministic": False, "fields": ("rewards",)},
    )
    drawn = in_tasks[2]["env_update"]
    assert in_tasks[2]["num_rollouts"] == 2 and drawn[:2] * 4 == drawn and set(drawn) <= set(tasks)
    assert np.array_equal(in_tasks[1][0::2], in_tasks[1][1::2]) and len(in_tasks[1]) == 8
    assert [[each.rewards.sum() for each in group] for group in groups[:2]] == [[0.0, 1.0], [2.0, 3.0]]
    # What is tried twice to measure noise must not meet the same noise.
    assert twice[0] == "samples" and np.array_equal(twice[1][6:], twice[1][:2])


def test_noise_asks_for_more_rollouts():
    learner, runner = cmaes_of(trials=ONCE, reevaluated=3, max_repetitions=2.0), Recorder()
    learner.collect(runner)  # type: ignore[arg-type]
    noise = np.random.default_rng(0).normal(size=9)
    learner.tell([[rollout_with(score)] for score in noise])
    learner.collect(runner)  # type: ignore[arg-type]
    assert [asked[2]["num_rollouts"] for asked in runner.asked] == [1, 2]


def test_nothing_is_optimized():
    """specs/meta.md 2.5"""
    algo = NOP()
    with LocalRunner(seed=0) as runner:
        runner.setup(algo, "CartPole-v1")
        assert runner.train(3, batch_size=10) is None
        assert runner.step_itr == 0
    assert algo.init_opt() is None and algo.optimize_policy([]) is None and not algo.info.has_state


# ------------------------------------------------------------------------------------------------------------ in runs
def runner_of(learner: Any, folder: Any = None) -> LocalRunner:
    evaluator = PolicyEvaluator(num_episodes=1)
    runner = LocalRunner(run_dir=folder, seed=3, evaluator=evaluator)
    runner.setup(learner, "CartPole-v1")
    return runner


def test_candidates_take_batch_size_steps_as_one_batch(monkeypatch):
    """specs/meta.md 2.2 (b)"""
    learner, seen = cem_of(max_path_length=20), []
    once = CEM.train_once
    monkeypatch.setattr(CEM, "train_once", lambda self, itr, paths: seen.append((itr, paths)) or once(self, itr, paths))
    with runner_of(learner) as runner:
        value = runner.train(2, batch_size=30)
        assert runner.step_itr == 2  # one batch for each epoch
        assert np.array_equal(learner.policy.acting_parameters(), learner.cur_mean.astype(np.float32))
        assert runner.total_env_steps == sum(len(path) for _, paths in seen for path in paths)
    assert [itr for itr, _ in seen] == list(range(8))
    for _, paths in seen:
        lengths = [len(path) for path in paths]
        assert sum(lengths) >= 30 > sum(lengths[:-1])  # whole rollouts
        assert all(path.terminated[-1] or path.truncated[-1] for path in paths)
    assert value == max(np.mean([path.rewards.sum() for path in paths]) for _, paths in seen[4:])


class Breaks(gymnasium.Env):
    """One step, whose reward is NaN for actions above 0."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action):
        reward = np.nan if action[0] > 0.0 else -abs(float(action[0]) + 0.5)
        return np.ones(1, np.float32), reward, True, False, {}


@pytest.mark.parametrize(("rollouts", "alike"), [(2, True), (2, False), (None, True)])
def test_candidates_that_break_the_environment_rank_last(capsys, rollouts, alike):
    """Issue 16, bad input: that candidate ranks last, named in the log; the run goes on."""
    spec = EnvSpec.from_env(Breaks())
    policy = GaussianMLPPolicy(spec, (), learn_std=False, generator=torch_generator(0))
    trials = Trials(rollouts_per_candidate=rollouts, common_random_numbers=alike)
    learner = CEM(spec, policy, None, 8, best_frac=0.25, max_path_length=1, trials=trials, seed=0)
    runner = LocalRunner(seed=0)
    runner.setup(learner, Breaks)
    with runner:
        runner.train(6, batch_size=2)
    assert "of epoch 0 has no finite return" in capsys.readouterr().err
    assert learner.best_return > -0.3
    assert np.isfinite(learner.policy.acting_parameters()).all()


def test_where_all_candidates_break_the_environment_the_error_is_its_own():
    class AlwaysBreaks(Breaks):
        def step(self, action):
            return np.ones(1, np.float32), np.nan, True, False, {}

    spec = EnvSpec.from_env(AlwaysBreaks())
    policy = GaussianMLPPolicy(spec, (), learn_std=False, generator=torch_generator(0))
    runner = LocalRunner(seed=0)
    runner.setup(CMAES(spec, policy, None, 4, max_path_length=1, trials=ONCE, seed=0), AlwaysBreaks)
    with pytest.raises(InvalidValueError, match="reward is not finite"), runner:
        runner.train(1)


def test_observations_are_normalized_by_those_before():
    trials = Trials(rollouts_per_candidate=1, normalize_observations=True)
    with runner_of(evolution_of(ARS(num_directions=2), trials=trials)) as runner:
        runner.train(2)
        learner, steps = runner._source.algo, runner.total_env_steps
        moments = learner.state_dict()["moments"]
        assert moments["num_rows"] == steps
        scale = 1.0 / np.sqrt(moments["squares"] / steps)
        assert learner.policy.obs_mean.numpy() == pytest.approx(moments["mean"], rel=1e-5)
        assert learner.policy.obs_scale.numpy() == pytest.approx(scale, rel=1e-4)
        kept = [name for name in _names(learner)[0] if name.startswith("obs_")]
        assert kept == ["obs_mean", "obs_scale"]


def test_a_search_that_reaches_its_target_ends():
    """specs/meta.md 2.3: it learns"""
    learner = cmaes_of(trials=ONCE, max_path_length=200, sigma0=0.5, target=190.0, n_samples=12)
    with runner_of(learner) as runner:
        runner.train(40)
        assert learner.stop_reasons == ("target",) and learner.num_epochs < 40
        assert runner.evaluate(learner) > 60.0


# ------------------------------------------------------------------------------------------------------------- by name


# ----------------------------------------------------------------------------------------------------------- bad input


def test_a_state_within_an_epoch_goes_on_there():
    learners = cem_of(), cem_of(seed=5)
    sets = learners[0].ask()
    learners[0].train_once(0, [rollout_with(2.0)])
    learners[1].load_state_dict(learners[0].state_dict())
    for learner in learners:
        assert [learner.train_once(i, [rollout_with(float(i))]) for i in (1, 2, 3)] == [1.0, 2.0, 3.0]
    assert np.array_equal(learners[0].cur_mean, learners[1].cur_mean)
    assert learners[1].cur_mean == pytest.approx((sets[0] + sets[3]) / 2, rel=1e-5)


def policy_that_learns_nothing() -> Any:
    policy = policy_of()
    for parameter in policy.parameters():
        parameter.requires_grad_(False)
    return policy


MISTAKES: list[tuple[Any, type[Exception], str]] = [
    (lambda: cem_of(best_frac=0.1), ValueError, "best_frac"),
    (lambda: cem_of(task_sampler=[]), ValueError, "task_sampler"),
    (lambda: cem_of(starts=2), TypeError, "starts"),
    (lambda: cem_of(trials=3), TypeError, "trials"),
    (lambda: cmaes_of(n_samples=1), ValueError, "n_samples"),
    (lambda: cmaes_of(lower=5.0, upper=6.0), ValueError, "hold the mean"),
    (lambda: CMAES(CART, policy_that_learns_nothing(), None, 4), ValueError, "CategoricalMLPPolicy has none"),
    (lambda: CEM(CART, IdlePolicy(CART), None, 40), TypeError, "must have parameters.* got IdlePolicy"),
    (lambda: evolution_of("ars"), TypeError, "search"),  # type: ignore[arg-type]
    (lambda: AveragedMean(search="ars", window=2), TypeError, "search"),  # type: ignore[arg-type]
    (lambda: MultiStart(search=ARS(), rules=3), TypeError, "search and rules"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "error", "argument"), MISTAKES)
def test_mistakes(make, error, argument):
    with pytest.raises(error, match=argument):
        make()


def test_calls_in_the_wrong_order_are_named():
    learner = cem_of()
    for told in (lambda: learner.train_once(0, [path_with(1.0)]), lambda: learner.tell([[path_with(1.0)]] * 4)):
        with pytest.raises(ValueError, match="call ask"):
            told()
    learner.ask()
    with pytest.raises(ShapeError, match="4 candidates"):
        learner.tell([[path_with(1.0)]])


def test_a_run_of_several_starts_tells_the_steps_of_all():
    config = resolve("cem", "CartPole-v1", [("a test", {"starts": 4, "n_samples": 6, "round_length": 2})])
    told = size_text(config, EnvSource.of("CartPole-v1"))
    assert " for the starts that are given up" in told and "initial" not in told


@pytest.mark.parametrize(
    ("algo", "given", "words"),
    [
        ("es", {"population": 2, "starts": 2, "round_length": 3}, "2 starts of which one is left after 3 epochs"),
        ("ars", {"num_directions": 2, "num_best": 2}, "4 parameter vectors per epoch"),
    ],
)
def test_an_epoch_in_a_few_words(algo, given, words):
    config = resolve(algo, "CartPole-v1", [("a test", given)])
    with contextlib.closing((experiment := build(config)).runner):
        assert words in get_algorithm(algo).amount(experiment.algo, config["algorithm"])
