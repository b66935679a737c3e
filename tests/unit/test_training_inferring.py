"""From recorded rollouts to a posterior, a page, and policies that are trained on it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

import metaroll
from metaroll.configs.inference import InferenceOptions
from metaroll.data.recordings import save_rollouts
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.posteriors import posterior_family, posterior_name
from metaroll.envs.lookup.registry import get_family
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.sims.catalog import PendulumEnv
from metaroll.errors import DataError, PosteriorError, RunExistsError, UnknownNameError
from metaroll.inference.configs import EstimatorConfig
from metaroll.inference.neural import InferenceProgress
from metaroll.inference.posterior import Posterior
from metaroll.inference.priors import as_prior
from metaroll.inference.simulations import SimulationStore
from metaroll.inference.verdicts import Check, Verdict
from metaroll.lab.cli.main import main
from metaroll.lab.inferring import inferring
from metaroll.lab.inferring.comparable import comparable
from metaroll.lab.inferring.inferring import infer, infer_config, segment_sampler, usual_prior
from metaroll.lab.report.inference_page import write_inference_page
from metaroll.lab.results.inference_result import PAGE
from metaroll.rollouts.samplers.sbi import SimRolloutSamplerForSBI
from metaroll.tasks.posterior_sampler import PosteriorTaskSampler
from metaroll.training.session.run_config import default_run_dir

pytestmark = pytest.mark.usefixtures("lent_pools")

PRIOR = {"pole_mass": (0.5, 1.5), "pole_length": (0.5, 1.5)}
TRUE = {"pole_mass": 0.8, "pole_length": 1.2}
TINY: dict[str, Any] = {"model": "maf", "num_transforms": 1, "hidden_features": 8}


def recordings(count: int = 3, steps: int = 60) -> list:
    """Rollouts of a pendulum with other parameters, under random torques."""
    return [recorded(number, steps) for number in range(count)]


@functools.cache
def recorded(number: int, steps: int) -> StepSequence:
    robot = PendulumEnv(domain_param=TRUE, max_steps=steps)
    policy = metaroll.policies.DummyPolicy(metaroll.EnvSpec.from_env(robot))
    return metaroll.rollout(robot, policy, seed=0, sub_seed=number)


@contextlib.contextmanager
def flows(**changes: Any) -> Iterator[None]:
    """One flow in place of an ensemble, with these settings changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inferring, "infer_config", lambda options: replace(infer_config(options), ensemble=1, **changes))
        yield


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inference")
    options = InferenceOptions(num_simulations=150, rounds=1, segment_length=20)
    few = functools.partial(inferring.check_posterior, num_calibration=100)
    with flows(num_transforms=2, learning_rate=4e-3, stop_after_epochs=8), pytest.MonkeyPatch.context() as patch:
        patch.setattr(inferring, "check_posterior", few)
        return infer("pend", recordings(), PRIOR, folder, options)


@pytest.fixture(autouse=True)
def short_training() -> Iterator[None]:
    """Flows of a few epochs, and no second look at the log: what is learned and doubted counts in ``found`` alone."""
    with flows(**TINY, max_epochs=3), pytest.MonkeyPatch.context() as patch:
        patch.setattr(inferring, "doubts_about", lambda source, rollouts: [])
        yield


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


