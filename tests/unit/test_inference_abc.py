"""ABC-SMC against posteriors that are known in closed form."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from metaroll.errors import ShapeError, UnknownNameError
from metaroll.functional.posteriors.populations import (
    effective_sample_size,
    importance_weights,
    kernel_scale,
    regression_adjusted,
    smoothed_draws,
    weighted_covariance,
)
from metaroll.inference.abc import ABCSMC
from metaroll.inference.posterior import Posterior

NORMAL_PRIOR = {"a": ("normal", 0.0, 1.0), "b": ("normal", 0.0, 1.0)}


class Gaussian:
    """``features = (a, b, a + b, 7) + noise``, with failures where b is above 2; counts its calls."""

    def __init__(self, noise: float = 0.5, seed: int = 0) -> None:
        self.noise, self.generator, self.calls = noise, np.random.default_rng(seed), 0

    def __call__(self, thetas: np.ndarray) -> np.ndarray:
        self.calls += 1
        exact = np.column_stack([thetas, thetas.sum(axis=1)])
        features = exact + self.noise * self.generator.standard_normal(exact.shape)
        features = np.column_stack([features, np.full(len(thetas), 7.0)])
        features[thetas[:, 1] > 2.0] = np.nan
        return features


def exact_posterior(observed: np.ndarray, noise: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the linear Gaussian model with a standard normal prior."""
    design = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    covariance = np.linalg.inv(np.eye(2) + design.T @ design / noise**2)
    return covariance @ design.T @ observed[:3] / noise**2, covariance


@pytest.mark.parametrize("kernel", ["normal", "componentwise", "uniform"])
def test_the_posterior_of_a_linear_gaussian_model(kernel: str) -> None:
    observed = np.array([0.8, -0.3, 0.7, 7.0])
    method = ABCSMC(NORMAL_PRIOR, 500, kernel=kernel, seed=1)
    posterior = method.infer(Gaussian(), observed, 15_000)
    mean, covariance = exact_posterior(observed)
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(posterior.mean, mean, atol=0.25 * sd.max())
    np.testing.assert_allclose(posterior.std, sd, rtol=0.15)
    correlation = np.corrcoef(posterior.draws.T)[0, 1]
    assert correlation == pytest.approx(covariance[0, 1] / sd.prod(), abs=0.15)
    told = posterior.description
    assert told["num_simulations"] <= 15_000 and told["num_failed"] > 0
    tolerances = [population["tolerance"] for population in told["populations"]]
    assert len(tolerances) > 3 and all(a > b for a, b in pairwise(tolerances))
    assert len(posterior.draws) >= 10_000
    assert method.population is not None and method.population.distances.max() <= method.population.tolerance


def test_bounds_of_the_prior_hold() -> None:
    """A uniform prior on [0, 1] and what was observed beyond it: a truncated normal."""

    def simulate(thetas: np.ndarray) -> np.ndarray:
        return thetas + 0.3 * generator.standard_normal(thetas.shape)

    generator = np.random.default_rng(0)
    posterior = ABCSMC({"a": (0.0, 1.0)}, 500, seed=2).infer(simulate, [1.1], 10_000)
    exact = stats.truncnorm(-1.1 / 0.3, -0.1 / 0.3, loc=1.1, scale=0.3)
    assert posterior.draws.min() >= 0.0 and posterior.draws.max() <= 1.0
    assert posterior.mean[0] == pytest.approx(exact.mean(), abs=0.03)
    assert posterior.std[0] == pytest.approx(exact.std(), rel=0.2)


def test_the_same_seed_gives_the_same_draws_and_simulations_are_kept(tmp_path) -> None:
    observed = np.array([0.5, 0.5, 1.0, 7.0])
    options = {"seed": 3, "run_dir": tmp_path / "run", "batch_size": 300}
    first = ABCSMC(NORMAL_PRIOR, 100, **options).infer(Gaussian(), observed, 2000)
    silent = Gaussian(noise=np.nan)
    again = ABCSMC(NORMAL_PRIOR, 100, **options).infer(silent, observed, 2000)
    np.testing.assert_array_equal(first.draws, again.draws)
    assert silent.calls == 0 and again.description["num_reused"] == first.description["num_simulations"]
    unlike = ABCSMC(NORMAL_PRIOR, 100, **{**options, "seed": 4}).infer(Gaussian(), observed, 2000)
    assert not np.array_equal(first.draws, unlike.draws)
    loaded = Posterior.load(first.save(tmp_path / "posterior"))
    np.testing.assert_array_equal(loaded.draws, first.draws)
    assert loaded.description["algorithm"] == "ABC-SMC"


def test_where_it_stops() -> None:
    observed = np.array([0.5, 0.5, 1.0, 7.0])
    at_tolerance = ABCSMC(NORMAL_PRIOR, 100, min_tolerance=1.0).infer(Gaussian(), observed, 50_000)
    assert at_tolerance.description["populations"][-1]["tolerance"] == 1.0
    at_share = ABCSMC(NORMAL_PRIOR, 100, least_accepted=0.3).infer(Gaussian(), observed, 50_000)
    assert [p["accepted"] >= 0.3 for p in at_share.description["populations"]].index(False) == (
        len(at_share.description["populations"]) - 1
    )
    seen = []
    ABCSMC(NORMAL_PRIOR, 100, least_accepted=0.0, progress=seen.append).infer(Gaussian(), observed, 1111)
    assert seen[-1].done == seen[-1].total == 1111


