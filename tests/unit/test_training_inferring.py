"""From recorded rollouts to a posterior, a page, and policies that are trained on it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import metaroll
from metaroll.cli.main import main
from metaroll.data.recordings import save_rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.posteriors import posterior_family, posterior_name
from metaroll.envs.lookup.registry import get_family, is_varied
from metaroll.envs.sims.catalog import PendulumEnv
from metaroll.errors import DataError, PosteriorError, UnknownNameError
from metaroll.inference.posterior import Posterior
from metaroll.training.evaluation.inference_result import InferenceOptions
from metaroll.training.report.inference_page import write_inference_page
from metaroll.training.session.inferring import infer, usual_prior
from metaroll.training.session.randomization_baselines import AutomaticRandomization, sim_opt
from metaroll.training.session.run_config import default_run_dir

PRIOR = {"pole_mass": (0.5, 1.5), "pole_length": (0.5, 1.5)}
TRUE = {"pole_mass": 0.8, "pole_length": 1.2}


def recordings(count: int = 3, steps: int = 60) -> list:
    """Rollouts of a pendulum with other parameters, under random torques."""
    robot = PendulumEnv(domain_param=TRUE, max_steps=steps)
    policy = metaroll.DummyPolicy(metaroll.EnvSpec.from_env(robot))
    return [metaroll.rollout(robot, policy, seed=0, sub_seed=i) for i in range(count)]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inference")
    options = InferenceOptions(num_simulations=150, rounds=1, segment_length=20)
    return infer("pend", recordings(), PRIOR, folder, options)


def test_the_data_tells_the_parameters_and_predictions_follow(found) -> None:
    rows = {row["name"]: row for row in found.rows()}
    assert rows["pole_length"]["identified"]
    assert rows["pole_length"]["low"] < TRUE["pole_length"] < rows["pole_length"]["high"]
    errors = found.errors()
    assert errors["posterior"] < errors["nominal"]
    held_out, seen = found.traces
    assert held_out.held_out and not seen.held_out
    assert held_out.recorded.shape == (60, 2) and held_out.simulated.shape == (100, 60, 2)
    np.testing.assert_array_equal(held_out.simulated[:, 20], np.broadcast_to(held_out.recorded[20], (100, 2)))
    assert json.loads((found.folder / "inference.json").read_text())["parameters"][0]["name"] == "pole_mass"


def test_recorded_observations_are_enough(found, tmp_path) -> None:
    rollouts = [
        StepSequence(rewards=seen.rewards, observations=seen.observations, actions=seen.actions)
        for seen in recordings()
    ]
    options = InferenceOptions(num_simulations=60, rounds=1, segment_length=20, checks=False)
    again = infer("pend", rollouts, PRIOR, tmp_path, options)
    assert again.posterior.names == found.posterior.names
    assert again.traces[0].labels == PendulumEnv().model.observation_labels


def test_the_page_shows_parameters_predictions_and_the_truth(found, tmp_path) -> None:
    page = write_inference_page(found, tmp_path / "report.html", TRUE).read_text()
    for text in ("pole_length", "true", "held-out rollout", "Aligned by dynamic time warping", "Pairs of parameters"):
        assert text in page
    assert "<script" not in page
    assert found.checks["lines"] and all(name in page for name in ("Checks", "calibration"))


def test_a_posterior_is_a_family_of_tasks(found, tmp_path) -> None:
    name = posterior_name("pend", found.folder)
    assert is_varied(name) and get_family(name) is posterior_family(name)
    train, test = get_family(name).split(30, 10, seed=0)
    draws = {tuple(row) for row in found.posterior.draws.tolist()}
    values = [tuple(update.task.values()) for update in (*train, *test)]
    assert set(values) <= draws and len(set(values)) == 40
    agent = metaroll.agent("ppo", "pend", tasks=found.folder, epochs=1, max_path_length=30, steps_per_epoch=60)
    assert len(agent.test_tasks) == 20 and tuple(agent.test_tasks[0].task) == found.posterior.names
    assert default_run_dir("ppo", name, 0).name == f"ppo-pend-{found.folder.name}-0"
    pearl = metaroll.agent("pearl", "pend", tasks=found.folder, num_train_tasks=3, num_test_tasks=2)
    assert len(pearl.train_tasks) == 3


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("pend@", UnknownNameError, "SIM@FOLDER"),
        ("pend@nowhere", PosteriorError, "nowhere holds no posterior"),
    ],
)
def test_families_that_are_none(name: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        get_family(name)


def test_a_posterior_of_other_parameters_is_refused(tmp_path) -> None:
    draws = np.random.default_rng(0).uniform(0.5, 1.5, (50, 1))
    Posterior({"blade_mass": (0.0, 2.0)}, draws=draws).save(tmp_path / "other")
    with pytest.raises(DataError, match="blade_mass"):
        metaroll.agent("ppo", "pend", tasks=tmp_path / "other")


def test_the_command_infers_and_says_what_comes_next(tmp_path, capsys) -> None:
    save_rollouts(recordings(), tmp_path / "log")
    command = ["infer", "pend", "--data", str(tmp_path / "log"), "--out", str(tmp_path / "run"), "--rounds", "1"]
    command += ["--num-simulations", "60", "--param", "pole_mass=0.5:1.5", "--no-checks", "--json"]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in told["parameters"]] == ["pole_mass"]
    assert (tmp_path / "run" / "report.html").is_file() and (tmp_path / "run" / "posterior" / "draws.npz").is_file()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["pend"], "--data FOLDER is missing"),
        (["pend", "--data", "nowhere"], "nowhere"),
        (["pend", "--data", "LOG", "--param", "pole_mas=1:2"], "pole_mass"),
        (["pend", "--data", "LOG", "--param", "pole_mass=2:1"], "LOW < HIGH"),
        (["pend", "--data", "LOG", "--hold-out", "3"], "hold_out must leave a rollout"),
        (["pend", "--data", "LOG", "--num-simulations", "5"], "num_simulations must be an integer of at least 50"),
        (["Pendulum-v1", "--data", "LOG"], "no usual ranges"),
        (["pendd", "--data", "LOG"], "unknown environment 'pendd'"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(arguments, text, tmp_path, capsys) -> None:
    save_rollouts(recordings(), tmp_path / "LOG")
    shown = [str(tmp_path / "LOG") if argument == "LOG" else argument for argument in arguments]
    assert main(["infer", *shown, "--out", str(tmp_path / "run")]) == 2
    assert text in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_usual_ranges_are_half_to_one_and_a_half_times_of_the_values() -> None:
    prior = usual_prior("pend")
    nominal = PendulumEnv().model.nominal
    np.testing.assert_allclose(prior.low, [0.5 * nominal[name] for name in prior.names])


def test_simopt_moves_to_the_parameters_of_the_recordings() -> None:
    def simulate(thetas: np.ndarray) -> np.ndarray:
        features = np.stack([thetas[:, 0] + thetas[:, 1], thetas[:, 0] * thetas[:, 1]], axis=1)
        features[thetas[:, 0] > 0.95] = np.nan
        return features

    draws = sim_opt(simulate, np.array([1.1, 0.28]), {"a": (0.0, 1.0), "b": (0.5, 1.0)}, iterations=8, seed=1)
    assert draws.shape == (10_000, 2)
    np.testing.assert_allclose(draws.mean(axis=0), [0.4, 0.7], atol=0.03)
    again = sim_opt(simulate, np.array([1.1, 0.28]), {"a": (0.0, 1.0), "b": (0.5, 1.0)}, iterations=8, seed=1)
    np.testing.assert_array_equal(draws, again)


class _Runner:
    """What the callback sees of a runner."""

    def __init__(self) -> None:
        self.algo = self
        self.task_sampler = metaroll.DomainRandomizer(metaroll.UniformDomainParam("pole_mass", 1.0, 1e-3))
        self.policy = metaroll.IdlePolicy(metaroll.EnvSpec.from_env(PendulumEnv()))


def test_ranges_grow_where_the_policy_copes_and_shrink_where_not() -> None:
    limits = {"pole_mass": (0.5, 1.5)}
    options = {"num_episodes": 1, "max_steps": 5, "seed": 0}
    easy = AutomaticRandomization("pend", {"pole_mass": 1.0}, limits, low=-1.0, high=0.0, **options)
    runner = _Runner()
    for epoch in range(40):
        easy.on_epoch_end(runner, epoch, {})
    assert easy.ranges["pole_mass"] == pytest.approx((0.5, 1.5))
    learned_in = [param["pole_mass"] for param in runner.task_sampler.draw(50, 0)]
    assert min(learned_in) < 0.6 and max(learned_in) > 1.4
    assert {param["pole_mass"] for param in easy.randomizer.draw(50, 0)} - {1.0}
    easy._low, easy._high = 1e9, 1e9
    for epoch in range(80):
        easy.on_epoch_end(_Runner(), epoch, {})
    low, high = easy.ranges["pole_mass"]
    assert 0.999 < low < 1.0 < high < 1.001