@pytest.mark.parametrize(
    ("failed", "rounds"),
    [(("calibration", "calibration at the observed"), 3), (("calibration", "reproduces the observed"), 2), ((), 2)],
)
def test_what_more_simulations_mend_gets_one_more_round(failed, rounds, tmp_path, monkeypatch) -> None:
    judged = []

    def check(posterior, simulate, *, seed, **held_out):
        judged.append(seed)
        checks = [Check(name, "failed" if len(judged) == 1 else "passed", "so", 0.001) for name in failed]
        return Verdict((*checks, Check("coverage", "passed", "as it should", 0.5)), posterior.names, ())

    monkeypatch.setattr(inferring, "check_posterior", check)
    options, told = InferenceOptions(num_simulations=80, rounds=2, segment_length=10), []
    found = infer("pend", recordings(2, 20), PRIOR, tmp_path, options, progress=told.append)
    assert found.posterior.description["num_simulations"] == [40] * rounds
    assert len(judged) == len(set(judged)) == rounds - 1  # others judge than those that found it to be off
    assert [step.round_number for step in told if step.phase == "check"] == list(range(2, rounds + 1))
    more = r"note one more round: calibration, calibration at the observed .*\b80 .*\b40 "
    assert any(re.match(more, line) for line in found.checks["lines"]) == (rounds == 3)
    assert found.trusted == ("reproduces the observed" not in failed)
    again = infer("pend", recordings(2, 20), PRIOR, tmp_path, options)  # it is kept, with what was said of it
    assert len(judged) == rounds - 1 and again.checks["lines"] == found.checks["lines"]


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        ("simulations", r"\b3 .*usable"),
        ("checks", r"\(too few\)"),
    ],
)
def test_one_more_round_that_leads_nowhere_is_said(failing, words, tmp_path, monkeypatch) -> None:
    judged, simulate = [], SimRolloutSamplerForSBI.__call__

    def check(posterior, simulate, **others):
        judged.append(posterior)
        if len(judged) > 1:
            raise ValueError("too few")
        return Verdict((Check("calibration", "failed", "so", 0.001),), posterior.names, ())

    def features(sampler, thetas):
        found = simulate(sampler, thetas)
        if judged and failing == "simulations":
            found[3:] = math.nan
        return found

    monkeypatch.setattr(inferring, "check_posterior", check)
    monkeypatch.setattr(SimRolloutSamplerForSBI, "__call__", features)
    options = InferenceOptions(num_simulations=80, rounds=2, segment_length=10)
    for _ in range(2):  # also where it is kept
        found = infer("pend", recordings(2, 20), PRIOR, tmp_path, options)
        assert re.match(rf"note one more round: calibration .*\b80 .*\b40 .*{words}", found.checks["lines"][-1])
        np.testing.assert_array_equal(found.posterior.draws, judged[0].draws)
        failed = 37 if failing == "simulations" else 0
        assert found.failed == failed and re.match(rf"{failed} .*\b120 ", found.posterior.failures)
    assert len(judged) == (1 if failing == "simulations" else 2)


def test_what_was_stopped_goes_on_to_the_same_bits(tmp_path, monkeypatch) -> None:
    """Also where checks, which draw random numbers, lie between rounds; noise is assumed."""
    told, options = [], InferenceOptions(num_simulations=80, rounds=2, segment_length=10)

    def check(posterior, simulate, **held_out):
        told[-1].append((posterior.draws, simulate(posterior.draws[:2])))
        failed = Check("calibration", "failed" if len(told[-1]) == 1 else "passed", "so", 0.001)
        return Verdict((failed,), posterior.names, ())

    def stop(phase: str, number: int, state: InferenceProgress) -> None:
        if (state.phase, state.round_number) == (phase, number):
            raise KeyboardInterrupt

    monkeypatch.setattr(inferring, "check_posterior", check)
    for place, (phase, number) in enumerate([("", 0), ("train", 1), ("train", 3), ("draw", 3)]):
        told.append([])
        if place:
            with pytest.raises(KeyboardInterrupt):
                infer(
                    "pend",
                    recordings(2, 20),
                    PRIOR,
                    tmp_path / str(place),
                    options,
                    progress=functools.partial(stop, phase, number),
                )
            told[-1].clear()
        infer("pend", recordings(2, 20), PRIOR, tmp_path / str(place), options)
    for whole, again in itertools.product(told[:1], told[1:]):
        for one, other in zip(whole, again, strict=True):
            np.testing.assert_array_equal(one[0], other[0])
            np.testing.assert_array_equal(one[1], other[1])


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
    assert (
        f"<p>Recordings: {len(recordings()) - 1} of " in page
        and "the last one held out" in page
        and "<p>Sensor noise: " in page
    )
    outcomes = {check["name"]: check["outcome"] for check in found.checks["checks"]}
    assert outcomes["reproduces held-out rollouts"] in ("passed", "small", "failed")
    assert found.checks["lines"] and all(name in page for name in ("Checks", "calibration"))


