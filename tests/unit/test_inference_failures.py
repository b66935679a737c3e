"""Simulations that fail with some parameters: the posterior is that of an observation that has not failed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from metaroll.inference.checks import check_posterior
from metaroll.inference.configs import EstimatorConfig
from metaroll.inference.neural import NPDR
from metaroll.inference.posterior import Posterior
from metaroll.inference.success import SuccessModel

PRIOR = {"theta": (-2.0, 2.0)}
QUICK = EstimatorConfig(
    model="maf", hidden_features=16, num_transforms=2, max_epochs=40, batch_size=100, learning_rate=1e-2
)
GRID = np.linspace(-2.0, 2.0, 2001)[1:-1]


def simulator(seed: int = 0):
    """``x = theta + e / 2``, of which nine of ten with theta above 0 fail: P(theta > 0 | x = 0) = 0.1 / 1.1 = .091."""
    generator = np.random.default_rng(seed)

    def simulate(thetas):
        features = thetas + 0.5 * generator.standard_normal(thetas.shape)
        features[(thetas[:, 0] > 0.0) & (generator.random(len(thetas)) < 0.9)] = np.nan
        return features

    return simulate


def above_zero(posterior: Posterior) -> float:
    density = np.exp(posterior.log_prob(GRID[:, None]))
    return float(density[GRID > 0.0].sum() / density.sum())


def test_a_likelihood_counts_how_likely_a_simulation_succeeds(tmp_path):
    told = []
    config = replace(QUICK, method="nle", model="mdn", num_components=1)
    posterior = NPDR(PRIOR, config, progress=told.append).infer(simulator(), None, 1000).at([0.0])
    assert above_zero(posterior) == pytest.approx(1.0 / 11.0, abs=0.06)  # .5 without
    drawn = posterior.sample(200, 0)
    assert (drawn > 0.0).mean() == pytest.approx(1.0 / 11.0, abs=0.09)
    failed = posterior.description["num_failed"]
    assert 400 < failed < 500 and told[-2].phase == "train" and told[-2].failed == failed
    # With draws of its own it need not make ten thousand by chains.
    known = {"estimator": posterior.estimator, "description": posterior.description}
    told_again = Posterior(posterior.prior, [0.0], drawn, **known)
    assert f"{failed} of 1,000 simulations failed" in repr(told_again)
    # The folder knows it too.
    again = Posterior.load(told_again.save(tmp_path / "p"))
    np.testing.assert_array_equal(again.log_prob(GRID[:, None]), posterior.log_prob(GRID[:, None]))


@pytest.mark.parametrize("proposal", ["posterior", "truncated"])
def test_rounds_with_failures(proposal):
    posterior = NPDR(PRIOR, QUICK, rounds=2, proposal=proposal).infer(simulator(), [0.0], 1000)
    # A small flow smooths the jump at 0; .55 to .7 where atoms do not count the chance of success.
    assert above_zero(posterior) < 0.3
    told = posterior.description
    assert sum(told["num_failed_in_rounds"]) == told["num_failed"] and min(told["num_failed_in_rounds"]) > 50


def test_the_verdict_says_how_many_failed():
    class Right:
        event_shape = (1,)

        def sample(self, num, features, seed):
            generator = np.random.default_rng(seed)
            return features[:, None] * 0.5 + generator.standard_normal((len(features), num, 1))

        def log_prob(self, normals, features):
            return -0.5 * np.square(normals - 0.5 * features[:, None])[:, :, 0]

    told = {"num_failed": 3, "num_simulations": [197]}
    posterior = Posterior(PRIOR, [0.0], estimator=Right(), description=told)
    verdict = check_posterior(posterior, simulator(), num_calibration=200, num_draws=20, num_predictive=20)
    words = verdict["failed simulations"].words
    assert "3 of 200 simulations failed; " in words and " of 600 for calibration; " in words
    assert 180 < verdict["failed simulations"].values["for calibration"] < 360  # it is not right where some fail
    assert "failed simulations" in str(verdict) and verdict["failed simulations"].outcome == "note"


def test_the_chance_of_success_is_learned():
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((1500, 2))
    chance = np.where(rows[:, 0] > 0.5, 0.2, 0.95)
    before = torch.get_rng_state()
    model = SuccessModel.fitted(rows, generator.random(1500) < chance, 3)
    assert torch.equal(torch.get_rng_state(), before)
    asked = generator.standard_normal((500, 2))
    far = np.abs(asked[:, 0] - 0.5) > 0.4  # a network rounds the step off
    found = np.exp(model(torch.as_tensor(asked, dtype=torch.float32)).numpy())
    exact = np.where(asked[:, 0] > 0.5, 0.2, 0.95)
    assert np.abs(found - exact)[far].mean() < 0.05
