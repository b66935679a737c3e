"""The least noise that is assumed of a log: how much it is, and that simulations and the log have it alike."""

from __future__ import annotations

import numpy as np
import pytest

import metaroll
from metaroll.data.step_sequence import StepSequence
from metaroll.envs.lookup.source import EnvSource
from metaroll.envs.sims.catalog import PendulumEnv
from metaroll.inference.priors import as_prior
from metaroll.rollouts.samplers.sensor_noise import least_noise
from metaroll.training.comparing.compared import Compared
from metaroll.training.evaluation.inference_result import InferenceOptions
from metaroll.training.session.inferring import segment_sampler

PRIOR = as_prior({"pole_mass": (0.5, 1.5)})


def logged(count: int, noise: float = 0.0, steps: int = 400) -> list[StepSequence]:
    """Rollouts of the pendulum under commands that change with every step, without states."""
    generator, env = np.random.default_rng(5), PendulumEnv(max_steps=steps)
    made = [metaroll.rollout(env, lambda obs: generator.uniform(-2, 2, 1), max_steps=steps) for _ in range(count)]
    info = {"env_spec": metaroll.EnvSpec.from_env(env)}
    told = ("rewards", "actions", "time")
    return [
        StepSequence(
            **{name: one.get_data_values(name) for name in told},
            observations=one.observations + noise * generator.standard_normal(one.observations.shape),
            rollout_info=info,
        )
        for one in made
    ]


def of(rollouts: list[StepSequence], noise: str = "estimate") -> Compared:
    options = InferenceOptions(segment_length=20, noise=noise)
    return Compared.of(EnvSource.of("pend"), rollouts, PRIOR, options, None)


def test_the_least_noise_is_a_200th_of_what_a_segment_shows():
    rows = np.array([[0.0, 5.0], [2.0, 5.0], [1.0, 5.0], [10.0, 5.0], [4.0, 6.0], [0.0, 0.0]])
    log = StepSequence(rewards=np.zeros(5), actions=np.zeros((5, 1)), observations=rows)
    # rows 0 to 2 show 2 and 0, rows 3 and 4 (the last observation ends the log) 6 and 1
    np.testing.assert_allclose(least_noise([log], "observations", 3), [0.005 * 4.0, 0.005 * 0.5])


def test_what_is_assumed_is_added_to_the_log_where_less_was_found():
    exact = logged(3)
    compared = of(exact)
    careful = compared.with_least_noise(exact, 20)
    least = least_noise(exact, "observations", 20)
    assert not compared.noise.compared.any() and str(compared.noise) == "sensor noise: none, estimated from the log"
    np.testing.assert_array_equal(careful.noise.stds["observations"], least)
    assert careful.noise.to_dict()["found"] == dict.fromkeys(compared.labels, 0.0)
    assert "none, estimated from the log; a 200th of what is seen in a segment is assumed in sin_theta" in str(careful.noise)
    noisy = careful.as_noisy(exact, 1)
    added = np.concatenate([a.observations - b.observations for a, b in zip(noisy, exact, strict=True)])
    np.testing.assert_allclose(added.std(axis=0), least, rtol=0.08)
    np.testing.assert_array_equal(noisy[1].actions, exact[1].actions)
    np.testing.assert_array_equal(careful.as_noisy(exact, 1)[2].observations, noisy[2].observations)
    assert not np.array_equal(careful.as_noisy(exact, 2)[2].observations, noisy[2].observations)


@pytest.mark.parametrize(("std", "noise"), [(0.2, "estimate"), (0.0, "none"), (0.0, "0.001")])
def test_nothing_is_added_where_enough_was_found_or_noise_was_given(std: float, noise: str):
    rollouts = logged(3, std)
    careful = of(rollouts, noise).with_least_noise(rollouts, 20)
    same = careful.as_noisy(rollouts, 1)
    assert all(np.array_equal(a.observations, b.observations) for a, b in zip(same, rollouts, strict=True))
    assert "assumed" not in str(careful.noise)


def test_an_exact_log_lies_among_simulations_with_its_parameters():
    """Were noise in the simulations alone, what speeds up between rows would tell them apart."""
    options = InferenceOptions(segment_length=20, hold_out=0)
    with segment_sampler("pend", logged(2), PRIOR, options) as sampler:
        made, target = sampler(np.ones((200, 1))).numpy(), sampler.target_features().numpy()[0]
    assert (np.abs(target - made.mean(axis=0)) < 4.5 * made.std(axis=0)).all()