@pytest.mark.filterwarnings("ignore:.*Do not train on this posterior")
def test_a_posterior_is_a_family_of_tasks(found, tmp_path) -> None:
    name = posterior_name("pend", found.folder)
    source = EnvSource.of(name)
    assert source.is_varied and source.family is get_family(name) is posterior_family(name)
    train, test = get_family(name).split(30, 10, seed=0)
    draws = {tuple(row) for row in found.posterior.draws.tolist()}
    values = [tuple(update.task.values()) for update in (*train, *test)]
    assert set(values) <= draws and len(set(values)) == 40
    agent = metaroll.agent("ppo", "pend", tasks=found.folder, epochs=1, max_path_length=30, steps_per_epoch=60)
    assert len(agent.test_tasks) == 20 and tuple(agent.test_tasks[0].task) == found.posterior.names
    assert default_run_dir("ppo", source, 0).name == f"ppo-pend-{found.folder.name}-0"
    pearl = metaroll.agent("pearl", "pend", tasks=found.folder, num_train_tasks=3, num_test_tasks=2)
    assert len(pearl.train_tasks) == 3


def told_of(name: str) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior_family(name)
    return [str(one.message) for one in caught]


def test_a_posterior_of_another_simulator_or_with_a_failed_verdict_is_said_once(tmp_path) -> None:
    draws = np.random.default_rng(0).uniform(0.5, 1.5, (50, 1))
    made = {"simulator": {"env": "pend"}}
    run = tmp_path / "run"
    Posterior({"pole_mass": (0.5, 1.5)}, draws=draws, description=made).save(run / "posterior")
    assert told_of(f"pend@{run}") == told_of("metaroll.envs.sims.catalog:PendulumEnv@" + str(run)) == []
    [other] = told_of(f"{__name__}:another_pendulum@{run}")
    assert re.search("'pend'.*another_pendulum", other)
    for verdict, said in (({"passed": True}, 0), ({"passed": False, "too_wide": True}, 0), ({"passed": False}, 1)):
        checks = {"too_wide": False, "text": "Do not train on this posterior of pole_mass.", **verdict}
        (run / "inference.json").write_text(json.dumps({"checks": checks}))
        Posterior({"pole_mass": (0.5, 1.5)}, draws=draws[: 40 + said], description=made).save(run / "posterior")
        found = told_of(f"pend@{run}")
        assert [text.split(": ")[1] for text in found] == ["Do not train on this posterior of pole_mass."] * said
    assert told_of(f"pend@{run}") == [] and len(told_of(f"pend@{run / 'posterior'}")) == 1
    assert len(PosteriorTaskSampler(run).values) == len(Posterior.load(run).draws) == 41


class _Other(PendulumEnv):
    """Another simulator, whose parameters have the same names."""


def another_pendulum() -> _Other:
    return _Other()


def test_a_family_of_a_posterior_takes_no_usual_ranges(tmp_path) -> None:
    draws = np.random.default_rng(0).uniform(0.5, 1.5, (50, 1))
    Posterior({"pole_mass": (0.5, 1.5)}, draws=draws).save(tmp_path / "some")
    with pytest.raises(ValueError, match=r"randomize=.default. .*pend@"):
        metaroll.agent("ppo", "pend", tasks=tmp_path / "some", randomize="default")


