"""Parameters are matched by their names, not by their places, wherever a prior meets a simulator."""

from __future__ import annotations

import numpy as np
import pytest

from metaroll.inference.abc import ABCSMC
from metaroll.inference.checks import check_posterior
from metaroll.inference.configs import EstimatorConfig
from metaroll.inference.identification import identify
from metaroll.inference.neural import BayesSim
from metaroll.inference.parameter_names import column_order, named
from metaroll.inference.posterior import Posterior
from metaroll.inference.simulations import Simulations

PRIOR = {"length": (0.5, 1.5), "mass": (0.5, 1.5)}
TRUTH = {"length": 0.7, "mass": 1.3}


class Other:
    """A simulator whose first column is the mass: features tell ``mass`` and ``10 length``."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __call__(self, thetas):
        return thetas * [1.0, 10.0] + 0.01 * np.sin(1e4 * thetas)


OTHER = Other("mass", "length")
OBSERVED = np.array([1.3, 7.0])


def test_columns_by_name():
    assert column_order(("a", "b", "c"), ["c", "a", "b"], "it") == [2, 0, 1]
    given = np.array([[1.0, 2.0]])
    swapped = Other("mass", "length")
    np.testing.assert_allclose(named(swapped, ("length", "mass"))(given), swapped(given[:, ::-1]))

    def plain(thetas):
        return thetas

    assert named(plain, ("length", "mass")) is plain  # says nothing of its names: as the prior
    assert named(swapped, ("mass", "length")) is swapped


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("mass", "width"), "it lacks length and the prior lacks width"),
        (("mass",), "it lacks length"),
        (("mass", "length", "mass"), "twice"),
    ],
)
def test_other_parameters_are_an_error_that_names_them(names, words):
    with pytest.raises(ValueError, match=words):
        ABCSMC(PRIOR).infer(Other(*names), OBSERVED)
    with pytest.raises(ValueError, match=words):
        check_posterior(Posterior(PRIOR, OBSERVED, [[0.7, 1.3]]), Other(*names))


def test_names_that_are_no_names():
    with pytest.raises(TypeError, match="names of simulate must be a list of names"):
        column_order(("a", "b"), "ab", "simulate")
    with pytest.raises(TypeError, match="simulate must"):
        named(3, ("a",))


def abc():
    return ABCSMC(PRIOR, 100, seed=0).infer(OTHER, OBSERVED, 2000).mean


def neural():
    config = EstimatorConfig(hidden_features=16, max_epochs=30, batch_size=50, learning_rate=1e-2)
    return BayesSim(PRIOR, 1, config=config).infer(OTHER, OBSERVED, 300).mean


@pytest.mark.parametrize(
    "inferred",
    [
        abc,
        neural,
        lambda: identify(OTHER, OBSERVED, PRIOR, num_simulations=300).theta,
    ],
    ids=["abc", "neural", "identify"],
)
def test_a_simulator_with_its_parameters_in_another_order(inferred):
    np.testing.assert_allclose(inferred(), list(TRUTH.values()), atol=0.12)


def test_checks_simulate_by_name_and_take_calibration_by_name():
    class Narrow:
        event_shape = (2,)

        def means(self, features):
            return posterior.prior.to_normal(np.clip(features[:, ::-1] / [10.0, 1.0], 0.5, 1.5))

        def sample(self, num, features, seed):
            noise = np.random.default_rng(seed).standard_normal((len(features), num, 2))
            return self.means(features)[:, None] + 0.05 * noise

        def log_prob(self, normals, features):
            return -0.5 * np.square((normals - self.means(features)[:, None]) / 0.05).sum(axis=2)

    posterior = Posterior(PRIOR, OBSERVED, estimator=Narrow())
    right, asked = "reproduces the observed", "reproduces held-out rollouts"
    few = {"num_calibration": 60, "num_draws": 20, "num_predictive": 40}
    verdict = check_posterior(posterior, OTHER, held_out=OBSERVED, held_out_simulate=OTHER, **few)
    assert verdict[right].outcome == verdict[asked].outcome == "passed"
    assert verdict["uses the data"].outcome != "failed"
    rows = np.random.default_rng(0).uniform(0.5, 1.5, (60, 2))  # mass, length
    told = Simulations(rows, OTHER(rows), ("mass", "length"))
    by_name = check_posterior(posterior, calibration=told, num_draws=20)["calibration"].values["shift"]
    assert max(map(abs, by_name.values())) < 0.5
    by_place = check_posterior(posterior, calibration=told._replace(names=None), num_draws=20)["calibration"]
    assert by_place.outcome == "failed" and by_place.values["coverage"]["mass"] < 0.5