def test_a_distance_of_ones_own() -> None:
    def only_first(features: np.ndarray, observed: np.ndarray) -> np.ndarray:
        return np.abs(features[:, 0] - observed[0])

    observed = np.array([0.8, -0.3, 0.7, 7.0])
    method = ABCSMC(NORMAL_PRIOR, 300, distance=only_first, regression=False, seed=1)
    posterior = method.infer(Gaussian(), observed, 6000)
    # a | its own feature: N(0.8 * 0.8, 0.2); b stays as the prior has it, but for failures above 2
    assert posterior.mean[0] == pytest.approx(0.64, abs=0.15)
    assert posterior.std[1] == pytest.approx(0.94, abs=0.15)


def test_mistakes() -> None:
    with pytest.raises(UnknownNameError, match="uniform"):
        ABCSMC(NORMAL_PRIOR, kernel="gauss")
    with pytest.raises(ValueError, match="at least 10"):
        ABCSMC(NORMAL_PRIOR, 3)
    method = ABCSMC(NORMAL_PRIOR, 50)
    with pytest.raises(ValueError, match="finite"):
        method.infer(Gaussian(), [0.0, np.nan, 0.0, 0.0])
    with pytest.raises(ShapeError, match="4 features"):
        method.infer(Gaussian(), [0.0, 0.0])
    with pytest.raises(ValueError, match="only 0 of 500 simulations"):
        method.infer(Gaussian(noise=np.nan), [0.0] * 4, 500)
    with pytest.raises(ShapeError, match="one number per row"):
        ABCSMC(NORMAL_PRIOR, 50, distance=lambda rows, target: rows).infer(Gaussian(), [0.0] * 4, 500)


# ------------------------------------------------------------------------------------------------ formulas
def test_weights_by_hand() -> None:
    """One parameter, old particles 0 and 1 with weights 0.25 and 0.75."""
    particles, weights = np.array([[0.0], [1.0]]), np.array([0.25, 0.75])
    # weighted variance 0.75 - 0.75^2 = 0.1875; the kernel has twice that
    np.testing.assert_allclose(weighted_covariance(particles, weights), [[0.1875]])
    scale = kernel_scale("normal", particles, weights)
    np.testing.assert_allclose(scale, [[np.sqrt(0.375)]])
    np.testing.assert_allclose(kernel_scale("uniform", particles, weights), [[0.5]])
    rows, log_prior = np.array([[0.2], [0.9]]), np.log([1.0, 2.0])
    density = [sum(w * stats.norm(m, np.sqrt(0.375)).pdf(x) for m, w in ((0, 0.25), (1, 0.75))) for x in (0.2, 0.9)]
    expected = np.array([1.0, 2.0]) / density
    found = importance_weights("normal", rows, log_prior, particles, weights, scale)
    np.testing.assert_allclose(found, expected / expected.sum())
    # uniform: 0.2 is within half of 0 alone, 0.9 within half of 1 alone: 1 / 0.25 and 2 / 0.75
    found = importance_weights("uniform", rows, log_prior, particles, weights, np.array([[0.5]]))
    np.testing.assert_allclose(found, np.array([4.0, 8.0 / 3.0]) / (4.0 + 8.0 / 3.0))
    assert effective_sample_size(np.array([0.5, 0.25, 0.25])) == pytest.approx(1 / 0.375)


def test_regression_undoes_a_linear_relation() -> None:
    rng = np.random.default_rng(0)
    features = np.column_stack([rng.normal(size=(50, 2)), np.full(50, 3.0)])
    rows = 1.0 + features[:, :2] @ np.array([[2.0, 0.0], [-1.0, 0.5]])
    distances = np.abs(features[:, 0])
    adjusted, weights = regression_adjusted(rows, features, np.array([0.5, 1.0, 3.0]), distances, np.full(50, 0.02))
    np.testing.assert_allclose(adjusted, np.tile([1.0, 1.5], (50, 1)), atol=1e-9)
    assert weights.sum() == pytest.approx(1.0) and weights[distances.argmax()] < 1e-6
    few = regression_adjusted(rows[:9], features[:9], np.zeros(3), distances[:9], np.full(9, 1 / 9))
    np.testing.assert_array_equal(few[0], rows[:9])


def test_smoothed_draws_keep_mean_and_covariance() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 2)) @ np.array([[1.0, 0.8], [0.0, 0.5]])
    weights = rng.random(300)
    weights /= weights.sum()
    draws = smoothed_draws(rows, weights, 40_000, rng)
    np.testing.assert_allclose(draws.mean(axis=0), weights @ rows, atol=0.02)
    np.testing.assert_allclose(np.cov(draws.T), weighted_covariance(rows, weights), atol=0.02)
    assert len(np.unique(draws[:, 0])) == 40_000