@pytest.mark.usefixtures("empty_charts")
def test_what_failed_stands_before_everything_else(found, tmp_path, capsys, monkeypatch) -> None:
    checks = {"passed": False, "too_wide": False, "text": "Do not train on it.", "lines": ["failed calibration"]}
    failed = replace(found, checks=checks)
    text = write_inference_page(failed, tmp_path / "report.html", None, ["<p>On the robot</p>"]).read_text()
    places = [text.index(part) for part in ("Do not train on it.", "On the robot", "failed calibration")]
    assert places == sorted(places) and not failed.trusted
    assert ">✗</span>failed calibration<" in text and ">✗</span> Do not train on it." in text  # not by color alone
    passed = {"passed": True, "too_wide": False, "text": "Fine.", "lines": ["passed bounds: fine", "note x: y"]}
    text = write_inference_page(replace(found, checks=passed), tmp_path / "report.html").read_text()
    assert ">✓</span> Fine." in text and ">✓</span>passed bounds" in text and ">!</span>note x" in text
    save_rollouts(recordings()[:2], tmp_path / "log")
    for told, hint in (
        (failed, "checks pass"),
        (replace(found, checks={}), "--no-checks"),
    ):
        monkeypatch.setattr(inferring, "infer", lambda *given, told=told, **options: told)
        assert main(["infer", "pend", "--data", str(tmp_path / "log"), "--out", str(tmp_path / "run")]) == 0
        assert re.search(rf"\n.*{hint}.*: metaroll train ALGO pend", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("pend@", UnknownNameError, "SIM@FOLDER"),
        ("pend@nowhere", PosteriorError, "nowhere .*posterior"),
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


@pytest.mark.usefixtures("empty_charts")
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
        (["pend"], "--data FOLDER"),
        (["pend", "--data", "nowhere"], "nowhere"),
        (["pend", "--data", "LOG", "--param", "pole_mas=1:2"], "pole_mass"),
        (["pend", "--data", "LOG", "--param", "pole_mass=2:1"], "param must .*NAME=LOW:HIGH"),
        (["pend", "--data", "LOG", "--hold-out", "3"], "--hold-out must"),
        (["pend", "--data", "LOG", "--num-simulations", "60"], "--num-simulations must .*120 in 4 rounds"),
        (["Pendulum-v1", "--data", "LOG"], "Pendulum-v1 .*ranges"),
        (["pendd", "--data", "LOG"], "environment 'pendd'"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(arguments, text, tmp_path, capsys) -> None:
    save_rollouts(recordings(), tmp_path / "LOG")
    shown = [str(tmp_path / "LOG") if argument == "LOG" else argument for argument in arguments]
    assert main(["infer", *shown, "--out", str(tmp_path / "run")]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert re.search(text, told) and "randomize" not in told
    assert not (tmp_path / "run").exists()


def test_usual_ranges_are_half_to_one_and_a_half_times_of_the_values() -> None:
    prior = usual_prior("pend")
    nominal = PendulumEnv().model.nominal
    np.testing.assert_allclose(prior.low, [0.5 * nominal[name] for name in prior.names])


class _Knows:
    """In place of NPDR: a posterior next to ``truth``, which nothing is simulated for."""

    truth: ClassVar[dict[str, float]] = TRUE

    def __init__(self, prior, **kept) -> None:
        self.prior, self.description = prior, {"simulator": kept["simulator"], "num_failed": 0, "rounds": 1}

    def infer(self, simulate, observed, num_simulations, enough) -> Posterior:
        near = np.random.default_rng(0).normal([self.truth[name] for name in self.prior.names], 1e-6, (50, 1))
        posterior = Posterior(self.prior, observed, draws=near, description=self.description)
        assert enough is None or enough(posterior)
        return posterior


def test_a_posterior_that_is_learned_in_another_way_now_is_made_anew(tmp_path, monkeypatch) -> None:
    log, options = recordings(2, 12), InferenceOptions(segment_length=6, checks=False, num_simulations=20, rounds=1)
    made = []
    for most in (2, 2, 4):
        config = EstimatorConfig(**TINY, max_epochs=most)
        monkeypatch.setattr(inferring, "infer_config", lambda _, config=config: config)
        made.append(infer("pend", log, {"pole_mass": (0.5, 1.5)}, tmp_path, options).posterior)
    np.testing.assert_array_equal(made[0].draws, made[1].draws)
    assert made[0].description["epochs"] != made[2].description["epochs"]


def test_a_posterior_that_was_made_of_the_same_is_kept(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(inferring, "infer_config", lambda options: EstimatorConfig(**TINY, max_epochs=2))
    log, options = recordings(2, 12), InferenceOptions(segment_length=3, num_simulations=60, rounds=1, checks=False)
    files = tmp_path / "posterior" / "posterior.json", tmp_path / "posterior" / "draws.npz"
    made, found = [], []
    changes = (
        ("as it was", log, {}, {"pole_mass": (0.5, 1.5)}),
        ("more workers", log, {"num_workers": 2}, {"pole_mass": (0.5, 1.5)}),
        ("another seed", log, {"seed": 1}, {"pole_mass": (0.5, 1.5)}),
        ("another prior", log, {"seed": 1}, {"pole_mass": (0.5, 1.6)}),
        ("another log", recordings(2, 13), {"seed": 1}, {"pole_mass": (0.5, 1.6)}),
    )
    for _, recorded, change, prior in changes:
        found.append(infer("pend", recorded, prior, tmp_path, dataclasses.replace(options, **change)).to_dict())
        made.append(tuple(path.stat().st_mtime_ns for path in files))
    assert [a == b for a, b in itertools.pairwise(made)] == [True, False, False, False]
    assert found[0]["parameters"] == found[1]["parameters"] != found[2]["parameters"]
    assert found[0]["prediction_errors"] == found[1]["prediction_errors"]


def test_failed_simulations_are_sets_of_parameters_also_of_an_earlier_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(inferring, "infer_config", lambda options: EstimatorConfig(**TINY, max_epochs=2))
    log, options = recordings(2, 12), InferenceOptions(segment_length=3, num_simulations=60, rounds=1, checks=False)
    counts = []
    for _ in range(2):
        (tmp_path / "inference.json").unlink(missing_ok=True)  # as if it had been stopped before its end
        found = infer("pend", log, {"pole_mass": (-0.5, 0.5)}, tmp_path, options)
        [part] = (tmp_path / "simulations").iterdir()
        with np.load(part) as kept:
            counts.append((found.failed, found.to_dict()["failed_simulations"], int((kept["thetas"] <= 0.0).sum())))
    assert found.posterior.description["num_reused"] == 60
    assert len(set(counts)) == 1 and len(set(counts[0])) == 1 and 10 < counts[0][0] < 50


@pytest.mark.usefixtures("empty_charts")
def test_an_earlier_posterior_stays_with_its_verdict_until_the_new_one_is_complete(
    tmp_path, monkeypatch, capsys
) -> None:
    def judged(posterior, *given, **options):
        return Verdict((Check("coverage", "passed", "as it should", 0.5),), posterior.names, ())

    def killed(*given, **options):
        raise KeyboardInterrupt

    log, options = recordings(1, 12), InferenceOptions(hold_out=0, segment_length=6)
    monkeypatch.setattr(inferring, "NPDR", _Knows)
    monkeypatch.setattr(inferring, "check_posterior", judged)
    found = infer("pend", log, {"pole_mass": (0.5, 1.5)}, tmp_path, options)
    write_inference_page(found, tmp_path / PAGE)
    assert told_of(f"pend@{tmp_path}") == []
    monkeypatch.setattr(inferring, "check_posterior", killed)
    with pytest.raises(KeyboardInterrupt):
        infer("pend", log, {"pole_length": (0.5, 1.5)}, tmp_path, options)
    assert Posterior.load(tmp_path).names == ("pole_mass",)
    assert (tmp_path / "inference.json").exists() and (tmp_path / PAGE).exists()
    assert told_of(f"pend@{tmp_path}") == []
    save_rollouts(log, tmp_path / "log")
    words = [
        "--data",
        str(tmp_path / "log"),
        "--out",
        str(tmp_path / "a run"),
        "--hold-out",
        "0",
        "--param",
        "pole_mass=0.5:1.5",
    ]
    assert main(["infer", "pend", *words]) == 130
    again = f": metaroll infer pend --data {tmp_path}/log --out '{tmp_path}/a run' --hold-out 0"
    assert again in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(inferring, "check_posterior", judged)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):  # between the posterior and its verdict
        patch.setattr(inferring, "write_json", killed)
        infer("pend", log, {"pole_length": (0.5, 1.5)}, tmp_path, options)
    assert Posterior.load(tmp_path).names == ("pole_length",)
    assert not (tmp_path / "inference.json").exists() and not (tmp_path / PAGE).exists()
    [doubt] = told_of(f"pend@{tmp_path}")
    assert re.search("no inference.json .*metaroll infer", doubt)
    infer("pend", log, {"pole_length": (0.5, 1.5)}, tmp_path, options)
    assert told_of(f"pend@{tmp_path}") == []


@pytest.mark.parametrize("wrapped", ["a scale", "a delay", "Gymnasium's"])
def test_predictions_play_the_actions_that_simulations_play(wrapped: str, tmp_path, monkeypatch) -> None:
    def made(**params: float) -> gymnasium.Env:
        env = PendulumEnv(domain_param=params, max_steps=20)
        if wrapped == "a scale":
            return metaroll.wrappers.ActNormWrapper(env)
        if wrapped == "a delay":
            return metaroll.wrappers.ActDelayWrapper(env, delay=3)
        return gymnasium.wrappers.RescaleAction(env, np.full(1, -0.5), np.full(1, 0.5))

    robot, generator = made(pole_mass=0.8), np.random.default_rng(0)
    log = [metaroll.rollout(robot, lambda obs: generator.uniform(-0.5, 0.5, 1), max_steps=20) for _ in range(2)]
    monkeypatch.setattr(inferring, "NPDR", _Knows)
    options = InferenceOptions(segment_length=20, checks=False)
    prior = {"pole_mass": (0.5, 1.5)}
    found = infer(made, log, prior, tmp_path, options)
    assert found.errors()["posterior"] < 1e-3 < found.errors()["nominal"]
    with segment_sampler(made, log, as_prior(prior), replace(options, noise="none")) as sampler:
        np.testing.assert_allclose(sampler([[0.8]]), sampler.target_features(), rtol=1e-4)


def as_logged(recorded: StepSequence, **changes) -> StepSequence:
    """What a robot's log tells of a rollout: no states, nothing of what was applied, and columns with names."""
    spec = metaroll.EnvSpec.from_env(PendulumEnv())
    told = {name: recorded.get_data_values(name) for name in ("rewards", "observations", "actions", "time")}
    info = {"env_spec": changes.pop("spec", spec)}
    return StepSequence(**{**told, **changes}, rollout_info=info)


@pytest.mark.parametrize("field", ["observations", "states"])
def test_columns_in_another_order_are_brought_into_that_of_the_simulator(field: str) -> None:
    [seen] = recordings(1, 20)
    kept = {} if field == "observations" else {"states": seen.states}
    spec, order = metaroll.EnvSpec.from_env(PendulumEnv()), [1, 0, 2] if field == "observations" else [1, 0]
    name = "observation_labels" if field == "observations" else "state_labels"
    turned = replace(spec, **{name: tuple(getattr(spec, name)[i] for i in order)})
    swapped = as_logged(seen, **{**kept, field: seen.get_data_values(field)[:, order]}, spec=turned)
    options = InferenceOptions(hold_out=0, segment_length=10)
    told = []
    for log in (as_logged(seen, **kept), swapped):
        with segment_sampler("pend", [log], as_prior(PRIOR), options) as sampler:
            told.append((sampler.target_features().tolist(), sampler.target_digest()))
    assert told[0] == told[1]
    with pytest.raises(DataError, match="initial_state"):
        infer("pend", [swapped], PRIOR, "never", options, initial_state=lambda segment: np.zeros(2))
    misnamed = as_logged(seen, **kept, spec=replace(turned, **{name: ("other", *getattr(turned, name)[1:])}))
    with pytest.raises(DataError, match=rf"{name} .*other"):
        infer("pend", [misnamed], PRIOR, "never", options)
    elsewhere = replace(spec, **{name: tuple(f"{label}_measured" for label in getattr(spec, name))})
    with pytest.warns(UserWarning, match="_measured.*position"):
        segment_sampler("pend", [as_logged(seen, **kept, spec=elsewhere)], as_prior(PRIOR), options)


def test_recordings_that_cannot_be_compared_with_the_simulator_are_refused(tmp_path) -> None:
    options, whole = InferenceOptions(hold_out=0, segment_length=10), recordings(2, 20)
    logs = [as_logged(one) for one in whole]

    def told_by(*rollouts: StepSequence, env: Any = "pend") -> str:
        with pytest.raises((ValueError, DataError)) as refused:
            infer(env, rollouts, PRIOR, tmp_path / "never", options)
        return str(refused.value)

    slow = as_logged(whole[1], time=0.025 * np.arange(21))
    text = told_by(logs[0], slow)
    assert all(part in text for part in ("0.02 s", "rollout 1", "0.025 s", "import-log", "dt=0.02"))
    assert comparable(EnvSource.of("pend"), [slow], ["dt"]) == [slow]  # what is inferred is not known
    untimed = StepSequence(**{name: slow.get_data_values(name) for name in ("rewards", "observations", "actions")})
    untimed.rollout_info = {"dt": 0.05}
    assert re.search(r"\b0\.05 s", told_by(untimed))
    assert re.search(r"\bat 1 \(counted from 0\)", told_by(whole[0], logs[1]))
    assert re.search(r"\bat 0 \(counted from 0\)", told_by(logs[0], whole[1]))
    text, bound = told_by(as_logged(whole[0], actions=100.0 * whole[0].actions)), PendulumEnv().action_space.high[0]
    assert re.search(rf"'torque' .*\[-{bound:g}, {bound:g}\].*outside: clip", text)
    assert not (tmp_path / "never").exists()


def test_a_few_actions_beyond_the_bounds_are_told_and_clocks_need_not_be_exact() -> None:
    options, [seen, other] = InferenceOptions(hold_out=0, segment_length=10), recordings(2, 20)
    late = as_logged(other, time=0.02 * np.arange(21) + np.where(np.arange(21) == 15, 0.005, 0.0))
    few = as_logged(seen, actions=np.where(np.arange(20)[:, None] == 7, 9.0, seen.actions))
    bound = PendulumEnv().action_space.high[0]
    told = rf"'torque' .*\b9, .*\[-{bound:g}, {bound:g}\], .*\b2\.5 %"
    with pytest.warns(UserWarning, match=told):
        segment_sampler("pend", [few, late], as_prior(PRIOR), options)

    def delayed() -> metaroll.wrappers.ActDelayWrapper:
        return metaroll.wrappers.ActDelayWrapper(PendulumEnv(), delay=1)

    # Who recorded this has clipped the actions, too.
    clipped = as_logged(seen, actions=100.0 * seen.actions, actions_applied=seen.actions_applied)
    segment_sampler(delayed, [clipped], as_prior(PRIOR), options)


class _Told(Exception):
    """Ends an inference before it simulates."""


def test_simulations_are_kept_by_settings_and_what_the_simulator_does(tmp_path, monkeypatch) -> None:
    def stop(**kept):
        raise _Told(kept["simulator"])

    monkeypatch.setattr(inferring, "NPDR", stop)
    seen = recordings(3, 12)

    def mark(rollouts: list, env: str = "pend", start=None, **changes) -> dict:
        options = InferenceOptions(**{"hold_out": 0, "segment_length": 6, **changes})
        with pytest.raises(_Told) as told:
            infer(env, rollouts, PRIOR, tmp_path, options, name="pend", initial_state=start)
        return told.value.args[0]

    plain = [StepSequence(rewards=one.rewards, observations=one.observations, actions=one.actions) for one in seen]
    fields = ("rewards", "observations", "actions", "actions_applied", "states")
    untimed = StepSequence(**{field: seen[0].get_data_values(field) for field in fields})
    marks = [
        mark(seen[:1]),
        mark(seen[1:2]),
        mark(seen[:2]),
        mark(seen[:1], segment_length=4),
        mark(seen[:1], every=2),
        mark(seen[:1], features="all-steps"),
        mark(plain[:1]),
        mark(seen[:1], start=lambda segment: segment.states[0] + 1e-7),
        mark([untimed], functools.partial(PendulumEnv, dt=0.01)),
        mark(seen[:1], functools.partial(PendulumEnv, domain_param={"gravity_const": 12.0})),
        mark(seen[:1], PendulumEnv(domain_param={"gravity_const": 20.0})),
    ]
    assert len({json.dumps(told, sort_keys=True) for told in marks}) == len(marks)
    assert mark(seen[:2], hold_out=1) == mark(seen[:1], num_workers=2) == marks[0]
    store = SimulationStore(as_prior(PRIOR), tmp_path / "simulations")
    for told, foreign in (("a" * 12, 0), ("b" * 12, 1), ("a" * 12, 2)):
        store.run(lambda thetas: thetas, 1, 3, told, lambda block, count: np.ones((count, 2)), 10)
        assert store.num_foreign_parts == foreign
    assert (store.num_made, store.num_reused) == (6, 3)


def test_a_folder_of_something_else_is_left_as_it_is(tmp_path, monkeypatch) -> None:
    """Row 24: ``infer --out`` replaced a foreign report.html, and removed a foreign inference.json."""
    monkeypatch.setattr(inferring, "NPDR", _Knows)
    log, options = recordings(1, 12), InferenceOptions(hold_out=0, segment_length=6, checks=False)
    for name in (PAGE, "inference.json", "thesis.tex"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(RunExistsError, match=re.escape(name)):
            infer("pend", log, {"pole_mass": (0.5, 1.5)}, folder, options)
        assert {path.name: path.read_text() for path in folder.iterdir()} == {name: "mine"}


def test_a_folder_in_which_another_process_infers_is_refused(tmp_path) -> None:
    code = "import sys; from metaroll.data.folders.locks import FolderLock; lock = FolderLock(sys.argv[1]); "
    command = [sys.executable, "-c", code + "print('held', flush=True); sys.stdin.read()", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(RunExistsError, match=f"process {process.pid}"):
            infer("pend", recordings(1, 12), {"pole_mass": (0.5, 1.5)}, tmp_path, InferenceOptions(hold_out=0))
