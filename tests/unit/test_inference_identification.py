"""System identification: exact answers of linear models, and a pendulum whose parameters are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from metaroll.errors import ShapeError, UnknownNameError
from metaroll.functional.posteriors.curvature import (
    covariance_of_information,
    difference_points,
    draws_of_information,
    jacobian_of_differences,
)
from metaroll.inference.identification import identify

TRUE = np.array([1.2, 0.4, 0.15])
PENDULUM = {"mass": (0.5, 2.0), "length": (0.2, 1.0), "damping": ("log-uniform", 0.01, 1.0)}
METHODS = ("least_squares", "cem")


def pendulum(thetas: np.ndarray) -> np.ndarray:
    """Angles of pendulums ``(mass, length, damping)`` under one torque, every fifth of 100 steps; short ones fail."""
    mass, length, damping = thetas.T
    angle, velocity, angles = np.full(len(thetas), 0.5), np.zeros(len(thetas)), []
    for t in range(100):
        torque = 0.8 * np.sin(0.2 * t)
        acceleration = (torque - damping * velocity) / (mass * length**2) - 9.81 / length * np.sin(angle)
        velocity = velocity + 0.02 * acceleration
        angle = angle + 0.02 * velocity
        if t % 5 == 4:
            angles.append(angle)
    features = np.stack(angles, axis=1)
    features[length < 0.25] = np.nan
    return features


@pytest.mark.parametrize("method", METHODS)
def test_the_parameters_of_a_pendulum(method: str) -> None:
    found = identify(pendulum, pendulum(TRUE[None]), PENDULUM, method, num_simulations=6000, seed=1)
    np.testing.assert_allclose(found.theta, TRUE, rtol=1e-3)
    assert found.identified.all() and found.converged and found.residual < 1e-3
    assert found.num_simulations <= 6000 + 7 and found.num_failed > 0
    assert "mass = 1.2" in repr(found)
    again = identify(pendulum, pendulum(TRUE[None]), PENDULUM, method, num_simulations=6000, seed=1)
    np.testing.assert_array_equal(found.theta, again.theta)


@pytest.mark.parametrize("method", METHODS)
def test_linear_models_have_their_textbook_answer(method: str) -> None:
    """Least squares of ``X theta``: ``(X' X)^-1 X' y``, with covariance ``s^2 (X' X)^-1`` (the prior hardly counts)."""
    rng = np.random.default_rng(0)
    design = rng.normal(size=(40, 2))
    observed = design @ [1.0, -2.0] + 0.3 * rng.standard_normal(40)
    answer, rest = np.linalg.lstsq(design, observed, rcond=None)[:2]
    covariance = np.linalg.inv(design.T @ design)
    prior = {"a": (-10.0, 10.0), "b": ("normal", 0.0, 8.0)}

    found = identify(lambda thetas: thetas @ design.T, observed, prior, method, num_simulations=4000, noise_std=0.3)
    np.testing.assert_allclose(found.theta, answer, atol=1e-3)
    np.testing.assert_allclose(found.std, 0.3 * np.sqrt(np.diag(covariance)), rtol=0.01)
    assert found.residual == pytest.approx(np.sqrt(rest[0] / 40) / 0.3, rel=1e-4)
    posterior = found.posterior(seed=1)
    np.testing.assert_allclose(posterior.std, found.std, rtol=0.05)
    np.testing.assert_allclose(posterior.mean, answer, atol=0.01)
    assert posterior.description["method"] == method


def test_unknown_noise_follows_from_what_is_left() -> None:
    rng = np.random.default_rng(1)
    observed = 0.7 + 0.2 * rng.standard_normal(200)

    def simulate(thetas: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.repeat(thetas, 200, axis=1))

    found = identify(simulate, observed, {"a": (-3.0, 3.0)}, num_simulations=400)
    assert found.theta[0] == pytest.approx(observed.mean(), abs=1e-5)
    assert found.std[0] == pytest.approx(observed.std(ddof=1) / np.sqrt(200), rel=0.01)  # of a mean


def test_what_the_data_do_not_tell_keeps_the_spread_of_the_prior() -> None:
    def simulate(thetas: np.ndarray) -> np.ndarray:
        return np.column_stack([thetas[:, 0], thetas[:, 0] ** 2, np.full(len(thetas), 3.0)])

    found = identify(simulate, [0.5, 0.25, 3.0], {"a": (0.0, 1.0), "b": (0.0, 6.0)}, num_simulations=500)
    assert found.identified.tolist() == [True, False]
    assert found.theta[0] == pytest.approx(0.5, abs=1e-4)
    assert found.std[1] == pytest.approx(6.0 / np.sqrt(12.0), rel=0.01)
    draws = found.posterior().draws
    assert draws[:, 1].min() >= 0.0 and draws[:, 1].max() <= 6.0
    np.testing.assert_allclose(np.quantile(draws[:, 1], [0.1, 0.5, 0.9]), [0.6, 3.0, 5.4], atol=0.25)


def test_a_budget_that_is_used_up_is_told() -> None:
    found = identify(pendulum, pendulum(TRUE[None]), PENDULUM, "cem", num_simulations=300)
    assert not found.converged and found.num_simulations <= 300 + 6
    found = identify(pendulum, pendulum(TRUE[None]), PENDULUM, num_simulations=30)
    assert not found.converged and np.isfinite(found.theta).all()


def test_mistakes() -> None:
    with pytest.raises(UnknownNameError, match="least_squares"):
        identify(pendulum, np.zeros(20), PENDULUM, "lsq")
    with pytest.raises(ValueError, match="observed must"):
        identify(pendulum, np.full(20, np.nan), PENDULUM)
    with pytest.raises(ShapeError, match="19 observed features"):
        identify(pendulum, np.zeros(19), PENDULUM)
    with pytest.raises(ValueError, match="none of 200 simulations"):
        identify(lambda thetas: pendulum(thetas) * np.nan, np.zeros(20), PENDULUM)
    with pytest.raises(ValueError, match="noise_std"):
        identify(pendulum, np.zeros(20), PENDULUM, noise_std=0.0)


def test_differences_by_hand() -> None:
    """``f = (x^2, y)`` at (0.5, 0), where the border cuts the step down, and with failures."""
    point = np.array([0.5, 0.0])
    points = difference_points(point, 0.1)
    np.testing.assert_allclose(points, [[0.6, 0.0], [0.5, 0.1], [0.4, 0.0], [0.5, 0.0]])
    values = np.column_stack([points[:, 0] ** 2, points[:, 1]])
    np.testing.assert_allclose(jacobian_of_differences(point, values[3], points, values), [[1.0, 0.0], [0.0, 1.0]])
    values[2] = np.nan  # forward: (0.36 - 0.25) / 0.1
    np.testing.assert_allclose(jacobian_of_differences(point, values[3], points, values)[0, 0], 1.1)
    values[0] = np.nan
    assert jacobian_of_differences(point, values[3], points, values)[0, 0] == 0.0


def test_draws_within_the_unit_cube() -> None:
    """Next to the border: half a normal; without information: uniform."""
    information = np.diag([100.0, 0.0])
    np.testing.assert_allclose(covariance_of_information(information), np.diag([1.0 / 112.0, 1.0 / 12.0]))
    draws = draws_of_information(np.array([0.0, 0.8]), information, 10_000, np.random.default_rng(0))
    assert draws.min() >= 0.0 and draws.max() <= 1.0
    half = stats.halfnorm(scale=0.1)
    np.testing.assert_allclose(draws[:, 0].mean(), half.mean(), rtol=0.05)
    np.testing.assert_allclose(np.quantile(draws[:, 1], [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.03)
