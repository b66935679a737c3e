"""Hill climbing in policy parameters (specs/sampling.md 18.1): steps by hand, runs, resume, bad input."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest

from metaroll.data.step_sequence import StepSequence
from metaroll.errors import SnapshotError
from metaroll.functional.parameter_noise import adapted_spread, noisy_sets
from metaroll.functional.search.base import default_population
from metaroll.lab.cli.main import main
from metaroll.learners.evolution import HillClimbing
from metaroll.policies.gaussian import CategoricalMLPPolicy, GaussianMLPPolicy
from metaroll.rollouts.samplers.parameter_exploration import ParameterExplorationSampler
from metaroll.seeding import torch_generator
from metaroll.training.evaluation.evaluator import PolicyEvaluator
from metaroll.training.run.runner import LocalRunner
from metaroll.training.store.metrics_log import read_metrics
from metaroll.types import EnvSpec

pytestmark = pytest.mark.usefixtures("lent_pools")

CART = EnvSpec.from_env(gymnasium.make("CartPole-v1"))
PENDULUM = EnvSpec.from_env(gymnasium.make("Pendulum-v1"))


def learner_of(spec: EnvSpec = CART, **options: Any) -> HillClimbing:
    generator = torch_generator(0)
    if spec is CART:
        policy: Any = CategoricalMLPPolicy(spec, (), generator=generator)
    else:
        policy = GaussianMLPPolicy(spec, (), learn_std=False, generator=generator)
    return HillClimbing(spec, policy=policy, **{"seed": 1, "evaluate_every": 0, **options})


def returned(*scores: float) -> list[list[Any]]:
    """One rollout per set that returns its score."""
    return [[rollout_with(score)] for score in scores]


def rollout_with(score: float) -> StepSequence:
    return StepSequence(rewards=np.array([score]), observations=np.zeros((2, 1)), actions=np.zeros((1, 1)))


def test_the_population_grows_with_the_logarithm():
    assert [default_population(n) for n in (1, 10, 100)] == [4, 10, 17]  # 4 + int(3 ln P)
    assert learner_of().pop_size == 4 + int(3 * np.log(10))  # 4 x 2 weights and 2 biases


def test_sets_lie_on_the_sphere_or_spread_by_the_deviation():
    mean = np.arange(40.0)
    sphere = noisy_sets(mean, 0.5, 9, "sphere", 0) - mean
    assert sphere.shape == (9, 40)
    assert np.linalg.norm(sphere, axis=1) == pytest.approx(0.5, abs=1e-5)
    normal = noisy_sets(mean, 0.5, 4000, "normal", 0) - mean
    assert normal.std() == pytest.approx(0.5, rel=0.01)
    assert abs(normal.mean()) < 0.01


def test_the_spread_shrinks_after_a_success_and_grows_otherwise():
    assert adapted_spread(1.0, True, 2.0, (0.01, 9.0), "normal", 0.5) == 0.25
    assert adapted_spread(1.0, False, 2.0, (0.01, 9.0), "normal", 0.5) == 2.0
    assert adapted_spread(1.0, True, 2.0, (0.5, 9.0), "normal", 0.7) == 0.5
    assert adapted_spread(1.0, True, 2.0, (0.5, 9.0), "sphere", 0.7) == 0.7  # begins anew
    assert adapted_spread(1.0, False, 2.0, (0.5, 1.5), "sphere", 0.7) == 0.7


def test_it_moves_to_the_best_set_only_if_that_beats_the_mean():
    learner = learner_of(population=2, init_sigma=0.5, sigma_factor=2.0)
    sets = learner.ask()
    start = learner.policy.acting_parameters()
    assert np.array_equal(sets[0], start)
    found = learner.tell(returned(3.0, 3.0, 1.0))
    assert np.array_equal(learner.policy.acting_parameters(), start)
    assert (found["improved"], found["spread"], learner.spread) == (0.0, 0.5, 1.0)
    sets = learner.ask()
    found = learner.tell(returned(3.0, 2.0, 5.0))
    assert np.array_equal(learner.policy.acting_parameters(), sets[2])
    assert (found["improved"], found["best_return"], learner.spread) == (1.0, 5.0, 0.25)
    assert (found["return"], found["score_best_of_epoch"], found["score_median_of_epoch"]) == (3.0, 5.0, 3.0)
    learner.ask()
    learner.tell(returned(4.0, 2.0, 3.0))
    assert learner.best_return == 5.0
    assert np.array_equal(learner.best_parameters, sets[2])


def test_it_ends_when_the_returns_of_the_mean_are_alike():
    learner = learner_of(population=1, stop_std=0.1, stop_window=3)
    for score, converged in ((1.0, False), (5.0, False), (5.0, False), (5.1, True), (6.0, False)):
        learner.ask()
        learner.tell(returned(score, 0.0))
        assert learner.converged == converged


def test_sets_may_be_told_one_by_one():
    learner = learner_of(population=1, stop_std=0.1, stop_window=2)
    for score, converged in ((5.0, False), (5.1, True)):
        learner.ask()
        learner.train_once(0, [rollout_with(score)])
        learner.train_once(1, [rollout_with(0.0)])
        assert learner.converged == converged


def runner_of(folder: Any = None, **options: Any) -> LocalRunner:
    learner = learner_of(**{"evaluate_every": 2, "max_path_length": 60, **options})
    runner = LocalRunner(run_dir=folder, seed=3, evaluator=PolicyEvaluator(num_episodes=2))
    runner.setup(learner, "CartPole-v1")
    return runner


def test_it_learns_to_balance():
    with runner_of(max_path_length=200, evaluate_every=0) as runner:
        runner.train(12)
        assert runner.evaluate(runner._source.algo) > 150.0


def test_it_can_be_driven_by_hand():
    learner = learner_of(population=2)
    with ParameterExplorationSampler("CartPole-v1", learner.policy, 2, 1, 1, seed=0, max_steps=20) as sampler:
        result = sampler.sample(learner.ask(), eval=True)
        found = learner.tell([sample.rollouts for sample in result])
    assert found["episodes"] == 6.0
    assert found["score"] == pytest.approx(result[0].mean_undiscounted_return)


def test_the_command_trains_in_random_domains(tmp_path, capsys):
    run = str(tmp_path / "run")
    options = ["--epochs", "2", "--pop-size", "2", "--max-steps", "20", "--evaluate-every", "0"]
    options += ["--randomize", "default", "--num-domains", "3", "--num-init-states-per-domain", "2"]
    options += ["--num-test-tasks", "3", "--num-episodes", "2", "--torch-threads", "1"]
    assert main(["train", "hill-climbing", "qcp-st", *options, "--out", run, "--json", "--quiet"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert np.shape(summary["returns"]) == (3, 2)
    episodes = [row["value"] for row in read_metrics(run, phase="train", metric="episodes")]
    assert episodes == [3 * 6.0] * 2  # three sets in three domains with two initial states each
    assert main(["resume", run, "--epochs", "3", "--quiet"]) == 0
    assert main(["train", "hill-climbing", "point-robot", "--out", run + "2"]) == 2
    assert "the family of tasks 'point-robot'" in capsys.readouterr().err


def test_a_run_that_ends_early_is_listed_as_finished(tmp_path, capsys):
    run = str(tmp_path / "run")
    options = ["--epochs", "6", "--pop-size", "1", "--max-steps", "5", "--evaluate-every", "0"]
    options += ["--num-episodes", "2", "--stop-window", "3", "--stop-std", "1.0"]  # all returns are 5
    assert main(["train", "hill-climbing", "CartPole-v1", *options, "--out", run, "--json", "--quiet"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["epochs"], summary["ended_early"]) == (3, True)
    for more in ([], ["--epochs", "9"]):  # nothing is left to do, with more epochs neither
        assert main(["resume", run, *more, "--quiet"]) == 0
        capsys.readouterr()
        assert main(["list", "runs", "--runs", str(tmp_path), "--json"]) == 0
        (entry,) = json.loads(capsys.readouterr().out)["runs"]
        assert (entry["state"], entry["ended_early"], entry["epochs_done"]) == ("finished", True, 3)


def former_state() -> dict[str, Any]:
    """As version 0.2 has written it."""
    parameters = np.arange(10, dtype=np.float32)
    return {
        "mean": parameters,
        "best": {"parameters": 2.0 * parameters, "return": 7.0},
        "spread": 0.25,
        "returns": [5.0, 5.1],
        "generator": np.random.default_rng(8).bit_generator.state,
        "counters": {"seed": 4, "epochs": 3},
    }


def test_a_state_of_an_earlier_version_is_read():
    learner, former = learner_of(population=2, stop_std=0.1, stop_window=2), former_state()
    learner.ask()
    learner.load_state_dict(former)
    assert (learner.num_epochs, learner.seed, learner.spread, learner.best_return) == (3, 4, 0.25, 7.0)
    assert np.array_equal(learner.policy.acting_parameters(), former["mean"])
    assert np.array_equal(learner.best_parameters, former["best"]["parameters"])
    assert learner.converged
    again = learner_of(population=2)
    again.load_state_dict(learner.state_dict())
    sets = learner.ask()
    assert np.array_equal(sets[1:], noisy_sets(former["mean"].astype(float), 0.25, 2, "normal", 8))
    assert np.array_equal(again.ask(), sets)


def test_a_state_that_does_not_fit_changes_nothing():
    learner = learner_of(population=2)
    asked, before = learner.ask(), learner.state_dict()
    state = learner.state_dict()
    state["search"]["mean"] += 1.0
    state["search"]["best"] = np.zeros(3)
    former = {**former_state(), "best": {"parameters": np.zeros(3), "return": 1.0}}
    for tree in (state, former):
        with pytest.raises(SnapshotError, match=r"nothing was changed .*shape \(10,\), got \(3,\)"):
            learner.load_state_dict(tree)
        assert repr(learner.state_dict()) == repr(before)
    with pytest.raises(SnapshotError, match=r"lacks.*returns"):
        learner.load_state_dict({name: value for name, value in former.items() if name != "returns"})
    learner.tell(returned(1.0, 2.0, 0.0))
    assert np.array_equal(learner.policy.acting_parameters(), asked[1])


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"pop_size": 0}, "pop_size"),
        ({"min_sigma": 2.0, "max_sigma": 1.0}, r"min_sigma .* max_sigma=1\.0"),
        ({"init_sigma": 5.0}, "init_sigma .* min_sigma=0.01 and max_sigma=2.0"),
    ],
)
def test_mistakes(options, argument):
    with pytest.raises(ValueError, match=argument):
        learner_of(**options)
