"""Posteriors of bounded parameters: whole densities, and draws, within the bounds."""

from __future__ import annotations

import numpy as np
import pytest

from metaroll.errors import PosteriorError
from metaroll.inference.configs import EstimatorConfig
from metaroll.inference.estimators import NeuralEstimator
from metaroll.inference.neural import NPDR
from metaroll.inference.posterior import Posterior

SMALL = EstimatorConfig(model="mdn", num_components=2, hidden_features=10, max_epochs=15, batch_size=50)


def features(thetas: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(3).standard_normal(thetas.shape)
    return thetas + 0.5 * noise


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    prior = {"a": (2.0, 4.0), "b": ("normal", 0.0, 1.0)}
    return NPDR(prior, SMALL, seed=1).infer(features, [4.2, 0.3], 400)


def test_which_columns_are_flat(posterior, tmp_path) -> None:
    assert posterior.estimator.flat == (0,)
    loaded = Posterior.load(posterior.save(tmp_path / "kept"))
    points = posterior.prior.sample(50, 0)
    np.testing.assert_array_equal(loaded.log_prob(points), posterior.log_prob(points))
    np.testing.assert_array_equal(loaded.sample(100, 3), posterior.sample(100, 3))
    told = {**posterior.estimator.to_plain(), "edge": 0.0}
    with pytest.raises(PosteriorError, match=r"flat scale with edges of 0.2, got edges of 0.0.*infer again"):
        NeuralEstimator.from_weights(2, told, posterior.estimator.weights())


def test_all_of_the_density_lies_within_the_bounds(posterior) -> None:
    """At an observation beyond a bound, where much of what the network draws lies outside."""
    a, b = np.linspace(2.0, 4.0, 401), np.linspace(-6.0, 6.0, 401)
    cells = np.stack(np.meshgrid(0.5 * (a[1:] + a[:-1]), 0.5 * (b[1:] + b[:-1]), indexing="ij"), -1).reshape(-1, 2)
    density = np.exp(posterior.log_prob(cells))
    area = (a[1] - a[0]) * (b[1] - b[0])
    assert density.sum() * area == pytest.approx(1.0, abs=0.03)
    drawn = posterior.sample(4000, 0)
    assert (drawn[:, 0] > 2.0).all() and (drawn[:, 0] < 4.0).all()
    mean = (density[:, None] * cells).sum(axis=0) * area
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.05)


def test_the_end_of_a_posterior_at_a_bound_is_not_cut_off() -> None:
    """Data that tells nothing leaves a uniform prior; cut at its bounds, a normal has 0.83 of its deviation."""
    noise = np.random.default_rng(5)
    learner = NPDR({"a": (2.0, 4.0)}, SMALL, seed=1)
    posterior = learner.infer(lambda thetas: noise.standard_normal(thetas.shape), [0.0], 2000)
    assert posterior.sample(4000, 0).std() == pytest.approx(2.0 / np.sqrt(12.0), rel=0.1)


def test_draws_of_a_network_that_leaves_nothing_within_the_bounds_lie_on_them() -> None:
    learner = NPDR({"a": (2.0, 4.0)}, SMALL, seed=1)
    posterior = learner.infer(lambda thetas: features(thetas)[:, :1], None, 400)
    drawn = posterior.sample(50, 0, observed=np.array([300.0]))
    assert np.isfinite(drawn).all() and (drawn <= 4.0).all() and (drawn >= 2.0).all()
    assert np.isfinite(posterior.log_prob(drawn[:1], observed=np.array([300.0]))).all()


def test_a_round_that_draws_from_the_posterior_has_no_bounds() -> None:
    learner = NPDR({"a": (2.0, 4.0)}, SMALL, rounds=2, proposal="posterior", seed=1)
    assert learner.infer(lambda thetas: features(thetas)[:, :1], [3.0], 200).estimator.flat == ()
