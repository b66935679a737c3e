"""The least noise that is assumed of a log: how much it is, and that simulations and the log have it alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import metaroll
from metaroll.configs.inference import InferenceOptions
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.sims.catalog import PendulumEnv
from metaroll.inference.priors import Prior, as_prior
from metaroll.lab.inferring.compared import Compared
from metaroll.lab.inferring.inferring import noise_of_sensors, segment_sampler
from metaroll.rollouts.samplers.sensor_noise import SensorNoise, least_noise

PRIOR = as_prior({"pole_mass": (0.5, 1.5)})


def logged(count: int, noise: float = 0.0, steps: int = 400) -> list[StepSequence]:
    """Rollouts of the pendulum under commands that change with every step, without states."""
    made, generator = played(count, steps)
    info = {"env_spec": metaroll.EnvSpec.from_env(PendulumEnv(max_steps=steps))}
    told = ("rewards", "actions", "time")
    return [
        StepSequence(
            **{name: one.get_data_values(name) for name in told},
            observations=one.observations + noise * generator.standard_normal(one.observations.shape),
            rollout_info=info,
        )
        for one in made
    ]


def played(count: int, steps: int) -> tuple[list[StepSequence], np.random.Generator]:
    """Rollouts, which are made once, and the generator of their commands as they leave it."""
    states, made = _PLAYED.setdefault(steps, ([np.random.default_rng(5).bit_generator.state], []))
    generator = np.random.default_rng()
    while len(made) < count:
        generator.bit_generator.state = states[-1]
        env = PendulumEnv(max_steps=steps)
        made.append(metaroll.rollout(env, lambda obs: generator.uniform(-2, 2, 1), max_steps=steps))
        states.append(generator.bit_generator.state)
    generator.bit_generator.state = states[count]
    return made[:count], generator


_PLAYED: dict[int, tuple[list[dict[str, Any]], list[StepSequence]]] = {}


def of(rollouts: list[StepSequence], noise: str = "estimate", prior: Prior = PRIOR) -> Compared:
    options = InferenceOptions(segment_length=20, noise=noise)
    return Compared.of(EnvSource.of("pend"), rollouts, prior, options, None)


def test_the_least_noise_is_a_hundredth_of_what_a_segment_shows():
    rows = np.array([[0.0, 5.0], [2.0, 5.0], [1.0, 5.0], [10.0, 5.0], [4.0, 6.0], [0.0, 0.0]])
    log = StepSequence(rewards=np.zeros(5), actions=np.zeros((5, 1)), observations=rows)
    # rows 0 to 2 show 2 and 0, rows 3 and 4 (the last observation ends the log) 6 and 1
    np.testing.assert_allclose(least_noise([log], "observations", 3), [0.01 * 4.0, 0.01 * 0.5])


def series(rollouts: list[StepSequence], noise: str = "estimate", seed: int = 0) -> np.ndarray:
    """What simulations of rollouts are compared with, ``(R, 400, 4)``: what is shown, and the command."""
    options = InferenceOptions(segment_length=20, hold_out=0, noise=noise, seed=seed)
    with segment_sampler("pend", rollouts, PRIOR, options) as sampler:
        return sampler._target.series


def test_what_is_assumed_is_added_to_the_log_where_less_was_found():
    exact = logged(3)
    compared = of(exact)
    noise, least = compared.noise, least_noise(exact, "observations", 20)
    assert not noise.measured.any() and noise.assumed is not None
    np.testing.assert_allclose(noise.compared, least)
    assert noise.to_dict()["found"] == dict.fromkeys(compared.labels, 0.0)
    assert str(noise).startswith(
        "sensor noise: none, estimated from the log; a hundredth of what a segment shows is assumed"
    )
    plain, noisy = series(exact, "none"), series(exact)
    np.testing.assert_array_equal(noisy[..., 3], plain[..., 3])  # commands
    np.testing.assert_allclose((noisy - plain)[..., :3].reshape(-1, 3).std(axis=0), least, rtol=0.08)
    np.testing.assert_array_equal(series(exact), noisy)
    assert not np.array_equal(series(exact, seed=1), noisy)
    # Other recordings have noise of their own, of the same seed: what is held out would look as what was seen does.
    other = series(logged(2), "none"), series(logged(2))
    assert not np.allclose((other[1] - other[0])[0, :, 0], (noisy - plain)[0, :, 0], rtol=0.1)


def test_noise_that_was_found_is_not_called_none_where_more_is_assumed():
    noise = SensorNoise(("a", "b"), {}, np.array([0.01, 0.0]), "estimated from the log", True, np.array([0.02, 0.03]))
    told = "sensor noise: little, estimated from the log; less was found, and a hundredth of what a segment shows"
    assert str(noise) == f"{told} is assumed, in a 0.0224, b 0.03"


@pytest.mark.parametrize(("std", "noise"), [(0.2, "estimate"), (0.0, "none"), (0.0, "0.001")])
def test_nothing_is_added_where_enough_was_found_or_noise_was_given(std: float, noise: str):
    compared = of(logged(3, std), noise)
    assert compared.noise.assumed is None or not compared.noise.assumed.any()
    assert "assumed" not in str(compared.noise)


@pytest.mark.parametrize("noise", ["estimate", "none"])
def test_nothing_is_assumed_of_a_channel_whose_noise_is_inferred(noise: str):
    prior = as_prior({"pole_mass": (0.5, 1.5), "noise.theta_dot": (0.0, 0.1)})
    found = of(logged(3, 1e-5), noise, prior).noise
    others = found.compared[:2] if found.assumed is None else found.assumed[:2]
    assert found.assumed is None or found.assumed[2] == 0.0
    assert (others > 0.0).all() if noise == "estimate" else not others.any()


def test_segments_start_without_what_is_assumed():
    """In the recorded states, or those that observations as they are tell: starts of simulations are not off."""
    exact = logged(1)
    options = InferenceOptions(segment_length=20, hold_out=0)
    with segment_sampler("pend", exact, PRIOR, options) as sampler:
        target = sampler._target
        assert target is not None and not target.starts.are_drawn
        angles = np.arctan2(exact[0].observations[:-1:20, 0], exact[0].observations[:-1:20, 1])
        np.testing.assert_allclose([state[0] for state in target.starts.states], angles, atol=1e-12)
        assert not np.array_equal(target.first_rows, exact[0].observations[:-1:20])


def test_an_exact_log_lies_among_simulations_with_its_parameters():
    """Were noise in the simulations alone, what speeds up between rows would tell them apart."""
    options = InferenceOptions(segment_length=20, hold_out=0)
    with segment_sampler("pend", logged(2), PRIOR, options) as sampler:
        made, target = sampler(np.ones((200, 1))).numpy(), sampler.target_features().numpy()[0]
    assert (np.abs(target - made.mean(axis=0)) < 4.5 * made.std(axis=0)).all()


def test_rollouts_with_other_noise_have_their_own_and_held_out_ones_too():
    quiet, loud = logged(2, 0.02), logged(2, 0.2)
    alike, unlike = of(quiet), of([quiet[0], loud[0]])
    options = InferenceOptions(segment_length=20)
    assert not alike.noise.differs and alike.of_others([], quiet, PRIOR, options) is alike
    assert alike.of_others(logged(1, 0.02), quiet, PRIOR, options) is alike
    for others in (loud, loud[:1]):  # whose noise is their own, though those seen are alike
        held_out = alike.of_others(others, quiet, PRIOR, options).noise
        assert held_out.measured.shape == (len(others), 3) and (held_out.measured > 0.15).all()
    assert (of(loud).of_others(quiet[:1], loud, PRIOR, options).noise.measured < 0.05).all()
    noise = unlike.noise
    assert noise.differs and noise.compared.shape == (2, 3)
    np.testing.assert_allclose(noise.measured, [[0.02] * 3, [0.2] * 3], rtol=0.5)
    told = noise.to_dict()
    assert told["std"]["theta_dot"] == pytest.approx(np.sqrt(0.5 * (0.02**2 + 0.2**2)), rel=0.25)
    assert [len(one) for one in told["found_in_rollouts"]] == [3, 3] and "(rollouts differ)" in str(noise)
    assert " to 0." in str(noise)
    others = unlike.of_others(loud[1:], [quiet[0], loud[0]], PRIOR, options)
    assert others.noise.measured.shape == (1, 3) and (others.noise.measured > 0.15).all()
    of_starts = replace(alike.noise, stds={"states": np.ones((2, 2))})
    assert of_starts.differs and of_starts.measured.ndim == 1 and of_starts.of_first(1).stds["states"].shape == (1, 2)
    assert "found_in_rollouts" not in of_starts.to_dict() and "differ" not in str(of_starts)
    first = noise.of_first(1)
    np.testing.assert_array_equal(first.measured, noise.measured[:1])
    assert (unlike.starts(quiet[:1], 20).stds <= noise.stds["observations"][0]).all()


def test_noise_of_others_that_differ_is_told_of_any_rollout():
    quiet, loud = logged(2, 0.02), logged(2, 0.2)
    options = InferenceOptions(segment_length=20, hold_out=0)
    noise = noise_of_sensors("pend", [quiet[0], loud[0]], PRIOR, options)
    own = of([quiet[0], loud[0]]).noise
    assert own.differs and not noise.differs
    np.testing.assert_allclose(noise.compared, np.sqrt(np.square(own.compared).mean(axis=0)))
    with segment_sampler("pend", logged(3, 0.02), PRIOR, options, noise) as sampler:  # three rollouts, not two
        assert np.isfinite(sampler(np.ones((2, 1))).numpy()).all()
